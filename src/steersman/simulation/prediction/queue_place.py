"""A pod's place in the queue: which waiting pods go before it and why, and which changes would put it further ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI, Pod
from steersman.cluster.state import ClusterState
from steersman.core.interface import HEAD
from steersman.orders.live_order import LiveOrder, cluster_size
from steersman.orders.order import Order
from steersman.simulation.prediction.alternatives import changes
from steersman.simulation.prediction.moment import DAY, ClusterMoment
from steersman.simulation.prediction.obstacles import impossible_pods

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Reason = Literal["priority", "waited too long", "order", "age"]

SHOWN = 10
"""Pods ahead of which details are given."""
LONGER = {"10 min": 600.0, "1 h": 3600.0, "6 h": 21_600.0, "1 d": DAY, "7 d": 7 * DAY}
"""Further waits that are tried."""


@dataclass(frozen=True, slots=True)
class PodInQueue:
    """A pod that waits, as an order sees it."""

    pod: str  # namespace and name
    priority: int
    waited: float  # seconds
    size: float  # GPUs that it requests, or CPUs where no node has a GPU, by its dominant share of the cluster
    estimate: float | None  # estimated run time in seconds, None: the order does without
    # why it goes first: a higher priority, because the order's ageing rule applies, by the order, or, where all that is
    # equal, because it is older. "": it is the pod that was asked about.
    reason: Reason | Literal[""] = ""


@dataclass(frozen=True, slots=True)
class PlaceChange:
    """A change of a pod, tried, that puts it further ahead."""

    change: str  # what is changed
    ahead: int  # pods that go before it then


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A pod's place in the queue."""

    order: str  # name of the order
    pod: PodInQueue
    ahead: int  # waiting pods that go before it
    waiting: int  # all other waiting pods, but for those that can never start and those of its gang
    first: tuple[PodInQueue, ...]  # those that go before it, the next one first, at most `SHOWN`
    changes: tuple[PlaceChange, ...]  # what would put it further ahead, the best first


class ComparedPods(NamedTuple):
    """Pods as an order compares them, [W] each."""

    priority: Ints  # higher ones go first
    score: Floats  # lower ones go first
    since: Floats  # when they began to wait, seconds; older ones go first
    number: Ints  # decides ties, the lowest goes first
    group: Ints  # their groups in the order


