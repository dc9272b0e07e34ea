"""Backfilling: pods that overtake the one that goes next, without delaying it as far as estimates are right.

Source: EASY backfilling of Lifka, "The ANL/IBM SP Scheduling System" (JSSPP 1995), with nodes instead of a pool. As in
Slurm's backfill scheduler, the reservation is made again every 30 s, since pods end earlier and later than estimated.
Once the pod has not started when it was first promised to, the reservation stays on its node, and no estimate overrides
it, see `orders.live_reservation`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from steersman.kubernetes.cache.cluster_cache import ClusterCache
from steersman.live.scheduler.ordering import PodOrdering, QueuedPod
from steersman.orders.live_reservation import EndingPods, LiveReservation
from steersman.policies.decision.decider import NodeChoice

RENEW_SECONDS = 30.0
"""Age after which a reservation is made again."""
TICK_SECONDS = 0.001
"""How long after a reservation has expired the next look comes."""


class Backfill:
    """Reservation for the pod that goes next."""

    def __init__(
        self,
        ordering: PodOrdering,  # who goes next
        cache: ClusterCache,
        clock: Callable[[], float] = time.monotonic,  # monotonic, seconds
        wall_clock: Callable[[], float] = time.time,  # seconds since 1970
    ) -> None:
        self._ordering, self._cache = ordering, cache
        self._clock, self._wall_clock = clock, wall_clock
        self._reservation: LiveReservation | None = None
        self._head: QueuedPod | None = None
        self._expires_at = math.inf
        self._is_missed = False
        self._refused: dict[str, QueuedPod] = {}
        self._known: dict[tuple[int, int], int] = {}
        self._estimates: dict[str, float] = {}

    def refresh(self) -> list[QueuedPod]:
        """Drop an outdated reservation, and return the pods that it kept from starting."""
        reservation = self._reservation
        if reservation is None:
            return []
        is_waiting, now = self._ordering.blocking_head() is self._head, self._clock()
        if is_waiting and now <= self._expires_at and reservation.holds(self._cache.state):
            return []
        refused = list(self._refused.values())
        self._reservation = self._head = None
        self._refused.clear()
        self._known.clear()
        return refused

    def wait_seconds(self) -> float | None:
        """Return how long to wait before the next `refresh`; None: nobody was refused."""
        return max(0.0, self._expires_at - self._clock()) + TICK_SECONDS if self._refused else None

    def closed(self, queued: QueuedPod) -> npt.NDArray[np.bool_] | None:
        """Return the nodes that a pod may take only if it leaves room there, [N]; None: it may take every node."""
        head = self._ordering.blocking_head()
        if queued is self._head:
            # It is tried itself, and if it fits nowhere what is reserved for it stays so.
            return None
        if head is None or self._ordering.may_delay(queued, head):
            # No reservation accounts for it.
            self._expires_at = -math.inf
            return None
        if self._reservation is None or self._head is not head or not self._reservation.holds(self._cache.state):
            self._reserve(head)
        assert self._reservation is not None
        ends = self._clock() + self._ordering.order.expected_seconds(queued.pod.pod)
        ends_in_time = ends <= self._reservation.begins and not self._is_missed
        return None if ends_in_time else self._reservation.reserved

    def lets(self, queued: QueuedPod, choice: NodeChoice) -> bool:
        """Count a pod on the node that was chosen for it, unless it would delay the pod that goes next."""
        assert self._reservation is not None
        return self._reservation.take(queued.pod.class_id, choice.slot, choice.devices)

    def is_known(self, queued: QueuedPod, generation: int) -> bool:
        """Return whether an equal pod was refused, and no node may take more since then, see `refuse`."""
        pod = queued.pod
        return not pod.claims and self._known.get((pod.class_id, pod.labels_id)) == generation

    def refuse(self, queued: QueuedPod, generation: int) -> str:
        """Remember a pod that the reservation keeps from starting, and return why it waits.

        `generation` is a number that changes whenever a node may take more than before.
        """
        assert self._reservation is not None
        assert self._head is not None
        self._refused[queued.pod.key] = queued
        if not queued.pod.claims:
            self._known[queued.pod.class_id, queued.pod.labels_id] = generation
        count, seconds = len(self._cache.state.slots), self._reservation.begins - self._clock()
        when = f", which is expected to start in {max(seconds, 0):.0f} s" if seconds < math.inf else ""
        return f"0/{count} nodes are available: it would delay pod {self._head.pod.key}{when}."

    def _reserve(self, head: QueuedPod) -> None:
        now, state = self._clock(), self._cache.state
        self._head, self._is_missed = head, now > head.promised
        reservation, running = None, self._running(now)
        if self._is_missed and head.reserved_node in state.slots:
            # Elsewhere it would wait for other pods again, which may run for longer than estimated, too.
            of_node = running.on(state.slots[head.reserved_node])
            reservation = LiveReservation(state, head.pod.class_id, of_node, now)
        if reservation is None or reservation.begins == math.inf:
            reservation = LiveReservation(state, head.pod.class_id, running, now)
        self._reservation = reservation
        head.promised = min(head.promised, reservation.begins)
        head.reserved_node = reservation.node
        self._expires_at = now + RENEW_SECONDS if self._is_missed else min(reservation.begins, now + RENEW_SECONDS)
        if self._refused:
            # Another reservation refused them: they are tried again at once.
            self._expires_at = -math.inf
        self._known.clear()

    def _running(self, now: float) -> EndingPods:
        cache, order, epoch = self._cache, self._ordering.order, self._wall_clock() - now
        # An estimate stays as it was when the pod was first seen to run, as in simulations.
        known, self._estimates = self._estimates, {}
        # Lists of numbers, since a tuple for each pod would make the garbage collector run.
        places: list[int] = []
        times: list[float] = []
        for key, placed in cache.state.placements.items():
            pod = cache.pods.get(key)
            # Nominated pods are placed, too, and do not run.
            if pod is None or not pod.node or order.history.lasts(pod.pod):
                continue
            # Its kubelet has not begun with a pod that was bound just now.
            started = now if pod.started is None else min(pod.started - epoch, now)
            seconds = known.get(pod.uid)
            if seconds is None:
                seconds = order.expected_seconds(pod.pod)
            self._estimates[pod.uid] = seconds
            places += (placed.class_id, placed.slot, placed.devices)
            times += (started, started + seconds)
        class_id, slot, devices = np.array(places, dtype=np.int64).reshape(-1, 3).T.copy()
        begun, ends = np.array(times, dtype=np.float64).reshape(-1, 2).T.copy()
        return EndingPods(class_id, slot, devices, begun, ends)
