"""A scheduler whose pods overtake the one that goes next without delaying it, in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples
from tests.support.virtual_scheduler import VirtualScheduler, in_event_loop
from tests.unit.kubernetes.cache.test_cluster_cache import node, pod, raw

from steersman.cluster.model import Node, PodClass, Requests
from steersman.cluster.objects.decoding import ESTIMATE_KEY
from steersman.cluster.state import ClusterState
from steersman.live.scheduler import hints
from steersman.live.scheduler.backfill import Backfill
from steersman.orders.live_reservation import EndingPods, LiveReservation
from steersman.orders.order import Order
from steersman.orders.scores import SHORTEST


@dataclass(frozen=True)
class Job:
    """A pod that arrives at `at`, runs for `runs` seconds and states `states`, by default the truth."""

    at: float
    runs: float
    cpus: int
    gpus: tuple[int, int] = (0, 0)
    priority: int = 0
    states: float | None = None


@pytest.fixture(autouse=True, scope="module")
def _changes_are_looked_at_at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hints, "MAX_DELAY_SECONDS", 0.0)
        yield


class Play(VirtualScheduler):
    """A scheduler of nodes, in a time that passes from event to event."""

    def __init__(self, jobs: Sequence[Job], order: str | Order, nodes: Sequence[int], gpus: int = 0) -> None:
        super().__init__(order)
        self.now = 0.0
        self.jobs = jobs
        self.started: dict[str, float] = {}
        self.promised: dict[str, float] = {}
        for i, cpus in enumerate(nodes):
            self.cache.upsert_node(raw(node(f"n{i}", cpu=cpus, gpus=gpus)))
        if self.scheduler.backfill:
            assert self.queue.ordering is not None
            self.scheduler.backfill = Backfill(self.queue.ordering, self.cache, self.time, self.time)

    def starts(self) -> list[float]:
        """Return when each pod started, inf: never."""
        self.play()
        return [self.started.get(f"p{k}", np.inf) for k in range(len(self.jobs))]

    @in_event_loop
    def play(self) -> None:
        arrivals = sorted(range(len(self.jobs)), key=lambda k: (self.jobs[k].at, k))
        ends: list[tuple[float, str]] = []
        while True:
            self.attempt()
            for key, cached in self.cache.pods.items():
                if cached.node and cached.pod.name not in self.started:
                    self.started[cached.pod.name] = cached.started = self.now
                    job = self.jobs[int(cached.pod.name[1:])]
                    heapq.heappush(ends, (self.now + job.runs, key))
            times = [self.jobs[arrivals[0]].at] if arrivals else []
            times += [ends[0][0]] if ends else []
            if not times:
                return
            wait = self.scheduler.wait_seconds()
            self.now = min([*times, *([] if wait is None else [self.now + max(wait, 0.01)])])
            while arrivals and self.jobs[arrivals[0]].at <= self.now:
                self.add(arrivals.pop(0))
            while ends and ends[0][0] <= self.now:
                self.cache.delete_pod(heapq.heappop(ends)[1])

    def add(self, k: int) -> None:
        job = self.jobs[k]
        obj: dict[str, Any] = pod(f"p{k}", uid=f"{k}", cpu=str(job.cpus), gpu=job.gpus, priority=job.priority)
        states = job.runs if job.states is None else job.states
        obj["metadata"]["annotations"] = obj["metadata"].get("annotations", {}) | {ESTIMATE_KEY: repr(states)}
        self.cache.upsert_pod(raw(obj))

    def attempt(self) -> None:
        for queued in self.run():
            # When it was promised to start by the reservation that promised it earliest.
            self.promised[queued.pod.pod.name] = queued.promised


def starts(jobs: Sequence[Job], order: str | Order = "easy", nodes: Sequence[int] = (4,), gpus: int = 0) -> list[float]:
    return Play(jobs, order, nodes, gpus).starts()


def test_pods_overtake_that_end_in_time_or_leave_room() -> None:
    """As in a simulation: one ends before the reservation begins, one leaves room beside it, and the others wait."""
    # Of 4 CPUs 2 are busy until 10. The pod of 3 is reserved from then on, with 1 CPU beside it.
    jobs = [Job(0, 10, 2), Job(1, 5, 3), Job(2, 8, 1), Job(2, 100, 1), Job(3, 3, 1), Job(4, 100, 1)]
    assert starts(jobs) == [0, 10, 2, 2, 15, 15]


@pytest.mark.parametrize(
    ("owner", "stated", "ended", "overtakes"),
    [
        ("ReplicaSet/web-1", None, False, True),
        ("StatefulSet/db", None, False, True),
        ("DaemonSet/agent", 60.0, True, True),
        ("ReplicaSet/web-1", 60.0, False, False),
        ("ReplicaSet/web-1", None, True, False),
        ("Job/train", None, False, False),
        ("", None, False, False),
    ],
)
@in_event_loop
def test_room_of_pods_that_stay_is_not_reserved(owner: str, stated: float | None, ended: bool, overtakes: bool) -> None:
    world = VirtualScheduler("easy")
    world.cache.upsert_node(raw(node("n0", cpu=4)))
    kind, _, name = owner.partition("/")
    runs: dict[str, Any] = pod("runs", cpu="3", on="n0")
    owners = [{"kind": kind, "name": name, "uid": "u", "controller": True}]
    runs["metadata"]["ownerReferences"] = owners if owner else []
    if stated is not None:
        runs["metadata"]["annotations"] = {ESTIMATE_KEY: repr(stated)}
    world.cache.upsert_pod(raw(runs))
    assert world.queue.ordering is not None
    if ended:
        world.queue.ordering.order.history.note(world.cache.pods["default/runs"].pod, 60.0)
    world.cache.upsert_pod(raw(pod("large", cpu="4")))
    world.run()
    world.now += 1.0
    small: dict[str, Any] = pod("small", cpu="1")
    small["metadata"]["annotations"] = {ESTIMATE_KEY: "1e7"}
    world.cache.upsert_pod(raw(small))
    world.run()
    assert bool(world.node_of("default/small")) == overtakes


def test_pod_behind_refused_ones_still_overtakes() -> None:
    """Of equal pods the oldest ones are too long, the youngest is not: it is tried, too."""
    jobs = [Job(0, 10, 3), Job(1, 5, 4), *(Job(2, 100, 1) for _ in range(5)), Job(3, 4, 1)]
    assert starts(jobs)[-1] == 3


def test_overtaking_goes_by_the_order() -> None:
    """Of the pods that may overtake the one that the order says goes first; the head stays as it was chosen."""
    jobs = [Job(0, 10, 3), Job(1, 50, 4), Job(2, 8, 1), Job(2, 2, 1)]
    assert starts(jobs, "shortest:easy") == [0, 10, 60, 2]
    assert starts(jobs, "easy") == [0, 10, 2, 60]


def test_refused_pod_takes_another_node() -> None:
    """Only the reserved node is closed to it."""
    # The first node has 1 CPU left, so that it is the best fit, the second 3.
    jobs = [Job(0, 10, 3), Job(0, 1000, 5), Job(1, 5, 4), Job(2, 500, 1)]
    assert starts(jobs, nodes=(4, 8)) == [0, 0, 10, 2]


def test_reserved_devices_are_kept() -> None:
    """Of 4 GPUs one is busy until 10; a pod of 3 is reserved, and one GPU is left beside it."""
    jobs = [Job(0, 10, 1, (2, 1000)), Job(1, 5, 1, (3, 1000)), Job(2, 99, 1, (1, 1000)), Job(3, 99, 1, (1, 1000))]
    assert starts(jobs, nodes=(8,), gpus=4) == [0, 10, 2, 15]


def test_higher_priority_ignores_the_reservation() -> None:
    """A pod of higher priority delays the one that goes next."""
    jobs = [Job(0, 10, 3), Job(1, 5, 4), Job(2, 100, 1, priority=1)]
    assert starts(jobs) == [0, 102, 2]


def test_missed_reservation_is_followed_by_one_that_no_estimate_overrides() -> None:
    """A pod runs for longer than stated: from then on nobody overtakes on the node, as in simulations."""
    jobs = [Job(0, 100, 3, states=10), Job(1, 5, 4), Job(2, 8, 1), Job(20, 3, 1), Job(25, 500, 1)]
    assert starts(jobs) == [0, 100, 2, 105, 105]
    # On another node they start.
    assert starts(jobs, nodes=(4, 1)) == [0, 100, 2, 20, 25]


OUTRUNNING = [Job(100.0 * k, 1000, 1, states=5) for k in range(150)]
"""Pods that fill two nodes of 4 CPUs, and run for much longer than they state."""


@pytest.mark.parametrize("priority", [None, 1])
def test_pods_that_outrun_their_estimates_delay_the_next_one_once(priority: int | None) -> None:
    """It gets the node that was promised to it once what ran there has ended, whoever comes with a higher priority."""
    small = [] if priority is None else [Job(2100 + 200.0 * k, 1, 1, priority=priority, states=1) for k in range(60)]
    found = starts([*OUTRUNNING, Job(2050, 50, 4, states=50), *small], nodes=(4, 4))
    assert 3700 <= found[len(OUTRUNNING)] <= 3701


def test_missed_reservation_leaves_a_node_that_became_too_small() -> None:
    play = Play([Job(0, 200, 3, states=10), Job(0, 100, 2, states=1000), Job(1, 5, 4)], "easy", (4, 4))
    tried = play.attempt

    def shrinks() -> None:
        if play.now >= 50:
            play.cache.upsert_node(raw(node("n0", cpu=3)))
        tried()

    play.attempt = shrinks  # type: ignore[method-assign]
    play.jobs = [*play.jobs, *(Job(2.0 + 4 * k, 30, 1) for k in range(100))]
    assert play.starts()[2] == 100


AGEING = Order("shortest with ageing", SHORTEST, ageing=60.0)


def _claims(obj: dict[str, Any]) -> None:
    obj["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]


def _needs_a_pod(obj: dict[str, Any]) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "nobody"}}, "topologyKey": "kubernetes.io/hostname"}
    obj["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize("order", [AGEING, "easy", "fcfs"])
@pytest.mark.parametrize(("hinder", "listed"), [(_claims, True), (_claims, False), (_needs_a_pod, True)])
def test_pod_that_waits_for_no_room_holds_nobody_back(
    order: str | Order, hinder: Callable[[dict[str, Any]], None], listed: bool
) -> None:
    """Pods start as they do without one that waits for a claim, for claims to be listed, or for another pod."""
    jobs = [*(Job(2.0 * k, 10, 1) for k in range(100)), Job(5, 7, 4)]
    play = Play(jobs, order, (4,))
    obj = pod("hindered", uid="hindered", cpu="1")
    hinder(obj)
    play.cache.upsert_pod(raw(obj))
    for reflector in play.scheduler.volumes.reflectors if listed else ():
        reflector.synced.set()
    assert play.starts() == starts(jobs, order)


def test_pod_of_a_higher_priority_that_is_not_overdue_takes_no_reservation() -> None:
    """Those of priority 1 want GPUs of another node, and each of them waits for a short time."""
    stream = [Job(2.0 * k, 10, 1) for k in range(150)]
    others = [Job(2.0 * k, 1.9, 1, (1, 1000), priority=1) for k in range(150)]
    play = Play([*stream, *others, Job(5, 7, 4)], AGEING, (4,))
    play.cache.upsert_node(raw(node("g", cpu=1, gpus=1)))
    taken = Job(0, 5, 1, (1, 1000), priority=2)
    play.jobs = [*play.jobs, taken]
    assert play.starts()[len(stream) + len(others)] < 80


A, B = Node("a", 4000, 1 << 30), Node("b", 4000, 1 << 30)


@pytest.fixture
def reserved() -> tuple[ClusterState, LiveReservation]:
    """Two full nodes, of which the one that is free first, b, is reserved."""
    state = ClusterState((A, B))
    c = state.class_id(PodClass(Requests(cpu_milli=3000)))
    for slot in range(2):
        state.place(f"p{slot}", c, slot, 0)
    numbers, ends = np.array([c, c]), np.array([20.0, 10.0])
    made = LiveReservation(state, c, EndingPods(numbers, np.arange(2), np.zeros(2, np.int64), np.zeros(2), ends), 5.0)
    return state, made


def test_reservation_ends_with_its_node(reserved: tuple[ClusterState, LiveReservation]) -> None:
    """Of two nodes the one that is free first is reserved, until it is deleted."""
    state, made = reserved
    assert made.begins == 10.0
    assert made.reserved.tolist() == [False, True]
    state.remove_node("a")
    assert made.holds(state)
    state.remove_node("b")
    assert not made.holds(state)


def test_reservation_ends_when_its_node_is_cordoned(reserved: tuple[ClusterState, LiveReservation]) -> None:
    """A second reservation, made after one was missed, has no time at which it expires."""
    state, made = reserved
    state.update_node(replace(A, unschedulable=True))
    assert made.holds(state)
    state.update_node(replace(B, unschedulable=True))
    assert not made.holds(state)


def test_next_pod_has_a_reservation_once_the_one_before_it_has_started() -> None:
    """Though nothing has changed that helps it, and others arrive later that take what becomes free."""
    stream = [Job(5 + 3 * i, 6, 2) for i in range(6)]
    jobs = [Job(0, 4, 2), Job(0, 7, 2), Job(1, 6, 2), Job(2, 5, 4), *stream]
    assert starts(jobs)[2:5] == [4, 10, 15]
    # Also before one of a lower priority that has a reservation.
    before = [replace(job, priority=1) for job in jobs[:4]]
    assert starts([*before, Job(0.5, 5, 4), *stream])[2:5] == [4, 10, 15]
    # One that no node could take blocks nobody.
    assert starts([*jobs[:4], *stream, Job(3, 1, 9)])[2:5] == [4, 10, 15]
    assert starts([*jobs[:3], *stream, Job(0.5, 1, 9)])[2:5] == [4, 7, 10]


def test_event_names_the_pod_that_goes_next() -> None:
    """And when that is expected to start."""
    play = Play([Job(0, 10, 3), Job(1, 5, 4), Job(2, 100, 1)], "easy", (4,))
    play.starts()
    assert (
        "default/p2",
        "0/1 nodes are available: it would delay pod default/p1, which is expected to start in 8 s.",
    ) in (play.reports.told)


def _stream(seed: int, gpus: int) -> list[Job]:
    """Return up to 30 jobs with times in binary fractions of a second, so that sums are exact."""
    random = np.random.default_rng(seed)
    jobs, at = [], 0.0
    for _ in range(int(random.integers(3, 30))):
        at += int(random.exponential(8) * 64) / 64
        cpus = int(random.integers(1, 5))
        held = (int(random.integers(0, gpus + 1)), 1000) if gpus and random.random() < 0.6 else (0, 0)
        jobs.append(Job(at, int(random.uniform(1, 60) * 64) / 64, cpus, held if held[0] else (0, 0)))
    return jobs


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from(["easy", "shortest:easy", "wfp3:easy"]), st.sampled_from([0, 2]))
def test_pod_that_goes_next_starts_when_it_was_promised(seed: int, order: str, gpus: int) -> None:
    """If estimates are right, no pod starts later than any reservation that was made for it; and all pods start."""
    play = Play(_stream(seed, gpus), order, (4, 4, 4), gpus)
    found = play.starts()
    assert np.isfinite(found).all()
    for name, begins in play.promised.items():
        assert play.started[name] <= begins + 1e-6, (name, begins)


SHORT_FIRST = Order("shortest with ageing", SHORTEST, ageing=60.0)


def test_pod_that_waits_for_too_long_has_a_reservation() -> None:
    """Pods of one CPU come faster than they end, and the one of four waits until it is overdue and they have ended."""
    stream = [Job(float(t), 10, 1) for t in range(0, 400, 2)]
    jobs = [*stream, Job(5, 7, 4), Job(6, 7, 4)]
    first, second = starts(jobs, SHORT_FIRST)[-2:]
    # Overdue at 65; what runs then ends within 10 s. The next one is overdue, too.
    assert 65 < first <= 65 + 10
    assert second == first + 7
    assert starts(jobs, "smallest")[-2] > 400


def test_overdue_pod_does_not_delay_a_higher_priority() -> None:
    """Nor does a pod that no node could take even if it were empty delay anybody."""
    stream = [Job(float(t), 10, 1, priority=1) for t in range(0, 400, 2)]
    assert starts([*stream, Job(5, 7, 4)], SHORT_FIRST)[-1] > 400
    alone = [Job(float(t), 10, 1) for t in range(0, 100, 2)]
    assert starts([*alone, Job(5, 7, 9)], SHORT_FIRST)[:-1] == starts(alone, SHORT_FIRST)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from([0, 2]))
@example(54947, 2)  # Of two pods that came at once the second one, which was tried first, delayed the other.
def test_overdue_pods_start_when_they_were_promised(seed: int, gpus: int) -> None:
    """If estimates are right, no reservation of a pod that has waited for 60 s is missed."""
    play = Play(_stream(seed, gpus), SHORT_FIRST, (4,), gpus)
    found = play.starts()
    assert np.isfinite(found).all()
    for name, begins in play.promised.items():
        assert play.started[name] <= begins + 1e-6, (name, begins)


def test_backfilling_starts_pods_earlier_than_nobody_overtaking() -> None:
    """Over several streams the mean wait is at least a tenth shorter."""
    waits = {}
    for order in ("fcfs", "easy"):
        total = 0.0
        for seed in range(8):
            jobs = _stream(seed, 0)
            total += sum(start - job.at for start, job in zip(starts(jobs, order, (4, 4)), jobs, strict=True))
        waits[order] = total
    assert waits["easy"] < 0.9 * waits["fcfs"]


def test_reservation_is_made_again_after_the_state_was_rebuilt() -> None:
    """Numbers of classes and nodes are others then, and pods start as if nothing had happened."""
    jobs = [Job(0, 10, 6), Job(1, 5, 8), Job(3, 3, 2), Job(5, 100, 2)]
    play = Play(jobs, "easy", (1, 8))
    tried = play.attempt

    def rebuilds() -> None:
        if play.now >= 3 and "n0" in play.cache.state.slots:
            play.cache.delete_node("n0")
            play.cache.rebuild()
        tried()

    play.attempt = rebuilds  # type: ignore[method-assign]
    assert play.starts() == starts(jobs, nodes=(8,)) == [0, 10, 3, 15]
