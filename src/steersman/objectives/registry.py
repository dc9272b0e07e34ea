"""Objectives by name, and weighted sums of them such as `allocation=1,fragmentation=0.5`.

An installed package adds one by an entry point of the group `steersman.objectives` that leads to an `Objective` of
`objective`; `--objective module:NAME` names one that is not installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from steersman.cluster.gpu_units import gpu_milli, requested_milli
from steersman.cluster.model import Node, Pod
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.extensions import Registry, attribute_errors
from steersman.objectives.objective import BUILT_IN, UNCOMPILED, Floats, Objective

LIMIT = "max-kind-loss"  # name of the limit of what any kind of pod may lose, after an objective or a portfolio's name


@dataclass(frozen=True, slots=True)
class WeightedObjectives:
    """Weighted sum of objectives."""

    name: str
    objectives: tuple[Objective, ...]
    weights: tuple[float, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers, in the core, of the objectives that are not a user's own."""
        return tuple(objective.number for objective in self.objectives if objective.function is None)

    @property
    def compiled_weights(self) -> tuple[float, ...]:
        pairs = zip(self.objectives, self.weights, strict=True)
        return tuple(weight for objective, weight in pairs if objective.function is None)

    @property
    def gamma(self) -> float:
        """Return the default discount: that of the part whose rewards come latest."""
        return max(objective.gamma for objective in self.objectives)

    @property
    def has_own(self) -> bool:
        return any(objective.function is not None for objective in self.objectives)

    def own_rewards(self, before: Floats, after: Floats) -> Floats:
        """Return what a user's own objectives add to the rewards, [E], of actions between states, [E, 16]."""
        total = np.zeros(len(before))
        for objective, weight in zip(self.objectives, self.weights, strict=True):
            if objective.function is not None:
                total += weight * _rewards(objective, before, after)
        return total


def _rewards(objective: Objective, before: Floats, after: Floats) -> Floats:
    assert objective.function is not None
    with attribute_errors(f"objective {objective.name!r}"):
        rewards = np.asarray(objective.function(before.copy(), after.copy()), dtype=np.float64)
    if rewards.shape != (len(before),) or not np.isfinite(rewards).all():
        wrong = f"have the shape {rewards.shape}" if rewards.shape != (len(before),) else "are not all finite"
        raise SteersmanError(f"objective {objective.name!r}: its rewards {wrong}; expected {len(before)} numbers")
    return rewards


OBJECTIVES = {objective.name: objective for objective in BUILT_IN}
REGISTRY: Registry[Objective] = Registry(
    "objective",
    "steersman.objectives",
    Objective,
    OBJECTIVES,
    ["mixes (allocation=1,fragmentation=0.5) and module:NAME"],
)


def limit_of(text: str) -> float | None:
    """Return the percentage of a limit; None if it is not a number of at least 0."""
    try:
        limit = float(text)
    except ValueError:
        return None
    return limit if 0.0 <= limit < math.inf else None


def split_limit(spec: str) -> tuple[str, float | None]:
    """Return the objective of a text, and the percentage of its last part `max-kind-loss=PERCENT`; None without one."""
    objective, found, text = spec.rpartition(f",{LIMIT}=")
    if not found:
        return spec, None
    if (limit := limit_of(text)) is None:
        raise UsageError(f"objective {spec!r}: {LIMIT} must be a number of at least 0, not {text!r}")
    return objective, limit


def resolve(spec: str) -> WeightedObjectives:
    if split_limit(spec)[1] is not None:
        raise UsageError(f"objective {spec!r}: {LIMIT} is for evolution on workloads, which sees whole runs")
    if "=" not in spec:
        return WeightedObjectives(spec, (_find(spec),), (1.0,))
    objectives, weights = [], []
    for part in spec.split(","):
        name, _, text = (piece.strip() for piece in part.partition("="))
        objective = _find(name)
        if objective in objectives:
            raise UsageError(f"objective {spec!r}: {name!r} is there twice")
        objectives.append(objective)
        weights.append(_weight(spec, name, text))
    return WeightedObjectives(spec, tuple(objectives), tuple(weights))


def check(objective: WeightedObjectives, workload: str, nodes: tuple[Node, ...], pods: tuple[Pod, ...] | None) -> None:
    """Check that a workload has what the objectives need; pods of a live cluster are unknown (None)."""
    for each in objective.objectives:
        lacks = ""
        if each.needs == "gpu" and not any(map(gpu_milli, nodes)):
            lacks = "its nodes have no GPU; balance, most-allocated and least-allocated need none"
        elif each.needs == "gpu" and not _may(pods, lambda pod: requested_milli(pod.requests, {})):
            lacks = "its pods request no GPU; balance, most-allocated and least-allocated need none"
        elif each.needs == "owner" and not _may(pods, lambda pod: pod.owner):
            lacks = "its pods have no owner, such as a Deployment or a job"
        elif each.needs == "owner" and not any("rack" in node.labels for node in nodes):
            lacks = "its nodes have no label 'rack'; steersman workload topology writes one"
        elif each.needs == "telemetry":
            lacks = "it has no telemetry; --protocol latency, steersman/Latency-v0, has"
        if lacks:
            raise UsageError(f"objective {each.name!r} is undefined on {workload}: {lacks}")


def _may(pods: tuple[Pod, ...] | None, holds: Callable[[Pod], object]) -> bool:
    """Return whether something holds for one of the pods, or may hold where they are unknown."""
    return pods is None or any(map(holds, pods))


def _find(name: str) -> Objective:
    objective = REGISTRY.find(name)
    if name not in OBJECTIVES and (objective.function is None or objective.number != UNCOMPILED):
        raise UsageError(f"objective {name!r}: it must have a function of its own, and no number")
    return objective


def _weight(spec: str, name: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight > 0):
        raise UsageError(f"objective {spec!r}: the weight of {name!r} must be a number above 0, not {text!r}")
    return weight
