"""Policies on kinds of clusters that they have never seen: generated families left out of training, and openb."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from steersman.policies import rule_choice
from steersman.policies.linear import LinearPolicy
from steersman.policies.portfolio_policy import PortfolioPolicy
from steersman.policies.registry import PACKAGED_POLICY, packaged_portfolio, resolve
from steersman.training.search.portfolio import OPENB
from steersman.workloads.formats.openb import embedded_names
from steersman.workloads.generators.clusters import Distribution
from steersman.workloads.workload import Workload
from studies import tables
from studies.clusters import generated
from studies.clusters.generated import BEST_OF, Evaluation, IsKept, gpus
from studies.common import Desk, Json, Say, desk, workloads

NAME = "generalisation"
MINUTES = 25
LARGE = 100
"""GPUs; clusters with more are large."""
BASELINE, ALL, BLIND = "fgd", "all", "without openb"
SAME, OTHER = "the distribution of training", "the other distribution"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of clusters.

    Attributes:
        words: what the report calls it.
        contains: whether a cluster is one.
    """

    words: str
    contains: IsKept

    def lacks(self, workload: Workload) -> bool:
        """Return whether a cluster is none."""
        return not self.contains(workload)


def has_shares(workload: Workload) -> bool:
    """Return whether a pod asks for a share of a device."""
    return any(pod.requests.gpu_count and pod.requests.gpu_milli < 1000 for pod in workload.pods)


def has_models(workload: Workload) -> bool:
    """Return whether nodes have GPUs of several models."""
    return len({(node.gpu_model, node.gpu_count) for node in workload.nodes if node.gpu_total}) > 1


def is_large(workload: Workload) -> bool:
    """Return whether there are more than `LARGE` GPUs."""
    return gpus(workload) > LARGE


def is_short_of_memory(workload: Workload) -> bool:
    """Return whether the pods ask for a larger share of all memory than of all CPU."""
    memory = sum(pod.requests.memory_bytes for pod in workload.pods) / sum(n.memory_bytes for n in workload.nodes)
    cpu = sum(pod.requests.cpu_milli for pod in workload.pods) / sum(n.cpu_milli for n in workload.nodes)
    return memory > cpu


FAMILIES = {
    "shares": Family("pods that share a GPU", has_shares),
    "models": Family("several models of GPUs", has_models),
    "large": Family(f"more than {LARGE} GPUs", is_large),
    "memory": Family("memory scarcer than CPU", is_short_of_memory),
}


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "policy": packaged_portfolio().digest,
        "families": ("memory",) if quick else tuple(FAMILIES),
        "large": LARGE,
        **generated.options(quick),
        "openb": ("default", "gpushare60") if quick else embedded_names(),
    }


def run(say: Say, quick: bool = False) -> Json:
    """Train on all kinds of clusters and without each family, and fill clusters of every kind and openb's."""
    at, asked = desk(NAME, quick, say), options(quick)
    of_trainings = {name: value for name, value in asked.items() if name != "policy"}
    clusters = at.once("clusters", of_trainings, partial(_evaluate_on_clusters, at, asked))
    traces = at.once("openb", of_trainings, partial(_evaluate_on_openb, at, asked))
    own = at.once("shipped-openb", asked, partial(_evaluate_shipped_on_openb, at, asked))
    return {**asked, "clusters_by": clusters, "openb_by": traces | own}


def _train_policies(at: Desk, asked: Json, without: str = "") -> list[LinearPolicy]:
    """Train on all kinds of clusters, or on those that are not of one family; what was trained before is kept."""
    name, keep = (f"without-{without}", FAMILIES[without].lacks) if without else (ALL, generated.everything)
    return [generated.train(at, f"{name}-{seed}", seed, keep=keep)[0] for seed in asked["training_seeds"]]


def _evaluate_on_clusters(at: Desk, asked: Json) -> Json:
    """Return the percent allocated on generated clusters by training and by rule, and which are of which family."""
    trained = {ALL: _train_policies(at, asked)} | {
        family: _train_policies(at, asked, family) for family in asked["families"]
    }
    at.say("evaluating on generated clusters")
    same, other = (generated.unseen(asked, distribution) for distribution in Distribution)
    place = Evaluation((*same, *other), asked["seeds"])
    families = {name: [*map(FAMILIES[name].contains, same), *[False] * len(other)] for name in asked["families"]}
    families |= {SAME: [True] * len(same) + [False] * len(other), OTHER: [False] * len(same) + [True] * len(other)}
    return {
        "families": families,
        "trained": {name: [place.allocated(policy) for policy in policies] for name, policies in trained.items()},
        "rules": {name: place.allocated(resolve(name)) for name in BEST_OF},
    }


