"""Metrics of a live cluster's nodes as the core reads them, and the rules that decide by them.

`most-allocated`, `least-allocated`, `least-connections` and `latency-aware` are the objectives MA, LA, LC and P0 of
Matranga's thesis (SoniaMatranga/SoniaMatrangaTesi) as rules: each takes the node that is best once the pod runs there.
They are baselines and teachers, as kube-scheduler's default is (`core/src/metric_rules.rs`).

The rules and the filter of hard limits are the same code as in simulation. A slot is a node, and every node is a zone
of its own: its latency is its own, whatever its neighbours' are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, PODS, NodeArrays
from steersman.cluster.model import AGE_LIMIT, CONNECTIONS, CPU_USED, LATENCY, METRICS
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.core.errors import UsageError
from steersman.core.handles import MetricsQuestion
from steersman.prometheus.configuration import Assumptions, Configuration
from steersman.prometheus.store import ALL_USERS, MetricStore, NodeMetricsArrays

KUBE_DEFAULT, MOST_ALLOCATED, LEAST_ALLOCATED, LEAST_CONNECTIONS, LATENCY_AWARE = range(5)
"""Numbers of the rules in the core."""

METRIC_RULES = {
    "kube-default": KUBE_DEFAULT,
    "most-allocated": MOST_ALLOCATED,
    "least-allocated": LEAST_ALLOCATED,
    "least-connections": LEAST_CONNECTIONS,
    "latency-aware": LATENCY_AWARE,
}


def rule_number(name: str) -> int:
    if name not in METRIC_RULES:
        raise UsageError(f"unknown rule {name!r}; known are {', '.join(METRIC_RULES)}")
    return METRIC_RULES[name]


HISTORY_SECONDS = 600.0
REUSE_SECONDS = 1.0  # values are reused for so long unless new ones arrive, and found to be stale so late
OUTCOMES = ("", "kept safely", "kept", "kept by no node", "not measured")
"""What became of a pod's hard limit (`LimitOutcome` of the core), as labels of a counter; "": the pod has none."""
REQUESTED_SINCE, PODS_SINCE = range(2)
"""Columns of what changed since a measurement."""


Floats = npt.NDArray[np.float64]
Described = dict[str, npt.NDArray[np.generic]]


class Telemetry(Protocol):
    """Source of measured values, with the clock of their times (monotonic seconds).

    `limits`: number of decisions by outcome of the pod's hard limit.
    """

    store: MetricStore
    configuration: Configuration
    clock: Callable[[], float]
    limits: Counter[str]


