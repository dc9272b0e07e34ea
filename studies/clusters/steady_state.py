"""Pods that come and go on generated clusters: how long they wait under each policy, at several loads.

Clusters are those of the validation distribution of `steersman.workloads.generators.clusters`. Waits differ by orders
of magnitude between clusters, so they are compared by their ratio to `fgd`'s, in which a minute is added to both: the
mean over clusters is a geometric one. Pods that run when a run begins do not count.
"""

from __future__ import annotations

import numpy as np

from steersman.policies.base import Policy
from steersman.policies.portfolios import RULES as NOT_FITTED
from steersman.policies.registry import PACKAGED_POLICY, packaged_portfolio, resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Simulator
from steersman.simulation.selection.fitting import FITTED
from steersman.workloads.generators.clusters import Distribution, random_cluster
from studies import tables
from studies.clusters.any_cluster import clusters
from studies.common import Json, Progress, Say, desk
from studies.tables import Floats

NAME = "steady_state"
MINUTES = 40
BASELINE = "fgd"
RULES = (BASELINE, "best-fit", "gpu-packing", "least-allocated", "kube-default")
LOADS = (0.8, 0.9, 1.0, 1.1)
MINUTE = 60.0
WORSE = 1.05
"""Times the wait of the best rule: a policy that is above it is counted as worse."""


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "policy": packaged_portfolio().digest,
        "clusters": 2 if quick else 40,
        "nodes": (5, 12) if quick else (5, 200),
        "most_pods": 1_500,
        "loads": LOADS[:1] if quick else LOADS,
        "rules": RULES,
        "seeds": tuple(range(42, 44 if quick else 50)),
    }


def run(say: Say, quick: bool = False) -> Json:
    """Evaluate every cluster at every load; what was finished is kept cluster by cluster."""
    at, asked = desk(NAME, quick, say), options(quick)
    depends = {name: asked[name] for name in ("policy", "nodes", "loads", "rules", "seeds")}
    seeds = clusters(asked["clusters"], tuple(asked["nodes"]), asked["most_pods"])
    parts = {f"cluster-{seed}": {**depends, "cluster": seed} for seed in seeds}
    return {**asked, "values": list(at.each(parts, _cluster, Progress(say, "clusters")).values())}


def _cluster(asked: Json) -> Json:
    workload = random_cluster(asked["cluster"], distribution=Distribution.VALIDATION, nodes=tuple(asked["nodes"]))
    simulator, policy = Simulator(workload), packaged_portfolio()
    waits: Json = {}
    kept: Json = {}
    for load in asked["loads"]:
        policies: dict[str, Policy] = {name: resolve(name) for name in asked["rules"]}
        for each in (policy, resolve(NOT_FITTED)):
            policies[each.name] = simulator.member(each, protocol="timed", load=load).policy
        kept[str(load)] = policies[PACKAGED_POLICY].name
        waits[str(load)] = {name: _waits(simulator, each, load, asked["seeds"]) for name, each in policies.items()}
    return {
        "name": workload.name,
        "nodes": len(workload.nodes),
        "gpus": sum(node.gpu_total for node in workload.nodes),
        "pods": len(workload.pods),
        "kept": kept,
        "waits": waits,
    }


def _waits(simulator: Simulator, policy: Policy, load: float, seeds: list[int]) -> list[float]:
    """Mean seconds that a pod waited, by seed."""
    plans = ((seed, schedule(simulator.workload, "timed", seed=seed, ratio=1.0, load=load)) for seed in seeds)
    return [simulator.play(policy, plan, seed).cost("timed") for seed, plan in plans]


def claim(result: Json) -> str:
    """Return what it shows, in a sentence."""
    loads = [str(result["loads"][0]), str(result["loads"][-1])]
    ours, stock = (
        [_wait_ratio(_mean_waits(result, load, name), _mean_waits(result, load, BASELINE)) for load in loads]
        for name in (PACKAGED_POLICY, "kube-default")
    )
    return (
        f"Where pods come and go, they wait {ours[0]} times as long as under `fgd` at a load of {loads[0]} and "
        f"{ours[1]} at {loads[1]} on {len(result['values'])} clusters; under kube-scheduler's default {stock[0]} and "
        f"{stock[1]}."
    )


def _mean_waits(result: Json, load: str, name: str) -> Floats:
    """Return [clusters] mean waits in seconds."""
    return np.array([np.mean(each["waits"][load][name]) for each in result["values"]])


def _wait_ratio(waits: Floats, baseline: Floats) -> str:
    """`0.93 (0.88 to 0.97)`: the geometric mean over clusters, a minute added to both."""
    return _ratio(tables.spread(np.log((waits + MINUTE) / (baseline + MINUTE))))


def section(result: Json) -> str:
    """Return the page of docs/results."""
    rows = []
    for load in map(str, result["loads"]):
        waits = {
            name: _mean_waits(result, load, name)
            for name in (*result["rules"], NOT_FITTED, PACKAGED_POLICY)
            if name in result["values"][0]["waits"][load]
        }
        best = np.min([waits[name] for name in result["rules"]], axis=0)
        for name, value in waits.items():
            worse = (value + MINUTE) / (best + MINUTE) > WORSE
            rows.append(
                [
                    f"`{name}`, {load}",
                    tables.number(float(np.median(value)) / MINUTE, 1),
                    "" if name == BASELINE else _wait_ratio(value, waits[BASELINE]),
                    str(int(worse.sum())),
                ]
            )
    sizes = [each["nodes"] for each in result["values"]]
    kept = sum(name == FITTED for each in result["values"] for name in each["kept"].values())
    header = [
        "policy, load",
        "median of mean waits, min",
        "times the wait of `fgd`",
        "clusters worse than the best rule",
    ]
    return "\n".join(
        [
            "## Held-out clusters with arrivals and departures",
            "",
            f"{len(sizes)} generated clusters of {min(sizes)} to {max(sizes)} nodes, {len(result['seeds'])} seeds, "
            "protocol `timed`: Poisson arrivals at a load, and pods that fit nowhere wait. Pods that run at the start "
            "do not count. `steersman` chooses a rule or a blend by simulations of the same load, and fits weights to "
            f"it, which were kept {kept} times; `rules` is the choice among rules. The wait relative to `fgd` is the "
            "geometric mean over clusters, with a minute added to both waits and 95 % intervals. A cluster is worse if "
            "its wait is more than 5 % above the best of "
            f"{', '.join(f'`{name}`' for name in result['rules'])} on the same arrivals.",
            "",
            tables.markdown(header, rows),
        ]
    )


def _ratio(json: Json) -> str:
    """`0.93 (0.88 to 0.97)` of a spread of logarithms."""
    mean, low, high = (float(np.exp(json[name])) for name in ("mean", "low", "high"))
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"
