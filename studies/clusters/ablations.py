"""What a learned policy owes to its parts: the same trainings with parts of what it sees left out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from steersman.policies.heuristics import heuristic
from steersman.policies.linear import LinearPolicy
from steersman.policies.registry import resolve
from steersman.policies.rule_choice import CHOOSABLE_RULES
from studies import tables
from studies.clusters import generated
from studies.clusters.generated import BEST_OF, Evaluation
from studies.common import Desk, Json, Say, desk, workloads

NAME = "ablations"
MINUTES = 25
OPENB = ("default", "gpushare60", "gpuspec25", "multigpu40")
GENERATED, TRACES, CHOSEN = "generated", "openb", "chosen"
"""How policies are evaluated: on generated clusters, on traces, which no training here saw, and on generated clusters
as members of a portfolio with rules, of which a short simulation takes one."""
RULES = (*BEST_OF, "greedy-forecast")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Variant:
    """A row of trainings: its words in the report, and what they do without."""

    words: str
    without: str = ""
    memory: bool = True


FULL = "everything"
VARIANTS = {
    FULL: Variant("everything"),
    "no-tables": Variant("without tables of leftovers (planned losses are one)", "tables"),
    "no-sequences": Variant("without sequences of typical pods", "sequences"),
    "no-forecasts": Variant("without tables and sequences", "tables,sequences"),
    "no-fgd": Variant("without FGD's score", "fgd"),
    "no-rules": Variant("without the scores of other rules", "rules"),
    "no-memory": Variant("without memory", memory=False),
}


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "variants": (FULL, "no-rules", "no-memory") if quick else tuple(VARIANTS),
        **generated.options(quick),
        "openb": OPENB[:1] if quick else OPENB,
    }


def run(say: Say, quick: bool = False) -> Json:
    """Train every variant with every seed, and let them and the rules fill the same clusters."""
    at, asked = desk(NAME, quick, say), options(quick)
    trained, seconds = {}, {}
    for name in asked["variants"]:
        each = VARIANTS[name]
        made = [
            generated.train(at, f"{name}-{seed}", seed, without=each.without, memory=each.memory)
            for seed in asked["training_seeds"]
        ]
        policies, seconds[name] = [policy for policy, _ in made], [spent for _, spent in made]
        evaluate, choose = (partial(f, at, asked, policies, each.memory) for f in (_evaluate, _evaluate_choice))
        trained[name] = at.once(f"{name}-evaluated", asked, evaluate) | at.once(f"{name}-chosen", asked, choose)
    rules = at.once("rules", asked, partial(_evaluate_rules, at, asked))
    return {**asked, "values": trained, "rules": rules, "seconds": seconds}


def _places(at: Desk, asked: Json, memory: bool = True) -> dict[str, Evaluation]:
    """Make ready the clusters and the traces."""
    where = {GENERATED: generated.unseen(asked), TRACES: workloads(asked["openb"], at.quick)}
    return {name: Evaluation(some, asked["seeds"], memory) for name, some in where.items()}


def _evaluate(at: Desk, asked: Json, policies: list[LinearPolicy], memory: bool) -> Json:
    """Return the percent allocated, by place, training and workload."""
    at.say(f"evaluating {policies[0].name} and the other {len(policies) - 1}")
    return {
        name: [place.allocated(policy) for policy in policies] for name, place in _places(at, asked, memory).items()
    }


def _evaluate_choice(at: Desk, asked: Json, policies: list[LinearPolicy], memory: bool) -> Json:
    """Return the percent allocated, by training and cluster, where each policy is a member beside rules."""
    at.say(f"evaluating the choice among {policies[0].name} and rules, and the other {len(policies) - 1}")
    place = Evaluation(generated.unseen(asked), asked["seeds"], memory)
    rules = [heuristic(name) for name in CHOOSABLE_RULES]
    return {CHOSEN: [place.chosen([policy, *rules]) for policy in policies]}


def _evaluate_rules(at: Desk, asked: Json) -> Json:
    """Return the percent that rules allocate, by place, rule and workload, and the one that a simulation takes."""
    at.say("evaluating rules")
    candidates = [heuristic(name) for name in CHOOSABLE_RULES]
    places = _places(at, asked)
    values = {name: {rule: place.allocated(resolve(rule)) for rule in RULES} for name, place in places.items()}
    return {**values, CHOSEN: places[GENERATED].chosen(candidates)}


def section(result: Json) -> str:
    """Write the section of docs/results.md."""
    rules, ways = result["rules"], (GENERATED, CHOSEN, TRACES)
    full = {way: _means(result["values"][FULL][way]) for way in ways}
    rows = []
    for name in result["variants"]:
        by_way = result["values"][name]
        cells = [VARIANTS[name].words, *_cells(_means(by_way[GENERATED]), full[GENERATED], name == FULL)]
        cells.append(_far_below(result, by_way[GENERATED]))
        for way in (CHOSEN, TRACES):
            cells += _cells(_means(by_way[way]), full[way], name == FULL)
        rows.append(cells)
    for name in RULES:
        alone, traces = (_means([rules[place][name]]) for place in (GENERATED, TRACES))
        below = _far_below(result, [rules[GENERATED][name]])
        cells = [f"`{name}`", *_cells(alone, full[GENERATED]), below, "", "", *_cells(traces, full[TRACES])]
        rows.append(cells)
    rows.append(["rules alone", "", "", "", *_cells(_means([rules[CHOSEN]]), full[CHOSEN]), "", ""])
    header = ["policy", "alone, %", "difference", "1 below", "or a rule, %", "difference", "openb, %", "difference"]
    seconds = [spent for each in result["seconds"].values() for spent in each]
    return "\n".join(
        [
            "## Ablations of the learned policy",
            "",
            f"{generated.described(result)} A training takes {np.mean(seconds):.0f} CPU seconds. It differs from the "
            "training of the first row with the same seed only by what is left out, in training and afterwards. "
            "Percent of the GPUs allocated, means over clusters. *Or a rule*: a short "
            "simulation of each cluster takes the learned policy or one of seven rules, which is how such policies "
            f"are used. *openb*: the learned policy alone on {', '.join(result['openb'])}, which no training here "
            "saw. *Difference* is to the first row, in brackets 95 % intervals over trainings (Student's t), paired by "
            "training. *1 below*: share of the clusters that are more than a point below the best of `fgd`, "
            "`best-fit` and `gpu-packing`.",
            "",
            tables.markdown(header, rows),
        ]
    )


def _cells(by_training: Floats, full: Floats, is_full: bool = False) -> list[str]:
    """Write means, [trainings] or [1], and their difference to those of the first row."""
    difference = "" if is_full else tables.interval(tables.spread(by_training - full))
    return [tables.interval(tables.spread(by_training), sign=False, unit="percent"), difference]


def _means(values: list[list[float]]) -> Floats:
    """Return the means over workloads, [trainings], of values by training and workload."""
    means: Floats = np.array(values, dtype=np.float64).mean(axis=1)
    return means


def _far_below(result: Json, values: list[list[float]]) -> str:
    """Say on how many of the clusters values, [trainings, clusters], are a point below the best of three rules."""
    best = np.array(generated.best_of(result["rules"][GENERATED]))
    return f"{(np.array(values) < best - 1.0).mean():.0%}"
