"""Pod templates in objects of any kind, found by their shape: a mapping with `spec.containers`.

How many pods a template stands for is read from the fields around it that usually say so. What the controllers of these
kinds add to their pods is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from steersman.cluster.objects.api.controllers import MAX_REPLICAS
from steersman.cluster.objects.fields import Object
from steersman.workloads.formats.kubernetes.argo_workflows import is_workflow, workflow_pods
from steersman.workloads.formats.kubernetes.spark_applications import SPARK, spark_pods
from steersman.workloads.formats.kubernetes.unpacking import KINDS, KubernetesObject

MAX_DEPTH = 16
_COUNTS = (
    "replicas",
    "size",
    "count",
    "numWorkers",
    "workers",
    "numNodes",
    "instances",
)
"""Fields that say how many pods the templates below them stand for; the first that is there counts."""
_LEAST_COUNTS = ("minMember", "minAvailable")
"""Fields that do so right beside a template: elsewhere they are about several of them."""
TEMPLATES_ALONE = ("Template", "Runtime", "Revision")
"""Ends of names of kinds whose objects other objects use as templates."""
_QUEUES = ("kueue.x-k8s.io/",)
"""API groups whose objects repeat the templates of objects that make pods."""
_LEAST_SCALES = ("autoscaling.knative.dev/min-scale", "autoscaling.knative.dev/minScale")
"""Annotations of templates that say how many pods there are at least."""
_OVER = ("Succeeded", "Failed", "Complete", "Completed", "Error", "Stopped")
_ROLE_ENDS = ("GroupSpec", "Template", "Spec", "Config")
_NO_ROLES = ("template", "spec", "podTemplate", "podTemplateSpec")
_OF_WORKERS = "workerGroupSpecs"


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
    """Return the pod templates of an object of a kind that is not read otherwise, unless it makes pods by a clock.

    Raises:
        FieldError: the object is invalid.
    """
    spec = obj.content.get("spec")
    kind = obj.kind.partition(".")[0]
    if obj.kind in KINDS or not isinstance(spec, dict) or kind.endswith(TEMPLATES_ALONE):
        return []
    if kind.startswith(("Cron", "Scheduled")) or isinstance(spec.get("schedule"), str):
        return []
    if any(str(obj.content.get("apiVersion")).startswith(group) for group in _QUEUES):
        return []
    if is_over(obj):
        return []
    if obj.kind == SPARK:
        return _found(spec, spark_pods(obj.name, spec))
    if is_workflow(spec):
        return _found(spec, workflow_pods(spec))
    found = list(_below(spec, "spec", "", 1))
    return [replace(each, role="") for each in found] if len(found) == 1 else found


def _found(spec: Object, every: Iterable[tuple[Object, str, str, int]]) -> list[FoundTemplate]:
    suspended = _is_suspended(spec)
    return [FoundTemplate(pod, path, role, count, suspended) for pod, path, role, count in every]


def is_over(obj: KubernetesObject) -> bool:
    """Return whether what an object stands for has succeeded or failed, by what such objects usually say."""
    status = obj.content.get("status")
    if not isinstance(status, dict):
        return False
    state = status.get("applicationState", status.get("state"))
    phases = (
        status.get("phase"),
        status.get("jobStatus"),
        state.get("phase", state.get("state")) if isinstance(state, dict) else state,
    )
    if any(isinstance(phase, str) and phase.capitalize() in _OVER for phase in phases):
        return True
    conditions = status.get("conditions")
    return obj.kind != "Rollout" and any(  # which is complete when it runs
        isinstance(each, dict) and each.get("status") == "True" and each.get("type") in _OVER
        for each in (conditions if isinstance(conditions, list) else ())
    )


def _below(value: Object, path: str, role: str, count: int, is_suspended: bool = False) -> Iterator[FoundTemplate]:
    """Yield the templates below a mapping, of which there are `count`."""
    if path.count(".") > MAX_DEPTH:  # an alias can make a mapping contain itself
        return
    count, is_suspended = count * _count(value, path), is_suspended or _is_suspended(value)
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
                made = max(count, _least_scale(part)) - _leaders(value, key, count)
                yield FoundTemplate(part, where, named, made, is_suspended)
            else:
                yield from _below(part, where, named, count, is_suspended)


def _least_scale(template: Object) -> int:
    metadata = template.get("metadata")
    notes = metadata.get("annotations") if isinstance(metadata, dict) else None
    stated = [str(notes[key]) for key in _LEAST_SCALES if key in notes] if isinstance(notes, dict) else []
    return max((min(int(each), MAX_REPLICAS) for each in stated if each.isascii() and each.isdigit()), default=0)


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


def _count(value: Object, path: str) -> int:
    """Return how many pods the templates directly or further below a mapping stand for, by the fields beside them."""
    completions, parallelism = _number(value.get("completions")), _number(value.get("parallelism"))
    if completions is not None or parallelism is not None:
        count = completions if completions is not None else parallelism or 0
    else:
        has_template = any(isinstance(child, dict) and _is_template(child) for child in value.values())
        keys = (*_COUNTS, *_LEAST_COUNTS) if has_template else _COUNTS
        stated = (_number(value.get(key)) for key in keys)
        default = 0 if path.rpartition(".")[2].startswith(f"{_OF_WORKERS}[") else 1
        count = next((number for number in stated if number is not None), default)
        least, most = _number(value.get("minReplicas")), _number(value.get("maxReplicas"))
        count = min(max(count, least or 0), MAX_REPLICAS if most is None else most)
    hosts = _number(value.get("numOfHosts"))
    return min(count * (1 if hosts is None else hosts), MAX_REPLICAS)


def _leaders(value: Object, key: str, count: int) -> int:
    """Return how many of `count` pods are not of the template at `key`: a group of a LeaderWorkerSet has one leader."""
    size = _number(value.get("size"))
    if size is None or "workerTemplate" not in value or not size:
        return 0
    groups = count // size
    if key == "leaderTemplate":
        return count - groups
    return groups if isinstance(value.get("leaderTemplate"), dict) else 0


def _is_suspended(value: Object) -> bool:
    policy = value.get("runPolicy")
    return value.get("suspend") is True or (isinstance(policy, dict) and policy.get("suspend") is True)


def _number(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return min(max(value, 0), MAX_REPLICAS) if is_count else None


def _role(part: Object, key: str, role: str) -> str:
    """Return what pods below a part of an object are called: by its name, else by its key if that says anything."""
    for field in ("groupName", "name"):
        if isinstance(part.get(field), str) and part[field] and part[field].isprintable():
            return str(part[field]).lower()
    short = next((key.removesuffix(end) for end in _ROLE_ENDS if key.endswith(end) and key != end), key)
    return role if key in _NO_ROLES else short.lower()
