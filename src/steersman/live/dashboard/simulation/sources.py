"""Where simulated runs come from: they were simulated just now, or `simulate` wrote them to a folder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Node, Pod
from steersman.core.errors import InputError, SteersmanError
from steersman.evaluation.replay_file import REPLAY, ReplayFile, decode_replay, policy_fingerprint
from steersman.evaluation.results import PLACEMENTS, PLACEMENTS_COLUMNS, TIMELINE, timeline_columns
from steersman.live.dashboard.runs import FoundRun, cell_number, parse_growing, rows_of
from steersman.live.dashboard.simulation.document import OUTCOMES, RecordedRun, pod_names
from steersman.policies.base import Policy
from steersman.policies.registry import resolve
from steersman.simulation.measures import COURSE
from steersman.simulation.result import Curve, Placements, RunResult
from steersman.workloads.experiments import RecordedBinding, clearings, parse_bindings, recorded_class, recorded_nodes
from steersman.workloads.profile import TypicalPod
from steersman.workloads.workload import Workload

DEVICES = re.compile(r"[0-9]{1,2}(-[0-9]{1,2})*")
NOW = "now"  # where runs are that were not read from a folder
POLICY = "as recorded"


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run with all of its events; without a profile it has that of its workload."""

    workload: Workload
    result: RunResult | RecordedRun
    profile: Sequence[TypicalPod] | None = None


class RunEntry(msgspec.Struct):
    """A run in the list; `problem` says why it cannot be shown, and runs of equal `arrivals` can be compared."""

    name: str
    policy: str = ""
    workload: str = ""
    protocol: str = ""
    seed: int = 0
    arrivals: str = ""
    problem: str = ""


class RunSource(Protocol):
    """A run that can be loaded."""

    name: str

    def version(self) -> str:
        """Return a text that changes when the run does. Raises SteersmanError: it cannot be read."""

    def describe(self) -> RunEntry:
        """Return what a list says of the run. Raises SteersmanError: it cannot be read."""

    def load(self) -> LoadedRun:
        """Return the run. Raises SteersmanError: it cannot be read."""

    def open_policy(self) -> Policy:
        """Return the policy. Raises SteersmanError: it cannot be had, and why."""


class SimulatedRun:
    """A run that was simulated just now."""

    def __init__(self, workload: Workload, policy: Policy, result: RunResult, arrivals: str = NOW) -> None:
        self.name = NOW
        self._workload, self._policy, self._result, self._arrivals = workload, policy, result, arrivals

    def version(self) -> str:
        """Return nothing: the run does not change."""
        return ""

    def describe(self) -> RunEntry:
        """Return what a list says of the run."""
        result = self._result
        return RunEntry(self.name, result.policy, result.workload, result.protocol, result.seed, self._arrivals)

    def load(self) -> LoadedRun:
        return LoadedRun(self._workload, self._result)

    def open_policy(self) -> Policy:
        return self._policy


class FolderRun:
    """A run in a folder of `simulate`."""

    def __init__(self, run: FoundRun) -> None:
        self.name, self._run = run.name, run

    def version(self) -> str:
        """Return a text that changes when the run's files do. Raises InputError: one cannot be read."""
        return " ".join(self._run.version(name) for name in (REPLAY, PLACEMENTS, TIMELINE))

    def describe(self) -> RunEntry:
        """Return what a list says of the run."""
        content = self._read()
        return RunEntry(self.name, content.policy, content.workload, content.protocol, content.seed, content.arrivals())

    def load(self) -> LoadedRun:
        content = self._read()
        with self._run.wrapped_read_errors():
            workload = content.load_workload()
            placements = _placements(self._run, workload)
            timeline = _timeline(self._run, content.protocol == "timed")
        if len(placements.time) != len(timeline.x):
            problem = f"has {len(timeline.x)} events, and {PLACEMENTS} has {len(placements.time)}; simulate it again"
            raise InputError(self._run.folder / TIMELINE, "", "", problem)
        run = RecordedRun(content.policy, content.protocol, content.seed, placements, timeline)
        return LoadedRun(workload, run, content.profile)

    def open_policy(self) -> Policy:
        """Return the policy, if it is one of steersman's own or a policy file with the same content.

        Code and servers that a folder names are not run and not asked: the folder may be another person's.
        """
        content = self._read()
        option = content.policy_option
        if "://" in option or (":" in option and not option.endswith(".safetensors")):
            raise SteersmanError(
                f"{option} decided; code and servers that a folder names are neither run nor asked for reasons"
            )
        try:
            found = policy_fingerprint(option)
            policy = resolve(option)
        except SteersmanError as error:
            raise SteersmanError(f"there are no reasons without the policy: {error}") from None
        if found != content.policy_fingerprint:
            raise SteersmanError(f"{option} is another policy now than the one that decided, so there are no reasons")
        return policy

    def _read(self) -> ReplayFile:
        with self._run.wrapped_read_errors(), self._run.open(REPLAY) as file:
            return decode_replay(self._run.folder / REPLAY, file)


