"""Workloads from files or folders in any format of `formats.registry`.

A folder may hold nodes, pods or both, in several formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from steersman.cluster.model import Node, Pod
from steersman.cluster.objects.device_offers import DeviceOffers
from steersman.core.counting import counted
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.core.garbage_collection import no_collection
from steersman.workloads.files import HIERARCHY_SUFFIX, folder_files, input_path, stem
from steersman.workloads.formats.base import FormatContent
from steersman.workloads.formats.kubernetes.budgets import budgets_of
from steersman.workloads.formats.kubernetes.claims import DEVICE_KINDS, offer_warnings, offers_of
from steersman.workloads.formats.kubernetes.expansion import Expanded, PartlyReadError
from steersman.workloads.formats.kubernetes.lives import lives_of
from steersman.workloads.formats.kubernetes.objects import REFERABLE, Objects
from steersman.workloads.formats.registry import format_of, formats
from steersman.workloads.formats.yaml_documents import Document
from steersman.workloads.generators.deployments import Row
from steersman.workloads.recorded import with_running
from steersman.workloads.warnings import annotation_warnings, gpu_warnings
from steersman.workloads.workload import RunningPods, SpreadSelectors, Workload, workload_name

MAX_NAMED = 20  # most invalid objects that warnings name


@dataclass(frozen=True, slots=True)
class Source:
    """The content of a path by format, recognised but not decoded; a `-hier` file stands for each of the `replaced`."""

    path: Path
    contents: tuple[FormatContent, ...]
    replaced: tuple[Path, ...] = ()

    def has_nodes(self) -> bool:
        return any(content.has_nodes() for content in self.contents)

    def has_pods(self) -> bool:
        return any(content.has_pods() for content in self.contents)

    def problems(self) -> tuple[InputError, ...]:
        """Return the errors of what is left out because it is invalid; those of pods are in `Expanded`."""
        return tuple(problem for content in self.contents for problem in content.problems())

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes, those of CSV files first. Raises InputError: there are none, or a name occurs twice."""
        described = [content for content in self.contents if content.has_nodes() and not content.is_stand_in()]
        nodes = [node for content in described or self.contents for node in content.nodes()]
        if not nodes:
            problem = "has no nodes; an openb node list or Kubernetes Nodes are needed"
            raise next(iter(self.problems()), InputError(self.path, "", "", problem))
        if (name := _twice([node.name for node in nodes])) is not None:
            raise _not_unique(self.path, "node", name)
        return tuple(nodes)

    def pods(self, nodes: tuple[Node, ...]) -> tuple[Pod, ...]:
        """Return the pods, those of CSV files first. Raises InputError: there are none, or a name occurs twice."""
        return self.expanded(nodes)[0]

    def expanded(
        self, nodes: tuple[Node, ...], *, may_have_finished: bool = False
    ) -> tuple[tuple[Pod, ...], Expanded | None]:
        """Return the pods, and details of those that come from Kubernetes objects.

        `may_have_finished`: no pod is left if all pods there are have finished.
        """
        pods: list[Pod] = []
        expanded = None
        for content in self.contents:
            pods_of_format, objects = content.pods(nodes)
            pods += pods_of_format
            expanded = objects or expanded
        if not pods and not (may_have_finished and any(each.has_ended() for each in _objects([self]))):
            problems = (*self.problems(), *(expanded.problems if expanded is not None else ()))
            problem = "has no pods; a pod list or Kubernetes Pods, Deployments and the like are needed"
            if any(content.has_pods() for content in self.contents):
                problem = "has no pods to place: its pods have finished or are suspended, or it asks for 0 of them"
            raise next(iter(problems), InputError(self.path, "", "", problem))
        if (name := _twice([f"{pod.namespace}/{pod.name}" for pod in pods])) is not None:
            known = filter(None, (content.named_twice(name, nodes) for content in self.contents))
            raise next(known, _not_unique(self.path, "pod", name))
        return tuple(pods), expanded

    def deployment_rows(self) -> tuple[Row, ...] | None:
        """Return the rows of Deployments that all pods come from, or None if some pods are listed otherwise."""
        by_format = [content.deployment_rows() for content in self.contents if content.has_pods()]
        known = [rows for rows in by_format if rows is not None]
        return tuple(row for rows in known for row in rows) if by_format and len(known) == len(by_format) else None

    def services(self) -> SpreadSelectors:
        return SpreadSelectors.union(content.services() for content in self.contents)

    def refer_to(self, other: Source) -> None:
        """Let pods refer to what another source holds, such as priority classes beside the nodes."""
        for content, each in product(self.contents, other.contents):
            content.refer_to(each)

    def warnings(self, expanded: Expanded | None = None) -> tuple[str, ...]:
        """Return warnings about this source, and its pods if they are given, one line each."""
        problems = (*self.problems(), *(expanded.problems if expanded is not None else ()))
        about_pods = (f"{self.path}: {warning}" for warning in (expanded.warnings if expanded is not None else ()))
        replaced = tuple(f"{p} is left out: {stem(p)}{HIERARCHY_SUFFIX} beside it stands for it" for p in self.replaced)
        warnings = tuple(f"{self.path}: {warning}" for content in self.contents for warning in content.warnings())
        return (*_left_out(problems), *replaced, *warnings, *about_pods)


