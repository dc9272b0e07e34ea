"""Workloads from whatever a user has: openb CSV, Deployments as CSV or Kubernetes YAML, files or folders.

A file is told by its suffix and, if it is CSV, by its header. A folder may hold nodes, pods or both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from steersman.cluster.model import Node, Pod
from steersman.errors import InputError, SteersmanError, UsageError
from steersman.workloads import deployments, openb
from steersman.workloads.collection import no_collection
from steersman.workloads.files import CSV_SUFFIXES, HIERARCHY_SUFFIX, YAML_SUFFIXES, folder_files, stem
from steersman.workloads.kubernetes import Expanded, Objects
from steersman.workloads.recorded import with_running
from steersman.workloads.workload import Running, Services, Workload, workload_name
from steersman.workloads.yamlfile import Document, read_documents

NODE_CSV, POD_CSV, DEPLOYMENT_CSV = "openb node list", "openb pod list", "Deployments"


@dataclass(frozen=True, slots=True)
class Source:
    """What a path holds, told apart but not decoded.

    Attributes:
        path: the file or folder.
        node_files, pod_files, deployment_files: CSV files by their header.
        objects: the Kubernetes objects of its YAML and JSON files.
        replaced: files left out because a `-hier` file stands for them.
    """

    path: Path
    node_files: tuple[Path, ...]
    pod_files: tuple[Path, ...]
    deployment_files: tuple[Path, ...]
    objects: Objects
    replaced: tuple[Path, ...] = ()

    def has_nodes(self) -> bool:
        """Whether there are nodes."""
        return bool(self.node_files) or self.objects.has_nodes()

    def has_pods(self) -> bool:
        """Whether there are pods."""
        return bool(self.pod_files or self.deployment_files) or self.objects.has_pods()

    def nodes(self) -> tuple[Node, ...]:
        """The nodes, those of CSV files first. Raises InputError: none there, or a name twice."""
        nodes = [node for file in self.node_files for node in openb.read_nodes(file)]
        nodes += self.objects.nodes()
        if not nodes:
            raise InputError(self.path, "", "", "has no nodes; an openb node list or Kubernetes Nodes are needed")
        _unique(self.path, "node", [node.name for node in nodes])
        return tuple(nodes)

    def pods(self, nodes: tuple[Node, ...]) -> tuple[Pod, ...]:
        """The pods, those of CSV files first. Raises InputError: none there, or a name twice."""
        return self.expanded(nodes)[0]

    def expanded(self, nodes: tuple[Node, ...]) -> tuple[tuple[Pod, ...], Expanded]:
        """The same, and those of them that Kubernetes objects stand for."""
        pods = [pod for file in self.pod_files for pod in openb.read_pods(file)]
        for file in self.deployment_files:
            pods += deployments.replay(deployments.read_rows(file), file=str(file))
        expanded = self.objects.expanded(nodes)
        pods += expanded.pods
        if not pods:
            raise InputError(
                self.path, "", "", "has no pods; a pod list or Kubernetes Pods, Deployments and the like are needed"
            )
        _unique(self.path, "pod", [f"{pod.namespace}/{pod.name}" for pod in pods])
        return tuple(pods), expanded

    def warnings(self) -> tuple[str, ...]:
        """What a user should know about this source."""
        replaced = tuple(f"{p} is left out: {stem(p)}{HIERARCHY_SUFFIX} beside it stands for it" for p in self.replaced)
        return (*replaced, *(f"{self.path}: {warning}" for warning in self.objects.warnings()))


@no_collection()
def load_workload(
    nodes_path: str | Path | None,
    pods_path: str | Path | None,
    *,
    partial: bool = False,
    running: Running = Running.FREE,
) -> Workload:
    """A workload of nodes and pods in any format.

    Args:
        nodes_path: a file or folder; None where `pods_path` holds nodes too.
        pods_path: a file or folder; None where `nodes_path` holds pods too.
        partial: whether nodes alone or pods alone will do.
        running: what becomes of pods that run on a node already.

    Raises:
        InputError: something is missing or wrong in the files.
        UsageError: neither path is given.
    """
    given = [Path(path) for path in (nodes_path, pods_path) if path is not None]
    if not given:
        raise UsageError("give a file or folder of nodes and one of pods, or a folder that holds both")
    sources = [open_source(path) for path in dict.fromkeys(given)]
    for_nodes, for_pods = sources[0], sources[-1]
    nodes = for_nodes.nodes() if for_nodes.has_nodes() or not (partial and for_nodes.has_pods()) else ()
    has_pods = for_pods.has_pods() or not (partial and for_pods.has_nodes())
    pods, expanded = for_pods.expanded(nodes) if has_pods else ((), None)
    warnings = [warning for source in sources for warning in source.warnings()]
    if len(sources) > 1:
        warnings += _unused(*sources)
    services = Services.union(source.objects.services() for source in sources)
    workload = Workload(workload_name(given[-1]), nodes, pods, services, tuple(warnings))
    return with_running(workload, expanded, running) if expanded is not None and expanded.pods else workload


@no_collection()
def workload_of_objects(
    name: str, documents: Iterable[Document], warnings: Iterable[str] = (), *, running: Running = Running.FREE
) -> Workload:
    """Return the workload of Kubernetes objects, wherever they were read.

    Args:
        name: of the workload, which also begins the warnings about its objects.
        documents: one object or list of objects each; pods arrive in the order of their creation, else in this one.
        warnings: what was found out while reading them.
        running: what becomes of pods that run on a node already.

    Raises:
        InputError: an object makes no sense; its document is named.
        SteersmanError: there is no node or no pod.
    """
    objects = Objects(documents)
    nodes = objects.nodes()
    expanded = objects.expanded(nodes)
    for what, found in (("nodes", nodes), ("pods that have not finished", expanded.pods)):
        if not found:
            raise SteersmanError(f"{name}: there are no {what}")
    said = tuple(f"{name}: {warning}" for warning in (*warnings, *objects.warnings()))
    return with_running(Workload(name, nodes, expanded.pods, objects.services(), said), expanded, running)


@no_collection()
def load_nodes(path: str | Path) -> tuple[Node, ...]:
    """The nodes of a file or folder in any format. Raises InputError."""
    return open_source(path).nodes()


@no_collection()
def load_pods(path: str | Path, nodes: tuple[Node, ...] | None = None) -> tuple[Pod, ...]:
    """The pods of a file or folder in any format. Raises InputError.

    Args:
        path: the file or folder.
        nodes: what DaemonSets are expanded over; None: the nodes at `path`, if there are any.
    """
    source = open_source(path)
    if nodes is None:
        nodes = source.nodes() if source.has_nodes() else ()
    return source.pods(nodes)


@no_collection()
def open_source(path: str | Path) -> Source:
    """Find out what a file or folder holds.

    Raises:
        InputError: it is missing or empty, a file is not what its name says, or nothing in the folder is known.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(path, "", "", "no such file or folder")
    files, replaced = folder_files(path, (*YAML_SUFFIXES, *CSV_SUFFIXES)) if path.is_dir() else ([path], [])
    if not files:
        raise InputError(path, "", "", "is a folder without .yaml, .yml, .json or .csv files that are not hidden")
    csv_files: dict[str, list[Path]] = {NODE_CSV: [], POD_CSV: [], DEPLOYMENT_CSV: []}
    documents: list[Document] = []
    for file in files:
        if file.name.endswith(YAML_SUFFIXES):
            documents += read_documents(file)
        elif file.name.endswith(CSV_SUFFIXES):
            csv_files[csv_format(file)].append(file)
        else:
            raise InputError(file, "", "", "has an unknown suffix; .csv, .csv.gz, .yaml, .yml and .json are known")
    objects = Objects(documents)
    if not objects.objects and not objects.ignored and not any(csv_files.values()):
        raise InputError(path, "", "", "holds no Kubernetes object")
    nodes, pods, rows = (tuple(csv_files[kind]) for kind in (NODE_CSV, POD_CSV, DEPLOYMENT_CSV))
    return Source(path, nodes, pods, rows, objects, tuple(replaced))


