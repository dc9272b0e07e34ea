"""Workloads from whatever a user has: files or folders in any format of `formats.registry`.

A folder may hold nodes, pods or both, in several formats.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from steersman.cluster.model import Node, Pod
from steersman.errors import InputError, SteersmanError, UsageError
from steersman.workloads.collection import no_collection
from steersman.workloads.deployments import Row
from steersman.workloads.files import HIERARCHY_SUFFIX, folder_files, stem
from steersman.workloads.formats.base import Content
from steersman.workloads.formats.registry import format_of, formats
from steersman.workloads.kubernetes import Expanded, Objects
from steersman.workloads.recorded import with_running
from steersman.workloads.workload import Running, Services, Workload, workload_name
from steersman.workloads.yamlfile import Document


@dataclass(frozen=True, slots=True)
class Source:
    """What a path holds, told apart but not decoded.

    Attributes:
        path: the file or folder.
        contents: of its files, by format.
        replaced: files left out because a `-hier` file stands for them.
    """

    path: Path
    contents: tuple[Content, ...]
    replaced: tuple[Path, ...] = ()

    def has_nodes(self) -> bool:
        """Return whether there are nodes."""
        return any(content.has_nodes() for content in self.contents)

    def has_pods(self) -> bool:
        """Return whether there are pods."""
        return any(content.has_pods() for content in self.contents)

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes, those of CSV files first. Raises InputError: none there, or a name twice."""
        nodes = [node for content in self.contents for node in content.nodes()]
        if not nodes:
            raise InputError(self.path, "", "", "has no nodes; an openb node list or Kubernetes Nodes are needed")
        _unique(self.path, "node", [node.name for node in nodes])
        return tuple(nodes)

    def pods(self, nodes: tuple[Node, ...]) -> tuple[Pod, ...]:
        """Return the pods, those of CSV files first. Raises InputError: none there, or a name twice."""
        return self.expanded(nodes)[0]

    def expanded(self, nodes: tuple[Node, ...]) -> tuple[tuple[Pod, ...], Expanded | None]:
        """Return the same, and those of them that Kubernetes objects stand for."""
        pods: list[Pod] = []
        expanded = None
        for content in self.contents:
            of_content, objects = content.pods(nodes)
            pods += of_content
            expanded = objects or expanded
        if not pods:
            raise InputError(
                self.path, "", "", "has no pods; a pod list or Kubernetes Pods, Deployments and the like are needed"
            )
        _unique(self.path, "pod", [f"{pod.namespace}/{pod.name}" for pod in pods])
        return tuple(pods), expanded

    def deployment_rows(self) -> tuple[Row, ...] | None:
        """Return the rows of Deployments that all pods come from; None: some pods are listed otherwise."""
        found = [content.deployment_rows() for content in self.contents if content.has_pods()]
        rows = [of_content for of_content in found if of_content is not None]
        return tuple(row for of_content in rows for row in of_content) if found and len(rows) == len(found) else None

    def services(self) -> Services:
        """Return what selects pods that are to be spread."""
        return Services.union(content.services() for content in self.contents)

    def warnings(self) -> tuple[str, ...]:
        """Return what a user should know about this source."""
        replaced = tuple(f"{p} is left out: {stem(p)}{HIERARCHY_SUFFIX} beside it stands for it" for p in self.replaced)
        said = tuple(f"{self.path}: {warning}" for content in self.contents for warning in content.warnings())
        return (*replaced, *said)


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
    services = Services.union(source.services() for source in sources)
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
    suffixes = {suffix for each in formats() for suffix in each.suffixes}
    files, replaced = folder_files(path, sorted(suffixes)) if path.is_dir() else ([path], [])
    if not files:
        raise InputError(path, "", "", "is a folder without .yaml, .yml, .json or .csv files that are not hidden")
    by_format: dict[str, list[Path]] = {}
    for file in files:
        by_format.setdefault(format_of(file).name, []).append(file)
    contents = tuple(each.open(by_format[each.name]) for each in formats() if each.name in by_format)
    if all(content.is_empty() for content in contents):
        raise InputError(path, "", "", "holds no Kubernetes object")
    return Source(path, contents, tuple(replaced))


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
