"""A network over the whole queue of a pool, its search, and rollouts on what has come before."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from studies.queues import pool, queue_network, rollouts
from studies.queues.learners import ORACLE, slowdown
from studies.queues.lublin_model import other_trace
from studies.queues.queue_network import FORM, JOB, STATE, UNIT, NetworkSearch, play, shortest_first, weight_count
from studies.queues.rollouts import RolloutConfig, play_rollouts
from studies.queues.sequences import pool_jobs
from studies.queues.traces import arrivals_of

from steersman.agents.evolution.orders import OrderSearchConfig, waits_under
from steersman.orders import scores
from steersman.orders.order import OVERTAKING, Order
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import window
from steersman.simulation.run import Simulator
from steersman.workloads.workload import Workload

ARRIVALS = 150
FIRSTS = np.array([0, 90, 333])
PRODUCTS = [(k, m) for k in range(len(JOB)) for m in range(k + 1)]


@pytest.fixture(scope="module")
def trace() -> Workload:
    return other_trace("pool", 3, 2, 300)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(4)


def network_of(linear: dict[str, float]) -> np.ndarray:
    """Return the network without units that is a linear order, by its terms."""
    weights = np.zeros(weight_count(0))
    for name, value in linear.items():
        first, _, second = name.replace("^2", f"*{name[:-2]}").partition("*")
        names = [name.replace("queue", "waiting") for name in (first, second)]
        own = sorted((JOB.index(each) for each in names if each in JOB), reverse=True)
        state = [STATE.index(each) for each in names if each in STATE]
        if len(own) == 2:
            weights[len(JOB) * (1 + len(STATE)) + PRODUCTS.index((own[0], own[1]))] = value
        else:
            weights[own[0] * (1 + len(STATE)) + (1 + state[0] if state else 0)] = value
    return weights


def test_a_network_without_units_can_be_any_linear_order(trace: Workload, rng: np.random.Generator) -> None:
    """Windows cost what they do in the simulator under the order of the same weights, shortest first among them."""
    orders = [{"estimate": 1.0}]
    for _ in range(3):
        drawn = dict(zip(scores.LINEAR, rng.normal(0.0, 0.1, len(scores.LINEAR)).tolist(), strict=True))
        # Of equal jobs the oldest goes first, as in the simulator.
        orders.append({**drawn, "spread": 0.0, "estimate": 1.0, "wait": -1.5})
    known = pool_jobs([trace])
    networks = np.array([network_of({k: v for k, v in each.items() if k != "spread"}) for each in orders])
    found = play(known, FIRSTS, ARRIVALS, networks)
    simulator, plan = Simulator(trace), arrivals_of(trace)
    for linear, costs in zip(orders, found, strict=True):
        weights = tuple(linear.get(name, 0.0) for name in scores.LINEAR)
        order = Order("x", scores.LEARNED, OVERTAKING["none"], weights, estimates=ORACLE)
        policy = with_order(resolve("best-fit"), order)
        expected = [slowdown(waits_under(policy, simulator, window(plan, int(k), ARRIVALS), 1)) for k in FIRSTS]
        assert costs == pytest.approx(expected)
    assert len({tuple(each) for each in found.tolist()}) == len(orders)


def test_scores_are_a_quadratic_form_and_units(rng: np.random.Generator) -> None:
    units, count = 3, 5
    weights = rng.normal(size=weight_count(units)).astype(np.float32)
    inputs = queue_network.new_inputs(8)
    inputs.jobs[:], inputs.state[:] = rng.normal(size=(8, len(JOB))), rng.normal(size=len(STATE))
    queue_network.score(weights, inputs, count)
    per_input = weights[: len(JOB) * (1 + len(STATE))].reshape(len(JOB), -1)
    products = weights[len(JOB) * (1 + len(STATE)) : FORM]
    for i in range(count):
        x, state = inputs.jobs[i].astype(float), inputs.state.astype(float)
        expected = sum(x[k] * (per_input[k, 0] + per_input[k, 1:] @ state) for k in range(len(JOB)))
        expected += sum(w * x[k] * x[m] for w, (k, m) in zip(products, PRODUCTS, strict=True))
        for unit in weights[FORM:].reshape(units, UNIT):
            total = unit[:-2] @ np.concatenate([x, state]) + unit[-2]
            expected += unit[-1] * total / (1.0 + abs(total))
        assert inputs.scores[i] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_the_state_of_a_queue() -> None:
    """Two jobs run, on 200 and 40 of 256 processors; of three that wait one fits."""
    jobs = pool.Jobs(
        np.array([0.0, 0.0, 10.0, 20.0, 30.0]),
        np.array([100.0, 400.0, 5.0, 50.0, 1000.0]),
        np.array([200.0, 40.0, 16.0, 17.0, 256.0]),
    )
    runs, inputs = pool.new_runs(1, 5, 1), queue_network.new_inputs(5)
    runs.now[0], runs.free[0], runs.running[0], runs.waiting[0] = 40.0, 16.0, 2, 3
    runs.ends[0, :2], runs.held[0, :2], runs.queue[0, :3] = (100.0, 400.0), (200.0, 40.0), (2, 3, 4)
    queue_network.choose(jobs, queue_network.known_inputs(jobs), runs, 0, first_of_estimate(), inputs)
    after_first, after_both = math.log1p(60.0) / 6, math.log1p(360.0) / 6
    work = 5 * 16 + 50 * 17 + 1000 * 256
    expected = {
        "free": 16 / 256,
        "waiting": (math.log(4) - 4) / 2,
        "pressure": (math.log1p(3600 * (1 / 10 + 1 / 50 + 1 / 1000)) - 3) / 3,
        "work": (math.log1p(work / 256) - 8) / 3,
        "fitting": 1 / 3,
        "delay of 64": after_first,
        "delay of 128": after_first,
        "delay of 256": after_both,
    }
    assert dict(zip(STATE, inputs.state.tolist(), strict=True)) == pytest.approx(expected, rel=1e-5)
    first = (math.log(5) - 7) / 3, (math.log(16 / 256) + 3) / 2, (math.log(31) - 6) / 3, 1.0, 0.0, 0.0
    second = (math.log(50) - 7) / 3, (math.log(17 / 256) + 3) / 2, (math.log(21) - 6) / 3, 0.0, after_first, 0.0
    np.testing.assert_allclose(inputs.jobs[:2], [first, second], rtol=1e-5)
    runs.free[0] = 18.0
    queue_network.choose(jobs, queue_network.known_inputs(jobs), runs, 0, first_of_estimate(), inputs)
    assert inputs.jobs[:3, 5] == pytest.approx([2 / 256, 1 / 256, 0.0])


def first_of_estimate() -> np.ndarray:
    return shortest_first(0, np.random.default_rng(1)).astype(np.float32)


def test_search_finds_better_networks(trace: Workload) -> None:
    config = OrderSearchConfig(2, population=12, episodes=16, generations=30, validate_every=5, validation=20, step=0.1)
    known = pool_jobs([trace])
    search = NetworkSearch(known, 1, lambda _, seed: seed % 400, ARRIVALS, config)
    # The first network is shortest first, whatever its units.
    assert search.validate() == pytest.approx(0.0)
    search.run()
    assert search.best_gain > 0.02
    again = NetworkSearch(known, 1, lambda _, seed: seed % 400, ARRIVALS, config)
    again.run()
    assert again.best.tolist() == search.best.tolist()


def test_rollouts_improve_a_network(trace: Workload) -> None:
    """They are better than shortest first on windows that have a past, and equal to it where nothing else may go."""
    known, weights = pool_jobs([trace]), shortest_first(0, np.random.default_rng(1))
    firsts = np.arange(200, 440, 20)
    before = play(known, firsts, ARRIVALS, weights[None])[0]

    def with_rollouts(config: RolloutConfig, firsts: np.ndarray = firsts) -> np.ndarray:
        begins = np.zeros(len(firsts), dtype=np.int64)
        return play_rollouts(known, firsts, begins, ARRIVALS, weights, config)

    config = RolloutConfig(futures=16, seconds=6 * 3600.0)
    found = with_rollouts(config)
    assert np.log(found / before).mean() < -0.03
    # Whatever else is played.
    assert with_rollouts(config, firsts[3:5]).tolist() == found[3:5].tolist()
    assert with_rollouts(replace(config, seed=2)).tolist() != found.tolist()
    assert with_rollouts(replace(config, futures=2, margin=math.inf)).tolist() == before.tolist()
    assert with_rollouts(replace(config, futures=2, candidates=1)).tolist() == before.tolist()
    # Nothing has come before.
    assert with_rollouts(replace(config, seconds=1e9)).tolist() == before.tolist()


@pytest.mark.parametrize(("jitter", "hours"), [(0.0, {13}), (7200.0, {11, 12, 13, 14})])
def test_a_future_is_of_the_past_at_the_same_time_of_day(jitter: float, hours: set[int]) -> None:
    """A job comes each hour; its run time says which one it is."""
    time = np.arange(0.0, 20 * rollouts.DAY, 3600.0)
    jobs = pool.Jobs(time, 1.0 + np.arange(len(time)), 1.0 + np.arange(len(time)) % 24)
    runs, config = pool.new_runs(1, 40, 1), RolloutConfig(seconds=6 * 3600.0, jitter=jitter)
    begins, first = 24 * 3, 24 * 15
    runs.first[0], runs.arrived[0], runs.waiting[0], runs.now[0] = first, 13, 2, time[first + 12] + 1.0
    runs.queue[0, :2] = (first + 11, first + 12)
    random = np.array([[5]], dtype=np.uint64)
    ahead = rollouts.RolloutArrays(
        np.array([begins]), config.days, config.seconds, config.jitter, config.margin, random
    )
    future, inputs = pool.Jobs(np.zeros(99), np.zeros(99), np.zeros(99)), np.zeros((2, 99), dtype=np.float32)
    days, starts = set(), set()
    for _ in range(100):
        count = rollouts.draw_future(jobs, queue_network.known_inputs(jobs), runs, 0, ahead, future, inputs)
        which = future.run[:count].astype(int) - 1
        # Those that wait, and then those of six hours, none of which is to come.
        assert which[:2].tolist() == [first + 11, first + 12]
        assert (np.diff(which[2:]) == 1).all()
        assert 6 <= count - 2 <= 7
        assert begins <= which[2]
        assert which[-1] < first + 13
        assert (np.diff(future.time[1:count]) > 0).all()
        assert future.time[count - 1] <= runs.now[0] + config.seconds
        assert inputs[1, :count] == pytest.approx((np.log(future.size[:count] / 256) + 3) / 2, rel=1e-5)
        days.add(int(which[2]) // 24)
        starts.add(int(which[2]) % 24)
    assert starts == hours
    assert days == set(range(3, 15))


def test_another_job_must_be_cheaper_by_more_than_the_error() -> None:
    costs = np.array([[10.0, 20.0, 30.0], [9.0, 19.0, 28.0], [4.0, 21.0, 20.0]])
    # Mean differences of 4/3 and 5, with standard errors of 1/3 and 3.215.
    assert rollouts.cheapest(costs, 3, 0.0) == 2
    assert rollouts.cheapest(costs, 3, 1.0) == 2
    assert rollouts.cheapest(costs, 2, 1.0) == 1
    assert rollouts.cheapest(costs, 3, 1.4) == 1
    assert rollouts.cheapest(costs, 3, 3.9) == 1
    assert rollouts.cheapest(costs, 3, 4.1) == 0


def test_candidates_are_the_best_of_different_jobs() -> None:
    jobs = pool.Jobs(np.zeros(5), np.array([5.0, 5.0, 5.0, 7.0, 9.0]), np.array([1.0, 1.0, 2.0, 1.0, 1.0]))
    runs, places = pool.new_runs(1, 5, 1), np.zeros(4, dtype=np.int64)
    runs.waiting[0], runs.queue[0] = 5, np.arange(5)
    scores_of = np.array([0.3, 0.2, 0.25, 0.1, 0.4], dtype=np.float32)
    assert rollouts.candidates_of(jobs, runs, 0, scores_of, places[:3]) == 3
    assert places[:3].tolist() == [3, 1, 2]
    assert rollouts.candidates_of(jobs, runs, 0, scores_of, places) == 4
    assert places.tolist() == [3, 1, 2, 4]
    runs.waiting[0] = 2
    assert rollouts.candidates_of(jobs, runs, 0, scores_of, places) == 1
