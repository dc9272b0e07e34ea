"""Weights fitted to a cluster: the same wherever they are searched for, better on further draws, or not used."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from steersman.cluster.model import GPU_MILLI, Node, Pod, PodClass, Requests
from steersman.core.statistics import mean_interval
from steersman.orders.order import AGE
from steersman.orders.registry import find_order
from steersman.policies.base import Policy, with_order
from steersman.policies.greedy_forecast import blend, forecast_policy
from steersman.policies.kinds import as_linear
from steersman.policies.linear import LinearPolicy
from steersman.policies.portfolio_policy import KindLimit, PortfolioPolicy
from steersman.policies.registry import packaged_portfolio, resolve
from steersman.simulation.arrivals import draw
from steersman.simulation.kind_losses import excess_loss
from steersman.simulation.result import Protocol
from steersman.simulation.run import Simulator
from steersman.simulation.selection import choice, fitting, stock_search
from steersman.simulation.selection.choice import MemberChoice
from steersman.simulation.selection.fitting import FITTED, MOST_NODES, PARTS, fit_weights, parts
from steersman.simulation.selection.stock_search import SearchOptions, mean_costs
from steersman.workloads.formats.openb import embedded
from steersman.workloads.generators.clusters import random_cluster
from steersman.workloads.workload import Recorded, Workload

pytestmark = pytest.mark.whole_search

NOT_BETTER = "fitted weights are not clearly better"
KUBE_DEFAULT = resolve("kube-default")
SHORT, WHOLE = SearchOptions(generations=3), SearchOptions()


def small() -> Workload:
    return random_cluster(16, nodes=(6, 9))


def digest(workload: Workload, options: SearchOptions = SHORT) -> str:
    """Return the weights that a search finds, all bits of them."""
    return bits(fit_weights(Simulator(workload).emptied, blend(0.03, 0.03), options))


def bits(policy: Policy) -> str:
    assert isinstance(policy, LinearPolicy)
    return (policy.weights.tobytes() + (b"" if policy.rules is None else policy.rules.tobytes())).hex()


@pytest.fixture(scope="module")
def found() -> str:
    return digest(small())


# The same weights --------------------------------------------------------------------------------------------------


def test_the_order_of_pods_and_the_process_change_nothing(found: str) -> None:
    program = (
        "from dataclasses import replace; from tests.unit.simulation.test_fitting import digest, small; "
        "print(digest(replace(small(), pods=small().pods[::-1])))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == found


def test_the_seed_is_that_of_the_search(found: str) -> None:
    assert digest(small(), SearchOptions(generations=3, seed=2)) != found


def test_a_slow_clock_changes_nothing(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, 3600)
    for name in ("monotonic", "perf_counter", "process_time", "time"):
        monkeypatch.setattr(time, name, lambda: float(next(clock)))
    assert digest(small()) == found


def test_weights_are_printed_as_they_are(found: str) -> None:
    """Three significant digits, and none where nothing differs between nodes."""
    weights = np.frombuffer(bytes.fromhex(found))
    assert [float(f"{each:.3g}") for each in weights] == weights.tolist()
    assert np.count_nonzero(weights) <= 4 * (len(fitting.TERMS) + 2)


def generations_of(workload: Workload, options: SearchOptions = WHOLE) -> tuple[int, int]:
    """Return how many generations a search reports, and of how many."""
    reported: list[tuple[int, int]] = []
    emptied = Simulator(workload).emptied
    fit_weights(emptied, forecast_policy(), options, lambda done, every: reported.append((done, every)))
    assert [done for done, _ in reported] == list(range(1, len(reported) + 1))
    (every,) = {each for _, each in reported}
    return len(reported), every


def test_the_budget_of_a_search_is_arrivals(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = small()
    arrivals = len(draw(Simulator(workload).emptied.workload, "inflation", fitting.FIRST_SEED, 1.3, None).pods)
    of_generation = fitting.POPULATION * fitting.EPISODES * (arrivals + fitting.ARRIVALS_OF_A_RUN)
    monkeypatch.setattr(fitting, "GENERATIONS", (2, 4))
    for budget, wanted in ((of_generation, 2), (3 * of_generation, 3), (100 * of_generation, 4)):
        monkeypatch.setattr(fitting, "ARRIVALS", budget)
        assert generations_of(workload) == (wanted, wanted)
    assert generations_of(workload, SearchOptions(generations=1)) == (1, 1)


def test_no_draw_is_used_for_two_purposes() -> None:
    most = fitting.GENERATIONS[1] * fitting.EPISODES
    seeds = sorted([stock_search.FIRST_SEED, fitting.FIRST_SEED, choice.FIRST_SEED])
    assert all(after - before > 10 * most for before, after in itertools.pairwise(seeds))


# Better, or not used -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def openb() -> tuple[Simulator, MemberChoice]:
    simulator = Simulator(embedded("default-small"))
    return simulator, simulator.member(packaged_portfolio())


def test_fitted_weights_are_better_on_further_draws(openb: tuple[Simulator, MemberChoice]) -> None:
    simulator, chosen = openb
    assert chosen.policy.name == FITTED
    assert chosen.policy.order == AGE
    assert chosen.evidence.startswith("fitted decides: fitted allocates ")
    after, before = chosen.evidence.split("; before, ")
    replaced = next(each for each in packaged_portfolio().members if f"more than {each.name} (" in after)
    assert before.startswith(f"{replaced.name} decides: ")
    emptied, saved = simulator.emptied, []
    for seed in range(40):
        plan = draw(emptied.workload, "inflation", seed, 1.3, None)
        costs = [emptied.play(each, plan, seed).cost("inflation") for each in (replaced, chosen.policy)]
        saved.append(costs[0] - costs[1])
    assert mean_interval(np.array(saved)).low > 0


def test_nothing_is_fitted_where_all_pods_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three generations in which all candidates are equal end the search."""
    workload = small()
    single = [pod for pod in workload.pods if (pod.requests.gpu_count, pod.requests.gpu_milli) == (1, GPU_MILLI)]
    few = replace(workload, pods=tuple(single[:6]))
    played: list[int] = []
    costs = fitting.mean_costs

    def counted(*arguments: object) -> object:
        played.append(len(arguments[1]))  # type: ignore[arg-type]
        return costs(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(fitting, "mean_costs", counted)
    choice = Simulator(few).choose(packaged_portfolio(), SearchOptions("arrivals"))
    assert played == [fitting.POPULATION] * fitting.EPISODES * fitting.MOST_EQUAL
    assert choice.evidence.endswith(NOT_BETTER)
    assert choice.policy in packaged_portfolio().members or choice.policy.name == "fgd"


@pytest.mark.parametrize("without", ["pods", "nodes"])
def test_nothing_is_fitted_without_gpus(without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = small()
    if without == "pods":
        workload = replace(workload, pods=tuple(pod for pod in workload.pods if not pod.requests.gpu_count))
    else:
        workload = replace(workload, nodes=tuple(replace(node, gpu_count=0) for node in workload.nodes))
    monkeypatch.setattr("steersman.simulation.run.fit_weights", lambda *_: pytest.fail("it searched"))
    assert FITTED not in Simulator(workload).member(resolve("steersman")).evidence


def test_rules_are_not_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steersman.simulation.run.fit_weights", lambda *_: pytest.fail("it searched"))
    simulator, rules = Simulator(small()), resolve("rules")
    assert isinstance(rules, PortfolioPolicy)
    assert simulator.member(rules).policy.name != FITTED
    # The same members are another policy if they are fitted.
    with pytest.raises(pytest.fail.Exception, match="it searched"):
        simulator.member(replace(rules, is_fitted=True))


@pytest.mark.parametrize("order", ["age", "wfp3:easy"])
def test_waits_are_fitted_in_the_order_of_the_run(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    orders: set[str] = set()
    play = Simulator.play

    def watched(self: Simulator, policy: Policy, *arguments: object) -> object:
        orders.add(policy.order.name)
        return play(self, policy, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Simulator, "play", watched)
    monkeypatch.setattr(fitting, "GENERATIONS", (2, 2))
    monkeypatch.setattr(choice, "ROUND_DRAWS", (2, 2))
    monkeypatch.setattr(choice, "TEST_DRAWS", (2, 2))
    simulator, portfolio = Simulator(small()), with_order(packaged_portfolio(), find_order(order))
    chosen = simulator.member(portfolio, protocol="timed", load=0.9)
    assert orders == {find_order(order).name}
    assert chosen.policy.order == AGE, "who runs it has the portfolio's order"
    assert "waits and slowdowns" in chosen.evidence or NOT_BETTER in chosen.evidence


# Limits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["inflation", "timed"])
def test_a_candidate_that_breaks_the_limit_costs_more(protocol: Protocol) -> None:
    simulator, policies = Simulator(small()).emptied, (resolve("fgd"), resolve("best-fit"), KUBE_DEFAULT)
    load = 1.2 if protocol == "timed" else None
    plans = {seed: draw(simulator.workload, protocol, seed, 1.3, load) for seed in (2, 3)}
    free, limited = (
        mean_costs(simulator, policies, plans, SearchOptions(protocol, limit=limit))
        for limit in (None, KindLimit(0.5, KUBE_DEFAULT))
    )

    def paid_by(policy: Policy) -> np.ndarray:
        return sum(simulator.play(policy, plan, seed).paid_by_kind(protocol) for seed, plan in plans.items())

    paid = [paid_by(each) for each in policies]
    excess = [excess_loss(each, paid[-1], protocol, 0.5) for each in paid]
    assert excess[2] == 0.0
    assert max(excess) > 0.0
    assert limited - free == pytest.approx([stock_search.EXCESS_COST * each for each in excess])


def test_weights_that_break_the_limit_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much they save: here the search returns best fit, which is better and starves a kind of pods."""
    simulator = Simulator(small())
    starving = as_linear(resolve("best-fit"))
    assert starving is not None
    monkeypatch.setattr("steersman.simulation.run.fit_weights", lambda *_: replace(starving, name=FITTED))
    limited, free = (resolve(name) for name in ("steersman@max-kind-loss:0", "rules"))
    assert simulator.member(limited).policy.name != FITTED
    assert simulator.member(free).policy.name == "best-fit"


# Parts of a large cluster --------------------------------------------------------------------------------------------


def large(gpu_nodes: int = 200, nodes: int = 300) -> Workload:
    """Nodes of several shapes; single pods, gangs of four in two namespaces, and a pod of each node."""

    def node(i: int) -> Node:
        gpus = (0 if i >= gpu_nodes else 8 if i % 3 else 4) if gpu_nodes > 2 else 8 * (i < gpu_nodes)
        model = ("A100", "T4")[i % 2] if gpus else ""
        return Node(f"n{i * 37 % nodes:03}", 96_000 if gpus else 32_000, 512 << 30, gpu_count=gpus, gpu_model=model)

    every = tuple(node(i) for i in range(nodes))
    share, whole, plain = (
        PodClass(Requests(2000, 4 << 30, gpu_count=count, gpu_milli=milli))
        for count, milli in ((1, 400), (2, GPU_MILLI), (0, 0))
    )
    pods = [Pod(f"s{i}", share) for i in range(300)] + [Pod(f"c{i}", plain) for i in range(100)]
    pods += [
        Pod(f"g{i}-{k}", whole, namespace=namespace, gang=f"gang-{i}")
        for namespace in ("a", "b")
        for i in range(20)
        for k in range(4)
    ]
    recorded: list[Recorded | None] = [None] * len(pods)
    pods += [Pod(f"d-{each.name}", plain, namespace="kube-system") for each in every]
    recorded += [Recorded(each.name, stays=True) for each in every]
    return Workload("large", every, tuple(pods), recorded=tuple(recorded))


def shape(node: Node) -> tuple[object, ...]:
    return node.gpu_count, node.gpu_model, node.cpu_milli


def test_parts_have_all_shapes_and_whole_gangs() -> None:
    whole = large()
    found = parts(whole)
    assert len(found) == PARTS
    size = Counter((pod.namespace, pod.gang) for pod in whole.pods)
    shapes = Counter(map(shape, whole.nodes))
    share = MOST_NODES / len(whole.nodes)
    units = 400 + 40
    for part in found:
        names = {node.name for node in part.nodes}
        assert len(names) == len(part.nodes) == MOST_NODES
        for each, count in Counter(map(shape, part.nodes)).items():
            assert abs(count - share * shapes[each]) < 1
        assert {shape(node) for node in part.nodes} == set(shapes)
        gangs = Counter((pod.namespace, pod.gang) for pod in part.pods if pod.gang)
        assert gangs
        assert all(count == size[gang] for gang, count in gangs.items())
        alone = sum(not pod.gang and pod.namespace == "default" for pod in part.pods)
        assert len(gangs) + alone == int(np.ceil(share * units))
        standing = {pod.name for pod, where in zip(part.pods, part.recorded, strict=True) if where}
        assert standing == {f"d-{name}" for name in names}
    assert len({frozenset(node.name for node in part.nodes) for part in found}) > 1
    assert [part.nodes for part in parts(whole)] == [part.nodes for part in found]


def test_a_cluster_of_the_size_of_a_part_is_played_whole() -> None:
    whole = large(nodes=MOST_NODES, gpu_nodes=100)
    assert parts(whole) == [whole]
    assert len(parts(large(nodes=MOST_NODES + 1, gpu_nodes=100))) == PARTS


@pytest.mark.parametrize("kind", [(), ("timed", 1.3, 0.9, 600.0)], ids=["inflation", "timed"])
def test_a_cluster_with_two_gpu_nodes_is_fitted(kind: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts without GPUs are left out."""
    whole = large(gpu_nodes=2)
    found = parts(whole)
    assert 1 <= len(found) <= PARTS
    assert all(part.gpu_capacity for part in found)
    monkeypatch.setattr(choice, "ROUND_DRAWS", (2, 2))
    monkeypatch.setattr(choice, "TEST_DRAWS", (2, 2))
    options = SearchOptions(*kind, generations=1)  # type: ignore[arg-type]
    assert Simulator(whole).choose(packaged_portfolio(), options).policy.name


def test_a_cluster_without_a_part_with_gpus_is_played_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = large(gpu_nodes=1, nodes=2 * MOST_NODES)
    # The only node with GPUs is the last one by shape: a part that begins with the first of two nodes has every other.
    seed = next(seed for seed in range(100) if np.random.default_rng(seed).random() < 0.5)
    monkeypatch.setattr(fitting, "PARTS", 1)
    monkeypatch.setattr(fitting, "PART_SEED", seed)
    assert parts(whole) == [whole]
