"""Feature tables: name, unit, range and meaning of every feature of an observation, grouped in versioned views.

A view defines the rows of an observation: one per node (before and after placing *this* pod there), one for the pod and
one for the cluster. `core/src/views.rs` computes them. A policy file names its view and version, so that
it never gets other features. Features are scaled by fixed units, never by the number of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from steersman.core.errors import UsageError

POD_KINDS = 4
"""Number of pod kinds (no GPU, a share of one GPU, one whole GPU, several GPUs): the first pod features, one-hot."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One input of a policy."""

    name: str  # name, unique within its row
    unit: str  # the quantity that 1.0 stands for
    # `low`, `high`: range to which values are clipped.
    low: float
    high: float
    meaning: str  # description in one sentence


@dataclass(frozen=True, slots=True)
class View:
    """Versioned set of features."""

    name: str  # name in policy files and options
    version: int  # version, incremented when a feature changes its meaning or position
    node: tuple[Feature, ...]  # features of a node for this pod
    pod: tuple[Feature, ...]  # features of the pod; the first four are its kind, one-hot
    context: tuple[Feature, ...]  # features of the cluster

    def node_column(self, name: str) -> int:
        """Return the column of a node feature. Raises UsageError: there is no such feature."""
        return _column(self, "node", self.node, name)

    def pod_column(self, name: str) -> int:
        """Return the column of a pod feature. Raises UsageError: there is no such feature."""
        return _column(self, "pod", self.pod, name)

    def context_column(self, name: str) -> int:
        """Return the column of a context feature. Raises UsageError: there is no such feature."""
        return _column(self, "context", self.context, name)


