"""Policies on families of workloads that they have never seen: trained without all of a family, evaluated on it."""

from __future__ import annotations

from steersman.evaluation.experiment import Experiment
from steersman.policies.registry import SHIPPED
from steersman.workloads.openb import embedded_names
from studies import tables
from studies.common import (
    SEEDS,
    Budget,
    Desk,
    Json,
    Say,
    desk,
    evaluate,
    shipped_split,
    train,
    training_options,
    workloads,
)

NAME = "generalisation"
MINUTES = 35
FAMILIES = ("gpushare", "multigpu", "cpu", "gpuspec")
BUDGET = Budget(generations=80)
BASELINE, UNSEEN = "fgd", "unseen"
METRIC = "gpu_allocation_percent"


def options(quick: bool = False) -> Json:
    """What the result depends on."""
    budget = BUDGET.shrunk() if quick else BUDGET
    return {
        "families": FAMILIES,
        **training_options(shipped_split(), budget),
        "seeds": SEEDS[:3] if quick else SEEDS,
    }


def run(say: Say, quick: bool = False) -> Json:
    """Train a policy without each family and evaluate it on that family."""
    at = desk(NAME, quick, say)
    return {**options(quick), "families": {family: _family(at, family) for family in FAMILIES}}


def _family(at: Desk, family: str) -> Json:
    asked = options(at.quick)
    split = shipped_split().without(family)
    budget = BUDGET.shrunk() if at.quick else BUDGET
    policy, trained = train(at, f"without-{family}", split, budget, budget.seeds[0])
    names = [name for name in embedded_names() if name.startswith(family)]
    experiment = Experiment(workloads(names, at.quick), (BASELINE, str(policy), SHIPPED), tuple(asked["seeds"]))
    runs = evaluate(at, experiment, f"evaluating {family}")
    found = tables.values_of(runs, METRIC)
    label = runs[len(asked["seeds"])].policy
    found = {w: {UNSEEN if p == label else p: v for p, v in by.items()} for w, by in found.items()}
    return {
        "training": split.training,
        "validation": split.validation,
        "trained": trained,
        "values": found,
        "comparison": {workload: compare(by) for workload, by in tables.with_mean(found).items()},
    }


def compare(by: dict[str, list[float]]) -> Json:
    """Statistics of a workload: of allocated GPU by policy, one value a seed."""
    return {
        "difference": tables.difference(by[UNSEEN], by[BASELINE]),
        "saved": tables.unallocated_saved(by[UNSEEN], by[BASELINE]),
        "seen": tables.difference(by[SHIPPED], by[BASELINE]),
        "interquartile_mean": {policy: tables.spread(v)["interquartile_mean"] for policy, v in by.items()},
        "mean": {policy: tables.spread(v)["mean"] for policy, v in by.items()},
    }


def section(result: Json) -> str:
    """The section of docs/results.md."""
    rows = []
    for family, found in result["families"].items():
        for workload, each in found["comparison"].items():
            name = f"all of {family}" if workload == tables.ALL else workload
            rows.append(
                [
                    f"**{name}**" if workload == tables.ALL else name,
                    tables.number(each["mean"][BASELINE]),
                    tables.number(each["mean"][UNSEEN]),
                    tables.interval(each["difference"]),
                    tables.interval(each["saved"], 1, sign=False),
                    tables.interval(each["seen"]),
                ]
            )
    header = ["workload", "`fgd`", "never saw it", "difference", "fewer unallocated GPUs, %", "`steersman`, saw some"]
    return "\n".join(
        [
            "## Workloads of a kind that was never seen",
            "",
            f"Each row is about a policy trained by `steersman train` ({result['generations']} generations of "
            f"{result['population']} candidates) without any workload of the row's family, neither to learn from nor "
            "to choose the best by; beside it the shipped policy, which saw some of each family and trained longer. "
            f"GPU allocated in protocol `inflation`, %, seeds {tables.seeds_text(result['seeds'])}; differences to "
            "`fgd` are paired by seed, with 95 % intervals.",
            "",
            tables.markdown(header, rows),
        ]
    )
