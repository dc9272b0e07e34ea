"""Who goes next in the queue: by hand, and against a plain queue that sorts all its pods."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples
from tests.support.order_scores import learned_score, simple_score
from tests.unit.live.scheduler.test_queue import Clock, popped

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.cluster.state import ClusterState
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.live.scheduler.ordering import BACKFILL_DEPTH, Group, PodOrdering, QueuedPod
from steersman.live.scheduler.queue import FAILURES, TURN, UNSCHEDULABLE_SECONDS, SchedulingQueue
from steersman.orders.live_order import LiveOrder
from steersman.orders.order import BUILT_IN, Order
from steersman.orders.registry import find_order
from steersman.orders.run_time_history import RunTimeHistory
from steersman.orders.scores import LEARNED, learned_size

MANY_CPUS = ClusterState((Node("n", 1_000_000, 1 << 40),))
"""A cluster whose capacity is 1000 CPUs, so that sizes are in CPUs."""


def pod(
    name: str, seconds: float | None = None, cpus: float = 1, priority: int = 0, owner: str = "", class_id: int = 0
) -> CachedPod:
    requests = Requests(cpu_milli=round(1000 * cpus))
    model = Pod(name, PodClass(requests), priority=priority, owner=owner, estimated_seconds=seconds)
    return CachedPod(f"default/{name}", name, model, 1, class_id=class_id, labels_id=0)


def queue_of(order: str | Order, clock: Clock, history: RunTimeHistory | None = None) -> SchedulingQueue:
    found = find_order(order) if isinstance(order, str) else order
    live = LiveOrder(found, RunTimeHistory() if history is None else history, clock)
    queue = SchedulingQueue(clock, PodOrdering(live, clock))
    queue.follow_cluster(MANY_CPUS)
    return queue


def pop(queue: SchedulingQueue) -> QueuedPod:
    queued = queue.pop()
    assert queued is not None
    return queued


@pytest.fixture
def clock() -> Clock:
    return Clock()


# At 200 a large pod waits for 99 s, a long one for 50 s, a short one for 20 s.
LARGE, LONG, SHORT = (101, 20.0, 4), (150, 50.0, 1), (180, 5.0, 2)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("age:none", "large long short"),
        ("smallest", "long short large"),
        ("largest", "large short long"),
        ("shortest", "short large long"),
        # r * n: 80, 50, 10.
        ("area", "short long large"),
        # -(w / r)^3 n: -(99/20)^3 * 4 = -485, -1, -(20/5)^3 * 2 = -128.
        ("wfp3", "large short long"),
        # -w / (log2(1 + n) r): -99 / 46.4 = -2.1, -50 / 50 = -1, -20 / 7.9 = -2.5.
        ("unicef", "short large long"),
        # log10(r) n + 870 log10(arrival since 100): 5.2 + 0, 1.7 + 1478, 1.4 + 1656.
        ("f1", "large long short"),
        ("shortest@none", "large long short"),
    ],
)
def test_who_goes_next(order: str, expected: str, clock: Clock) -> None:
    """Each order pops the pods as worked out by hand."""
    queue = queue_of(order, clock)
    for name, (at, seconds, cpus) in (("large", LARGE), ("long", LONG), ("short", SHORT)):
        clock.now = at
        queue.add(pod(name, seconds, cpus))
    clock.now = 200
    assert popped(queue) == expected.split()


def test_scores_are_those_of_the_time_of_the_pop(clock: Clock) -> None:
    """By wfp3 a long pod goes first once it has waited for long enough."""
    for wait, first in ((10.0, "short"), (10_000.0, "long")):
        queue = queue_of("wfp3", clock)
        queue.add(pod("long", 100.0, 1))
        clock.now += wait
        queue.add(pod("short", 10.0, 1))
        clock.now += 10
        assert popped(queue)[0] == first


def test_priority_goes_first_in_every_order(clock: Clock) -> None:
    """Priority beats each order's score."""
    for name in BUILT_IN.keys() - {"easy", "las"}:
        queue = queue_of(f"{name}:none" if name == "age" else name, clock)
        queue.add(pod("a", 1.0, 1))
        clock.now += 5
        queue.add(pod("b", 1000.0, 4, priority=7))
        assert popped(queue) == ["b", "a"], name


