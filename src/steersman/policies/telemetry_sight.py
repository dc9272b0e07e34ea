"""What the rules of telemetry see of a cluster that lives: `Seen`, out of requests, measured values and a pod's limits.

It is the `Seen` of one environment, so that the rules and the filter of hard limits are the same code as in simulation.
A slot is a node, and every node is a zone of its own: its latency is its own, whatever its neighbours' are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, PODS, ClassArrays, NodeArrays
from steersman.cluster.latency import NO_LIMITS, LatencyLimits
from steersman.cluster.state import ClusterState
from steersman.policies.telemetry_estimates import USE_PRIOR
from steersman.policies.telemetry_filter import KEPT, KEPT_SAFELY, NO_LIMIT, NOT_KEPT, NOT_MEASURED, keep_measured_limit
from steersman.policies.telemetry_rules import score_all
from steersman.telemetry.model import (
    CONNECTIONS,
    CPU_USED,
    LATENCY,
    METRICS,
    NETWORK_RECEIVED,
    PODS_SINCE,
    REQUESTED_SINCE,
    Seen,
)
from steersman.telemetry.prometheus.configuration import Assumptions, Configuration
from steersman.telemetry.prometheus.readings import ALL_USERS, Measured, Readings

CPU_WINDOW = 15.0
"""Seconds over which the CPU metric is thought to be an average: `irate` takes the last two samples."""
HISTORY_SECONDS = 600.0
LOOK_SECONDS = 1.0
"""For which values stay as they are, unless new ones come: so late may one be found to be stale."""
OUTCOMES = {KEPT_SAFELY: "kept safely", KEPT: "kept", NOT_KEPT: "kept by no node", NOT_MEASURED: "not measured"}
"""What is counted of pods with a hard limit, see `telemetry_filter.NO_LIMIT`."""
NOBODY: Mapping[int, int] = {}

Floats = npt.NDArray[np.float64]


class Telemetry(Protocol):
    """Where measured values come from.

    Attributes:
        readings: the newest.
        configuration: what they mean.
        clock: monotonic seconds, of which their times are.
        limits: decisions by what became of the pod's hard limit.
    """

    readings: Readings
    configuration: Configuration
    clock: Callable[[], float]
    limits: Counter[str]


class Sight:
    """What there is to see of a cluster.

    Args:
        state: the cluster; whoever changes a node of it says so by `changed`.
        telemetry: measured values; None: there are none.
    """

    def __init__(self, state: ClusterState, telemetry: Telemetry | None = None) -> None:
        self.state, self.telemetry = state, telemetry
        self._history: dict[int, History] = {}
        self._first = (-np.inf if telemetry is None else telemetry.clock(), *_asked(state.arrays))
        self._names = _names(state)
        self._raw: tuple[Floats, Floats] | None = None
        self._measured: Measured | None = None
        self._version, self._looked = -1, -np.inf
        self._seen: Seen | None = None

    def changed(self, slot: int) -> None:
        """A pod came to a node or left it, or the node is another."""
        if self.telemetry is None:
            return
        node = self.state.nodes[slot]
        if slot >= len(self._names) or self._names[slot] != (None if node is None else node.name):
            self._raw = None
            self._history[slot] = History()
        if slot not in self._history:
            time, first_requested, first_pods = self._first
            self._history[slot] = History()
            self._history[slot].note(time, float(first_requested[slot]), float(first_pods[slot]))
        nodes = self.state.arrays
        requested = float(nodes.allocatable[slot, CPU] - nodes.free[slot, CPU])
        pods = float(nodes.allocatable[slot, PODS] - nodes.free[slot, PODS])
        self._history[slot].note(self.telemetry.clock(), requested, pods)

    def scores(
        self,
        rule: int,
        class_id: int,
        feasible: npt.NDArray[np.bool_],
        peers: Mapping[int, int] = NOBODY,
        limits: LatencyLimits = NO_LIMITS,
    ) -> Floats:
        """[N] what a rule thinks of every slot for a pod, -inf where it may not run.

        Args:
            rule: its number.
            class_id: of the pod.
            feasible: [N] where it may run.
            peers: slot -> how many pods of its owner run there.
            limits: how far it may be from its users.
        """
        scores = np.empty(len(feasible))
        score_all(rule, self._show(class_id, peers, limits), feasible.astype(np.int8)[None], 0, scores)
        return scores

    def keep_limit(
        self,
        class_id: int,
        feasible: npt.NDArray[np.bool_],
        peers: Mapping[int, int],
        limits: LatencyLimits,
        *,
        decides: bool = True,
    ) -> npt.NDArray[np.bool_]:
        """[N] the feasible slots that a pod's hard limit leaves, see `telemetry_filter`.

        Args:
            class_id: of the pod.
            feasible: [N] where it may run.
            peers: slot -> how many pods of its owner run there.
            limits: how far it may be from its users.
            decides: whether this is a decision, so that what became of the limit is to be counted.
        """
        mask: npt.NDArray[np.int8] = feasible.astype(np.int8)[None]
        outcome = keep_measured_limit(self._show(class_id, peers, limits), mask, 0)
        if decides and self.telemetry is not None and outcome != NO_LIMIT:
            self.telemetry.limits[OUTCOMES[outcome]] += 1
        left: npt.NDArray[np.bool_] = mask[0] != 0
        return left

    def parts(
        self,
        rule: int,
        class_id: int,
        feasible: npt.NDArray[np.bool_],
        peers: Mapping[int, int],
        limits: LatencyLimits,
        pair: tuple[int, int],
    ) -> list[tuple[str, float, float, float]]:
        """What tells two feasible slots apart: name, the value of each, by how much the first's score is higher for it.

        That is by how much it falls if this value alone is as on the other one.
        """
        seen, scores = self._show(class_id, peers, limits), np.empty(len(feasible))
        mask: npt.NDArray[np.int8] = feasible.astype(np.int8)[None]

        def score(changed: Seen) -> float:
            score_all(rule, changed, mask, 0, scores)
            return float(scores[pair[0]])

        now = score(seen)
        return [(name, value, instead, now - score(changed)) for name, value, instead, changed in _alike(seen, *pair)]

    # -----------------------------------------------------------------------------------------------------------------

    def _show(self, class_id: int, peers: Mapping[int, int], limits: LatencyLimits) -> Seen:
        """What is seen for one pod."""
        values, since, users = self._values()
        nodes, classes = _writable(self.state.arrays), self.state.class_arrays
        count = len(nodes.allocatable)
        if self._seen is None or self._seen.zone.shape[1] != count:
            self._seen = _room(count, nodes, classes, self._assumptions())
        seen = self._seen
        seen.counts[0] = count, 0
        seen.siblings[0] = 0
        for slot, number in peers.items():
            seen.siblings[0, slot] = number
        column = users.get(limits.user, values.shape[1] - 1 - LATENCY) if limits.user else ALL_USERS
        seen.user[0, 0] = column if limits.limited else -1
        seen.limit[0, 0] = limits.soft, limits.hard
        one = slice(class_id, class_id + 1)
        pod = ClassArrays(
            **{name: array[one] if name != "allowed" else array for name, array in classes._asdict().items()}
        )
        return seen._replace(nodes=nodes, pods=pod, measured=values[None], age=values[None], since=since[None])

    def _values(self) -> tuple[Floats, Floats, Mapping[str, int]]:
        """[N, M] values with what stands for those that are missing, [N, 2] what came since, the columns of users.

        The last column of the values is never known: it is for users that nobody measures the latency to.
        """
        requested, pods = _asked(self.state.arrays)
        values, since = np.full((len(requested), LATENCY + 2), np.nan), np.zeros((len(requested), 2))
        users: Mapping[str, int] = {}
        if (measured := self._look()) is not None:
            unknown = np.full((len(requested), 1), np.nan)
            values, users = np.hstack([measured.values, unknown]), measured.users
            since[:, REQUESTED_SINCE] = np.nan_to_num(requested - self._then[:, REQUESTED_SINCE])
            since[:, PODS_SINCE] = np.nan_to_num(pods - self._then[:, PODS_SINCE])
        if np.isnan(values[:, CPU_USED]).all():
            with np.errstate(invalid="ignore", divide="ignore"):
                values[:, CPU_USED] = 100.0 * USE_PRIOR * requested / self.state.arrays.allocatable[:, CPU]
        if np.isnan(values[:, CONNECTIONS]).all():
            values[:, CONNECTIONS] = pods
        if np.isnan(values[:, NETWORK_RECEIVED]).all():
            values[:, NETWORK_RECEIVED] = 0.0
        return values, since, users

    def _look(self) -> Measured | None:
        """The measured values; None: there is no telemetry."""
        if self.telemetry is None:
            return None
        readings, now = self.telemetry.readings, self.telemetry.clock()
        count = len(self.state.arrays.allocatable)
        if self._raw is None or readings.version != self._version or len(self._raw[0]) != count:
            self._names = _names(self.state)
            self._raw, self._version, self._measured = readings.raw(self._names), readings.version, None
        if self._measured is None or now - self._looked >= LOOK_SECONDS:
            self._looked = now
            present = np.array([name is not None for name in self._names], dtype=np.bool_)
            self._measured = readings.measured(*self._raw, present, now)
            self._then = self._at_samples(self._measured)
        return self._measured

    def _at_samples(self, measured: Measured) -> Floats:
        """[N, 2] milli-CPU requested while the CPU metric was measured, pods when connections were; NaN: not known."""
        then = np.full((len(measured.values), 2), np.nan)
        for slot, history in self._history.items():
            if measured.fresh[slot, CPU_USED]:
                then[slot, REQUESTED_SINCE] = history.requested(measured.taken[slot, CPU_USED])
            if measured.fresh[slot, CONNECTIONS]:
                then[slot, PODS_SINCE] = history.pods(measured.taken[slot, CONNECTIONS])
        return then

    def _assumptions(self) -> Assumptions:
        return Assumptions() if self.telemetry is None else self.telemetry.configuration.assumptions


class History:
    """What a node's pods requested, and how many there were, in the last minutes."""

    def __init__(self) -> None:
        self._changes: deque[tuple[float, float, float]] = deque()

    def note(self, now: float, requested: float, pods: float) -> None:
        """From now on it is so: milli-CPU, and pods."""
        changes = self._changes
        changes.append((now, requested, pods))
        while len(changes) > 1 and changes[1][0] < now - HISTORY_SECONDS:
            changes.popleft()

    def pods(self, time: float) -> float:
        """How many there were at a time; NaN: that is not known."""
        before = bisect_right(self._changes, time, key=lambda change: change[0])
        return self._changes[before - 1][2] if before else np.nan

    def requested(self, until: float) -> float:
        """Their mean request in the time up to `until` in which CPU is measured; NaN: that is not known."""
        changes = self._changes
        last = bisect_right(changes, until, key=lambda change: change[0])
        if not last:
            return np.nan
        begin, total, end = max(until - CPU_WINDOW, changes[0][0]), 0.0, until
        for i in range(last - 1, -1, -1):
            since, requested, _ = changes[i]
            if i == last - 1 and since <= begin:
                return requested
            total += requested * (end - max(since, begin))
            end = since
            if since <= begin:
                break
        return total / (until - begin) if until > begin else changes[last - 1][1]


