"""Pods of custom resources: what the controllers of each kind make, by a table of expressions.

The table is `data/custom_resources.toml`; docs/how-to/add-a-kind.md says what its fields mean. Expressions are Jinja's,
evaluated in its sandbox on the content of a resource. A field that is missing is undefined, as are all fields below it.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import resources
from typing import Any

import msgspec
from jinja2 import ChainableUndefined, TemplateError, Undefined, pass_context
from jinja2.sandbox import SandboxedEnvironment

from steersman.cluster.objects.api.controllers import MAX_REPLICAS
from steersman.cluster.objects.fields import FieldError, Object, join
from steersman.core.quantities import NANO, nano
from steersman.workloads.formats.kubernetes.argo_workflows import workflow_templates
from steersman.workloads.formats.kubernetes.controllers import Key, is_created, key_of
from steersman.workloads.formats.kubernetes.replicas import within
from steersman.workloads.formats.kubernetes.unknown_kinds import is_over, templates_of, whole_number
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject

Variables = Mapping[str, Any]
_JVM_UNITS = {"k": 1 / 1024, "m": 1, "g": 1 << 10, "t": 1 << 20, "p": 1 << 30}
_JVM_SIZE = re.compile(r"(\d{1,15})\s*([kmgtp]?)b?", re.IGNORECASE)


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a controller makes of each of some parts of a resource. All fields but `kind` are expressions or texts.

    Attributes:
        name: of what is made; one that ends in a hyphen gets a number.
        each: list or mapping of the parts, by default the whole `spec`.
        when: whether a part counts.
        let: further variables, in order.
        kind: Pod, a controller, or a kind of the table with its group, such as `JobSet.jobset.x-k8s.io`.
        count: how many, by the name of the variable that counts them; several multiply.
        template: the template of pods, or the spec of another kind.
        metadata: of what is made, unless it is a pod.
        add: what is merged into the template of pods.
        labels: that the pods get; empty ones are left out.
        annotations: the same.
    """

    name: str
    template: str
    each: str = "[spec]"
    when: str = "true"
    let: dict[str, str] = {}
    kind: str = "Pod"
    count: dict[str, str] = {}
    metadata: str = "{}"
    add: str = "{}"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Resource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the controllers of some kinds make pods.

    Attributes:
        kinds, groups: that this holds for.
        suspended: whether its pods are not created yet.
        stopped: whether it has no pods.
        finishes: whether one with a condition such as Complete has no more pods.
        scales_down: reference to a workload that has no pods of its own, if any.
        let: variables of all rules, in order.
        makes: the rules.
    """

    kinds: list[str]
    groups: list[str]
    makes: list[Rule]
    suspended: str = "spec.suspend"
    stopped: str = "false"
    finishes: bool = True
    scales_down: str = "none"
    let: dict[str, str] = {}


class Function(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function of expressions: names of its arguments, and its value."""

    arguments: list[str]
    value: str


class ResourceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the table.

    Attributes:
        resource: kinds whose pods are known.
        functions: by name.
        auxiliary: kinds that others refer to, or that say nothing about pods.
        unmodelled: kinds that affect when or where pods run and are not modelled.
        unmodelled_annotations: the same of annotations of pods.
        clock: kinds that make objects from time to time, and the kinds of these.
    """

    resource: list[Resource]
    functions: dict[str, Function]
    auxiliary: list[str]
    unmodelled: list[str]
    unmodelled_annotations: list[str]
    clock: dict[str, str]


@cache
def resource_table() -> ResourceTable:
    """Return the table."""
    content = tomllib.loads(resources.files("steersman.data").joinpath("custom_resources.toml").read_text("utf-8"))
    return msgspec.convert(content, ResourceTable)


@cache
def _resource(kind: str, group: str) -> Resource | None:
    rows = resource_table().resource
    return next((row for row in rows if kind.partition(".")[0] in row.kinds and group in row.groups), None)


@dataclass(frozen=True, slots=True)
class Part:
    """Equal pods, or objects that make pods, which a controller makes of a part of its resource.

    Attributes:
        kind: Pod, or the kind of the objects, with its group unless it is read otherwise.
        template: of the pods, or the spec of the objects.
        path: where the template of the pods is in the resource.
        members: name and labels of each.
        is_suspended: whether they are not created yet.
        metadata: of the objects.
    """

    kind: str
    template: Object
    path: str
    members: Iterable[tuple[str, Mapping[str, str]]]
    is_suspended: bool = False
    metadata: Object = field(default_factory=dict)

    def scaled(self, replicas: tuple[int, int] | None) -> Iterable[tuple[str, Mapping[str, str]]]:
        """Return its members within the bounds of an autoscaler."""
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


class Resources:
    """The custom resources of an input.

    Args:
        objects: all objects of the input, which resources may refer to.
    """

    def __init__(self, objects: Sequence[KubernetesObject]) -> None:
        self._objects = {key_of(obj): obj.content for obj in objects}
        self._absent: dict[tuple[str, str], dict[str, None]] = {}
        self._dumped = {obj.namespace for obj in objects if obj.kind == "Pod" and is_created(obj)}
        self._scaled_down = {key for obj in objects if (key := self._scaled_down_by(obj))}

    def resolved(self, obj: KubernetesObject) -> KubernetesObject:
        """Return an object without replicas if another one has taken over its pods."""
        if key_of(obj) not in self._scaled_down:
            return obj
        return replace(obj, content={**obj.content, "spec": {**obj.content["spec"], "replicas": 0}})

    def parts(self, obj: KubernetesObject) -> Iterator[Part]:
        """Yield what the controller of a resource makes. Raises FieldError: the resource is invalid."""
        spec = obj.content.get("spec")
        row = _resource(obj.kind, obj.group)
        if not isinstance(spec, dict) or (is_over(obj) and (row is None or row.finishes)):
            return
        if row is None:
            for each in templates_of(obj):
                prefix = "-".join(part for part in (obj.name, each.role) if part)
                members: Iterable[tuple[str, Mapping[str, str]]] = itertools.repeat((f"{prefix}-", {}), each.count)
                yield Part("Pod", each.content, each.path, members, each.is_suspended)
            return
        try:
            yield from self._parts(obj, row)
        except (TemplateError, TypeError, ValueError, ArithmeticError) as error:
            if isinstance(error, FieldError):
                raise
            raise FieldError("spec", f"is not that of a {obj.kind}: {error}") from None

    def warnings(self) -> list[str]:
        """Return a warning for each object that others refer to and the input does not hold."""
        return [
            f"{kind} {name} is not in the input; pods that it describes are left out (named by "
            f"{', '.join([*users][:3])}{f' and {len(users) - 3} more' if len(users) > 3 else ''})"
            for (kind, name), users in sorted(self._absent.items())
        ]

    def _variables(self, obj: KubernetesObject) -> dict[str, Any]:
        metadata = {key: obj.metadata.get(key) or {} for key in ("labels", "annotations")}
        named = {"name": obj.name, "namespace": obj.namespace, "kind": obj.kind, "version": obj.version}
        return {**obj.content, **metadata, **named, "lookup": partial(self._lookup, obj)}

    def _parts(self, obj: KubernetesObject, row: Resource) -> Iterator[Part]:
        variables = self._variables(obj)
        for name, text in row.let.items():
            variables[name] = value(text, variables)
        if value(row.stopped, variables):
            return
        suspended = bool(value(row.suspended, variables))
        for rule in row.makes:
            for position, (key, part) in enumerate(_entries(value(rule.each, variables))):
                scope = {**variables, "part": part, "key": key, "position": position}
                for name, text in rule.let.items():
                    scope[name] = value(text, scope)
                if value(rule.when, scope):
                    yield _part(obj, rule, scope, suspended)

    def _lookup(self, obj: KubernetesObject, kinds: str, name: object, needed: bool = True) -> Object | None:
        """Return the object of one of some kinds that another one refers to; None: the input does not hold it.

        The warnings name one that is needed, unless the input holds the pods that it describes.
        """
        if not name or isinstance(name, Undefined):
            return None
        for kind in kinds.split():
            namespace = "default" if kind.startswith("Cluster") else obj.namespace
            namespace = namespace if (kind, namespace, str(name)) in self._objects else obj.namespace
            if (content := self._objects.get((kind, namespace, str(name)))) is not None:
                return content
        if needed and not (is_created(obj) and obj.namespace in self._dumped):
            kind = kinds.split()[0]
            full = str(name) if "Cluster" in kind else f"{obj.namespace}/{name}"
            self._absent.setdefault((kind, full), {})[f"{obj.kind} {obj.namespace}/{obj.name}"] = None
        return None

    def _scaled_down_by(self, obj: KubernetesObject) -> Key | None:
        row = _resource(obj.kind, obj.group)
        reference = value(row.scales_down, self._variables(obj)) if row is not None else None
        return (str(reference["kind"]), obj.namespace, str(reference["name"])) if reference else None


def is_described(obj: KubernetesObject) -> bool:
    """Return whether the table says what an object without pods is for."""
    return _resource(obj.kind, obj.group) is not None or obj.kind.partition(".")[0] in resource_table().auxiliary


def _part(obj: KubernetesObject, rule: Rule, scope: Variables, suspended: bool) -> Part:
    """Return what a rule makes of a part of a resource."""
    template: Any = value(rule.template, scope)
    if not isinstance(template, dict):
        raise FieldError("spec", f"has no template of the pods {text(rule.name, {**scope, 'index': 0})}")
    of_pods = template if rule.kind == "Pod" else template.get("template")
    paths = (_path_of(obj.content, each, "") for each in (of_pods, scope["part"]))
    notes = _texts(rule.annotations, scope)
    added = merged(value(rule.add, scope), {"metadata": {"annotations": notes}} if notes else None)
    if added:
        of_pods = merged(of_pods, added)
    template = of_pods if rule.kind == "Pod" else {**template, **({"template": of_pods} if of_pods else {})}
    path, metadata = next(filter(None, paths), "spec"), value(rule.metadata, scope)
    return Part(rule.kind, template, path, _members(rule, scope), suspended, metadata or {})


def _members(rule: Rule, scope: Variables) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield name and labels of all that a rule makes of a part."""
    counts = [whole_number(value(each, scope), 1) for each in rule.count.values()]
    if math.prod(counts) > MAX_REPLICAS:
        raise FieldError("spec", f"stands for more than {MAX_REPLICAS} pods")
    varies = any(name in each for name in rule.count for each in rule.labels.values())
    labels = {} if varies else _texts(rule.labels, scope)
    for numbers in itertools.product(*map(range, counts)):
        variables = {**scope, **dict(zip(rule.count, numbers, strict=True))}
        yield text(rule.name, variables), _texts(rule.labels, variables) if varies else labels


