"""Pod templates in objects of kinds that nothing else reads, found by their shape: a mapping with `spec.containers`.

How many pods a template stands for is read from the fields around it that usually say so. What the controllers of these
kinds add to their pods is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jinja2 import Undefined

from steersman.cluster.objects.api.controllers import MAX_REPLICAS
from steersman.cluster.objects.fields import Object

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
    count, is_suspended = count * _count(value), is_suspended or _is_suspended(value)
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


def _count(value: Object) -> int:
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

    Raises:
        ValueError: it is not a whole number of at least 0.
    """
    if value is None or value == "" or isinstance(value, Undefined):
        return default
    if isinstance(value, bool) or not (str(value).isascii() and str(value).isdigit()):
        raise ValueError(f"{str(value)[:40]!r} is not a whole number of at least 0")
    return min(int(value), MAX_REPLICAS + 1) if len(str(value)) < 20 else MAX_REPLICAS + 1


def _role(part: Object, key: str, role: str) -> str:
    """Return what pods below a part of an object are called: by its name, else by its key if that says anything."""
    for field in ("groupName", "name"):
        if isinstance(part.get(field), str) and part[field] and part[field].isprintable():
            return str(part[field]).lower()
    short = next((key.removesuffix(end) for end in _ROLE_ENDS if key.endswith(end) and key != end), key)
    return role if key in _NO_ROLES else short.lower()
