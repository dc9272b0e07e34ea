"""A v1 Pod, or any object with a pod's `metadata` and `spec`, such as a pod template."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from steersman.cluster.objects.api.metadata import LabelSelector, ManifestObject, NodeSelector, NodeTerm, StoredMeta

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
DEFAULT_SCHEDULER, UNSCHEDULABLE = "default-scheduler", "Unschedulable"
INT32_MAX = (1 << 31) - 1
MAX_WEIGHT = 100
MAX_PORT = 65535

Count = Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)]
Weight = Annotated[int, msgspec.Meta(ge=1, le=MAX_WEIGHT)]

# Containers


class ResourceRequirements(msgspec.Struct, frozen=True):
    """Quantities by name of a resource."""

    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None


NO_RESOURCES = ResourceRequirements()


class ContainerPort(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of a container's `ports`."""

    container_port: int | None = None
    host_port: Annotated[int, msgspec.Meta(ge=0, le=MAX_PORT)] | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class ContainerRestartRule(msgspec.Struct, frozen=True):
    """An entry of a container's `restartPolicyRules`."""

    action: str | None = None


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """A container, or an init container."""

    name: str | None = None
    image: str | None = None
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[ContainerRestartRule] | None = None

    @property
    def is_sidecar(self) -> bool:
        """Whether it, an init container, runs beside the containers."""
        return self.restart_policy == "Always"


# Affinity


class PreferredSchedulingTerm(msgspec.Struct, frozen=True):
    """A preferred term of a node affinity."""

    weight: Weight | None = None
    preference: NodeTerm | None = None


class NodeAffinity(msgspec.Struct, frozen=True):
    """`affinity.nodeAffinity`."""

    required: NodeSelector | None = msgspec.field(default=None, name=REQUIRED)
    preferred: list[PreferredSchedulingTerm] | None = msgspec.field(default=None, name=PREFERRED)


class PodTerm(msgspec.Struct, frozen=True, rename="camel"):
    """A term of a pod (anti-)affinity."""

    topology_key: str | None = None
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(msgspec.Struct, frozen=True, rename="camel"):
    """A preferred term of a pod (anti-)affinity."""

    weight: Weight | None = None
    pod_affinity_term: PodTerm | None = None


class PodAffinity(msgspec.Struct, frozen=True):
    """`affinity.podAffinity` or `affinity.podAntiAffinity`."""

    required: list[PodTerm] | None = msgspec.field(default=None, name=REQUIRED)
    preferred: list[WeightedPodAffinityTerm] | None = msgspec.field(default=None, name=PREFERRED)


class Affinity(msgspec.Struct, frozen=True, rename="camel"):
    """`spec.affinity`."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `spec.topologySpreadConstraints`."""

    max_skew: Count | None = None
    topology_key: str | None = None
    when_unsatisfiable: str | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    min_domains: Count | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class PodToleration(msgspec.Struct, frozen=True):
    """An entry of `spec.tolerations`."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


# Volumes


class ImageVolume(msgspec.Struct, frozen=True):
    """`image` of a volume."""

    reference: str | None = None


class GceDisk(msgspec.Struct, frozen=True, rename="camel"):
    """`gcePersistentDisk`."""

    pd_name: str | None = None
    read_only: bool | None = None


class VolumeId(msgspec.Struct, frozen=True):
    """`awsElasticBlockStore`, `cinder` or `portworxVolume`."""

    volume_id: str | None = msgspec.field(default=None, name="volumeID")


class AzureDisk(msgspec.Struct, frozen=True):
    """`azureDisk`."""

    kind: str | None = None
    disk_uri: str | None = msgspec.field(default=None, name="diskURI")


class IscsiDisk(msgspec.Struct, frozen=True, rename="camel"):
    """`iscsi` of a volume."""

    iqn: str | None = None
    read_only: bool | None = None


class RbdDisk(msgspec.Struct, frozen=True, rename="camel"):
    """`rbd` of a volume."""

    pool: str | None = None
    image: str | None = None
    monitors: list[str] | None = None
    read_only: bool | None = None


class ClaimSource(msgspec.Struct, frozen=True, rename="camel"):
    """`persistentVolumeClaim` of a volume."""

    claim_name: str | None = None


class InTreeSources(msgspec.Struct, frozen=True, rename="camel"):
    """Disks of in-tree volume plugins that CSI drivers have replaced: of a pod's volume, or of a PersistentVolume."""

    aws_elastic_block_store: VolumeId | None = None
    gce_persistent_disk: GceDisk | None = None
    azure_disk: AzureDisk | None = None
    cinder: VolumeId | None = None
    portworx_volume: VolumeId | None = None


class PodVolume(InTreeSources, frozen=True, rename="camel"):
    """An entry of `spec.volumes`."""

    name: str | None = None
    image: ImageVolume | None = None
    iscsi: IscsiDisk | None = None
    rbd: RbdDisk | None = None
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: dict[str, Any] | None = None


# The pod


class SchedulingGroup(msgspec.Struct, frozen=True, rename="camel"):
    """`spec.schedulingGroup`."""

    pod_group_name: str | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a Pod."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    priority: Annotated[int, msgspec.Meta(ge=-INT32_MAX - 1, le=INT32_MAX)] | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    runtime_class_name: str | None = None
    overhead: dict[str, Any] | None = None
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[PodToleration] | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    volumes: list[PodVolume] | None = None
    host_network: bool | None = None
    host_users: bool | None = None
    scheduling_gates: list[Any] | None = None
    active_deadline_seconds: Count | None = None
    resource_claims: list[Any] | None = None
    scheduling_group: SchedulingGroup | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the kubelet has granted to a container."""

    name: str | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Any] | None = None


class PodCondition(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `status.conditions`."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of a Pod: its phase, what the kubelet has granted to it, and the node that a scheduler nominated."""

    phase: str | None = None
    start_time: str | None = None
    nominated_node_name: str | None = None
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Any] | None = None


NO_SPEC, NO_STATUS = PodSpec(), PodStatus()


class PodObject(ManifestObject, frozen=True):
    """A v1 Pod."""

    spec: PodSpec = NO_SPEC
    status: PodStatus = NO_STATUS

    @property
    def node(self) -> str:
        """Node that it is bound to, "" for none."""
        return self.spec.node_name or ""

    @property
    def scheduler(self) -> str:
        return self.spec.scheduler_name or DEFAULT_SCHEDULER

    @property
    def finished(self) -> bool:
        """Whether it has succeeded or failed, so that it holds and requests no resources."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def scheduled_condition(self) -> PodCondition:
        """Condition `PodScheduled`, an empty one before a scheduler has tried it."""
        return next((each for each in self.status.conditions or () if each.type == "PodScheduled"), NO_CONDITION)


class LivePod(PodObject, frozen=True):
    """A v1 Pod of the API."""

    metadata: StoredMeta = StoredMeta()


NO_CONDITION = PodCondition()
