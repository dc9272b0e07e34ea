"""Pods of custom resources: what the controllers of each kind make, by a table of expressions.

Expressions are Jinja's, evaluated in its sandbox on the content of a resource. A field that is missing is undefined, as
are all fields below it.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from jinja2 import ChainableUndefined, TemplateError, Undefined, pass_context
from jinja2.sandbox import SandboxedEnvironment

from steersman.cluster.objects.api.controllers import MAX_REPLICAS
from steersman.cluster.objects.fields import FieldError, Object, join
from steersman.core.quantities import NANO, nano
from steersman.workloads.formats.kubernetes.admission import named_by
from steersman.workloads.formats.kubernetes.argo_workflows import patch_of, workflow_parallelism, workflow_templates
from steersman.workloads.formats.kubernetes.controllers import Key, is_created, key_of
from steersman.workloads.formats.kubernetes.replicas import within
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject, ResourceRow, Rule, resource_table

# Pod templates in objects of kinds that nothing else reads, found by their shape: a mapping with `spec.containers`. How
# many pods a template stands for is read from the fields around it that usually say so. What the controllers of these
# kinds add to their pods is not known.

MAX_DEPTH = 16
_COUNTS = ("replicas", "size", "count", "numWorkers", "workers", "numNodes", "instances")
"""Fields that say how many pods the templates below them stand for; the first that is there counts."""
_LEAST_COUNTS = ("minMember", "minAvailable")
"""Fields that do so right beside a template: elsewhere they are about several of them."""
_ROLE_ENDS = ("GroupSpec", "Template", "Spec", "Config")
_NO_ROLES = ("template", "spec", "podTemplate", "podTemplateSpec")


def templates_below(spec: Object) -> list[dict[str, Any]]:
    """Return `template`, `role`, `count` and `suspended` of each pod template in a spec; a single one has no role."""
    found = list(_below(spec, "", 1, False, 0))
    return [{**each, "role": ""} for each in found] if len(found) == 1 else found


def _below(value: Object, role: str, count: int, is_suspended: bool, depth: int) -> Iterator[dict[str, Any]]:
    """Yield the templates below a mapping, of which there are `count`."""
    if depth > MAX_DEPTH:  # an alias can make a mapping contain itself
        return
    count, is_suspended = count * _pod_count(value), is_suspended or _is_suspended(value)
    for key, child in value.items():
        for part in child if isinstance(child, list) else [child]:
            if not isinstance(part, dict) or not isinstance(key, str) or key == "jobTemplate":
                continue
            named = _role(part, key, role)
            if _is_template(part):
                yield {"template": part, "role": named, "count": count, "suspended": is_suspended}
            else:
                yield from _below(part, named, count, is_suspended, depth + 1)


def requests_resources(value: Any, depth: int = 0) -> bool:
    """Return whether an object without a pod template says somewhere what containers request."""
    if depth > MAX_DEPTH:
        return False
    if isinstance(value, list):
        return any(requests_resources(each, depth + 1) for each in value)
    if not isinstance(value, dict):
        return False
    resources = value.get("resources")
    amounts = [resources.get(key) for key in ("limits", "requests")] if isinstance(resources, dict) else []
    if any(
        name in ("cpu", "memory") or "/" in str(name) for each in amounts if isinstance(each, dict) for name in each
    ):
        return True
    return any(requests_resources(each, depth + 1) for each in value.values())


def _is_template(value: Object) -> bool:
    spec = value.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return isinstance(containers, list) and bool(containers) and all(isinstance(each, dict) for each in containers)


def _pod_count(value: Object) -> int:
    """Return how many pods the templates directly or further below a mapping stand for, by the fields beside them."""
    for key in ("completions", "parallelism"):
        if isinstance(value.get(key), int):
            return whole_number(value[key])
    has_template = any(isinstance(child, dict) and _is_template(child) for child in value.values())
    keys = (*_COUNTS, *_LEAST_COUNTS) if has_template else _COUNTS
    stated = (value.get(key) for key in keys if isinstance(value.get(key), int) or key == "replicas")
    count = next((whole_number(each) for each in stated if each is not None), 1)
    return min(
        max(count, whole_number(value.get("minReplicas"))), whole_number(value.get("maxReplicas"), MAX_REPLICAS + 1)
    )


def _is_suspended(value: Object) -> bool:
    policy = value.get("runPolicy")
    return value.get("suspend") is True or (isinstance(policy, dict) and policy.get("suspend") is True)


def whole_number(value: Any, default: int = 0) -> int:
    """Return a number of pods, also of digits as annotations have them; without a value the default.

    More than `MAX_REPLICAS` are one more, which is an error where so many pods would be made.
    """
    if value is None or value == "" or isinstance(value, Undefined):
        return default
    if isinstance(value, bool) or not (str(value).isascii() and str(value).isdigit()):
        raise ValueError(f"{str(value)[:40]!r} is not a whole number of at least 0")
    return min(int(value), MAX_REPLICAS + 1) if len(str(value)) < 20 else MAX_REPLICAS + 1


def _role(part: Object, key: str, role: str) -> str:
    """Return what pods below a part of an object are called: by its name, else by its key if that says anything."""
    for name in (part.get("groupName"), part.get("name")):
        if isinstance(name, str) and name and name.isprintable():
            return name.lower()
    short = next((key.removesuffix(end) for end in _ROLE_ENDS if key.endswith(end) and key != end), key)
    return role if key in _NO_ROLES else short.lower()


Variables = Mapping[str, Any]
_JVM_UNITS = {"k": 1 / 1024, "m": 1, "g": 1 << 10, "t": 1 << 20, "p": 1 << 30}
_JVM_SIZE = re.compile(r"(\d{1,15})\s*([kmgtp]?)b?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Part:
    """Equal pods, or objects that make pods, which a controller makes of a part of its resource."""

    kind: str  # Pod, or the kind of the objects, with its group unless it is read otherwise
    template: Object  # of the pods, or the spec of the objects
    path: str  # where the template of the pods is in the resource
    members: Iterable[tuple[str, Mapping[str, str]]]  # name and labels of each
    is_suspended: bool = False  # whether they are not created yet
    metadata: Object = field(default_factory=dict)  # of the objects

    def scaled(self, replicas: tuple[int, int] | None) -> Iterable[tuple[str, Mapping[str, str]]]:
        members = list(self.members) if replicas else []
        return members[:1] * within(len(members), replicas) if members else self.members

    def objects(self, above: KubernetesObject) -> Iterator[KubernetesObject]:
        """Yield the objects that it stands for, unless they are pods."""
        kind, _, group = self.kind.partition(".")
        for name, labels in self.members:
            spec = dict(self.template)
            if "template" in spec:
                spec["template"] = merged(spec["template"], {"metadata": {"labels": labels}})
            metadata = merged(self.metadata, {"name": name, "namespace": above.namespace, "labels": labels})
            content = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "spec": spec}
            yield KubernetesObject(content, kind, above.document)


class CustomResources:
    """The custom resources of an input."""

    def __init__(self, objects: Sequence[KubernetesObject]) -> None:
        self._objects = {key_of(obj): obj.content for obj in objects}
        self._absent: dict[tuple[str, str], dict[str, None]] = {}
        self._dumped = {obj.namespace for obj in objects if obj.kind == "Pod" and is_created(obj)}
        self._scaled_down = {key for obj in objects if (key := self._scaled_down_by(obj))}

    def resolved(self, obj: KubernetesObject) -> KubernetesObject:
        """Return an object without replicas if another one has taken over its pods."""
        if key_of(obj) not in self._scaled_down:
            return obj
        return replace(obj, content=merged(obj.content, {"spec": {"replicas": 0}}))

    def parts(self, obj: KubernetesObject) -> Iterator[Part]:
        """Yield what the controller of a resource makes. Raises FieldError: the resource is invalid."""
        if not isinstance(obj.content.get("spec"), dict):
            return
        try:
            yield from self._parts(obj)
        except FieldError:
            raise
        except (TemplateError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise FieldError("spec", f"is not that of a {obj.kind}: {error}") from None

    def warnings(self) -> list[str]:
        """Return a warning for each object that others refer to and the input does not hold."""
        return [
            f"{kind} {name} is not in the input; pods that it describes are left out ({named_by([*users])})"
            for (kind, name), users in sorted(self._absent.items())
        ]

    def _variables(self, obj: KubernetesObject) -> dict[str, Any]:
        metadata = {key: obj.metadata.get(key) or {} for key in ("labels", "annotations")}
        kind, lookup = obj.kind.partition(".")[0], partial(self._lookup, obj)
        named = {"name": obj.name, "namespace": obj.namespace, "kind": kind, "version": obj.version}
        return {**obj.content, **metadata, **named, "lookup": lookup}

    def may_make_pods(self, obj: KubernetesObject) -> bool:
        """Return whether an object of an unknown kind, without a pod template, may make pods; one of a dump has."""
        variables, row = self._variables(obj), resource_table().other
        is_inactive = is_created(obj) or value(resource_table().has_ended, variables) or value(row.stopped, variables)
        return not is_inactive and requests_resources(obj.content.get("spec"))

    def is_empty(self, obj: KubernetesObject) -> bool:
        """Return whether an object of the table, without parts, should have some; those of dumps have made theirs."""
        row = _row(obj)
        if row is None or not row.makes or is_created(obj) or any(_user(obj) in each for each in self._absent.values()):
            return False
        return self._active_variables(obj, row) is not None

    def _active_variables(self, obj: KubernetesObject, row: ResourceRow) -> dict[str, Any] | None:
        """Return the variables of a resource, None if it is stopped or has ended."""
        variables = self._variables(obj)
        for name, text in row.let.items():
            variables[name] = value(text, variables)
        is_over = value(row.stopped, variables) or (row.ends and value(resource_table().has_ended, variables))
        return None if is_over else variables

    def _parts(self, obj: KubernetesObject) -> Iterator[Part]:
        row = _row(obj) or resource_table().other
        variables = self._active_variables(obj, row)
        if variables is None:
            return
        for rule in row.makes:
            parts = value(rule.each, variables) or ()
            if not isinstance(parts, dict | list | tuple):
                raise TypeError(f"{str(parts)[:40]!r} is neither a list nor a mapping of parts")
            entries = parts.items() if isinstance(parts, dict) else enumerate(parts)
            for position, (key, part) in enumerate(entries):
                scope = {**variables, "part": part, "key": key, "position": position}
                for name, text in rule.let.items():
                    scope[name] = value(text, scope)
                if value(rule.when, scope):
                    yield _part(obj, rule, scope, bool(value(row.suspended, scope)))

    def _lookup(self, obj: KubernetesObject, kinds: str, name: object, needed: bool = True) -> Object | None:
        """Return the object of one of some kinds that another one refers to; None: the input does not hold it.

        The warnings name one that is needed, unless the input holds the pods that it describes.
        """
        if not name or isinstance(name, Undefined):
            return None
        for kind in kinds.split():
            for namespace in (obj.namespace, "default") if "Cluster" in kind else (obj.namespace,):
                if (content := self._objects.get((kind, namespace, str(name)))) is not None:
                    return content
        if needed and not (is_created(obj) and obj.namespace in self._dumped):
            kind = kinds.split()[0]
            full = str(name) if "Cluster" in kind else f"{obj.namespace}/{name}"
            self._absent.setdefault((kind, full), {})[_user(obj)] = None
        return None

    def _scaled_down_by(self, obj: KubernetesObject) -> Key | None:
        row = _row(obj)
        reference = value(row.scales_down, self._variables(obj)) if row is not None else None
        return (reference["kind"], obj.namespace, str(reference.get("name"))) if reference else None


def _user(obj: KubernetesObject) -> str:
    return f"{obj.kind} {obj.namespace}/{obj.name}"


def is_described(obj: KubernetesObject) -> bool:
    """Return whether the table says what an object without pods is for."""
    return _row(obj) is not None or obj.kind.partition(".")[0] in resource_table().auxiliary


def _row(obj: KubernetesObject) -> ResourceRow | None:
    return resource_table().row(obj.kind.partition(".")[0], obj.group)


def _part(obj: KubernetesObject, rule: Rule, scope: Variables, suspended: bool) -> Part:
    template: Any = value(rule.template, scope)
    if not isinstance(template, dict):
        raise FieldError(_path_of(obj.content, scope["part"], "") or "spec", "has no template of pods")
    of_pods = template if rule.kind == "Pod" else template.get("template")
    paths = (_path_of(obj.content, each, "") for each in (of_pods, scope["part"]))
    notes = _texts(rule.annotations, scope)
    added = merged(value(rule.add, scope), {"metadata": {"annotations": notes}} if notes else None)
    if added:
        of_pods = merged(of_pods, added)
    template = of_pods if rule.kind == "Pod" else {**template, **({"template": of_pods} if of_pods else {})}
    path, metadata = next(filter(None, paths), "spec"), value(rule.metadata, scope)
    counts = [_count(each, scope, obj) for each in rule.count.values()]
    if math.prod(counts) > MAX_REPLICAS:
        raise FieldError("spec", f"stands for more than {MAX_REPLICAS} pods")
    return Part(rule.kind, template, path, _members(rule, scope, counts), suspended, metadata or {})


def _count(expression: str, scope: Variables, obj: KubernetesObject) -> int:
    try:
        return whole_number(value(expression, scope), 1)
    except ValueError as error:
        above, _, field = expression.rpartition(".")
        path = "spec" if above == "spec" else _path_of(obj.content, scope["part"], "") if above == "part" else ""
        raise FieldError(join(path, field) if path else "spec", str(error)) from None


def _members(rule: Rule, scope: Variables, counts: Sequence[int]) -> Iterator[tuple[str, Mapping[str, str]]]:
    varies = any(name in each for name in rule.count for each in (rule.name, *rule.labels.values()))
    member = None
    for numbers in itertools.product(*map(range, counts)):
        if member is None or varies:
            variables = {**scope, **dict(zip(rule.count, numbers, strict=True))}
            member = text(rule.name, variables), _texts(rule.labels, variables)
        yield member


def _path_of(content: object, target: object, path: str) -> str:
    """Return where an object is in another one; empty: nowhere."""
    if content is target and isinstance(target, dict):
        return path
    if path.count(".") > 16:  # an alias can make a mapping contain itself
        return ""
    if isinstance(content, dict):
        places = ((join(path, str(key)), each) for key, each in content.items())
    else:
        places = ((f"{path}[{i}]", each) for i, each in enumerate(content if isinstance(content, list) else ()))
    return next((found for where, each in places if (found := _path_of(each, target, where))), "")


# Expressions


class _Expressions(SandboxedEnvironment):
    """Expressions in which fields of a mapping hide its methods, and what is missing or nothing has no fields."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return a field of a mapping, or what Jinja finds."""
        return obj.get(attribute, self.undefined()) if isinstance(obj, Mapping) else super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        return self.undefined() if obj is None else super().getitem(obj, argument)


