"""Objectives that can be rewarded where nodes' metrics are known, by their numbers in the core."""

from __future__ import annotations

from steersman.core.errors import UsageError
from steersman.objectives import objective
from steersman.objectives.registry import WeightedObjectives

LEAST_CONNECTIONS, LATENCY_AWARE = 100, 101
"""Numbers of the objectives that need metrics; the others are those of `objective`, of the CPU that is used."""

TELEMETRY_OBJECTIVES = {
    "balance": objective.BALANCE,
    "most-allocated": objective.MOST_ALLOCATED,
    "least-allocated": objective.LEAST_ALLOCATED,
    "least-connections": LEAST_CONNECTIONS,
    "latency-aware": LATENCY_AWARE,
}
"""The objectives by name; CPU is what is used, not what is requested."""


def check(objective: WeightedObjectives, where: str) -> None:
    for each in objective.objectives:
        if each.name not in TELEMETRY_OBJECTIVES:
            known = ", ".join(TELEMETRY_OBJECTIVES)
            raise UsageError(f"objective {each.name!r} means nothing in {where}; these do: {known}")