def test_changed_pod_is_ordered_by_what_it_says_now(clock: Clock) -> None:
    """A stated run time may change while a pod is active or waits for a change."""
    queue = queue_of("shortest", clock)
    changing, other = pod("changing", 100.0), pod("other", 50.0)
    queue.add(changing)
    queue.add(other)
    changing.pod = replace(changing.pod, estimated_seconds=10.0)
    queue.add(changing)
    tried = pop(queue)
    assert tried.pod is changing
    queue.mark_unschedulable(tried)
    changing.pod = replace(changing.pod, estimated_seconds=1000.0)
    queue.add(changing)
    assert popped(queue) == ["other", "changing"]


def test_estimates_follow_what_ended(clock: Clock) -> None:
    """A kind of pod turns out to be short, then an owner turns out to be long."""
    history = RunTimeHistory()
    queue = queue_of("shortest", clock, history)
    for name, cpus in (("a", 1), ("b", 2)):
        queue.add(pod(name, None, cpus, owner=f"Job/{name}"))
    first = pop(queue)
    assert first.pod.pod.name == "a", "nothing is known of either"
    queue.add(first.pod)
    for i in range(20):
        history.note(pod("x", None, 2, owner=f"Job/{i}").pod, 5.0)
    assert popped(queue) == ["b", "a"]
    for name, cpus in (("a", 1), ("b", 2)):
        queue.add(pod(name, None, cpus, owner=f"Job/{name}"))
    assert history.note(pod("x", None, 2, owner="Job/b").pod, 1e6)
    for _ in range(20):
        history.note(pod("x", None, 2, owner="Job/b").pod, 1e6)
    assert sorted(popped(queue)) == ["a", "b"]
    for name, cpus in (("a", 1), ("b", 2)):
        queue.add(pod(name, None, cpus, owner=f"Job/{name}"))
    assert popped(queue) == ["a", "b"]


def test_first_end_of_an_owner_moves_its_waiting_pods(clock: Clock) -> None:
    """Those that are active and those that wait for a change."""
    history = RunTimeHistory()
    queue = queue_of("shortest", clock, history)
    for name in ("b1", "b2", "a1"):
        queue.add(pod(name, None, 1, owner=f"Job/{name[0]}"))
        clock.now += 1
    queue.mark_unschedulable(pop(queue))
    for _ in range(20):
        if history.note(pod("x", None, 1, owner="Job/b").pod, 1e6):
            queue.note_first_end("default", "Job/b")
    assert pop(queue).pod.pod.name == "a1"
    queue.wake(dict.fromkeys(queue.groups(), 9))
    assert popped(queue) == ["b1", "b2"]


def test_sizes_follow_the_cluster(clock: Clock) -> None:
    """A pod of much memory is large until nodes of more memory come."""
    queue = queue_of("smallest", clock)
    state = ClusterState((Node("n", 100_000, 100),))
    queue.follow_cluster(state)
    cpus, memory = pod("cpus", None, 10), pod("memory", None, 1)
    memory.pod = replace(memory.pod, pod_class=PodClass(Requests(cpu_milli=1000, memory_bytes=20)))
    queue.add(cpus)
    queue.add(memory)
    first = pop(queue)
    assert first.pod.pod.name == "cpus"
    queue.mark_unschedulable(first)
    state.add_node(Node("m", 0, 900))
    queue.follow_cluster(state)
    queue.wake(dict.fromkeys(queue.groups(), 1))
    assert popped(queue) == ["memory", "cpus"]


def test_woken_pods_are_those_that_go_first(clock: Clock) -> None:
    """Of three that wait the two shortest are woken, and at once, though they have just failed."""
    queue = queue_of("shortest", clock)
    for name, seconds in (("long", 100.0), ("short", 1.0), ("middle", 10.0)):
        queue.add(pod(name, seconds))
    while (queued := queue.pop()) is not None:
        queue.mark_unschedulable(queued)
    queue.wake(dict.fromkeys(queue.groups(), 2))
    assert queue.counts() == {"active": 2, "backoff": 0, "unschedulable": 1}
    assert popped(queue) == ["short", "middle"]


def test_error_has_a_backoff_in_every_order(clock: Clock) -> None:
    """A pod whose attempt ended with an error waits, and others go on."""
    queue = queue_of("shortest", clock)
    queue.add(pod("a", 1.0))
    queue.requeue_with_backoff(pop(queue))
    queue.add(pod("b", 100.0))
    assert popped(queue) == ["b"]
    clock.now += 1
    assert popped(queue) == ["a"]


