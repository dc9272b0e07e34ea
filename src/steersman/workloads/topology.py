"""A rack and server hierarchy for clusters whose nodes state none, in the labels of the open-simulator fork.

Nodes are taken in order: the first `servers_per_rack` are `rack=rack-0` with `server=srv-0` and so on, the next are
`rack-1`, again from `srv-0`. A server is a node; its number counts within the rack. Existing labels are kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Node
from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.cluster.objects.manifests import node_to_object, pod_to_object
from steersman.core.atomic_files import replacing
from steersman.core.errors import InputError, UsageError
from steersman.workloads.files import CSV_SUFFIXES, HIERARCHY_SUFFIX, YAML_SUFFIXES, stem, visible_files
from steersman.workloads.formats import openb
from steersman.workloads.formats.kubernetes.controllers import CONTROLLERS
from steersman.workloads.formats.kubernetes.objects import Objects
from steersman.workloads.formats.lists import OpenbCsv, is_node_list
from steersman.workloads.formats.registry import format_of
from steersman.workloads.formats.yaml_documents import NESTED, Document, read_documents, write_documents
from steersman.workloads.workload import Workload

RACK = "rack"
SERVER = "server"
ZONE = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Numbers of servers in a rack and of racks in a zone (0: no zones)."""

    servers_per_rack: int = 4
    racks_per_zone: int = 0

    def __post_init__(self) -> None:
        if self.servers_per_rack < 1:
            raise UsageError(f"{self.servers_per_rack} servers per rack are too few; expected 1 or more")
        if self.racks_per_zone < 0:
            raise UsageError(f"{self.racks_per_zone} racks per zone are too few; expected 1 or more, 0 for no zones")

    def labels(self, index: int) -> dict[str, str]:
        """Return the labels of the node at this index in its list."""
        rack, server = divmod(index, self.servers_per_rack)
        result = {RACK: f"rack-{rack}", SERVER: f"srv-{server}"}
        if self.racks_per_zone:
            result[ZONE] = f"zone-{rack // self.racks_per_zone}"
        return result


@dataclass(frozen=True, slots=True)
class HierarchySummary:
    """One file that was written: numbers of its nodes, pods, and pods that kept another scheduler's name."""

    path: Path
    nodes: int
    pods: int
    kept_schedulers: int


def label_nodes(nodes: Sequence[Node], hierarchy: Hierarchy) -> tuple[Node, ...]:
    """Return the nodes with the hierarchy's labels; existing labels are kept."""
    return tuple(replace(node, labels={**hierarchy.labels(i), **node.labels}) for i, node in enumerate(nodes))


def write_hierarchy(
    folders: Iterable[Path],
    hierarchy: Hierarchy,
    scheduler_name: str = "",
    *,
    node_list: Path | None = None,
    pod_list: Path | None = None,
) -> tuple[HierarchySummary, ...]:
    """Write every node and pod list with labels and scheduler name beside the original, its stem ending in `-hier`.

    Nodes are numbered over the files of one folder, since a folder may have one file per node. A file that repeats a
    node of the folder is another list, and its numbers start again. Each folder with files is a workload of its own.
    The scheduler's name is written into pods that name none or the default one; "" leaves them as they are. If a
    file is invalid, nothing is written.
    """
    groups = [group for folder in folders for group in _workloads(folder)]
    groups += [[file] for file in (node_list, pod_list) if file is not None]
    written: list[HierarchySummary] = []
    with ExitStack() as stack:
        for group in groups:
            numbering = _Numbering(hierarchy)
            for file in group:
                documents = _documents(file)
                change = _change(documents, numbering, scheduler_name)
                if file == node_list and not change.nodes:
                    raise InputError(file, "", "", "has no nodes; --nodes takes a node list")
                if file == pod_list and not change.pods:
                    raise InputError(file, "", "", "has no pods; --pods takes a pod list")
                target = file.with_name(f"{stem(file)}{HIERARCHY_SUFFIX}.yaml")
                if change.nodes or change.pods:
                    # Files are replaced when the stack ends, so an error in any of them changes none.
                    part = stack.enter_context(replacing(target))
                    try:
                        write_documents(part, (document.content for document in documents))
                    except RecursionError:
                        raise InputError(file, "", "", NESTED) from None
                    written.append(replace(change, path=target))
    return tuple(written)