class NodeMetricsView:
    """Node metrics of a live cluster, as rules, networks and the filter of hard limits read them.

    Whoever changes a node of the state calls `changed`. Without telemetry nothing is measured.
    """

    def __init__(self, state: ClusterState, telemetry: Telemetry | None = None) -> None:
        self.state, self.telemetry = state, telemetry
        self._history: dict[int, History] = {}
        # What ran when this began: nodes that nobody has changed since still have these requests.
        self._first = (-np.inf if telemetry is None else telemetry.clock(), *_requested(state.arrays))
        self._names = _names(state)
        self._raw: tuple[Floats, Floats] | None = None
        self._measured: NodeMetricsArrays | None = None
        self._version, self._resolved_at = -1, -np.inf

    def changed(self, slot: int) -> None:
        """Note that a pod was bound to a node or left it, or that the node is another."""
        if self.telemetry is None:
            return
        node = self.state.nodes[slot]
        if slot >= len(self._names) or self._names[slot] != (None if node is None else node.name):
            self._raw = None
            self._history[slot] = History()
        # A history begins with the state before the first change.
        if slot not in self._history:
            time, first_requested, first_pods = self._first
            self._history[slot] = History()
            self._history[slot].note(time, float(first_requested[slot]), float(first_pods[slot]))
        nodes = self.state.arrays
        requested = float(nodes.allocatable[slot, CPU] - nodes.free[slot, CPU])
        pods = float(nodes.allocatable[slot, PODS] - nodes.free[slot, PODS])
        self._history[slot].note(self.telemetry.clock(), requested, pods)

    def scores(self, rule: int, query: PodQuery, feasible: npt.NDArray[np.bool_]) -> Floats:
        """Return [N] a rule's score of every slot for a pod, -inf where it may not run (`feasible` [N])."""
        return self._question(query, feasible).scores(rule)

    def filter_by_hard_limit(
        self, query: PodQuery, feasible: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.bool_], str]:
        """Return [N] the feasible slots that a pod's hard limit leaves, and what became of the limit.

        That is one of `OUTCOMES`, "" without a limit or without telemetry; see `core/src/telemetry.rs`.
        """
        if self.telemetry is None or not query.limits.hard < np.inf:
            return feasible, ""
        left, outcome = self._question(query, feasible).within_hard_limit()
        return left, OUTCOMES[outcome]

    def count_decision(self, outcome: str) -> None:
        """Count a decision by the outcome of the pod's hard limit; "": it has none."""
        if self.telemetry is not None and outcome:
            self.telemetry.limits[outcome] += 1

    def contributions(
        self, rule: int, query: PodQuery, feasible: npt.NDArray[np.bool_], pair: tuple[int, int]
    ) -> list[tuple[str, float, float, float]]:
        """Return what distinguishes two feasible slots: name, the value of each, and the first's advantage by it.

        The advantage is how much its score falls if this value alone is replaced by the other's.
        """
        parts = self._question(query, feasible).contributions(rule, *pair).tolist()
        names = [name for name, _ in METRICS]
        if query.limits.limited:
            names.append("latency_milliseconds")
        names += ["cpu_requested", "pods_of_the_owner"]
        return [
            (name, value, instead, advantage) for name, (value, instead, advantage) in zip(names, parts, strict=True)
        ]

    # -----------------------------------------------------------------------------------------------------------------

    def _question(self, query: PodQuery, feasible: npt.NDArray[np.bool_]) -> MetricsQuestion:
        return MetricsQuestion(self.described(query) | {"mask": feasible})

    def described(self, query: PodQuery) -> Described:
        """Return what is known of the slots, `view.*`, and of one pod, `pod.*`, as the core reads it.

        A slot without a node has no capacity. See `Question::read` in `core/src/telemetry.rs`.
        """
        values, ages, since, users = self._values()
        nodes, classes, c = self.state.arrays, self.state.class_arrays, query.class_id
        count, assumed = len(nodes.allocatable), self._assumptions()
        owner_pods, limits = query.owner_pods, query.limits
        siblings = np.zeros(count, dtype=np.int64)
        for slot, number in owner_pods.running.items():
            siblings[slot] = number
        # An unknown group of users gets the last column, which is always NaN.
        column = users.get(limits.user, values.shape[1] - 1 - LATENCY) if limits.user else ALL_USERS
        # Pods of the Deployment that are not waiting came before this one.
        replicas = [owner_pods.replicas - owner_pods.waiting, owner_pods.replicas]
        return {
            "view.allocatable": nodes.allocatable,
            "view.free": nodes.free,
            "view.nonzero": nodes.nonzero,
            "view.measured": values,
            "view.age": ages,
            "view.since": since,
            "view.siblings": siblings,
            "view.zone": np.arange(count),
            "view.assumed": np.array(
                [assumed.service_milliseconds, assumed.link_bytes_per_second, assumed.pod_link_share], dtype=np.float64
            ),
            "pod.request": classes.request[c],
            "pod.nonzero": classes.nonzero[c],
            "pod.user": np.array(column if limits.limited else -1),
            "pod.limits": np.array([limits.soft, limits.hard], dtype=np.float64),
            "pod.replicas": np.array(replicas),
        }

    def _values(self) -> tuple[Floats, Floats, Floats, Mapping[str, int]]:
        """Return [N, M] values and ages, [N, 2] what came since, and the columns of users.

        The last column of the values is always NaN: it is for users that no latency is measured to.
        """
        requested, pods = _requested(self.state.arrays)
        values, since = np.full((len(requested), LATENCY + 2), np.nan), np.zeros((len(requested), 2))
        ages = np.full_like(values, AGE_LIMIT)
        users: Mapping[str, int] = {}
        if (measured := self._resolved()) is not None:
            unknown = np.full((len(requested), 1), np.nan)
            values, users = np.hstack([measured.values, unknown]), measured.users
            ages = np.hstack([np.clip(measured.age, 0.0, AGE_LIMIT), np.full_like(unknown, AGE_LIMIT)])
            # Of nodes without a history nothing changed: NaN becomes 0.
            since[:, REQUESTED_SINCE] = np.nan_to_num(requested - self._then[:, REQUESTED_SINCE])
            since[:, PODS_SINCE] = np.nan_to_num(pods - self._then[:, PODS_SINCE])
        return values, ages, since, users

    def _resolved(self) -> NodeMetricsArrays | None:
        if self.telemetry is None:
            return None
        store, now = self.telemetry.store, self.telemetry.clock()
        count = len(self.state.arrays.allocatable)
        if self._raw is None or store.version != self._version or len(self._raw[0]) != count:
            self._names = _names(self.state)
            self._raw, self._version, self._measured = store.last_values(self._names), store.version, None
        if self._measured is None or now - self._resolved_at >= REUSE_SECONDS:
            self._resolved_at = now
            present = np.array([name is not None for name in self._names], dtype=np.bool_)
            self._measured = store.resolve(*self._raw, present, now)
            self._then = self._at_samples(self._measured)
        return self._measured

    def _at_samples(self, measured: NodeMetricsArrays) -> Floats:
        """Return [N, 2] milli-CPU requested and pods running when their metrics were measured; NaN: unknown."""
        fresh = np.column_stack((measured.fresh[:, CPU_USED], measured.fresh[:, CONNECTIONS]))
        then = np.where(fresh, np.column_stack(_requested(self.state.arrays)), np.nan)  # nodes that nobody changed
        window = 0.0 if self.telemetry is None else self.telemetry.configuration.cpu_window_seconds
        for slot, history in self._history.items():
            if measured.fresh[slot, CPU_USED]:
                then[slot, REQUESTED_SINCE] = history.requested(measured.taken[slot, CPU_USED], window)
            if measured.fresh[slot, CONNECTIONS]:
                then[slot, PODS_SINCE] = history.pods(measured.taken[slot, CONNECTIONS])
        return then

    def _assumptions(self) -> Assumptions:
        return Assumptions() if self.telemetry is None else self.telemetry.configuration.assumptions


