"""What a comparison judges policies by: a metric of the runs, which value is better, and its labels.

A registered objective has the metric that says in a user's units what it aims at (`balance`: the standard deviation of
the nodes' CPU shares). Others, such as mixes and a user's own, are judged by their mean reward over the decisions.
"""

from __future__ import annotations

from collections.abc import Sequence

from steersman.core.errors import UsageError
from steersman.objectives import registry
from steersman.objectives.registry import WeightedObjectives
from steersman.simulation.measures import COURSE, LATENCY, MEAN_WAIT, Measure
from steersman.simulation.metrics import reward_metric
from steersman.simulation.result import Protocol
from steersman.workloads.workload import Workload

WAITING_TIME = "waiting-time"


def parse_objectives(texts: Sequence[str]) -> tuple[WeightedObjectives, ...]:
    """Return the objectives of texts: names separated by commas, or a weighted sum such as `balance=1,locality=0.5`."""
    result: dict[str, WeightedObjectives] = {}
    for text in filter(None, texts):
        for spec in [text] if "=" in text else [part.strip() for part in text.split(",")]:
            objective = registry.resolve(spec)
            if spec in result:
                raise UsageError(f"objective {spec!r} is there twice; each is compared once")
            result[spec] = objective
    return tuple(result.values())


def check_objectives(
    objectives: Sequence[WeightedObjectives], workloads: Sequence[Workload], protocols: Sequence[Protocol]
) -> tuple[Protocol, ...]:
    """Return those of the protocols in which all objectives are defined."""
    for objective in objectives:
        for workload in workloads:
            registry.check(objective, workload.name, workload.eligible_nodes, workload.pods)
    waits = [each.name for each in objectives if any(part.name == WAITING_TIME for part in each.objectives)]
    if waits and "timed" not in protocols:
        raise UsageError(
            f"objective {waits[0]!r} is undefined in --protocol {' and '.join(protocols)}: no pod waits; "
            "expected --protocol timed, with times in the data or --load"
        )
    return ("timed",) if waits else tuple(protocols)


def criterion(objective: WeightedObjectives, protocol: Protocol) -> Measure:
    known = {"timed": TIMED_CRITERIA, "latency": LATENCY_CRITERIA}.get(protocol, FINAL_STATE_CRITERIA)
    name = objective.name
    reward = Measure(
        reward_metric(name), "", f"{name}, mean reward", name, f"mean reward of {name}", True, 4, curve=name
    )
    return known.get(name, reward)


FINAL_STATE_CRITERIA = {each.objective: each.at_end() for each in COURSE.values() if each.objective}
# As means over time: where pods leave, the last moment says little.
TIMED_CRITERIA = {each.objective: each.mean_over_time() for each in COURSE.values() if each.objective}
TIMED_CRITERIA[WAITING_TIME] = MEAN_WAIT
LATENCY_CRITERIA = {each.objective: each for each in LATENCY.values() if each.objective}
LATENCY_CRITERIA["least-allocated"] = LATENCY_CRITERIA["balance"]
