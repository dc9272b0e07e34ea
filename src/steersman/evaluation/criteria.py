"""What a comparison judges policies by: a metric of the runs, which value is better, and its labels.

A registered objective has the metric that says in a user's units what it aims at (`balance`: the standard deviation of
the nodes' CPU shares). Others, such as mixes and a user's own, are judged by their mean reward over the decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from steersman.core.errors import UsageError
from steersman.objectives import registry
from steersman.objectives.registry import WeightedObjectives
from steersman.simulation.metrics import reward_metric
from steersman.simulation.result import Protocol
from steersman.workloads.workload import Workload

WAITING_TIME = "waiting-time"


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric of runs as tables show it."""

    metric: str  # its name in `metrics.csv`
    title: str  # title of a column, with the unit
    short: str  # the same where space is scarce
    digits: int = field(default=2, kw_only=True)


@dataclass(frozen=True, slots=True)
class Criterion(Measure):
    """A metric by which policies are compared."""

    phrase: str  # its name in a sentence
    unit: str  # of differences
    larger_is_better: bool
    curve: str = ""  # its values over a run: a field of `Curve` or an objective's rewards; empty if it has none

    @property
    def symbol(self) -> str:
        """Return what follows its values, such as ` %`."""
        return {"points": " %", "s": " s"}.get(self.unit, "")


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


def criterion(objective: WeightedObjectives, protocol: Protocol) -> Criterion:
    known = {"timed": TIMED_CRITERIA, "latency": LATENCY_CRITERIA}.get(protocol, FINAL_STATE_CRITERIA)
    if objective.name in known:
        return known[objective.name]
    name = objective.name
    return Criterion(
        reward_metric(name), f"{name}, mean reward", name, f"mean reward of {name}", "", True, name, digits=4
    )


FINAL_STATE_CRITERIA = {
    name: replace(each, curve=each.metric)
    for name, each in {
        "allocation": Criterion(
            "gpu_allocation_percent", "GPU allocated at the end, %", "GPU %", "share of allocated GPUs", "points", True
        ),
        "fragmentation": Criterion(
            "gpu_fragmented_percent",
            "GPU fragmented at the end, % of all GPUs",
            "Fragmented %",
            "share of fragmented GPU",
            "points",
            False,
        ),
        "balance": Criterion(
            "cpu_balance_percent",
            "Standard deviation of the nodes' CPU use at the end, %",
            "CPU dev. %",
            "standard deviation of CPU use",
            "points",
            False,
        ),
        "most-allocated": Criterion(
            "nodes_used", "Nodes in use at the end", "Nodes used", "number of nodes in use", "nodes", False
        ),
    }.items()
}

# As means over time: where pods leave, the last moment says little.
_OVER_TIME = {
    "allocation": "gpu_allocation_over_time_percent",
    "fragmentation": "gpu_fragmented_over_time_percent",
    "balance": "cpu_balance_over_time_percent",
    "most-allocated": "nodes_used_over_time",
}
TIMED_CRITERIA = {
    name: replace(each, metric=_OVER_TIME[name], title=each.title.replace("at the end", "over time"))
    for name, each in FINAL_STATE_CRITERIA.items()
} | {
    WAITING_TIME: Criterion(
        "waiting_time_mean_seconds", "Mean wait, s", "Mean wait s", "mean wait", "s", False, "pods_waiting", digits=1
    )
}

_EVEN_USE = replace(
    FINAL_STATE_CRITERIA["balance"],
    metric="cpu_use_deviation_percent",
    title="Standard deviation of the nodes' CPU use over time, %",
)
LATENCY_CRITERIA = {
    "most-allocated": Criterion(
        "empty_nodes", "Nodes without a pod over time", "Empty nodes", "number of empty nodes", "nodes", True
    ),
    "least-allocated": _EVEN_USE,
    "balance": _EVEN_USE,
    "least-connections": Criterion(
        "connections_maximum_mean",
        "Connections of the node with most, over time",
        "Most conn.",
        "number of connections of the node with most",
        "connections",
        False,
        digits=1,
    ),
    "latency-aware": Criterion(
        "soft_limits_kept_percent",
        "Pods placed within their soft limit of latency, %",
        "Soft kept %",
        "share of pods within their soft limit of latency",
        "points",
        True,
    ),
}
"""The figures of Matranga's objectives, of what is really used, see `envs.latency.environment`."""
