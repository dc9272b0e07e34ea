"""The interface of a workload file format: which files it recognises, what they contain, and how it is written."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from steersman.cluster.model import Constraints, Node, Pod, PodClass, Requests
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.workloads.files import CSV_SUFFIXES
from steersman.workloads.formats.kubernetes.expansion import Expanded
from steersman.workloads.formats.tables import header_of
from steersman.workloads.generators.deployments import Row
from steersman.workloads.workload import SpreadSelectors, Workload

T = TypeVar("T")


class LossError(SteersmanError):
    """A target format that cannot represent something in the workload."""


class Losses:
    """What a format cannot represent of a workload: the first loss is an error, or all losses are counted.

    Args:
        target: the format's title.
        sources: by kind (node, pod, services) the file that it was read from, which errors name.
        lossy: whether losses are counted instead.
    """

    def __init__(self, target: str, sources: Mapping[str, str], *, lossy: bool) -> None:
        self.target, self.sources, self.lossy = target, sources, lossy
        self.counts: Counter[str] = Counter()

    def note(self, kind: str, name: str, fields: Iterable[str]) -> None:
        """Note fields of a node, pod or Service that are lost. Raises LossError unless losses are allowed."""
        for field in fields:
            if not self.lossy:
                raise self.error(
                    kind, f"{kind} {name}: {field} cannot be represented in {self.target}; --lossy leaves it out"
                )
            self.counts[f"{kind} {field}"] += 1

    def note_services(self, workload: Workload) -> None:
        """Note that all Services of a workload are lost."""
        if workload.services:
            self.note("services", "", [f"of {len(workload.services)} objects"])

    def error(self, kind: str, problem: str) -> LossError:
        """Return an error that names the file of nodes, pods or Services."""
        return LossError(", ".join(part for part in (self.sources.get(kind, ""), problem) if part))

    def read_again(self, kind: str, path: Path, read: Callable[[Path], T]) -> T:
        """Return what a written file is read as: what the reader refuses must not be written. Raises LossError."""
        try:
            return read(path)
        except InputError as error:
            place = ", ".join(part for part in (error.where, error.field) if part)
            raise self.error(kind, f"{path.name} would not be {self.target}: {place}: {error.problem}") from None

    def warnings(self) -> tuple[str, ...]:
        """Return one line about everything left out, if there is anything."""
        counted = ", ".join(f"{field} ({count})" for field, count in sorted(self.counts.items()))
        return (f"left out, {self.target} cannot say it: {counted}",) if counted else ()


class FormatContent:
    """The content of files in one format, read on demand.

    A format that holds nodes or pods overrides the methods about them.
    """

    def has_nodes(self) -> bool:
        """Return whether there are nodes."""
        return False

    def has_pods(self) -> bool:
        """Return whether there are pods."""
        return False

    def is_empty(self) -> bool:
        """Return whether the files contain nothing that the format knows."""
        return not (self.has_nodes() or self.has_pods())

    def is_stand_in(self) -> bool:
        """Return whether the nodes stand for a cluster that is not described, so that any other nodes replace them."""
        return False

    def nodes(self) -> Sequence[Node]:
        """Return the nodes. Raises InputError: one is invalid."""
        return ()

    def pods(self, nodes: Sequence[Node]) -> tuple[Sequence[Pod], Expanded | None]:
        """Return the pods on a cluster of these nodes, and details of those that come from Kubernetes objects.

        Raises:
            InputError: a pod is invalid.
        """
        return (), None

    def named_twice(self, name: str, nodes: Sequence[Node]) -> InputError | None:
        """Return the error of a pod `NAMESPACE/NAME` that `pods` returns twice, with both places; None: not known."""
        return None

    def refer_to(self, other: FormatContent) -> None:
        """Let pods refer to what another source holds, such as priority classes beside the nodes."""

    def deployment_rows(self) -> Sequence[Row] | None:
        """Return the rows of Deployments that all pods come from, or None if pods are listed otherwise."""
        return None

    def services(self) -> SpreadSelectors:
        """Return the selectors of pods that are spread by default."""
        return SpreadSelectors()

    def problems(self) -> tuple[InputError, ...]:
        """Return the errors of what is left out because it is invalid; those of pods are in `Expanded`."""
        return ()

    def warnings(self) -> tuple[str, ...]:
        """Return warnings about the files, one line each."""
        return ()

    def understood(self) -> str:
        """Return a sentence on what the files were taken to hold, "" if that is not in doubt."""
        return ""


class PodContent(FormatContent):
    """The content of files that list pods."""

    def has_pods(self) -> bool:
        """Return True."""
        return True


class WorkloadFormat(ABC):
    """A format of workload files.

    Attributes:
        name: the name that `workload convert --to` takes.
        title: the name in messages.
        suffixes: suffixes of its file names.
        headers: of tables, what they hold and the columns that they need, for the message about a file that no format
            recognises.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    headers: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = ()

    def recognises(self, file: Path) -> bool:
        """Return whether a file is in this format, by default by its suffix. Raises InputError: unreadable."""
        return file.name.endswith(self.suffixes)

    @abstractmethod
    def open(self, files: Sequence[Path]) -> FormatContent:
        """Return the content of files in this format. Raises InputError: one is not what its name says."""

    def write(self, workload: Workload, folder: Path, losses: Losses) -> None:
        """Write a workload of nodes, pods or both into a folder.

        Raises:
            UsageError: the format can only be read.
            LossError: it cannot represent something that must not be left out.
        """
        raise UsageError(f"workloads cannot be written as {self.title}")


class TableFormat(WorkloadFormat):
    """A format of CSV files, which its header tells from other ones."""

    suffixes: ClassVar[tuple[str, ...]] = CSV_SUFFIXES

    def recognises(self, file: Path) -> bool:
        """Return whether the header is that of the format, see `WorkloadFormat`."""
        return self.has_header(frozenset(header_of(file)))

    @abstractmethod
    def has_header(self, columns: Set[str]) -> bool:
        """Return whether a header with these columns is one of the format."""


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yield the fields in which two nodes or two pods differ, as paths such as "constraints.tolerations"."""
    for field in dataclasses.fields(one):
        value, other_value = getattr(one, field.name), getattr(other, field.name)
        if value == other_value:
            continue
        if isinstance(value, PodClass):
            yield from differences(value, other_value, path)
        elif isinstance(value, Requests | Constraints):
            yield from differences(value, other_value, f"{path}{field.name}.")
        else:
            yield path + field.name


def twice(name: str, jobs: Iterable[tuple[str, int, Iterable[Pod]]], field: str, advice: str) -> InputError | None:
    """Return the error of a pod's `NAMESPACE/NAME` in two of the jobs (file, line and pods of each); None: in fewer."""
    places = ((file, line) for file, line, pods in jobs if any(f"{pod.namespace}/{pod.name}" == name for pod in pods))
    found = [*islice(places, 2)]
    if len(found) < 2:
        return None
    (file, line), (again, second) = found
    where = f"line {line}" if again == file else f"{file}, line {line}"
    return InputError(again, f"line {second}", field, f"{name} is in {where}, too; names must be unique: {advice}")
