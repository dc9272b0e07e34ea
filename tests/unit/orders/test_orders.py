"""Orders of waiting pods in simulations: worked by hand, and what holds for every stream of pods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.errors import raises

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.core.errors import SteersmanError, UsageError
from steersman.orders.order import AGE, AUTO, BUILT_IN, NO_ONE, OVERTAKING, SOURCES, Estimates, Order, parse_estimates
from steersman.orders.registry import find_order, from_policy_order, to_policy_order
from steersman.orders.scores import LEARNED, LINEAR, learned_size
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import Schedule, schedule
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.workload import Workload

ORACLE = Estimates("oracle")
HOUR = 3600.0


@dataclass(frozen=True)
class Job:
    """A pod of `cpus` that arrives at `at`, runs for `runs` seconds, belongs to a gang of `members` equal
    ones, and states to run for `states` seconds."""

    at: float
    runs: float
    cpus: int
    priority: int = 0
    members: int = 1
    gpus: int = 0
    states: float | None = None


def starts(jobs: Sequence[Job], order: str | Order, **options: Any) -> list[float]:
    """Return when each pod started, see `played`."""
    return played(jobs, order, **options)[0]


def played(
    jobs: Sequence[Job],
    order: str | Order,
    nodes: Sequence[int] = (4,),
    estimates: Estimates = ORACLE,
    policy: str = "best-fit",
    gpus: int = 0,
    last_gpus: int | None = None,
) -> tuple[list[float], list[int]]:
    """Return when and on which node each pod started, those of a gang one after another; NaN: never.

    Nodes have `gpus`, the last one `last_gpus` if that is given.
    """
    counts = [gpus] * (len(nodes) - 1) + [gpus if last_gpus is None else last_gpus]
    cluster = tuple(
        Node(f"n{i}", cpus * 1000, 1 << 40, gpu_count=count)
        for i, (cpus, count) in enumerate(zip(nodes, counts, strict=True))
    )
    pods, times, durations, members = [], [], [], []
    for k, job in enumerate(jobs):
        for i in range(job.members):
            requests = Requests(1000 * job.cpus, 0, gpu_count=job.gpus, gpu_milli=1000 if job.gpus else 0)
            name = f"p{k}-{i}"
            pods.append(Pod(name, PodClass(requests), priority=job.priority, estimated_seconds=job.states))
            times.append(job.at)
            durations.append(job.runs)
            members.append(job.members if i == 0 else 0)
    count = len(pods)
    plan = Schedule(
        np.arange(count),
        np.array(times),
        np.array(durations),
        np.arange(len(cluster)),
        True,
        is_given=True,
        members=np.array(members),
    )
    found = find_order(order) if isinstance(order, str) else order
    simulator = Simulator(Workload("made", cluster, tuple(pods)))
    execution = Execution(
        simulator, plan, with_order(resolve(policy), replace(found, estimates=estimates)), 1, record=False
    )
    execution.finish(None)
    return (execution.coming_waits.seconds + np.array(times)).tolist(), execution.standing.node.tolist()


# A pod takes all 4 CPUs until 10; meanwhile a large, a long and a short pod arrive.
BUSY = Job(0, 10, 4)
LARGE, LONG, SHORT = Job(1, 20, 4), Job(2, 50, 1), Job(3, 5, 2)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        # At 10 the oldest, the large one, takes everything; the others start when it ends.
        ("age", [0, 10, 30, 30]),
        ("fcfs", [0, 10, 30, 30]),
        ("smallest", [0, 60, 10, 10]),
        ("largest", [0, 10, 30, 30]),
        # By run time: short and long together; the large one once both have ended.
        ("shortest", [0, 60, 10, 10]),
        # r * n: 80, 50, 10.
        ("area", [0, 60, 10, 10]),
        # -(w / r)^3 n at 10: -(9/20)^3 * 4 = -0.36, -(8/50)^3 = -0.004, -(7/5)^3 * 2 = -5.5.
        ("wfp3", [0, 60, 10, 10]),
        # -w / (log2(1 + n) r): -9 / 46.4 = -0.19, -8/50 = -0.16, -7 / 7.9 = -0.88.
        ("unicef", [0, 60, 10, 10]),
        # log10(r) n + 870 log10(arrival): 5.2, 263.6, 416.5.
        ("f1", [0, 10, 30, 30]),
    ],
)
def test_who_goes_next(order: str, expected: list[float]) -> None:
    """Each order starts the pods as worked out by hand."""
    assert starts([BUSY, LARGE, LONG, SHORT], order) == expected


def test_nobody_overtakes_and_everybody_may() -> None:
    """With `none` a small pod waits behind a large one that does not fit; with `any` it does not."""
    jobs = [Job(0, 10, 3), Job(1, 5, 4), Job(2, 100, 1)]
    assert starts(jobs, "age:none") == [0, 10, 15]
    # The large pod is starved by the small one, which runs for long.
    assert starts(jobs, "age") == [0, 102, 2]


def test_easy_backfills_what_ends_in_time_or_leaves_room() -> None:
    """Pods overtake the large pod if they end before its reservation, or use what it leaves."""
    # Of 4 CPUs 2 are busy until 10. The pod of 3 is reserved from then on, with 1 CPU beside it.
    jobs = [Job(0, 10, 2), Job(1, 5, 3), Job(2, 8, 1), Job(2, 100, 1), Job(3, 3, 1), Job(4, 100, 1)]
    assert starts(jobs, "easy") == [0, 10, 2, 2, 15, 15]


@pytest.mark.parametrize("order", ["easy", "fcfs"])
def test_a_pod_of_higher_priority_counts_in_the_reservation(order: str) -> None:
    """Room beside a reservation that an urgent pod takes is not given away again."""
    # The pod of 8 is reserved at 100, with 2 CPUs beside it, which the urgent one takes at 10 for long.
    running = [Job(0, 50, 4), Job(0, 100, 4)]
    jobs = [*running, Job(5, 10, 8), Job(7, 200, 3), Job(10, 1000, 2, priority=1), Job(20, 1000, 2)]
    assert starts(jobs, order, nodes=[10])[2] == 100


def test_what_ends_at_the_same_moment_leaves_room_beside_a_reservation() -> None:
    """Both pods of a gang end at 100: of 10 CPUs the reserved pod leaves 4, of which 2 may be taken at once."""
    jobs = [Job(0, 100, 4, members=2), Job(10, 50, 6), Job(20, 1000, 2)]
    assert starts(jobs, "easy", nodes=[10]) == [0, 0, 100, 20]


def test_fair_takes_the_dominant_share_of_a_namespace() -> None:
    """40 % of CPU and 40 % of memory are a share of 40 %: less than one pod's 50 % of both."""
    gib = 1 << 30
    node = Node("n", 10_000, 10 * gib)
    asked = [("a", 4, 0), ("a", 0, 4), ("b", 5, 5), ("c", 1, 0), ("b", 1, 0), ("a", 1, 0)]
    pods = tuple(
        Pod(f"p{i}", PodClass(Requests(1000 * cpu, memory * gib)), namespace=namespace)
        for i, (namespace, cpu, memory) in enumerate(asked)
    )
    times, durations = np.array([0.0, 0, 0, 0, 10, 20]), np.array([1000.0, 1000, 1000, 100, 500, 500])
    plan = Schedule(
        np.arange(6), times, durations, np.arange(1), True, is_given=True, members=np.ones(6, dtype=np.int64)
    )
    policy = with_order(resolve("best-fit"), find_order("fair"))
    execution = Execution(Simulator(Workload("made", (node,), pods)), plan, policy, 1, record=False)
    execution.finish(None)
    assert (execution.coming_waits.seconds + times).tolist() == [0, 0, 0, 0, 600, 100]


