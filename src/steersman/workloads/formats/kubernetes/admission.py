"""What kube-apiserver adds to a pod when it is created: priority, RuntimeClass, limits of its namespace, tolerations.

The rules are those of the admission plugins that are on by default: LimitRanger, Priority, DefaultTolerationSeconds and
RuntimeClass. Pods of a dump have gone through them; pods of manifests and templates have not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from steersman.cluster.account import NOT_READY
from steersman.cluster.model import Node
from steersman.cluster.objects.api import pods
from steersman.cluster.objects.api.controllers import LimitRange, PriorityClass, RuntimeClass
from steersman.cluster.objects.decoding import PRIORITY_CLASSES
from steersman.cluster.objects.fields import FieldError, indexed, join
from steersman.cluster.objects.requests import Amounts, aggregate, resource_amounts
from steersman.core.quantities import NANO, format_bytes, format_cpu, format_whole, nano
from steersman.workloads.formats.kubernetes.controllers import is_created
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject

# LimitRanges: what kube-apiserver gives containers that state no resources, and which pods it refuses.
# Source: Kubernetes 1.37.2, plugin/pkg/admission/limitranger/admission.go, and SetDefaults_LimitRangeItem.

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
    """What is read of a LimitRange: quantities that containers have by default, and bounds of containers and pods."""

    name: str
    limits: dict[str, Any] = field(default_factory=dict)
    requests: dict[str, Any] = field(default_factory=dict)
    bounds: list[_Bounds] = field(default_factory=list)


def limits_of(limit_range: LimitRange, name: str) -> Limits:
    """Return what is read of a LimitRange: a maximum is a default limit, a limit or a minimum a default request."""
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


def limited(spec: pods.PodSpec, path: str, every: Sequence[Limits]) -> pods.PodSpec:
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


def _with_defaults(container: pods.Container, every: Iterable[Limits]) -> pods.Container:
    """Return a container with the defaults of LimitRanges; a stated limit without a request is the request."""
    stated = container.resources or pods.NO_RESOURCES
    limits = stated.limits or {}
    requests = {**limits, **(stated.requests or {})}
    for each in every:
        limits = {**each.limits, **limits}
        requests = {**each.requests, **requests}
    return structs.replace(container, resources=pods.ResourceRequirements(requests, limits))


def _amounts_of(spec: pods.PodSpec, path: str, kind: str) -> Iterator[tuple[str, Amounts, Amounts]]:
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


def _stated(holder: pods.Container | pods.PodSpec, path: str) -> tuple[Amounts, Amounts]:
    resources, where = holder.resources or pods.NO_RESOURCES, join(path, "resources")
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


def _nano(amounts: Mapping[str, Any]) -> Amounts:
    return {name: nano(amount) for name, amount in amounts.items()}


KINDS = ("PriorityClass", "RuntimeClass", "LimitRange")
_MISSING = {
    "PriorityClass": "its priority counts as 0",
    "RuntimeClass": "its overhead, node selector and tolerations are unknown",
}


@dataclass(slots=True)
class Admission:
    """Admission by the objects of an input."""

    # `priorities`, `runtimes`: by name of the class.
    priorities: dict[str, PriorityClass] = field(default_factory=dict)
    runtimes: dict[str, RuntimeClass] = field(default_factory=dict)
    limits: dict[str, list[Limits]] = field(default_factory=dict)  # by namespace, in order of the names of LimitRanges
    # Keys of taints that every pod tolerates for a while; those that no node has change nothing
    tolerations: tuple[str, ...] = ()
    # Classes that objects name and the input does not hold, and the objects
    absent: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, objects: Iterable[KubernetesObject], nodes: Sequence[Node]) -> Admission:
        """Return the admission of an input, all of whose objects are valid."""
        admission = cls({name: PriorityClass(value) for name, value in PRIORITY_CLASSES.items()})
        for obj in sorted(objects, key=lambda each: (each.namespace, each.name)):
            match obj.typed:
                case PriorityClass() as priority:
                    admission.priorities[obj.name] = priority
                case RuntimeClass() as runtime:
                    admission.runtimes[obj.name] = runtime
                case limit_range:
                    admission.limits.setdefault(obj.namespace, []).append(limits_of(limit_range, obj.name))
        hard = {taint.key for node in nodes for taint in node.taints if taint.effect == "NoExecute"}
        admission.tolerations = tuple(key for key in NOT_READY if key in hard)
        return admission

    def admitted(self, pod: pods.PodObject, path: str, obj: KubernetesObject) -> pods.PodObject:
        """Return a pod, or a template, as the API server would store it. `path` is its path in `obj`, for errors."""
        spec, where = pod.spec, join(path, "spec")
        if spec.priority is None:
            chosen = self._priority_class(spec, obj)
            policy = spec.preemption_policy or chosen.preemption_policy
            spec = structs.replace(spec, priority=chosen.value or 0, preemption_policy=policy)
        if path or not (is_created(obj) or spec.node_name):  # else the API server has stored it
            spec = limited(spec, where, self.limits.get(obj.namespace, []))
            spec = self._with_runtime_class(spec, where, obj)
            spec = self._with_tolerations(spec)
        return structs.replace(pod, spec=spec)

    def warnings(self) -> list[str]:
        """Return a warning for each class that is not in the input."""
        return [
            f"{kind} {name} is not in the input; {_MISSING[kind]} ({named_by(objects)})"
            for (kind, name), objects in sorted(self.absent.items())
        ]

    def _priority_class(self, spec: pods.PodSpec, obj: KubernetesObject) -> PriorityClass:
        name = spec.priority_class_name
        if not name:
            defaults = [each for each in self.priorities.values() if each.global_default]
            return min(defaults, key=lambda each: each.value or 0, default=PriorityClass())
        if name not in self.priorities:
            self._note_absent("PriorityClass", name, obj)
            return PriorityClass()
        return self.priorities[name]

    def _with_runtime_class(self, spec: pods.PodSpec, path: str, obj: KubernetesObject) -> pods.PodSpec:
        name = spec.runtime_class_name
        if not name:
            return spec
        runtime = self.runtimes.get(name)
        if runtime is None:
            self._note_absent("RuntimeClass", name, obj)
            return spec
        overhead, where = runtime.overhead.pod_fixed or spec.overhead, join(path, "overhead")
        if spec.overhead and _nano(quantities(spec.overhead, where)) != _nano(overhead or {}):
            raise FieldError(where, f"differs from the overhead of RuntimeClass {name}")
        selector, where = dict(spec.node_selector or {}), join(path, "nodeSelector")
        for key, value in (runtime.scheduling.node_selector or {}).items():
            if selector.setdefault(key, value) != value:
                problem = f"{selector[key]!r} contradicts {value!r} of RuntimeClass {name}"
                raise FieldError(join(where, key), problem)
        tolerations = list(spec.tolerations or ())
        tolerations += [each for each in runtime.scheduling.tolerations or () if each not in tolerations]
        return structs.replace(spec, overhead=overhead, node_selector=selector, tolerations=tolerations)

    def _with_tolerations(self, spec: pods.PodSpec) -> pods.PodSpec:
        stated = spec.tolerations or []
        added = (
            pods.PodToleration(key, "Exists", effect="NoExecute")
            for key in self.tolerations
            if not any(each.key in (key, "", None) and each.effect in ("NoExecute", "", None) for each in stated)
        )
        return structs.replace(spec, tolerations=[*stated, *added])

    def _note_absent(self, kind: str, name: str, obj: KubernetesObject) -> None:
        self.absent.setdefault((kind, name), []).append(f"{obj.kind} {obj.namespace}/{obj.name}")


def named_by(objects: Sequence[str]) -> str:
    """Return which object names what a warning is about, and how many more do."""
    return f"named by {objects[0]}" + (f" and {len(objects) - 1} more" if len(objects) > 1 else "")