@no_collection()
def load_workload(
    nodes_path: str | Path | None,
    pods_path: str | Path | None,
    *,
    partial: bool = False,
    running: RunningPods = RunningPods.FREE,
    strict: bool = False,
    lives: bool = False,
) -> Workload:
    """Load a workload of nodes and pods in any format. Objects that Kubernetes would refuse are left out with warnings.

    Args:
        nodes_path: a file or folder; None if `pods_path` holds nodes too.
        pods_path: a file or folder; None if `nodes_path` holds pods too.
        partial: whether nodes alone or pods alone are enough.
        running: what to do with pods that run on a node already.
        strict: whether an invalid object is an error.
        lives: whether to read when pods were created, began to run and ended.
    """
    lives = lives or running is RunningPods.REPLAYED
    given = [input_path(path) for path in (nodes_path, pods_path) if path is not None]
    if not given:
        raise UsageError("give a file or folder of nodes and one of pods, or a folder that holds both")
    # The same path given twice is one source, which holds nodes and pods.
    sources = [open_source(path) for path in dict.fromkeys(given)]
    for_nodes, for_pods = sources[0], sources[-1]
    nodes = for_nodes.nodes() if for_nodes.has_nodes() or not (partial and for_nodes.has_pods()) else ()
    if for_pods is not for_nodes:
        for_pods.refer_to(for_nodes)
    has_pods = for_pods.has_pods() or not (partial and for_pods.has_nodes())
    pods, expanded = for_pods.expanded(nodes, may_have_finished=lives) if has_pods else ((), None)
    offers = offers_of((obj for each in _objects(sources) for obj in each.of_kind(*DEVICE_KINDS)), nodes, pods)
    nodes, pods, expanded = _with_devices(offers, nodes, pods, expanded)
    problems = [problem for source in sources for problem in source.problems()]
    problems += expanded.problems if expanded is not None else ()
    if strict and problems:
        raise UsageError(f"{problems[0]} ({len(problems)} invalid objects; --strict leaves none out)")
    warnings = list(for_pods.warnings(expanded))
    if for_pods is not for_nodes:
        warnings = [*for_nodes.warnings(), *warnings, *_unused(for_nodes, for_pods)]
    services = SpreadSelectors.union(source.services() for source in sources)
    name = workload_name(given[-1])
    warnings += [f"{name}: {warning}" for warning in _about_pods(nodes, pods, offers)]
    about = filter(None, (content.understood() for content in for_pods.contents if pods))
    budgets = budgets_of(obj for each in _objects(sources) for obj in each.objects)
    understood = "; ".join(about)
    workload = Workload(name, nodes, pods, services, tuple(warnings), understood=understood, budgets=budgets)
    with_pods = expanded if expanded is not None and expanded.pods else None
    return _of_objects(workload, list(_objects(sources)), with_pods, running, lives=lives)


