"""Pods that leave again: how long they wait under `steersman` and under other policies, at several loads."""

from __future__ import annotations

from functools import partial

import numpy as np

from steersman.evaluation.experiment import Experiment
from steersman.policies.portfolios import RULES
from steersman.policies.registry import PACKAGED_POLICY, packaged_portfolio
from steersman.simulation.result import RunResult
from steersman.simulation.run import Simulator
from steersman.workloads.workload import Workload
from studies import tables
from studies.common import SEEDS, Desk, Json, Say, desk, evaluate, workloads

NAME = "timed"
MINUTES = 5
DATA = ("openb",)
POLICIES = ("kube-default", "best-fit", "fgd", RULES, PACKAGED_POLICY)
BASELINES = ("kube-default", "fgd")
WORKLOADS = ("default", "gpushare40", "gpuspec25", "multigpu40")
LOADS = (0.9, 1.0, 1.1)
MINUTE = 60.0
WAIT, LONGEST = "waiting_time_mean_seconds", "waiting_time_p95_seconds"
WITH_WARM_START = "waiting_time_mean_with_warm_start_seconds"
DELAYED, ALLOCATED = "delayed_percent", "gpu_allocation_over_time_percent"


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "policy": packaged_portfolio().digest,
        "workloads": WORKLOADS[:2] if quick else WORKLOADS,
        "policies": POLICIES,
        "loads": LOADS,
        "seeds": SEEDS[:3] if quick else SEEDS,
    }


def run(say: Say, quick: bool = False) -> Json:
    """Evaluate at every load."""
    at, asked = desk(NAME, quick, say), options(quick)
    members = at.once("members", asked, partial(_members, at, asked))
    return {**asked, "members": members, "loads": {str(load): _at_load(at, asked, load) for load in LOADS}}


def _members(at: Desk, asked: Json) -> Json:
    """Return the members of `steersman` that short simulations take, by load and workload."""
    at.say("members of steersman")
    policy, result = packaged_portfolio(), {}
    simulators = {name: Simulator(each) for name, each in zip(asked["workloads"], _workloads(at, asked), strict=True)}
    for load in LOADS:
        chosen = {name: each.member(policy, protocol="timed", load=load).policy for name, each in simulators.items()}
        result[str(load)] = {name: each.name for name, each in chosen.items()}
    return result


def _workloads(at: Desk, asked: Json) -> tuple[Workload, ...]:
    return workloads(asked["workloads"], at.quick)


def _at_load(at: Desk, asked: Json, load: float) -> Json:
    experiment = Experiment(_workloads(at, asked), POLICIES, tuple(asked["seeds"]), protocol="timed", load=load)

    def compute() -> Json:
        runs = evaluate(at, experiment, f"load {load}")
        values = {name: tables.values_of(runs, name) for name in (WAIT, WITH_WARM_START, LONGEST, ALLOCATED)}
        return {"values": {**values, DELAYED: _delayed(runs)}}

    values = at.once(f"load-{load}", {**asked, "load": load}, compute)["values"]
    return {
        "values": values,
        "comparison": {
            workload: {
                "mean": {
                    name: {p: tables.spread(v)["mean"] for p, v in values[name][workload].items()} for name in values
                },
                "interquartile_mean": {p: tables.spread(v)["interquartile_mean"] for p, v in waits.items()},
                "wait_difference": {b: tables.difference(waits[PACKAGED_POLICY], waits[b]) for b in BASELINES},
                "delayed_difference": {
                    b: tables.difference(values[DELAYED][workload][PACKAGED_POLICY], values[DELAYED][workload][b])
                    for b in BASELINES
                },
            }
            for workload, waits in values[WAIT].items()
        },
    }


def _delayed(runs: list[RunResult]) -> tables.Values:
    """Percent of the bound pods, with those of the warm start, that had waited."""
    delayed, bound = tables.values_of(runs, "pods_delayed"), tables.values_of(runs, "pods_bound")
    return {
        w: {p: (100.0 * np.array(v) / np.array(bound[w][p])).tolist() for p, v in by.items()}
        for w, by in delayed.items()
    }


def section(result: Json) -> str:
    """Return the page of docs/results."""
    waits, more = [], []
    for load, at in result["loads"].items():
        for workload, each in at["comparison"].items():
            mean = tables.divided(each["mean"][WAIT], MINUTE)
            waits.append(
                [
                    f"{workload}, {load}",
                    *(tables.number(mean[policy], 1) for policy in result["policies"]),
                    *(tables.interval(tables.divided(each["wait_difference"][b], MINUTE), 1) for b in BASELINES),
                ]
            )
        first = next(iter(at["comparison"]))
        means = at["comparison"][first]["mean"]
        wait, longest, every = (tables.divided(means[name], MINUTE) for name in (WAIT, LONGEST, WITH_WARM_START))
        more += [
            [
                f"`{policy}`, {load}",
                tables.number(wait[policy], 1),
                tables.number(longest[policy], 1),
                tables.number(every[policy], 1),
                tables.number(means[DELAYED][policy], 1),
                tables.number(means[ALLOCATED][policy]),
            ]
            for policy in result["policies"]
        ]
    taken = [
        f"load {load}: {', '.join(f'{workload} {member}' for workload, member in by.items())}"
        for load, by in result["members"].items()
    ]
    header = [
        "workload, load",
        *(f"`{p}`" for p in result["policies"]),
        *(f"`{PACKAGED_POLICY}` - `{b}`" for b in BASELINES),
    ]
    return "\n".join(
        [
            "## Waiting times with arrivals and departures",
            "",
            "Protocol `timed`: Poisson arrivals of the trace's pods, with its durations, at a load (GPU demand "
            "over capacity); pods that fit nowhere wait. Short simulations at the load choose the member that decides, "
            "and a search at the load fits its weights. "
            "Mean wait of a pod in minutes, means "
            f"over seeds {tables.seeds_text(result['seeds'])}, differences paired by seed, "
            "with 95 % intervals; below 0 the policy's pods wait less. Waits count the pods that arrive later. "
            "The pods of the warm start, which all arrive at once, count only in the columns of the second table that "
            "name it.",
            "",
            tables.markdown(header, waits),
            "",
            f"Members taken: {'; '.join(taken)}.",
            "",
            f"More about {result['workloads'][0]}, means over seeds:",
            "",
            tables.markdown(
                [
                    "policy, load",
                    "mean wait, min",
                    "95 % wait at most, min",
                    "mean wait with the warm start, min",
                    "pods that waited, of all, %",
                    "GPU allocated over time, %",
                ],
                more,
            ),
        ]
    )
