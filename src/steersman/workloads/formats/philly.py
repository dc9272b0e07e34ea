"""Microsoft's Philly trace of deep-learning jobs, as the artifact of Sia has it: a table of jobs.

Columns: `timestamp,duration,num_gpus,gpu_time,cluster`. A timestamp is a date with a time of day, a duration is in
seconds, GPUs are whole. Sources: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training
Workloads", USENIX ATC 2019, and Jayaram Subramanya et al., "Sia", SOSP 2023.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from steersman.cluster.model import GPU_MILLI, Node, Pod, PodClass, Requests
from steersman.core.counting import counted
from steersman.core.errors import InputError
from steersman.core.quantities import MAX_POD_GPUS
from steersman.workloads.formats.base import FormatContent, TableFormat
from steersman.workloads.formats.gangs import pods_of_job
from steersman.workloads.formats.kubernetes.expansion import Expanded
from steersman.workloads.formats.tables import TableRow, read_text, rows

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
"""Columns that a table must have."""
TITLE = "a table of Philly's jobs"
MAX_LABEL = 63
"""Longest name of a namespace."""


@dataclass(frozen=True, slots=True)
class _PhillyJob:
    """A row of a table; `submit` in Unix seconds."""

    submit: float
    duration: float
    gpus: int
    cluster: str


class PhillyContent(FormatContent):
    """Tables of jobs.

    Args:
        files: the tables.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.jobs = [job for file in files for job in _read(file)]

    def has_pods(self) -> bool:
        """Return True, see `FormatContent`."""
        return True

    def pods(self, nodes: Sequence[Node]) -> tuple[Sequence[Pod], Expanded | None]:
        """Return a pod for each job in order of time, a gang for one that no node is large enough for."""
        largest = max((node.gpu_count for node in nodes), default=0)
        start = min(job.submit for job in self.jobs)
        # Named by their rows, so that a job is found again in the table.
        numbered = sorted(enumerate(self.jobs, start=1), key=lambda entry: entry[1].submit)
        return [pod for number, job in numbered for pod in _pods(number, job, start, largest)], None

    def understood(self) -> str:
        """Return how many jobs there are, and what is not known of them; see `FormatContent`."""
        clusters = len({job.cluster for job in self.jobs})
        parts = (
            f"{counted(len(self.jobs), 'job')} of {counted(clusters, 'virtual cluster')}",
            "CPU and memory are not stated and count as 0",
        )
        return ", ".join(parts)


class PhillyCsv(TableFormat):
    """The format of the Philly trace, which has no nodes."""

    name = "philly"
    title = "Philly CSV"
    headers = ((TITLE, COLUMNS),)

    def has_header(self, columns: Set[str]) -> bool:
        """Return whether a header is that of a table of jobs, see `TableFormat`."""
        return {"timestamp", "num_gpus"} <= columns

    def open(self, files: Sequence[Path]) -> PhillyContent:
        """Return the jobs of the files, see `WorkloadFormat`."""
        return PhillyContent(files)


def _read(file: Path) -> Iterator[_PhillyJob]:
    """Yield the jobs of a table in order. Raises InputError: a row is invalid, or there is none."""
    row = None
    for row in rows(str(file), read_text(file), COLUMNS, TITLE):
        yield _job(row)
    if row is None:
        raise InputError(file, "", "", "has no jobs, only a header")


def _job(row: TableRow) -> _PhillyJob:
    duration = row.seconds("duration")
    if duration is None:
        raise row.error("duration", "is empty; expected seconds, 0 or more")
    gpus = row.integer("num_gpus", MAX_POD_GPUS)
    if not gpus:
        raise row.error("num_gpus", "0 GPUs; a job needs at least 1")
    return _PhillyJob(row.date("timestamp"), duration, gpus, row.name("cluster"))


def _pods(number: int, job: _PhillyJob, start: float, largest: int) -> Iterator[Pod]:
    """Yield the pods of a job on nodes with at most `largest` GPUs, 0: there are no nodes."""
    created = job.submit - start
    pod = Pod(
        f"job-{number}",
        _pod_class(job.gpus),
        namespace=_namespace(job.cluster),
        owner=f"VirtualCluster/{job.cluster}",
        creation_time=created,
        deletion_time=created + job.duration,
    )
    return pods_of_job(pod, job.gpus, largest, _pod_class)


@cache
def _pod_class(gpus: int) -> PodClass:
    return PodClass(Requests(gpu_count=gpus, gpu_milli=GPU_MILLI))


@cache
def _namespace(cluster: str) -> str:
    """Return a name of a namespace (a label of RFC 1123) for a virtual cluster."""
    return re.sub("[^a-z0-9]+", "-", cluster.lower())[:MAX_LABEL].strip("-") or "default"