class History:
    """Requests and number of a node's pods in the last minutes.

    What was before the first record is taken to have been as then: a scheduler that just started decides by samples
    from before its start, and what it binds counts beside them.
    """

    def __init__(self) -> None:
        self._changes: deque[tuple[float, float, float]] = deque()

    def note(self, now: float, requested: float, pods: float) -> None:
        """Record milli-CPU and pods from now on."""
        changes = self._changes
        changes.append((now, requested, pods))
        # The last change before the window stays: it says what held at its beginning.
        while len(changes) > 1 and changes[1][0] < now - HISTORY_SECONDS:
            changes.popleft()

    def pods(self, time: float) -> float:
        before = bisect_right(self._changes, time, key=lambda change: change[0])
        return self._changes[max(before - 1, 0)][2]

    def requested(self, until: float, window: float) -> float:
        """Return the mean request in the `window` seconds that end at a time."""
        changes = self._changes
        last = bisect_right(changes, until, key=lambda change: change[0])
        # The whole window lies before the first record.
        if not last:
            return changes[0][1]
        begin, total, end = max(until - window, changes[0][0]), 0.0, until
        for i in range(last - 1, -1, -1):
            since, requested, _ = changes[i]
            # Nothing changed within the window.
            if i == last - 1 and since <= begin:
                return requested
            total += requested * (end - max(since, begin))
            end = since
            if since <= begin:
                break
        return total / (until - begin) if until > begin else changes[last - 1][1]


def _names(state: ClusterState) -> list[str | None]:
    return [None if node is None else node.name for node in state.nodes]


def _requested(nodes: NodeArrays) -> tuple[Floats, Floats]:
    """Return [N] milli-CPU that the pods of each node request, and their number."""
    used = (nodes.allocatable - nodes.free).astype(np.float64)
    return used[:, CPU], used[:, PODS]