def test_a_pod_chosen_to_go_next_stays_chosen() -> None:
    """An order that commits lets no later arrival replace the pod that goes next, unless it has a higher priority."""
    jobs = [Job(0, 10, 4), Job(1, 100, 4), Job(2, 1, 4)]
    assert starts(jobs, "shortest:none") == [0, 10, 110]
    assert starts(jobs, "shortest") == [0, 11, 10]
    assert starts([*jobs[:2], replace(jobs[2], priority=1)], "shortest:none") == [0, 11, 10]


def test_the_namespace_with_least_running_goes_first() -> None:
    """With `fair` a namespace that has much running waits for one that has little."""
    requests = PodClass(Requests(1000, 0))
    spaces = ["a", "a", "a", "a", "b"]
    pods = tuple(Pod(f"p{i}", requests, namespace=space) for i, space in enumerate(spaces))
    workload = Workload("made", (Node("n", 3000, 1 << 40),), pods)
    plan = Schedule(
        np.arange(5), np.array([0.0, 0, 0, 1, 2]), np.array([10.0, 50, 50, 50, 50]), np.arange(1), True, is_given=True
    )
    for order, last in (("fair", [50, 10]), ("age", [10, 50])):
        execution = Execution(Simulator(workload), plan, with_order(resolve("best-fit"), find_order(order)), 1, False)
        execution.finish(None)
        assert (execution.coming_waits.seconds + plan.time)[3:].tolist() == last