class WaitingQueue:
    """The waiting pods of a cluster in an order. `moment`: the cluster now; `order`: who goes next."""

    def __init__(self, moment: ClusterMoment, order: Order) -> None:
        self._moment = moment
        # Orders that count from the beginning count from the first thing that is known.
        first = float(moment.began.min(initial=0.0))
        self._live = LiveOrder(order, moment.history, clock=lambda: first)
        pods = moment.workload.pods
        empty = ClusterState(moment.workload.nodes)
        self._live.resize(cluster_size(empty, self._live.size))
        size = self._live.size
        used = sum(size.of(pod.requests) for i, pod in enumerate(pods) if moment.runs(i))
        self._live.free = lambda: 1.0 - min(used / size.capacity, 1.0)
        for i, pod in enumerate(pods):
            if moment.runs(i):
                self._live.use.count(pod, 1)
        self._waiting = [i for i in range(len(pods)) if not moment.runs(i)]
        # Pods that can never start do not hold up others.
        reasons = impossible_pods(empty, [pods[i] for i in self._waiting], moment.workload.running_gangs)
        self._groups = {i: self._live.join(pods[i])[0] for i in self._waiting}
        self._hopeless = {i for i, reason in zip(self._waiting, reasons, strict=True) if reason}

    def others(self, pod: Pod) -> list[int]:
        """Return the indices of the waiting pods that can start, but for this one and those of its gang."""
        pods = self._moment.workload.pods
        gang = (pod.namespace, pod.gang) if pod.gang else None
        return [
            i
            for i in self._waiting
            if pods[i] is not pod and (pods[i].namespace, pods[i].gang) != gang and i not in self._hopeless
        ]

    def ahead(self, pod: Pod, began: float) -> int:
        """Return how many waiting pods go before a pod.

        Args:
            pod: one of them, or a new one.
            began: when it began to wait, seconds: at most 0.
        """
        return len(self._before(self.others(pod), pod, began, self._number(pod)))

    def turn(self) -> list[int]:
        """Return the indices of the waiting pods, the next one first."""
        moment, waiting = self._moment, self._waiting
        numbers = np.array(waiting, dtype=np.int64)
        groups = [self._groups[i] for i in waiting]
        compared = self._compare([moment.workload.pods[i] for i in waiting], groups, moment.began[waiting], numbers)
        return [waiting[k] for k in _in_turn(compared).tolist()]

    def place(self, pod: Pod, began: float) -> QueuePlace:
        """Return a pod's place; arguments as of `ahead`."""
        others, number, order = self.others(pod), self._number(pod), self._live.order
        compared = self._with(others, pod, began, number)
        before = _before_last(compared)
        first = tuple(
            self._described(self._moment.workload.pods[others[k]], compared, k, _reason(compared, k, order))
            for k in before[:SHOWN].tolist()
        )
        own = self._described(pod, compared, len(others))
        found = sorted(self._changes(pod, began, number, others, len(before)), key=lambda each: each.ahead)
        return QueuePlace(order.name, own, len(before), len(others), first, tuple(found))

    def _number(self, pod: Pod) -> int:
        """Return a pod's number among all: a new one is the last."""
        pods = self._moment.workload.pods
        return next((i for i in self._waiting if pods[i] is pod), len(pods))

    def _with(self, others: list[int], pod: Pod, began: float, number: int, now: float = 0.0) -> ComparedPods:
        """Return waiting pods and one more, the last one, as the order compares them."""
        moment = self._moment
        pods = [*(moment.workload.pods[i] for i in others), pod]
        groups = [*(self._groups[i] for i in others), self._live.join(pod)[0]]
        return self._compare(pods, groups, np.append(moment.began[others], began), np.array([*others, number]), now)

    def _before(self, others: list[int], pod: Pod, began: float, number: int, now: float = 0.0) -> Ints:
        """Return the positions of the others that go before a pod, the next one first."""
        return _before_last(self._with(others, pod, began, number, now))

    def _compare(
        self, pods: Sequence[Pod], groups: Sequence[int], since: Floats, number: Ints, now: float = 0.0
    ) -> ComparedPods:
        count = len(pods)
        # Of pods of the same second the first goes first, since waiting pods are listed in the order of their age.
        heads = np.zeros(count, dtype=HEAD)
        heads["group"], heads["since"], heads["number"] = groups, since, number
        if count:
            self._live.first(heads, count, now, count)
        return ComparedPods(
            np.array([each.priority for each in pods], dtype=np.int64),
            heads["score"],
            heads["since"],
            heads["number"],
            heads["group"],
        )

    def _described(self, pod: Pod, compared: ComparedPods, k: int, reason: Reason | Literal[""] = "") -> PodInQueue:
        estimate = self._live.estimate(int(compared.group[k]))
        return PodInQueue(
            f"{pod.namespace}/{pod.name}",
            pod.priority,
            -float(compared.since[k]),
            self._live.size.of(pod.requests),
            None if np.isnan(estimate) else estimate,
            reason,
        )

    def _changes(self, pod: Pod, began: float, number: int, others: list[int], ahead: int) -> Iterator[PlaceChange]:
        pods = self._moment.workload.pods
        if not ahead:
            return
        tried = changes(
            pod,
            self._live.order,
            shares_gpus=any(0 < each.requests.gpu_milli < GPU_MILLI for each in pods),
            estimate=self._live.expected_seconds(pod),
            priority=max(pods[i].priority for i in others) + 1,
        )
        for change in tried:
            if len(then := self._before(others, change.pod, began, number)) < ahead:
                yield PlaceChange(change.text, len(then))
        for text, seconds in LONGER.items():
            if len(then := self._before(others, pod, began, number, seconds)) < ahead:
                yield PlaceChange(f"waiting for {text} more, if no other pod arrives", len(then))
                return


def _in_turn(compared: ComparedPods) -> Ints:
    """Return the positions of pods, the next one first."""
    return np.lexsort((compared.number, compared.since, compared.score, -compared.priority))


def _before_last(compared: ComparedPods) -> Ints:
    """Return the positions of what goes before the last one, the next one first."""
    in_turn = _in_turn(compared)
    return in_turn[: int(np.flatnonzero(in_turn == len(in_turn) - 1)[0])]


def _reason(compared: ComparedPods, k: int, order: Order) -> Reason:
    """Return why the pod at a position goes before the last one."""
    if compared.priority[k] != compared.priority[-1]:
        return "priority"
    if order.follows_age or compared.score[k] == compared.score[-1]:
        return "age"
    return "waited too long" if -compared.since[k] > order.ageing else "order"
