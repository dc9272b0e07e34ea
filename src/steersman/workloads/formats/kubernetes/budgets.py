"""PodDisruptionBudgets among the objects of files: how many pods each lets go now.

Where its status does not say it, as in a manifest, it is computed as the disruption controller does.
Source: Kubernetes 1.37, pkg/controller/disruption/disruption.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from steersman.cluster.constraints.node import holds
from steersman.cluster.model import DisruptionBudget, Requirement
from steersman.cluster.objects.api.controllers import BudgetObject
from steersman.cluster.objects.fields import FieldError
from steersman.cluster.objects.selectors import label_selector
from steersman.core.quantities import ceil_div
from steersman.workloads.formats.kubernetes.controllers import Key, controller_of, is_terminating, key_of
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject

KIND = "PodDisruptionBudget"
SCALED = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")
"""Controllers whose `spec.replicas` is how many pods a budget in percent expects."""


def budgets_of(objects: Iterable[KubernetesObject]) -> tuple[DisruptionBudget, ...]:
    """Return the budgets among objects, by namespace and name."""
    every = list(objects)
    found = (obj for obj in every if obj.kind == KIND)
    return tuple(_budget(obj, every) for obj in sorted(found, key=lambda obj: (obj.namespace, obj.name)))


def check(obj: KubernetesObject) -> None:
    """Raise FieldError for a budget that Kubernetes would refuse, or InputError."""
    budget: BudgetObject = obj.typed
    if budget.spec.selector is not None:
        label_selector(budget.spec.selector, "spec.selector")
    if budget.spec.min_available is not None and budget.spec.max_unavailable is not None:
        raise FieldError("spec.maxUnavailable", "is stated beside minAvailable; a budget has one of them")
    for field in ("minAvailable", "maxUnavailable"):
        _share(budget.spec.max_unavailable if field == "maxUnavailable" else budget.spec.min_available, 0, field)


def _budget(obj: KubernetesObject, objects: Sequence[KubernetesObject]) -> DisruptionBudget:
    budget: BudgetObject = obj.typed
    stated = budget.spec.selector
    requirements = () if stated is None else label_selector(stated, "spec.selector")
    allowed = budget.status.disruptions_allowed
    if allowed is None:
        there = (each for each in objects if each.kind == "Pod" and each.namespace == obj.namespace)
        pods = [each for each in there if _is_in(requirements, each)] if stated is not None else []
        allowed = _allowed(budget, pods, objects)
    disrupted = frozenset(budget.status.disrupted_pods or ())
    return DisruptionBudget(obj.namespace, obj.name, requirements, allowed, disrupted)


def _is_in(requirements: Iterable[Requirement], pod: KubernetesObject) -> bool:
    labels = pod.typed.metadata.labels or {}
    return all(holds(each, labels) for each in requirements)


def _allowed(budget: BudgetObject, pods: Sequence[KubernetesObject], objects: Sequence[KubernetesObject]) -> int:
    """Return how many of the pods may go: those that are ready beyond those that must be."""
    spec, expected = budget.spec, len(pods)
    if spec.max_unavailable is not None:
        expected = _scale(pods, objects)
        needed = max(expected - _share(spec.max_unavailable, expected, "maxUnavailable"), 0)
    elif isinstance(spec.min_available, int):
        needed = spec.min_available
    else:
        expected = _scale(pods, objects)
        needed = _share(spec.min_available, expected, "minAvailable")
    healthy = sum(_is_ready(pod) for pod in pods)
    return max(healthy - needed, 0) if expected > 0 else 0


def _scale(pods: Sequence[KubernetesObject], objects: Sequence[KubernetesObject]) -> int:
    """Return how many pods the pods' controllers want, of those that are not among the objects how many there are."""
    named = {key_of(obj): obj for obj in objects if obj.kind in SCALED}
    wanted: dict[Key, int] = {}
    there: Counter[Key] = Counter()
    for pod in pods:
        key = controller_of(pod)
        while key in named and (above := controller_of(named[key])) is not None:
            key = above
        if key is not None:
            there[key] += 1
            replicas = named[key].typed.spec.replicas if key in named else there[key]
            wanted[key] = 1 if replicas is None else replicas
    return sum(wanted.values())


def _share(value: int | str | None, total: int, field: str) -> int:
    """Return a number, or a percentage of a total, rounded up."""
    if not isinstance(value, str):
        return value or 0
    number = value.removesuffix("%")
    if not (value.endswith("%") and number.isdecimal() and number.isascii()):
        raise FieldError(f"spec.{field}", f"{value!r} is neither a number nor a percentage such as 50%")
    return ceil_div(int(number) * total, 100)


def _is_ready(pod: KubernetesObject) -> bool:
    """Return whether a pod counts as available; one on a node without any condition does."""
    if is_terminating(pod):
        return False
    conditions = pod.pod.status.conditions
    if conditions is None:
        return bool(pod.pod.node) and not pod.pod.finished
    return any(each.type == "Ready" and each.status == "True" for each in conditions)
