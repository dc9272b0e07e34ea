"""Policies as formulas that a person can read: what the formula of each cluster loses to the shipped policy.

The clusters and the draws are those of `any_cluster`. A formula is distilled from the member of the shipped policy that
short simulations choose for the cluster, on draws of its own.
"""

from __future__ import annotations

import time

import numpy as np

from steersman.policies.base import Policy
from steersman.policies.formulas.policy import FormulaPolicy
from steersman.policies.registry import PACKAGED_POLICY, packaged_portfolio, resolve
from steersman.simulation.run import Simulator
from steersman.training.search.distil import DistillationOptions, distil
from steersman.workloads.generators.clusters import Distribution, random_cluster
from studies import tables
from studies.clusters.any_cluster import allocations, clusters
from studies.common import Json, Progress, Say, desk, published

NAME = "exported"
MINUTES = 20
FORMULA = "formula"
BASELINE = "fgd"
AIM = 0.3
"""Points of allocated GPUs that a formula may lose on the mean of all clusters."""
FAR_BELOW = 1.0
"""Points below the source that are counted."""


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "policy": packaged_portfolio().digest,
        "clusters": 2 if quick else 200,
        "nodes": (5, 12) if quick else (5, 1_200),
        "most_pods": 8_000,
        "generations": 3 if quick else 200,
        "seeds": tuple(range(42, 44 if quick else 52)),
    }


def run(say: Say, quick: bool = False) -> Json:
    """Distil a formula for every cluster; what was finished is kept cluster by cluster."""
    at, asked = desk(NAME, quick, say), options(quick)
    depends = {name: asked[name] for name in ("policy", "nodes", "generations", "seeds")}
    seeds = clusters(asked["clusters"], tuple(asked["nodes"]), asked["most_pods"])
    parts = {f"validation-{seed}": {**depends, "cluster": seed} for seed in seeds}
    known = {each["name"]: each for each in published("clusters", NAME, depends, quick).get("values", ())}
    return {**asked, "values": list(at.each(parts, _cluster, Progress(say, "clusters"), known).values())}


def _cluster(asked: Json) -> Json:
    workload = random_cluster(asked["cluster"], distribution=Distribution.VALIDATION, nodes=tuple(asked["nodes"]))
    simulator = Simulator(workload)
    source = simulator.member(packaged_portfolio()).policy
    began = time.monotonic()
    found = distil(workload, source, DistillationOptions(generations=asked["generations"]))
    policies: dict[str, Policy] = {
        BASELINE: resolve(BASELINE),
        PACKAGED_POLICY: source,
        FORMULA: FormulaPolicy(FORMULA, found.formula),
    }
    return {
        "name": workload.name,
        "nodes": len(workload.nodes),
        "pods": len(workload.pods),
        "member": source.name,
        "seconds": round(time.monotonic() - began, 1),
        "generations": found.generations,
        "terms": [len(terms) for terms in found.formula.terms],
        "features": list(found.formula.used_features),
        "held_out_loss": round(found.loss, 4),
        "allocation": {name: allocations(simulator, each, asked["seeds"]) for name, each in policies.items()},
    }


def section(result: Json) -> str:
    """Return the section of docs/results.md."""
    values = result["values"]
    means = {
        name: np.array([np.mean(each["allocation"][name]) for each in values])
        for name in (BASELINE, PACKAGED_POLICY, FORMULA)
    }
    rows = []
    for name, allocated in means.items():
        gains = allocated - means[PACKAGED_POLICY]
        against = "" if name == PACKAGED_POLICY else tables.interval(tables.spread(gains))
        below = "" if name == PACKAGED_POLICY else f"{int((gains < -FAR_BELOW).sum())} of {len(gains)}"
        rows.append([f"`{name}`", tables.number(float(allocated.mean())), against, below])
    losses = means[PACKAGED_POLICY] - means[FORMULA]
    worst = values[int(losses.argmax())]
    terms = np.mean([sum(each["terms"]) for each in values])
    held_out = np.mean([each["held_out_loss"] for each in values])
    return "\n".join(
        [
            "## Policies that a person can read",
            "",
            f"The first {len(values)} clusters of those above, {len(result['seeds'])} seeds. `{FORMULA}` is what "
            "`steersman policy export` distils from the member of `steersman` for each of them: at most five terms "
            f"for a kind of pod, {terms:.0f} in all on average, none of which needs a table of typical pods. "
            "The mean loss is "
            f"{losses.mean():+.2f} points of allocated GPUs (the aim is at most {AIM}; below zero the formula "
            f"allocates more). The largest is {losses.max():+.2f}, on {worst['name']} ({worst['nodes']} nodes, "
            f"{worst['pods']} pods). *1 below* counts the clusters that are more than a point below `steersman`. "
            "On the draws that the export compares by itself, in half of which equal pods arrive in bursts, the mean "
            f"loss is {held_out:+.2f}.",
            "",
            tables.markdown(["policy", "GPUs allocated, %", f"against `{PACKAGED_POLICY}`", "1 below"], rows),
        ]
    )
