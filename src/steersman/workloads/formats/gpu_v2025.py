"""Alibaba's trace of GPU-disaggregated inference, cluster-trace-gpu-v2025: a table of instances.

CPU is in cores, memory and disk are in GiB, times in seconds from the start of the trace. A time before its start or
after its end is empty or NaN. Source: README of the trace, and Yang et al., "GPU-Disaggregated Serving for Deep
Learning Recommendation Models at Scale", NSDI 2025.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from steersman.cluster.model import (
    GPU_MILLI,
    Constraints,
    Node,
    Pod,
    PodAffinityTerm,
    PodClass,
    PodSelector,
    Requests,
    Requirement,
)
from steersman.cluster.node_labels import GIB, HOSTNAME
from steersman.core.counting import counted
from steersman.core.errors import InputError
from steersman.core.quantities import MAX_CPU_MILLI, MAX_MEMORY_BYTES, MAX_POD_GPUS
from steersman.workloads.formats.base import PodContent, TableFormat, twice
from steersman.workloads.formats.kubernetes.expansion import Expanded
from steersman.workloads.formats.tables import TableRow, read_text, rows

COLUMNS = (
    *("instance_sn", "role", "app_name", "cpu_request", "gpu_request", "memory_request", "disk_request"),
    *("max_instance_per_node", "creation_time", "deletion_time"),
)
"""Columns that a table must have."""
TITLE = "a table of gpu-v2025's instances"
ROLES = ("CN", "HN")
"""CPU nodes, and heterogeneous nodes, which have GPUs."""
NAMESPACE = "default"
NO_LIMIT = -1
MAX_CORES, MAX_GIB = MAX_CPU_MILLI // 1000, MAX_MEMORY_BYTES // GIB


@dataclass(frozen=True, slots=True)
class _Instance:
    """A row of a table.

    Attributes:
        pod: what is simulated of it.
        per_node: most instances of its application on a node, -1 without a limit.
        file, line: of the row.
    """

    pod: Pod
    per_node: int
    file: str
    line: int


class GpuV2025Content(PodContent):
    """Tables of instances.

    Args:
        files: the tables.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)

    def pods(self, nodes: Sequence[Node]) -> tuple[Sequence[Pod], Expanded | None]:
        """Return a pod for each instance, see `FormatContent`."""
        return [each.pod for each in self._instances], None

    def named_twice(self, name: str, nodes: Sequence[Node]) -> InputError | None:
        """Return the error of a name that two rows have, see `FormatContent`."""
        jobs = ((each.file, each.line, (each.pod,)) for each in self._instances)
        return twice(name, jobs, "instance_sn", "number them")

    def understood(self) -> str:
        """Return how many instances there are, and what is not known of them or not used; see `FormatContent`."""
        pods = [each.pod for each in self._instances]
        applications = len({pod.owner for pod in pods})
        roles = ", ".join(f"{sum(pod.labels['role'] == role for pod in pods)} {role}" for role in ROLES)
        early = sum(pod.creation_time == 0 for pod in pods)
        endless = sum(pod.deletion_time is None for pod in pods)
        limited = sum(each.per_node > 1 for each in self._instances)
        parts = (
            f"{counted(len(pods), 'instance')} of {counted(applications, 'application')} ({roles})",
            f"{early} there from the start" if early else "",
            f"{endless} without an end" if endless else "",
            "role, RDMA bandwidth and scheduled_time are not used",
            f"max_instance_per_node above 1 is not used ({limited})" if limited else "",
        )
        return ", ".join(filter(None, parts))

    @cached_property
    def _instances(self) -> list[_Instance]:
        return [instance for file in self.files for instance in _read(file)]


class GpuV2025Csv(TableFormat):
    """The format of cluster-trace-gpu-v2025, which has no nodes."""

    name = "gpu-v2025"
    title = "gpu-v2025 CSV"
    headers = ((TITLE, COLUMNS),)

    def has_header(self, columns: Set[str]) -> bool:
        """Return whether a header is that of a table of instances, see `TableFormat`."""
        return "instance_sn" in columns

    def open(self, files: Sequence[Path]) -> GpuV2025Content:
        """Return the instances of the files, see `WorkloadFormat`."""
        return GpuV2025Content(files)


def _read(file: Path) -> Iterator[_Instance]:
    """Yield the instances of a table in order. Raises InputError: a row is invalid, or there is none."""
    row = None
    for row in rows(str(file), read_text(file), COLUMNS, TITLE):
        per_node = _per_node(row)
        yield _Instance(_pod(row, per_node), per_node, row.file, row.line)
    if row is None:
        raise InputError(file, "", "", "has no instances, only a header")


def _pod(row: TableRow, per_node: int) -> Pod:
    role, application = row.name("role"), row.name("app_name")
    if role not in ROLES:
        raise row.error("role", f"{role!r} is unknown; expected {' or '.join(ROLES)}")
    created, deleted = _seconds(row, "creation_time") or 0.0, _seconds(row, "deletion_time")
    if deleted is not None and deleted < created:
        raise row.error("deletion_time", f"{deleted:g} is before the creation_time {created:g}")
    gpus = row.number("gpu_request", MAX_POD_GPUS)
    if gpus % 1:
        raise row.error("gpu_request", f"{gpus} is not a whole number of GPUs")
    requests = Requests(
        cpu_milli=math.ceil(row.number("cpu_request", MAX_CORES) * 1000),
        memory_bytes=math.ceil(row.number("memory_request", MAX_GIB) * GIB),
        ephemeral_bytes=math.ceil(row.number("disk_request", MAX_GIB) * GIB),
        gpu_count=int(gpus),
        gpu_milli=GPU_MILLI if gpus else 0,
    )
    return Pod(
        row.name("instance_sn"),
        # Anti-affinity can demand one per node; Kubernetes has no constraint for two or more.
        PodClass(requests, _one_per_node(application) if per_node == 1 else Constraints()),
        namespace=NAMESPACE,
        labels={"app": application, "role": role},
        owner=f"Application/{application}",
        creation_time=created,
        deletion_time=deleted,
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


def _one_per_node(application: str) -> Constraints:
    selector = PodSelector((Requirement("app", "In", (application,)),), frozenset([NAMESPACE]))
    return Constraints(anti_affinity=(PodAffinityTerm(selector, HOSTNAME),))
