"""PPO over the queue: the compiled pool against the simulator, the network's mask, advantages, and a tiny training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from studies.queues import pool
from studies.queues.lublin_model import other_trace
from studies.queues.queue_ppo import TERMS, Actor, Critic, PPOConfig, PPOTask, QueuePPO, advantages, observed, terms
from studies.queues.sequences import pool_jobs
from studies.queues.traces import arrivals_of
from tests.support.order_scores import learned_score

from steersman.orders.order import OVERTAKING, Estimates, Order
from steersman.orders.scores import LINEAR, SHORTEST
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import window
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.workload import Workload

ARRIVALS = 150
START = tuple(float(name == "estimate") for name in TERMS)
TINY = PPOConfig(START, envs=8, rollout=16, rows=24, width=16, layers=1, heads=2, batch_size=64, validate_every=1 << 30)


@pytest.fixture(scope="module")
def trace() -> Workload:
    return other_trace("pool", 3, 2, 300)


def task(trace: Workload) -> PPOTask:
    starts = np.arange(0, 200, 10)
    jobs = pool_jobs([trace])
    return PPOTask(jobs, np.zeros(len(jobs.time), dtype=np.int64), ARRIVALS, starts, np.array([[300, 350]]))


@pytest.mark.parametrize("score", [SHORTEST, 0])
def test_the_pool_is_the_simulator(trace: Workload, score: int) -> None:
    """Shortest first, and in order of age, every window costs what it does in the simulator."""
    known, firsts = task(trace), np.array([0, 90, 333])
    runs, seen = pool.new_runs(3, ARRIVALS, ARRIVALS), pool.new_seen(3, ARRIVALS)
    reference = pool.reference_of(known.jobs, known.traces, firsts, ARRIVALS, 0.7)
    pool.begin(known.jobs, runs, reference, seen, firsts, np.zeros(3, dtype=np.int64))
    rewards, costs, total, gained = np.zeros(3), np.zeros(3), np.zeros(3), np.zeros(3)
    begun = runs.cost.copy()
    while not runs.over.all():
        rows = np.array([_choice(seen, e, score) for e in range(3)])
        pool.step(known.jobs, runs, reference, seen, rows, np.full(3, -1), rewards, costs)
        total, gained = np.where(np.isnan(costs), total, costs), gained + rewards
    order = Order("x", score, OVERTAKING["none"], estimates=Estimates("oracle"))
    simulator, policy = Simulator(trace), with_order(resolve("best-fit"), order)
    for e, first in enumerate(firsts):
        execution = Execution(simulator, window(arrivals_of(trace), int(first), ARRIVALS), policy, 1, record=False)
        execution.finish(None)
        assert total[e] / ARRIVALS + 1 == pytest.approx(execution.coming_waits.bounded_slowdown.mean())
    assert total.min() > 0
    np.testing.assert_allclose(gained, -reference.weight[firsts] * (total - begun))


def _choice(seen: pool.Seen, e: int, score: int) -> int:
    return int(np.argmin(seen.jobs[e, : seen.rows[e], 0])) if score == SHORTEST else 0


def test_the_terms_are_those_of_a_learned_order() -> None:
    """The linear part of the network is the score of a linear order."""
    random = np.random.default_rng(1)
    seen = pool.new_seen(1, 4)
    r, n, w, delay = 500.0, 64.0, 3000.0, 120.0
    seen.jobs[0, 2] = ((np.log(r) - 7) / 3, (np.log(n / 256) + 3) / 2, (np.log1p(w) - 6) / 3, 0.0, np.log1p(delay) / 6)
    seen.rows[0], seen.context[0, 0], seen.context[0, 1] = 4, 0.125, (np.log1p(9) - 4) / 2
    weights = random.normal(size=len(LINEAR))
    weights[LINEAR.index("spread")] = 0.0
    own = torch.tensor([each for name, each in zip(LINEAR, weights, strict=True) if name != "spread"])
    found = float(terms(observed(seen, torch.device("cpu")))[0, 2] @ own.float())
    assert found == pytest.approx(learned_score(weights, r, 0.0, n / 256, w, 0.125, 9.0, delay), rel=1e-5)


def test_rows_without_jobs_get_nothing_and_change_nothing() -> None:
    """Probabilities and values of a short queue do not depend on what padding holds."""
    torch.manual_seed(1)
    actor, critic, seen = Actor(replace(TINY, layers=2)), Critic(TINY), pool.new_seen(2, 6)
    torch.nn.init.normal_(actor.output.weight)
    random = np.random.default_rng(2)
    for array in (seen.jobs, seen.context, seen.critic):
        array[:] = random.normal(size=array.shape)
    seen.rows[:] = (2, 6)
    first = actor(observed(seen, torch.device("cpu"))), critic(observed(seen, torch.device("cpu")))
    seen.jobs[0, 2:] = 9.0
    second = actor(observed(seen, torch.device("cpu"))), critic(observed(seen, torch.device("cpu")))
    assert torch.isinf(first[0][0, 2:]).all()
    torch.testing.assert_close(first[0].exp().sum(1), torch.ones(2))
    torch.testing.assert_close(first, second)
    alone = actor(observed(seen._replace(jobs=seen.jobs[:, :2], rows=np.array([2, 2])), torch.device("cpu")))
    torch.testing.assert_close(alone[0], first[0][0, :2])


def test_advantages_by_hand() -> None:
    """A window ends with the second decision, so that nothing of the third one reaches the first two."""
    rewards, values = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[0.5], [1.0], [4.0], [10.0]])
    ended = torch.tensor([[False], [True], [False]])
    found = advantages(rewards, ended, values, gamma=0.5, gae_lambda=0.5)
    # 2 - 1 = 1; 1 + 0.5 * 1 - 0.5 + 0.25 * 1 = 1.25; 3 + 0.5 * 10 - 4 = 4.
    torch.testing.assert_close(found, torch.tensor([[1.25], [1.0], [4.0]]))


def test_a_tiny_training_improves_and_goes_on_where_it_was(trace: Workload, tmp_path: Path) -> None:
    """From the longest first it becomes far better; one that was stopped has what was before."""
    start, decisions = tuple(-each for each in START), 8 * 32 * 12
    config = replace(TINY, start=start, sharpness=0.5, rollout=32, batch_size=256, learning_rate=3e-3)
    config = replace(config, decisions=decisions)
    training = QueuePPO(task(trace), config)
    training.run(lambda _: None, tmp_path / "checkpoint.pt")
    assert [made for made, _ in training.validated] == [0, decisions]
    # Logarithms: a third less.
    assert training.validated[1][1] < training.validated[0][1] - 0.4
    again = QueuePPO(task(trace), replace(config, decisions=decisions + 8 * 32))
    again.run(lambda _: None, tmp_path / "checkpoint.pt")
    assert again.validated[:2] == training.validated
    assert again.decisions == decisions + 8 * 32
