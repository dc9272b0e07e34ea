"""AAML's recordings of a scheduler, `sched_*.csv`, as transitions of the view `cluster`.

A row is a pod that was bound: `pod_name,action,reward,done,cpu_request,memory_request,cpu_usage_node_0,...`. The usage
in it was read after the pod was bound, often after its whole Deployment was, so it is not what was seen before the
decision. The pods are placed again, one after the other, and observed before each; the usage only says where the
cluster was cleared in between, and whether the recording began with an empty one.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from steersman.agents.networks.tensors import Arrays, stack
from steersman.cluster.model import Pod, PodClass, Requests
from steersman.cluster.owner_pods import OwnerPods
from steersman.cluster.state import ClusterState
from steersman.core.errors import InputError, SteersmanError
from steersman.policies.base import ScoreQuery
from steersman.policies.decision.decider import Decider
from steersman.policies.features import CLUSTER
from steersman.policies.heuristics.policy import heuristic
from steersman.workloads.files import CSV_SUFFIXES
from steersman.workloads.formats.openb.traces import csv_error, read_text
from steersman.workloads.generators.deployments import CONTROL_PLANE, cluster
from steersman.workloads.profile import typical_pods
from steersman.workloads.topology import Hierarchy, label_nodes

COLUMNS = ("pod_name", "action", "reward", "done", "cpu_request", "memory_request")
NODE_COLUMN = re.compile(r"(cpu_usage|memory_usage|pod_count)_node_(0|[1-9][0-9]{0,3})")
USAGE = "cpu_usage_node_{}"
SUFFIXES = CSV_SUFFIXES
CORES_BELOW, GIB_BELOW = 100, 100
"""Requests below these are cores and GiB, others milli-CPU and MiB: AAML wrote quantities without their units."""
NODE_CPU, NODE_MEMORY, NODE_PODS, SERVERS_PER_RACK = 64, "256Gi", 110, 4
"""Nodes of AAML's clusters, and racks as in the environment `Deployments-v0`."""
FREE_FROM = 0.5
"""Mean usage in the first row from which the columns are free shares; AAML's own recordings have these."""
CLEARED_SHARE = 0.5
"""The cluster was cleared where less than this share of the CPU that its pods request is in use."""
CLEARED_PODS = 20
"""Pods of which the recorded usage may lag behind, or be ahead of, the row that it is in."""
MOST_UNEXPLAINED = 0.25
"""Share of a cluster's CPU that its last row may have in use beyond what the pods before it request, or below."""


@dataclass(frozen=True, slots=True)
class RecordedBinding:
    """A row: a pod that was bound.

    Attributes:
        line: its line in the file.
        name: name of the pod.
        node: index of its node, the action.
        reward: as recorded.
        done: whether it was the last pod of its Deployment.
        cpu_milli, memory_bytes: its requests.
        usage: recorded share of each node's CPU, in use or free.
    """

    line: int
    name: str
    node: int
    reward: float
    done: bool
    cpu_milli: int
    memory_bytes: int
    usage: tuple[float, ...]

    @property
    def owner(self) -> str:
        """Name of its Deployment: that of the pod without the suffixes of ReplicaSet and pod."""
        return self.name.rsplit("-", 2)[0]


@dataclass(frozen=True, slots=True)
class SchedulerTransitions:
    """Transitions [B, ...], see `buffers.recording.Recording`."""

    before: Arrays
    actions: npt.NDArray[np.int64]
    rewards: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    after: Arrays


def is_scheduler_csv(file: Path) -> bool:
    """Return whether a file is one of AAML's by its name; other recordings are archives of arrays."""
    return file.name.endswith(SUFFIXES)


