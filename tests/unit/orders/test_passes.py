"""Passes try only those waiting pods that may start now: no other would have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from steersman.orders.registry import find_order
from steersman.policies.base import with_order
from steersman.policies.decision.kernels import NONE
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
    "smallest:ending-before@oracle",
    "wfp3:ending-before@oracle:3",
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


def trying_everybody(execution: Execution) -> None:
    """Run to the end event by event; after each it is forgotten which node a pod has left, so that all are tried."""
    status = event_arrays.PAUSED
    while status != event_arrays.DONE:
        status = execution.advance(int(execution.run.cursor[event_arrays.EVENTS]) + 1)
        execution.run.cursor[event_arrays.FREED] = NONE


@pytest.mark.parametrize("order", ORDERS)
def test_only_pods_that_cannot_start_are_left_out(order: str) -> None:
    overtaken = 0
    for seed in SEEDS:
        simulator = Simulator(random_cluster(seed))
        policy = with_order(resolve("fgd"), find_order(order))
        plan = first_arrivals(draw(simulator.workload, "timed", seed, 1.3, 1.3, None, bursts=False))
        runs = [Execution(simulator, plan, policy, 0, record=False) for _ in range(2)]
        runs[0].finish(None)
        trying_everybody(runs[1])
        records = [each._record() for each in runs]
        assert np.array_equal(records[0].numbers, records[1].numbers)
        assert np.array_equal(records[0].time, records[1].time)
        overtaken += int(records[0].numbers[:, event_arrays.NOW_WAITING].max())
    assert overtaken > 100, "hardly anybody waited"
