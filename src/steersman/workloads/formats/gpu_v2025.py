"""Alibaba's trace of GPU-disaggregated inference, cluster-trace-gpu-v2025: a table of instances.

CPU is in cores, memory and disk are in GiB, times in seconds from the start of the trace. A time before its start or
after its end is empty or NaN. Source: README of the trace, and Yang et al., "GPU-Disaggregated Serving for Deep
Learning Recommendation Models at Scale", NSDI 2025.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from steersman.cluster.gpu_units import GIB, HOSTNAME
from steersman.cluster.model import Constraints, Node, Pod, PodAffinityTerm, PodSelector, Requirement
from steersman.core.counting import counted
from steersman.core.errors import InputError
from steersman.core.quantities import MAX_POD_GPUS
from steersman.workloads.formats.base import TableFormat
from steersman.workloads.formats.kubernetes.expansion import Expanded
from steersman.workloads.formats.tables import MAX_GIB, TableRow, read_text, rows
from steersman.workloads.formats.traces import MAX_CORES, TraceContent, TraceJob

COLUMNS = (
    *("instance_sn", "role", "app_name", "cpu_request", "gpu_request", "memory_request", "disk_request"),
    *("max_instance_per_node", "creation_time", "deletion_time"),
)
"""Columns that a table must have."""
TITLE = "a table of gpu-v2025's instances"
ROLES = ("CN", "HN")  # CPU nodes, and heterogeneous nodes, which have GPUs
NAMESPACE = "default"
NO_LIMIT = -1


class GpuV2025Content(TraceContent):
    """Tables of instances."""

    field, advice = "instance_sn", "number them"

    def __init__(self, files: Sequence[Path]) -> None:
        self._limited = 0
        super().__init__(files, (job for file in files for job in self._read(file)), "", "", "", from_first=False)

    def pods(self, nodes: Sequence[Node]) -> tuple[Sequence[Pod], Expanded | None]:
        """Return a pod for each instance, whatever nodes there are; see `FormatContent`."""
        return self.pods_of(self.jobs, ()), None

    def understood(self) -> str:
        jobs = self.jobs
        applications = len({job.owner for job in jobs})
        roles = ", ".join(f"{sum(('role', role) in job.labels for job in jobs)} {role}" for role in ROLES)
        early = sum(job.submit == 0 for job in jobs)
        endless = sum(job.run is None for job in jobs)
        parts = (
            f"{counted(len(jobs), 'instance')} of {counted(applications, 'application')} ({roles})",
            f"{early} there from the start" if early else "",
            f"{endless} without an end" if endless else "",
            "role, RDMA bandwidth and scheduled_time are not used",
            f"max_instance_per_node above 1 is not used ({self._limited})" if self._limited else "",
        )
        return ", ".join(filter(None, parts))

    def _read(self, file: Path) -> Iterator[TraceJob]:
        """Yield the instances of a table in order. Raises InputError: a row is invalid, or there is none."""
        row = None
        for row in rows(str(file), read_text(file), COLUMNS, TITLE):
            per_node = _per_node(row)
            self._limited += per_node > 1
            yield _instance(row, per_node)
        if row is None:
            raise InputError(file, "", "", "has no instances, only a header")


class GpuV2025Csv(TableFormat):
    """The format of cluster-trace-gpu-v2025, which has no nodes."""

    name = "gpu-v2025"
    title = "gpu-v2025 CSV"
    headers = ((TITLE, COLUMNS),)

    def has_header(self, columns: Set[str]) -> bool:
        return "instance_sn" in columns

    def open(self, files: Sequence[Path]) -> GpuV2025Content:
        return GpuV2025Content(files)


def _instance(row: TableRow, per_node: int) -> TraceJob:
    role, application = row.name("role"), row.name("app_name")
    if role not in ROLES:
        raise row.error("role", f"{role!r} is unknown; expected {' or '.join(ROLES)}")
    created, deleted = _seconds(row, "creation_time") or 0.0, _seconds(row, "deletion_time")
    if deleted is not None and deleted < created:
        raise row.error("deletion_time", f"{deleted:g} is before the creation_time {created:g}")
    gpus = row.number("gpu_request", MAX_POD_GPUS)
    if gpus % 1:
        raise row.error("gpu_request", f"{gpus} is not a whole number of GPUs")
    same = PodSelector((Requirement("app", "In", (application,)),), frozenset([NAMESPACE]))
    one_per_node = Constraints(anti_affinity=(PodAffinityTerm(same, HOSTNAME),))
    return TraceJob(
        row.name("instance_sn"),
        created,
        None if deleted is None else deleted - created,
        cpu_milli=math.ceil(row.number("cpu_request", MAX_CORES) * 1000),
        memory_bytes=math.ceil(row.number("memory_request", MAX_GIB) * GIB),
        disk_bytes=math.ceil(row.number("disk_request", MAX_GIB) * GIB),
        gpus=gpus,
        # Anti-affinity can demand one per node; Kubernetes has no constraint for two or more.
        constraints=one_per_node if per_node == 1 else Constraints(),
        owner=f"Application/{application}",
        labels=(("app", application), ("role", role)),
        place=(row.file, row.line),
    )


def _seconds(row: TableRow, column: str) -> float | None:
    return None if row.text(column).lower() == "nan" else row.seconds(column)


def _per_node(row: TableRow) -> int:
    """Return how many instances of its application a node may have, -1: any number."""
    # A column with empty cells may have been written as floats.
    stated = row.text("max_instance_per_node").removesuffix(".0")
    if stated in ("", str(NO_LIMIT)) or stated.lower() == "nan":
        return NO_LIMIT
    if not (stated.isascii() and stated.isdigit() and int(stated)):
        raise row.error("max_instance_per_node", f"{stated!r} is not a number of at least 1, or -1 for no limit")
    return int(stated)
