"""An order of the waiting pods of a live cluster: their sizes, estimates and groups of equal pods."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from steersman.cluster.arrays import CPU, MEMORY
from steersman.cluster.gpu_units import mean_milli, requested_milli
from steersman.cluster.model import GPU_MILLI, Pod, Requests
from steersman.cluster.pod_query import NamespaceUse
from steersman.cluster.state import ClusterState
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.handles import CoreOrder, Heads, PodKind
from steersman.orders import scores
from steersman.orders.order import ANYBODY, EASY, NO_ONE, Order
from steersman.orders.run_time_history import RunTimeHistory, kind_of

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


SIZES_KEPT = 10_000
"""Requests whose size is computed once."""


def check_live(order: Order) -> None:
    """Raise UsageError for an order that a live scheduler cannot follow."""
    if order.estimates.source == "oracle":
        raise UsageError(f"order {order.name}: no live cluster knows true run times; expected @stated or @history")
    if order.score == scores.LAS:
        raise UsageError(f"order {order.name}: only simulations have pods evicted; expected another one, such as age")
    if order.commits and order.uses_delay:
        raise UsageError(f"order {order.name}: only simulations know its input delay; expected one trained without")


def live_order(order: Order, history: RunTimeHistory) -> LiveOrder | None:
    """Return an order of waiting pods, None if the oldest goes first and everybody may always overtake.

    Raises UsageError.
    """
    check_live(order)
    is_plain = order.follows_age and order.overtaking == ANYBODY and math.isinf(order.ageing)
    return None if is_plain else LiveOrder(order, history)


class LiveOrder:
    """An order, which passes `check_live`, with groups of equal pods; the clock is monotonic, in seconds.

    `free` returns the free share of the cluster, for learned orders; `use` is for the order `fair`. `on_failure` is
    called with the error of a user's order.
    """

    def __init__(self, order: Order, history: RunTimeHistory, clock: Callable[[], float] = time.monotonic) -> None:
        self.order, self.history = order, history
        self.size = ClusterSize()
        self.free: Callable[[], float] = lambda: 1.0
        self.use = NamespaceUse()
        self.on_failure: Callable[[SteersmanError], None] = lambda _: None
        self._clock, self._began = clock, clock()
        self._kind = scores.GIVEN if order.follows_age else order.score
        self._core = CoreOrder(
            history.core, self._kind, np.array(order.weights, dtype=np.float64), order.ageing, self._began
        )
        self._known_use = -1
        # Of the order `fair`: the namespace of each group that has pods, and the number of its pods.
        self._namespaces: dict[int, str] = {}
        self._pods: Counter[int] = Counter()
        self._sizes: dict[Requests, float] = {}
        self._expected: dict[PodKind, float] = {}
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
        size, given, stated = 0.0, 0.0, math.nan
        if self._kind == scores.GIVEN:
            if not self.order.follows_age:
                size = self._size_of(pod.requests)
                given = self._given(pod, size)
        elif self._kind != scores.FAIR:
            size, stated = self._size_of(pod.requests), self.order.estimates.known(pod)
        group, waits_for_owner = self._core.join(pod.priority, size, given, stated, self._kind_of(pod, stated))
        if self._kind == scores.FAIR:
            self._pods[group] += 1
            if self._pods[group] == 1:
                self._namespaces[group] = pod.namespace
                self._known_use = -1
        return group, waits_for_owner

    def _given(self, pod: Pod, size: float) -> float:
        """Return the score of a pod that arrives; a pod that a user's order fails on goes last."""
        time = np.full(1, self._clock() - self._began)
        try:
            return float(self.order.scores_at_arrival(time, np.full(1, size), [pod])[0])
        except SteersmanError as error:
            self.on_failure(error)
            return math.inf

    def _kind_of(self, pod: Pod, stated: float) -> PodKind:
        """Return what tells a pod from others beside its size: nothing where the order asks for nothing."""
        if self._kind == scores.FAIR:
            return PodKind(b"", pod.namespace, "")
        if self._kind == scores.GIVEN or not math.isnan(stated):
            return PodKind(b"", "", "")
        return kind_of(pod)

    def leave(self, group: int) -> None:
        """Count a pod of a group no more."""
        self._core.leave(group)
        if self._kind == scores.FAIR:
            self._pods[group] -= 1
            if not self._pods[group]:
                del self._pods[group], self._namespaces[group]

    def first(self, heads: Heads, count: int, now: float, waiting: int) -> int:
        """Return which of the first `count` groups goes next, and write their scores; `waiting` pods wait in all."""
        if self._kind == scores.FAIR:
            self._follow_use()
        free = self.free() if self._kind == scores.LEARNED else 1.0
        capacity = self.size.capacity
        return self._core.first(heads, count, now, capacity=capacity, free=free, waiting=waiting)

    def estimate(self, group: int) -> float:
        """Return the estimate of a group in seconds, NaN if the order does without."""
        return self._core.estimate(group)

    def expected_seconds(self, pod: Pod) -> float:
        stated = self.order.estimates.known(pod)
        if not math.isnan(stated):
            return stated
        if self._expected_version != self.history.version:
            self._expected.clear()
            self._expected_version = self.history.version
        key = kind_of(pod)
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

    def _follow_use(self) -> None:
        """Compute the scores of `fair` again if pods have started or ended."""
        if self._known_use != self.use.version:
            self._known_use = self.use.version
            shares = {
                namespace: self.size.dominant_share(self.use.pods(namespace))
                for namespace in set(self._namespaces.values())
            }
            groups = np.fromiter(self._namespaces, dtype=np.int64)
            self._core.give(groups, np.array([shares[each] for each in self._namespaces.values()]))
