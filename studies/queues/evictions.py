"""Jobs that can resume are evicted for short ones, compared with orders that evict nothing.

The draws are those of `learned_order`: generated clusters, a part of Philly, and openb, at loads of 0.7 to 1.2. Half of
the jobs, or all, save their work when they are evicted, and need two minutes to go on. The wait of a job that was
evicted is all the time from its arrival in which it does no work that it keeps. Everything is relative to an order that
evicts nothing on the same arrivals, with the same knowledge of run times, a minute added to each wait.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache

import numpy as np

from steersman.core.handles import EVICTIONS, LOST, SERVED
from steersman.orders.evictions import RULES
from steersman.orders.registry import find_order
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.run import Execution, Simulator
from steersman.training.search.orders import WAITS, four_waits
from steersman.workloads.resumable import with_resumable
from steersman.workloads.workload import Workload
from studies import tables
from studies.common import Json, Progress, Say, desk
from studies.queues.learned_order import (
    FAMILIES,
    LOADS,
    TEST_SEED,
    TRAINED_PART,
    Arrivals,
    Floats,
    families,
)

NAME = "evictions"
MINUTES = 10
DATA = ("openb", "philly")
POLICY = "fgd"
RESTART = 120.0
SHARES = (0.5, 1.0)
KNOWN = {"oracle:3": "within a factor of 3", "history": "from what ended before", "none": "unknown"}
"""What is known of run times, and how results say that."""
BASES = ("age", "wfp3:easy")
ORDERS = ("las", "las:easy")


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    rules = asdict(RULES)
    return {"loads": LOADS, "policy": POLICY, "restart": RESTART, "rules": rules, "draws": 2 if quick else 12}


def run(say: Say, quick: bool = False) -> Json:
    """Compare the orders on all draws."""
    at, asked = desk(NAME, quick, say), options(quick)
    parts = {
        f"{family}-{source}": {**asked, "family": family, "source": source}
        for source in (("history",) if quick else KNOWN)
        for family in FAMILIES
    }
    return {**asked, "compared": at.each(parts, _compare, Progress(say, "comparisons"))}


def _compare(asked: Json) -> Json:
    """Return [draws, 4] the waits of each order, and [draws, 2] evictions and the percent of GPU time that is lost."""
    family, source = asked["family"], asked["source"]
    cases = [(base, 0.0) for base in BASES] + [(order, share) for order in ORDERS for share in SHARES]
    waits: dict[str, list[list[float]]] = {}
    costs: dict[str, list[list[float]]] = {}
    for draw in range(asked["draws"]):
        which, seed = draw % len(_workloads()[family]), TEST_SEED + draw
        plan = Arrivals(TRAINED_PART, 1.0)(_workloads()[family][which], seed)
        for order, share in cases:
            policy = with_order(resolve(asked["policy"]), find_order(f"{order}@{source}"))
            execution = Execution(_simulator(family, which, share), plan, policy, seed, record=False)
            execution.finish(None)
            name = order if order in BASES else f"{order}, {share:.0%}"
            waits.setdefault(name, []).append(four_waits(execution.coming_waits).round(1).tolist())
            accounts, gpus = execution.engine.accounts(len(plan.pods)), execution.described.totals
            lost = 100.0 * float(gpus @ accounts[:, LOST]) / max(float(gpus @ accounts[:, SERVED]), 1.0)
            costs.setdefault(name, []).append([float(accounts[:, EVICTIONS].sum()), round(lost, 3)])
    return {"waits": waits, "costs": costs}


@cache
def _workloads() -> dict[str, list[Workload]]:
    return families(training=False)


@cache
def _simulator(family: str, number: int, share: float) -> Simulator:
    workload = _workloads()[family][number]
    return Simulator(with_resumable(workload, share, RESTART) if share else workload)


def _ratios(parts: list[Json], name: str, base: str) -> Floats:
    """Return [4] geometric means over all draws of families of the same weight."""
    logarithms = [np.log(np.array(part["waits"][name])) - np.log(np.array(part["waits"][base])) for part in parts]
    return np.asarray(np.exp(np.mean([each.mean(axis=0) for each in logarithms], axis=0)))


def claim(result: Json) -> str:
    """Return what it shows, in a sentence."""
    parts = [result["compared"][f"{family}-history"] for family in FAMILIES]
    mean, by_gpus, *_ = _ratios(parts, "las, 50%", "wfp3:easy")
    return (
        "Where half of the jobs can resume after an eviction, the order `las` has "
        f"{mean:.2f} times the mean wait of `wfp3:easy`, and {by_gpus:.2f} times by GPUs."
    )


def section(result: Json) -> str:
    """Return the page of docs/results."""
    lines = [
        "## Interrupting what can resume",
        "",
        "The order `las` may have jobs evicted that can resume, for others that are expected to run shorter. Half of "
        f"the jobs can, or all; they save their work, and need {result['restart']:g} s to go on. The wait of a job "
        "that was evicted is all the time from arrival to end in which it does no work that it keeps. Arrivals are "
        f"those of [who goes next](learned_order.md), {result['draws']} draws of each family at loads of "
        f"{LOADS[0]:g} to {LOADS[1]:g}; `{result['policy']}` places the pods. Geometric means of ratios, families with "
        "the same weight; a minute is added to each wait. Draws of Philly are overlapping windows of one trace, and "
        "there are no intervals. The rules of evictions were chosen among some fifty on these draws, with run times "
        "from what ended before, so that on other arrivals expect less.",
    ]
    for source, what in KNOWN.items():
        if f"{FAMILIES[0]}-{source}" not in result["compared"]:
            continue
        every = {family: result["compared"][f"{family}-{source}"] for family in FAMILIES}
        rows = []
        for title, parts in {"all": list(every.values()), **{name: [part] for name, part in every.items()}}.items():
            for name in parts[0]["waits"]:
                costs = np.mean([np.mean(part["costs"][name], axis=0) for part in parts], axis=0)
                for base in BASES:
                    if name not in BASES:
                        cells = [tables.number(float(each)) for each in _ratios(parts, name, base)]
                        rows.append([name, base, title, *cells, f"{costs[0]:.0f}", f"{costs[1]:.2f}"])
        heads = ["order, jobs that can resume", "times", "clusters", *WAITS, "evictions", "GPU time lost, %"]
        lines += ["", f"Run times {what}:", "", tables.markdown(heads, rows)]
    return "\n".join(lines)
