"""Jobs of recorded traces, whichever format states them, and the pods that they become."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import ClassVar

from steersman.cluster.model import GPU_MILLI, Constraints, Node, Pod, PodClass, Requests
from steersman.core.counting import counted
from steersman.core.errors import InputError
from steersman.core.quantities import MAX_CPU_MILLI, ceil_div
from steersman.workloads.formats.base import PodContent, TableFormat, twice
from steersman.workloads.formats.kubernetes.expansion import Expanded
from steersman.workloads.formats.tables import TableRow, header_of, read_text, rows


def shares(amount: int, largest: int) -> tuple[int, ...]:
    """Return the amounts of the fewest pods that fit into nodes with `largest` each.

    They are equal if `amount` divides evenly; else all but the last fill a node. A `largest` of 0 divides nothing.
    """
    if not 0 < largest < amount:
        return (amount,)
    count = ceil_div(amount, largest)
    if amount % count == 0:
        return (amount // count,) * count
    return (*(largest,) * (count - 1), amount - largest * (count - 1))


def pods_of_job(job: Pod, amount: int, largest: int, class_of: Callable[[int], PodClass]) -> Iterator[Pod]:
    """Yield the pods of a job: itself, or a gang with its name if it is larger than the largest node.

    `amount` is what it requests in all and `largest` what that node has (0 without nodes), both processors or GPUs;
    `class_of` returns the class of a pod by its amount.
    """
    amounts = shares(amount, largest)
    if len(amounts) == 1:
        yield job
        return
    for i, share in enumerate(amounts):
        yield replace(job, name=f"{job.name}-{i}", pod_class=class_of(share), gang=job.name)


MAX_CORES, MAX_PODS = MAX_CPU_MILLI // 1000, 100_000
MAX_LABEL = 63  # longest name of a namespace
NEVER_RAN = "never ran"  # why jobs are left out
NO_CONSTRAINTS = Constraints()


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a trace: one pod, or several equal ones."""

    name: str  # of the pod, "": its number among the jobs; several pods are numbered
    submit: float  # when it was submitted, in seconds
    run: float | None  # seconds for which it ran, None: without an end
    # `cpu_milli`, `memory_bytes`, `disk_bytes`: that a pod requests.
    cpu_milli: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    # `cpu_share`, `memory_share`: that a pod requests besides, as parts of the largest node.
    cpu_share: float = 0.0
    memory_share: float = 0.0
    gpus: Decimal = Decimal(0)  # that a pod requests: a whole number, or a part of one GPU
    models: tuple[str, ...] = ()  # GPU models of which it requests one; models that no node has are not required
    constraints: Constraints = NO_CONSTRAINTS  # of the pods, without models
    # The CPU in processors, where a job with more of them than a node has is a gang; 0: where it has more GPUs
    processors: int = 0
    count: int = 1  # number of pods
    is_gang: bool = False  # whether several pods start together
    owner: str = ""  # as `Kind/name`
    # `namespace`, `labels`, `priority`, `estimate`: of the pods.
    namespace: str = "default"
    labels: tuple[tuple[str, str], ...] = ()
    priority: int = 0
    estimate: float | None = None
    place: tuple[str, int] = ("", 0)  # file and line


class TraceContent(PodContent):
    """Jobs of some files."""

    # `field`, `advice`: of the name that two jobs have, for the error
    field: ClassVar[str] = ""
    advice: ClassVar[str] = "remove the duplicate"

    def __init__(
        self,
        files: Sequence[Path],
        entries: Iterable[TraceJob | str],  # jobs in any order, and why others are left out
        owners: str,  # what the owners of jobs are, such as "user"
        unused: str,  # what of the files is not used, a part of a sentence
        what: str,  # what the trace calls a job
        *,
        from_first: bool = True,  # whether times are from the first submission on, else as the trace states them
    ) -> None:
        self.jobs: list[TraceJob] = []
        left_out: Counter[str] = Counter()
        for each in entries:
            if isinstance(each, str):
                left_out[each] += 1
            else:
                self.jobs.append(each if each.name else replace(each, name=f"job-{len(self.jobs) + 1}"))
        self._left_out = [f"{count} left out ({why})" for why, count in sorted(left_out.items())]
        self._owners, self._unused, self._what, self._from_first = owners, unused, what, from_first
        if not self.jobs:
            why = ", ".join(self._left_out)
            problem = f"has no job that counts: {why}" if why else "has no jobs, only a header"
            raise InputError(files[0], "", "", problem)

    def pods(self, nodes: Sequence[Node]) -> tuple[Sequence[Pod], Expanded | None]:
        return self.pods_of(sorted(self.jobs, key=lambda job: job.submit), nodes), None

    def pods_of(self, jobs: Sequence[TraceJob], nodes: Sequence[Node]) -> list[Pod]:
        """Return the pods of jobs, in this order."""
        start = min(job.submit for job in self.jobs) if self._from_first else 0.0
        largest = _LargestNode.of(nodes)
        return [pod for job in jobs for pod in _pods(job, start, largest)]

    def named_twice(self, name: str, nodes: Sequence[Node]) -> InputError | None:
        largest = _LargestNode.of(nodes)
        jobs = ((*job.place, _pods(job, 0.0, largest)) for job in self.jobs)
        return twice(name, jobs, self.field, self.advice)

    def understood(self) -> str:
        owners = len({job.owner for job in self.jobs} - {""})
        endless = sum(job.run is None for job in self.jobs)
        of_models = sum(bool(job.models) for job in self.jobs)
        parts = (
            counted(len(self.jobs), self._what) + (f" of {counted(owners, self._owners)}" if owners else ""),
            f"{endless} without an end" if endless else "",
            *self._left_out,
            f"GPU models are required where a node has them ({of_models})" if of_models else "",
            self._unused,
        )
        return ", ".join(filter(None, parts))