def csv_format(path: Path) -> str:
    """What a CSV file's header says it is. Raises InputError: no header of ours."""
    lines = openb.read_text(path).splitlines()
    if not any(line.strip() for line in lines):
        raise InputError(path, "", "", "is empty")
    columns = {cell.strip(' "') for cell in lines[0].split(",")}
    if "sn" in columns:
        return NODE_CSV
    if "pod_count" in columns or "action" in columns:
        return DEPLOYMENT_CSV
    if columns & {"cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}:
        return NODE_CSV if "gpu" in columns or "model" in columns else POD_CSV
    known = ", ".join((f"nodes {','.join(openb.NODE_COLUMNS)}", f"pods {','.join(openb.POD_COLUMNS)}"))
    raise InputError(
        path, "line 1", "", f"is no known header; {known}, Deployments {','.join(deployments.COLUMNS)} are"
    )


def _unused(nodes: Source, pods: Source) -> list[str]:
    """What either path holds beside what it was named for."""
    found = []
    if nodes.has_pods():
        found.append(f"{nodes.path}: its pods are not used, those of {pods.path} are")
    if pods.has_nodes():
        found.append(f"{pods.path}: its nodes are not used, those of {nodes.path} are")
    return found


def _unique(path: Path, what: str, names: list[str]) -> None:
    if len(set(names)) != len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(path, f"{what} {twice}", "name", "is there twice; names must be unique over all files")