def test_overdue_pods_go_first_the_oldest_before_others(clock: Clock) -> None:
    """Ageing beats the score, not the priority."""
    queue = queue_of(replace(BUILT_IN["shortest"], ageing=100.0), clock)
    for name, seconds in (("x", 5000.0), ("y", 900.0)):
        queue.add(pod(name, seconds))
        clock.now += 10
    clock.now += 75
    queue.add(pod("new", 1.0))
    assert pop(queue).pod.pod.name == "new", "nobody is overdue"
    clock.now += 30
    queue.add(pod("new", 1.0))
    queue.add(pod("urgent", 9000.0, priority=1))
    assert popped(queue) == ["urgent", "x", "y", "new"]


def test_nobody_overtakes_the_pod_that_goes_next(clock: Clock) -> None:
    """While it waits, only pods of higher priority are tried; once it is bound, the others are."""
    queue = queue_of("shortest:none", clock)
    queue.add(pod("next", 10.0))
    chosen = pop(queue)
    queue.mark_unschedulable(chosen)
    queue.add(pod("shorter", 1.0))
    queue.add(pod("low", 1.0, priority=-1))
    assert queue.pop() is None, "it stays chosen"
    queue.add(pod("high", 100.0, priority=1))
    high = pop(queue)
    assert high.pod.pod.name == "high"
    queue.mark_unschedulable(high)
    queue.wake({(0, 0, 0, ""): 1})
    assert queue.pop() is None, "the pod of higher priority goes before it"
    queue.remove(high.pod.key)
    assert pop(queue) is chosen
    assert pop(queue).pod.pod.name == "shorter", "the binding is under way"
    assert popped(queue) == ["low"]


def test_wake_begins_with_the_pod_that_nobody_may_overtake(clock: Clock) -> None:
    """Also if another of its group is shorter by now."""
    queue = queue_of("shortest:none", clock)
    tried = []
    for name, seconds in (("a", 5.0), ("b", 10.0)):
        queue.add(pod(name, seconds))
        tried.append(pop(queue))
    queue.mark_unschedulable(tried[0])
    queue.mark_unschedulable(tried[1])
    assert queue.pop() is None
    queue.wake(dict.fromkeys(queue.groups(), 1))
    assert popped(queue) == ["b"], "it was chosen last, when the binding of the other was under way"


@pytest.mark.parametrize("leaves", ["deleted", "hopeless", "too large"])
def test_pod_that_cannot_go_next_blocks_nobody(leaves: str, clock: Clock) -> None:
    """One that was deleted, that no change will help, or that no node could ever take."""
    queue = queue_of("fcfs", clock)
    queue.add(pod("first"))
    queue.add(pod("second"))
    first = pop(queue)
    queue.mark_unschedulable(first, hopeful=leaves != "hopeless")
    if leaves == "deleted":
        assert queue.pop() is None
        queue.remove(first.pod.key)
    elif leaves == "too large":
        assert queue.pop() is None
        queue.let_overtake(first)
    assert popped(queue) == ["second"]


# Random streams -----------------------------------------------------------------------------------------------------


@dataclass
class PlainPod:
    """A pod of the plain queue."""

    pod: CachedPod
    since: float
    place: str = ""
    attempts: int = 0
    until: float = 0.0
    unschedulable_since: float = 0.0
    number: int = 0
    is_retry: bool = False


