"""What an order costs: each order against that of age in the same run, in `timed`."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from steersman.orders import scores
from steersman.orders.order import BUILT_IN, Order
from steersman.orders.registry import find_order
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation import event_arrays
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.formats.openb import embedded
from steersman.workloads.workload import Workload

NODES, PODS = 10_000, 1_000_000
LOAD, OVERLOAD = 1.0, 1.1
REPEATS = 5
HIDDEN = 12
WARM_UP = 20_000


def order_cost() -> dict[str, float]:
    """Measure microseconds of CPU an event where more than a thousand pods wait, and ratios to orders of age.

    Orders with reservations are compared with `easy`, the others with `age`. Their queues differ in length.
    """
    simulator = Simulator(embedded("default"))
    plan = schedule(simulator.workload, "timed", seed=1, ratio=1.0, load=OVERLOAD)
    pairs = {"age": ["shortest", "wfp3", "fair", "learned"], "easy": ["shortest:easy", "wfp3:easy", "fair:easy"]}
    names = [name for base, others in pairs.items() for name in (base, *others)]
    orders = {name: _random_learned_order() if name == "learned" else find_order(name) for name in names}
    costs: dict[str, list[float]] = {name: [] for name in orders}
    result: dict[str, float] = {}
    for _ in range(REPEATS + 1):  # the first time compiles
        for name, order in orders.items():
            execution = Execution(simulator, plan, with_order(resolve("fgd"), order), 1, record=False)
            began = time.process_time()
            execution.finish(None)
            events = execution.engine.progress.events
            costs[name].append(1e6 * (time.process_time() - began) / events)
            waiting = execution.record().numbers[:, event_arrays.NOW_WAITING]
            result[f"{name}_waiting"] = round(float(waiting.mean()))
    best = {name: min(values[1:]) for name, values in costs.items()}
    result |= {f"{name}_microseconds": round(value, 1) for name, value in best.items()}
    return result | {
        f"{name}_ratio": round(best[name] / best[base], 2) for base, others in pairs.items() for name in others
    }


def million_pods() -> dict[str, float]:
    """Measure seconds of CPU for each order with 10,000 nodes and a million pods, and their ratios to age."""
    orders = {name: BUILT_IN[name] for name in ("age", "smallest", "shortest", "wfp3", "fair")}
    orders["learned"] = _random_learned_order()
    _measure(_large(100, WARM_UP), orders)  # compiles everything
    seconds, waited = _measure(_large(NODES, PODS), orders)
    result = {f"{name}_seconds": round(value, 1) for name, value in seconds.items()}
    result |= {f"{name}_ratio": round(value / seconds["age"], 2) for name, value in seconds.items() if name != "age"}
    return result | {f"{name}_most_waiting": float(most) for name, most in waited.items()}


def _random_learned_order() -> Order:
    """Return a learned order of random weights: what it chooses does not matter here."""
    weights = np.random.default_rng(1).normal(0.0, 0.3, scores.learned_size(HIDDEN))
    weights[0] = 1.0
    return Order("learned", scores.LEARNED, weights=tuple(weights.tolist()))


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
        waited[name] = int(execution.record().numbers[:, event_arrays.NOW_WAITING].max())
    return seconds, waited
