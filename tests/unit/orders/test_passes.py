"""What an order costs: passes try only pods that may start now, and scores are those of groups of equal pods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from steersman.core.handles import NOWHERE, CoreEngine, Stop
from steersman.orders import scores
from steersman.orders.order import BUILT_IN, Order
from steersman.orders.registry import find_order
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation import event_arrays
from steersman.simulation.arrivals import Schedule, draw
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.generators.clusters import random_cluster

SEEDS = (1001, 1015, 1020)
ARRIVALS = 1500
# Without estimates from history, which are renewed when they are asked for.
ORDERS = (
    "wfp3@oracle:3",
    "easy@oracle:3",
    "wfp3:easy@oracle:3",
    "shortest:easy@oracle",
    "largest:easy@oracle:10",
    "fair:easy@oracle:3",
)


def first_arrivals(plan: Schedule) -> Schedule:
    """Return the beginning of a plan, denser, so that many wait."""
    first = slice(ARRIVALS)
    return replace(
        plan,
        pods=plan.pods[first],
        time=plan.time[first] / 4.0,
        duration=plan.duration[first],
        members=plan.members[first],
    )


@pytest.mark.parametrize("order", ORDERS)
def test_only_pods_that_cannot_start_are_left_out(order: str) -> None:
    overtaken = 0
    for seed in SEEDS:
        simulator = Simulator(random_cluster(seed))
        policy = with_order(resolve("fgd"), find_order(order))
        plan = first_arrivals(draw(simulator.workload, "timed", seed, 1.3, 1.3, None))
        execution = Execution(simulator, plan, policy, 0, record=False)
        trying_everybody = CoreEngine.of(execution.described.arrays() | {"run.tries_everybody": np.array(1)})
        assert execution.engine.advance() == trying_everybody.advance() == Stop.DONE
        for one, other in zip(execution.engine.events(), trying_everybody.events(), strict=True):
            assert np.array_equal(one, other)
        overtaken += int(execution.record().numbers[:, event_arrays.NOW_WAITING].max())
    assert overtaken > 100, "hardly anybody waited"


def learned(wait: float) -> Order:
    """Return a learned order by the estimate and the wait."""
    weights = np.zeros(scores.learned_size(0))
    weights[scores.LINEAR.index("estimate")], weights[scores.LINEAR.index("wait")] = 1.0, wait
    return Order("learned", scores.LEARNED, weights=tuple(weights.tolist()))


@pytest.mark.parametrize("order", [*BUILT_IN, "learned"])
def test_a_score_is_that_of_a_class_and_not_of_a_pod(order: str) -> None:
    """Without stated run times all pods of a class and an owner are alike, whenever they arrive."""
    simulator = Simulator(random_cluster(SEEDS[0]))
    plan = draw(simulator.workload, "timed", SEEDS[0], 1.3, 1.3, None)
    policy = with_order(resolve("fgd"), learned(-1.0) if order == "learned" else find_order(order))
    groups = len(np.unique(Execution(simulator, plan, policy, 0, record=False).described.groups[plan.standing :]))
    pods = [simulator.workload.pods[i] for i in plan.pods]
    assert groups == len({(pod.pod_class, pod.priority, pod.namespace, pod.owner) for pod in pods})
    assert groups < len(pods) / 10


def test_of_equal_pods_the_oldest_goes_first() -> None:
    """As in a live cluster, also where the weights prefer pods that have just come."""
    simulator = Simulator(random_cluster(SEEDS[0]))
    plan = first_arrivals(draw(simulator.workload, "timed", SEEDS[0], 1.3, 1.3, None))
    execution = Execution(simulator, plan, with_order(resolve("fgd"), learned(1.0)), 0, record=False)
    execution.finish(None)
    standing, groups = execution.standing, execution.described.groups
    waited = np.flatnonzero((standing.node != NOWHERE) & (standing.started > plan.time))
    assert len(waited) > 100
    for group in np.unique(groups[waited]):
        assert np.all(np.diff(standing.started[waited[groups[waited] == group]]) >= 0)