@dataclass
class PlainQueue:
    """The queue as its rules say, without any index: it sorts all its pods at each question."""

    clock: Clock
    order: Order | None = None
    pods: list[PlainPod] = field(default_factory=list)
    number: int = 0
    last: float = -math.inf
    all_moved: int = 0
    failures: int = 0
    popped: int = 0

    def at(self, place: str) -> list[PlainPod]:
        return sorted((each for each in self.pods if each.place == place), key=lambda each: each.number)

    def move(self, each: PlainPod, place: str) -> None:
        self.number += 1
        each.place, each.number = place, self.number
        each.is_retry = each.attempts > 0

    def add(self, pod: CachedPod) -> None:
        known = next((each for each in self.pods if each.pod is pod), None)
        if known is None:
            # Of pods that come at once the first is the oldest.
            self.last = max(self.clock(), math.nextafter(self.last, math.inf))
            known = PlainPod(pod, self.last)
            self.pods.append(known)
        if known.place != "active":
            self.move(known, "active")

    def remove(self, pod: CachedPod) -> None:
        self.pods = [each for each in self.pods if each.pod is not pod]

    def waits(self, each: PlainPod) -> None:
        """What was woken before its backoff is over: it goes after all active pods, but with an order at once."""
        self.move(each, "backoff" if self.order is None else "active")

    def key(self, each: PlainPod) -> tuple[Any, ...]:
        score = 0.0 if self.order is None else score_of(self.order, each, self.clock(), len(self.pods))
        return -each.pod.pod.priority, score, each.since, each.number

    def in_turn(self, pods: list[PlainPod]) -> list[PlainPod]:
        """Sort pods; of those that are alike the oldest goes first, even where an order sends back who has waited."""
        left, found = sorted(pods, key=lambda each: (each.since, each.number), reverse=True), []
        while left:
            oldest = {(each.pod.class_id, each.pod.pod.priority, each.pod.pod.estimated_seconds): each for each in left}
            found.append(min(oldest.values(), key=self.key))
            left.remove(found[-1])
        return found

    def pop(self) -> PlainPod | None:
        now = self.clock()
        for each in self.at("backoff") + self.at("error"):
            if (math.ceil(each.until) if each.place == "backoff" else each.until) <= now:
                self.move(each, "active")
        for each in sorted(self.at("unschedulable"), key=lambda each: each.unschedulable_since):
            if each.unschedulable_since + UNSCHEDULABLE_SECONDS <= now:
                self.move(each, "active")
        found = next(iter(self.in_turn(self.at("active"))), None) if self.order is not None else self.first_active()
        if found is None:
            found = min(self.at("backoff"), key=lambda each: (math.ceil(each.until), *self.key(each)), default=None)
        if found is not None:
            self.move(found, "tried")
        return found

    def first_active(self) -> PlainPod | None:
        """Pods that were not tried go first, but some attempts are those of the others; all are of one namespace."""
        active = sorted(self.at("active"), key=lambda each: (-each.pod.pod.priority, each.is_retry, each.since))
        retries = [each for each in active if each.is_retry]
        if not retries:
            self.popped = 0
        if not active or self.failures >= FAILURES:
            return next(iter(active), None)
        first = next((each for each in active if not each.is_retry), None)
        if first is None or (retries and retries[0].pod.pod.priority > first.pod.pod.priority):
            return retries[0]
        if retries and self.popped >= TURN and retries[0].pod.pod.priority == first.pod.pod.priority:
            self.popped = 0
            return retries[0]
        self.popped += 1
        return first

    def fails(self, each: PlainPod, place: str) -> None:
        self.failures += place == "unschedulable"
        each.attempts += 1
        each.until = self.clock() + min(2.0 ** (each.attempts - 1), 10.0)
        popped_at = each.number
        if each in self.pods:
            self.move(each, place)
            each.unschedulable_since = self.clock()
            if place == "unschedulable" and popped_at < self.all_moved:
                self.waits(each)

    def everything_changed(self) -> None:
        self.all_moved = self.number + 1
        for each in self.at("unschedulable"):
            self.waits(each)

    def someone_is_overdue(self, order: Order) -> bool:
        return any(self.clock() - each.since > order.ageing for each in self.pods if each.place != "tried")

    def wake(self, class_id: int, priority: int, count: int) -> None:
        alike = [
            each
            for each in self.at("unschedulable")
            if (each.pod.class_id, each.pod.pod.priority) == (class_id, priority)
        ]
        if self.order is not None:
            alike = self.in_turn(alike)
            if self.someone_is_overdue(self.order):
                # A reservation may keep the first ones from starting, but not the next.
                count = max(count, BACKFILL_DEPTH)
        for each in alike[:count]:
            self.move(each, "active") if each.until <= self.clock() else self.waits(each)
            each.is_retry = each.place == "backoff"


