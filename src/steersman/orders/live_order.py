"""An order of the waiting pods of a live cluster: their sizes, estimates and groups of equal pods."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY
from steersman.cluster.gpu_units import mean_milli, requested_milli
from steersman.cluster.model import GPU_MILLI, Node, Pod, PodClass, Requests
from steersman.cluster.pod_query import NamespaceUse
from steersman.cluster.state import ClusterState
from steersman.core.errors import UsageError
from steersman.orders import scores
from steersman.orders.estimates import ALL, LEVELS, MEDIAN, SPREAD
from steersman.orders.group_scores import (
    BY_AGE,
    BY_GIVEN,
    CAPACITY,
    FREE,
    WAITING,
    GroupTable,
    WaitingGroups,
    first_group,
)
from steersman.orders.live_history import NOTHING, LiveHistory
from steersman.orders.live_reservation import EndingPods, LiveReservation
from steersman.orders.order import ANYBODY, EASY, NO_ONE, Order, recurring_owner

CPU_MILLI = 1000.0


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """What the nodes of a cluster have together, 0 GPUs where sizes are in CPUs; `means`: see `mean_milli`."""

    gpus: float = 0.0
    cpus: float = 0.0
    memory: float = 0.0
    means: Mapping[str, float] = field(default_factory=dict)

    @property
    def capacity(self) -> float:
        """Return the size of the cluster: GPUs, or CPUs where no node has a GPU."""
        return self.gpus or max(self.cpus, 1e-3)

    def of(self, requests: Requests) -> float:
        """Return the size of a pod: the dominant share of the cluster that it requests, times the cluster's size."""
        cpu = requests.cpu_milli / CPU_MILLI
        memory = requests.memory_bytes / max(self.memory, 1.0) * self.capacity
        if not self.gpus:
            return max(cpu, memory)
        gpu = requested_milli(requests, self.means) / GPU_MILLI
        return max(gpu, cpu / max(self.cpus, 1e-3) * self.capacity, memory)

    def dominant_share(self, pods: Mapping[Requests, int]) -> float:
        """Return the largest share of the cluster's GPUs, CPUs or memory that pods request together, by number."""
        gpu = sum(count * requested_milli(each, self.means) for each, count in pods.items()) / GPU_MILLI
        cpu = sum(count * each.cpu_milli for each, count in pods.items()) / CPU_MILLI
        memory = sum(count * each.memory_bytes for each, count in pods.items())
        of_gpus = gpu / self.gpus if self.gpus else 0.0
        return max(of_gpus, cpu / max(self.cpus, 1e-3), memory / max(self.memory, 1.0))


def cluster_size(state: ClusterState, known: ClusterSize) -> ClusterSize:
    """Return the size of a cluster, `known` if it has not changed."""
    arrays = state.arrays
    gpus = float(state.gpu_use_by_node()[1].sum()) / GPU_MILLI
    cpus, memory = float(arrays.allocatable[:, CPU].sum()) / CPU_MILLI, float(arrays.allocatable[:, MEMORY].sum())
    if (gpus, cpus, memory) == (known.gpus, known.cpus, known.memory):
        return known
    return ClusterSize(gpus, cpus, memory, mean_milli(node for node in state.nodes if node is not None))


def free_share(state: ClusterState, size: ClusterSize) -> float:
    """Return the free share of a cluster's GPUs, or of its CPUs where no node has a GPU."""
    if size.gpus:
        used = float(state.gpu_use_by_node()[0].sum()) / GPU_MILLI
    else:
        used = float((state.arrays.allocatable[:, CPU] - state.arrays.free[:, CPU]).sum()) / CPU_MILLI
    return 1.0 - used / size.capacity


Ints = npt.NDArray[np.int64]

FIRST_GROUPS = 16
SIZES_KEPT = 10_000
"""Requests whose size is computed once."""


class EqualPods(NamedTuple):
    """Pods that are alike for an order.

    `stated` is their estimate; where `requests` is set it is 0, and the estimate comes from the history.
    """

    priority: int
    size: float
    given: float
    stated: float
    requests: Requests | None
    namespace: str
    owner: str


def check_live(order: Order) -> None:
    """Raise UsageError for an order that a live scheduler cannot follow."""
    if order.run_times.source == "oracle":
        raise UsageError(f"order {order.name}: no live cluster knows true run times; expected @stated or @history")
    if order.commits and order.uses_delay:
        raise UsageError(f"order {order.name}: only simulations know its input delay; expected one trained without")


def live_order(order: Order, history: LiveHistory) -> LiveOrder | None:
    """Return an order of waiting pods, None if the oldest goes first and everybody may always overtake.

    Raises UsageError.
    """
    check_live(order)
    is_plain = order.follows_age and order.overtaking == ANYBODY and math.isinf(order.ageing)
    return None if is_plain else LiveOrder(order, history)


