"""`fit order` on a history, followed on what came later: virtual clusters of Philly in time order.

The advice is fitted to the first half of a virtual cluster's jobs, and followed on the whole second half, whose times
are scaled to each of several loads: many a cluster was never full at its own ones.
Its cost is the one that `fit order` minimises: the weighted geometric mean of the mean wait, by GPUs, the 99th
percentile of jobs of several GPUs, and the longest, each with a minute added.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from steersman.agents.evolution.orders import waits_under
from steersman.cluster.model import Node
from steersman.orders.registry import find_order
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.run import Simulator
from steersman.training.search.orders import (
    DEFAULT,
    FITTED,
    LOADS,
    RULES,
    OrderFitOptions,
    cost,
    history_of,
    history_windows,
    search_order,
)
from steersman.workloads.formats.published import PhillyTrace
from steersman.workloads.workload import Workload
from studies import tables
from studies.common import Json, Progress, Say, desk, published
from studies.queues.learned_order import PHILLY
from studies.queues.traces import trace_file

NAME = "order_advice"
MINUTES = 30
DATA = ("philly",)
CLUSTERS = ("6214e9", "b436b2", "11cb48", "6c71a0")
"""The virtual clusters of more than 1,000 jobs."""
GPUS = 8
"""Of a node. There are as many nodes as the whole history would use at a load of 1."""
FOLLOWED_LOADS = (0.85, 0.95, 1.05)
POLICY = "fgd"


def options(quick: bool) -> Json:
    """Return what the result depends on."""
    clusters, loads = (CLUSTERS[3:], FOLLOWED_LOADS[:1]) if quick else (CLUSTERS, FOLLOWED_LOADS)
    return {"clusters": clusters, "loads": loads, "generations": 1 if quick else 40, "policy": POLICY}


def run(say: Say, quick: bool = False) -> Json:
    """Fit and follow in every cluster; what was finished is kept."""
    at, asked = desk(NAME, quick, say), options(quick)
    depends = {name: asked[name] for name in ("generations", "loads", "policy")}
    parts = {name: {**depends, "cluster": name} for name in asked["clusters"]}
    known = {each["cluster"]: each for each in published("queues", NAME, depends, quick).get("values", ())}
    return {**asked, "values": list(at.each(parts, _followed, Progress(say, "clusters"), known).values())}


def virtual_cluster(name: str) -> Workload:
    """Return the jobs of a virtual cluster on as few nodes as hold its load. Raises InputError: the file is missing."""
    one = (Node("node-0", 96_000, 1 << 40, gpu_count=GPUS),)
    pods = tuple(pod for pod in PhillyTrace().open([trace_file(PHILLY)]).pods(one)[0] if pod.namespace == name)
    created = [pod.creation_time or 0.0 for pod in pods]
    busy = sum(pod.requests.gpu_count * ((pod.deletion_time or 0.0) - (pod.creation_time or 0.0)) for pod in pods)
    count = max(2, math.ceil(busy / (max(created) - min(created)) / GPUS))
    return Workload(name, tuple(replace(one[0], name=f"node-{i}") for i in range(count)), pods)


def _followed(asked: Json) -> Json:
    """Return the advice of the first half, and the cost of every order in the second half."""
    history = history_of(virtual_cluster(asked["cluster"]))
    half, policy = len(history.pods) // 2, resolve(asked["policy"])
    first = replace(history, pods=history.pods[:half])
    found = search_order(first, policy, OrderFitOptions(asked["generations"]))
    windows = replace(history_windows(history, LOADS)[1], first=half, last=len(history.pods))
    windows = replace(windows, count=windows.last - half)
    simulator, nodes = Simulator(history), np.arange(len(history.nodes))
    plans = [windows.window_at(half, load, nodes) for load in asked["loads"]]
    orders = {**{name: find_order(name) for name in RULES}, FITTED: found.order}
    return {
        "cluster": asked["cluster"],
        "nodes": len(history.nodes),
        "jobs": len(history.pods),
        "windows": len(found.waits[DEFAULT]),
        "best_rule": found.best_rule,
        "advice": found.chosen,
        "costs": {
            name: [round(cost(waits_under(with_order(policy, order), simulator, plan, 1)), 1) for plan in plans]
            for name, order in orders.items()
        },
    }


def section(result: Json) -> str:
    """Write the page of docs/results."""
    rows = []
    for each in result["values"]:
        over = {name: _over(values, each["costs"][DEFAULT]) for name, values in each["costs"].items()}
        best = min(over, key=lambda name: over[name])
        shown = (tables.number(over[name]) for name in (each["advice"], "age", best))
        size = f"{each['jobs']} on {GPUS * each['nodes']} GPUs"
        rows.append([f"`{each['cluster']}`", size, f"`{each['advice']}`", *shown, f"`{best}`"])
    header = ["virtual cluster", "jobs", "advice", f"its waits / `{DEFAULT}`", "`age`", "best", "which"]
    loads = ", ".join(f"{load:g}" for load in result["loads"])
    return "\n".join(
        [
            "## Advice on an order, followed later",
            "",
            "`steersman fit order` on the first half of a virtual cluster of Philly, followed on the second "
            f"half, whose times are scaled to loads of {loads} (geometric mean); `{POLICY}` places. Waits are the "
            f"weighted geometric mean that the command minimises, relative to `{DEFAULT}`. *Best* would have been "
            "best on the second half. One trace, and one second half each.",
            "",
            tables.markdown(header, rows),
        ]
    )


def _over(costs: list[float], others: list[float]) -> float:
    """Return the geometric mean of ratios."""
    return float(np.exp(np.mean(np.log(np.array(costs) / np.array(others)))))
