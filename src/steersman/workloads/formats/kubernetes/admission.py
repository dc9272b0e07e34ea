"""What kube-apiserver adds to a pod when it is created: priority, RuntimeClass, limits of its namespace, tolerations.

The rules are those of the admission plugins that are on by default: LimitRanger, Priority, DefaultTolerationSeconds and
RuntimeClass. Pods of a dump have gone through them; pods of manifests and templates have not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from steersman.cluster.model import Node
from steersman.cluster.objects.api.admission import LimitRange, PriorityClass, RuntimeClass
from steersman.cluster.objects.api.decoding import converted
from steersman.cluster.objects.decoding import PRIORITY_CLASSES
from steersman.cluster.objects.fields import FieldError, Object, items, join, mapping, text, text_map
from steersman.core.quantities import nano
from steersman.workloads.formats.kubernetes.controllers import is_created
from steersman.workloads.formats.kubernetes.limit_ranges import Limits, limited, limits_of, quantities
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject

KINDS = ("PriorityClass", "RuntimeClass", "LimitRange")
_MISSING = {
    "PriorityClass": "its priority counts as 0",
    "RuntimeClass": "its overhead, node selector and tolerations are unknown",
}
_NODE_CONDITIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def read(obj: KubernetesObject) -> PriorityClass | RuntimeClass | Limits:
    """Return what is read of a PriorityClass, RuntimeClass or LimitRange. Raises FieldError."""
    if obj.kind == "PriorityClass":
        return converted(obj.content, PriorityClass)
    if obj.kind == "LimitRange":
        return limits_of(converted(obj.content, LimitRange), obj.name)
    runtime = converted(obj.content, RuntimeClass)
    quantities(runtime.overhead.pod_fixed, "overhead.podFixed")
    return runtime


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
            content = read(obj)
            if isinstance(content, PriorityClass):
                admission.priorities[obj.name] = content
            elif isinstance(content, RuntimeClass):
                admission.runtimes[obj.name] = content
            else:
                admission.limits.setdefault(obj.namespace, []).append(content)
        hard = {taint.key for node in nodes for taint in node.taints if taint.effect == "NoExecute"}
        admission.tolerations = tuple(key for key in _NODE_CONDITIONS if key in hard)
        return admission

    def admitted(self, pod: Object, path: str, obj: KubernetesObject) -> Object:
        """Return a pod, or a template of pods, as the API server would store it.

        Args:
            pod: `metadata` and `spec` of the pod.
            path: its path in the object, for errors.
            obj: the object that it is, or that makes it.

        Raises:
            FieldError: it is not admitted.
        """
        spec, where = dict(mapping(pod, "spec", path)), join(path, "spec")
        if spec.get("priority") is None:
            spec["priority"] = self._priority(spec, where, obj)
        if path or not _is_admitted(obj, spec):
            spec = limited(spec, where, self.limits.get(obj.namespace, []))
            self._apply_runtime_class(spec, where, obj)
            self._add_tolerations(spec, where)
        return {**pod, "spec": spec}

    def warnings(self) -> list[str]:
        """Return a warning for each class that is not in the input."""
        return [
            f"{kind} {name} is not in the input; {_MISSING[kind]} ({_named_by(objects)})"
            for (kind, name), objects in sorted(self.absent.items())
        ]

    def _priority(self, spec: Object, path: str, obj: KubernetesObject) -> int:
        name = text(spec, "priorityClassName", path)
        if not name:
            return min((each.value or 0 for each in self.priorities.values() if each.global_default), default=0)
        if name not in self.priorities:
            self._note_absent("PriorityClass", name, obj)
            return 0
        return self.priorities[name].value or 0

    def _apply_runtime_class(self, spec: dict[str, Any], path: str, obj: KubernetesObject) -> None:
        name = text(spec, "runtimeClassName", path)
        if not name:
            return
        runtime = self.runtimes.get(name)
        if runtime is None:
            self._note_absent("RuntimeClass", name, obj)
            return
        if overhead := runtime.overhead.pod_fixed:
            stated = quantities(mapping(spec, "overhead", path), join(path, "overhead"))
            if stated and _nano(stated) != _nano(overhead):
                raise FieldError(join(path, "overhead"), f"differs from the overhead of RuntimeClass {name}")
            spec["overhead"] = overhead
        selector, where = text_map(spec, "nodeSelector", path), join(path, "nodeSelector")
        for key, value in (runtime.scheduling.node_selector or {}).items():
            if selector.setdefault(key, value) != value:
                problem = f"{selector[key]!r} contradicts {value!r} of RuntimeClass {name}"
                raise FieldError(join(where, key), problem)
        if selector:
            spec["nodeSelector"] = selector
        if tolerations := runtime.scheduling.tolerations:
            spec["tolerations"] = [entry for entry, _ in items(spec, "tolerations", path)]
            spec["tolerations"] += [each for each in tolerations if each not in spec["tolerations"]]

    def _add_tolerations(self, spec: dict[str, Any], path: str) -> None:
        for key in self.tolerations:
            stated = list(items(spec, "tolerations", path))
            if not any(_covers(entry, where, key) for entry, where in stated):
                default = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                spec["tolerations"] = [*(entry for entry, _ in stated), default]

    def _note_absent(self, kind: str, name: str, obj: KubernetesObject) -> None:
        self.absent.setdefault((kind, name), []).append(f"{obj.kind} {obj.namespace}/{obj.name}")


def _is_admitted(pod: KubernetesObject, spec: Object) -> bool:
    """Return whether the API server has stored a pod: it says when, or where the pod runs."""
    return is_created(pod) or bool(spec.get("nodeName"))


def _covers(toleration: Object, path: str, key: str) -> bool:
    return text(toleration, "key", path) in (key, "") and text(toleration, "effect", path) in ("NoExecute", "")


def _nano(amounts: Mapping[str, Any]) -> dict[str, int]:
    return {name: nano(amount) for name, amount in amounts.items()}


def _named_by(objects: Sequence[str]) -> str:
    return f"named by {objects[0]}" + (f" and {len(objects) - 1} more" if len(objects) > 1 else "")