class TraceTable(TableFormat):
    """A trace that is a table: a row states a job.

    Attributes:
        headers: what the table is called, and the columns that it must have; all in order, if it may have no header.
    """

    marks: ClassVar[frozenset[str]]  # columns by which a header is recognised
    # Of a table without a header, index of a column and the values by which it is recognised
    values: ClassVar[tuple[int, frozenset[str]] | None] = None
    any_case: ClassVar[bool] = False  # whether columns may be written with capitals; they are named without
    # `owners`, `unused`, `what`: see `TraceContent`
    owners: ClassVar[str] = "user"
    unused: ClassVar[str] = ""
    what: ClassVar[str] = "job"

    @abstractmethod
    def jobs(self, row: TableRow) -> Iterator[TraceJob | str]:
        """Yield the jobs of a row, or why it is left out. Raises InputError: a cell is invalid."""

    def has_header(self, columns: Iterable[str]) -> bool:
        return self.marks <= {column.lower() if self.any_case else column for column in columns}

    def recognises(self, file: Path) -> bool:
        """Return whether the header is that of the table, or its first row looks like one; see `WorkloadFormat`."""
        return super().recognises(file) or self._is_without_header(header_of(file))

    def _is_without_header(self, cells: Sequence[str]) -> bool:
        (_, columns), values = self.headers[0], self.values
        return values is not None and len(cells) == len(columns) and cells[values[0]] in values[1]

    def open(self, files: Sequence[Path]) -> TraceContent:
        entries = (each for file in files for each in self._read(file))
        return TraceContent(files, entries, self.owners, self.unused, self.what)

    def _read(self, file: Path) -> Iterator[TraceJob | str]:
        without_header = self._is_without_header(header_of(file))
        (table, columns), case = self.headers[0], self.any_case
        for row in rows(str(file), read_text(file), columns, table, any_case=case, without_header=without_header):
            yield from self.jobs(row)


# Names


def pod_name(*parts: str) -> str:
    """Return a name of a pod: the parts in small letters, with a hyphen for what a name cannot have."""
    return re.sub("[^a-z0-9.]+", "-", "-".join(parts).lower()).strip("-.") or "job"


@cache
def namespace_of(name: str) -> str:
    """Return a name of a namespace (a label of RFC 1123)."""
    return re.sub("[^a-z0-9]+", "-", name.lower())[:MAX_LABEL].strip("-") or "default"


# Pods


@dataclass(frozen=True, slots=True)
class _LargestNode:
    """The most that a node has of each resource, 0 without nodes, and the GPU models of the nodes, None without."""

    cpu_milli: int
    memory_bytes: int
    gpus: int
    models: frozenset[str] | None

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> _LargestNode:
        return cls(
            max((node.cpu_milli for node in nodes), default=0),
            max((node.memory_bytes for node in nodes), default=0),
            max((node.gpu_count for node in nodes), default=0),
            frozenset(node.gpu_model for node in nodes if node.gpu_model) if nodes else None,
        )


def _pods(job: TraceJob, start: float, largest: _LargestNode) -> Iterator[Pod]:
    """Yield the pods of a job; one of more GPUs than a node has is a gang."""
    cpu = job.cpu_milli + math.ceil(job.cpu_share * largest.cpu_milli)
    memory = job.memory_bytes + math.ceil(job.memory_share * largest.memory_bytes)
    models = _models(job.models, largest.models)
    gpus = math.ceil(job.gpus)
    units, most = (job.processors, largest.cpu_milli // 1000) if job.processors else (gpus, largest.gpus)

    def class_of(share: int) -> PodClass:
        """Return the class of a pod with so many of the job's GPUs or processors, and as large a part of the rest."""
        of_one = max(units, 1)
        part = Decimal(share) if gpus > 1 else job.gpus
        amounts = (ceil_div(amount * share, of_one) for amount in (cpu, memory, job.disk_bytes))
        return _pod_class(*amounts, part, models, job.constraints)

    created = job.submit - start
    pod = Pod(
        job.name,
        class_of(units or 1),
        namespace=job.namespace,
        labels=dict(job.labels),
        priority=job.priority,
        owner=job.owner,
        creation_time=created,
        deletion_time=None if job.run is None else created + job.run,
        estimated_seconds=job.estimate,
    )
    if job.count == 1:
        yield from pods_of_job(pod, units, most, class_of)
        return
    gang = job.name if job.is_gang else ""
    yield from (replace(pod, name=f"{job.name}-{i}", gang=gang) for i in range(job.count))


# Jobs of equal size share a class.
@cache
def _pod_class(
    cpu: int, memory: int, disk: int, gpus: Decimal, models: tuple[str, ...], constraints: Constraints
) -> PodClass:
    milli = math.ceil(min(gpus, Decimal(1)) * GPU_MILLI)
    requests = Requests(cpu, memory, ephemeral_bytes=disk, gpu_count=math.ceil(gpus), gpu_milli=milli)
    return PodClass(requests, replace(constraints, gpu_models=models if gpus else ()))


@cache
def _models(wanted: tuple[str, ...], offered: frozenset[str] | None) -> tuple[str, ...]:
    """Return the models of nodes that are the wanted ones, in other letters or more words; without nodes those."""
    if offered is None:
        return wanted
    words = {model.casefold() for model in wanted}
    return tuple(sorted(each for each in offered if words & {each.casefold(), *re.split(r"\W+", each.casefold())}))
