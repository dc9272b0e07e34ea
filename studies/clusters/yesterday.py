"""Yesterday's workload profile: policies that know the first half of a trace, on the pods of its second half.

Fragmentation, planned losses, the choice among members and a fit all rest on which pods are typical. Here that is known
from the pods that were created first (as `policy prepare` embeds it in a file), and the cluster is then filled by
`inflation` with draws of the others. *True* is the same with the profile of the pods that do come.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from steersman.core.errors import SteersmanError
from steersman.policies import rule_choice
from steersman.policies.base import Policy, with_profile
from steersman.policies.embedded_profile import embed_profile, open_prepared
from steersman.policies.features import view
from steersman.policies.gpu_state.arrays import GPU_VIEW
from steersman.policies.heuristics import heuristic
from steersman.policies.portfolio_policy import PortfolioPolicy
from steersman.policies.registry import PACKAGED_POLICY, packaged_portfolio, resolve
from steersman.simulation.run import Simulator
from steersman.training.search.fit import FITTED, FitOptions, fit
from steersman.workloads.formats.openb import embedded_names
from steersman.workloads.generators.clusters import Distribution
from steersman.workloads.workload import Workload
from studies import tables
from studies.clusters import generated
from studies.clusters.generated import Evaluation
from studies.common import SEEDS, Json, Progress, Say, desk, short_name, workloads

NAME = "yesterday"
MINUTES = 15
WITHOUT_TIMES = "multigpu"
"""How the names of embedded workloads begin whose pods do not say when they were created."""
FIRST_CLUSTER = 3_000
"""Generated clusters begin here, in the validation distribution."""
NEAR = 0.25
"""Of the GPU demand; where less of it is for other sizes, yesterday's profile is near the true one."""
FGD_TRUE, FGD_OLD = "fgd, true", "fgd, yesterday"
OWN_TRUE, OWN_OLD = f"{PACKAGED_POLICY}, true", f"{PACKAGED_POLICY}, yesterday"
RULES_TRUE, RULES_OLD = f"{rule_choice.NAME}, true", f"{rule_choice.NAME}, yesterday"
FITTED_OLD = f"{FITTED}, yesterday"
WITHOUT_MIX = ("best-fit", "gpu-packing")
POLICIES = (FGD_TRUE, FGD_OLD, RULES_TRUE, RULES_OLD, OWN_TRUE, OWN_OLD, FITTED_OLD, *WITHOUT_MIX)
Floats = npt.NDArray[np.float64]


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    names = tuple(name for name in embedded_names() if not name.startswith(WITHOUT_TIMES))
    return {
        "policy": packaged_portfolio().digest,
        "openb": names[:1] if quick else names,
        "clusters": 3 if quick else 20,
        "nodes": (5, 8) if quick else (5, 120),
        "fit_generations": 2 if quick else 40,
        "seeds": SEEDS[:2] if quick else SEEDS[:10],
    }


def run(say: Say, quick: bool = False) -> Json:
    """Evaluate on every trace and cluster; what was finished is kept one by one."""
    at, asked = desk(NAME, quick, say), options(quick)
    clusters = generated.draw(
        Distribution.VALIDATION, FIRST_CLUSTER, asked["clusters"], tuple(asked["nodes"]), keep=_has_gpus_in_both
    )
    traces = workloads(asked["openb"], quick)
    progress, result = Progress(say, "workloads"), []
    depends = {name: asked[name] for name in ("policy", "fit_generations", "seeds")}
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
    today = Evaluation([new], asked["seeds"])
    chosen = {name: _selected_members(name, old, today.simulators[0]) for name in (rule_choice.NAME, PACKAGED_POLICY)}
    fitted = fit(old, packaged_portfolio(), FitOptions(generations=asked["fit_generations"]))
    kept = next(each.policy for each in fitted.compared if each.name == fitted.chosen)
    card, profile_tensors = embed_profile(old, GPU_VIEW)
    prepared = open_prepared(old.name, card, view(GPU_VIEW), profile_tensors)
    assert prepared is not None
    policies: dict[str, Policy] = {
        FGD_TRUE: heuristic("fgd"),
        RULES_TRUE: chosen[rule_choice.NAME][1],
        OWN_TRUE: chosen[PACKAGED_POLICY][1],
        **{name: heuristic(name) for name in WITHOUT_MIX},
        FGD_OLD: with_profile(heuristic("fgd"), prepared),
        RULES_OLD: with_profile(chosen[rule_choice.NAME][0], prepared),
        OWN_OLD: with_profile(chosen[PACKAGED_POLICY][0], prepared),
        FITTED_OLD: with_profile(kept, prepared),
    }
    return {
        "nodes": len(workload.nodes),
        "gpus": generated.gpus(workload),
        "pods": len(workload.pods),
        "changed": changed(old, new),
        "members": {name: policies[name].name for name in (RULES_TRUE, RULES_OLD, OWN_TRUE, OWN_OLD)}
        | {FITTED_OLD: fitted.chosen},
        "allocated": {name: today.by_seed(policy)[0] for name, policy in policies.items()},
    }


def _selected_members(name: str, old: Workload, today: Simulator) -> tuple[Policy, Policy]:
    """Return the members of a portfolio that short simulations take for yesterday's pods and for today's."""
    policy = resolve(name)
    assert isinstance(policy, PortfolioPolicy)
    members = policy.members
    best_old, best_true = (each.select(members, protocol="inflation").best for each in (Simulator(old), today))
    return members[best_old], members[best_true]


def section(result: Json) -> str:
    """Write the section of docs/results.md."""
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
    kept = sum(each["members"][FITTED_OLD] == FITTED for each in (*traces, *clusters))
    return "\n".join(
        [
            "## An outdated workload profile",
            "",
            "Policies know the workload profile of the first half of a trace, by creation time, as `policy prepare` "
            "embeds it in a file: typical pods and planned losses. For `rules` and `steersman` it also determines the "
            "member that a short simulation takes. "
            f"`fitted` was fitted to that half by a short search (the search was kept on {kept} of "
            f"{len(traces) + len(clusters)}). The cluster is then filled with draws of the second half. *True*: the "
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
