"""Nodes and pods as a scheduler reads them: immutable, hashable, in integer units.

Before them the metrics of nodes, as monitoring measures them, and limits of the latency from a pod to its users.

Units everywhere: CPU in milli-CPU, memory and ephemeral storage in bytes, a GPU device in milli (1000 = a whole one),
times in seconds. Decoders round requests up and allocatable down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

# Metrics: the queries of Matranga's thesis. From `LATENCY` on: latency to the users of each zone.
CPU_USED, MEMORY_AVAILABLE, FILESYSTEM_USED, NETWORK_RECEIVED, CONNECTIONS, RUNNING_PODS, LATENCY = range(7)
METRICS = (
    ("cpu_used_percent", "percent"),
    ("memory_available_bytes", "bytes"),
    ("filesystem_used_percent", "percent"),
    ("network_received_bytes_per_second", "bytes/s"),
    ("tcp_connections", "connections"),
    ("running_pods", "pods"),
)
"""Name and unit of the metrics before `LATENCY`, whose unit is milliseconds."""
AGE_LIMIT = 300.0  # Seconds. Prometheus looks back this far for a value; a metric without any value has this age.

PREFIX = "steersman.dev/"
SOFT_KEYS = (f"{PREFIX}latency-soft-constraint", "latencySoftConstraint")
HARD_KEYS = (f"{PREFIX}latency-hard-constraint", "latencyHardConstraint")  # the first annotation that exists counts
USER_KEY = f"{PREFIX}latency-user"  # annotation with the name of the pod's users, as the probe of latencies names them
SHOWN = 40
RESTART_SECONDS = 120.0
"""Seconds that an evicted pod needs to restart, unless its annotation states them."""


@dataclass(frozen=True, slots=True)
class LatencyLimits:
    """Limits of the latency from a pod to its users, in milliseconds; inf: no limit."""

    soft: float = math.inf  # preferred limit
    hard: float = math.inf  # where some node keeps it, the pod goes to such a node
    user: str = ""  # name of its users; "": all users, so that the largest latency of a node counts
    ignored: tuple[str, ...] = ()  # problems of invalid annotations; the pod is scheduled without these limits

    @property
    def limited(self) -> bool:
        return self.soft < math.inf or self.hard < math.inf


NO_LIMITS = LatencyLimits()


def limits_of(annotations: Mapping[str, Any]) -> LatencyLimits:
    """Return the limits of a pod's annotations. An invalid one does not keep the pod from being scheduled."""
    ignored: list[str] = []
    soft, hard = (_milliseconds(annotations, keys, ignored) for keys in (SOFT_KEYS, HARD_KEYS))
    user = annotations.get(USER_KEY, "")
    if not isinstance(user, str):
        ignored.append(f"annotation {USER_KEY}: is not text")
        user = ""
    return LatencyLimits(soft, hard, user, tuple(ignored))


def _milliseconds(annotations: Mapping[str, Any], keys: tuple[str, ...], ignored: list[str]) -> float:
    for key in keys:
        value = annotations.get(key)
        if value is None:
            continue
        try:
            number = math.nan if isinstance(value, bool) or "_" in str(value) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if 0 < number < math.inf:
            return number
        shown = str(value)[:SHOWN]
        ignored.append(f"annotation {key}: {shown!r} is not a number of milliseconds above 0, such as 100; ignored")
        return math.inf
    return math.inf


# Names under which nodes offer GPUs and pods request them; the Go plugin has the same, held by a test.

SHARED_GPUS = "alibabacloud.com/gpu-count"
"""Resource of shared GPUs: pods request it by annotations, so kube-scheduler alone does not count it."""

PLUGIN_GPUS: Mapping[str, str] = {
    "nvidia.com/gpu": "nvidia.com/gpu.product",
    "nvidia.com/gpu.shared": "nvidia.com/gpu.product",
    "amd.com/gpu": "amd.com/gpu.product-name",
    "gpu.intel.com/i915": "gpu.intel.com/product",
    "gpu.intel.com/xe": "gpu.intel.com/product",
    "habana.ai/gaudi": "",
}
"""Extended resources of device plugins, which are whole devices: name -> the label of a node's model, "" if none."""

GPU_RESOURCES = frozenset((SHARED_GPUS, *PLUGIN_GPUS))

GPU_MODEL_KEY = "alibabacloud.com/gpu-card-model"
"""Label of a node's GPU model, whatever offers the GPUs; it precedes the labels of vendors."""

MODEL_LABELS = (GPU_MODEL_KEY, *dict.fromkeys(filter(None, PLUGIN_GPUS.values())))


