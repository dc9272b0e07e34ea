"""LimitRanges: what kube-apiserver gives containers that state no resources, and which pods it refuses.

Source: Kubernetes 1.37.2, plugin/pkg/admission/limitranger/admission.go, and SetDefaults_LimitRangeItem.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from steersman.cluster.objects.api.admission import LimitRange
from steersman.cluster.objects.api.pods import NO_RESOURCES, Container, PodSpec, ResourceRequirements
from steersman.cluster.objects.fields import FieldError, indexed, join
from steersman.cluster.objects.requests import Amounts, aggregate, resource_amounts
from steersman.core.quantities import NANO, format_bytes, format_cpu, format_whole, nano

CONTAINER, POD = "Container", "Pod"


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Bounds of an item of a LimitRange, by resource and in nano-units."""

    type: str
    least: Amounts
    most: Amounts
    ratio: Amounts

    def problem(self, requests: Amounts, limits: Amounts) -> str:
        """Return why amounts are refused, in kube-apiserver's words; "": they are not."""
        return next(
            (
                found
                for bounds, check in ((self.least, _below), (self.most, _above), (self.ratio, _too_far_apart))
                for name, bound in bounds.items()
                if (found := check(name, self.type, bound, requests.get(name), limits.get(name)))
            ),
            "",
        )


@dataclass(slots=True)
class Limits:
    """What is read of a LimitRange.

    Attributes:
        name: of the object.
        limits, requests: quantities that containers have by default.
        bounds: of containers and pods.
    """

    name: str
    limits: dict[str, Any] = field(default_factory=dict)
    requests: dict[str, Any] = field(default_factory=dict)
    bounds: list[_Bounds] = field(default_factory=list)


def limits_of(limit_range: LimitRange, name: str) -> Limits:
    """Return what is read of a LimitRange: a maximum is a default limit, a limit or a minimum a default request.

    Raises:
        FieldError: it is invalid.
    """
    result = Limits(name)
    for item, path in indexed(limit_range.spec.limits, "spec.limits"):
        least, most = quantities(item.min, f"{path}.min"), quantities(item.max, f"{path}.max")
        ratio = quantities(item.max_limit_request_ratio, f"{path}.maxLimitRequestRatio")
        result.bounds.append(_Bounds(item.type or "", *map(_nano, (least, most, ratio))))
        if item.type == CONTAINER:
            limits = most | quantities(item.default, f"{path}.default")
            result.limits.update(limits)
            result.requests.update({**least, **limits, **quantities(item.default_request, f"{path}.defaultRequest")})
    return result


def quantities(amounts: Mapping[str, Any] | None, path: str) -> dict[str, Any]:
    """Return quantities by name of a resource. Raises FieldError: one is invalid."""
    for name, amount in (amounts or {}).items():
        try:
            nano(amount)
        except ValueError as error:
            raise FieldError(join(path, name), str(error)) from None
    return dict(amounts or {})


def limited(spec: PodSpec, path: str, every: Sequence[Limits]) -> PodSpec:
    """Return the spec of a pod with the defaults of LimitRanges. Raises FieldError: one of them refuses the pod."""
    if not every:
        return spec
    result = structs.replace(
        spec,
        containers=[_with_defaults(each, every) for each in spec.containers or ()],
        init_containers=[_with_defaults(each, every) for each in spec.init_containers or ()],
    )
    for each in every:
        for bounds in each.bounds:
            for where, requests, limits in _amounts_of(result, path, bounds.type):
                if problem := bounds.problem(requests, limits):
                    raise FieldError(join(where, "resources"), f"{problem} (LimitRange {each.name})")
    return result


def _with_defaults(container: Container, every: Iterable[Limits]) -> Container:
    """Return a container with the defaults of LimitRanges; a stated limit without a request is the request."""
    stated = container.resources or NO_RESOURCES
    limits = stated.limits or {}
    requests = {**limits, **(stated.requests or {})}
    for each in every:
        limits = {**each.limits, **limits}
        requests = {**each.requests, **requests}
    return structs.replace(container, resources=ResourceRequirements(requests, limits))


def _amounts_of(spec: PodSpec, path: str, kind: str) -> Iterator[tuple[str, Amounts, Amounts]]:
    """Yield where bounds of a type apply, and requests and limits there."""
    containers = [(where, _stated(each, where)) for each, where in indexed(spec.containers, f"{path}.containers")]
    inits = [
        (where, _stated(each, where), each.is_sidecar)
        for each, where in indexed(spec.init_containers, f"{path}.initContainers")
    ]
    if kind == CONTAINER:
        for where, stated in (*containers, *((where, stated) for where, stated, _ in inits)):
            yield where, *stated
    elif kind == POD:
        requests, limits = (
            aggregate(
                [stated[i] for _, stated in containers],
                [(stated[i], is_sidecar) for _, stated, is_sidecar in inits],
                {},
            )
            for i in range(2)
        )
        own_requests, own_limits = _stated(spec, path)
        defaults = {name: amount for name, amount in own_limits.items() if name not in requests}
        yield path, requests | defaults | own_requests, limits | own_limits


def _stated(holder: Container | PodSpec, path: str) -> tuple[Amounts, Amounts]:
    resources, where = holder.resources or NO_RESOURCES, join(path, "resources")
    requests = resource_amounts(resources.requests or {}, join(where, "requests"))
    return requests, resource_amounts(resources.limits or {}, join(where, "limits"))


def _below(name: str, kind: str, bound: int, request: int | None, limit: int | None) -> str:
    said = f"minimum {name} usage per {kind} is {_shown(name, bound)}"
    if request is None:
        return f"{said}, but no request is specified"
    if request < bound:
        return f"{said}, but request is {_shown(name, request)}"
    return f"{said}, but limit is {_shown(name, limit)}" if limit is not None and limit < bound else ""


def _above(name: str, kind: str, bound: int, request: int | None, limit: int | None) -> str:
    said = f"maximum {name} usage per {kind} is {_shown(name, bound)}"
    if limit is None:
        return f"{said}, but no limit is specified"
    if limit > bound:
        return f"{said}, but limit is {_shown(name, limit)}"
    return f"{said}, but request is {_shown(name, request)}" if request is not None and request > bound else ""


def _too_far_apart(name: str, kind: str, bound: int, request: int | None, limit: int | None) -> str:
    said = f"{name} max limit to request ratio per {kind} is {bound / NANO:g}"
    if not request:
        return f"{said}, but no request is specified or request is 0"
    if not limit:
        return f"{said}, but no limit is specified or limit is 0"
    return f"{said}, but provided ratio is {limit / request:g}" if limit * NANO > bound * request else ""


def _shown(name: str, amount: int) -> str:
    if name == "cpu":
        return format_cpu(-(-amount * 1000 // NANO))
    return (format_whole if "/" in name else format_bytes)(-(-amount // NANO))


def _nano(amounts: dict[str, Any]) -> Amounts:
    return {name: nano(amount) for name, amount in amounts.items()}