def _entries(parts: object) -> Iterable[tuple[Any, Any]]:
    if isinstance(parts, dict):
        return parts.items()
    if isinstance(parts, list | None):
        return enumerate(parts or ())
    raise FieldError("spec", f"has {str(parts)[:40]!r} where a list or mapping of parts is expected")


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
        """Return an entry."""
        return self.undefined() if obj is None else super().getitem(obj, argument)


@cache
def _expressions() -> _Expressions:
    """Return the expressions with all functions that they may call."""
    environment = _Expressions(undefined=ChainableUndefined, variable_start_string="{", variable_end_string="}")
    environment.globals = {
        "counted": lambda names: dict(Counter(names)),
        "jvm_mib": jvm_mib,
        "mapped": _mapped,
        "merged": merged,
        "number": whole_number,
        "quantity": quantity,
        "sha1": lambda each: hashlib.sha1(str(each).encode(), usedforsecurity=False).hexdigest(),
        "workflow_templates": workflow_templates,
    }
    for name, function in resource_table().functions.items():
        environment.globals[name] = partial(_call, function)
    return environment


def _call(function: Function, *arguments: object) -> Any:
    return value(function.value, dict(zip(function.arguments, arguments, strict=False)))


@pass_context
def _mapped(context: Any, items: Any, name: str, each: str) -> list[Any]:
    """Return the value of an expression for each item, which it knows by a name; those without a value are left out."""
    values = (value(each, {**context.get_all(), name: item}) for item in items or ())
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
