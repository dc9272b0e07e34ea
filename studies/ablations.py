"""What a learned policy owes to its parts: the same trainings with parts of what it sees left out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from steersman.policies.heuristics import heuristic
from steersman.policies.policy import LinearPolicy
from steersman.policies.registry import resolve
from steersman.training.portfolio import CHOOSABLE_RULES
from studies import generated, tables
from studies.common import Desk, Json, Say, desk, workloads
from studies.generated import BEST_OF, Evaluation

NAME = "ablations"
MINUTES = 25
OPENB = ("default", "gpushare60", "gpuspec25", "multigpu40")
GENERATED, TRACES = "generated", "openb"
"""Where policies are evaluated; no training here saw a trace."""
RULES = (*BEST_OF, "greedy-forecast")
CHOSEN = "chosen"
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
CHOICE = "everything, or a rule where a short simulation shows it better"
CHOSEN_RULE = "a rule, by a short simulation"


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
    full: list[LinearPolicy] = []
    for name in asked["variants"]:
        each = VARIANTS[name]
        made = [
            generated.train(at, f"{name}-{seed}", seed, without=each.without, memory=each.memory)
            for seed in asked["training_seeds"]
        ]
        policies, seconds[name] = [policy for policy, _ in made], [spent for _, spent in made]
        full = policies if name == FULL else full
        evaluate = partial(_evaluate, at, asked, policies, each.memory)
        trained[name] = at.once(f"{name}-evaluated", asked, evaluate)
    rules = at.once("rules", asked, partial(_evaluate_rules, at, asked))
    choice = at.once("choice", asked, partial(_evaluate_choice, at, asked, full))
    return {**asked, "values": trained | {CHOSEN: choice}, "rules": rules, "seconds": seconds}


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


def _evaluate_choice(at: Desk, asked: Json, policies: list[LinearPolicy]) -> Json:
    """Return the same where each policy is one of several members, of which a simulation takes the best."""
    at.say("evaluating the choice among a policy and rules")
    rules = [heuristic(name) for name in CHOOSABLE_RULES]
    return {name: [place.chosen([policy, *rules]) for policy in policies] for name, place in _places(at, asked).items()}


def _evaluate_rules(at: Desk, asked: Json) -> Json:
    """Return the percent that rules allocate, by place, rule and workload."""
    at.say("evaluating rules")
    candidates = [heuristic(name) for name in CHOOSABLE_RULES]
    return {
        name: {rule: place.allocated(resolve(rule)) for rule in RULES} | {CHOSEN: place.chosen(candidates)}
        for name, place in _places(at, asked).items()
    }


def section(result: Json) -> str:
    """Write the section of docs/results.md."""
    full = {place: _means(result["values"][FULL][place]) for place in (GENERATED, TRACES)}
    rows = []
    for name in (*result["variants"], CHOSEN):
        cells = [CHOICE if name == CHOSEN else VARIANTS[name].words]
        for place in (GENERATED, TRACES):
            by_training = _means(result["values"][name][place])
            cells += [
                tables.interval(tables.over_trainings(by_training), sign=False),
                "" if name == FULL else tables.interval(tables.over_trainings(by_training - full[place])),
            ]
            if place == GENERATED:
                cells.append(_far_below(result, np.array(result["values"][name][place])))
        rows.append(cells)
    for name in (*RULES, CHOSEN):
        cells = [CHOSEN_RULE if name == CHOSEN else f"`{name}`"]
        for place in (GENERATED, TRACES):
            value = float(np.mean(result["rules"][place][name]))
            cells += [tables.number(value), tables.interval(tables.over_trainings(value - full[place]))]
            if place == GENERATED:
                cells.append(_far_below(result, np.array([result["rules"][place][name]])))
        rows.append(cells)
    header = ["policy", "generated, %", "difference", "1 below", "openb, %", "difference"]
    seconds = [spent for each in result["seconds"].values() for spent in each]
    return "\n".join(
        [
            "## What the learned policy owes to its parts",
            "",
            f"{generated.described(result)} A training takes {np.mean(seconds):.0f} CPU seconds, and differs from the "
            "one in the first row with the same seed by what is left out alone; what is left out is seen neither in "
            "training nor afterwards. Percent of the GPUs allocated, means over clusters, and over the openb workloads "
            f"{', '.join(result['openb'])}, which no training here saw; *difference* is to the first row. In brackets "
            "95 % intervals over trainings (Student's t), paired by training. *1 below*: share of the clusters that "
            "are more than a point below the best of `fgd`, `best-fit` and `gpu-packing`.",
            "",
            tables.markdown(header, rows),
        ]
    )


def _means(values: list[list[float]]) -> Floats:
    """Return the means over workloads, [trainings], of values by training and workload."""
    means: Floats = np.array(values, dtype=np.float64).mean(axis=1)
    return means


def _far_below(result: Json, values: Floats) -> str:
    """Say on how many of the clusters values, [trainings, clusters], are a point below the best of three rules."""
    best = np.array(generated.best_of(result["rules"][GENERATED]))
    return f"{(values < best - 1.0).mean():.0%}"
