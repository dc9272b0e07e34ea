"""`ma`, `la`, `lc` and `p0`: reference C's objectives as policies, by the rules of `telemetry_rules`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.state import ClusterState
from steersman.policies.telemetry_rules import LATENCY_AWARE, LEAST_ALLOCATED, LEAST_CONNECTIONS, MOST_ALLOCATED
from steersman.policies.telemetry_sight import Sight
from steersman.workloads.mix import TypicalPod

OBJECTIVES = {"ma": MOST_ALLOCATED, "la": LEAST_ALLOCATED, "lc": LEAST_CONNECTIONS, "p0": LATENCY_AWARE}
"""Names of the policies, and their rules."""


@dataclass(frozen=True, slots=True)
class TelemetryPolicy:
    """Decides by what is measured of the nodes; where nothing is, by what their pods request.

    Attributes:
        name: what results call it.
        rule: its number.
    """

    name: str
    rule: int

    def prepare(self, state: ClusterState, mix: tuple[TypicalPod, ...], seed: int) -> None:
        """See `policy.Policy`: there is nothing to prepare."""

    def scores(self, state: ClusterState, class_id: int, feasible: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """See `policy.Policy`: where there is no telemetry, as in a simulation of requests."""
        return Sight(state).scores(self.rule, class_id, feasible)
