"""Metrics of a live cluster's nodes as a `SchedulerView`, from requests, measured values and a pod's limits.

It is the `SchedulerView` of one environment, so that the rules and the filter of hard limits are the same code as in
simulation. A slot is a node, and every node is a zone of its own: its latency is its own, whatever its neighbours' are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, PODS, ClassArrays, NodeArrays
from steersman.cluster.node_metrics import AGE_LIMIT, CONNECTIONS, CPU_USED, LATENCY, METRICS, NETWORK_RECEIVED
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.policies.node_metrics.arrays import INDEX, PODS_SINCE, REPLICAS, REQUESTED_SINCE, SchedulerView
from steersman.policies.node_metrics.estimates import USE_PRIOR
from steersman.policies.node_metrics.latency_filter import KEPT, KEPT_SAFELY, NOT_KEPT, NOT_MEASURED, filter_live
from steersman.policies.node_metrics.rules import score_all
from steersman.prometheus.configuration import Assumptions, Configuration
from steersman.prometheus.store import ALL_USERS, MetricStore, NodeMetricsArrays

HISTORY_SECONDS = 600.0
REUSE_SECONDS = 1.0  # values are reused for so long unless new ones arrive, and found to be stale so late
OUTCOMES = {KEPT_SAFELY: "kept safely", KEPT: "kept", NOT_KEPT: "kept by no node", NOT_MEASURED: "not measured"}
"""Labels of the counter of pods with a hard limit, see `latency_filter.NO_LIMIT`."""


Floats = npt.NDArray[np.float64]


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
        self._seen: SchedulerView | None = None

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
        scores = np.empty(len(feasible))
        score_all(rule, self._substituted_view(query), feasible.astype(np.int8)[None], 0, scores)
        return scores

    def filter_by_hard_limit(
        self, query: PodQuery, feasible: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.bool_], str]:
        """Return [N] the feasible slots that a pod's hard limit leaves, and the outcome of the limit.

        That is one of `OUTCOMES`, "" without a limit or without telemetry; see `latency_filter`.
        """
        if self.telemetry is None:
            return feasible, ""
        mask: npt.NDArray[np.int8] = feasible.astype(np.int8)[None]
        outcome = filter_live(self._substituted_view(query), mask, 0)
        left: npt.NDArray[np.bool_] = mask[0] != 0
        return left, OUTCOMES.get(outcome, "")

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
        view, scores = self._substituted_view(query), np.empty(len(feasible))
        mask: npt.NDArray[np.int8] = feasible.astype(np.int8)[None]

        def score(changed: SchedulerView) -> float:
            score_all(rule, changed, mask, 0, scores)
            return float(scores[pair[0]])

        now = score(view)
        return [
            (name, value, instead, now - score(changed))
            for name, value, instead, changed in _feature_swaps(view, *pair)
        ]

    # -----------------------------------------------------------------------------------------------------------------

    def _substituted_view(self, query: PodQuery) -> SchedulerView:
        # Writes into `measured` are safe: `_values` makes new arrays for every call.
        view = self.scheduler_view(query)
        measured, nodes = view.measured[0], self.state.arrays
        requested, pods = _requested(nodes)
        # Without any value requests stand for use, which keeps the order of nodes.
        if np.isnan(measured[:, CPU_USED]).all():
            with np.errstate(invalid="ignore", divide="ignore"):
                # Slots without a node have no allocatable CPU: the result is NaN or inf there.
                measured[:, CPU_USED] = 100.0 * USE_PRIOR * requested / nodes.allocatable[:, CPU]
        if np.isnan(measured[:, CONNECTIONS]).all():
            measured[:, CONNECTIONS] = pods
        if np.isnan(measured[:, NETWORK_RECEIVED]).all():
            measured[:, NETWORK_RECEIVED] = 0.0
        return view

    def scheduler_view(self, query: PodQuery) -> SchedulerView:
        """Return the view for one pod, valid until the next call; a slot without a node has no capacity."""
        values, ages, since, users = self._values()
        nodes, classes = self.state.arrays, self.state.class_arrays
        if not nodes.free.flags.writeable:  # to compiled code read-only arrays are of another type
            nodes = NodeArrays(*(array.copy() for array in nodes))
        count = len(nodes.allocatable)
        # The buffer is kept between decisions: only a new number of slots changes its shape.
        if self._seen is None or self._seen.zone.shape[1] != count:
            self._seen = _empty_view(count, nodes, classes, self._assumptions())
        view = self._seen
        view.counts[0] = count, 0
        view.siblings[0] = 0
        owner_pods, limits = query.owner_pods, query.limits
        for slot, number in owner_pods.running.items():
            view.siblings[0, slot] = number
        # An unknown group of users gets the last column, which is always NaN.
        column = users.get(limits.user, values.shape[1] - 1 - LATENCY) if limits.user else ALL_USERS
        view.user[0, 0] = column if limits.limited else -1
        view.limit[0, 0] = limits.soft, limits.hard
        view.replica[0, 0, REPLICAS] = owner_pods.replicas
        # Pods of the Deployment that are not waiting came before this one.
        view.replica[0, 0, INDEX] = owner_pods.replicas - owner_pods.waiting
        one = slice(query.class_id, query.class_id + 1)
        pod = ClassArrays(
            **{name: array[one] if name != "allowed" else array for name, array in classes._asdict().items()}
        )
        return view._replace(nodes=nodes, pods=pod, measured=values[None], age=ages[None], since=since[None])

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


def _feature_swaps(view: SchedulerView, slot: int, other: int) -> Iterator[tuple[str, float, float, SchedulerView]]:
    """Yield what may distinguish two slots: name, both values, and the view in which the first has the other's."""
    columns = {name: column for column, (name, _) in enumerate(METRICS)}
    if view.user[0, 0] >= 0:
        columns["latency_milliseconds"] = LATENCY + int(view.user[0, 0])
    for name, column in columns.items():
        value, instead = float(view.measured[0, slot, column]), float(view.measured[0, other, column])
        measured = view.measured.copy()
        measured[0, slot, column] = instead
        yield name, value, instead, view._replace(measured=measured)
    nodes = view.nodes._replace(allocatable=view.nodes.allocatable.copy(), free=view.nodes.free.copy())
    share = 1.0 - nodes.free[:, CPU] / np.maximum(nodes.allocatable[:, CPU], 1)
    nodes.allocatable[slot], nodes.free[slot] = nodes.allocatable[other], nodes.free[other]
    yield "cpu_requested", float(share[slot]), float(share[other]), view._replace(nodes=nodes)
    siblings = view.siblings.copy()
    siblings[0, slot] = siblings[0, other]
    owner_pods = view.siblings[0]
    yield "pods_of_the_owner", float(owner_pods[slot]), float(owner_pods[other]), view._replace(siblings=siblings)


def _names(state: ClusterState) -> list[str | None]:
    return [None if node is None else node.name for node in state.nodes]


def _requested(nodes: NodeArrays) -> tuple[Floats, Floats]:
    """Return [N] milli-CPU that the pods of each node request, and their number."""
    used = (nodes.allocatable - nodes.free).astype(np.float64)
    return used[:, CPU], used[:, PODS]


def _empty_view(count: int, nodes: NodeArrays, classes: ClassArrays, assumed: Assumptions) -> SchedulerView:
    integers = np.int64
    return SchedulerView(
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
