"""Requests of a pod: kube-scheduler's sum over containers, sidecars, overhead and pod-level resources.

The rule is k8s.io/component-helpers/resource.PodRequests of 1.37 with the API server's defaults (limits imply requests)
and `UseStatusResources`. A pod that is being resized holds the largest of three sums over its containers: of its spec,
of what the kubelet has allocated, and of what is in effect. Sums are taken in nano-units and rounded up once, as a
scheduler with exact quantities would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

import msgspec

from steersman.cluster.objects.api import pods
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
NATIVE = "kubernetes.io/"  # part of the names of native resources, whose requests may lack a limit or be below it

# kube-scheduler scores a container without a request as if it requested this much (GetNonzeroRequests).
NONZERO = {CPU: NANO // 10, MEMORY: (200 << 20) * NANO}

Amounts = dict[str, int]  # nano-units of each resource


_Named = tuple[str, Amounts]  # a container's name, and what it requests


@dataclass(frozen=True, slots=True)
class _Resized:
    """Kubelet's status of running containers, which may differ from the spec where a pod is being resized.

    What is allocated and in effect, by container and for the pod (None: not stated). If it is infeasible, the kubelet
    will never grant the spec's requests, so they do not count.
    """

    allocated: Mapping[str, Amounts]
    actual: Mapping[str, Amounts]
    pod_allocated: Amounts | None
    pod_actual: Amounts | None
    infeasible: bool

    def allocated_to(self, container: _Named) -> Amounts:
        """Return what is allocated to a container: what it requests where that is not stated."""
        name, stated = container
        return self.allocated.get(name, {} if self.infeasible else stated)

    def actual_of(self, container: _Named) -> Amounts:
        """Return what is in effect for a container: what is allocated to it where that is not stated."""
        found = self.actual.get(container[0])
        return self.allocated_to(container) if found is None else found


@dataclass(frozen=True, slots=True)
class _Containers:
    """Containers of a pod, and its init containers with whether each is a sidecar."""

    containers: list[_Named]
    inits: list[tuple[_Named, bool]]

    def together(self, assumed: Mapping[str, int], amounts: Callable[[_Named], Amounts] = itemgetter(1)) -> Amounts:
        """Return the requests of all, `assumed` where `amounts` of a container has none."""
        inits = [(amounts(each), is_sidecar) for each, is_sidecar in self.inits]
        return aggregate(map(amounts, self.containers), inits, assumed)

    def effective(self, assumed: Mapping[str, int], resized: _Resized) -> Amounts:
        """Return the largest of the sums that are requested, allocated and in effect.

        Source: Kubernetes 1.37.2, k8s.io/component-helpers, resource (AggregateContainerRequests).
        """
        stated = self.together(assumed)
        if resized.pod_allocated is not None and resized.pod_actual is not None:
            held = _larger(resized.pod_allocated, resized.pod_actual)
        elif resized.allocated or resized.actual or resized.infeasible:
            held = _larger(self.together(assumed, resized.allocated_to), self.together(assumed, resized.actual_of))
        else:
            return stated
        return held if resized.infeasible else _larger(stated, held)


def pod_requests(spec: pods.PodSpec, path: str, status: pods.PodStatus = pods.NO_STATUS) -> tuple[Amounts, Amounts]:
    """Return the nano-units that a pod requests, exactly and in the non-zero view of scoring.

    `status` has what the kubelet has granted to a pod that is being resized.
    """
    resized = _resized(status, f"{path.removesuffix('spec')}status")
    containers = _containers(spec, path)
    if not containers.containers:
        raise FieldError(join(path, "containers"), "is missing or empty; a pod needs one container or more")
    plain = containers.effective({}, resized)
    pod_level = _pod_level(spec, path, containers, resized)
    # With pod-level resources a default applies only to what neither the pod nor a container states.
    assumed = {name: amount for name, amount in NONZERO.items() if not pod_level or name not in {**plain, **pod_level}}
    nonzero = containers.effective(assumed, resized)
    overhead = resource_amounts(spec.overhead or {}, f"{path}.overhead")
    results = []
    for total in (plain, nonzero):
        total.update(pod_level)
        _add(total, overhead)
        _check_sums(total, path)
        results.append(total)
    return results[0], results[1]


def _containers(spec: pods.PodSpec, path: str) -> _Containers:
    containers = [_container(each, where) for each, where in indexed(spec.containers, f"{path}.containers")]
    inits = [
        (_container(each, where), each.is_sidecar)
        for each, where in indexed(spec.init_containers, f"{path}.initContainers")
    ]
    return _Containers(containers, inits)


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


def pod_limits(spec: pods.PodSpec, path: str) -> Amounts:
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


def is_resizing(obj: pods.PodObject) -> bool:
    """Return whether what counts of a pod may change without its spec. Raises FieldError: an amount is invalid."""
    spec, status = obj.spec, obj.status
    if any(each.type in (RESIZE_PENDING, "PodResizeInProgress") for each in status.conditions or ()):
        return True
    resized = _resized(status, "status")
    if not resized.allocated and not resized.actual:
        return False
    containers = _containers(spec, "spec")
    named = (*containers.containers, *(each for each, _ in containers.inits))
    return any(each[1] != resized.allocated_to(each) or each[1] != resized.actual_of(each) for each in named)


def _resized(status: pods.PodStatus, path: str) -> _Resized:
    allocated, actual = dict[str, Amounts](), dict[str, Amounts]()
    for key, containers in (
        ("containerStatuses", status.container_statuses),
        ("initContainerStatuses", status.init_container_statuses),
    ):
        for each, where in indexed(containers, f"{path}.{key}"):
            of_container = _granted(each, where)
            for found, amounts in zip((allocated, actual), of_container, strict=True):
                if amounts is not None:
                    found[each.name or ""] = amounts
    conditions = status.conditions or ()
    is_infeasible = any(each.type == RESIZE_PENDING and each.reason == "Infeasible" for each in conditions)
    return _Resized(allocated, actual, *_granted(status, path), is_infeasible)


def _granted(status: pods.ContainerStatus | pods.PodStatus, path: str) -> tuple[Amounts | None, Amounts | None]:
    """Return what is allocated and what is in effect, None where the kubelet does not say."""
    requests = None if status.resources is None else status.resources.requests
    return (
        None
        if status.allocated_resources is None
        else resource_amounts(status.allocated_resources, f"{path}.allocatedResources"),
        None if requests is None else resource_amounts(requests, f"{path}.resources.requests"),
    )


def _larger(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _container(container: pods.Container, path: str) -> _Named:
    requests, limits = _resource_requirements(container.resources, f"{path}.resources")
    return container.name or "", {**limits, **requests}


def _resource_requirements(resources: pods.ResourceRequirements | None, path: str) -> tuple[Amounts, Amounts]:
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


def _pod_level(spec: pods.PodSpec, path: str, containers: _Containers, resized: _Resized) -> Amounts:
    """Return pod-level requests: those stated, and for a stated limit what the containers request, else the limit.

    kube-apiserver adds the latter when the pod is created, so what the kubelet has granted since does not count.
    """
    if spec.resources is None:
        return {}
    where = f"{path}.resources"
    at_requests, at_limits = f"{where}.requests", f"{where}.limits"
    requests, limits = _resource_requirements(_with_page_limits(spec, spec.resources), where)
    for name in (*requests, *limits):
        if not _is_pod_level(name):
            raise FieldError(where, f"{name!r} is not a pod-level resource; cpu, memory and hugepages are")
    of_containers = containers.together({})
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
    if resized.pod_actual is None:
        return requests
    held = _larger(resized.pod_allocated or {}, resized.pod_actual)
    effective = held if resized.infeasible else _larger(requests, held)
    return {name: amount for name, amount in effective.items() if _is_pod_level(name)}


def _with_page_limits(spec: pods.PodSpec, resources: pods.ResourceRequirements) -> pods.ResourceRequirements:
    """Return pod-level resources with limits of hugepages, which kube-apiserver adds where all containers have one.

    What it adds is at least the request, and more where it then refuses the pod: containers have more than the pod.

    Source: Kubernetes 1.37.2, pkg/api/pod (defaultPodLevelLimits).
    """
    requests, limits = resources.requests or {}, resources.limits or {}
    of_containers = [
        each.resources.limits or {} if each.resources else {}
        for each in (*(spec.containers or ()), *(spec.init_containers or ()))
    ]
    added = {
        name: amount
        for name, amount in requests.items()
        if name.startswith(HUGEPAGES) and name not in limits and all(name in each for each in of_containers)
    }
    return msgspec.structs.replace(resources, limits={**limits, **added}) if added else resources


def _is_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(HUGEPAGES)


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
