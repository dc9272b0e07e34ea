"""The best configuration of kube-scheduler, found for each cluster, beside its default and `steersman`.

The clusters and the draws are those of `any_cluster`, and lists of openb beside them. A configuration that the search
does not show to be better on draws of its own is not taken: the default stays.
"""

from __future__ import annotations

import time

import numpy as np

from steersman.policies.base import Policy
from steersman.policies.kube_scheduler.policy import KUBE_DEFAULT, STOCK_TUNED, KubeSchedulerPolicy
from steersman.policies.kube_scheduler.profile import STRATEGIES
from steersman.policies.registry import PACKAGED_POLICY, packaged_portfolio, resolve
from steersman.simulation.run import Simulator
from steersman.simulation.selection.stock_search import StockSearchOptions
from steersman.training.search.policies import search_scheduler
from steersman.workloads.formats.openb import embedded
from steersman.workloads.generators.clusters import Distribution, random_cluster
from studies import tables
from studies.clusters.any_cluster import allocations, clusters
from studies.common import Json, Progress, Say, desk, published, short_name

NAME = "kube_scheduler"
MINUTES = 60
DATA = ("openb",)
SIMPLE = f"{STOCK_TUNED}, EKS"
"""Found among what EKS takes."""
FAR_BELOW = 0.5
"""Points below the default that count as a loss."""
OPENB = ("default", "cpu050", "gpushare40")
"""One list of openb's pods of each kind."""


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "policy": packaged_portfolio().digest,
        "clusters": 2 if quick else 200,
        "nodes": (5, 12) if quick else (5, 1_200),
        "most_pods": 8_000,
        "openb": () if quick else OPENB,
        "seeds": tuple(range(42, 44 if quick else 47)),
    }


def run(say: Say, quick: bool = False) -> Json:
    """Search for a configuration for every cluster; what was finished is kept cluster by cluster."""
    at, asked = desk(NAME, quick, say), options(quick)
    depends = {name: asked[name] for name in ("policy", "nodes", "seeds")}
    seeds = clusters(asked["clusters"], tuple(asked["nodes"]), asked["most_pods"])
    parts = {f"validation-{seed}": {**depends, "cluster": seed} for seed in seeds}
    parts |= {embedded(name).name: {**depends, "openb": name} for name in asked["openb"]}
    known = {each["name"]: each for each in published("clusters", NAME, depends, quick).get("values", ())}
    return {**asked, "values": list(at.each(parts, _cluster, Progress(say, "clusters"), known).values())}


def _cluster(asked: Json) -> Json:
    if "openb" in asked:
        workload = embedded(asked["openb"])
    else:
        workload = random_cluster(asked["cluster"], distribution=Distribution.VALIDATION, nodes=tuple(asked["nodes"]))
    simulator, today = Simulator(workload), resolve(KUBE_DEFAULT)
    policies: dict[str, Policy] = {
        KUBE_DEFAULT: today,
        PACKAGED_POLICY: simulator.member(packaged_portfolio(), protocol="inflation").policy,
    }
    value: Json = {"name": workload.name, "nodes": len(workload.nodes), "pods": len(workload.pods)}
    for name, simple in ((STOCK_TUNED, False), (SIMPLE, True)):
        began = time.monotonic()
        found = search_scheduler(workload, StockSearchOptions(simple=simple), today=today)
        profile = found.profile
        policies[name] = KubeSchedulerPolicy(name, profile) if found.is_better else today
        value[name] = {
            "is_better": found.is_better,
            "seconds": round(time.monotonic() - began, 1),
            "strategy": STRATEGIES[profile.fit.kind],
            "resources": profile.fit.resources,
            "weights": profile.weights,
        }
    allocated = {name: allocations(simulator, each, asked["seeds"]) for name, each in policies.items()}
    return {**value, "allocation": allocated}


def _by_source(result: Json) -> tuple[list[Json], list[Json]]:
    """Return the values of generated clusters, and those of lists of openb."""
    generated = [each for each in result["values"] if each["name"].startswith("validation-")]
    return generated, [each for each in result["values"] if each not in generated]


def claim(result: Json) -> str:
    """Return what it shows, in a sentence."""
    values, _ = _by_source(result)
    tuned, ours = (
        tables.spread(_means(values, name) - _means(values, KUBE_DEFAULT)) for name in (STOCK_TUNED, PACKAGED_POLICY)
    )
    return (
        f"On {len(values)} such clusters an edited configuration of an unmodified kube-scheduler gains "
        f"{tables.interval(tuned)} points of GPUs allocated, `steersman` {tables.interval(ours)}."
    )


def section(result: Json) -> str:
    """Return the page of docs/results."""
    values, openb = _by_source(result)
    means = {name: _means(values, name) for name in (KUBE_DEFAULT, STOCK_TUNED, SIMPLE, PACKAGED_POLICY)}
    whole = means[PACKAGED_POLICY] - means[KUBE_DEFAULT]
    rows = []
    for name, allocated in means.items():
        gains = allocated - means[KUBE_DEFAULT]
        against = "" if name == KUBE_DEFAULT else tables.interval(tables.spread(gains))
        share = "" if name == KUBE_DEFAULT else f"{100 * gains.sum() / whole.sum():.0f}"
        below = f"{int((gains < -FAR_BELOW).sum())} of {len(gains)}"
        rows.append([name, tables.number(float(allocated.mean())), against, share, below])
    seconds = [each[STOCK_TUNED]["seconds"] for each in values]
    kept = {name: sum(each[name]["is_better"] for each in values) for name in (STOCK_TUNED, SIMPLE)}
    lines = [
        "## The best configuration of kube-scheduler",
        "",
        f"The first {len(values)} held-out clusters, {len(result['seeds'])} seeds. `{STOCK_TUNED}` is what "
        "`steersman fit scheduler` finds for each of them, on other draws: a scoring strategy over CPU, "
        "memory and GPUs, and weights and resources of kube-scheduler's two plugins of resources. "
        f"`{SIMPLE}` is found among what EKS takes. Where no gain was shown the default stays: "
        f"{len(values) - kept[STOCK_TUNED]} and {len(values) - kept[SIMPLE]} clusters. A search took "
        f"{np.median(seconds):.0f} s in the median on a machine with other work.",
        "",
        tables.markdown(
            ["policy", "GPUs allocated, %", "against the default", "of steersman's gain, %", "0.5 below"], rows
        ),
    ]
    if openb:
        lines += ["", "On lists of openb, GPUs allocated in percent:", "", _openb_table(openb)]
    return "\n".join(lines)


def _openb_table(values: list[Json]) -> str:
    names = (KUBE_DEFAULT, STOCK_TUNED, SIMPLE, PACKAGED_POLICY)
    rows = [
        [short_name(each["name"]), *(tables.number(float(np.mean(each["allocation"][name]))) for name in names)]
        for each in values
    ]
    return tables.markdown(["pods", *names], rows)


def _means(values: list[Json], name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array([np.mean(each["allocation"][name]) for each in values])
