"""Yesterday's workload profile: policies that know the first half of a trace, on the pods of its second half.

Fragmentation, planned losses, the choice among members and a fit all rest on which pods are typical. Here that is known
from the pods that were created first (as `fit policy` embeds it in a file), and the cluster is then filled by
`inflation` with draws of the others. *True* is the same with the profile of the pods that do come.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from steersman.core.errors import SteersmanError
from steersman.policies.base import Policy, with_profile
from steersman.policies.embedded_profile import embed_profile, open_prepared
from steersman.policies.features import view
from steersman.policies.heuristics import heuristic
from steersman.policies.learned_weights import GPU_VIEW
from steersman.policies.portfolios import RULES
from steersman.policies.registry import PACKAGED_POLICY, packaged_portfolio, resolve
from steersman.simulation.run import Simulator
from steersman.workloads.formats.openb import embedded_names
from steersman.workloads.generators.clusters import Distribution, random_cluster
from steersman.workloads.workload import Workload
from studies import tables
from studies.clusters.any_cluster import allocations
from studies.common import SEEDS, Json, Progress, Say, desk, short_name, workloads

NAME = "yesterday"
MINUTES = 25
DATA = ("openb",)
WITHOUT_TIMES = "multigpu"
"""How the names of embedded workloads begin whose pods do not say when they were created."""
MOST_PODS = 2_500
FIRST_CLUSTER = 3_000
"""Generated clusters begin here, in the validation distribution."""
NEAR = 0.25
"""Of the GPU demand; where less of it is for other sizes, yesterday's profile is near the true one."""
FGD_TRUE, FGD_OLD = "fgd, true", "fgd, yesterday"
OWN_TRUE, OWN_OLD = f"{PACKAGED_POLICY}, true", f"{PACKAGED_POLICY}, yesterday"
RULES_TRUE, RULES_OLD = f"{RULES}, true", f"{RULES}, yesterday"
WITHOUT_MIX = ("best-fit", "gpu-packing")
POLICIES = (FGD_TRUE, FGD_OLD, RULES_TRUE, RULES_OLD, OWN_TRUE, OWN_OLD, *WITHOUT_MIX)
Floats = npt.NDArray[np.float64]


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    names = tuple(name for name in embedded_names() if not name.startswith(WITHOUT_TIMES))
    return {
        "policy": packaged_portfolio().digest,
        "openb": names[:1] if quick else names,
        "clusters": 3 if quick else 20,
        "nodes": (5, 8) if quick else (5, 120),
        "seeds": SEEDS[:2] if quick else SEEDS[:10],
    }


def run(say: Say, quick: bool = False) -> Json:
    """Evaluate on every trace and cluster; what was finished is kept one by one."""
    at, asked = desk(NAME, quick, say), options(quick)
    drawn = (
        random_cluster(seed, distribution=Distribution.VALIDATION, nodes=tuple(asked["nodes"]))
        for seed in itertools.count(FIRST_CLUSTER)
    )
    fits = (each for each in drawn if len(each.pods) <= MOST_PODS and _has_gpus_in_both(each))
    clusters = tuple(itertools.islice(fits, asked["clusters"]))
    traces = workloads(asked["openb"], quick)
    progress, result = Progress(say, "workloads"), []
    depends = {name: asked[name] for name in ("policy", "seeds")}
    for number, workload in enumerate((*traces, *clusters)):
        value = at.once(short_name(workload.name), depends, partial(_evaluate, workload, depends))
        result.append({"name": short_name(workload.name), **value})
        progress(number + 1, len(traces) + len(clusters))
    return {**asked, "traces": result[: len(traces)], "generated": result[len(traces) :]}


def halves(workload: Workload) -> tuple[Workload, Workload]:
    """Return a workload with the pods that were created first, and with the others.

    Raises:
        SteersmanError: a pod does not say when it was created.
    """
    created = [pod.creation_time for pod in workload.pods if pod.creation_time is not None]
    if len(created) < len(workload.pods):
        raise SteersmanError(f"{workload.name}: not every pod has a creation time")
    order = np.argsort(created, kind="stable")
    pods = [workload.pods[i] for i in order]
    middle = len(pods) // 2
    return (
        replace(workload, name=f"{workload.name}-yesterday", pods=tuple(pods[:middle])),
        replace(workload, name=f"{workload.name}-today", pods=tuple(pods[middle:])),
    )


def _has_gpus_in_both(workload: Workload) -> bool:
    return all(any(pod.requests.gpu_count for pod in half.pods) for half in halves(workload))


