"""Objectives by name, and weighted mixes of them such as `allocation=1,fragmentation=0.5`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from steersman.cluster.model import Node, Pod
from steersman.errors import UsageError
from steersman.objectives import measures

Need = Literal["", "gpu", "owner", "telemetry"]


@dataclass(frozen=True, slots=True)
class Objective:
    """What an action is rewarded for; every formula is about the state after the action.

    Attributes:
        name: as on the command line.
        number: of its formula in compiled code (`measures`), -1 if an environment of its own computes it.
        formula: for people.
        source: who says so.
        needs: what a workload must have for it to mean anything: GPUs, owners of pods and racks of nodes, telemetry.
    """

    name: str
    number: int
    formula: str
    source: str
    needs: Need = ""


@dataclass(frozen=True, slots=True)
class Mix:
    """A weighted sum of objectives."""

    name: str
    objectives: tuple[Objective, ...]
    weights: tuple[float, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The objectives' numbers in compiled code."""
        return tuple(objective.number for objective in self.objectives)


_FGD = 'Weng et al., "Beware of Fragmentation", USENIX ATC 2023'
_AAML = "acsheller/AAML, there on the state before the action"
_THESIS = "SoniaMatranga/SoniaMatrangaTesi"

_ALL = (
    Objective("allocation", measures.ALLOCATION, "(G_after - G_before) / 1000, G the GPU milli in use", _FGD, "gpu"),
    Objective(
        "fragmentation", measures.FRAGMENTATION, "(F_before - F_after) / 1000, F the fragmented GPU milli", _FGD, "gpu"
    ),
    Objective(
        "balance", measures.BALANCE, "1 - 2 s / (s + 1), s the standard deviation of the nodes' CPU shares", _AAML
    ),
    Objective("most-allocated", measures.MOST_ALLOCATED, "nodes without a pod / nodes", f"{_THESIS}, objective MA"),
    Objective(
        "least-allocated",
        measures.LEAST_ALLOCATED,
        "1 - sqrt(mean of u²), u the nodes' CPU shares",
        f"{_THESIS}, objective LA, there +10 for the least used node and -1 for the most used one",
    ),
    Objective(
        "waiting-time",
        measures.WAITING_TIME,
        "-(pod-hours waited from the action to the next decision)",
        "the mean waiting time of queueing theory (Little 1961): the sum is that of all pods' waiting times",
    ),
    Objective(
        "locality",
        measures.LOCALITY,
        "running pods of the pod's owner in its rack / running pods of its owner, after the action",
        "steersman",
        "owner",
    ),
    Objective(
        "least-connections",
        -1,
        "mean / maximum of the nodes' TCP connections",
        f"{_THESIS}, objective LC",
        "telemetry",
    ),
    Objective(
        "latency-aware",
        -1,
        "(share of nodes without a pod + requested share of the used nodes' CPU + how the pod's limits are kept) / 3",
        f"{_THESIS}, objective P0",
        "telemetry",
    ),
)

OBJECTIVES = {objective.name: objective for objective in _ALL}
"""Every objective by name."""


def resolve(spec: str) -> Mix:
    """The objective or weighted mix that `spec` names.

    Raises:
        UsageError: an objective is unknown or twice there, or a weight is not a number above 0.
    """
    if "=" not in spec:
        return Mix(spec, (_find(spec),), (1.0,))
    objectives, weights = [], []
    for part in spec.split(","):
        name, _, text = (piece.strip() for piece in part.partition("="))
        objective = _find(name)
        if objective in objectives:
            raise UsageError(f"objective {spec!r}: {name!r} is there twice")
        objectives.append(objective)
        weights.append(_weight(spec, name, text))
    return Mix(spec, tuple(objectives), tuple(weights))


def check(mix: Mix, workload: str, nodes: tuple[Node, ...], pods: tuple[Pod, ...] | None) -> None:
    """That a workload has what the objectives need; of a live cluster nobody knows which pods will come (None).

    Raises:
        UsageError: names the objective, the workload and what it lacks.
    """
    for objective in mix.objectives:
        lacks = ""
        if objective.needs == "gpu" and not any(node.gpu_count for node in nodes):
            lacks = "its nodes have no GPU; balance, most-allocated and least-allocated need none"
        elif objective.needs == "gpu" and not _may(pods, lambda pod: pod.requests.gpu_count):
            lacks = "its pods ask for no GPU; balance, most-allocated and least-allocated need none"
        elif objective.needs == "owner" and not _may(pods, lambda pod: pod.owner):
            lacks = "its pods have no owner, such as a Deployment or a job"
        elif objective.needs == "owner" and not any("rack" in node.labels for node in nodes):
            lacks = "its nodes have no label 'rack'; steersman workload topology writes one"
        elif objective.needs == "telemetry":
            lacks = "it has no telemetry; steersman/Latency-v0 does"
        if lacks:
            raise UsageError(f"objective {objective.name!r} means nothing on {workload}: {lacks}")


def _may(pods: tuple[Pod, ...] | None, holds: Callable[[Pod], object]) -> bool:
    """Whether something holds for one of the pods, or might, where they are not known."""
    return pods is None or any(map(holds, pods))


def _find(name: str) -> Objective:
    if name not in OBJECTIVES:
        raise UsageError(
            f"unknown objective {name!r}; known are {', '.join(OBJECTIVES)}, and mixes (allocation=1,fragmentation=0.5)"
        )
    return OBJECTIVES[name]


def _weight(spec: str, name: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight > 0):
        raise UsageError(f"objective {spec!r}: the weight of {name!r} must be a number above 0, not {text!r}")
    return weight