def warm_up_order(order: Order) -> None:
    """Compile what an order, and the history, call."""
    history = LiveHistory()
    pod = Pod("pod", PodClass(Requests(cpu_milli=100)))
    history.estimate(pod)
    made = live_order(order, history)
    if made is not None:
        groups = WaitingGroups(np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1, dtype=np.int64), np.zeros(1))
        groups.group[0] = made.join(pod)[0]
        made.first(groups, 1, 0.0, 1)
        if made.reserves:
            state, one = ClusterState((Node("node", 1000, 1 << 30),)), np.zeros(1, dtype=np.int64)
            state.place("pod", state.class_id(pod.pod_class), 0)
            LiveReservation(state, 0, EndingPods(one, one, one, np.zeros(1), np.ones(1)), 0.0).take(0, 0, 0)


class LiveOrder:
    """An order, which passes `check_live`, with groups of equal pods; the clock is monotonic, in seconds.

    `free` returns the free share of the cluster, for learned orders; `use` is for the order `fair`.
    """

    def __init__(self, order: Order, history: LiveHistory, clock: Callable[[], float] = time.monotonic) -> None:
        self.order, self.history = order, history
        self.size = ClusterSize()
        self.free: Callable[[], float] = lambda: 1.0
        self.use = NamespaceUse()
        self._kind = BY_AGE if order.follows_age else order.score
        self._uses_estimates = self._kind not in (BY_AGE, BY_GIVEN, scores.FAIR)
        self._known_use = -1
        self._weights = np.array(order.weights, dtype=np.float64)
        # AGEING and BEGAN stay, the others are set before each choice.
        self._limits = np.array([order.ageing, clock(), 0.0, 1.0, 0.0])
        self._table = _empty_table(FIRST_GROUPS)
        self._groups: dict[EqualPods, int] = {}
        self._equal: dict[int, EqualPods] = {}
        self._pods = [0] * FIRST_GROUPS
        self._free_rows = list(range(FIRST_GROUPS - 1, -1, -1))
        # By group the rows of the history; -1: it does without.
        self._keys = np.full((FIRST_GROUPS, LEVELS), -1, dtype=np.int64)
        # Groups of owners that the history has forgotten: they may be known again.
        self._forgotten: set[int] = set()
        self._version = self._added = self._dropped = 0
        self._sizes: dict[Requests, float] = {}
        self._expected: dict[tuple[Requests, str, str], float] = {}
        self._expected_version = 0

    def resize(self, size: ClusterSize) -> None:
        """Take another size of the cluster over, by which pods are ordered that join a group from now on."""
        self.size = size
        self._sizes.clear()
        self._known_use = -1

    @property
    def commits(self) -> bool:
        """Return whether the pod that goes next stays the same until it is bound, whoever else arrives."""
        return self.order.overtaking != ANYBODY

    @property
    def ages(self) -> bool:
        """Return whether a pod that has waited for too long has a reservation; before that anybody may overtake it."""
        return self.order.overtaking == ANYBODY and self.order.ageing < math.inf

    @property
    def reserves(self) -> bool:
        """Return whether pods overtake the one that goes next only if they do not delay it."""
        return self.order.overtaking == EASY or self.ages

    @property
    def is_strict(self) -> bool:
        """Return whether nobody overtakes the pod that goes next."""
        return self.order.overtaking == NO_ONE

    def join(self, pod: Pod) -> tuple[int, bool]:
        """Count a pod in its group.

        Return the group's number, and whether the pod belongs to another one as soon as a pod of its owner has ended.
        """
        equal = self._equal_pods(pod)
        row = self._groups.get(equal)
        if row is None:
            row = self._new_row(equal)
        self._pods[row] += 1
        return row, equal.requests is not None and bool(pod.owner) and not equal.owner

    def leave(self, row: int) -> None:
        """Count a pod of a group no more."""
        self._pods[row] -= 1
        if not self._pods[row]:
            del self._groups[self._equal.pop(row)]
            self._keys[row] = -1
            self._free_rows.append(row)

    def first(self, groups: WaitingGroups, count: int, now: float, waiting: int) -> int:
        """Return the row of `groups`, whose first `count` count, that goes next; `waiting` pods wait in all."""
        self._follow_history()
        limits, kind = self._limits, self._kind
        if kind == scores.FAIR:
            self._follow_use()
            kind = BY_GIVEN
        if kind == scores.LEARNED:
            limits[CAPACITY], limits[FREE], limits[WAITING] = self.size.capacity, self.free(), waiting
        return int(first_group(self._table, groups, count, kind, self._weights, limits, float(now)))

    def estimate(self, row: int) -> float:
        """Return the estimate of a group in seconds, NaN if the order does without."""
        self._follow_history()
        return float(self._table.estimates[row, MEDIAN])

    def expected_seconds(self, pod: Pod) -> float:
        stated = self.order.run_times.known(pod)
        if not math.isnan(stated):
            return stated
        if self._expected_version != self.history.version:
            self._expected.clear()
            self._expected_version = self.history.version
        key = pod.requests, pod.namespace, pod.owner
        found = self._expected.get(key)
        if found is None:
            found = self._expected[key] = self.history.estimate(pod)
        return found

    # -----------------------------------------------------------------------------------------------------------------

    def _size_of(self, requests: Requests) -> float:
        size = self._sizes.get(requests)
        if size is None:
            if len(self._sizes) >= SIZES_KEPT:
                self._sizes.clear()
            size = self._sizes[requests] = self.size.of(requests)
        return size

    def _equal_pods(self, pod: Pod) -> EqualPods:
        if self._kind == BY_AGE:
            return EqualPods(pod.priority, 0.0, 0.0, 0.0, None, "", "")
        if self._kind == scores.FAIR:
            return EqualPods(pod.priority, 0.0, 0.0, 0.0, None, pod.namespace, "")
        size = self._size_of(pod.requests)
        if self._kind == BY_GIVEN:
            given = float(self.order.given(np.zeros(1), np.full(1, size), [pod])[0])
            return EqualPods(pod.priority, size, math.inf if math.isnan(given) else given, 0.0, None, "", "")
        stated = self.order.run_times.known(pod)
        if not math.isnan(stated):
            return EqualPods(pod.priority, size, 0.0, stated, None, "", "")
        owner = recurring_owner(pod.owner) if self.history.knows(pod.namespace, pod.owner) else ""
        return EqualPods(pod.priority, size, 0.0, 0.0, pod.requests, pod.namespace, owner)

    def _new_row(self, equal: EqualPods) -> int:
        if not self._free_rows:
            self._grow()
        row = self._free_rows.pop()
        self._groups[equal], self._equal[row] = row, equal
        self._known_use = -1
        table = self._table
        table.priority[row], table.given[row], table.size[row] = equal.priority, equal.given, equal.size
        if equal.requests is None:
            table.estimates[row, MEDIAN] = equal.stated if self._uses_estimates else math.nan
            table.estimates[row, SPREAD] = 0.0
        else:
            self._keys[row] = self.history.keys(equal.requests, equal.namespace, equal.owner)
            self._estimate(np.array([row], dtype=np.int64))
        return row

    def _grow(self) -> None:
        previous, count = self._table, len(self._table.size)
        self._table = _empty_table(2 * count)
        for old, new in zip(previous, self._table, strict=True):
            new[:count] = old
        self._keys = np.concatenate([self._keys, np.full_like(self._keys, -1)])
        self._pods += [0] * count
        self._free_rows = list(range(2 * count - 1, count - 1, -1))

    def _follow_history(self) -> None:
        """Compute the estimates again if something has ended."""
        history = self.history
        if self._version == history.version or not self._uses_estimates:
            return
        self._version = history.version
        rows, forgotten = np.flatnonzero(self._keys[:, ALL] >= 0), history.dropped - self._dropped
        if forgotten > len(history.dropped_rows):
            outdated = rows
        else:
            changed = [*islice(reversed(history.dropped_rows), forgotten)]
            if self._added != history.added:
                changed.append(NOTHING)
            is_outdated = np.isin(self._keys[rows], changed).any(axis=1) if changed else np.zeros(len(rows), np.bool_)
            is_outdated |= np.isin(rows, [*self._forgotten])
            outdated = rows[is_outdated]
        self._forgotten.clear()
        self._added, self._dropped = history.added, history.dropped
        for row in outdated:
            equal = self._equal[int(row)]
            assert equal.requests is not None
            self._keys[row] = history.keys(equal.requests, equal.namespace, equal.owner)
            if equal.owner and not history.knows(equal.namespace, equal.owner):
                self._forgotten.add(int(row))
        self._estimate(rows)

    def _follow_use(self) -> None:
        """Compute the scores of `fair` again if pods have started or ended."""
        if self._known_use != self.use.version:
            self._known_use = self.use.version
            shares: dict[str, float] = {}
            for row, equal in self._equal.items():
                if equal.namespace not in shares:
                    shares[equal.namespace] = self.size.dominant_share(self.use.pods(equal.namespace))
                self._table.given[row] = shares[equal.namespace]

    def _estimate(self, rows: Ints) -> None:
        self.history.write_estimates(self._keys[rows], rows, self._table.estimates)


def _empty_table(groups: int) -> GroupTable:
    return GroupTable(
        np.zeros(groups, dtype=np.int64), np.zeros(groups), np.zeros(groups), np.full((groups, 2), np.nan)
    )
