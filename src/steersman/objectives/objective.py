"""Objectives: the reward of an action from the state before it and the state *after* it (rows of `summary`).

To add one: a number, an entry in `BUILT_IN`, and its formula in `core/src/episode.rs`. A user's own needs none of that,
see `Objective.function` and `registry`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

ALLOCATION, FRAGMENTATION, BALANCE, MOST_ALLOCATED, LEAST_ALLOCATED, WAITING_TIME, LOCALITY = range(7)
"""Numbers of the objectives in the compiled core."""
UNCOMPILED = -1
"""Number of objectives that the core does not have."""

Floats = npt.NDArray[np.float64]
Need = Literal["", "gpu", "owner", "telemetry"]


@dataclass(frozen=True, slots=True)
class Objective:
    """Reward of an action; every formula is about the state after the action.

    Attributes:
        name: name on the command line.
        number: of its formula in the core, `UNCOMPILED` if an environment of its own or `function` computes it.
        formula: for people.
        source: where it is published.
        needs: what a workload must have: GPUs, owners of pods and racks of nodes, telemetry.
        reference: rule that a policy for it is compared with by default.
        gamma: default discount of agents: 0 where the next reward tells placements apart, and later ones add noise.
        function: of a user's own objective: from the states before and after actions, [E, 16] as in `summary`, to their
            rewards, [E].
    """

    name: str
    number: int = UNCOMPILED
    formula: str = ""
    source: str = ""
    needs: Need = ""
    reference: str = "least-allocated"
    gamma: float = 0.0
    function: Callable[[Floats, Floats], Floats] | None = None


_FGD = 'Weng et al., "Beware of Fragmentation", USENIX ATC 2023'
_AAML = "acsheller/AAML, there on the state before the action"
_THESIS = "SoniaMatranga/SoniaMatrangaTesi"

BUILT_IN = (
    Objective(
        "allocation", ALLOCATION, "(G_after - G_before) / 1000, G the GPU milli in use", _FGD, "gpu", "fgd", gamma=0.99
    ),
    Objective(
        "fragmentation", FRAGMENTATION, "(F_before - F_after) / 1000, F the fragmented GPU milli", _FGD, "gpu", "fgd"
    ),
    Objective("balance", BALANCE, "1 - 2 s / (s + 1), s the standard deviation of the nodes' CPU shares", _AAML),
    Objective(
        "most-allocated",
        MOST_ALLOCATED,
        "nodes without a pod / nodes",
        f"{_THESIS}, objective MA",
        "",
        "most-allocated",
    ),
    Objective(
        "least-allocated",
        LEAST_ALLOCATED,
        "1 - sqrt(mean of u²), u the nodes' CPU shares",
        f"{_THESIS}, objective LA, there +10 for the least used node and -1 for the most used one",
    ),
    Objective(
        "waiting-time",
        WAITING_TIME,
        "-(pod-hours waited from the action to the next decision)",
        "the mean waiting time of queueing theory (Little 1961): the sum is that of all pods' waiting times",
        reference="best-fit",
        gamma=0.99,
    ),
    Objective(
        "locality",
        LOCALITY,
        "running pods of the pod's owner in its rack / running pods of its owner, after the action",
        "steersman",
        "owner",
        "best-fit",
    ),
    Objective(
        "least-connections",
        UNCOMPILED,
        "mean / maximum of the nodes' TCP connections",
        f"{_THESIS}, objective LC",
        "telemetry",
    ),
    Objective(
        "latency-aware",
        UNCOMPILED,
        "(share of nodes without a pod + requested share of the used nodes' CPU + how the pod's limits are kept) / 3",
        f"{_THESIS}, objective P0",
        "telemetry",
    ),
)
"""In the order of help texts."""