def changed(old: Workload, new: Workload) -> float:
    """Return which share of the GPU demand is for other sizes (devices, milli) than it was: total variation."""
    shares = []
    for workload in (old, new):
        by_size: Counter[tuple[int, int]] = Counter()
        for pod in workload.pods:
            by_size[pod.requests.gpu_count, pod.requests.gpu_milli] += pod.requests.gpu_total_milli
        shares.append({size: demand / by_size.total() for size, demand in by_size.items()})
    return sum(abs(shares[0].get(size, 0.0) - shares[1].get(size, 0.0)) for size in {*shares[0], *shares[1]}) / 2


def _evaluate(workload: Workload, asked: Json) -> Json:
    old, new = halves(workload)
    before, today = Simulator(old), Simulator(new)
    chosen = {
        name: [each.member(resolve(name)).policy for each in (before, today)] for name in (RULES, PACKAGED_POLICY)
    }
    card, profile_tensors = embed_profile(old, GPU_VIEW)
    prepared = open_prepared(old.name, card, view(GPU_VIEW), profile_tensors)
    assert prepared is not None
    policies: dict[str, Policy] = {
        FGD_TRUE: heuristic("fgd"),
        RULES_TRUE: chosen[RULES][1],
        OWN_TRUE: chosen[PACKAGED_POLICY][1],
        **{name: heuristic(name) for name in WITHOUT_MIX},
        FGD_OLD: with_profile(heuristic("fgd"), prepared),
        RULES_OLD: with_profile(chosen[RULES][0], prepared),
        OWN_OLD: with_profile(chosen[PACKAGED_POLICY][0], prepared),
    }
    return {
        "nodes": len(workload.nodes),
        "gpus": sum(node.gpu_total for node in workload.nodes),
        "pods": len(workload.pods),
        "changed": changed(old, new),
        "members": {name: policies[name].name for name in (RULES_TRUE, RULES_OLD, OWN_TRUE, OWN_OLD)},
        "allocated": {name: allocations(today, policy, asked["seeds"]) for name, policy in policies.items()},
    }


def section(result: Json) -> str:
    """Write the page of docs/results."""
    traces, clusters = result["traces"], result["generated"]
    near, far = ([each for each in clusters if (each["changed"] < NEAR) == is_near] for is_near in (True, False))
    header = ["openb workload", "changed, %", *POLICIES]
    rows = [
        [each["name"], f"{100 * each['changed']:.0f}", *(tables.number(_mean(each, name)) for name in POLICIES)]
        for each in traces
    ]
    by = {"openb": traces, "generated, near": near, "generated, far": far}
    pairs = [(name, FGD_TRUE) for name in POLICIES[1:]] + [
        (OWN_OLD, OWN_TRUE),
        (OWN_OLD, FGD_OLD),
        (OWN_OLD, RULES_OLD),
    ]
    differences = [
        [f"{name} - {other}", *(_difference(some, name, other, where == "openb") for where, some in by.items())]
        for name, other in pairs
    ]
    worst = sorted(clusters, key=lambda each: _mean(each, OWN_OLD) - _mean(each, FGD_TRUE))[:3]
    named = ", ".join(
        f"{each['name']} ({each['gpus']} GPUs, {each['pods']} pods, {each['changed']:.0%} changed) "
        f"{_mean(each, OWN_OLD) - _mean(each, FGD_TRUE):+.2f}"
        for each in worst
    )
    return "\n".join(
        [
            "## An outdated workload profile",
            "",
            "Policies know the workload profile of the first half of a trace, by creation time, as `fit policy` "
            "embeds it in a file: typical pods and planned losses. For `rules` and `steersman` it also determines what "
            "short simulations choose, and for `steersman` fitted weights. The cluster "
            "is then filled with draws of the second half. *True*: the "
            "same with the profile of the second half. *Changed*: the share of the GPU demand that is for pods of "
            f"other sizes than in the first half. GPU allocated in `inflation`, %, {len(result['seeds'])} seeds.",
            "",
            tables.markdown(header, rows),
            "",
            f"Points of GPU allocation, with 95 % intervals: on these {len(traces)} over seeds; on generated clusters "
            f"of {result['nodes'][0]} to {result['nodes'][1]} nodes, which no training saw, over clusters. "
            f"*Near* are {len(near)} of which less than {NEAR:.0%} of the demand changed, *far* the other {len(far)}. "
            "Most of the latter are sorted by owner or size, so the pods of the second half are different ones.",
            "",
            tables.markdown(["difference", *by], differences),
            "",
            f"Where {OWN_OLD}, is worst against {FGD_TRUE}: {named}.",
        ]
    )


def _mean(each: Json, name: str) -> float:
    return float(np.mean(each["allocated"][name]))


def _difference(some: list[Json], name: str, other: str, over_seeds: bool) -> str:
    """Write the mean difference of two policies over workloads, with its interval over seeds or over workloads."""
    if not some:
        return "–"
    values: Floats = np.array([np.subtract(each["allocated"][name], each["allocated"][other]) for each in some])
    return tables.interval(tables.spread(values.mean(axis=0 if over_seeds else 1)))
