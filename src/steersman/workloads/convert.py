"""A workload written in another format: openb CSV, Kubernetes YAML, or reference A's Deployments.

What the target cannot say is an error that names the pod or node and the field; with `lossy` it is dropped and counted.
"""

from __future__ import annotations

import csv
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from steersman.cluster.gpu_resources import MODEL_LABELS, SHARED_GPUS
from steersman.cluster.manifests import format_seconds
from steersman.cluster.model import Constraints, Node, Pod, PodClass, Requests
from steersman.errors import InputError, SteersmanError
from steersman.quantities import ceil_div
from steersman.workloads import deployments, openb
from steersman.workloads.files import new_folder
from steersman.workloads.kubernetes import write_nodes, write_pods, write_services
from steersman.workloads.workload import Workload

Format = Literal["openb", "yaml", "deployments"]
OPENB_POD_COLUMNS = (*openb.POD_COLUMNS, "gpu_spec", "creation_time", "deletion_time")
MIB = 1 << 20


class LossError(SteersmanError):
    """The target format cannot say something that the workload says."""


class _Losses:
    """What the target cannot say: the first of it is an error, or all of it is counted."""

    def __init__(self, target: str, sources: Mapping[str, str], lossy: bool) -> None:
        self.target = target
        self.sources = sources
        self.lossy = lossy
        self.counts: Counter[str] = Counter()

    def note(self, kind: str, name: str, fields: Iterable[str]) -> None:
        for field in fields:
            if not self.lossy:
                raise self.error(kind, f"{kind} {name}: {field} cannot be said in {self.target}; --lossy leaves it out")
            self.counts[f"{kind} {field}"] += 1

    def error(self, kind: str, problem: str) -> LossError:
        """An error that names the file of nodes, pods or services."""
        return LossError(", ".join(part for part in (self.sources.get(kind, ""), problem) if part))

    def warnings(self) -> tuple[str, ...]:
        counted = ", ".join(f"{what} ({count})" for what, count in sorted(self.counts.items()))
        return (f"left out, {self.target} cannot say it: {counted}",) if counted else ()


def convert(
    workload: Workload,
    target: Format,
    output: Path,
    *,
    lossy: bool = False,
    nodes_file: str | Path = "",
    pods_file: str | Path = "",
) -> tuple[str, ...]:
    """Write a workload into a new folder, and return warnings. A workload may be of nodes or of pods alone.

    The files: `nodes.csv` and `pods.csv` (openb); `nodes.yaml`, `pods.yaml` and, with Services, `services.yaml`;
    or `nodes.yaml` and `deployments.csv`. Errors name `nodes_file` and `pods_file` as what the workload was read from.

    Raises:
        LossError: the target cannot say something and `lossy` is false.
        InputError: `output` is there already, or cannot be written.
    """
    sources = {"node": str(nodes_file), "pod": str(pods_file), "services": str(pods_file)}
    losses = _Losses({"openb": "openb CSV", "deployments": "Deployments as CSV"}.get(target, "YAML"), sources, lossy)
    if target != "yaml" and workload.services:
        losses.note("services", "", [f"of {len(workload.services)} objects"])
    with new_folder(output) as folder:
        if target == "openb":
            _write_openb(workload, folder, losses)
        else:
            if workload.nodes:
                write_nodes(workload.nodes, folder / "nodes.yaml")
            if target == "deployments":
                _write_deployments(workload.pods, folder / "deployments.csv", losses)
            elif workload.pods:
                write_pods(workload.pods, folder / "pods.yaml")
                write_services(workload.services, folder / "services.yaml")
    return losses.warnings()


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """The fields in which two nodes or two pods differ, as paths: "constraints.tolerations"."""
    for field in dataclasses.fields(one):
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        if ours == theirs:
            continue
        if isinstance(ours, PodClass):
            yield from differences(ours, theirs, path)
        elif isinstance(ours, Requests | Constraints):
            yield from differences(ours, theirs, f"{path}{field.name}.")
        else:
            yield path + field.name


