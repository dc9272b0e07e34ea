import asyncio
from dataclasses import dataclass

import pytest
from tests.support.servers.fake_api_server import clock as loop_clock
from tests.support.servers.fake_api_server import in_jumping_time

from steersman.cluster.model import Pod, PodClass, Requests
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.live.scheduler.queue import (
    FAILURES,
    MAX_BACKOFF_SECONDS,
    TURN,
    UNSCHEDULABLE_SECONDS,
    SchedulingQueue,
)


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def pod(name: str, priority: int = 0, namespace: str = "default") -> CachedPod:
    model = Pod(name, PodClass(Requests(cpu_milli=100)), namespace, priority=priority)
    return CachedPod(f"{namespace}/{name}", name, model, 1, class_id=0, labels_id=0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> SchedulingQueue:
    return SchedulingQueue(clock)


def popped(queue: SchedulingQueue) -> list[str]:
    found = []
    while (queued := queue.pop()) is not None:
        found.append(queued.pod.pod.name)
    return found


def fail(queue: SchedulingQueue, count: int) -> list[str]:
    """Attempt so many pods in vain; return their names."""
    names = []
    for _ in range(count):
        queued = queue.pop()
        assert queued is not None
        queue.mark_unschedulable(queued)
        names.append(queued.pod.pod.name)
    return names


@pytest.mark.parametrize("others", [1, 3])
def test_pods_of_others_overtake_a_namespace_whose_pods_keep_failing(queue: SchedulingQueue, others: int) -> None:
    for i in range(100):
        queue.add(pod(f"vain-{i}", namespace="full"))
    fail(queue, FAILURES)
    for i in range(others):
        queue.add(pod(f"other-{i}", namespace=f"other-{i}"))
    assert fail(queue, others) == [f"other-{i}" for i in range(others)]
    assert len(popped(queue)) == 100 - FAILURES


def test_namespace_whose_pods_keep_failing_has_a_share_of_the_attempts(queue: SchedulingQueue) -> None:
    for i in range(100):
        queue.add(pod(f"vain-{i}", namespace="full"))
    fail(queue, FAILURES)
    for i in range(100):
        queue.add(pod(f"other-{i}", namespace="other"))
    tried = []
    for _ in range(3 * TURN):
        queued = queue.pop()
        assert queued is not None
        tried.append(queued.pod.pod.namespace)
    assert 1 < tried.count("full") <= 3


def test_higher_priority_of_a_namespace_whose_pods_keep_failing_goes_first(queue: SchedulingQueue) -> None:
    for i in range(50):
        queue.add(pod(f"vain-{i}", 7, namespace="full"))
    fail(queue, FAILURES)
    queue.add(pod("other", 3, namespace="other"))
    assert popped(queue)[-1] == "other"


def test_two_failing_namespaces_take_turns(queue: SchedulingQueue) -> None:
    for i in range(100):
        queue.add(pod(f"many-{i}", namespace="many"))
    for i in range(FAILURES + 2):
        queue.add(pod(f"few-{i}", namespace="few"))
    tried = fail(queue, 2 * FAILURES + 4)
    assert {f"few-{i}" for i in range(FAILURES + 2)} <= set(tried)


def test_pod_that_gets_a_node_restores_the_order_of_its_namespace(queue: SchedulingQueue) -> None:
    for i in range(100):
        queue.add(pod(f"vain-{i}", namespace="full"))
    fail(queue, FAILURES)
    queue.note_success(pod("vain-0", namespace="full"))
    queue.add(pod("first", namespace="full"))
    queue.add(pod("second", namespace="other"))
    names = popped(queue)
    assert names.index("first") < names.index("second")


def test_pods_that_were_deferred_keep_their_age_when_their_namespace_gets_a_node(queue: SchedulingQueue) -> None:
    for i in range(100):
        queue.add(pod(f"vain-{i}", namespace="full"))
    fail(queue, FAILURES + 1)  # the last attempt defers the pods
    queue.note_success(pod("vain-0", namespace="full"))
    queue.add(pod("young", namespace="full"))
    assert popped(queue)[-1] == "young"


def test_unschedulable_pod_is_retried_when_resources_are_freed(queue: SchedulingQueue, clock: Clock) -> None:
    queue.add(pod("a"))
    queued = queue.pop()
    assert queued is not None
    queue.mark_unschedulable(queued)
    clock.now += 200
    assert popped(queue) == []
    queue.move_all_to_backoff()
    assert popped(queue) == ["a"]


def test_pod_that_fails_for_days_is_still_retried(queue: SchedulingQueue, clock: Clock) -> None:
    queue.add(pod("a"))
    for _ in range(1_500):
        queued = queue.pop()
        assert queued is not None
        queue.mark_unschedulable(queued)
        clock.now += 300
        queue.move_all_to_backoff()
    assert popped(queue) == ["a"]


def test_resources_freed_during_an_attempt_trigger_a_retry(queue: SchedulingQueue, clock: Clock) -> None:
    queue.add(pod("a"))
    queued = queue.pop()
    assert queued is not None
    clock.now += 0.01
    queue.move_all_to_backoff()
    queue.mark_unschedulable(queued)
    assert popped(queue) == ["a"]


def test_woken_pod_backs_off_only_while_others_are_active(queue: SchedulingQueue, clock: Clock) -> None:
    for name, priority in (("low", 0), ("high", 5)):
        queue.add(pod(name, priority))
    for _ in range(2):
        queued = queue.pop()
        assert queued is not None
        clock.now += 0.01
        queue.mark_unschedulable(queued)
    queue.move_all_to_backoff()
    queue.add(pod("new"))
    assert popped(queue) == ["new", "high", "low"]


def test_woken_pod_after_its_backoff_is_active_at_once(queue: SchedulingQueue, clock: Clock) -> None:
    queue.add(pod("high", 5))
    queued = queue.pop()
    assert queued is not None
    queue.mark_unschedulable(queued)
    clock.now += 1.0
    queue.add(pod("new"))
    queue.wake(dict.fromkeys(queue.groups(), 1))
    assert popped(queue) == ["high", "new"]


def test_helped_pod_keeps_its_place_by_age(queue: SchedulingQueue, clock: Clock) -> None:
    queue.add(pod("old"))
    fail(queue, 1)
    clock.now += 1.0
    queue.add(pod("new"))
    queue.wake(dict.fromkeys(queue.groups(), 1))
    assert popped(queue) == ["old", "new"]


def test_pods_that_were_tried_get_one_of_some_attempts_beside_new_ones(queue: SchedulingQueue, clock: Clock) -> None:
    for i in range(2):
        queue.add(pod(f"old-{i}"))
    fail(queue, 2)
    clock.now += UNSCHEDULABLE_SECONDS
    for i in range(2 * TURN):
        queue.add(pod(f"new-{i}"))
    names = popped(queue)
    assert names.index("old-0") <= TURN
    assert names.index("old-1") == names.index("old-0") + TURN + 1


def test_uncounted_attempt_adds_no_backoff(queue: SchedulingQueue) -> None:
    queue.add(pod("a"))
    queued = queue.pop()
    assert queued is not None
    queue.wait_for_change(queued)
    assert popped(queue) == []
    queue.wake(dict.fromkeys(queue.groups(), 1))
    assert queue.counts()["active"] == 1
    assert queued.attempts == 0


def test_backoff_grows_to_ten_seconds(queue: SchedulingQueue, clock: Clock) -> None:
    queue.add(pod("a"))
    rests = []
    for _ in range(7):
        queued = queue.pop()
        assert queued is not None
        queue.requeue_with_backoff(queued)
        rests.append(queued.backoff_until - clock())
        clock.now = queued.backoff_until - 0.001
        assert queue.pop() is None
        clock.now = queued.backoff_until
    assert rests == [1, 2, 4, 8, MAX_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS]


def test_unschedulable_pods_are_flushed_eventually(queue: SchedulingQueue, clock: Clock) -> None:
    queue.add(pod("a"))
    queued = queue.pop()
    assert queued is not None
    queue.mark_unschedulable(queued)
    clock.now += UNSCHEDULABLE_SECONDS - 1
    assert popped(queue) == []
    clock.now += 1
    assert popped(queue) == ["a"]


def test_recreated_pod_replaces_its_namesake(queue: SchedulingQueue) -> None:
    queue.add(pod("a"))
    old = queue.pop()
    assert old is not None
    queue.add(pod("a"))
    queue.requeue_with_backoff(old)  # of the pod that is gone
    assert popped(queue) == ["a"]
    assert len(queue) == 1


def test_queue_that_nobody_pops_forgets_deleted_pods(queue: SchedulingQueue, clock: Clock) -> None:
    """As in a replica that does not lead, for weeks."""
    queue.add(pod("first"))
    for k in range(2000):
        clock.now += 1
        queue.add(pod(f"p{k}"))
        queue.remove(f"default/p{k}")
    assert len(queue._active) < 200
    assert popped(queue) == ["first"]


@in_jumping_time
async def test_queue_wakes_at_the_end_of_a_backoff() -> None:
    queue = SchedulingQueue(loop_clock)
    queue.add(pod("a"))
    queued = queue.pop()
    assert queued is not None
    queue.requeue_with_backoff(queued)
    while queue.pop() is None:
        async with asyncio.timeout(5):
            await queue.wait()
    assert loop_clock() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("turns", [0, 1, 2])
@in_jumping_time
async def test_wait_that_ends_by_a_wake_keeps_the_cancellation(turns: int) -> None:
    """A scheduler that loses the lease as a pod arrives must end, in whichever turn of the event loop that is."""
    queue = SchedulingQueue(loop_clock)
    waiting = asyncio.create_task(queue.wait(60.0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    queue.add(pod("a"))
    for _ in range(turns):
        await asyncio.sleep(0)
    if waiting.cancel():  # else it has ended before
        with pytest.raises(asyncio.CancelledError):
            await waiting