def _alike(seen: Seen, slot: int, other: int) -> Iterator[tuple[str, float, float, Seen]]:
    """What may tell two slots apart: its name, the value of each, and what is seen when the first has the other's."""
    columns = {name: column for column, (name, _) in enumerate(METRICS)}
    if seen.user[0, 0] >= 0:
        columns["latency_milliseconds"] = LATENCY + int(seen.user[0, 0])
    for name, column in columns.items():
        value, instead = float(seen.measured[0, slot, column]), float(seen.measured[0, other, column])
        measured = seen.measured.copy()
        measured[0, slot, column] = instead
        yield name, value, instead, seen._replace(measured=measured)
    nodes = seen.nodes._replace(allocatable=seen.nodes.allocatable.copy(), free=seen.nodes.free.copy())
    share = 1.0 - nodes.free[:, CPU] / np.maximum(nodes.allocatable[:, CPU], 1)
    nodes.allocatable[slot], nodes.free[slot] = nodes.allocatable[other], nodes.free[other]
    yield "cpu_requested", float(share[slot]), float(share[other]), seen._replace(nodes=nodes)
    siblings = seen.siblings.copy()
    siblings[0, slot] = siblings[0, other]
    there = seen.siblings[0]
    yield "pods_of_the_owner", float(there[slot]), float(there[other]), seen._replace(siblings=siblings)