def _evaluate_on_openb(at: Desk, asked: Json) -> Json:
    """Return the percent allocated on openb's workloads by training on all kinds of clusters, and of FGD."""
    policies = _train_policies(at, asked)
    at.say("evaluating on openb")
    place = Evaluation(workloads(asked["openb"], at.quick), asked["seeds"])
    return {
        "trained": [place.allocated(policy) for policy in policies],
        BASELINE: place.allocated(resolve(BASELINE)),
    }


def _evaluate_shipped_on_openb(at: Desk, asked: Json) -> Json:
    """Return the same of `rules` and of the shipped policy, with and without members that were trained on openb."""
    at.say("evaluating the shipped policy on openb")
    place = Evaluation(workloads(asked["openb"], at.quick), asked["seeds"])
    members, rules = packaged_portfolio().members, resolve(rule_choice.NAME)
    assert isinstance(rules, PortfolioPolicy)
    blind = [member for member in members if not member.name.startswith(OPENB)]
    return {
        PACKAGED_POLICY: place.chosen(members),
        BLIND: place.chosen(blind),
        rule_choice.NAME: place.chosen(rules.members),
    }


def section(result: Json) -> str:
    """Write the section of docs/results.md."""
    header = [
        "clusters",
        "number",
        "`fgd`, %",
        "never saw any, - `fgd`",
        "saw some, - `fgd`",
        "never saw any - saw some",
        "best of 3 - `fgd`",
    ]
    traces = [
        "workload",
        "`fgd`, %",
        "generated alone - `fgd`",
        "fewer unallocated GPUs, %",
        f"`{rule_choice.NAME}` - `fgd`",
        f"`{PACKAGED_POLICY}` without openb - `fgd`",
        f"`{PACKAGED_POLICY}` - `fgd`",
    ]
    return "\n".join(
        [
            "## Generalisation to held-out kinds of clusters",
            "",
            f"{generated.described(result)} The upper rows each show the clusters of one family. One set of trainings "
            "never saw that family; another, with as many clusters and the same seeds, saw some of it. "
            f"*{SAME.capitalize()}* is all {result['unseen']} clusters. *{OTHER.capitalize()}* is as many with other "
            "numbers of devices, CPU and memory per device and sizes of shares (`workloads.generators.clusters`), "
            "which no training saw. Points of GPU allocation; in brackets 95 % intervals over trainings (Student's t), "
            "paired by training. *Best of "
            "3*: of `fgd`, `best-fit` and `gpu-packing` on each cluster.",
            "",
            tables.markdown(header, [_family_row(result, name) for name in (*result["families"], SAME, OTHER)]),
            "",
            "The trainings of *saw some*, which know generated clusters alone, evaluated on openb. Beside them is the "
            "shipped policy, which was trained longer and chooses among members: without its members that were "
            "trained on openb traces, and with them. "
            f"{len(result['seeds'])} seeds.",
            "",
            tables.markdown(traces, _trace_rows(result)),
        ]
    )


def _family_row(result: Json, name: str) -> list[str]:
    value = result["clusters_by"]
    some = np.flatnonzero(value["families"][name])

    def on_family(values: Sequence[object]) -> Floats:
        means: Floats = np.array(values, dtype=np.float64)[..., some].mean(axis=-1)
        return means

    baseline, best = on_family(value["rules"][BASELINE]), on_family(generated.best_of(value["rules"]))
    saw = on_family(value["trained"][ALL])
    never = on_family(value["trained"][name]) if name in value["trained"] else saw
    seen = [saw - baseline, never - saw] if name in FAMILIES else []
    cells = [tables.interval(tables.spread(each)) for each in (never - baseline, *seen)]
    if name == SAME:
        cells = ["", *cells]
    return [
        FAMILIES[name].words if name in FAMILIES else f"*{name}*",
        str(len(some)),
        tables.number(float(baseline)),
        *cells,
        *[""] * (3 - len(cells)),
        f"{float(best - baseline):+.2f}",
    ]


def _trace_rows(result: Json) -> list[list[str]]:
    value, names = result["openb_by"], result["openb"]
    trained = np.array(value["trained"], dtype=np.float64)
    shown = (BASELINE, rule_choice.NAME, BLIND, PACKAGED_POLICY)
    baseline, *others = (np.array(value[name], dtype=np.float64) for name in shown)

    def row(name: str, some: Sequence[int]) -> list[str]:
        fgd, mine = baseline[some].mean(), trained[:, some].mean(axis=1)
        return [
            name,
            tables.number(float(fgd)),
            tables.interval(tables.spread(mine - fgd)),
            tables.interval(tables.spread(100.0 * (mine - fgd) / (100.0 - fgd)), 1, sign=False),
            *(f"{each[some].mean() - fgd:+.2f}" for each in others),
        ]

    return [*(row(name, [i]) for i, name in enumerate(names)), row("**all**", range(len(names)))]
