"""What a pod asks of its node: kube-scheduler's sum over containers, sidecars, overhead and pod-level resources.

The rule is k8s.io/component-helpers/resource.PodRequests with the API server's defaults (limits imply requests). Sums
are taken in nano-units and rounded up once, as a scheduler that sees exact quantities would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from steersman.cluster.fields import FieldError, Object, items, join, mapping, text
from steersman.quantities import MAX_AMOUNT, MAX_CPU_MILLI, MAX_MEMORY_BYTES, NANO, ceil_div, nano, plausible

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL = "ephemeral-storage"
HUGEPAGES = "hugepages-"

# kube-scheduler scores a container that states no request as if it asked for this much (GetNonzeroRequests).
NONZERO = {CPU: NANO // 10, MEMORY: (200 << 20) * NANO}

Amounts = dict[str, int]
"""Nano-units of each resource."""


def pod_requests(spec: Object, path: str) -> tuple[Amounts, Amounts]:
    """Nano-units that a pod spec requests, exactly and in the non-zero view that scoring uses. Raises FieldError."""
    containers = [_container(c, where) for c, where in items(spec, "containers", path)]
    if not containers:
        raise FieldError(join(path, "containers"), "is missing or empty; a pod needs one container or more")
    inits = [
        (_container(c, where), text(c, "restartPolicy", where) == "Always")
        for c, where in items(spec, "initContainers", path)
    ]
    plain = _aggregate(containers, inits, {})
    pod_level = _pod_level(spec, path, plain)
    # With pod-level resources only what neither the pod nor a container states is assumed.
    assumed = {name: amount for name, amount in NONZERO.items() if not pod_level or name not in {**plain, **pod_level}}
    nonzero = _aggregate(containers, inits, assumed)
    overhead = _amounts(mapping(spec, "overhead", path), join(path, "overhead"))
    results = []
    for total in (plain, nonzero):
        total.update(pod_level)
        _add(total, overhead)
        _check_sums(total, path)
        results.append(total)
    return results[0], results[1]


def _check_sums(total: Amounts, path: str) -> None:
    """Each quantity may be plausible, and their sum not."""
    for name, amount in total.items():
        most = _most(name)
        if amount > most:
            problem = f"ask for {amount // NANO} of {name} in all, beyond any real machine (at most {most // NANO})"
            raise FieldError(join(path, "containers"), problem)


def _most(name: str) -> int:
    """The nano-units of a resource that a real machine may have."""
    return {CPU: MAX_CPU_MILLI * NANO // 1000, MEMORY: MAX_MEMORY_BYTES * NANO}.get(name, MAX_AMOUNT * NANO)


def pod_limits(spec: Object, path: str) -> Amounts:
    """Nano-units that the only container of a pod may use at most. Raises FieldError.

    Nothing where more than one container, overhead or pod-level resources share in what the pod asks for.
    """
    containers = list(items(spec, "containers", path))
    if len(containers) != 1 or any(spec.get(key) for key in ("initContainers", "overhead", "resources")):
        return {}
    container, where = containers[0]
    resources, where = mapping(container, "resources", where), join(where, "resources")
    return _amounts(mapping(resources, "limits", where), join(where, "limits"))


def units(amount: int, per_unit: int = 1) -> int:
    """Nano-units rounded up to 1 / `per_unit` of a unit."""
    return ceil_div(amount * per_unit, NANO)


def _container(container: Object, path: str) -> Amounts:
    resources, where = mapping(container, "resources", path), join(path, "resources")
    requests = _amounts(mapping(resources, "requests", where), join(where, "requests"))
    limits = _amounts(mapping(resources, "limits", where), join(where, "limits"))
    return {**limits, **requests}


def _pod_level(spec: Object, path: str, containers: Amounts) -> Amounts:
    """Pod-level requests: those stated, and for a stated limit what the containers ask for together, else the limit."""
    resources, where = mapping(spec, "resources", path), join(path, "resources")
    if not resources:
        return {}
    requests = _amounts(mapping(resources, "requests", where), join(where, "requests"))
    limits = _amounts(mapping(resources, "limits", where), join(where, "limits"))
    for name, limit in limits.items():
        requests.setdefault(name, containers.get(name, limit))
    for name in requests:
        if name not in (CPU, MEMORY) and not name.startswith(HUGEPAGES):
            raise FieldError(where, f"{name!r} is no pod-level resource; cpu, memory and hugepages are")
    return requests


def _amounts(quantities: Object, path: str) -> Amounts:
    found = {}
    for name, quantity in quantities.items():
        where = join(path, name)
        known = name in (CPU, MEMORY, EPHEMERAL) or name.startswith(HUGEPAGES) or "/" in name
        if not known:
            problem = (
                "is no resource of a container; cpu, memory, ephemeral-storage, hugepages-SIZE and DOMAIN/NAME are"
            )
            raise FieldError(where, problem)
        try:
            found[name] = plausible(nano(quantity), _most(name), quantity)
        except ValueError as error:
            raise FieldError(where, str(error)) from None
    return found


def _aggregate(
    containers: Iterable[Amounts], inits: Iterable[tuple[Amounts, bool]], assumed: Mapping[str, int]
) -> Amounts:
    """Containers and sidecars run together; every init container runs alone with the sidecars started before it."""
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
