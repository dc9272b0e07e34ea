"""Controllers and their templates of pods, Services, PodGroups, and what completes or refuses pods."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from steersman.cluster.objects.api.metadata import Condition, LabelSelector, ManifestObject, ObjectMeta
from steersman.cluster.objects.api.pods import INT32_MAX, PodToleration

MAX_REPLICAS = 10_000_000
Replicas = Annotated[int, msgspec.Meta(ge=0, le=MAX_REPLICAS)]


class ControllerSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a controller. Its template is not typed: of its pods also the fields matter that are not read."""

    template: dict[str, Any] | None = None


class Controller(ManifestObject, frozen=True):
    """A DaemonSet, or what all controllers have in common."""

    spec: ControllerSpec = ControllerSpec()


class ReplicationControllerSpec(ControllerSpec, frozen=True):
    """`spec` of a ReplicationController, or of a Service, which has only the selector."""

    selector: dict[str, str] | None = None
    replicas: Replicas | None = None


class ReplicationController(Controller, frozen=True):
    """A ReplicationController or a Service."""

    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class StatefulSetOrdinals(msgspec.Struct, frozen=True):
    """`spec.ordinals` of a StatefulSet."""

    start: Replicas | None = None


class VolumeClaimTemplate(msgspec.Struct, frozen=True):
    """An entry of a StatefulSet's `spec.volumeClaimTemplates`."""

    metadata: ObjectMeta = ObjectMeta()


class DeploymentSpec(ControllerSpec, frozen=True, rename="camel"):
    """`spec` of a Deployment, ReplicaSet or StatefulSet; only the last one has ordinals, a policy and claims."""

    selector: LabelSelector | None = None
    replicas: Replicas | None = None
    ordinals: StatefulSetOrdinals | None = None
    pod_management_policy: str | None = None
    volume_claim_templates: list[VolumeClaimTemplate] | None = None


class DeploymentStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of a Deployment, ReplicaSet or StatefulSet."""

    update_revision: str | None = None


class Deployment(Controller, frozen=True):
    """A Deployment, ReplicaSet or StatefulSet."""

    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class JobSpec(ControllerSpec, frozen=True, rename="camel"):
    """`spec` of a Job."""

    parallelism: Replicas | None = None
    completions: Replicas | None = None
    completion_mode: str | None = None
    manual_selector: bool | None = None
    managed_by: str | None = None
    pod_failure_policy: Any = None
    pod_replacement_policy: str | None = None
    suspend: bool | None = None
    active_deadline_seconds: Annotated[int, msgspec.Meta(ge=0)] | None = None


class JobStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of a Job."""

    conditions: list[Condition] | None = None
    start_time: str | None = None
    succeeded: Replicas | None = None
    completed_indexes: str | None = None
    failed_indexes: str | None = None


class Job(Controller, frozen=True):
    """A Job."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


GROUPS = (
    "scheduling.x-k8s.io",
    "scheduling.sigs.k8s.io",
    "scheduling.volcano.sh",
    "scheduling.incubator.k8s.io",
    "scheduling.run.ai",
    "scheduling.k8s.io",
)
"""API groups: of the coscheduling plugin and its older name, of Volcano and its older name, of KAI, of Kubernetes."""
Members = Annotated[int, msgspec.Meta(ge=0, le=MAX_REPLICAS)]


class GangPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """`spec.schedulingPolicy.gang` of a PodGroup of Kubernetes."""

    min_count: Members | None = None


class SchedulingPolicy(msgspec.Struct, frozen=True):
    """`spec.schedulingPolicy` of a PodGroup of Kubernetes."""

    gang: GangPolicy = GangPolicy()


class PodGroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a PodGroup."""

    min_member: Members | None = None
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: dict[str, Any] | None = None


class PodGroup(ManifestObject, frozen=True):
    """A PodGroup."""

    spec: PodGroupSpec = PodGroupSpec()


class BudgetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a PodDisruptionBudget: numbers, or percentages such as `50%`."""

    selector: LabelSelector | None = None
    min_available: Replicas | str | None = None
    max_unavailable: Replicas | str | None = None


class BudgetStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of a PodDisruptionBudget: when pods were evicted, by name, is not read."""

    disruptions_allowed: Replicas | None = None
    disrupted_pods: dict[str, Any] | None = None


class BudgetObject(ManifestObject, frozen=True):
    """A PodDisruptionBudget."""

    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


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