def _write_openb(workload: Workload, folder: Path, losses: _Losses) -> None:
    for node in workload.nodes:
        losses.note("node", node.name, differences(_without_own_labels(node), _openb_node(node)))
    for pod in workload.pods:
        losses.note("pod", pod.name, differences(pod, _openb_pod(pod)))
    if workload.nodes:
        _write_csv(folder / "nodes.csv", openb.NODE_COLUMNS, (_node_cells(node) for node in workload.nodes))
        _check_readable(openb.read_nodes, folder / "nodes.csv", "node", losses)
    if workload.pods:
        _write_csv(folder / "pods.csv", OPENB_POD_COLUMNS, (_pod_cells(pod) for pod in workload.pods))
        _check_readable(openb.read_pods, folder / "pods.csv", "pod", losses)


def _check_readable(read: Callable[[Path], object], path: Path, kind: str, losses: _Losses) -> None:
    """The reader holds names and sizes to openb's limits; what it refuses must not be left behind as a result."""
    try:
        read(path)
    except InputError as error:
        row = ", ".join(part for part in (error.where, error.field) if part)
        raise losses.error(kind, f"{path.name} would not be openb CSV: {row}: {error.problem}") from None


def _without_own_labels(node: Node) -> Node:
    """The node without labels that only repeat its name and GPU model."""
    own = {"kubernetes.io/hostname": node.name} | dict.fromkeys(MODEL_LABELS, node.gpu_model)
    return dataclasses.replace(node, labels={k: v for k, v in node.labels.items() if own.get(k) != v})


def _openb_node(node: Node) -> Node:
    """What openb's node list keeps of a node."""
    memory = node.memory_bytes // MIB * MIB
    kept = tuple(name for name in node.gpu_resources if name == SHARED_GPUS)  # openb's pods ask for them like this
    return Node(
        node.name, node.cpu_milli, memory, gpu_count=node.gpu_count, gpu_model=node.gpu_model, gpu_resources=kept
    )


def _openb_pod(pod: Pod) -> Pod:
    """What openb's pod list keeps of a pod."""
    r = pod.requests
    memory = ceil_div(r.memory_bytes, MIB) * MIB
    kept = r.gpu_resource if r.gpu_resource == SHARED_GPUS else ""
    requests = Requests(r.cpu_milli, memory, gpu_count=r.gpu_count, gpu_milli=r.gpu_milli, gpu_resource=kept)
    pod_class = PodClass(requests, Constraints(gpu_models=pod.constraints.gpu_models))
    return Pod(pod.name, pod_class, creation_time=pod.creation_time, deletion_time=pod.deletion_time)


def _node_cells(node: Node) -> Sequence[object]:
    return node.name, node.cpu_milli, node.memory_bytes // MIB, node.gpu_count, node.gpu_model


def _pod_cells(pod: Pod) -> Sequence[object]:
    r = pod.requests
    times = ("" if time is None else format_seconds(time) for time in (pod.creation_time, pod.deletion_time))
    models = "|".join(pod.constraints.gpu_models)
    return pod.name, r.cpu_milli, ceil_div(r.memory_bytes, MIB), r.gpu_count, r.gpu_milli, models, *times


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _write_deployments(pods: Sequence[Pod], path: Path, losses: _Losses) -> None:
    """Rows whose replay gives the pods, as far as it does."""
    if not pods:
        return
    rows, originals = deployments.rows_of(pods)
    try:
        replayed = deployments.replay(rows)
    except InputError as error:
        problem = f"these pods cannot be said in {losses.target}: {error.where}: {error.problem}"
        raise losses.error("pod", problem) from None
    for pod, other in zip(originals, replayed, strict=True):
        losses.note("pod", pod.name, differences(_with_limits(pod), other))
    deployments.write_rows(rows, path)


def _with_limits(pod: Pod) -> Pod:
    """The pod with its requests for limits where it has none: a row of a Deployment must state some."""
    return dataclasses.replace(
        pod,
        cpu_limit_milli=pod.cpu_limit_milli or pod.requests.cpu_milli,
        memory_limit_bytes=pod.memory_limit_bytes or pod.requests.memory_bytes,
    )
