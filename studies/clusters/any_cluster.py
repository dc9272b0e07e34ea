"""Held-out clusters: generated ones of many sizes and kinds, beside openb.

Clusters are drawn from the validation distribution of `steersman.workloads.generators.clusters`, which no training
uses. Each is filled by `inflation`. The difference is in points of GPU allocation, a mean over seeds, of a policy and
the best of three rules (the best on the very same seeds, so that a policy equal to all three in the long run is below
it most of the time).
"""

from __future__ import annotations

import time
from collections import Counter

import numpy as np

from steersman.cluster.model import GPU_MILLI
from steersman.policies.base import Policy
from steersman.policies.heuristics import HEURISTIC_IDS
from steersman.policies.portfolios import RULES as NOT_FITTED
from steersman.policies.registry import PACKAGED_POLICY, packaged_portfolio, resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Simulator
from steersman.simulation.selection.fitting import FITTED
from steersman.workloads.generators.clusters import Distribution, random_cluster
from studies import tables
from studies.common import Json, Progress, Say, desk

NAME = "any_cluster"
MINUTES = 20
BEST_OF = ("fgd", "best-fit", "gpu-packing")
RULES = (*HEURISTIC_IDS, "greedy-forecast", "kube-default")
KINDS = ("no shares", "some shares", "mostly shares")
SIZES = ("up to 64 GPUs", "65 to 512 GPUs", "over 512 GPUs")


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "policy": packaged_portfolio().digest,
        "clusters": 3 if quick else 200,
        "nodes": (5, 12) if quick else (5, 1_200),
        "most_pods": 8_000,
        "rules": BEST_OF if quick else RULES,
        "seeds": tuple(range(42, 45 if quick else 47)),
    }


def run(say: Say, quick: bool = False) -> Json:
    """Evaluate every cluster; what was finished is kept cluster by cluster."""
    at, asked = desk(NAME, quick, say), options(quick)
    depends = {name: asked[name] for name in ("policy", "nodes", "rules", "seeds")}
    seeds = clusters(asked["clusters"], tuple(asked["nodes"]), asked["most_pods"])
    parts = {f"cluster-{seed}": {**depends, "cluster": seed} for seed in seeds}
    return {**asked, "values": list(at.each(parts, _cluster, Progress(say, "clusters")).values())}


def clusters(count: int, nodes: tuple[int, int], most_pods: int) -> list[int]:
    """Return the first seeds of validation clusters with no more pods than that."""
    result: list[int] = []
    seed = 0
    while len(result) < count:
        if len(random_cluster(seed, distribution=Distribution.VALIDATION, nodes=nodes).pods) <= most_pods:
            result.append(seed)
        seed += 1
    return result


def _cluster(asked: Json) -> Json:
    workload = random_cluster(asked["cluster"], distribution=Distribution.VALIDATION, nodes=tuple(asked["nodes"]))
    simulator, seeds = Simulator(workload), asked["seeds"]
    policies: dict[str, Policy] = {name: resolve(name) for name in asked["rules"]}
    seconds = time.process_time()
    chosen = simulator.member(packaged_portfolio(), protocol="inflation")
    seconds = time.process_time() - seconds
    by_rules = simulator.member(resolve(NOT_FITTED), protocol="inflation")
    policies |= {PACKAGED_POLICY: chosen.policy, NOT_FITTED: by_rules.policy}
    gpu_pods = [pod for pod in workload.pods if pod.requests.gpu_count]
    return {
        "name": workload.name,
        "nodes": len(workload.nodes),
        "gpus": sum(node.gpu_total for node in workload.nodes),
        "pods": len(workload.pods),
        "shares": float(np.mean([pod.requests.gpu_milli < GPU_MILLI for pod in gpu_pods])),
        "member": chosen.policy.name,
        "evidence": chosen.evidence,
        "rule": by_rules.policy.name,
        "seconds": round(seconds, 1),
        "allocation": {name: allocations(simulator, each, seeds) for name, each in policies.items()},
    }


