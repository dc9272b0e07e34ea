"""HorizontalPodAutoscalers: how many replicas they allow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from steersman.cluster.objects.api.admission import AutoscalerSpec, ScaleTarget
from steersman.cluster.objects.api.pods import INT32_MAX
from steersman.workloads.formats.kubernetes.controllers import Key
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject, qualified_kind


@dataclass(slots=True)
class Autoscalers:
    """The autoscalers of an input, by the controller that each scales."""

    bounds: dict[Key, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, objects: Iterable[KubernetesObject]) -> Autoscalers:
        """Return the autoscalers among HorizontalPodAutoscalers that are valid."""
        return cls(dict(map(scaled, objects)))

    def replicas(self, controller: Key) -> tuple[int, int] | None:
        """Return the least and the most replicas of a controller; None: it is not scaled."""
        return self.bounds.get(controller)


def scaled(obj: KubernetesObject) -> tuple[Key, tuple[int, int]]:
    """Return what a HorizontalPodAutoscaler scales, and the least and the most replicas."""
    spec: AutoscalerSpec = obj.typed.spec
    least, most = 1 if spec.min_replicas is None else spec.min_replicas, spec.max_replicas or INT32_MAX
    target = spec.scale_target_ref or ScaleTarget()
    kind = qualified_kind(target.kind or "", target.api_version or "")
    return (kind, obj.namespace, target.name or ""), (least, max(least, most))