def test_priority_goes_first_in_every_order() -> None:
    """Priority beats each order's score."""
    jobs = [Job(0, 10, 4), Job(1, 1, 4), Job(2, 1000, 4, priority=7)]
    for order in BUILT_IN:
        assert starts(jobs, order) == [0, 1010, 10], order


def test_priority_goes_first_among_pods_that_arrive_together() -> None:
    """Whatever the order of a file is; a gang stays together, and equal ones keep their order."""

    def pod(name: str, priority: int, gang: str = "") -> Pod:
        requests = PodClass(Requests(1000, 0))
        return Pod(name, requests, priority=priority, gang=gang, creation_time=5.0, deletion_time=9.0)

    pods = (pod("a", 0), pod("b", 0, "g"), pod("c", 3), pod("d", 0, "g"), pod("e", 3), pod("f", 9))
    plan = schedule(Workload("made", (Node("n", 4000, 1 << 40),), pods), "timed", seed=1, ratio=1.0, load=None)
    assert [pods[i].name for i in plan.pods] == ["f", "c", "e", "a", "b", "d"]
    assert plan.members.tolist() == [1, 1, 1, 1, 2, 0]


def test_a_gang_starts_together_or_not_at_all() -> None:
    """Pods of a gang start at the same time, on several nodes if necessary."""
    jobs = [Job(0, 10, 4), Job(1, 5, 4, members=2), Job(2, 3, 2)]
    # Of two nodes one is busy until 10: the gang needs both, and the last pod fits beside nobody but in between.
    assert starts(jobs, "age", nodes=(4, 4)) == [0, 10, 10, 2]
    assert starts(jobs, "fcfs", nodes=(4, 4)) == [0, 10, 10, 15]
    # A gang that is larger than the cluster fails, and nobody waits for it.
    assert math.isnan(starts([Job(0, 5, 4, members=3), Job(1, 5, 4)], "fcfs", nodes=(4, 4))[0])
    assert starts([Job(0, 5, 4, members=3), Job(1, 5, 4)], "fcfs", nodes=(4, 4))[3] == 1


def test_a_gang_has_a_reservation_on_several_nodes() -> None:
    """Nobody delays a gang's nodes: a long pod that would waits, a short one overtakes."""
    jobs = [Job(0, 10, 4), Job(1, 5, 4, members=2), Job(2, 50, 2), Job(3, 7, 2)]
    assert starts(jobs, "easy", nodes=(4, 4)) == [0, 10, 10, 15, 3]


def test_gangs_of_gpus_count_devices() -> None:
    """A gang of whole GPUs waits for enough devices over all nodes."""
    jobs = [Job(0, 10, 1, gpus=1), Job(0, 30, 1, gpus=2), Job(1, 5, 1, gpus=2, members=2), Job(2, 4, 1, gpus=1)]
    assert starts(jobs, "age", nodes=(8, 8), gpus=2) == [0, 0, 30, 30, 2]
    assert starts(jobs, "easy", nodes=(8, 8), gpus=2) == [0, 0, 30, 30, 2]


def test_run_times_are_learned_from_what_ended() -> None:
    """With estimates from the history, a kind of pod that was short goes first."""
    long, short = [Job(t, 100, 3) for t in range(3)], [Job(t, 1, 2) for t in range(400, 403)]
    jobs = [*long, *short, Job(1000, 50, 4), Job(1001, 100, 3), Job(1002, 1, 2)]
    assert starts(jobs, "shortest", estimates=Estimates("history"))[-2:] == [1051, 1050]
    # Without any estimates the oldest goes first.
    assert starts(jobs, "shortest", estimates=Estimates("none"))[-2:] == [1050, 1150]


