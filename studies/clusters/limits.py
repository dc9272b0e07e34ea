"""How much of what is possible at all: policies between FGD and the upper bound of every workload."""

from __future__ import annotations

import numpy as np

from steersman.evaluation.bound.experiment_bounds import find_bounds
from steersman.evaluation.experiment import Experiment
from steersman.policies.portfolios import RULES
from steersman.policies.registry import PACKAGED_POLICY, packaged_portfolio
from steersman.workloads.formats.openb import embedded_names
from studies import tables
from studies.common import SEEDS, Json, Progress, Say, desk, evaluate, short_name, workloads

NAME = "limits"
MINUTES = 15
DATA = ("openb",)
BASELINE, DEFAULT = "fgd", "kube-default"
POLICIES = (BASELINE, DEFAULT, RULES, PACKAGED_POLICY)
METRIC = "gpu_allocation_percent"


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "policy": packaged_portfolio().digest,
        "workloads": ("default", "gpushare60") if quick else embedded_names(),
        "policies": POLICIES,
        "seeds": SEEDS[:3] if quick else SEEDS,
    }


def run(say: Say, quick: bool = False) -> Json:
    """Evaluate, and bound."""
    at, asked = desk(NAME, quick, say), options(quick)
    experiment = Experiment(workloads(asked["workloads"], quick), POLICIES, tuple(asked["seeds"]))
    result = tables.values_of(evaluate(at, experiment), METRIC)
    computed = find_bounds(experiment, jobs=at.jobs, on_bound=Progress(say, "bounds"))
    for warning in computed.warnings:
        say(warning)
    bounds = {short_name(name): percent.tolist() for name, percent in computed.percent.items()}
    values = {workload: {**by, "bound": bounds[workload]} for workload, by in result.items()}
    return {
        **asked,
        "values": values,
        "warnings": computed.warnings,
        "comparison": {workload: _compare(by) for workload, by in tables.with_mean(values).items()},
    }


def _compare(by: dict[str, list[float]]) -> Json:
    bound = np.array(by["bound"])
    return {
        "mean": {policy: tables.spread(values)["mean"] for policy, values in by.items()},
        "interquartile_mean": {policy: tables.spread(values)["interquartile_mean"] for policy, values in by.items()},
        "difference": tables.difference(by[PACKAGED_POLICY], by[BASELINE]),
        "difference_to_default": tables.difference(by[PACKAGED_POLICY], by[DEFAULT]),
        "saved": tables.unallocated_saved(by[PACKAGED_POLICY], by[BASELINE]),
        # of the way from FGD to the bound
        "closed": tables.saved(bound - np.array(by[PACKAGED_POLICY]), bound - np.array(by[BASELINE])),
    }


def section(result: Json) -> str:
    """Return the page of docs/results."""
    shown = [name for name in (DEFAULT, BASELINE, RULES, PACKAGED_POLICY) if name in result["policies"]]
    rows = []
    for workload, each in result["comparison"].items():
        rows.append(
            [
                f"**{workload}**" if workload == tables.ALL else workload,
                *(tables.number(each["mean"][policy]) for policy in (*shown, "bound")),
                tables.interval(each["difference"]),
                tables.interval(each["saved"], 1, sign=False),
                tables.interval(each["closed"], 0, sign=False),
            ]
        )
    header = [
        "workload",
        *(f"`{name}`" for name in shown),
        "at most",
        "`steersman` - `fgd`",
        "fewer unallocated GPUs, %",
        "way to the bound, %",
    ]
    return "\n".join(
        [
            "## `steersman` against an upper bound",
            "",
            f"GPU allocated in protocol `inflation`, %, seeds {tables.seeds_text(result['seeds'])}, paired, with 95 % "
            "intervals. *At most* is an upper bound by linear programming, for the same arrivals, on every scheduler "
            "that never refuses a pod (`evaluate --bound`); no scheduler need reach it. The last column is the share "
            "of the way from `fgd` to the bound.",
            "",
            tables.markdown(header, rows),
        ]
    )
