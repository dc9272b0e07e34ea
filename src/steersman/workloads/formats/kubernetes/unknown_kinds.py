"""Pod templates in objects of kinds that nothing else reads, found by their shape: a mapping with `spec.containers`.

How many pods a template stands for is read from the fields around it that usually say so. What the controllers of these
kinds add to their pods is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from steersman.cluster.objects.api.controllers import MAX_REPLICAS
from steersman.cluster.objects.fields import Object
from steersman.cluster.objects.partial import list_or_empty, mapping_or_empty
from steersman.workloads.formats.kubernetes.unpacking import KINDS, KubernetesObject

MAX_DEPTH = 16
_COUNTS = ("replicas", "size", "count", "numWorkers", "workers", "numNodes", "instances")
"""Fields that say how many pods the templates below them stand for; the first that is there counts."""
_LEAST_COUNTS = ("minMember", "minAvailable")
"""Fields that do so right beside a template: elsewhere they are about several of them."""
TEMPLATES_ALONE = ("Template", "Runtime", "Revision")
"""Ends of names of kinds whose objects other objects use as templates."""
_OVER = ("Succeeded", "Failed", "Complete", "Completed", "Error", "Stopped", "Terminated", "Aborted", "Cancelled")
_ROLE_ENDS = ("GroupSpec", "Template", "Spec", "Config")
_NO_ROLES = ("template", "spec", "podTemplate", "podTemplateSpec")


@dataclass(frozen=True, slots=True)
class FoundTemplate:
    """A pod template in an object.

    Attributes:
        content: `metadata` and `spec` of its pods.
        path: where it is.
        role: part of the object that its pods are, such as `worker`; empty if there is one template.
        count: number of pods.
        is_suspended: whether they are not created yet, since the object, or a part of it, is suspended.
    """

    content: Object
    path: str
    role: str
    count: int
    is_suspended: bool = False


def templates_of(obj: KubernetesObject) -> list[FoundTemplate]:
    """Return the pod templates of an object, unless it makes pods by a clock."""
    spec = obj.content.get("spec")
    kind = obj.kind.partition(".")[0]
    if obj.kind in KINDS or not isinstance(spec, dict) or kind.endswith(TEMPLATES_ALONE):
        return []
    if kind.startswith(("Cron", "Scheduled")) or isinstance(spec.get("schedule"), str):
        return []
    found = list(_below(spec, "spec", "", 1))
    return [replace(each, role="") for each in found] if len(found) == 1 else found


def is_over(obj: KubernetesObject) -> bool:
    """Return whether what an object stands for has succeeded or failed, by what such objects usually say."""
    status = mapping_or_empty(obj.content.get("status"))
    state = status.get("applicationState", status.get("state"))
    phases = (
        status.get("phase"),
        status.get("jobStatus"),
        status.get("jobDeploymentStatus"),
        state.get("phase", state.get("state")) if isinstance(state, dict) else state,
    )
    return any(isinstance(phase, str) and phase.capitalize() in _OVER for phase in phases) or any(
        isinstance(each, dict) and _has_ended(each) for each in list_or_empty(status.get("conditions"))
    )


def _has_ended(condition: Object) -> bool:
    """Return whether a condition says so; that of Tekton named Succeeded does, too, when it is false."""
    kind, status = condition.get("type"), condition.get("status")
    return kind in _OVER and (status == "True" or (kind == "Succeeded" and status == "False"))


def _below(value: Object, path: str, role: str, count: int, is_suspended: bool = False) -> Iterator[FoundTemplate]:
    """Yield the templates below a mapping, of which there are `count`."""
    if path.count(".") > MAX_DEPTH:  # an alias can make a mapping contain itself
        return
    count, is_suspended = count * _count(value), is_suspended or _is_suspended(value)
    for key, child in value.items():
        if not isinstance(key, str) or key == "jobTemplate":
            continue
        parts = enumerate(child) if isinstance(child, list) else [(-1, child)]
        for i, part in parts:
            if not isinstance(part, dict):
                continue
            where = f"{path}.{key}" if i < 0 else f"{path}.{key}[{i}]"
            named = _role(part, key, role)
            if _is_template(part):
                yield FoundTemplate(part, where, named, count, is_suspended)
            else:
                yield from _below(part, where, named, count, is_suspended)


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
    count = next((whole_number(value[key]) for key in keys if isinstance(value.get(key), int)), 1)
    return min(max(count, whole_number(value.get("minReplicas"))), whole_number(value.get("maxReplicas"), MAX_REPLICAS))


def _is_suspended(value: Object) -> bool:
    policy = value.get("runPolicy")
    return value.get("suspend") is True or (isinstance(policy, dict) and policy.get("suspend") is True)


def whole_number(value: Any, default: int = 0) -> int:
    """Return a number of pods, also of the digits of an annotation; anything else is the default."""
    digits = str(value)
    is_count = not isinstance(value, bool) and digits.removeprefix("-").isdecimal() and len(digits) < 20
    return min(max(int(digits), 0), MAX_REPLICAS) if is_count else default


def _role(part: Object, key: str, role: str) -> str:
    """Return what pods below a part of an object are called: by its name, else by its key if that says anything."""
    for field in ("groupName", "name"):
        if isinstance(part.get(field), str) and part[field] and part[field].isprintable():
            return str(part[field]).lower()
    short = next((key.removesuffix(end) for end in _ROLE_ENDS if key.endswith(end) and key != end), key)
    return role if key in _NO_ROLES else short.lower()
