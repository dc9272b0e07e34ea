"""The interface of a format of workload files: which files are in it, what they hold, and how it is written."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from steersman.cluster.model import Constraints, Node, Pod, PodClass, Requests
from steersman.errors import SteersmanError, UsageError
from steersman.workloads.deployments import Row
from steersman.workloads.kubernetes import Expanded
from steersman.workloads.workload import Services, Workload


class LossError(SteersmanError):
    """The target format cannot say something that the workload says."""


class Losses:
    """What a format cannot say of a workload: the first of it is an error, or all of it is counted.

    Args:
        target: the format's title.
        sources: by kind (node, pod, services) the file that it was read from, which errors name.
        lossy: whether it is counted.
    """

    def __init__(self, target: str, sources: Mapping[str, str], *, lossy: bool) -> None:
        self.target, self.sources, self.lossy = target, sources, lossy
        self.counts: Counter[str] = Counter()

    def note(self, kind: str, name: str, fields: Iterable[str]) -> None:
        """Note fields of a node, pod or Service that are lost. Raises LossError: nothing may be."""
        for field in fields:
            if not self.lossy:
                raise self.error(kind, f"{kind} {name}: {field} cannot be said in {self.target}; --lossy leaves it out")
            self.counts[f"{kind} {field}"] += 1

    def note_services(self, workload: Workload) -> None:
        """Note that all Services of a workload are lost. Raises LossError: nothing may be."""
        if workload.services:
            self.note("services", "", [f"of {len(workload.services)} objects"])

    def error(self, kind: str, problem: str) -> LossError:
        """Return an error that names the file of nodes, pods or Services."""
        return LossError(", ".join(part for part in (self.sources.get(kind, ""), problem) if part))

    def warnings(self) -> tuple[str, ...]:
        """Return what was left out, in a line if there is any."""
        counted = ", ".join(f"{what} ({count})" for what, count in sorted(self.counts.items()))
        return (f"left out, {self.target} cannot say it: {counted}",) if counted else ()


class Content:
    """What files of one format hold; read when it is asked for.

    A format that holds nodes or pods overrides the methods about them.
    """

    def has_nodes(self) -> bool:
        """Return whether there are nodes."""
        return False

    def has_pods(self) -> bool:
        """Return whether there are pods."""
        return False

    def is_empty(self) -> bool:
        """Return whether nothing in the files is known to the format."""
        return not (self.has_nodes() or self.has_pods())

    def nodes(self) -> Sequence[Node]:
        """Return the nodes. Raises InputError: one makes no sense."""
        return ()

    def pods(self, nodes: Sequence[Node]) -> tuple[Sequence[Pod], Expanded | None]:
        """Return the pods on a cluster of these nodes, and what is known of those that Kubernetes objects stand for.

        Raises:
            InputError: one makes no sense.
        """
        return (), None

    def deployment_rows(self) -> Sequence[Row] | None:
        """Return the rows of Deployments that all pods come from; None: pods are listed otherwise."""
        return None

    def services(self) -> Services:
        """Return what selects pods that are to be spread."""
        return Services()

    def warnings(self) -> tuple[str, ...]:
        """Return what a user should know about the files."""
        return ()


class WorkloadFormat(ABC):
    """A format of workload files.

    Attributes:
        name: as `workload convert --to` has it.
        title: in messages.
        suffixes: of its files' names.
        header: of a CSV file, for the message about one that no format recognises.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    header: ClassVar[str] = ""

    def recognises(self, file: Path) -> bool:
        """Return whether a file, whose suffix is one of the format's, is in it. Raises InputError: it is unreadable."""
        return True

    @abstractmethod
    def open(self, files: Sequence[Path]) -> Content:
        """Return what files of the format hold. Raises InputError: one is not what its name says."""

    def write(self, workload: Workload, folder: Path, losses: Losses) -> None:
        """Write a workload of nodes, pods or both into a folder.

        Raises:
            UsageError: the format is only read.
            LossError: it cannot say something, and must not leave it out.
        """
        raise UsageError(f"workloads cannot be written as {self.title}")


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yield the fields in which two nodes or two pods differ, as paths: "constraints.tolerations"."""
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
