"""Requests of a pod: kube-scheduler's sum over containers, sidecars, overhead and pod-level resources.

The rule is k8s.io/component-helpers/resource.PodRequests with the API server's defaults (limits imply requests) and
`UseStatusResources`: a pod that is being resized holds the maximum of its spec, what the kubelet has allocated and what
is in effect. Sums are taken in nano-units and rounded up once, as a scheduler with exact quantities would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from steersman.cluster.objects.api.pods import (
    NO_STATUS,
    Container,
    ContainerStatus,
    PodObject,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from steersman.cluster.objects.fields import FieldError, Object, indexed, join
from steersman.core.quantities import (
    MAX_AMOUNT,
    MAX_CPU_MILLI,
    MAX_MEMORY_BYTES,
    NANO,
    Quantity,
    ceil_div,
    nano,
    plausible,
)

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL = "ephemeral-storage"
HUGEPAGES = "hugepages-"
RESIZE_PENDING = "PodResizePending"
NATIVE = "kubernetes.io/"
"""Part of the names of native resources, which a container may request without a limit or below it."""

# kube-scheduler scores a container without a request as if it requested this much (GetNonzeroRequests).
NONZERO = {CPU: NANO // 10, MEMORY: (200 << 20) * NANO}

Amounts = dict[str, int]
"""Nano-units of each resource."""


@dataclass(frozen=True, slots=True)
class _Resized:
    """Kubelet's status of running containers.

    Attributes:
        holds: by name of a container, the larger of what is allocated and what is in effect.
        pod: the same of the pod's own resources; None: not stated.
        infeasible: the kubelet will never grant the spec's requests, so they do not count.
    """

    holds: Mapping[str, Amounts]
    pod: Amounts | None
    infeasible: bool

    def effective(self, stated: Amounts, holds: Amounts | None) -> Amounts:
        """Return what counts where `stated` is requested and `holds` is held."""
        if holds is None:
            return stated
        return dict(holds) if self.infeasible else _larger(stated, holds)


def pod_requests(spec: PodSpec, path: str, status: PodStatus = NO_STATUS) -> tuple[Amounts, Amounts]:
    """Return the nano-units that a pod requests, exactly and in the non-zero view of scoring.

    Args:
        spec: of the pod.
        path: of `spec`, for errors.
        status: of the pod, with what the kubelet has granted to a pod that is being resized.

    Raises:
        FieldError: an amount is invalid.
    """
    resized = _resized(status, f"{path.removesuffix('spec')}status")
    containers, inits = _containers(spec, path, resized)
    if not containers:
        raise FieldError(join(path, "containers"), "is missing or empty; a pod needs one container or more")
    plain = aggregate(containers, inits, {})
    pod_level = _pod_level(spec, path, resized)
    # With pod-level resources a default applies only to what neither the pod nor a container states.
    assumed = {name: amount for name, amount in NONZERO.items() if not pod_level or name not in {**plain, **pod_level}}
    nonzero = aggregate(containers, inits, assumed)
    overhead = resource_amounts(spec.overhead or {}, f"{path}.overhead")
    results = []
    for total in (plain, nonzero):
        total.update(pod_level)
        _add(total, overhead)
        _check_sums(total, path)
        results.append(total)
    return results[0], results[1]


def _containers(spec: PodSpec, path: str, resized: _Resized | None) -> tuple[list[Amounts], list[tuple[Amounts, bool]]]:
    """Return what containers request, and init containers with whether each is a sidecar."""
    inits = [
        (_container(each, where, resized if each.is_sidecar else None), each.is_sidecar)
        for each, where in indexed(spec.init_containers, f"{path}.initContainers")
    ]
    return [_container(each, where, resized) for each, where in indexed(spec.containers, f"{path}.containers")], inits


def _check_sums(total: Amounts, path: str) -> None:
    """Raise FieldError: plausible quantities have an implausible sum."""
    for name, amount in total.items():
        most = amount_limit(name) or 0
        if amount > most:
            problem = f"ask for {amount // NANO} of {name} in all, beyond any real machine (at most {most // NANO})"
            raise FieldError(join(path, "containers"), problem)


def amount_limit(name: str) -> int | None:
    """Return the nano-units of a resource that a real machine may have; None: it is no resource of a container."""
    if name not in (CPU, MEMORY, EPHEMERAL) and not name.startswith(HUGEPAGES) and "/" not in name:
        return None
    return {CPU: MAX_CPU_MILLI * NANO // 1000, MEMORY: MAX_MEMORY_BYTES * NANO}.get(name, MAX_AMOUNT * NANO)


def pod_limits(spec: PodSpec, path: str) -> Amounts:
    """Return the nano-units that the only container of a pod may use at most. Raises FieldError.

    Empty where several containers, overhead or pod-level resources share the pod's requests.
    """
    containers = spec.containers or ()
    if len(containers) != 1 or spec.init_containers or spec.overhead or spec.resources:
        return {}
    resources = containers[0].resources
    return resource_amounts(resources.limits or {}, f"{path}.containers[0].resources.limits") if resources else {}


def units(amount: int, per_unit: int = 1) -> int:
    """Return nano-units rounded up to 1 / `per_unit` of a unit."""
    return ceil_div(amount * per_unit, NANO)


def is_resizing(obj: PodObject) -> bool:
    """Return whether what counts of a pod may change without its spec. Raises FieldError: an amount is invalid."""
    spec, status = obj.spec, obj.status
    if any(each.type in (RESIZE_PENDING, "PodResizeInProgress") for each in status.conditions or ()):
        return True
    holds = _resized(status, "status").holds
    for key, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for container, where in indexed(containers if holds else None, f"spec.{key}"):
            held = holds.get(container.name or "")
            if held is not None and _container(container, where, None) != held:
                return True
    return False


def _resized(status: PodStatus, path: str) -> _Resized:
    holds = {}
    for key, containers in (
        ("containerStatuses", status.container_statuses),
        ("initContainerStatuses", status.init_container_statuses),
    ):
        for each, where in indexed(containers, f"{path}.{key}"):
            held = _held(each, where)
            if held is not None:
                holds[each.name or ""] = held
    conditions = status.conditions or ()
    is_infeasible = any(each.type == RESIZE_PENDING and each.reason == "Infeasible" for each in conditions)
    return _Resized(holds, _held(status, path), is_infeasible)


def _held(status: ContainerStatus | PodStatus, path: str) -> Amounts | None:
    """Return the larger of what is allocated and in effect; None where no resources are in effect."""
    if status.resources is None:
        return None
    actual = resource_amounts(status.resources.requests or {}, f"{path}.resources.requests")
    return _larger(actual, resource_amounts(status.allocated_resources or {}, f"{path}.allocatedResources"))


def _larger(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _container(container: Container, path: str, resized: _Resized | None) -> Amounts:
    requests, limits = _resource_requirements(container.resources, f"{path}.resources")
    stated = {**limits, **requests}
    if resized is None or not resized.holds:
        return stated
    return resized.effective(stated, resized.holds.get(container.name or ""))


def _resource_requirements(resources: ResourceRequirements | None, path: str) -> tuple[Amounts, Amounts]:
    """Return requests and limits. Raises FieldError: kube-apiserver would refuse them.

    Source: validateResourceRequirements of Kubernetes 1.37.2.
    """
    if resources is None:
        return {}, {}
    at_requests, at_limits = f"{path}.requests", f"{path}.limits"
    requests = resource_amounts(resources.requests or {}, at_requests)
    limits = resource_amounts(resources.limits or {}, at_limits)
    for name, amount in requests.items():
        may_overcommit = not name.startswith(HUGEPAGES) and not _is_extended_resource(name)
        if not may_overcommit and name not in limits:
            raise FieldError(join(at_limits, name), "is missing: the resource needs a limit")
        if not may_overcommit and amount != limits[name]:
            raise FieldError(join(at_requests, name), "must be equal to the limit")
        if amount > limits.get(name, amount):
            raise FieldError(join(at_requests, name), "must be at most the limit")
    names = {*requests, *limits}
    if any(name.startswith(HUGEPAGES) for name in names) and not names & {CPU, MEMORY}:
        raise FieldError(path, "has hugepages without cpu or memory")
    return requests, limits


def _is_extended_resource(name: str) -> bool:
    return "/" in name and NATIVE not in name


def _pod_level(spec: PodSpec, path: str, resized: _Resized) -> Amounts:
    """Return pod-level requests: those stated, and for a stated limit what the containers request, else the limit.

    kube-apiserver adds the latter when the pod is created, so what the kubelet has granted since does not count.
    """
    if spec.resources is None:
        return {}
    where = f"{path}.resources"
    at_requests, at_limits = f"{where}.requests", f"{where}.limits"
    requests, limits = _resource_requirements(spec.resources, where)
    for name in (*requests, *limits):
        if name not in (CPU, MEMORY) and not name.startswith(HUGEPAGES):
            raise FieldError(where, f"{name!r} is not a pod-level resource; cpu, memory and hugepages are")
    of_containers = aggregate(*_containers(spec, path, None), {})
    for name, amount in requests.items():
        if of_containers.get(name, 0) > amount:
            raise FieldError(join(at_requests, name), "must be at least what the containers request")
    for container, at in indexed(spec.containers, f"{path}.containers"):
        for name, amount in _resource_requirements(container.resources, f"{at}.resources")[1].items():
            if amount > limits.get(name, amount):
                raise FieldError(join(at_limits, name), f"must be at least the limit in {at}")
    for name, limit in limits.items():
        if requests.setdefault(name, of_containers.get(name, limit)) > limit:
            raise FieldError(join(at_limits, name), "must be at least what the containers request")
    effective = resized.effective(requests, resized.pod)
    return {name: effective.get(name, 0) for name in requests}


def resource_amounts(quantities: Object, path: str) -> Amounts:
    """Return quantities in nano-units. Raises FieldError: one is invalid, or it is of no resource of a container."""
    result = {}
    for name, quantity in quantities.items():
        try:
            # What cannot be a quantity may have no hash.
            result[name] = _amount(name, quantity) if isinstance(quantity, str | int | float) else nano(quantity)
        except ValueError as error:
            raise FieldError(join(path, name), str(error)) from None
    return result


@lru_cache(4096, typed=True)
def _amount(name: str, quantity: Quantity) -> int:
    """Return a quantity of a resource in nano-units. Raises ValueError."""
    limit = amount_limit(name)
    if limit is None:
        raise ValueError(
            "is no resource of a container; cpu, memory, ephemeral-storage, hugepages-SIZE and DOMAIN/NAME are"
        )
    amount = plausible(nano(quantity), limit, quantity)
    if name.startswith(HUGEPAGES):
        check_hugepages(name, amount)
    if _is_extended_resource(name) and amount % NANO:
        raise ValueError(f"{quantity!r} must be an integer: extended resources have no fractions")
    return amount


def check_hugepages(name: str, amount: int) -> None:
    """Raise ValueError: an amount of hugepages, in nano-units, is not a multiple of the page size."""
    try:
        size = nano(name.removeprefix(HUGEPAGES), round_up=False)
    except ValueError:
        size = 0
    if size <= 0 or size % NANO:
        raise ValueError("is not a size of hugepages; expected hugepages-2Mi")
    if amount % size:
        raise ValueError(f"must be a multiple of {name.removeprefix(HUGEPAGES)}")


def aggregate(
    containers: Iterable[Amounts], inits: Iterable[tuple[Amounts, bool]], assumed: Mapping[str, int]
) -> Amounts:
    """Return the requests of containers and sidecars together, and of each init container with earlier sidecars."""
    total: Amounts = {}
    for amounts in containers:
        _add(total, {**assumed, **amounts})
    sidecars: Amounts = {}
    peak: Amounts = {}
    for stated, sidecar in inits:
        amounts = {**assumed, **stated}
        if sidecar:
            _add(total, amounts)
            _add(sidecars, amounts)
            running = sidecars
        else:
            running = dict(sidecars)
            _add(running, amounts)
        for name, amount in running.items():
            peak[name] = max(peak.get(name, 0), amount)
    for name, amount in peak.items():
        total[name] = max(total.get(name, 0), amount)
    return total


def _add(total: Amounts, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount
