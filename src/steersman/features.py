"""What a policy sees, as one table: every feature's name, unit, range and meaning, grouped in versioned views.

A view says what the rows of an observation mean: one row a node (before and after placing *this* pod there), one row of
the pod, one of the cluster. `policies.encoding` computes them. A policy file names its view and version, so that it
is never fed with anything else. Features are scaled by fixed units, never by the number of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from steersman.errors import UsageError

KINDS = 4
"""The first features of a pod, in every view: no GPU, a share of one GPU, one whole GPU, several GPUs (one-hot)."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One number that a policy sees.

    Attributes:
        name: unique within its row.
        unit: what 1.0 stands for.
        low, high: its range; values beyond are cut.
        meaning: in a sentence.
    """

    name: str
    unit: str
    low: float
    high: float
    meaning: str


@dataclass(frozen=True, slots=True)
class View:
    """All that a policy sees.

    Attributes:
        name: how files and options call it.
        version: grows when a feature changes its meaning or place.
        node: features of a node for this pod.
        pod: features of the pod; the first four are its kind, one-hot.
        context: features of the cluster.
    """

    name: str
    version: int
    node: tuple[Feature, ...]
    pod: tuple[Feature, ...]
    context: tuple[Feature, ...]

    def node_column(self, name: str) -> int:
        """The column of a node feature. Raises UsageError: there is no such feature."""
        return _column(self, "node", self.node, name)

    def pod_column(self, name: str) -> int:
        """The column of a pod feature. Raises UsageError: there is no such feature."""
        return _column(self, "pod", self.pod, name)

    def context_column(self, name: str) -> int:
        """The column of a context feature. Raises UsageError: there is no such feature."""
        return _column(self, "context", self.context, name)


def bounds(features: tuple[Feature, ...]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """[F] the lowest and the highest value of each feature, float32."""
    low = np.array([feature.low for feature in features], dtype=np.float32)
    high = np.array([feature.high for feature in features], dtype=np.float32)
    return low, high


def _column(of: View, row: str, features: tuple[Feature, ...], name: str) -> int:
    names = [feature.name for feature in features]
    if name not in names:
        raise UsageError(f"view {of.name!r} has no {row} feature {name!r}; there are {', '.join(names)}")
    return names.index(name)


POD_KINDS = (
    Feature("no_gpu", "flag", 0, 1, "The pod asks for no GPU."),
    Feature("gpu_part", "flag", 0, 1, "It asks for a share of one GPU."),
    Feature("one_gpu", "flag", 0, 1, "It asks for one whole GPU."),
    Feature("several_gpus", "flag", 0, 1, "It asks for several GPUs."),
)

CLUSTER = View(
    name="cluster",
    version=1,
    node=(
        Feature("cpu_free_before", "allocatable", 0, 1, "Share of the node's CPU that is free."),
        Feature("cpu_free_after", "allocatable", 0, 1, "The same with the pod on it."),
        Feature("memory_free_before", "allocatable", 0, 1, "Share of the node's memory that is free."),
        Feature("memory_free_after", "allocatable", 0, 1, "The same with the pod on it."),
        Feature("pods_free_before", "allocatable", 0, 1, "Share of the node's pod places that is free."),
        Feature("pods_free_after", "allocatable", 0, 1, "The same with the pod on it."),
        Feature("gpu_free_before", "the node's GPUs", 0, 1, "Share of the node's GPU milli that is idle."),
        Feature("gpu_free_after", "the node's GPUs", 0, 1, "The same with the pod on it."),
        Feature("cpu_left", "128 cores", 0, 8, "Free CPU with the pod on it."),
        Feature("memory_left", "1 TiB", 0, 8, "Free memory with the pod on it."),
        Feature("gpu_left", "8 GPUs", 0, 8, "Idle GPU with the pod on it."),
        Feature("gpu_count", "8 GPUs", 0, 8, "Devices that the node has."),
        Feature("whole_before", "8 GPUs", 0, 8, "Devices that nobody uses."),
        Feature("whole_after", "8 GPUs", 0, 8, "The same with the pod on it."),
        Feature("partial_after", "8 GPUs", 0, 8, "Devices in part use with the pod on it."),
        Feature("largest_part_after", "1 GPU", 0, 1, "The most that is left of a device in part use, with the pod."),
        Feature(
            "fragmented_before", "8 GPUs", 0, 8, "Idle GPU that typical pods cannot use (objectives.fragmentation)."
        ),
        Feature("fragmented_after", "8 GPUs", 0, 8, "The same with the pod on it."),
        Feature(
            "fgd_score", "1", 0, 1, "sigmoid((F_before - F_after) / 1 GPU) of the placement; 0 where it does not fit."
        ),
        Feature("empty_before", "flag", 0, 1, "No pod runs on the node."),
        Feature("untouched_before", "flag", 0, 1, "The node has GPUs, and nobody uses any."),
        Feature("untouched_after", "flag", 0, 1, "The same with the pod on it."),
        Feature("cpu_deviation_before", "allocatable", -1, 1, "Share of CPU in use minus its mean over nodes."),
        Feature("cpu_deviation_after", "allocatable", -1, 1, "The same with the pod on it, from the mean before."),
        Feature("cpu_square_before", "allocatable²", 0, 1, "The square of cpu_deviation_before."),
        Feature("cpu_square_after", "allocatable²", 0, 1, "The square of cpu_deviation_after."),
        Feature("owner_on_node", "its running pods", 0, 1, "Share of the running pods of the pod's owner on the node."),
        Feature("owner_in_rack", "its running pods", 0, 1, "The same in the node's rack."),
    ),
    pod=(
        *POD_KINDS,
        Feature("cpu", "32 cores", 0, 8, "CPU request."),
        Feature("cpu_log", "7 doublings", 0, 2, "log2(1 + cores)."),
        Feature("memory", "256 GiB", 0, 8, "Memory request."),
        Feature("memory_log", "10 doublings", 0, 2, "log2(1 + GiB)."),
        Feature("gpu_devices", "8 GPUs", 0, 8, "GPU devices."),
        Feature("gpu_share", "1 GPU", 0, 1, "Share of each device."),
        Feature("owner_running", "saturating at 8", 0, 1, "Running pods p of the pod's owner, p / (p + 8)."),
    ),
    context=(
        Feature("cpu_load", "allocatable", 0, 1, "Share of the cluster's CPU in use."),
        Feature("memory_load", "allocatable", 0, 1, "Share of the cluster's memory in use."),
        Feature("gpu_load", "all GPUs", 0, 1, "Share of the cluster's GPU in use."),
        Feature("fragmented", "idle GPU", 0, 1, "Share of the idle GPU that typical pods cannot use."),
        Feature("cpu_mean", "allocatable", 0, 1, "Mean over nodes of the share of CPU in use."),
        Feature("cpu_deviation", "allocatable", 0, 1, "Its standard deviation over nodes."),
        Feature("nodes_used", "all nodes", 0, 1, "Share of the nodes that hold a pod."),
        Feature("feasible", "all nodes", 0, 1, "Share of the nodes that the pod fits on."),
        Feature("waiting", "saturating at 16", 0, 1, "Pods w that wait or have failed, w / (w + 16)."),
        Feature("nodes", "20 doublings", 0, 2, "log2(1 + nodes)."),
    ),
)

# What `policies.gpu_features` computes of a node's state, in its order.
_STATE = (
    Feature("fragmented", "GPU", 0, 64, "Idle GPU that typical pods cannot use, weighted by their share of the mix."),
    Feature("lack_both", "GPU", 0, 64, "The part of it for pods that lack both CPU and GPU there."),
    Feature("lack_gpu", "GPU", 0, 64, "The part for pods that have the CPU, but not enough on one device."),
    Feature("lack_cpu", "GPU", 0, 64, "The part for pods that have the GPU, but not the CPU."),
    Feature("cpu_pod_lacks", "GPU", 0, 64, "The part for pods without GPU that lack CPU."),
    Feature("no_access", "GPU", 0, 64, "The part for pods that do not accept the node's model."),
    Feature("idle", "GPU", 0, 64, "All that is left of its devices."),
    Feature("whole_devices", "devices", 0, 64, "Devices that nobody uses."),
    Feature("part_devices", "devices", 0, 64, "Devices in part use."),
    Feature("part_idle", "GPU", 0, 64, "What is left of these."),
    Feature("all_whole", "flag", 0, 1, "Nobody uses any device."),
    Feature("untouched", "flag", 0, 1, "Nobody uses any device or CPU."),
    Feature("cpu_left", "CPU for a GPU", -1, 1024, "Free CPU."),
    Feature("cpu_short", "CPU for a GPU", 0, 1024, "CPU that the mix wants for the idle GPU beyond what is free."),
    Feature("cpu_spare", "CPU for a GPU", 0, 1024, "Free CPU beyond that."),
    *(
        Feature(f"fit_{group}", "share of the mix", 0, 1, f"Typical pods that fit: {words}.")
        for group, words in (
            ("cpu", "without GPU"),
            ("small_share", "below half a device"),
            ("large_share", "from half a device"),
            ("one_gpu", "one device"),
            ("several_gpus", "several devices"),
        )
    ),
    Feature("usable_cpu", "pods by share", 0, 8, "Pods without GPU that the free CPU takes, up to 8 of each kind."),
    *(
        Feature(f"usable_{group}", "GPU by share", 0, 64, f"GPU that they could use: {words}.")
        for group, words in (
            ("small_share", "pods below half a device"),
            ("large_share", "from half a device"),
            ("one_gpu", "one device"),
            ("several_gpus", "several devices"),
        )
    ),
    Feature("least_waste", "GPU", 0, 64, "What the largest typical pod that fits on a device would leave, summed."),
    Feature("dead", "GPU", 0, 64, "What is left of devices that have too little for any typical pod."),
    Feature("insisted", "GPU by share", 0, 64, "Idle GPU times the demand that insists on the node's model."),
    Feature("accepted", "GPU by share", 0, 64, "Idle GPU times the demand that accepts it."),
    Feature("left_squares", "GPU²", 0, 64, "Squares of what is left of each device, summed."),
    Feature("idle_squared", "5 GPU²", 0, 1024, "idle²."),
    Feature("whole_squared", "5 devices²", 0, 1024, "whole_devices²."),
    Feature("cpu_squared", "5 (CPU for a GPU)²", 0, 1 << 20, "cpu_left²."),
    Feature("idle_cpu", "5 GPU times CPU for a GPU", -64, 1 << 16, "idle times cpu_left."),
    Feature("whole_cpu", "5 devices times CPU for a GPU", -64, 1 << 16, "whole_devices times cpu_left."),
    Feature("short_squared", "(CPU for a GPU)²", 0, 1 << 20, "cpu_short²."),
    Feature("spare_squared", "(CPU for a GPU)²", 0, 1 << 20, "cpu_spare²."),
    Feature("part_cpu", "GPU times CPU for a GPU", -64, 1 << 16, "part_idle times cpu_left."),
    Feature("part_root", "√GPU", 0, 8, "√part_idle."),
    Feature("lost_knapsack", "GPU", 0, 64, "Left of devices by the best combination of typical shares."),
    Feature("lost_to_shares", "GPU", 0, 64, "Left of devices if typical shares come at random."),
    Feature("lost_at_random", "GPU", 0, 64, "The same with pods of one whole device."),
    Feature("lost_closed", "GPU by share", 0, 64, "Left of devices times the share of pods too large for it."),
    Feature("lost_planned", "GPU", -64, 64, "What planning expects devices to lose in the end (policies.planning)."),
    Feature("midway_idle", "GPU", 0, 64, "Idle GPU after 8 typical pods of fixed sequences, were it the only node."),
    Feature("filled_idle", "GPU", 0, 64, "The same after 24."),
    Feature("filled_cpu", "CPU for a GPU", -1, 1024, "Free CPU after 24."),
    Feature("gpu_midway_idle", "GPU", 0, 64, "Like midway_idle, with sequences of GPU pods."),
    Feature("gpu_filled_idle", "GPU", 0, 64, "Like filled_idle, with sequences of GPU pods."),
    Feature("gpu_filled_cpu", "CPU for a GPU", -1, 1024, "Like filled_cpu, with sequences of GPU pods."),
)

GPU = View(
    name="gpu",
    version=2,
    node=(
        *(replace(feature, name=f"{feature.name}_after") for feature in _STATE),
        *(
            replace(
                feature,
                name=f"{feature.name}_change",
                low=-feature.high,
                meaning=f"By how much the pod would change it: {feature.meaning}",
            )
            for feature in _STATE
        ),
        Feature("fgd_score", "points", 0, 100, "The score of fragmentation gradient descent."),
    ),
    pod=CLUSTER.pod,
    context=CLUSTER.context,
)
"""For GPU nodes: what a node is worth after the placement, and by how much that changes."""

VIEWS = {CLUSTER.name: CLUSTER, GPU.name: GPU}
"""Views by name; their numbers in compiled code are in `policies.encoding`."""


def view(name: str) -> View:
    """The view of that name. Raises UsageError: there is none; the message lists those there are."""
    if name not in VIEWS:
        raise UsageError(f"unknown view {name!r}; known are {', '.join(VIEWS)}")
    return VIEWS[name]