@cache
def _expressions() -> _Expressions:
    environment = _Expressions(undefined=ChainableUndefined, variable_start_string="{", variable_end_string="}")
    environment.globals = {
        "counted": lambda names: dict(Counter(names)),
        "jvm_mib": jvm_mib,
        "mapped": _mapped,
        "merged": merged,
        "number": whole_number,
        "patch_of": patch_of,
        "quantity": quantity,
        "templates_below": templates_below,
        "sha1": lambda each: hashlib.sha1(str(each).encode(), usedforsecurity=False).hexdigest(),
        "workflow_parallelism": workflow_parallelism,
        "workflow_templates": workflow_templates,
    }
    for signature, result in resource_table().functions.items():
        name, _, arguments = signature.rstrip(")").partition("(")
        environment.globals[name] = partial(_call, result, arguments.split(", "))
    return environment


def _call(result: str, names: Sequence[str], *arguments: object) -> Any:
    return value(result, dict(zip(names, arguments, strict=False)))


@pass_context
def _mapped(context: Any, items: Any, name: str, each: str) -> list[Any]:
    """Return the value of an expression for each item, which it knows by a name; those without a value are left out."""
    values = (value(each, {**context.get_all(), name: item}) for item in (items if isinstance(items, list) else ()))
    return [result for result in values if result is not None]