@no_collection()
def workload_of_objects(
    name: str,
    documents: Iterable[Document],
    warnings: Iterable[str] = (),
    *,
    running: RunningPods = RunningPods.FREE,
    lives: bool = False,
) -> Workload:
    """Return the workload of Kubernetes objects, wherever they were read; see `load_workload`.

    `name` also begins the warnings about its objects, and `warnings` are those of reading them. Pods arrive in order of
    creation, else in that of the documents.
    """
    lives = lives or running is RunningPods.REPLAYED
    objects = Objects(documents)
    nodes = objects.nodes()
    expanded: Expanded | None = objects.expanded(nodes)
    assert expanded is not None
    offers = offers_of(objects.of_kind(*DEVICE_KINDS), nodes, expanded.pods)
    nodes, _, expanded = _with_devices(offers, nodes, (), expanded)
    assert expanded is not None
    for what, found in (("nodes", nodes), ("pods that have not finished", expanded.pods)):
        if not found and not (lives and nodes):
            raise SteersmanError(f"{name}: there are no {what}")
    left_out = _left_out((*objects.problems(), *expanded.problems))
    about_pods = _about_pods(nodes, expanded.pods, offers)
    about_objects = (*warnings, *left_out, *objects.warnings(), *expanded.warnings, *about_pods)
    all_warnings = tuple(f"{name}: {warning}" for warning in about_objects)
    budgets = budgets_of(objects.objects)
    workload = Workload(name, nodes, expanded.pods, objects.services(), all_warnings, budgets=budgets)
    return _of_objects(workload, [objects], expanded, running, lives=lives)


def _about_pods(nodes: Sequence[Node], pods: Sequence[Pod], offers: DeviceOffers) -> tuple[str, ...]:
    return (*gpu_warnings(nodes, pods), *offer_warnings(offers, pods), *annotation_warnings(pods))


def _of_objects(
    workload: Workload, every: Sequence[Objects], expanded: Expanded | None, running: RunningPods, *, lives: bool
) -> Workload:
    """Return a workload with what its objects say: invalid nodes, lives of pods if asked for, and running pods."""
    understood = "; ".join(filter(None, (workload.understood, *_dependencies(workload))))
    counted_nodes = {node.name for node in workload.nodes}  # a second object of such a name is left out, not the node
    invalid_nodes = tuple(name for each in every for name in each.invalid_nodes if name not in counted_nodes)
    workload = replace(workload, understood=understood, invalid_nodes=invalid_nodes)
    if lives:
        referable = tuple(obj for objects in every for obj in objects.of_kind(*REFERABLE))
        workload = replace(workload, lives=lives_of(every, workload.nodes), referable=referable)
    if expanded is not None:
        workload = with_running(workload, expanded, running, may_be_empty=lives)
        workload = replace(workload, understood="; ".join(filter(None, (workload.understood, understood))))
    return workload.replayed() if running is RunningPods.REPLAYED else workload


def _objects(sources: Iterable[Source]) -> Iterator[Objects]:
    return (each for source in sources for each in source.contents if isinstance(each, Objects))


def _with_devices(
    offers: DeviceOffers, nodes: tuple[Node, ...], pods: tuple[Pod, ...], expanded: Expanded | None
) -> tuple[tuple[Node, ...], tuple[Pod, ...], Expanded | None]:
    """Return nodes with the devices that they offer by DRA, and pods that request them by the same names."""
    if not offers:
        return nodes, pods, expanded
    if expanded is not None:
        expanded = replace(expanded, pods=tuple(map(offers.pod, expanded.pods)))
    return tuple(map(offers.node, nodes)), tuple(map(offers.pod, pods)), expanded


@no_collection()
def load_nodes(path: str | Path) -> tuple[Node, ...]:
    """Load the nodes of a file or folder in any format. Raises InputError."""
    return open_source(path).nodes()