def gpu_model(labels: Mapping[str, str], resources: Iterable[str]) -> str:
    """Return the model that a node's labels state for GPUs that it offers under these names, "" if none.

    Labels of other vendors do not count, unless no vendor is among the names.
    """
    vendors = [PLUGIN_GPUS[name] for name in resources if name in PLUGIN_GPUS]
    keys = (GPU_MODEL_KEY, *vendors) if vendors else MODEL_LABELS
    return next((labels[key] for key in keys if labels.get(key)), "")


def is_offered(resource: str, offered: tuple[str, ...]) -> bool:
    """Return whether devices offered under these names (none: any) serve pods that request `resource` ("": any)."""
    return not resource or not offered or resource in offered


def shown_name(resource: str) -> str:
    """Return the resource's name in a refusal: kube-scheduler knows only those of device plugins."""
    return resource if resource in PLUGIN_GPUS else "GPU"


GPU_MILLI = 1000  # milli of one whole GPU device

JOB_NAME = "batch.kubernetes.io/job-name"  # label of a pod with the name of its Job
EXECUTABLE = "executable"  # label of a log's job with what it ran

UNLIMITED = 1 << 60
"""Allocatable of a resource that the source does not limit (openb knows no pod count and no storage)."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint (core/v1 Taint)."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration (core/v1 Toleration). Empty `key` with `Exists` tolerates all, empty `effect` any effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of a label or field selector; all requirements of a selector must hold."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """One term of a node selector: all its expressions (labels) and fields must hold; an empty term matches no node."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class PreferredNodeTerm:
    """A preferred node affinity term and its weight, 1..100."""

    weight: int
    term: NodeSelectorTerm


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Pods that a pod (anti-)affinity or spread term counts.

    `requirements` None selects no pod (a nil selector), an empty tuple selects every pod of the namespaces.
    `namespaces` None means all namespaces (an empty namespaceSelector). `matchLabelKeys` are already merged in.
    `excludes_namespaces`: the namespaceSelector only says which labels a namespace must not have.
    """

    requirements: tuple[Requirement, ...] | None
    namespaces: frozenset[str] | None
    excludes_namespaces: bool = False


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """A pod (anti-)affinity term: pods that `selector` matches, in the same domain of `topology_key`."""

    selector: PodSelector
    topology_key: str


@dataclass(frozen=True, slots=True)
class PreferredPodTerm:
    """A preferred pod (anti-)affinity term and its weight, 1..100."""

    weight: int
    term: PodAffinityTerm


@dataclass(frozen=True, slots=True)
class TopologySpread:
    """A topology spread constraint (core/v1 TopologySpreadConstraint). `hard` is DoNotSchedule, else ScheduleAnyway."""

    max_skew: int
    topology_key: str
    hard: bool
    selector: PodSelector
    min_domains: int = 1
    honor_node_affinity: bool = True
    honor_node_taints: bool = False


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host port of a pod. `ip` "0.0.0.0" takes it on every address."""

    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class ExclusiveVolume:
    """An inline volume that pods on one node cannot share, unless all of them only read it."""

    kind: str  # field of the volume: gcePersistentDisk, awsElasticBlockStore, iscsi or rbd
    disk: tuple[str, ...]  # what names the disk there; of rbd, pool and image
    monitors: tuple[str, ...] = ()  # of rbd; two volumes are the same if they have a monitor in common
    read_only: bool = False  # whether it may be shared with others that are


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of a pod. GPUs: `gpu_count` devices with `gpu_milli` (1..1000) of each.

    `gpu_resource` is the name under which a node must offer them, "" for any (openb has no names).

    `cpu_nonzero_milli` and `memory_nonzero_bytes` are kube-scheduler's scoring view of CPU and memory, in which a
    container that states no request counts as 100m and 200MiB; they default to the plain requests with that rule
    applied to the pod as one container.
    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    ephemeral_bytes: int = 0
    gpu_count: int = 0
    gpu_milli: int = 0
    extended: tuple[tuple[str, int], ...] = ()
    cpu_nonzero_milli: int = -1
    memory_nonzero_bytes: int = -1
    gpu_resource: str = ""

    def __post_init__(self) -> None:
        """Check the values."""
        if self.cpu_nonzero_milli < 0:
            object.__setattr__(self, "cpu_nonzero_milli", self.cpu_milli or 100)
        if self.memory_nonzero_bytes < 0:
            object.__setattr__(self, "memory_nonzero_bytes", self.memory_bytes or 200 << 20)

    @property
    def gpu_total_milli(self) -> int:
        """GPU milli over all requested devices."""
        return self.gpu_count * self.gpu_milli


