"""Files of other projects: experiments of simulators, and recordings of a scheduler."""

from __future__ import annotations

import io
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from steersman.cluster.model import Node, PodClass, Requests
from steersman.core.errors import InputError
from steersman.core.extensions import Registry
from steersman.workloads.formats.tables import TableRow, delimiter_of, read_text, rows_of
from steersman.workloads.generators.deployments import CONTROL_PLANE, cluster
from steersman.workloads.topology import Hierarchy, label_nodes
from steersman.workloads.workload import Workload

# Experiments that files of other simulators describe: a cluster, its pods, and the policy to place them with. A package
# adds a kind by an entry point of the group `steersman.experiments` that leads to an `ExperimentFormat`.


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentCluster(ABC):
    """A cluster and what to do with its workload."""

    file: str  # where it was read from, for errors
    shuffle_pods: bool  # whether pods arrive in random order (by `seed`) instead of in that of the workload
    ratio: float  # GPU demand to tune the workload to, as a share of the cluster's GPUs; 0 leaves the workload as it is
    seed: int  # seed of shuffling and tuning
    cpu_pods_typical: bool  # whether pods without GPUs are part of the profile
    popularity_percent: int  # how much of the workload the typical pods must cover
    warnings: tuple[str, ...] = ()  # settings that have no effect here

    @abstractmethod
    def load(self) -> Workload:
        """Return the workload. Raises InputError: a file of it is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentScheduler(ABC):
    """What decides in an experiment."""

    file: str
    warnings: tuple[str, ...] = ()

    @abstractmethod
    def policy(self, own: str | None = None) -> str:
        """Return the policy as `--policy` takes it; `own` is the user's, for a scheduler that asks one."""


@dataclass(frozen=True, slots=True)
class ExperimentFormat:
    """A kind of files that describe experiments; `read` reads the cluster's, and the scheduler's if there is one."""

    name: str
    read: Callable[[Path, Path | None], tuple[ExperimentCluster, ExperimentScheduler | None]]


EXPERIMENT_FORMATS: Registry[ExperimentFormat] = Registry(
    "format of experiments", "steersman.experiments", ExperimentFormat
)


# AAML's recordings of a scheduler, `sched_*.csv`: the pods that were bound, and what was in use on each node. A row is
# a pod that was bound: `pod_name,action,reward,done,cpu_request,memory_request,cpu_usage_node_0,...`. The usage in it
# was read after the pod was bound, often after its whole Deployment was.

COLUMNS = ("pod_name", "action", "reward", "done", "cpu_request", "memory_request")
NODE_COLUMN = re.compile(r"(cpu_usage|memory_usage|pod_count)_node_(0|[1-9][0-9]{0,3})")
USAGE, MEMORY_USAGE, POD_COUNT = "cpu_usage_node_{}", "memory_usage_node_{}", "pod_count_node_{}"
CORES_BELOW, GIB_BELOW = 100, 100
"""Requests below these are cores and GiB, others milli-CPU and MiB: AAML wrote quantities without their units."""
NODE_CPU, NODE_MEMORY, NODE_PODS, SERVERS_PER_RACK = 64, "256Gi", 110, 4
"""Nodes of AAML's clusters, and racks as in the environment `Deployments-v0`."""
FREE_FROM = 0.5  # mean usage in the first row from which the columns are free shares; AAML's own recordings have these
CLEARED_SHARE = 0.5  # the cluster was cleared where less than this share of the CPU that its pods request is in use
CLEARED_PODS = 20  # pods of which the recorded usage may lag behind, or be ahead of, the row that it is in


@dataclass(frozen=True, slots=True)
class RecordedBinding:
    """A row: a pod that was bound.

    `node` is the action: the index of its node. `usage` and `memory_usage` are recorded shares of each node's CPU and
    memory, in use or free, and `pods` its numbers of pods; the latter two are empty where the file has no such columns.
    """

    line: int
    name: str
    node: int
    reward: float
    done: bool
    cpu_milli: int
    memory_bytes: int
    usage: tuple[float, ...]
    memory_usage: tuple[float, ...] = ()
    pods: tuple[float, ...] = ()

    @property
    def owner(self) -> str:
        """Name of its Deployment: that of the pod without the suffixes of ReplicaSet and pod."""
        return self.name.rsplit("-", 2)[0]


def read_bindings(file: Path) -> list[RecordedBinding]:
    """Read a recording. Raises InputError: names file, line and column."""
    text = read_text(file)
    return parse_bindings(file, io.StringIO(text, newline=""), delimiter_of(text))


