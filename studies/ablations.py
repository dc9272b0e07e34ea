"""What the learned policy owes to its parts: the same short training with parts of its features left out."""

from __future__ import annotations

import numpy as np

from steersman.evaluation.experiment import Experiment
from steersman.workloads.openb import embedded_names
from studies import tables
from studies.common import SEEDS, Budget, Json, Say, desk, evaluate, shipped_split, train, training_options, workloads

NAME = "ablations"
MINUTES = 12
VARIANTS = {
    "everything": "",
    "no-tables": "tables",
    "no-sequences": "sequences",
    "no-fgd": "fgd",
}
"""Name to what the search may not use, see `steersman.agents.evolution.Config.without`."""
WORDS = {
    "everything": "all features",
    "no-tables": "without any table of leftovers",
    "no-sequences": "without sequences of typical pods",
    "no-fgd": "without FGD's score",
}
BUDGET = Budget(generations=30)
BASELINE = "fgd"
METRIC = "gpu_allocation_percent"


def options(quick: bool = False) -> Json:
    """What the result depends on."""
    budget = BUDGET.shrunk() if quick else BUDGET
    return {
        "variants": VARIANTS,
        **training_options(shipped_split(), budget),
        "training_seeds": budget.seeds,
        "workloads": ("default", "gpushare60") if quick else embedded_names(),
        "seeds": SEEDS[:3] if quick else SEEDS,
    }


def run(say: Say, quick: bool = False) -> Json:
    """Train every variant with every training seed, and evaluate them side by side."""
    at, asked = desk(NAME, quick, say), options(quick)
    budget, split = BUDGET.shrunk() if quick else BUDGET, shipped_split()
    labels = [f"{variant}-{seed}" for variant in VARIANTS for seed in budget.seeds]
    made = {}
    for variant, without in VARIANTS.items():
        for seed in budget.seeds:
            made[f"{variant}-{seed}"] = train(at, f"{variant}-{seed}", split, budget, seed, without=without)
    policies = (BASELINE, *(str(made[label][0]) for label in labels))
    runs = evaluate(at, Experiment(workloads(asked["workloads"], quick), policies, tuple(asked["seeds"])))
    values = tables.values_of(runs, METRIC)
    mean = tables.with_mean(values)[tables.ALL]
    full = np.array([mean[f"everything-{seed}"] for seed in budget.seeds])
    return {
        **asked,
        "trained": {label: made[label][1] for label in labels},
        "values": values,
        "comparison": {
            variant: _compare(np.array([mean[f"{variant}-{seed}"] for seed in budget.seeds]), full, mean[BASELINE])
            for variant in VARIANTS
        },
    }


def _compare(
    allocated: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    full: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    baseline: list[float],
) -> Json:
    """Of [T, S] means over workloads by training and evaluation seed, `full` those of the variant with everything."""
    return {
        "allocated": tables.spread(allocated.mean(axis=0)),
        "saved": tables.unallocated_saved(allocated.mean(axis=0), baseline),
        "saved_by_training": [tables.unallocated_saved(each, baseline)["mean"] for each in allocated],
        "difference": tables.difference(allocated.mean(axis=0), full.mean(axis=0)),
        "difference_by_training": (allocated - full).mean(axis=1).tolist(),
    }


def section(result: Json) -> str:
    """The section of docs/results.md."""
    rows = []
    for variant, each in result["comparison"].items():
        trainings = each["saved_by_training"]
        rows.append(
            [
                WORDS[variant],
                tables.number(each["allocated"]["mean"]),
                tables.interval(each["saved"], 1, sign=False),
                f"{min(trainings):.1f} to {max(trainings):.1f}",
                "" if variant == "everything" else tables.interval(each["difference"]),
            ]
        )
    header = ["policy", "GPU allocated, %", "fewer unallocated GPUs than `fgd`, %", "trainings", "difference to all"]
    return "\n".join(
        [
            "## What the learned policy owes to its parts",
            "",
            f"Trainings of every variant: {len(result['training_seeds'])}, of {result['generations']} generations "
            f"of {result['population']} candidates (a short training: the shipped policy has more), with the features "
            "named left out of the search, which otherwise starts at FGD with planned losses of devices. Means over "
            f"{len(result['workloads'])} workloads and seeds {tables.seeds_text(result['seeds'])}; intervals are over "
            "these seeds, and *trainings* is the range over trainings. Planned losses are one of the tables.",
            "",
            tables.markdown(header, rows),
        ]
    )
