"""What kube-apiserver adds to a pod when it is created: priority, RuntimeClass, limits of its namespace, tolerations.

The rules are those of the admission plugins that are on by default: LimitRanger, Priority, DefaultTolerationSeconds and
RuntimeClass. Pods of a dump have gone through them; pods of manifests and templates have not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from steersman.cluster.account import NOT_READY
from steersman.cluster.model import Node
from steersman.cluster.objects.api.admission import PriorityClass, RuntimeClass
from steersman.cluster.objects.api.pods import PodObject, PodSpec, PodToleration
from steersman.cluster.objects.decoding import PRIORITY_CLASSES
from steersman.cluster.objects.fields import FieldError, join
from steersman.core.quantities import nano
from steersman.workloads.formats.kubernetes.controllers import is_created
from steersman.workloads.formats.kubernetes.limit_ranges import Limits, limited, limits_of, quantities
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject

KINDS = ("PriorityClass", "RuntimeClass", "LimitRange")
_MISSING = {
    "PriorityClass": "its priority counts as 0",
    "RuntimeClass": "its overhead, node selector and tolerations are unknown",
}


@dataclass(slots=True)
class Admission:
    """Admission by the objects of an input.

    Attributes:
        priorities, runtimes: by name of the class.
        limits: by namespace, in order of the names of LimitRanges.
        tolerations: keys of taints that every pod tolerates for a while; those that no node has change nothing.
        absent: classes that objects name and the input does not hold, and the objects.
    """

    priorities: dict[str, PriorityClass] = field(default_factory=dict)
    runtimes: dict[str, RuntimeClass] = field(default_factory=dict)
    limits: dict[str, list[Limits]] = field(default_factory=dict)
    tolerations: tuple[str, ...] = ()
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

    def admitted(self, pod: PodObject, path: str, obj: KubernetesObject) -> PodObject:
        """Return a pod, or a template of pods, as the API server would store it.

        Args:
            pod: the pod.
            path: its path in the object, for errors.
            obj: the object that it is, or that makes it.

        Raises:
            FieldError: it is not admitted.
        """
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

    def _priority_class(self, spec: PodSpec, obj: KubernetesObject) -> PriorityClass:
        name = spec.priority_class_name
        if not name:
            defaults = [each for each in self.priorities.values() if each.global_default]
            return min(defaults, key=lambda each: each.value or 0, default=PriorityClass())
        if name not in self.priorities:
            self._note_absent("PriorityClass", name, obj)
            return PriorityClass()
        return self.priorities[name]

    def _with_runtime_class(self, spec: PodSpec, path: str, obj: KubernetesObject) -> PodSpec:
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

    def _with_tolerations(self, spec: PodSpec) -> PodSpec:
        stated = spec.tolerations or []
        added = (
            PodToleration(key, "Exists", effect="NoExecute")
            for key in self.tolerations
            if not any(each.key in (key, "", None) and each.effect in ("NoExecute", "", None) for each in stated)
        )
        return structs.replace(spec, tolerations=[*stated, *added])

    def _note_absent(self, kind: str, name: str, obj: KubernetesObject) -> None:
        self.absent.setdefault((kind, name), []).append(f"{obj.kind} {obj.namespace}/{obj.name}")


def _nano(amounts: Mapping[str, Any]) -> dict[str, int]:
    return {name: nano(amount) for name, amount in amounts.items()}


def named_by(objects: Sequence[str]) -> str:
    """Return which object names what a warning is about, and how many more do."""
    return f"named by {objects[0]}" + (f" and {len(objects) - 1} more" if len(objects) > 1 else "")