def read_bindings(file: Path) -> list[RecordedBinding]:
    """Read a recording. Raises InputError: names file, line and column."""
    reader = csv.reader(io.StringIO(read_text(file), newline=""), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        nodes = _check_header(file, header)
        rows = []
        for cells in reader:
            if not cells:
                continue
            where = f"line {reader.line_num}"
            if len(cells) != len(header):
                raise InputError(file, where, "", f"has {len(cells)} cells where the header has {len(header)}")
            row = dict(zip(header, (cell.strip() for cell in cells), strict=True))
            rows.append(_row(file, reader.line_num, row, nodes))
    except csv.Error as error:
        raise csv_error(file, reader.line_num, error) from None
    if not rows:
        raise InputError(file, "", "", "has no pods, only a header")
    return rows


def read_transitions(file: Path) -> SchedulerTransitions:
    """Return the transitions of a recording.

    Rewards are the recorded ones. A transition ends an episode where `done` is 1, and where the cluster was cleared.
    The last row is left out unless it is done: nothing followed it.

    Raises:
        InputError: the file is malformed, a pod does not fit on its node, or the usage contradicts the pods.
    """
    rows = read_bindings(file)
    is_free = bool(np.mean(rows[0].usage) > FREE_FROM)
    cores = NODE_CPU * len(rows[0].usage)
    play = _Replay(rows)
    seen: list[Arrays] = []
    terminated = [row.done for row in rows]
    for i, row in enumerate(rows):
        used = float(np.mean([1 - share if is_free else share for share in row.usage])) * cores
        if play.cores > CLEARED_PODS and used < CLEARED_SHARE * play.cores:
            play = _Replay(rows)
            terminated[i - 1] = True
        try:
            seen.append(play.bind(row))
        except SteersmanError as error:
            raise InputError(file, f"line {row.line}", "action", str(error)) from None
    if abs(used - play.cores) > max(MOST_UNEXPLAINED * cores, CLEARED_PODS):
        problem = (
            f"{used:.0f} of {cores} CPUs are in use, and the pods before request {play.cores:.0f}; a recording that "
            f"begins with an empty cluster of nodes with {NODE_CPU} CPUs is right"
        )
        raise InputError(file, f"line {rows[-1].line}", USAGE.format(0), problem)
    count = len(rows) if terminated[-1] else len(rows) - 1
    if not count:
        raise InputError(file, f"line {rows[-1].line}", "done", "is 0 in the only row; two that follow are needed")
    return SchedulerTransitions(
        before=stack(seen[:count]),
        actions=np.array([row.node for row in rows[:count]], dtype=np.int64),
        rewards=np.array([row.reward for row in rows[:count]], dtype=np.float32),
        terminated=np.array(terminated[:count], dtype=np.bool_),
        after=stack([*seen[1:], seen[-1]][:count]),
    )


class _Replay:
    """A cluster that the recorded pods are placed in again.

    Attributes:
        cores: CPU that its pods request.
    """

    def __init__(self, rows: list[RecordedBinding]) -> None:
        nodes = len(rows[0].usage)
        workers = cluster(nodes, cpu=str(NODE_CPU), memory=NODE_MEMORY, pods=NODE_PODS)
        workers = tuple(node for node in workers if node.name != CONTROL_PLANE)
        self._state = ClusterState(label_nodes(workers, Hierarchy(SERVERS_PER_RACK)))
        classes = {row: _class(row) for row in rows}
        for each in classes.values():
            self._state.class_id(each)
        profile = typical_pods(Pod(row.name, each) for row, each in classes.items())
        self._decider = Decider(self._state, heuristic("best-fit"), profile=profile)
        self._observations = self._decider.observations(CLUSTER)
        self._owners: dict[str, Counter[int]] = {}
        self.cores = 0.0

    def bind(self, row: RecordedBinding) -> Arrays:
        """Return the observation before a pod is bound, and bind it. Raises SteersmanError: it does not fit."""
        state, c = self._state, self._state.class_id(_class(row))
        here = self._owners.setdefault(row.owner, Counter())
        feasible = state.mask(c)
        if not feasible[row.node]:
            raise SteersmanError(
                f"node {row.node} has no capacity left for this pod; nodes of {NODE_CPU} CPUs, {NODE_MEMORY} and "
                f"{NODE_PODS} pods, empty at the start, are assumed"
            )
        self._decider.follow()
        every = np.ones_like(feasible)
        seen, groups = self._observations.observe(ScoreQuery(c, feasible, every, owner_pods=OwnerPods(dict(here))))
        parts = {"nodes": seen.nodes, "pod": seen.pod, "context": seen.context, "mask": seen.mask, "groups": groups}
        result = {name: np.array(part) for name, part in parts.items()}
        state.place(f"{len(state.placements)}", c, row.node)
        self._decider.changed(row.node)
        here[row.node] += 1
        self.cores += row.cpu_milli / 1000
        return result


def _class(row: RecordedBinding) -> PodClass:
    requests = Requests(row.cpu_milli, row.memory_bytes, cpu_nonzero_milli=row.cpu_milli)
    return PodClass(requests)


def _check_header(file: Path, header: list[str]) -> int:
    """Return the number of nodes. Raises InputError: the header is another one."""
    right = f"{','.join(COLUMNS)},{USAGE.format(0)},... is right"
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
    return len(usage)


def _row(file: Path, line: int, row: Mapping[str, str], nodes: int) -> RecordedBinding:
    def number(column: str, check: Callable[[float], bool], right: str) -> float:
        try:
            value = float(row[column])
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and check(value)):
            raise InputError(file, f"line {line}", column, f"{row[column]!r} is wrong; {right} is right")
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
    if not row["pod_name"] or not row["pod_name"].isprintable():
        raise InputError(file, f"line {line}", "pod_name", f"{row['pod_name']!r} is wrong; the name of a pod is right")
    cpu, memory = whole("cpu_request", 0, 1_000_000), whole("memory_request", 0, 10_000_000)
    return RecordedBinding(
        line=line,
        name=row["pod_name"],
        node=whole("action", 0, nodes - 1),
        reward=number("reward", lambda value: abs(value) < 1e9, "a number"),
        done=bool(whole("done", 0, 1)),
        cpu_milli=cpu * 1000 if cpu < CORES_BELOW else cpu,
        memory_bytes=memory << 30 if memory < GIB_BELOW else memory << 20,
        usage=usage,
    )
