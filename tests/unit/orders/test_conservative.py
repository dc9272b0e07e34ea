"""Conservative backfilling in simulations: worked by hand, against a profile of one pool, and what always holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.orders.test_orders import Job, starts

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.core.errors import UsageError
from steersman.envs.queue.environment import QueueEnv
from steersman.orders.registry import find_order
from steersman.orders.reservations import (
    BEGINS,
    CLASS,
    DEVICES,
    ENDS,
    GROUP,
    LEADER,
    MOST,
    NODE,
    NOTHING,
    ROWS,
)
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation import event_arrays
from steersman.simulation.arrivals import Schedule
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.workload import Workload

GPU_SHARE = 500


def executed(
    jobs: Sequence[Job], order: str, nodes: Sequence[int] = (4,), gpus: int = 0, policy: str = "best-fit"
) -> Execution:
    """Return a run that has not begun; every other job of one GPU requests half of it."""
    cluster = tuple(Node(f"n{i}", cpus * 1000, 1 << 40, gpu_count=gpus) for i, cpus in enumerate(nodes))
    pods, times, durations, members = [], [], [], []
    for k, job in enumerate(jobs):
        milli = (GPU_SHARE if job.gpus == 1 and k % 2 else 1000) if job.gpus else 0
        requests = Requests(1000 * job.cpus, 0, gpu_count=job.gpus, gpu_milli=milli)
        for i in range(job.members):
            pods.append(
                Pod(f"p{k}-{i}", PodClass(requests), priority=job.priority, estimated_seconds=job.states or job.runs)
            )
            times.append(job.at)
            durations.append(job.runs)
            members.append(job.members if i == 0 else 0)
    plan = Schedule(
        np.arange(len(pods)),
        np.array(times),
        np.array(durations),
        np.arange(len(cluster)),
        True,
        is_given=True,
        members=np.array(members),
    )
    simulator = Simulator(Workload("made", cluster, tuple(pods)))
    return Execution(simulator, plan, with_order(resolve(policy), find_order(order)), 1, record=False)


def played(execution: Execution) -> Iterator[float]:
    """Yield the time after every event of a run."""
    until, status = 1, event_arrays.PAUSED
    while status == event_arrays.PAUSED:
        status = execution.advance(until)
        until += 1
        events = int(execution.run.cursor[event_arrays.EVENTS])
        # Between two events at the same time a pass may be under way.
        is_passing = execution.run.cursor[event_arrays.PASS] != event_arrays.NO_PASS
        if status == event_arrays.PAUSED and not is_passing:
            yield float(execution.record.time[events - 1])


def test_every_waiting_pod_has_a_reservation() -> None:
    """With `easy` a long pod overtakes by the room beside the next pod, and delays the one after it."""
    # 3 of 4 CPUs are busy until 10; then 3 are reserved until 20, and after that all 4 until 30.
    jobs = [Job(0, 10, 3), Job(1, 10, 3), Job(2, 10, 4), Job(3, 30, 1), Job(4, 10, 1)]
    assert starts(jobs, "easy") == [0, 10, 33, 3, 20]
    # The pod of 30 s would end at 33, the one of 10 s ends at 14.
    assert starts(jobs, "conservative") == [0, 10, 20, 30, 4]
    assert starts(jobs, "age:conservative") == [0, 10, 20, 30, 4]


def test_a_reservation_is_on_a_node() -> None:
    """A pod may overtake on another node than the reserved one for as long as it likes."""
    jobs = [Job(0, 10, 4), Job(0, 20, 3), Job(1, 10, 3), Job(2, 10, 4), Job(3, 100, 1), Job(4, 100, 1)]
    # Reserved: the first node from 10 to 20 with 1 CPU beside, then from 20 to 30 without. The second one has 1 CPU
    # until 20: it is taken for good, and the last pod has to wait.
    assert starts(jobs, "conservative", nodes=(4, 4)) == [0, 0, 10, 20, 3, 20]


def test_a_gang_has_a_reservation_among_others() -> None:
    """A gang is reserved on both nodes after the pod that waited before it, and a short pod overtakes both."""
    jobs = [Job(0, 10, 4), Job(1, 10, 4), Job(2, 5, 4, members=2), Job(3, 7, 2), Job(4, 50, 2)]
    # The second node is taken from 1 to 11; at 2 the gang is reserved from 11, and nothing fits before it.
    assert starts(jobs, "conservative", nodes=(4, 4)) == [0, 1, 11, 11, 16, 16]
    assert starts([*jobs[:1], *jobs[2:]], "conservative", nodes=(4, 4)) == [0, 10, 10, 3, 15]


def test_reserved_devices_stay_free() -> None:
    """Of two GPUs one is reserved for a pod that waits: a pod that overtakes takes the other one, or waits."""
    # Both GPUs are busy, until 10 and until 20. The third pod, of both, is reserved from 20.
    jobs = [Job(0, 10, 1, gpus=1), Job(0, 20, 1, gpus=1), Job(1, 10, 1, gpus=2), Job(2, 10, 1, gpus=1)]
    assert starts(jobs, "conservative", nodes=(8,), gpus=2) == [0, 0, 20, 10]
    jobs[-1] = Job(2, 11, 1, gpus=1)
    assert starts(jobs, "conservative", nodes=(8,), gpus=2) == [0, 0, 20, 30]


def test_a_higher_priority_delays_reservations() -> None:
    """A pod of a higher priority starts first; those that miss their reservations keep their order."""
    jobs = [Job(0, 10, 4), Job(1, 10, 4), Job(2, 10, 4), Job(3, 5, 4, priority=1)]
    assert starts(jobs, "conservative") == [0, 15, 25, 10]


def test_pods_that_end_early_let_others_start_before_their_reservations() -> None:
    """The first pod states 100 s and runs for 10: those reserved later start at once, in order."""
    jobs = [Job(0, 10, 4, states=100), Job(1, 10, 4), Job(2, 10, 2), Job(3, 30, 2)]
    assert starts(jobs, "conservative", run_times=find_order("age@stated").run_times) == [0, 10, 20, 20]


def test_a_missed_reservation_is_protected() -> None:
    """Whatever pods state, the one that was reserved first waits for two reservations at most."""
    stream = [Job(t, 15, 2, states=1) for t in range(0, 2000, 5)]
    large = Job(7, 10, 4, states=10)
    jobs = sorted([*stream, large], key=lambda job: job.at)
    started = starts(jobs, "conservative", run_times=find_order("age@stated").run_times)
    # What runs at 7 has ended at 20, and what overtook it by a false estimate 15 s later.
    assert 20 < started[jobs.index(large)] <= 20 + 15


def test_the_number_of_reservations_is_bounded() -> None:
    """Where one pod may have a reservation at once, the next one has none and is delayed, as with `easy`."""
    jobs = [Job(0, 10, 3), Job(1, 10, 3), Job(2, 10, 4), Job(3, 30, 1), Job(4, 10, 1)]
    execution = executed(jobs, "conservative")
    execution.run.reservation.held.counts[MOST] = 1
    execution.finish(None)
    assert (execution.coming_waits.seconds + execution.plan.time).tolist() == [0, 10, 33, 3, 20]
    assert execution.run.reservation.held.counts[ROWS] == 0


def _stream(seed: int, *, gpus: int = 0, priorities: bool = False, gangs: bool = True, most: int = 4) -> list[Job]:
    """Return up to 40 jobs at random times, in binary fractions of a second, so that sums are exact."""
    random = np.random.default_rng(seed)
    jobs, at = [], 0.0
    for _ in range(int(random.integers(3, 40))):
        at += int(random.exponential(6) * 1024) / 1024
        members = int(random.choice([1, 1, 1, 2, 3])) if gangs else 1
        requested = int(random.integers(0, gpus + 1)) if gpus else 0
        priority = int(random.integers(2)) if priorities else 0
        runs = int(random.uniform(1, 60) * 1024) / 1024
        jobs.append(Job(at, runs, int(random.integers(1, most + 1)), priority, members, requested))
    return jobs


def _reserved_in_pool(jobs: Sequence[Job], capacity: int) -> list[float]:
    """Return when conservative backfilling starts each job in a pool: at the first hole of the profile, forever."""
    taken: list[tuple[float, float, int]] = []
    for job in jobs:
        size = job.cpus * job.members
        for start in sorted({job.at, *(end for _, end, _ in taken if end > job.at)}):
            times = [start, *(begin for begin, _, _ in taken if start < begin < start + job.runs)]
            if all(sum(c for b, e, c in taken if b <= time < e) + size <= capacity for time in times):
                taken.append((start, start + job.runs, size))
                break
    return [start for start, _, _ in taken]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30))
def test_one_node_is_the_profile_of_a_pool(seed: int) -> None:
    """If estimates are right, pods on one node start where a profile of the pool has its first hole."""
    jobs = _stream(seed)
    execution = executed(jobs, "conservative@stated", nodes=(12,))
    execution.finish(None)
    first = np.cumsum([0, *(job.members for job in jobs)])[:-1]
    expected = _reserved_in_pool(jobs, 12)
    assert (execution.coming_waits.seconds + execution.plan.time)[first].tolist() == expected


def _fits(execution: Execution, now: float, gpus: int, capacity: Sequence[int]) -> bool:
    """Return whether, from now on, pods that run and reserved ones fit on their nodes and devices together."""
    run, held = execution.run, execution.run.reservation.held
    classes = execution.state.class_arrays
    spans = [
        (now, run.leaves[a], run.slot[a], execution.arrivals.class_id[a], run.devices[a])
        for a in run.heap[: run.cursor[event_arrays.RUNNING]]
    ]
    for row, times in zip(held.rows, held.times, strict=True):
        if row[LEADER] != NOTHING:
            assert row[NODE] != NOTHING
            assert times[BEGINS] >= now
            spans.append((times[BEGINS], times[ENDS], row[NODE], row[CLASS], row[DEVICES]))
    for time in {begin for begin, *_ in spans}:
        cpus = np.array(capacity) * 1000
        devices = np.full((len(capacity), max(gpus, 1)), 1000)
        for begin, end, node, c, mask in spans:
            if begin <= time < end:
                cpus[node] -= classes.request[c, 0]
                for d in range(gpus):
                    devices[node, d] -= ((mask >> d) & 1) * classes.gpu_milli[c]
        if (cpus < 0).any() or (devices < 0).any():
            return False
    return True


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.sampled_from(["conservative@stated", "wfp3:conservative@stated", "smallest:conservative@stated"]),
    st.sampled_from([0, 2]),
    st.sampled_from(["best-fit", "fgd", "random"]),
)
def test_no_reservation_is_ever_delayed(seed: int, order: str, gpus: int, policy: str) -> None:
    """If estimates are right, no pod starts later than first reserved, and what is reserved fits beside what runs."""
    capacity = (4, 4, 6)
    jobs = _stream(seed, gpus=gpus)
    execution = executed(jobs, order, nodes=capacity, gpus=gpus, policy=policy)
    run = execution.run
    promised: dict[int, float] = {}
    for now in played(execution):
        assert _fits(execution, now, gpus, capacity)
        waiting: dict[int, list[int]] = {}
        for g in np.flatnonzero(run.queue.first != NOTHING):
            a = run.queue.first[g]
            while a != NOTHING:
                waiting.setdefault(int(g), []).append(int(a))
                a = run.queue.following[a]
        held = run.reservation.held
        for g, pods in waiting.items():
            rows = [
                row for row in range(len(held.rows)) if held.rows[row, LEADER] == row and held.rows[row, GROUP] == g
            ]
            begins = sorted(float(held.times[row, BEGINS]) for row in rows)
            assert len(begins) == len(pods)
            for a, begin in zip(pods, begins, strict=True):
                promised.setdefault(a, begin)
    started = execution.coming_waits.seconds + execution.plan.time
    assert not np.isnan(started).any()
    for a, begin in promised.items():
        assert started[a] <= begin


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 30), st.floats(1.0, 10.0))
def test_every_pod_starts_whatever_the_estimates(seed: int, error: float) -> None:
    """With priorities, gangs, GPUs and wrong estimates every pod starts once, and rows are given back."""
    jobs = _stream(seed, gpus=2, priorities=True)
    execution = executed(jobs, f"wfp3:conservative@oracle:{error:.2f}", nodes=(4, 4, 6), gpus=2, policy="fgd")
    execution.finish(None)
    assert not np.isnan(execution.coming_waits.seconds).any()
    held = execution.run.reservation.held
    assert held.counts[ROWS] == 0
    assert (held.first_row == NOTHING).all()
    assert (held.first_running == NOTHING).all()


def test_an_agent_that_chooses_the_next_pod_has_none() -> None:
    """The environment commits to one pod, and says who may overtake it then."""
    with pytest.raises(UsageError, match="expected none, easy, ending-before"):
        QueueEnv(overtaking="conservative")