def _placements(run: FoundRun, workload: Workload) -> Placements:
    pods, nodes = set(pod_names(workload)), {node.name: node.gpu_count for node in workload.nodes} | {"": 0}
    times: list[float] = []
    cells: list[list[str]] = []
    running: dict[str, int] = {}
    for line, (event, time, *row) in rows_of(run, PLACEMENTS, PLACEMENTS_COLUMNS):
        problem = _problem_of(row, pods, nodes)
        if event != str(len(times)):
            problem = f"event {event[:40]!r}; expected {len(times)}"
        running[row[0]] = running.get(row[0], 0) + (row[3] == "bound") - (row[3] in ("finished", "evicted"))
        if running[row[0]] < 0:
            left = "finished" if row[3] == "finished" else "was evicted"
            problem = f"pod {row[0][:80]!r} {left}, and was not bound before"
        if problem:
            raise InputError(run.folder / PLACEMENTS, f"line {line}", "", problem)
        times.append(cell_number(run, PLACEMENTS, line, "time", time))
        cells.append(row)
    if not times:
        raise InputError(run.folder / PLACEMENTS, "", "", "has no event; expected a run with pods")
    pod, node, devices, outcome, reason = (list(column) for column in zip(*cells, strict=True))
    return Placements(np.array(times), pod, node, devices, outcome, reason)


def _problem_of(row: Sequence[str], pods: Collection[str], nodes: Mapping[str, int]) -> str:
    """Return what is wrong with an event of `placements.csv`, "" if nothing is."""
    pod, node, devices, outcome, _ = row
    if pod not in pods:
        return f"pod {pod[:80]!r} is not in {REPLAY}"
    if node not in nodes:
        return f"node {node[:80]!r} is not in {REPLAY}"
    if devices and not (DEVICES.fullmatch(devices) and max(map(int, devices.split("-"))) < nodes[node]):
        return f"devices {devices[:40]!r} are none of the node's {nodes[node]}"
    if outcome not in OUTCOMES:
        return f"outcome {outcome[:40]!r}; expected one of {', '.join(OUTCOMES)}"
    return f"outcome {outcome} without a node" if outcome in ("bound", "finished", "evicted") and not node else ""


def _timeline(run: FoundRun, timed: bool) -> Curve:
    columns = timeline_columns("timed" if timed else "inflation")
    values = [
        [cell_number(run, TIMELINE, line, name, cell) for name, cell in zip(columns, row, strict=True)]
        for line, row in rows_of(run, TIMELINE, columns)
    ]
    _, time, *measured = np.array(values, dtype=np.float64).reshape(-1, len(columns)).T
    names = (each.name for each in COURSE.values() if each.in_timeline)
    return Curve(time, dict(zip(names, measured, strict=True)))


class RecordingRun:
    """A recording of a scheduler, see `RunSource`."""

    def __init__(self, run: FoundRun) -> None:
        self.name, self._run = run.name, run

    def version(self) -> str:
        """Return a text that changes with the file. Raises InputError: it cannot be read."""
        return self._run.version(self._run.table)

    def describe(self) -> RunEntry:
        """Return what a list says of the run. Raises InputError: it is damaged."""
        self._rows()
        return RunEntry(self.name, POLICY, self.name, "recorded", 0, self._run.id)

    def load(self) -> LoadedRun:
        """Return the run. Raises InputError: it is damaged."""
        rows = self._rows()
        nodes, names = recorded_nodes(rows), _deduplicated_names([row.name for row in rows])
        pods = tuple(Pod(name, recorded_class(row)) for name, row in zip(names, rows, strict=True))
        placements, cpu = _events(rows, names, nodes)
        timeline = Curve(placements.time, {"cpu_allocation_percent": cpu})
        run = RecordedRun(POLICY, "recorded", 0, placements, timeline)
        return LoadedRun(Workload(self.name, nodes, pods), run, ())

    def open_policy(self) -> Policy:
        """Raise SteersmanError: the file does not say which policy decided."""
        raise SteersmanError("a recording does not say which policy decided, so there are no reasons")

    def _rows(self) -> Sequence[RecordedBinding]:
        with self._run.wrapped_read_errors():
            return parse_growing(self._run, self._run.table, parse_bindings)


def _events(
    rows: Sequence[RecordedBinding], names: Sequence[str], nodes: Sequence[Node]
) -> tuple[Placements, npt.NDArray[np.float64]]:
    """Return bindings and, where the cluster was cleared, ends; and the requested share of all CPU after each."""
    cells: list[tuple[float, str, str, str]] = []
    cpu: list[float] = []
    open_rows: list[int] = []
    cleared, whole, requested = set(clearings(rows)), sum(node.cpu_milli for node in nodes), 0
    for i, row in enumerate(rows):
        if i in cleared:
            for other in open_rows:
                requested -= rows[other].cpu_milli
                cells.append((float(i), names[other], nodes[rows[other].node].name, "finished"))
                cpu.append(100.0 * requested / whole)
            open_rows.clear()
        open_rows.append(i)
        requested += row.cpu_milli
        cells.append((float(i), names[i], nodes[row.node].name, "bound"))
        cpu.append(100.0 * requested / whole)
    time, pod, node, outcome = (list(column) for column in zip(*cells, strict=True))
    nothing = [""] * len(cells)
    return Placements(np.array(time), pod, node, nothing, outcome, nothing), np.array(cpu)


def _deduplicated_names(names: Sequence[str]) -> list[str]:
    seen = Counter[str]()
    result = []
    for name in names:
        seen[name] += 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result