def score_of(order: Order, each: PlainPod, now: float, waiting: int) -> float:
    """Return the score of a pod on the cluster of 1000 CPUs."""
    # Of pods that come at once all but the first come a little later than now.
    wait, pod = max(now - each.since, 0.0), each.pod.pod
    if wait > order.ageing:
        return -math.inf
    size = pod.requests.cpu_milli / 1000
    if order.score == 0:
        return float(order.given(np.array([each.since]), np.array([size]), [pod])[0])
    run_time = 3600.0 if pod.estimated_seconds is None else pod.estimated_seconds
    if order.score == LEARNED:
        return learned_score(order.weights, run_time, 0.0, size / 1000, wait, 1.0, waiting, 0.0)
    return simple_score(order.score, run_time, size, wait, each.since - 100.0)


KINDS = [(0, 0, None, 1), (0, 1, 5.0, 1), (1, 0, 60.0, 2), (1, 0, 900.0, 2), (0, 0, 5.0, 1)]
"""Class, priority, stated run time and CPUs of pods; the class says the CPUs, as everywhere."""
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("add", "add", "remove", "pop", "pop", "failed", "rest", "room", "wake", "time")),
        st.integers(0, 24),
    ),
    max_size=100,
)


def compare(queue: SchedulingQueue, plain: PlainQueue, clock: Clock, steps: list[tuple[str, int]]) -> None:
    """Take the same steps with both queues, and compare what they pop."""
    pods = [
        pod(f"p{i}", KINDS[i % 5][2], KINDS[i % 5][3], KINDS[i % 5][1], class_id=KINDS[i % 5][0]) for i in range(25)
    ]
    trying: dict[int, tuple[QueuedPod, PlainPod]] = {}
    for what, i in [*steps, *[("pop", 0)] * 25, ("time", 24), ("time", 24), *[("pop", 0)] * 25]:
        if what == "add" and i not in trying:
            queue.add(pods[i])
            plain.add(pods[i])
        elif what == "remove":
            queue.remove(pods[i].key)
            plain.remove(pods[i])
            trying.pop(i, None)
        elif what == "pop":
            queued, wanted = queue.pop(), plain.pop()
            assert (queued and queued.pod.key) == (wanted and wanted.pod.key)
            if queued is not None and wanted is not None:
                trying[pods.index(queued.pod)] = queued, wanted
        elif what in ("failed", "rest") and trying:
            queued, wanted = trying.pop(sorted(trying)[i % len(trying)])
            queue.mark_unschedulable(queued) if what == "failed" else queue.requeue_with_backoff(queued)
            plain.fails(wanted, "unschedulable" if what == "failed" else "error")
        elif what == "room":
            queue.move_all_to_backoff()
            plain.everything_changed()
        elif what == "wake":
            class_id, priority = KINDS[i % 5][:2]
            group: Group = (class_id, 0, priority, "")
            queue.wake({group: i % 4})
            plain.wake(class_id, priority, i % 4)
        elif what == "time":
            clock.now += i / 2
        assert sum(queue.counts().values()) + len(trying) == len(queue) == len(plain.pods), (
            "none is lost or tried twice"
        )


@settings(max_examples=examples(300), deadline=None)
@given(STEPS)
def test_without_an_order_the_queue_pops_by_priority_and_age(steps: list[tuple[str, int]]) -> None:
    clock = Clock()
    compare(SchedulingQueue(clock), PlainQueue(clock), clock, steps)


NAMES = [
    "age:any",
    "smallest",
    "largest",
    "shortest@stated",
    "area@stated",
    "wfp3@stated",
    "unicef@stated",
    "f1@stated",
]


@settings(max_examples=examples(300), deadline=None)
@given(STEPS, st.sampled_from([*NAMES, "learned"]), st.sampled_from([math.inf, 20.0]), st.integers(0, 9))
@example([("add", 0), ("add", 2), ("add", 3)], "wfp3@stated", math.inf, 0)
def test_queue_pops_what_an_order_says(steps: list[tuple[str, int]], name: str, ageing: float, seed: int) -> None:
    """Whatever happened before, the pod that is popped is the first one by priority, score and age at that moment."""
    if name == "learned":
        weights = np.random.default_rng(seed).normal(size=learned_size(2))
        order = Order(name, LEARNED, weights=tuple(weights.tolist()), estimates=find_order("age@stated").estimates)
    else:
        order = find_order(name)
    clock = Clock()
    order = replace(order, ageing=ageing)
    compare(queue_of(order, clock), PlainQueue(clock, order), clock, steps)