def _names(state: ClusterState) -> list[str | None]:
    """Of the node in each slot."""
    return [None if node is None else node.name for node in state.nodes]


def _asked(nodes: NodeArrays) -> tuple[Floats, Floats]:
    """[N] milli-CPU that the pods of each node request, and how many there are."""
    used = (nodes.allocatable - nodes.free).astype(np.float64)
    return used[:, CPU], used[:, PODS]


def _writable(nodes: NodeArrays) -> NodeArrays:
    """The arrays, or copies of those that must not be written to: to compiled code these are another type."""
    return nodes if nodes.free.flags.writeable else NodeArrays(*(array.copy() for array in nodes))


def _room(count: int, nodes: NodeArrays, classes: ClassArrays, assumed: Assumptions) -> Seen:
    """A `Seen` of one pod on so many nodes."""
    integers = np.int64
    return Seen(
        nodes=nodes,
        pods=classes,
        counts=np.zeros((1, 2), integers),
        measured=np.zeros((1, count, LATENCY + 1)),
        age=np.zeros((1, count, LATENCY + 1)),
        since=np.zeros((1, count, 2)),
        siblings=np.zeros((1, count), integers),
        zone=np.arange(count, dtype=integers)[None],
        user=np.full((1, 1), -1, integers),
        limit=np.full((1, 1, 2), np.inf),
        replica=np.zeros((1, 1, 2), integers),
        assumed=np.array([[assumed.service_milliseconds, assumed.link_bytes_per_second, assumed.pod_link_share]]),
        nearest=np.full((1, count), np.nan),
    )