def bounds(features: tuple[Feature, ...]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the lowest and the highest value of each feature, two arrays [F] float32."""
    low = np.array([feature.low for feature in features], dtype=np.float32)
    high = np.array([feature.high for feature in features], dtype=np.float32)
    return low, high


def _column(source: View, row: str, features: tuple[Feature, ...], name: str) -> int:
    names = [feature.name for feature in features]
    if name not in names:
        raise UsageError(f"view {source.name!r} has no {row} feature {name!r}; known are {', '.join(names)}")
    return names.index(name)


POD_KIND_FEATURES = (
    Feature("no_gpu", "flag", 0, 1, "The pod requests no GPU."),
    Feature("gpu_part", "flag", 0, 1, "The pod requests a share of one GPU."),
    Feature("one_gpu", "flag", 0, 1, "The pod requests one whole GPU."),
    Feature("several_gpus", "flag", 0, 1, "The pod requests several GPUs."),
)

CLUSTER = View(
    name="cluster",
    version=1,
    node=(
        Feature("cpu_free_before", "allocatable", 0, 1, "Share of the node's CPU that is free."),
        Feature("cpu_free_after", "allocatable", 0, 1, "The same after placing the pod."),
        Feature("memory_free_before", "allocatable", 0, 1, "Share of the node's memory that is free."),
        Feature("memory_free_after", "allocatable", 0, 1, "The same after placing the pod."),
        Feature("pods_free_before", "allocatable", 0, 1, "Share of the node's pod capacity that is free."),
        Feature("pods_free_after", "allocatable", 0, 1, "The same after placing the pod."),
        Feature("gpu_free_before", "the node's GPUs", 0, 1, "Share of the node's GPU milli that is idle."),
        Feature("gpu_free_after", "the node's GPUs", 0, 1, "The same after placing the pod."),
        Feature("cpu_left", "128 cores", 0, 8, "Free CPU after placing the pod."),
        Feature("memory_left", "1 TiB", 0, 8, "Free memory after placing the pod."),
        Feature("gpu_left", "8 GPUs", 0, 8, "Idle GPU after placing the pod."),
        Feature("gpu_count", "8 GPUs", 0, 8, "Number of the node's devices."),
        Feature("whole_before", "8 GPUs", 0, 8, "Unused devices."),
        Feature("whole_after", "8 GPUs", 0, 8, "The same after placing the pod."),
        Feature("partial_after", "8 GPUs", 0, 8, "Partly used devices after placing the pod."),
        Feature("largest_part_after", "1 GPU", 0, 1, "Most idle GPU of a partly used device, with the pod."),
        Feature("fragmented_before", "8 GPUs", 0, 8, "Idle GPU that typical pods cannot use (objectives.summary)."),
        Feature("fragmented_after", "8 GPUs", 0, 8, "The same after placing the pod."),
        Feature(
            "fgd_score", "1", 0, 1, "sigmoid((F_before - F_after) / 1 GPU) of the placement; 0 where it does not fit."
        ),
        Feature("empty_before", "flag", 0, 1, "No pod runs on the node."),
        Feature("untouched_before", "flag", 0, 1, "The node has GPUs, and all are unused."),
        Feature("untouched_after", "flag", 0, 1, "The same after placing the pod."),
        Feature("cpu_deviation_before", "allocatable", -1, 1, "Share of CPU in use minus its mean over nodes."),
        Feature("cpu_deviation_after", "allocatable", -1, 1, "The same after placing the pod, from the mean before."),
        Feature("cpu_square_before", "allocatable²", 0, 1, "The square of cpu_deviation_before."),
        Feature("cpu_square_after", "allocatable²", 0, 1, "The square of cpu_deviation_after."),
        Feature("owner_on_node", "its running pods", 0, 1, "Share of the running pods of the pod's owner on the node."),
        Feature("owner_in_rack", "its running pods", 0, 1, "The same in the node's rack."),
    ),
    pod=(
        *POD_KIND_FEATURES,
        Feature("cpu", "32 cores", 0, 8, "CPU request."),
        Feature("cpu_log", "7 doublings", 0, 2, "log2(1 + cores)."),
        Feature("memory", "256 GiB", 0, 8, "Memory request."),
        Feature("memory_log", "10 doublings", 0, 2, "log2(1 + GiB)."),
        Feature("gpu_devices", "8 GPUs", 0, 8, "Number of GPU devices."),
        Feature("gpu_share", "1 GPU", 0, 1, "Requested share of each device."),
        Feature("owner_running", "saturating at 8", 0, 1, "Running pods p of the pod's owner, p / (p + 8)."),
    ),
    context=(
        Feature("cpu_load", "allocatable", 0, 1, "Share of the cluster's CPU in use."),
        Feature("memory_load", "allocatable", 0, 1, "Share of the cluster's memory in use."),
        Feature("gpu_load", "all GPUs", 0, 1, "Share of the cluster's GPU in use."),
        Feature("fragmented", "idle GPU", 0, 1, "Share of the idle GPU that typical pods cannot use."),
        Feature("cpu_mean", "allocatable", 0, 1, "Mean over nodes of the share of CPU in use."),
        Feature("cpu_deviation", "allocatable", 0, 1, "Standard deviation over nodes of the share of CPU in use."),
        Feature("nodes_used", "all nodes", 0, 1, "Share of the nodes with at least one pod."),
        Feature("feasible", "all nodes", 0, 1, "Share of the nodes that the pod fits on."),
        Feature("waiting", "saturating at 16", 0, 1, "Unschedulable or failed pods w, w / (w + 16)."),
        Feature("nodes", "20 doublings", 0, 2, "log2(1 + nodes)."),
    ),
)

# State of a node as `core/src/features.rs` computes it, in the same order.
_STATE = (
    Feature("fragmented", "GPU", 0, 64, "Idle GPU that typical pods cannot use, weighted by the pods' shares."),
    Feature("idle", "GPU", 0, 64, "Idle GPU of all devices."),
    Feature("whole_devices", "devices", 0, 64, "Unused devices."),
    Feature("part_devices", "devices", 0, 64, "Partly used devices."),
    Feature("part_idle", "GPU", 0, 64, "Idle GPU of partly used devices."),
    Feature("untouched", "flag", 0, 1, "All devices and the CPU are unused."),
    Feature("cpu_left", "CPU for a GPU", -1, 1024, "Free CPU."),
    Feature("cpu_short", "CPU for a GPU", 0, 1024, "CPU that typical pods need for the idle GPU, beyond the free CPU."),
    Feature("cpu_spare", "CPU for a GPU", 0, 1024, "Free CPU beyond what typical pods need for the idle GPU."),
    Feature("least_waste", "GPU", 0, 64, "Idle GPU beside the largest typical pod that fits, summed."),
    Feature("dead", "GPU", 0, 64, "Idle GPU of devices on which no typical pod fits."),
    Feature("left_squares", "GPU²", 0, 64, "Squared idle GPU of each device, summed."),
    Feature("lost_planned", "GPU", -64, 64, "Expected final loss of the devices (policies.planning)."),
    Feature("filled_idle", "GPU", 0, 64, "Idle GPU after sequences of 24 typical pods on this node alone."),
    Feature("gpu_filled_idle", "GPU", 0, 64, "The same after sequences of typical pods that request GPUs."),
)

GPU = View(
    name="gpu",
    version=3,
    node=(
        *(replace(feature, name=f"{feature.name}_after") for feature in _STATE),
        *(
            replace(
                feature,
                name=f"{feature.name}_change",
                low=-feature.high,
                meaning=f"Change by placing the pod: {feature.meaning}",
            )
            for feature in _STATE
        ),
        Feature("fgd_score", "points", 0, 100, "The score of fragmentation gradient descent."),
    ),
    pod=CLUSTER.pod,
    context=CLUSTER.context,
)
"""Features of GPU nodes: the state after the placement, and its change by the placement."""

TELEMETRY = View(
    name="telemetry",
    version=2,
    node=(
        Feature("cores", "7 doublings", 0, 2, "log2(1 + allocatable cores)."),
        Feature("cpu_requested_before", "allocatable", 0, 1, "Share of the node's CPU that is requested."),
        Feature("cpu_requested_after", "allocatable", 0, 2, "The same with the pod on it."),
        Feature("memory_requested_before", "allocatable", 0, 1, "Share of the node's memory that is requested."),
        Feature("memory_requested_after", "allocatable", 0, 2, "The same with the pod on it."),
        Feature("pods", "saturating at 8", 0, 1, "Pods p on the node, p / (p + 8)."),
        Feature("empty", "flag", 0, 1, "No pod runs on the node."),
        Feature("siblings", "saturating at 4", 0, 1, "Pods s of the same Deployment on the node, s / (s + 4)."),
        Feature("kube_default", "400 points", 0, 1, "kube-scheduler's score: free, balanced and spread."),
        Feature("near_users", "flag", 0, 1, "The node is in the zone of the pod's users."),
        Feature("cpu_missing", "flag", 0, 1, "There is no metric of CPU used."),
        Feature("cpu_age", "minutes", 0, 5, "Age of the last sample of the node."),
        Feature("cpu_used", "allocatable", 0, 1, "Share of CPU used, as measured."),
        Feature("cpu_since", "allocatable", -1, 1, "CPU requested now minus its mean over the measured window."),
        Feature("cpu_before", "allocatable", 0, 2, "Share of CPU that should be used by now."),
        Feature("cpu_after", "allocatable", 0, 2, "The same with the pod on it."),
        Feature("cpu_deviation_before", "allocatable", -2, 2, "cpu_before minus its mean over nodes."),
        Feature("cpu_deviation_after", "allocatable", -2, 2, "cpu_after minus the same mean."),
        Feature("cpu_square_before", "allocatable²", 0, 4, "The square of cpu_deviation_before."),
        Feature("cpu_square_after", "allocatable²", 0, 4, "The square of cpu_deviation_after."),
        Feature("busy_after", "flag", 0, 1, "cpu_after is above 0.8, where queues grow fast."),
        Feature("gauges_missing", "flag", 0, 1, "Memory, filesystem, connections and pods are not measured now."),
        Feature("memory_used", "allocatable", 0, 1, "Share of memory used."),
        Feature("filesystem_used", "capacity", 0, 1, "Share of the filesystem used."),
        Feature("network", "1 Gbit/s", 0, 4, "Bytes received a second, over 5 minutes; 0 also where it is missing."),
        Feature(
            "connections_before", "saturating at 1000", 0, 1, "Connections c there should be by now, c / (c + 1000)."
        ),
        Feature("connections_after", "saturating at 1000", 0, 1, "The same with the pod on it."),
        Feature("connections_excess", "their mean", -1, 8, "Connections with the pod over their mean, minus 1."),
        Feature(
            "pods_since", "8 pods", -4, 4, "Pods that came since the connections were counted, minus those that left."
        ),
        Feature("latency_missing", "flag", 0, 1, "The latency to the pod's users is not measured now."),
        Feature("latency_age", "minutes", 0, 5, "Age of the last probe of latencies."),
        Feature("latency", "100 ms", 0, 10, "Latency to the pod's users; 0 also where it has none."),
        Feature("soft_margin", "100 ms", -10, 10, "The pod's soft limit minus the latency."),
        Feature("hard_margin", "100 ms", -10, 10, "Its hard limit minus the latency."),
        Feature("within_soft", "flag", 0, 1, "The latency is within the soft limit."),
        Feature("within_hard", "flag", 0, 1, "It is within the hard limit."),
    ),
    pod=(
        *POD_KIND_FEATURES,
        Feature("cpu", "8 cores", 0, 8, "CPU request."),
        Feature("cpu_log", "7 doublings", 0, 2, "log2(1 + cores)."),
        Feature("memory_log", "10 doublings", 0, 2, "log2(1 + GiB)."),
        Feature("limited", "flag", 0, 1, "It has users, and limits of the latency to them."),
        Feature("soft", "100 ms", 0, 10, "The soft limit."),
        Feature("hard", "100 ms", 0, 10, "The hard limit."),
        Feature("replicas", "saturating at 8", 0, 1, "Pods r of its Deployment, r / (r + 8)."),
        Feature("to_come", "saturating at 8", 0, 1, "Of these r come after it, r / (r + 8)."),
    ),
    context=(
        Feature("nodes", "20 doublings", 0, 2, "log2(1 + nodes)."),
        Feature("feasible", "all nodes", 0, 1, "Share of the nodes that the pod fits on."),
        Feature("nodes_used", "all nodes", 0, 1, "Share of the nodes that hold a pod."),
        Feature("cpu_load", "allocatable", 0, 1, "Share of the cluster's CPU that is requested."),
        Feature("memory_load", "allocatable", 0, 1, "Share of the cluster's memory that is requested."),
        Feature("use", "requests", 0, 2, "CPU used over CPU requested, lately."),
        Feature("cpu_mean", "allocatable", 0, 2, "Mean over nodes of cpu_before."),
        Feature("cpu_deviation", "allocatable", 0, 2, "Its standard deviation over nodes."),
        Feature("connections_each", "saturating at 100", 0, 1, "Connections c for each pod, c / (c + 100)."),
        Feature(
            "connections_mean", "saturating at 1000", 0, 1, "Mean over nodes of the connections c, c / (c + 1000)."
        ),
        Feature("connections_most", "saturating at 1000", 0, 1, "Their maximum c, c / (c + 1000)."),
        Feature("cpu_missing", "all nodes", 0, 1, "Share of the nodes without a metric of CPU used."),
        Feature("gauges_missing", "all nodes", 0, 1, "Share of the nodes without the other metrics."),
        Feature("within_soft", "all nodes", 0, 1, "Share of the nodes that the pod fits on within its soft limit."),
        Feature("within_hard", "all nodes", 0, 1, "The same for its hard limit."),
    ),
)

VIEWS = {view.name: view for view in (CLUSTER, GPU, TELEMETRY)}
"""Views by name."""


def view(name: str) -> View:
    """Return the view of a name. Raises UsageError: the name is unknown; the message lists the known ones."""
    if name not in VIEWS:
        raise UsageError(f"unknown view {name!r}; known are {', '.join(VIEWS)}")
    return VIEWS[name]