def parse_bindings(file: Path, lines: Iterable[str], delimiter: str = ",") -> list[RecordedBinding]:
    """Return the rows of a recording; `file` is only named in errors. Raises InputError: see `read_bindings`."""
    rows = [_row(row) for row in rows_of(str(file), lines, delimiter, partial(_columns, file))]
    if not rows:
        raise InputError(file, "", "", "has no pods, only a header")
    return rows


def clearings(rows: Sequence[RecordedBinding]) -> list[int]:
    """Return the positions of the rows before which the cluster was cleared."""
    positions, requested, is_free = [], 0.0, has_free_shares(rows)
    for i, row in enumerate(rows):
        if requested > CLEARED_PODS and cpu_usage_cores(row, is_free) < CLEARED_SHARE * requested:
            positions.append(i)
            requested = 0.0
        requested += row.cpu_milli / 1000
    return positions


def has_free_shares(rows: Sequence[RecordedBinding]) -> bool:
    return bool(np.mean(rows[0].usage) > FREE_FROM)


def cpu_usage_cores(row: RecordedBinding, is_free: bool) -> float:
    """Return the cores that a row says to be in use on all nodes, see `has_free_shares`."""
    used = [1 - share for share in row.usage] if is_free else row.usage
    return float(np.mean(used)) * NODE_CPU * len(row.usage)


def recorded_nodes(rows: Sequence[RecordedBinding]) -> tuple[Node, ...]:
    """Return the nodes of a recording; AAML's clusters had equal ones."""
    nodes = cluster(len(rows[0].usage), cpu=str(NODE_CPU), memory=NODE_MEMORY, pods=NODE_PODS)
    return label_nodes(tuple(node for node in nodes if node.name != CONTROL_PLANE), Hierarchy(SERVERS_PER_RACK))


def recorded_class(row: RecordedBinding) -> PodClass:
    return PodClass(Requests(row.cpu_milli, row.memory_bytes, cpu_nonzero_milli=row.cpu_milli))


def _columns(file: Path, first: Iterator[list[str]]) -> list[str]:
    """Return the header. Raises InputError: it is another one."""
    header = [cell.strip() for cell in next(first, [])]
    right = f"expected {','.join(COLUMNS)},{USAGE.format(0)},..."
    for column in COLUMNS:
        if header.count(column) != 1:
            problem = "column is missing" if column not in header else "column appears twice"
            raise InputError(file, "line 1", column, f"{problem}; {right}")
    others = [column for column in header if column not in COLUMNS]
    for column in others:
        if not NODE_COLUMN.fullmatch(column) or others.count(column) > 1:
            problem = "column appears twice" if others.count(column) > 1 else "column is unknown"
            raise InputError(file, "line 1", column, f"{problem}; {right}")
    usage = [column for column in others if column.startswith("cpu_usage")]
    for i in range(max(1, len(usage))):
        if USAGE.format(i) not in usage:
            raise InputError(file, "line 1", USAGE.format(i), f"column is missing; {right}")
    return header


def _row(stated: TableRow) -> RecordedBinding:
    row, error = stated.cells, stated.error
    nodes = sum(column.startswith("cpu_usage") for column in row)

    def number(column: str, check: Callable[[float], bool], right: str) -> float:
        try:
            value = float(row[column])
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and check(value)):
            raise error(column, f"{row[column]!r} is wrong; expected {right}")
        return value

    def whole(column: str, low: int, high: int) -> int:
        right = f"a whole number from {low} to {high}"
        return int(number(column, lambda value: low <= value <= high and value == int(value), right))

    for column in row:
        if NODE_COLUMN.fullmatch(column):
            number(column, lambda value: value >= 0, "a number of 0 or more")
    usage = tuple(
        number(USAGE.format(i), lambda value: value <= 1, "a share of the node's CPU, 0 to 1,") for i in range(nodes)
    )

    def each_node(column: str) -> tuple[float, ...]:
        if any(column.format(i) not in row for i in range(nodes)):
            return ()
        return tuple(float(row[column.format(i)]) for i in range(nodes))

    if not row["pod_name"] or not row["pod_name"].isprintable():
        raise error("pod_name", f"{row['pod_name']!r} is wrong; expected the name of a pod")
    cpu, memory = whole("cpu_request", 0, 1_000_000), whole("memory_request", 0, 10_000_000)
    return RecordedBinding(
        line=stated.line,
        name=row["pod_name"],
        node=whole("action", 0, nodes - 1),
        reward=number("reward", lambda value: abs(value) < 1e9, "a number"),
        done=bool(whole("done", 0, 1)),
        cpu_milli=cpu * 1000 if cpu < CORES_BELOW else cpu,
        memory_bytes=memory << 30 if memory < GIB_BELOW else memory << 20,
        usage=usage,
        memory_usage=each_node(MEMORY_USAGE),
        pods=each_node(POD_COUNT),
    )