def allocations(simulator: Simulator, policy: Policy, seeds: list[int]) -> list[float]:
    """Percent of the GPUs allocated in the end, by seed."""
    workload = simulator.workload
    plans = ((seed, schedule(workload, "inflation", seed=seed, ratio=1.3, load=None)) for seed in seeds)
    return [100.0 - simulator.play(policy, plan, seed).cost("inflation") for seed, plan in plans]


def claim(result: Json) -> str:
    """Return what it shows, in a sentence."""
    stock, ours = (
        np.mean([_mean(name, each) for each in result["values"]]) for name in ("kube-default", PACKAGED_POLICY)
    )
    return (
        f"On {len(result['values'])} generated clusters that nothing was trained on, `steersman` allocates {ours:.1f} "
        f"% of the GPUs, kube-scheduler's default {stock:.1f} %."
    )


def section(result: Json) -> str:
    """Return the page of docs/results."""
    values = result["values"]
    rules = [name for name in result["rules"] if name not in BEST_OF]
    lines = [_row(name, values) for name in (PACKAGED_POLICY, NOT_FITTED, *BEST_OF, *rules)]
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
    fitted, seconds = (np.array([each[name] for each in values]) for name in ("member", "seconds"))
    sizes = [each["nodes"] for each in values]
    text = [
        "## Held-out clusters",
        "",
        f"{len(values)} generated clusters of {min(sizes)} to {max(sizes)} nodes, {len(result['seeds'])} seeds, "
        "`inflation`. `steersman` chooses a rule or a blend on each cluster, and fits weights to it, on other "
        f"draws. Fitted weights were kept {(fitted == FITTED).sum()} times. It took "
        f"{np.median(seconds):.0f} s of processor in the median, {seconds.max():.0f} s at most. "
        "`rules` is the choice among seven rules and `greedy-forecast` alone. Differences are points of GPU "
        "allocation, against `fgd` and against the best of `fgd`, `best-fit` and `gpu-packing` on the same seeds. "
        "*0.1 below* and *1 below* count the clusters that are so many points below that best rule.",
        "",
        tables.markdown(header, lines),
        "",
        _fitting(values),
    ]
    worst = sorted(values, key=lambda each: _difference(PACKAGED_POLICY, each))[:5]
    named = ", ".join(
        f"{each['name']} ({each['gpus']} GPUs, {each['pods']} pods) {_difference(PACKAGED_POLICY, each):+.2f}"
        for each in worst
    )
    members = ", ".join(f"{name} {count}" for name, count in Counter(each["member"] for each in values).most_common())
    kinds = tables.markdown(["kind", "clusters", "against `fgd`", "against the best of 3"], _by_kind(values))
    text += ["", f"Worst against the best of 3: {named}.", "", f"Members taken: {members}.", "", kinds]
    return "\n".join(text) + "\n"


def _fitting(values: list[Json]) -> str:
    """Say what blends and fitted weights add to a choice among rules."""
    more = np.array([_mean(PACKAGED_POLICY, each) - _mean(NOT_FITTED, each) for each in values])
    gain = np.array([_mean(PACKAGED_POLICY, each) - _mean("fgd", each) for each in values]).mean()
    taken = Counter(each["rule"] for each in values)
    return (
        f"Of the {gain:.2f} points that `steersman` gains on `fgd`, `rules` has {gain - more.mean():.2f}. Blends and "
        f"fitted weights add {tables.interval(tables.spread(more))} (95 % interval over clusters); `steersman` is more "
        f"than 0.1 points above `rules` on {(more > 0.1).sum()} clusters, and below it on {(more < -0.1).sum()}. "
        f"`rules` took {', '.join(f'{name} {count}' for name, count in taken.most_common())}."
    )


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
                to_fgd = np.mean([_mean(PACKAGED_POLICY, each) - _mean("fgd", each) for each in some])
                to_best = np.mean([_difference(PACKAGED_POLICY, each) for each in some])
                rows.append([kind, str(len(some)), f"{to_fgd:+.2f}", f"{to_best:+.2f}"])
    return rows