@cache
def _expression(expression: str) -> Any:
    return _expressions().compile_expression(expression)


def value(expression: str, variables: Variables) -> Any:
    """Return the value of an expression; None: it is undefined."""
    return _defined(_expression(expression)(variables))


@cache
def _template(template: str) -> Any:
    return _expressions().from_string(template)


def text(template: str, variables: Variables) -> str:
    """Return a text in which {expressions} are replaced by their values."""
    return str(_template(template).render(variables))


def _texts(templates: Mapping[str, str], variables: Variables) -> dict[str, str]:
    values = ((key, text(each, variables)) for key, each in templates.items())
    return {key: each for key, each in values if each}


def _defined(each: Any) -> Any:
    """Return a value without undefined fields, the same object if it has none."""
    if isinstance(each, dict):
        fields = {key: _defined(field) for key, field in each.items() if not isinstance(field, Undefined)}
        return each if len(fields) == len(each) and all(fields[key] is each[key] for key in each) else fields
    if isinstance(each, list):
        items = [_defined(item) for item in each]
        return each if all(a is b for a, b in zip(items, each, strict=True)) else items
    return each


def merged(*parts: Any) -> Any:
    """Return mappings merged as kubectl's strategic merge patches: lists of what has a name by it, others joined."""
    result: Any = None
    for part in parts:
        if part is not None and not isinstance(part, Undefined):
            result = _defined(part) if result is None else _merge(result, _defined(part))
    return {} if result is None else result


