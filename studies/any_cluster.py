"""Clusters that nobody here has seen: generated ones of many sizes and kinds, beside openb.

Clusters are drawn from the validation distribution of `steersman.workloads.generators.clusters`, which no training
uses. Each is filled by `inflation`. The difference is in points of GPU allocation, a mean over seeds, of a policy and
the best of three rules (the best on the very same seeds, so that a policy equal to all three in the long run is below
it most of the time).
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np

from steersman.policies.heuristics import LOCAL
from steersman.policies.registry import SHIPPED, AnyPolicy, resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Simulator
from steersman.training.fit import FITTED, Options, fit
from steersman.workloads.generators.clusters import Distribution, random_cluster
from steersman.workloads.workload import Workload
from studies import tables
from studies.common import Json, Progress, Say, desk, shipped

NAME = "any_cluster"
MINUTES = 12
BEST_OF = ("fgd", "best-fit", "gpu-packing")
RULES = (*LOCAL, "greedy-forecast", "kube-default")
KINDS = ("no shares", "some shares", "mostly shares")
SIZES = ("up to 64 GPUs", "65 to 512 GPUs", "over 512 GPUs")


def options(quick: bool = False) -> Json:
    """What the result depends on."""
    return {
        "policy": shipped().digest,
        "clusters": 3 if quick else 80,
        "nodes": (5, 12) if quick else (5, 400),
        "most_pods": 8_000,
        "fit_every": 3 if quick else 8,
        "fit_seconds": 1.0 if quick else 10.0,
        "rules": BEST_OF if quick else RULES,
        "seeds": tuple(range(42, 45 if quick else 47)),
    }


def run(say: Say, quick: bool = False) -> Json:
    """Evaluate every cluster; what was finished is kept cluster by cluster."""
    at, asked = desk(NAME, quick, say), options(quick)
    found: list[Json] = []
    progress, seed = Progress(say, "clusters"), 0
    while len(found) < asked["clusters"]:
        workload = random_cluster(seed, distribution=Distribution.VALIDATION, nodes=tuple(asked["nodes"]))
        if len(workload.pods) <= asked["most_pods"]:
            with_fit = len(found) % asked["fit_every"] == 0
            depends = {name: asked[name] for name in ("policy", "nodes", "rules", "seeds")}
            depends["fit_seconds"] = asked["fit_seconds"] if with_fit else None
            found.append(at.once(f"cluster-{seed}", depends, partial(_cluster, workload, depends)))
            progress(len(found), asked["clusters"])
        seed += 1
    return {**asked, "values": found}


def _cluster(workload: Workload, asked: Json) -> Json:
    simulator, seeds = Simulator(workload), asked["seeds"]
    own = shipped()
    chosen = simulator.select(own.members, protocol="inflation").best
    policies: dict[str, AnyPolicy] = {name: resolve(name) for name in asked["rules"]}
    policies[SHIPPED] = own.members[chosen]
    kept = ""
    if asked["fit_seconds"] is not None:
        found = fit(workload, own, Options(seconds=asked["fit_seconds"]))
        policies[FITTED] = next(each.policy for each in found.compared if each.name == found.chosen)
        kept = found.chosen
    gpu_pods = [pod for pod in workload.pods if pod.requests.gpu_count]
    return {
        "name": workload.name,
        "nodes": len(workload.nodes),
        "gpus": sum(node.gpu_total for node in workload.nodes),
        "pods": len(workload.pods),
        "shares": float(np.mean([pod.requests.gpu_milli < 1000 for pod in gpu_pods])),
        "member": own.members[chosen].name,
        "kept": kept,
        "allocation": {name: _allocations(simulator, policy, seeds) for name, policy in policies.items()},
    }


def _allocations(simulator: Simulator, policy: AnyPolicy, seeds: list[int]) -> list[float]:
    """Percent of the GPUs allocated in the end, by seed."""
    workload = simulator.workload
    plans = ((seed, schedule(workload, "inflation", seed=seed, ratio=1.3, load=None)) for seed in seeds)
    return [100.0 - simulator.play(policy, plan, seed).cost("inflation") for seed, plan in plans]


def section(result: Json) -> str:
    """The section of docs/results.md."""
    values = result["values"]
    fitted = [each for each in values if FITTED in each["allocation"]]
    rules = [name for name in result["rules"] if name not in BEST_OF]
    lines = [_row(name, values) for name in (SHIPPED, *BEST_OF, *rules)]
    header = [
        "policy",
        "clusters",
        "mean, %",
        "against `fgd`",
        "against the best of 3",
        "worst",
        "0.1 below",
        "1 below",
    ]
    sizes = [each["nodes"] for each in values]
    text = [
        "## Clusters that nobody here has seen",
        "",
        f"{len(values)} generated clusters of {min(sizes)} to {max(sizes)} nodes, {len(result['seeds'])} seeds, "
        "`inflation`. `steersman` is the shipped policy as it comes: a short simulation takes one of its members. "
        "Points of GPU allocation against `fgd`, and against the best of `fgd`, `best-fit` and `gpu-packing` on "
        "the very same seeds; how many clusters are more than 0.1 and more than 1 point below that.",
        "",
        tables.markdown(header, lines),
    ]
    if fitted:
        text += [
            "",
            f"Fitted for {result['fit_seconds']:g} s on one core to each of {len(fitted)} of them (`policy fit`):",
            "",
            tables.markdown(header, [_row(name, fitted) for name in (FITTED, SHIPPED)]),
        ]
    worst = sorted(values, key=lambda each: _difference(SHIPPED, each))[:5]
    named = ", ".join(
        f"{each['name']} ({each['gpus']} GPUs, {each['pods']} pods) {_difference(SHIPPED, each):+.2f}" for each in worst
    )
    members = ", ".join(f"{name} {count}" for name, count in Counter(each["member"] for each in values).most_common())
    kinds = tables.markdown(["kind", "clusters", "against `fgd`", "against the best of 3"], _by_kind(values))
    text += ["", f"Worst against the best of 3: {named}.", "", f"Members taken: {members}.", "", kinds]
    return "\n".join(text) + "\n"


def _mean(name: str, each: Json) -> float:
    return float(np.mean(each["allocation"][name]))


def _difference(name: str, each: Json) -> float:
    return _mean(name, each) - max(_mean(rule, each) for rule in BEST_OF)


def _row(name: str, values: list[Json]) -> list[str]:
    to_best = np.array([_difference(name, each) for each in values])
    to_fgd = np.array([_mean(name, each) - _mean("fgd", each) for each in values])
    return [
        f"`{name}`",
        str(len(values)),
        f"{np.mean([_mean(name, each) for each in values]):.2f}",
        f"{to_fgd.mean():+.2f}",
        f"{to_best.mean():+.2f}",
        f"{to_best.min():+.2f}",
        f"{(to_best < -0.1).sum()} ({(to_best < -0.1).mean():.0%})",
        str((to_best < -1).sum()),
    ]


def _by_kind(values: list[Json]) -> list[list[str]]:
    def shares(each: Json) -> str:
        return KINDS[0] if each["shares"] == 0 else KINDS[2] if each["shares"] > 0.6 else KINDS[1]

    def size(each: Json) -> str:
        return SIZES[0] if each["gpus"] <= 64 else SIZES[1] if each["gpus"] <= 512 else SIZES[2]

    rows = []
    for names, kind_of in ((KINDS, shares), (SIZES, size)):
        for kind in names:
            some = [each for each in values if kind_of(each) == kind]
            if some:
                to_fgd = np.mean([_mean(SHIPPED, each) - _mean("fgd", each) for each in some])
                to_best = np.mean([_difference(SHIPPED, each) for each in some])
                rows.append([kind, str(len(some)), f"{to_fgd:+.2f}", f"{to_best:+.2f}"])
    return rows
