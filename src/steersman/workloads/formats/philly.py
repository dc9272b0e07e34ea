"""Microsoft's Philly trace of deep-learning jobs: its own JSON, and a table of jobs as the artifact of Sia has it.

`cluster_job_log` is an array of jobs with their attempts. The columns of the table are
`timestamp,duration,num_gpus,gpu_time,cluster`: a date with a time of day, seconds, whole GPUs. Sources: README of
philly-traces; Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC
2019; Jayaram Subramanya et al., "Sia", SOSP 2023.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from steersman.core.errors import InputError
from steersman.core.quantities import MAX_POD_GPUS
from steersman.workloads.files import CSV_SUFFIXES
from steersman.workloads.formats.tables import TableRow, read_text
from steersman.workloads.formats.traces import NEVER_RAN, TraceJob, TraceTable, namespace_of, pod_name

_LOG = re.compile(r'\s*\[\s*\{[^{]*"(attempts|jobid)"')


class ServerGpus(msgspec.Struct, frozen=True):
    """The GPUs of an attempt on one server."""

    gpus: list[Any]


class Attempt(msgspec.Struct, frozen=True):
    """A part of a job's run."""

    start_time: str | None = None
    end_time: str | None = None
    detail: list[ServerGpus] = msgspec.field(default_factory=list)

    def row(self, job: TableRow) -> TableRow:
        """Return the times of a job's attempt as a row."""
        return TableRow(job.file, job.line, {"start_time": self.start_time or "", "end_time": self.end_time or ""})


class LoggedJob(msgspec.Struct, frozen=True):
    """A job of `cluster_job_log`."""

    jobid: str
    vc: str
    submitted_time: str
    attempts: list[Attempt]


class PhillyTrace(TraceTable):
    """The format of the Philly trace, which has no nodes."""

    name = "philly"
    title = "Philly CSV or JSON"
    suffixes = (*CSV_SUFFIXES, ".json", ".json.gz")
    headers = (("a table of Philly's jobs", ("timestamp", "duration", "num_gpus", "cluster")),)
    marks = frozenset(("timestamp", "num_gpus"))
    owners = "virtual cluster"
    unused = "CPU and memory are not stated and count as 0"

    def recognises(self, file: Path) -> bool:
        """Return whether a file is a log of jobs or has the header of the table, see `WorkloadFormat`."""
        return _is_log(file) or super().recognises(file)

    def jobs(self, row: TableRow) -> Iterator[TraceJob]:
        """Yield the job of a row, see `TraceTable`."""
        duration = row.seconds("duration")
        if duration is None:
            raise row.error("duration", "is empty; expected seconds, 0 or more")
        gpus = row.integer("num_gpus", MAX_POD_GPUS)
        if not gpus:
            raise row.error("num_gpus", "0 GPUs; a job needs at least 1")
        yield _job("", row.date("timestamp"), duration, gpus, row.name("cluster"), row)

    def _read(self, file: Path) -> Iterator[TraceJob | str]:
        return _logged_jobs(file) if _is_log(file) else super()._read(file)


def _job(name: str, submitted: float, run: float | None, gpus: int, cluster: str, row: TableRow) -> TraceJob:
    return TraceJob(
        name,
        submitted,
        run,
        gpus=Decimal(gpus),
        owner=f"VirtualCluster/{cluster}",
        namespace=namespace_of(cluster),
        place=(row.file, row.line),
    )


def _is_log(file: Path) -> bool:
    return bool(_LOG.match(read_text(file, head=True)))


def _logged_jobs(file: Path) -> Iterator[TraceJob | str]:
    """Yield the jobs of a log, or why one is left out. Raises InputError: it is not a log, or a date is invalid."""
    try:
        jobs = msgspec.json.decode(read_text(file), type=list[LoggedJob])
    except msgspec.DecodeError as error:
        raise InputError(file, "", "", f"is not a cluster_job_log: {error}") from None
    for number, job in enumerate(jobs, start=1):
        row = TableRow(str(file), number, {"submitted_time": job.submitted_time})
        submitted = row.moment("submitted_time")
        starts = [start for each in job.attempts if (start := each.row(row).moment("start_time")) is not None]
        gpus = max((sum(len(place.gpus) for place in each.detail) for each in job.attempts), default=0)
        if submitted is None or not starts or not gpus:
            yield NEVER_RAN
            continue
        ended = job.attempts[-1].row(row).moment("end_time")
        run = None if ended is None else max(ended - min(starts), 0.0)
        yield _job(pod_name(job.jobid), submitted, run, gpus, job.vc, row)
