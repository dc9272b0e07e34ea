"""What a comparison judges policies by: a metric of the runs, which value is better, and its labels.

A registered objective has the metric that says in a user's units what it aims at (`balance`: the standard deviation of
the nodes' CPU shares). Others, such as mixes and a user's own, are judged by their mean reward over the decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from steersman.core.errors import UsageError
from steersman.objectives import registry
from steersman.objectives.registry import WeightedObjectives
from steersman.simulation.metrics import reward_metric
from steersman.simulation.result import Protocol
from steersman.workloads.workload import Workload

WAITING_TIME = "waiting-time"


@dataclass(frozen=True, slots=True)
class Criterion:
    """A metric by which policies are compared.

    Attributes:
        metric: its name in `metrics.csv`.
        title: title of a column, with the unit.
        short: the same where space is scarce.
        phrase: its name in a sentence.
        symbol: what follows its values, such as ` %`.
        unit: of differences.
        curve: its values over a run: a field of `Curve` or an objective's rewards; empty if it has none.
    """

    metric: str
    title: str
    short: str
    phrase: str
    symbol: str
    unit: str
    digits: int
    larger_is_better: bool
    curve: str = ""


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
    """Return what runs of a protocol are compared by for an objective."""
    known = {"timed": TIMED_CRITERIA, "latency": LATENCY_CRITERIA}.get(protocol, FINAL_STATE_CRITERIA)
    if objective.name in known:
        return known[objective.name]
    return Criterion(
        reward_metric(objective.name),
        f"{objective.name}, mean reward",
        objective.name,
        f"mean reward of {objective.name}",
        "",
        "",
        4,
        True,
        objective.name,
    )


def _final_state_criteria() -> dict[str, Criterion]:
    return {
        "allocation": Criterion(
            "gpu_allocation_percent",
            "GPU allocated at the end, %",
            "GPU %",
            "share of allocated GPUs",
            " %",
            "points",
            2,
            True,
            "gpu_allocation_percent",
        ),
        "fragmentation": Criterion(
            "gpu_fragmented_percent",
            "GPU fragmented at the end, % of all GPUs",
            "Fragmented %",
            "share of fragmented GPU",
            " %",
            "points",
            2,
            False,
            "gpu_fragmented_percent",
        ),
        "balance": Criterion(
            "cpu_balance_percent",
            "Standard deviation of the nodes' CPU use at the end, %",
            "CPU dev. %",
            "standard deviation of CPU use",
            " %",
            "points",
            2,
            False,
            "cpu_balance_percent",
        ),
        "most-allocated": Criterion(
            "nodes_used",
            "Nodes in use at the end",
            "Nodes used",
            "number of nodes in use",
            "",
            "nodes",
            2,
            False,
            "nodes_used",
        ),
    }


def _over_time(criteria: dict[str, Criterion]) -> dict[str, Criterion]:
    """Return the same as means over time: where pods leave, the last moment says little."""
    metrics = {
        "allocation": "gpu_allocation_over_time_percent",
        "fragmentation": "gpu_fragmented_over_time_percent",
        "balance": "cpu_balance_over_time_percent",
        "most-allocated": "nodes_used_over_time",
    }
    return {
        name: replace(each, metric=metrics[name], title=each.title.replace("at the end", "over time"))
        for name, each in criteria.items()
    }


FINAL_STATE_CRITERIA = _final_state_criteria()
TIMED_CRITERIA = _over_time(FINAL_STATE_CRITERIA) | {
    WAITING_TIME: Criterion(
        "waiting_time_mean_seconds", "Mean wait, s", "Mean wait s", "mean wait", " s", "s", 1, False, "pods_waiting"
    )
}

_EVEN_USE = Criterion(
    "cpu_use_deviation_percent",
    "Standard deviation of the nodes' CPU use over time, %",
    "CPU dev. %",
    "standard deviation of CPU use",
    " %",
    "points",
    2,
    False,
    "cpu_balance_percent",
)
LATENCY_CRITERIA = {
    "most-allocated": Criterion(
        "empty_nodes", "Nodes without a pod over time", "Empty nodes", "number of empty nodes", "", "nodes", 2, True
    ),
    "least-allocated": _EVEN_USE,
    "balance": _EVEN_USE,
    "least-connections": Criterion(
        "connections_maximum_mean",
        "Connections of the node with most, over time",
        "Most conn.",
        "number of connections of the node with most",
        "",
        "connections",
        1,
        False,
    ),
    "latency-aware": Criterion(
        "soft_limits_kept_percent",
        "Pods placed within their soft limit of latency, %",
        "Soft kept %",
        "share of pods within their soft limit of latency",
        " %",
        "points",
        2,
        True,
    ),
}
"""The figures of Matranga's objectives, of what is really used, see `envs.latency.episode_metrics`."""