def _merge(base: Any, patch: Any) -> Any:
    if isinstance(patch, dict):
        kept = base if isinstance(base, dict) and patch.get("$patch") != "replace" else {}
        fields = {key: _merge(kept.get(key), each) for key, each in patch.items() if key != "$patch"}
        is_same = not kept and all(fields.get(key) is each for key, each in patch.items())
        return patch if is_same else {**kept, **fields}
    if isinstance(patch, list) and not base:
        items = [_merge(None, each) for each in patch]
        return patch if all(a is b for a, b in zip(items, patch, strict=True)) else items
    if isinstance(base, list) and isinstance(patch, list):
        if not all(isinstance(each, dict) and each.get("name") for each in (*base, *patch)):
            return [*base, *patch]
        named = {each["name"]: each for each in base}
        return [*(named | {each["name"]: _merge(named.get(each["name"]), each) for each in patch}).values()]
    return base if patch is None else patch


def quantity(stated: Any, field: str) -> float:
    """Return a quantity of Kubernetes in units or bytes. Raises FieldError."""
    try:
        return nano(stated) / NANO
    except ValueError as error:
        raise FieldError(field, str(error)) from None


def jvm_mib(stated: Any, field: str) -> int:
    """Return an amount of memory as the JVM reads it: 512m and 2g are MiB and GiB, a number alone is MiB."""
    match = _JVM_SIZE.fullmatch(str(stated).strip())
    if match is None:
        raise FieldError(field, f"{stated!r} is not an amount of memory; expected one such as 512m or 4g")
    return int(int(match[1]) * _JVM_UNITS[match[2].lower() or "m"])
