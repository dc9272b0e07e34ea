"""What an order costs: `timed` with 10,000 nodes and a million pods, each order against that of age in the same run."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from steersman.orders import scores
from steersman.orders.order import BUILT_IN, Order
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.formats.openb.traces import embedded
from steersman.workloads.workload import Workload

NODES, PODS = 10_000, 1_000_000
LOAD = 1.0
HIDDEN = 12
WARM_UP = 20_000


def million_pods() -> dict[str, float]:
    """Measure seconds of CPU for each order, and their ratios to the order of age.

    Learned weights are random: what they choose does not matter here.
    """
    weights = np.random.default_rng(1).normal(0.0, 0.3, scores.learned_size(HIDDEN))
    weights[0] = 1.0
    orders = {name: BUILT_IN[name] for name in ("age", "smallest", "shortest", "wfp3", "fair")}
    orders["learned"] = Order("learned", scores.LEARNED, weights=tuple(weights.tolist()))
    _measure(_large(100, WARM_UP), orders)  # compiles everything
    seconds, waited = _measure(_large(NODES, PODS), orders)
    result = {f"{name}_seconds": round(value, 1) for name, value in seconds.items()}
    result |= {f"{name}_ratio": round(value / seconds["age"], 2) for name, value in seconds.items() if name != "age"}
    return result | {f"{name}_most_waiting": float(most) for name, most in waited.items()}


def _large(nodes: int, pods: int) -> Workload:
    """Return openb's nodes and pods, as often as needed."""
    base = embedded("default")
    return Workload(
        f"openb-{nodes}",
        tuple(replace(base.nodes[i % len(base.nodes)], name=f"n{i}") for i in range(nodes)),
        tuple(replace(base.pods[i % len(base.pods)], name=f"p{i}") for i in range(pods)),
    )


def _measure(workload: Workload, orders: dict[str, Order]) -> tuple[dict[str, float], dict[str, int]]:
    simulator, seconds, waited = Simulator(workload), {}, {}
    plan = schedule(workload, "timed", seed=1, ratio=1.0, load=LOAD)
    for name, order in orders.items():
        execution = Execution(simulator, plan, with_order(resolve("fgd"), order), 1, record=False)
        began = time.process_time()
        execution.finish(None)
        seconds[name] = time.process_time() - began
        waited[name] = int(execution.record.numbers[:, 4].max())
    return seconds, waited
