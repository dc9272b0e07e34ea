"""How large a live cluster is, and how much of it pods request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steersman.cluster.arrays import CPU, MEMORY
from steersman.cluster.gpu_units import mean_milli, requested_milli
from steersman.cluster.model import GPU_MILLI, Requests
from steersman.cluster.state import ClusterState

CPU_MILLI = 1000.0


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """What the nodes of a cluster have together.

    Attributes:
        gpus: number of GPUs, 0 where sizes are in CPUs.
        cpus: number of CPUs.
        memory: bytes.
        means: milli of a GPU by the name of a resource, see `gpu_units.mean_milli`.
    """

    gpus: float = 0.0
    cpus: float = 0.0
    memory: float = 0.0
    means: Mapping[str, float] = field(default_factory=dict)

    @property
    def capacity(self) -> float:
        """Return the size of the cluster: GPUs, or CPUs where no node has a GPU."""
        return self.gpus or max(self.cpus, 1e-3)

    def of(self, requests: Requests) -> float:
        """Return the size of a pod: the dominant share of the cluster that it requests, times the cluster's size."""
        cpu = requests.cpu_milli / CPU_MILLI
        memory = requests.memory_bytes / max(self.memory, 1.0) * self.capacity
        if not self.gpus:
            return max(cpu, memory)
        gpu = requested_milli(requests, self.means) / GPU_MILLI
        return max(gpu, cpu / max(self.cpus, 1e-3) * self.capacity, memory)

    def dominant_share(self, pods: Mapping[Requests, int]) -> float:
        """Return the largest share of the cluster's GPUs, CPUs or memory that pods request together, by number."""
        gpu = sum(count * requested_milli(each, self.means) for each, count in pods.items()) / GPU_MILLI
        cpu = sum(count * each.cpu_milli for each, count in pods.items()) / CPU_MILLI
        memory = sum(count * each.memory_bytes for each, count in pods.items())
        of_gpus = gpu / self.gpus if self.gpus else 0.0
        return max(of_gpus, cpu / max(self.cpus, 1e-3), memory / max(self.memory, 1.0))


def cluster_size(state: ClusterState, known: ClusterSize) -> ClusterSize:
    """Return the size of a cluster, `known` if it has not changed."""
    arrays = state.arrays
    gpus = float(state.gpu_use_by_node()[1].sum()) / GPU_MILLI
    cpus, memory = float(arrays.allocatable[:, CPU].sum()) / CPU_MILLI, float(arrays.allocatable[:, MEMORY].sum())
    if (gpus, cpus, memory) == (known.gpus, known.cpus, known.memory):
        return known
    return ClusterSize(gpus, cpus, memory, mean_milli(node for node in state.nodes if node is not None))


def free_share(state: ClusterState, size: ClusterSize) -> float:
    """Return the free share of a cluster's GPUs, or of its CPUs where no node has a GPU."""
    if size.gpus:
        used = float(state.gpu_use_by_node()[0].sum()) / GPU_MILLI
    else:
        used = float((state.arrays.allocatable[:, CPU] - state.arrays.free[:, CPU]).sum()) / CPU_MILLI
    return 1.0 - used / size.capacity
