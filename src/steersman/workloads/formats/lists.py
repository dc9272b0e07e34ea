"""Lists as CSV: openb's `nodes.csv` and `pods.csv`, and AAML's `deployments.csv`, Deployments that come and go."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from steersman.cluster.gpu_units import added_labels
from steersman.cluster.model import MODEL_LABELS, SHARED_GPUS, Constraints, Node, Pod, PodClass, Requests
from steersman.cluster.objects.manifests import format_seconds
from steersman.core.errors import InputError
from steersman.core.quantities import ceil_div
from steersman.workloads.formats.base import FormatContent, Losses, PodContent, TableFormat, differences
from steersman.workloads.formats.kubernetes.expansion import Expanded
from steersman.workloads.formats.kubernetes.objects import write_nodes
from steersman.workloads.formats.openb import NODE_COLUMNS, NODE_LIST, POD_COLUMNS, POD_LIST, read_nodes, read_pods
from steersman.workloads.formats.tables import header_of, is_plain, write_table
from steersman.workloads.generators import deployments
from steersman.workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class DeploymentsContent(PodContent):
    """Rows of Deployments; replaying them gives the pods."""

    files: tuple[Path, ...]

    def pods(self, nodes: Sequence[Node]) -> tuple[Sequence[Pod], Expanded | None]:
        return [
            pod for file in self.files for pod in deployments.replay(deployments.read_rows(file), file=str(file))
        ], None

    def deployment_rows(self) -> Sequence[deployments.Row]:
        return [row for file in self.files for row in deployments.read_rows(file)]


class DeploymentsCsv(TableFormat):
    """The format of AAML's workloads; nodes beside it are written as YAML."""

    name = "deployments"
    title = "Deployments as CSV"
    headers = ((deployments.TITLE, deployments.COLUMNS),)

    def has_header(self, columns: Set[str]) -> bool:
        return deployments.is_deployments(columns)

    def open(self, files: Sequence[Path]) -> DeploymentsContent:
        return DeploymentsContent(tuple(files))

    def write(self, workload: Workload, folder: Path, losses: Losses) -> None:
        losses.note_services(workload)
        if workload.nodes:
            write_nodes(workload.nodes, folder / "nodes.yaml")
        if not workload.pods:
            return
        rows, originals = deployments.rows_of(workload.pods)
        try:
            replayed = deployments.replay(rows)
        except InputError as error:
            problem = f"these pods cannot be represented in {losses.target}: {error.where}: {error.problem}"
            raise losses.error("pod", problem) from None
        for pod, other in zip(originals, replayed, strict=True):
            losses.note("pod", pod.name, differences(_with_limits(pod), other))
        deployments.write_rows(rows, folder / "deployments.csv")


def _with_limits(pod: Pod) -> Pod:
    """Return the pod with its requests as limits where it has none: a row of a Deployment must state limits."""
    return dataclasses.replace(
        pod,
        cpu_limit_milli=pod.cpu_limit_milli or pod.requests.cpu_milli,
        memory_limit_bytes=pod.memory_limit_bytes or pod.requests.memory_bytes,
    )


WRITTEN_POD_COLUMNS = (*POD_COLUMNS, "gpu_spec", "creation_time", "deletion_time")
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class OpenbContent(FormatContent):
    """Lists of nodes and of pods, told apart by their headers."""

    node_files: tuple[Path, ...]
    pod_files: tuple[Path, ...]

    def has_nodes(self) -> bool:
        return bool(self.node_files)

    def has_pods(self) -> bool:
        return bool(self.pod_files)

    def nodes(self) -> Sequence[Node]:
        return [node for file in self.node_files for node in read_nodes(file)]

    def pods(self, nodes: Sequence[Node]) -> tuple[Sequence[Pod], Expanded | None]:
        return [pod for file in self.pod_files for pod in read_pods(file)], None


class OpenbCsv(TableFormat):
    """The format of the openb traces; it cannot represent most fields of a Kubernetes pod."""

    name = "openb"
    title = "openb CSV"
    headers = ((NODE_LIST, NODE_COLUMNS), (POD_LIST, POD_COLUMNS))

    def has_header(self, columns: Set[str]) -> bool:
        if "sn" in columns:
            return True
        is_another = deployments.is_deployments(columns) or is_plain(columns)
        return bool(columns & {"cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}) and not is_another

    def open(self, files: Sequence[Path]) -> OpenbContent:
        nodes = [file for file in files if is_node_list(file)]
        return OpenbContent(tuple(nodes), tuple(file for file in files if file not in nodes))

    def write(self, workload: Workload, folder: Path, losses: Losses) -> None:
        losses.note_services(workload)
        for node in workload.nodes:
            losses.note("node", node.name, differences(_without_own_labels(node), _openb_node(node)))
        for pod in workload.pods:
            losses.note("pod", pod.name, differences(pod, _openb_pod(pod)))
        if workload.nodes:
            nodes = ((n.name, n.cpu_milli, n.memory_bytes // MIB, n.gpu_count, n.gpu_model) for n in workload.nodes)
            write_table(folder / "nodes.csv", NODE_COLUMNS, nodes)
            losses.read_again("node", folder / "nodes.csv", read_nodes)
        if workload.pods:
            write_table(folder / "pods.csv", WRITTEN_POD_COLUMNS, map(_pod_cells, workload.pods))
            losses.read_again("pod", folder / "pods.csv", read_pods)


def is_node_list(file: Path) -> bool:
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
