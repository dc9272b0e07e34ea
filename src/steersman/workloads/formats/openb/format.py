"""openb's node and pod lists as CSV, `nodes.csv` and `pods.csv`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from steersman.cluster.gpu_resources import MODEL_LABELS, SHARED_GPUS
from steersman.cluster.model import Constraints, Node, Pod, PodClass, Requests
from steersman.cluster.node_labels import added_labels
from steersman.cluster.objects.manifests import format_seconds
from steersman.core.quantities import ceil_div
from steersman.workloads.formats.base import FormatContent, Losses, TableFormat, differences
from steersman.workloads.formats.kubernetes.expansion import Expanded
from steersman.workloads.formats.openb import traces
from steersman.workloads.formats.tables import header_of, is_plain, write_table
from steersman.workloads.generators.deployments import is_deployments
from steersman.workloads.workload import Workload

WRITTEN_POD_COLUMNS = (*traces.POD_COLUMNS, "gpu_spec", "creation_time", "deletion_time")
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class OpenbContent(FormatContent):
    """Lists of nodes and of pods, told apart by their headers."""

    node_files: tuple[Path, ...]
    pod_files: tuple[Path, ...]

    def has_nodes(self) -> bool:
        """Return whether there is a list of nodes."""
        return bool(self.node_files)

    def has_pods(self) -> bool:
        """Return whether there is a list of pods."""
        return bool(self.pod_files)

    def nodes(self) -> Sequence[Node]:
        """Return the nodes, see `FormatContent`."""
        return [node for file in self.node_files for node in traces.read_nodes(file)]

    def pods(self, nodes: Sequence[Node]) -> tuple[Sequence[Pod], Expanded | None]:
        """Return the pods, see `FormatContent`."""
        return [pod for file in self.pod_files for pod in traces.read_pods(file)], None


class OpenbCsv(TableFormat):
    """The format of the openb traces; it cannot represent most fields of a Kubernetes pod."""

    name = "openb"
    title = "openb CSV"
    headers = ((traces.NODE_LIST, traces.NODE_COLUMNS), (traces.POD_LIST, traces.POD_COLUMNS))

    def has_header(self, columns: Set[str]) -> bool:
        """Return whether a header is that of a node list or a pod list, see `TableFormat`."""
        if "sn" in columns:
            return True
        is_another = is_deployments(columns) or is_plain(columns)
        return bool(columns & {"cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}) and not is_another

    def open(self, files: Sequence[Path]) -> OpenbContent:
        """Return the lists of the files, see `WorkloadFormat`."""
        nodes = [file for file in files if is_node_list(file)]
        return OpenbContent(tuple(nodes), tuple(file for file in files if file not in nodes))

    def write(self, workload: Workload, folder: Path, losses: Losses) -> None:
        """Write lists of nodes and pods, see `WorkloadFormat`."""
        losses.note_services(workload)
        for node in workload.nodes:
            losses.note("node", node.name, differences(_without_own_labels(node), _openb_node(node)))
        for pod in workload.pods:
            losses.note("pod", pod.name, differences(pod, _openb_pod(pod)))
        if workload.nodes:
            nodes = ((n.name, n.cpu_milli, n.memory_bytes // MIB, n.gpu_count, n.gpu_model) for n in workload.nodes)
            write_table(folder / "nodes.csv", traces.NODE_COLUMNS, nodes)
            losses.read_again("node", folder / "nodes.csv", traces.read_nodes)
        if workload.pods:
            write_table(folder / "pods.csv", WRITTEN_POD_COLUMNS, map(_pod_cells, workload.pods))
            losses.read_again("pod", folder / "pods.csv", traces.read_pods)


def is_node_list(file: Path) -> bool:
    """Return whether a file of the format lists nodes rather than pods."""
    return not {"sn", "gpu", "model"}.isdisjoint(header_of(file))


def _without_own_labels(node: Node) -> Node:
    """Return the node without labels that only repeat what else it states."""
    own = added_labels(node) | dict.fromkeys(MODEL_LABELS, node.gpu_model)
    return dataclasses.replace(node, labels={k: v for k, v in node.labels.items() if own.get(k) != v})


def _openb_node(node: Node) -> Node:
    memory = node.memory_bytes // MIB * MIB
    kept = tuple(name for name in node.gpu_resources if name == SHARED_GPUS)  # how openb's pods request GPUs
    return Node(
        node.name, node.cpu_milli, memory, gpu_count=node.gpu_count, gpu_model=node.gpu_model, gpu_resources=kept
    )


def _openb_pod(pod: Pod) -> Pod:
    r = pod.requests
    memory = ceil_div(r.memory_bytes, MIB) * MIB
    kept = r.gpu_resource if r.gpu_resource == SHARED_GPUS else ""
    requests = Requests(r.cpu_milli, memory, gpu_count=r.gpu_count, gpu_milli=r.gpu_milli, gpu_resource=kept)
    pod_class = PodClass(requests, Constraints(gpu_models=pod.constraints.gpu_models))
    return Pod(pod.name, pod_class, creation_time=pod.creation_time, deletion_time=pod.deletion_time)


def _pod_cells(pod: Pod) -> Sequence[object]:
    r = pod.requests
    times = ("" if time is None else format_seconds(time) for time in (pod.creation_time, pod.deletion_time))
    models = "|".join(pod.constraints.gpu_models)
    return pod.name, r.cpu_milli, ceil_div(r.memory_bytes, MIB), r.gpu_count, r.gpu_milli, models, *times
