"""Objects by which the API server completes or refuses pods, and by which controllers are scaled."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from steersman.cluster.objects.api.pods import INT32_MAX, PodToleration


class PriorityClass(msgspec.Struct, frozen=True, rename="camel"):
    """A PriorityClass."""

    value: Annotated[int, msgspec.Meta(ge=-INT32_MAX - 1, le=INT32_MAX)] | None = None
    global_default: bool | None = None
    preemption_policy: str | None = None


class RuntimeOverhead(msgspec.Struct, frozen=True, rename="camel"):
    """`overhead` of a RuntimeClass."""

    pod_fixed: dict[str, Any] | None = None


class RuntimeScheduling(msgspec.Struct, frozen=True, rename="camel"):
    """`scheduling` of a RuntimeClass."""

    node_selector: dict[str, str] | None = None
    tolerations: list[PodToleration] | None = None


class RuntimeClass(msgspec.Struct, frozen=True):
    """A RuntimeClass."""

    overhead: RuntimeOverhead = RuntimeOverhead()
    scheduling: RuntimeScheduling = RuntimeScheduling()


class LimitRangeItem(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of a LimitRange's `spec.limits`."""

    type: str | None = None
    min: dict[str, Any] | None = None
    max: dict[str, Any] | None = None
    max_limit_request_ratio: dict[str, Any] | None = None
    default: dict[str, Any] | None = None
    default_request: dict[str, Any] | None = None


class LimitRangeSpec(msgspec.Struct, frozen=True):
    """`spec` of a LimitRange."""

    limits: list[LimitRangeItem] | None = None


class LimitRange(msgspec.Struct, frozen=True):
    """A LimitRange."""

    spec: LimitRangeSpec = LimitRangeSpec()


class ScaleTarget(msgspec.Struct, frozen=True, rename="camel"):
    """`spec.scaleTargetRef` of a HorizontalPodAutoscaler."""

    kind: str | None = None
    name: str | None = None
    api_version: str | None = None


class AutoscalerSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a HorizontalPodAutoscaler."""

    min_replicas: Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)] | None = None
    max_replicas: Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)] | None = None
    scale_target_ref: ScaleTarget | None = None


class HorizontalPodAutoscaler(msgspec.Struct, frozen=True):
    """A HorizontalPodAutoscaler."""

    spec: AutoscalerSpec = AutoscalerSpec()