@dataclass(frozen=True, slots=True)
class ProfileRules:
    """What the profile of a pod's scheduler changes about the pod's constraints; the default changes nothing."""

    disabled_filters: frozenset[str] = frozenset()  # filter plugins of kube-scheduler that do not run
    # Node affinity that pods need beside their own (`addedAffinity`), None for none
    required_nodes: tuple[NodeSelectorTerm, ...] | None = None
    # Score of a pod's required affinity for another pod that it matches (`hardPodAffinityWeight`)
    hard_affinity_weight: int = 1
    # Whether a term counts only the namespaces that it selects for a pod that is placed; if not, one with
    # `PodSelector.excludes_namespaces` counts all of them
    merges_namespaces: bool = True


@dataclass(frozen=True, slots=True)
class Constraints:
    """Constraints and preferences of a pod about nodes and other pods. All empty: it runs anywhere it fits.

    `images` are those of containers, `image_volumes` those of volumes; `node_features` must be declared by the node.
    `volume_refusals` are reasons why the pod's volumes refuse nodes, and the names of these nodes, without names all.
    """

    gpu_models: tuple[str, ...] = ()
    node_name: str = ""
    tolerations: tuple[Toleration, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    node_affinity: tuple[NodeSelectorTerm, ...] | None = None
    preferred_nodes: tuple[PreferredNodeTerm, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    affinity: tuple[PodAffinityTerm, ...] = ()
    anti_affinity: tuple[PodAffinityTerm, ...] = ()
    preferred_affinity: tuple[PreferredPodTerm, ...] = ()
    preferred_anti_affinity: tuple[PreferredPodTerm, ...] = ()
    spread: tuple[TopologySpread, ...] = ()
    images: tuple[str, ...] = ()
    image_volumes: tuple[str, ...] = ()
    exclusive_volumes: tuple[ExclusiveVolume, ...] = ()
    node_features: tuple[str, ...] = ()
    volume_refusals: tuple[tuple[str, tuple[str, ...]], ...] = ()
    profile: ProfileRules = ProfileRules()


@dataclass(frozen=True, slots=True)
class PodClass:
    """Requests and constraints of a pod; a scheduler decides alike for all pods of a class."""

    requests: Requests
    constraints: Constraints = Constraints()


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod: its class, its labels (which other pods' selectors count), and its life in a trace.

    `creation_time` and `deletion_time` are seconds from the start of the trace, None where the source has none.
    `owner` names the Deployment, ReplicaSet or job that the pod belongs to as "Kind/name", "" if none. `gpu_devices`
    are the devices of its node that a pod already holds where the source says so (a snapshot), else empty. The limits
    of CPU and memory, 0 where there is none, decide nothing here and are kept for whoever writes the pod. `latency` has
    its limits of latency to its users. A `terminating` pod is being deleted: it still takes its resources.
    A `gated` one has scheduling gates and no node: no scheduler looks at it before they are removed.
    `estimated_seconds` is the run time that whoever submitted it stated, None if nobody did. Pods of a namespace with
    the same `gang` start once `gang_minimum` of them can start together, 0: all; "": it starts alone. At most `at_once`
    pods of its Job or owner exist at a time, None: all. `nominated` is the node whose room is kept for it, "" for none.
    `resumable` are the seconds between the checkpoints from which it can go on, 0: it saves its work when it is
    evicted; None: it cannot resume, and is never evicted. It needs `restart_seconds` to restart.
    `preempts` says whether kube-scheduler may preempt pods of lower priority for it, `preempted` whether it is being
    deleted for another one. `started` is when its kubelet began with it, in seconds since 1970, None if unknown.
    `ignored` says which annotations make no sense, so that they do not count; those of `latency` are there.
    """

    name: str
    pod_class: PodClass
    namespace: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    priority: int = 0
    scheduler_name: str = "default-scheduler"
    owner: str = ""
    creation_time: float | None = None
    deletion_time: float | None = None
    gpu_devices: tuple[int, ...] = ()
    cpu_limit_milli: int = 0
    memory_limit_bytes: int = 0
    latency: LatencyLimits = NO_LIMITS
    terminating: bool = False
    gated: bool = False
    estimated_seconds: float | None = None
    gang: str = ""
    gang_minimum: int = 0
    at_once: int | None = None
    nominated: str = ""
    preempts: bool = True
    preempted: bool = field(default=False, compare=False)
    started: float | None = field(default=None, compare=False)
    resumable: float | None = None
    restart_seconds: float = RESTART_SECONDS
    ignored: tuple[str, ...] = field(default=(), compare=False)

    @property
    def other_scheduler(self) -> str:
        """Return its schedulerName if that is neither the default of Kubernetes nor steersman's, else ""."""
        return "" if self.scheduler_name in ("default-scheduler", "steersman") else self.scheduler_name

    def unbound(self) -> Pod:
        """Return the same pod without the node that it names."""
        if not self.constraints.node_name:
            return self
        freed = replace(self.constraints, node_name="")
        return replace(self, pod_class=replace(self.pod_class, constraints=freed))

    def bound(self, node: str, devices: tuple[int, ...] = ()) -> Pod:
        """Return the same pod as it runs on a node, with the devices that it holds there."""
        constraints = replace(self.constraints, node_name=node)
        return replace(self, pod_class=replace(self.pod_class, constraints=constraints), gpu_devices=devices)

    @property
    def program(self) -> str:
        """Return what it runs, "" if that is unknown: its first image without tag, or a log's executable."""
        if not (images := self.constraints.images):
            return self.labels.get(EXECUTABLE, "")
        name = images[0].partition("@")[0]
        head, separator, tag = name.rpartition(":")
        return head if separator and "/" not in tag else name

    @property
    def limited_by(self) -> tuple[str, str]:
        """Namespace and name of the controller that `at_once` is about: the pod's Job, else its owner."""
        return self.namespace, self.labels.get(JOB_NAME, self.owner)

    @property
    def requests(self) -> Requests:
        """The class's requests."""
        return self.pod_class.requests

    @property
    def constraints(self) -> Constraints:
        """The class's constraints."""
        return self.pod_class.constraints


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget: which pods of its namespace it counts, and how many of them may be disrupted now.

    No requirement selects no pod. Pods in `disrupted` were evicted already, by name.
    """

    namespace: str
    name: str
    requirements: tuple[Requirement, ...]
    allowed: int
    disrupted: frozenset[str] = frozenset()


class GpuType(NamedTuple):
    """Type of a node's devices: their model, "" if unknown, and the names they are offered under."""

    model: str
    resources: tuple[str, ...]


ANY_GPU = GpuType("", ())  # devices without a model and a name, as in openb


@dataclass(frozen=True, slots=True)
class Node:
    """A node: allocatable resources, GPU devices of one model, and what constraints read.

    `gpu_count` devices have bits in a device mask; `gpu_resources` are the names under which they are offered, none:
    any. Further GPUs (of another vendor, or beyond the mask) are counted among `extended` under their name.
    `gpu_memory_mib` is the memory of each GPU (in the unit of a resource that counts it, see `objects.gpus`),
    `physical_gpus` the number of those whose replicas the devices are; 0 where nothing but labels may say it
    (`gpu_units`). `addresses` are those of `status.addresses` that are not its name. `features` are those that its
    kubelet declares.
    """

    name: str
    cpu_milli: int
    memory_bytes: int
    pods: int = UNLIMITED
    ephemeral_bytes: int = UNLIMITED
    gpu_count: int = 0
    gpu_model: str = ""
    extended: tuple[tuple[str, int], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    images: Mapping[str, int] = field(default_factory=dict, hash=False)
    gpu_resources: tuple[str, ...] = ()
    gpu_memory_mib: int = 0
    physical_gpus: int = 0
    addresses: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    @property
    def counted_gpus(self) -> dict[str, int]:
        """Return GPUs that are counted like an extended resource: name -> number."""
        return {name: amount for name, amount in self.extended if name in GPU_RESOURCES}

    @property
    def gpu_total(self) -> int:
        """Number of all GPUs, in the mask or counted."""
        return self.gpu_count + sum(amount for name, amount in self.extended if name in GPU_RESOURCES)

    @property
    def takes_any_pod(self) -> bool:
        """Whether it takes pods without tolerations."""
        return not self.unschedulable and all(taint.effect == "PreferNoSchedule" for taint in self.taints)

    @property
    def gpu_type(self) -> GpuType:
        """Type of the devices in the mask."""
        return GpuType(self.gpu_model, self.gpu_resources) if self.gpu_count else ANY_GPU

    def gpu_model_for(self, resource: str) -> str:
        """Return the model of the GPUs that a pod requesting `resource` gets here; "" if unknown."""
        return gpu_model(self.labels, (resource,)) if resource in self.counted_gpus else self.gpu_model


def gpu_types(nodes: Iterable[Node]) -> tuple[GpuType, ...]:
    """Return the types of the nodes' devices in order, without `ANY_GPU`."""
    return tuple(sorted({node.gpu_type for node in nodes} - {ANY_GPU}))