def test_stated_run_times_are_used() -> None:
    """Estimates that pods state count before the history."""
    order = BUILT_IN["shortest"]
    pods = [replace(Pod("a", PodClass(Requests(1000, 0))), estimated_seconds=seconds) for seconds in (50.0, None)]
    for source, expected in (("auto", [50, np.nan]), ("stated", [50, HOUR]), ("none", [HOUR, HOUR])):
        stated = Estimates(source).stated(pods, np.array([1.0, 2.0]), 1)
        np.testing.assert_array_equal(stated, expected)
    assert order.uses_estimates
    within = Estimates("oracle", 3.0).stated(pods * 5000, np.full(10_000, 60.0), 1) / 60
    assert 0.89 < ((within < 3) & (within > 1 / 3)).mean() < 0.91


def test_the_error_of_estimates_is_a_metric() -> None:
    """Estimates of an oracle are right; those with an error are wrong by its factor in one of ten cases."""
    jobs = [Job(t, 10.0 + t % 7, 1) for t in range(400)]
    cluster = (Node("n", 4000, 1 << 40),)
    pods = tuple(
        Pod(f"p{i}", PodClass(Requests(1000, 0)), creation_time=job.at, deletion_time=job.at + job.runs)
        for i, job in enumerate(jobs)
    )
    simulator = Simulator(Workload("made", cluster, pods))
    for order, p90 in (("shortest@oracle", 1.0), ("shortest@oracle:3", 3.0)):
        run = simulator.run(f"best-fit+{order}", protocol="timed")
        assert run.policy == f"best-fit+{order}"
        assert {each.name: each.value for each in run.metrics}["estimate_error_p90"] == pytest.approx(p90, rel=0.2)
    assert "estimate_error_p90" not in [metric.name for metric in simulator.run("fgd", protocol="timed").metrics]


def test_ageing_bounds_the_wait_of_a_pod_that_others_starve() -> None:
    """Small pods that never stop coming starve a large one; with ageing it starts."""
    stream = [Job(t, 15, 2) for t in range(0, 2000, 5)]
    jobs = sorted([*stream, Job(7, 10, 4)], key=lambda job: job.at)
    large = jobs.index(Job(7, 10, 4))
    assert starts(jobs, "smallest")[large] > 2000
    aged = replace(BUILT_IN["smallest"], ageing=100.0)
    # It is overdue at 107; what runs then has ended 15 s later.
    assert starts(jobs, aged)[large] <= 107 + 15
    named = find_order("smallest@ageing:100s")
    assert (named.ageing, named.estimates, named.name) == (100.0, AUTO, "smallest@ageing:100s")
    assert starts(jobs, named) == starts(jobs, aged)


def test_overdue_pod_has_its_reservation_beside_waiting_pods_of_a_higher_priority() -> None:
    """One of these waits at any time, for the other node, and for a few seconds."""
    stream = [Job(t, 15, 2) for t in range(0, 2000, 5)]
    others = [Job(max(t, 0), 10, 1, priority=1, gpus=1) for t in range(-5, 2000, 10)]
    jobs = sorted([*stream, *others, Job(7, 10, 4)], key=lambda job: job.at)
    aged = replace(BUILT_IN["smallest"], ageing=100.0)
    assert starts(jobs, aged, nodes=(4, 1), last_gpus=1)[jobs.index(Job(7, 10, 4))] <= 107 + 15


def test_higher_priority_goes_before_an_overdue_pod() -> None:
    stream = [Job(t, 15, 2) for t in range(0, 2000, 5)]
    overdue, high = Job(7, 10, 4), Job(110, 20, 4, priority=1)
    jobs = sorted([*stream, overdue, high], key=lambda job: job.at)
    found = starts(jobs, replace(BUILT_IN["smallest"], ageing=100.0))
    assert found[jobs.index(high)] <= 107 + 15
    assert found[jobs.index(overdue)] == found[jobs.index(high)] + 20