class _Numbering:
    """Assign labels to a folder's nodes in order."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        self.seen: set[str] = set()

    def start(self, names: Sequence[str]) -> None:
        """Begin a file; one that repeats a node is a list of its own."""
        if self.seen & set(names):
            self.seen = set()

    def labels(self, name: str) -> dict[str, str]:
        index = len(self.seen)
        self.seen.add(name)
        return self.hierarchy.labels(index)


def _workloads(folder: Path) -> list[list[Path]]:
    """Return the files of a folder and of each folder below it, without those that were written here before."""
    if not folder.is_dir():
        raise InputError(folder, "", "", "no such folder")
    groups: dict[Path, list[Path]] = {}
    for file in visible_files(folder, (*YAML_SUFFIXES, *CSV_SUFFIXES)):
        if not stem(file).endswith(HIERARCHY_SUFFIX):
            groups.setdefault(file.parent, []).append(file)
    if not groups:
        raise InputError(folder, "", "", "holds no node or pod list (.yaml, .yml, .json, .csv)")
    return list(groups.values())


def _documents(file: Path) -> list[Document]:
    """Return a file as Kubernetes documents that may be changed, whatever its format."""
    if not file.name.endswith(CSV_SUFFIXES):
        return list(read_documents(file))
    workload_format = format_of(file)
    if workload_format.name != OpenbCsv.name:
        raise InputError(
            file, "", "", f"is {workload_format.title}; convert it to YAML first (steersman workload convert)"
        )
    objects = (
        [node_to_object(node) for node in openb.read_nodes(file)]
        if is_node_list(file)
        else [pod_to_object(pod) for pod in openb.read_pods(file)]
    )
    return [Document(content, str(file), f"line {i}") for i, content in enumerate(objects, start=2)]


def _change(documents: list[Document], numbering: _Numbering, scheduler_name: str) -> HierarchySummary:
    """Label the nodes and name the scheduler in place, after checking that everything is valid."""
    objects = Objects(documents)
    if problems := (*objects.problems(), *objects.expanded(()).problems):
        raise problems[0]
    nodes = objects.nodes()
    numbering.start([node.name for node in nodes])
    for node, obj in zip(nodes, objects.of_kind("Node"), strict=True):
        labels = _child(_child(obj.content, "metadata"), "labels")
        for key, value in numbering.labels(node.name).items():
            labels.setdefault(key, value)
    pods = kept = 0
    for obj in objects.of_kind("Pod", *CONTROLLERS):
        spec = _child(obj.content, "spec")
        if obj.kind != "Pod":
            spec = _child(_child(spec, "template"), "spec")
        pods += 1
        if scheduler_name and spec.get("schedulerName") in (None, "", DEFAULT_SCHEDULER):
            spec["schedulerName"] = scheduler_name
        elif scheduler_name and spec["schedulerName"] != scheduler_name:
            kept += 1
    return HierarchySummary(Path(), len(nodes), pods, kept)


def _child(parent: Mapping[str, Any], key: str) -> MutableMapping[str, Any]:
    """Return a mapping below a freshly read one; create it if it is missing or null."""
    assert isinstance(parent, MutableMapping)
    if parent.get(key) is None:
        parent[key] = {}
    child = parent[key]
    assert isinstance(child, MutableMapping)
    return child


@dataclass(frozen=True, eq=False, slots=True)
class Places:
    """Indices, -1 for none."""

    owner: npt.NDArray[np.int64]  # [P] of each pod's owner (a Deployment, a job), of which there are `owners`
    owners: int
    rack: npt.NDArray[np.int64]  # [N] of each node's rack, of which there are `racks`
    racks: int
    server: npt.NDArray[np.int64]  # [N] of each node's server; a server's label counts within its rack


@dataclass(frozen=True, eq=False, slots=True)
class NodePlaces:
    """Locations of nodes, see `Places`."""

    rack: npt.NDArray[np.int64]
    racks: int
    server: npt.NDArray[np.int64]


def places(workload: Workload) -> Places:
    owner, owners = _numbered((pod.namespace, pod.owner) if pod.owner else None for pod in workload.pods)
    where = node_places(workload.nodes)
    return Places(owner, owners, where.rack, where.racks, where.server)


def node_places(nodes: Sequence[Node | None]) -> NodePlaces:
    """Return racks and servers by the labels `rack` and `server`; an empty slot has none."""
    labels: list[Mapping[str, str]] = [{} if node is None else node.labels for node in nodes]
    rack, racks = _numbered(each.get(RACK) for each in labels)
    server, _ = _numbered((each.get(RACK, ""), each[SERVER]) if SERVER in each else None for each in labels)
    return NodePlaces(rack, racks, server)


def _numbered(names: Iterable[Hashable | None]) -> tuple[npt.NDArray[np.int64], int]:
    """Return an index for each name, in order of first occurrence, and their number."""
    numbers: dict[Hashable, int] = {}
    result = [-1 if name is None else numbers.setdefault(name, len(numbers)) for name in names]
    return np.array(result, dtype=np.int64), len(numbers)
