"""Evictions in simulations: against an event loop written plainly, and what must hold of every run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.core.handles import EVICTIONS, LOST, SAVED, SERVED
from steersman.evaluation.replay_file import RunOptions, replay_file
from steersman.orders import evictions
from steersman.orders.evictions import EvictionRules
from steersman.orders.registry import find_order
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.event_arrays import ARRIVAL, BOUND, EVICTED, FINISHED, OUTCOME, SLOT
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.resumable import with_resumable
from steersman.workloads.workload import Workload

LOOK = 60.0  # seconds between two looks at moments of no event
RULES = EvictionRules(threshold=200.0, exponent=0.5, least_run=100.0, per_hour=1.0, worth=2.0, most_wait=500.0)


@pytest.fixture(autouse=True)
def _small_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictions, "RULES", RULES)


def pod_of(
    name: str, gpus: int, created: float, seconds: float, interval: float | None, restart: float = 20.0, gang: str = ""
) -> Pod:
    return Pod(
        name,
        PodClass(Requests(gpu_count=gpus, gpu_milli=1000 if gpus else 0)),
        creation_time=created,
        deletion_time=created + seconds,
        resumable=interval,
        restart_seconds=restart,
        gang=gang,
    )


def workload_of(pods: list[Pod], nodes: int, gpus: int) -> Workload:
    cluster = tuple(Node(f"n{i}", 64_000, 1 << 40, gpu_count=gpus) for i in range(nodes))
    return Workload("w", cluster, tuple(pods))


def run_of(workload: Workload, order: str, seed: int = 1) -> Execution:
    plan = schedule(workload, "timed", seed=seed, ratio=1.0, load=None)
    execution = Execution(Simulator(workload), plan, with_order(resolve("fgd"), find_order(order)), seed, record=False)
    execution.finish(None)
    return execution


def pods_of(draw: st.DrawFn, *, gpus: int, gangs: bool, count: int) -> list[Pod]:
    pods, now = [], 0.0
    for i in range(draw(st.integers(1, count))):
        now += draw(st.sampled_from((0.0, 0.5, 7.0, 30.0, 130.0, 900.0)))
        size, seconds = draw(st.integers(1, gpus)), draw(st.sampled_from((1.0, 20.0, 90.0, 410.0, 1500.0, 7000.0)))
        interval = draw(st.sampled_from((None, 0.0, 0.0, 45.0, 300.0)))
        restart = draw(st.sampled_from((0.0, 20.0, 150.0)))
        # No two pods are equal in everything, so that ties are not decided by what the core does not promise.
        seconds += i / 64
        members = draw(st.integers(2, 3)) if gangs and draw(st.integers(0, 3)) == 0 else 1
        pods += [
            pod_of(f"p{i}-{k}", size, now, seconds + k * 10, interval, restart, f"g{i}" if members > 1 else "")
            for k in range(members)
        ]
    return pods


@dataclass
class Job:
    """A pod in the plain event loop."""

    number: int
    pod: Pod
    done: float = 0.0
    served: float = 0.0
    lost: float = 0.0
    evictions: int = 0
    since: float = 0.0
    started: float | None = None
    estimated: float = 0.0
    leaves: float = 0.0
    returns: float = -1.0
    ready: float | None = None  # when it may be evicted, None: it is known by now
    pending: float | None = None  # when it is in the first queue again

    @property
    def seconds(self) -> float:
        assert self.pod.deletion_time is not None
        assert self.pod.creation_time is not None
        return self.pod.deletion_time - self.pod.creation_time

    @property
    def gpus(self) -> int:
        return self.pod.requests.gpu_count

    @property
    def first_seconds(self) -> float:
        return float(RULES.threshold / self.gpus**RULES.exponent)

    def worked(self, now: float) -> tuple[float, float]:
        """Return the seconds of work of this run, and those of it that are saved."""
        assert self.started is not None
        assert self.pod.resumable is not None
        ran = now - self.started
        work = max(ran - self.pod.restart_seconds, 0.0) if self.evictions else ran
        interval = self.pod.resumable
        return work, min(work // interval * interval, work) if interval else work

    def cost(self, now: float) -> float:
        work, saved = self.worked(now)
        return (work - saved + self.pod.restart_seconds) * self.gpus


@dataclass
class PlainLoop:
    """One node, single pods, exact estimates: the same decisions, with lists that are searched."""

    pods: list[Pod]
    gpus: int
    events: list[tuple[float, int, int]] = field(default_factory=list)
    waiting: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    evicted: list[float] = field(default_factory=list)
    looked: float = -np.inf

    def run(self) -> list[tuple[float, int, int]]:
        order = sorted(range(len(self.pods)), key=lambda i: self.pods[i].creation_time or 0.0)
        coming = [Job(number, self.pods[i]) for number, i in enumerate(order)]
        now = 0.0
        while coming or self.running:
            leaves = min((job.leaves for job in self.running), default=np.inf)
            arrives = coming[0].pod.creation_time if coming else None
            following = min(leaves, np.inf if arrives is None else arrives)
            if self.waiting and (look := max(self.next_change(), self.looked + LOOK)) < following:
                now = self.looked = max(look, now)
                self.note_ready(now)
                for job in self.waiting:
                    if job.pending is not None and job.pending <= now:
                        job.pending = None
                if any(self.is_first(job, now) for job in self.waiting):
                    self.try_all(now)
            elif leaves <= (np.inf if arrives is None else arrives):
                job = min(self.running, key=lambda each: (each.leaves, each.started, each.number))
                now = job.leaves
                self.running.remove(job)
                self.events.append((now, job.number, FINISHED))
                self.try_all(now)
            else:
                job = coming.pop(0)
                now = job.since = arrives or 0.0
                tried = self.try_one(job, now)
                if not tried:
                    self.waiting.append(job)
                elif tried == "evicts":
                    self.try_all(now)
        return self.events

    def next_change(self) -> float:
        ready = [job.ready for job in self.running if job.ready is not None]
        return min([*ready, *(job.pending for job in self.waiting if job.pending is not None)], default=np.inf)

    def is_first(self, job: Job, now: float) -> bool:
        return now >= job.returns

    def note_ready(self, now: float) -> None:
        for job in self.running:
            if job.ready is not None and job.ready <= now:
                job.ready = None

    def free(self, without: list[Job] | None = None) -> int:
        return self.gpus - sum(job.gpus for job in self.running if job not in (without or []))

    def try_all(self, now: float) -> None:
        if any(self.is_first(job, now) for job in self.waiting):
            self.note_ready(now)
        again = True
        while again:
            again = False
            for job in sorted(self.waiting, key=lambda each: (not self.is_first(each, now), each.number)):
                tried = self.try_one(job, now)
                if tried:
                    self.waiting.remove(job)
                if tried == "evicts":
                    again = True
                    break

    def try_one(self, job: Job, now: float) -> str:
        how = "fits"
        if self.free() < job.gpus:
            victims = self.victims(job, now) if self.is_first(job, now) else []
            if not victims:
                return ""
            how = "evicts"
            for victim in victims:
                self.evict(victim, now)
        job.started, job.pending = now, None
        left = job.seconds - job.done
        job.estimated = job.pod.restart_seconds + left if job.evictions else job.seconds
        job.leaves = now + job.estimated
        if job.pod.resumable is not None:
            job.ready = now + max(job.first_seconds - job.served, RULES.least_run, now - job.since)
        self.running.append(job)
        self.events.append((now, job.number, BOUND))
        return how

    def victims(self, job: Job, now: float) -> list[Job]:
        self.note_ready(now)
        left = max(int(RULES.per_hour * self.gpus), 10) - sum(time > now - 3600 for time in self.evicted)
        needed = job.first_seconds if job.evictions else job.seconds
        may = [each for each in self.running if each.pod.resumable is not None and each.ready is None]
        may = [each for each in may if each.leaves - now >= needed and each.leaves - now > each.pod.restart_seconds]
        may.sort(key=lambda each: (each.cost(now), each.number))
        limit = RULES.worth * job.gpus * job.first_seconds
        chosen = next(([each] for each in may if each.cost(now) <= limit and self.free([each]) >= job.gpus), [])
        if not chosen and len(may) > 1 and may[0].cost(now) + may[1].cost(now) <= limit:
            may.sort(key=lambda each: (each.cost(now) / each.gpus, each.number))
            count = next((n for n in range(2, len(may) + 1) if self.free(may[:n]) >= job.gpus), 0)
            chosen = may[:count]
            for each in chosen[-2::-1]:
                fewer = [other for other in chosen if other is not each]
                if self.free(fewer) >= job.gpus:
                    chosen = fewer
            if sum(each.cost(now) for each in chosen) > limit:
                chosen = []
        return chosen if len(chosen) <= left else []

    def evict(self, job: Job, now: float) -> None:
        assert job.started is not None
        ran, (_, saved) = now - job.started, job.worked(now)
        job.served, job.done, job.lost = job.served + ran, job.done + saved, job.lost + ran - saved
        job.evictions += 1
        job.since, job.started, job.ready = now, None, None
        job.returns = job.pending = now + RULES.most_wait
        self.running.remove(job)
        self.waiting.append(job)
        self.evicted.append(now)
        self.events.append((now, job.number, EVICTED))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_one_node_is_as_a_plain_event_loop(data: st.DataObject) -> None:
    pods = pods_of(data.draw, gpus=4, gangs=False, count=25)
    record = run_of(workload_of(pods, 1, 4), "las@oracle").record()
    found = [
        (float(time), int(row[ARRIVAL]), int(row[OUTCOME]))
        for time, row in zip(record.time, record.numbers, strict=True)
        if row[OUTCOME] in (BOUND, FINISHED, EVICTED)
    ]
    expected = PlainLoop(pods, 4).run()
    assert [each[1:] for each in found] == [each[1:] for each in expected]
    np.testing.assert_allclose([each[0] for each in found], [each[0] for each in expected], atol=1e-6)


@given(st.data(), st.sampled_from(("las", "las:easy", "las:none", "las@none", "las:easy@oracle:3")))
@settings(max_examples=150, deadline=None)
def test_what_runs_is_work_or_lost_and_never_more_than_fits(data: st.DataObject, order: str) -> None:
    pods = pods_of(data.draw, gpus=3, gangs=True, count=25)
    execution = run_of(workload_of(pods, 3, 3), order)
    record, plan, accounts = execution.record(), execution.plan, execution.engine.accounts(len(pods))
    arriving = [pods[i] for i in plan.pods]
    used: Counter[int] = Counter()
    began, ran = {}, np.zeros(len(pods))
    for time, row in zip(record.time.tolist(), record.numbers.tolist(), strict=True):
        a, outcome, slot = row[ARRIVAL], row[OUTCOME], row[SLOT]
        if outcome == BOUND:
            began[a] = time
            used[slot] += arriving[a].requests.gpu_count
            assert used[slot] <= 3
        elif outcome in (FINISHED, EVICTED):
            ran[a] += time - began.pop(a)
            used[slot] -= arriving[a].requests.gpu_count
            assert outcome == FINISHED or arriving[a].resumable is not None
    outcomes = record.numbers[:, OUTCOME]
    ended = record.numbers[outcomes == FINISHED, ARRIVAL]
    np.testing.assert_allclose(ran[ended], plan.duration[ended] + accounts[ended, LOST], atol=1e-6)
    if execution.described.evicts:
        np.testing.assert_allclose(accounts[ended, SERVED], ran[ended], atol=1e-6)
        np.testing.assert_allclose(accounts[ended, SAVED], plan.duration[ended], atol=1e-6)
    # From arrival to end a pod waits, works, or does what it loses.
    ends = dict(zip(ended.tolist(), record.time[outcomes == FINISHED].tolist(), strict=True))
    waits = execution.coming_waits.seconds
    for a, end in ends.items():
        assert waits[a] == pytest.approx(end - plan.time[a] - plan.duration[a], abs=1e-6)
    assert record.numbers[-1, 4] == 0


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_gangs_are_evicted_and_start_as_one(data: st.DataObject) -> None:
    pods = pods_of(data.draw, gpus=2, gangs=True, count=20)
    execution = run_of(workload_of(pods, 3, 3), "las")
    record, members = execution.record(), execution.plan.members
    leader = np.maximum.accumulate(np.where(members > 0, np.arange(len(members)), 0))
    for outcome in (EVICTED, BOUND):
        rows = record.numbers[:, OUTCOME] == outcome
        together = Counter(zip(record.time[rows].tolist(), leader[record.numbers[rows, ARRIVAL]].tolist(), strict=True))
        # One that is evicted for a pod of no run time may start and be evicted at one moment twice.
        assert all(count % members[gang] == 0 for (_, gang), count in together.items())


def test_a_short_job_has_a_long_one_evicted_that_goes_on_later() -> None:
    pods = [pod_of("long", 2, 0.0, 5000.0, 0.0), pod_of("short", 1, 300.0, 50.0, None)]
    execution = run_of(workload_of(pods, 1, 2), "las@oracle")
    result = execution.result("timed", 1, 1.0)
    values = {each.name: each.value for each in result.metrics}
    assert execution.standing.started.tolist() == [350.0, 300.0]
    assert values["evictions"] == values["pods_evicted"] == 1
    assert values["gpu_hours_lost"] == pytest.approx(2 * 20 / 3600)
    assert values["waiting_time_mean_evicted_seconds"] == pytest.approx(50 + 20)
    assert values["pods_bound"] == values["pods_finished"] == 2
    assert execution.engine.accounts(2)[0, EVICTIONS] == 1


def test_what_waits_is_tried_when_something_may_be_evicted() -> None:
    # The long job may be evicted once it has run for 200 / sqrt(2) s; nothing arrives or leaves then.
    pods = [pod_of("long", 2, 0.0, 5000.0, 0.0), pod_of("short", 1, 10.0, 50.0, None)]
    execution = run_of(workload_of(pods, 1, 2), "las@oracle")
    assert execution.standing.started[1] == pytest.approx(200 / 2**0.5)


def test_work_since_the_last_checkpoint_is_lost() -> None:
    pods = [pod_of("long", 2, 0.0, 5000.0, 120.0), pod_of("short", 1, 300.0, 50.0, None)]
    accounts = run_of(workload_of(pods, 1, 2), "las@oracle").engine.accounts(2)
    assert accounts[0].tolist() == pytest.approx([1, 5000, 60 + 20, 5080])


@pytest.mark.parametrize("order", ["age", "wfp3", "easy"])
def test_other_orders_have_nothing_evicted(order: str) -> None:
    pods = [pod_of("long", 2, 0.0, 5000.0, 0.0), pod_of("short", 1, 300.0, 50.0, 0.0)]
    assert not run_of(workload_of(pods, 1, 2), order).engine.accounts(2).any()


def test_without_jobs_that_can_resume_it_is_the_order_of_age() -> None:
    rng = np.random.default_rng(3)
    pods = [pod_of(f"p{i}", int(rng.integers(1, 4)), 20.0 * i, float(rng.exponential(300)), None) for i in range(300)]
    workload = workload_of(pods, 3, 3)
    by_age, by_las = (run_of(workload, order).record() for order in ("age", "las"))
    assert (by_age.time == by_las.time).all()
    assert (by_age.numbers == by_las.numbers).all()


def test_a_share_of_the_jobs_is_drawn_by_a_seed_and_whole() -> None:
    pods = [pod_of(f"p{i}", 1, float(i), 10.0, None, gang=f"g{i // 3}" if i < 90 else "") for i in range(400)]
    pods[390:] = [replace(pod, owner="Job/train") for pod in pods[390:]]
    workload = workload_of(pods, 1, 4)
    one, same, other = (with_resumable(workload, 0.5, 30.0, seed).pods for seed in (1, 1, 2))
    assert one == same != other
    chosen = np.array([pod.resumable == 0.0 and pod.restart_seconds == 30.0 for pod in one])
    assert (chosen[:90].reshape(-1, 3).min(axis=1) == chosen[:90].reshape(-1, 3).max(axis=1)).all()
    assert chosen[390:].all() or not chosen[390:].any()
    jobs = 30 + 300 + 1
    assert chosen[:90:3].sum() + chosen[90:390].sum() + chosen[390] == round(jobs / 2)


def test_the_same_seed_gives_the_same_run() -> None:
    rng = np.random.default_rng(5)
    pods = [pod_of(f"p{i}", int(rng.integers(1, 4)), 20.0 * i, float(rng.exponential(300)), None) for i in range(200)]
    runs = [run_of(with_resumable(workload_of(pods, 3, 3), 0.5, 20.0), "las@oracle:3", seed) for seed in (7, 7)]
    assert runs[0].engine.accounts(200)[:, EVICTIONS].any()
    assert (runs[0].record().numbers == runs[1].record().numbers).all()
    assert (runs[0].record().time == runs[1].record().time).all()


def test_a_replay_has_what_can_resume() -> None:
    pod = pod_of("a", 1, 0.0, 10.0, 45.0, 33.0)
    content = replay_file(workload_of([pod], 1, 2), RunOptions("fgd", 1.0), "fgd", "timed", 1)
    assert content.load_workload().pods == (pod,)
