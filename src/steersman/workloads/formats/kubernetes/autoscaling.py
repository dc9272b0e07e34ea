"""HorizontalPodAutoscalers: how many replicas they allow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from steersman.cluster.objects.fields import Object, integer, mapping, text
from steersman.workloads.formats.kubernetes.controllers import Key
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject, qualified_kind

_MAX = (1 << 31) - 1


@dataclass(slots=True)
class Autoscalers:
    """The autoscalers of an input, by the controller that each scales."""

    bounds: dict[Key, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, objects: Iterable[KubernetesObject]) -> Autoscalers:
        """Return the autoscalers among HorizontalPodAutoscalers that are valid."""
        return cls(dict(scaled(obj.content, obj.namespace) for obj in objects))

    def replicas(self, controller: Key) -> tuple[int, int] | None:
        """Return the least and the most replicas of a controller; None: it is not scaled."""
        return self.bounds.get(controller)


def scaled(content: Object, namespace: str) -> tuple[Key, tuple[int, int]]:
    """Return what a HorizontalPodAutoscaler scales, and the least and the most replicas. Raises FieldError."""
    spec = mapping(content, "spec", "")
    least = integer(spec, "minReplicas", "spec", 0, _MAX, 1)
    most = integer(spec, "maxReplicas", "spec", 1, _MAX, _MAX)
    target, path = mapping(spec, "scaleTargetRef", "spec"), "spec.scaleTargetRef"
    kind = qualified_kind(text(target, "kind", path), text(target, "apiVersion", path))
    return (kind, namespace, text(target, "name", path)), (least, max(least, most))