def test_pods_that_run_for_longer_than_stated_delay_a_reservation_once() -> None:
    """Whatever pods state, the pod that goes next waits for two reservations at most."""
    stream = [Job(t, 15, 2, states=1) for t in range(0, 2000, 5)]
    large = Job(7, 10, 4, states=10)
    jobs = sorted([*stream, large], key=lambda job: job.at)
    started = starts(jobs, "easy", estimates=Estimates("stated"))[jobs.index(large)]
    # What runs at 7 has ended at 20 and what overtook it by a false estimate 15 s later.
    assert 20 < started <= 20 + 15


def test_a_learned_order_with_the_weight_of_the_run_time_is_shortest_first() -> None:
    """The learned score is what its weights say."""
    weights = np.zeros(learned_size(2))
    weights[0] = 1.0
    learned = Order("mine", LEARNED, weights=tuple(weights))
    jobs = [Job(t, 10 + 7 * t % 41, 1 + t % 4) for t in range(60)]
    assert starts(jobs, learned) == starts(jobs, "shortest")


@pytest.mark.parametrize(("weight", "expected"), [(1.0, [0, 0, 10, 30, 15]), (-1.0, [0, 0, 10, 30, 35])])
def test_a_learned_order_that_commits_foresees_when_a_pod_fits(weight: float, expected: list[float]) -> None:
    """When the third pod starts at 10, the fourth one fits in 20 s and the last one in 5 s."""
    weights = np.zeros(learned_size(0))
    weights[LINEAR.index("delay")] = weight
    jobs = [Job(0, 30, 1), Job(0, 10, 3), Job(1, 5, 3), Job(2, 5, 4), Job(2, 5, 3)]
    assert starts(jobs, Order("mine", LEARNED, NO_ONE, weights=tuple(weights))) == expected


def test_of_two_that_end_at_once_the_one_that_started_first_ends_first() -> None:
    """The second pod arrives before the third one and starts after it; both end at 10."""
    jobs = [Job(0, 4, 4), Job(1, 6, 4), Job(2, 8, 2), Job(3, 1, 2)]
    started, slots = played(jobs, "age", nodes=(4, 2))
    assert started == [0, 4, 2, 10]
    assert slots[3] == slots[2]


def test_a_score_that_is_no_number_is_an_error() -> None:
    """A learned order that returns NaN ends the run with its name."""
    broken = Order("mine", LEARNED, weights=(math.nan,) * learned_size(0))
    with pytest.raises(SteersmanError, match="order 'mine': a score is not a number"):
        starts([BUSY, LARGE, LONG], broken)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_name_is_accepted_again_and_gives_an_equal_order(name: str) -> None:
    """With every way of overtaking, source of estimates and limit of the wait; the card of a policy file, too."""
    estimates = ["", *(f"@{source}" for source in SOURCES), "@oracle:2.5"]
    for overtaking, stated, ageing in product(
        ["", *(f":{each}" for each in OVERTAKING)], estimates, ["", "@ageing:9m"]
    ):
        if overtaking and name in ("fcfs", "easy"):
            continue  # refused: the name says who may overtake
        order = find_order(f"{name}{overtaking}{stated}{ageing}")
        assert find_order(order.name) == order
        again = from_policy_order("mine", to_policy_order(order))
        assert again is not None
        assert replace(again, name=order.name) == order
        if overtaking:
            assert order.overtaking == OVERTAKING[overtaking[1:]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("@none", "order '@none': a name is missing before '@none'; expected one such as age@none"),
        (":easy", "order ':easy': a name is missing before ':easy'; expected one such as age:easy"),
        ("", "order '': a name is missing; expected one such as age"),
        ("shortest@ageing", "order 'shortest@ageing': 'ageing' is unknown; expected auto, stated, history, oracle, "),
        ("age@Ageing:1h", "order 'age@Ageing:1h': 'Ageing:1h' is unknown; expected auto, stated, history, oracle, "),
        ("age@stated@ageing:x", "order 'age@stated@ageing:x': ageing: 'x' is not a duration above 0"),
        ("fcfs:easy", "order 'fcfs:easy': 'fcfs' says already who may overtake; expected age:easy"),
    ],
)
def test_what_is_wrong_with_an_order_is_named(text: str, says: str) -> None:
    """With the order as it was given, and what would be right."""
    with raises(UsageError, says):
        find_order(text)