@no_collection()
def load_pods(path: str | Path, nodes: tuple[Node, ...] | None = None) -> tuple[Pod, ...]:
    """Load the pods of a file or folder in any format; DaemonSets are expanded over `nodes`, else those at `path`."""
    source = open_source(path)
    if nodes is None:
        nodes = source.nodes() if source.has_nodes() else ()
    return source.pods(nodes)


@dataclass(frozen=True, slots=True)
class FurtherPods:
    """Pods that are submitted to a cluster, in order of arrival, the number of pods that come later, and warnings."""

    pods: tuple[Pod, ...]
    later: int
    warnings: tuple[str, ...]


@no_collection()
def further_pods(path: str | Path, cluster: Workload) -> FurtherPods:
    """Load pods that are submitted to a cluster (read with `lives`): its objects apply, such as PriorityClasses."""
    source, there = open_source(path), Objects.checked(cluster.referable)
    for content in source.contents:
        content.refer_to(there)
    pods, expanded = source.expanded(cluster.nodes)
    objects = (*_objects([source]), there)
    offers = offers_of((obj for each in objects for obj in each.of_kind(*DEVICE_KINDS)), cluster.nodes, pods)
    later = Workload("", cluster.nodes, pods).later
    first = tuple(offers.pod(pod) for pod, is_later in zip(pods, later, strict=True) if not is_later)
    about_pods = (*offer_warnings(offers, first), *annotation_warnings(first))
    warnings = (*source.warnings(expanded), *(f"{source.path}: {warning}" for warning in about_pods))
    return FurtherPods(first, len(pods) - len(first), warnings)


@no_collection()
def open_source(path: str | Path) -> Source:
    path = input_path(path)
    if not path.exists():
        raise InputError(path, "", "", "no such file or folder")
    suffixes = {suffix for each in formats() for suffix in each.suffixes}
    files, replaced = folder_files(path, sorted(suffixes)) if path.is_dir() else ([path], [])
    if not files:
        raise InputError(path, "", "", "is a folder without .yaml, .yml, .json, .csv or .swf files that are not hidden")
    by_format: dict[str, list[Path]] = {}
    for file in files:
        by_format.setdefault(format_of(file).name, []).append(file)
    contents = tuple(each.open(by_format[each.name]) for each in formats() if each.name in by_format)
    if all(content.is_empty() for content in contents):
        raise InputError(path, "", "", "holds no Kubernetes object")
    return Source(path, contents, tuple(replaced))


def _left_out(problems: Sequence[InputError]) -> list[str]:
    """Return a warning for each invalid object; beyond `MAX_NAMED` their number is said."""
    lines = [
        f"{'counts in part' if isinstance(problem, PartlyReadError) else 'left out'}: {problem}"
        for problem in problems[:MAX_NAMED]
    ]
    more = len(problems) - len(lines)
    return [*lines, f"{more} more objects are invalid"] if more else lines


def _unused(nodes: Source, pods: Source) -> list[str]:
    """Return what either path holds beside what it was named for."""
    result = []
    if nodes.has_pods():
        result.append(f"{nodes.path}: its pods are not used, those of {pods.path} are")
    if any(content.has_nodes() and not content.is_stand_in() for content in pods.contents):
        result.append(f"{pods.path}: its nodes are not used, those of {nodes.path} are")
    return result


def _dependencies(workload: Workload) -> Iterator[str]:
    """Yield how many gangs there are, and how many pods come once others have ended."""
    if members := [(pod.namespace, pod.gang) for pod in workload.pods if pod.gang]:
        yield f"{counted(len(set(members)), 'gang')} of {counted(len(members), 'pod')}"
    if later := int(workload.later.sum()):
        yield f"{counted(later, 'pod')} to be created once others of their controllers have ended"


def _twice(names: list[str]) -> str | None:
    if len(set(names)) == len(names):
        return None
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def _not_unique(path: Path, what: str, name: str) -> InputError:
    return InputError(path, f"{what} {name}", "name", "is there twice; names must be unique over all files")
