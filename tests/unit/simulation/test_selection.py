"""The choice among policies by short simulations: the best wins, equal ones go by order, and no work is wasted."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.cluster.model import GPU_MILLI, Node, Pod, PodClass, Requests
from steersman.policies.heuristics.policy import HEURISTIC_IDS, heuristic
from steersman.policies.linear.policy import LinearPolicy
from steersman.policies.portfolio_policy import PortfolioPolicy
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import Schedule, draw, trace_load
from steersman.simulation.run import Simulator
from steersman.simulation.selection import halving
from steersman.simulation.selection.halving import Selection, select
from steersman.workloads.generators.clusters import random_cluster
from steersman.workloads.workload import Recorded, Workload


def plan(size: int = 100) -> Schedule:
    return Schedule(np.arange(size), np.arange(size, dtype=float), np.full(size, np.inf), np.arange(3), False)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=12, unique=True))
def test_without_noise_the_best_is_found(costs: list[float]) -> None:
    found = select(len(costs), lambda _: plan(), lambda i, *_: costs[i])
    assert found.best == int(np.argmin(costs))


def test_of_equal_ones_the_first_and_no_further_draws() -> None:
    played: list[int] = []

    def play(i: int, *_: object) -> float:
        played.append(i)
        return 3.0

    assert select(5, lambda _: plan(), play).best == 0
    assert len(played) == 5 * halving.FIRST_ROUND


def test_draws_are_paired_and_the_better_half_goes_on() -> None:
    seeds: dict[int, list[int]] = {i: [] for i in range(8)}

    def play(i: int, _: Schedule, seed: int) -> float:
        seeds[i].append(seed)
        return i + 0.1 * (seed % 7)

    found = select(8, lambda _: plan(), play)
    assert found.best == 0
    assert all(seeds[i] == seeds[0][: len(seeds[i])] for i in range(8))
    assert len(seeds[0]) == halving.MOST_DRAWS
    assert len(seeds[7]) == halving.FIRST_ROUND


def test_a_large_cluster_plays_few_draws() -> None:
    calls = []
    select(10, lambda _: plan(50_000), lambda i, *_: float(calls.append(i) or i))
    assert len(calls) <= 2 * 10  # one draw of ten candidates is more than the budget


def test_a_portfolio_takes_its_best_member_under_its_own_name() -> None:
    workload = random_cluster(5, nodes=(20, 40))
    simulator = Simulator(workload)
    members = tuple(heuristic(name) for name in ("least-allocated", "fgd", "gpu-packing"))
    portfolio = PortfolioPolicy("mine", members, "digest")
    chosen = simulator.member(portfolio, protocol="inflation")
    means = {
        each.name: np.mean(
            [
                simulator.play(each, draw(workload, "inflation", s, 1.3, None), s).cost("inflation")
                for s in range(100, 120)
            ]
        )
        for each in members
    }
    assert chosen.name == "mine"
    assert chosen.kinds == heuristic(min(means, key=lambda name: means[name])).kinds
    run = simulator.run(portfolio, seed=3)
    assert run.policy == "mine"
    assert (run.curve.gpu_allocation_percent == simulator.run(chosen, seed=3).curve.gpu_allocation_percent).all()


@pytest.mark.parametrize("protocol", ["inflation", "arrivals", "timed"])
def test_draws_of_every_protocol(protocol: str) -> None:
    workload = random_cluster(5, nodes=(5, 9))
    one, same, other = (draw(workload, protocol, seed, 1.3, None) for seed in (1, 1, 2))
    assert (one.pods == same.pods).all()
    assert len(one.pods) != len(other.pods) or (one.pods != other.pods).any()
    assert one.waits == (protocol == "timed")
    if protocol == "arrivals":
        assert sorted(one.pods) == list(range(len(workload.pods)))


def test_load_of_a_trace() -> None:
    workload = random_cluster(5, nodes=(20, 40))
    assert 0.2 < trace_load(workload) < 3


def test_durations_that_are_not_in_the_data_are_those_of_the_run() -> None:
    workload = random_cluster(5, nodes=(5, 9))
    endless = replace(workload, pods=tuple(replace(pod, deletion_time=None) for pod in workload.pods))
    assert trace_load(endless) == 0.0
    short, long = (trace_load(endless, seconds) for seconds in (60.0, 600.0))
    assert long == pytest.approx(10 * short)
    drawn = draw(endless, "timed", 1, 1.3, None, 60.0)
    assert 45 < drawn.duration.mean() < 75
    assert drawn.waits
    # Pods that stand come before, for good, and are no part of the load that is offered.
    one = next(i for i, pod in enumerate(endless.pods) if i and pod.requests.gpu_count)
    recorded = [Recorded(workload.nodes[0].name, stays=True) if i == one else None for i in range(len(endless.pods))]
    there = replace(endless, recorded=tuple(recorded))
    assert 0 < trace_load(there, 60.0) < short
    assert draw(there, "timed", 1, 1.3, None, 60.0).standing == 1


def test_a_portfolio_is_chosen_by_the_durations_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = Simulator(random_cluster(5, nodes=(5, 9)))
    portfolio = PortfolioPolicy("mine", tuple(heuristic(name) for name in ("fgd", "best-fit")), "digest")
    asked = []
    monkeypatch.setattr(simulator, "select", lambda _, **how: asked.append(how) or Selection(0, np.zeros((2, 1))))
    for seconds in (60.0, 60.0, 600.0):
        simulator.run(portfolio, protocol="timed", load=0.5, mean_duration=seconds)
    assert [how["mean_duration"] for how in asked] == [60.0, 600.0]


def test_rules_as_weights_decide_as_rules() -> None:
    """A linear policy that weighs one heuristic alone places every pod as the heuristic does."""
    from steersman.policies.linear.arrays import KINDS, RULES, WEIGHTS

    simulator = Simulator(random_cluster(9, nodes=(20, 60)))
    for name, number in HEURISTIC_IDS.items():
        if name == "fgd":
            continue  # its place among the weights takes memory into account, too
        rules = np.zeros((KINDS, RULES))
        rules[:, number] = 1.0
        runs = [
            simulator.run(policy, seed=1, record=True).placements
            for policy in (resolve(name), LinearPolicy(name, np.zeros((KINDS, WEIGHTS)), rules))
        ]
        assert runs[0].node == runs[1].node, name
        assert runs[0].devices == runs[1].devices, name


def test_pods_of_an_owner_come_in_bursts_in_every_other_draw() -> None:
    workload = random_cluster(11, nodes=(20, 30))
    owners = np.array([pod.owner for pod in workload.pods])

    def changes(plan: Schedule) -> int:
        return int((owners[plan.pods[1:]] != owners[plan.pods[:-1]]).sum())

    for protocol, bursts in (("inflation", True), ("arrivals", False)):
        one, together = (draw(workload, protocol, seed, 1.3, None, None, bursts) for seed in (2, 3))
        assert changes(together) < changes(one) / 2
        plain = draw(workload, protocol, 3, 1.3, None)
        assert sorted(together.pods) == sorted(plain.pods)
        same = np.array_equal(together.pods, plain.pods)
        assert same is (protocol == "arrivals")
    again = draw(workload, "inflation", 3, 1.3, None, None, True)
    assert np.array_equal(again.pods, draw(workload, "inflation", 3, 1.3, None, None, True).pods)


def test_whole_nodes_are_left_where_pods_of_all_devices_come() -> None:
    """Without shared pods nothing but the number of free devices tells nodes apart; spreading leaves no node whole."""
    nodes = tuple(Node(f"n{i:02}", 96_000, 768 << 30, gpu_count=8, gpu_model="A100") for i in range(30))
    wanted = [1] * 56 + [8] * 22
    pods = tuple(
        Pod(f"p{i:02}", PodClass(Requests(8_000 * gpus, gpus << 35, gpu_count=gpus, gpu_milli=GPU_MILLI)))
        for i, gpus in enumerate(wanted)
    )
    run = Simulator(Workload("whole", nodes, pods)).run("steersman", protocol="arrivals")
    (failed,) = (metric.value for metric in run.metrics if metric.name == "pods_failed")
    assert failed == 0