WRONG_AGES = ("age@ageing:", "age@ageing:0s", "age@ageing:5", "age@ageing:1h@ageing:2h", "age@stated@history")


@pytest.mark.parametrize(
    "text", ["soonest", "age:some", "fcfs:easy", "easy:any", "age:", "age@guess", "wfp3:", "learned", *WRONG_AGES]
)
def test_unknown_orders(text: str) -> None:
    """What is no order is refused."""
    with pytest.raises(UsageError):
        find_order(text)


@pytest.mark.parametrize("text", ["guess", "oracle:0.5", "oracle:x", "history:3"])
def test_unknown_run_times(text: str) -> None:
    """What is no source of estimates is refused."""
    with pytest.raises(UsageError):
        parse_estimates(text)


def test_policies_carry_an_order() -> None:
    """`POLICY+ORDER` is the policy with the order, and its name tells."""
    policy = resolve("fgd+shortest:easy@oracle:3")
    assert (policy.name, policy.order.name) == ("fgd+shortest:easy@oracle:3", "shortest:easy@oracle:3")
    assert policy.order.estimates == Estimates("oracle", 3.0)
    assert resolve("fgd").order is AGE
    aged = resolve("fgd+wfp3:easy@ageing:1.5h@stated").order
    assert (aged.ageing, aged.estimates) == (5400.0, Estimates("stated"))


def _stream(seed: int, *, priorities: bool = False, gangs: bool = True) -> list[Job]:
    """Return a stream of up to 30 jobs at random times, in binary fractions of a second, so that sums are exact."""
    random = np.random.default_rng(seed)
    jobs, at = [], 0.0
    for _ in range(int(random.integers(3, 30))):
        at += int(random.exponential(8) * 1024) / 1024
        cpus, members = int(random.integers(1, 5)), int(random.choice([1, 1, 1, 2, 3])) if gangs else 1
        priority = int(random.integers(2)) if priorities else 0
        jobs.append(Job(at, int(random.uniform(1, 60) * 1024) / 1024, cpus, priority, members))
    return jobs


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 30))
def test_backfilling_never_delays_the_pod_that_goes_next(seed: int) -> None:
    """If estimates are right, a pod starts when those that ran as it became the next one have made room, or sooner."""
    gangs = seed % 2 == 0
    jobs, capacity = _stream(seed, gangs=gangs), (4, 4, 4)
    started, slots = played(jobs, "easy", capacity)
    of_pod = [k for k, job in enumerate(jobs) for _ in range(job.members)]
    first = np.searchsorted(of_pod, np.arange(len(jobs)))
    for k, job in enumerate(jobs):
        start = started[first[k]]
        # It is the next one once everybody older has started.
        next_at = max([job.at, *(started[first[i]] for i in range(k))])
        running = [
            (started[i] + jobs[j].runs, slots[i], jobs[j].cpus)
            for i, j in enumerate(of_pod)
            if j != k
            # Pods of a gang leave one after another at the same time, and others may start between two of them.
            and (started[i] < next_at or j < k or (gangs and started[i] == next_at))
            and started[i] + jobs[j].runs > next_at
        ]
        for time in [next_at, *sorted(end for end, _, _ in running)]:
            free = np.array(capacity)
            for end, slot, cpus in running:
                free[slot] -= cpus * (end > time)
            if (free // job.cpus).sum() >= job.members:
                break
        assert start <= time


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from([*BUILT_IN, "shortest:easy", "wfp3:none"]))
def test_every_pod_starts_and_no_gang_is_torn(seed: int, order: str) -> None:
    """Whatever the order, every pod that fits on the empty cluster starts once, with its gang, and no node is full."""
    jobs, capacity = _stream(seed, priorities=True), (4, 4, 4)
    started, slots = played(jobs, order, capacity, policy="fgd")
    of_pod = [job for job in jobs for _ in range(job.members)]
    first = 0
    for job in jobs:
        assert len(set(started[first : first + job.members])) == 1
        assert started[first] >= job.at
        first += job.members
    for time in started:
        free = np.array(capacity)
        for start, slot, job in zip(started, slots, of_pod, strict=True):
            free[slot] -= job.cpus * (start <= time < start + job.runs)
        assert (free >= 0).all()
