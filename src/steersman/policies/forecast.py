"""`greedy-forecast`: place each pod where forecasts of what will be lost in the end grow least; nothing is learned.

Forecasts are features of the view `gpu`: what a node would have left after fixed sequences of typical pods, and, for
pods that ask for a part of a device, what planning expects devices to lose (`policies.planning`). The score is minus
the growth of these by the placement, in GPUs, so the rule is a linear policy whose weights are written down here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import steersman
from steersman.features import GPU
from steersman.policies.learned import KINDS, WEIGHTS
from steersman.policies.linear_policy import LinearPolicy
from steersman.policies.policy_file import Card

NAME = "greedy-forecast"

FORECASTS = {"filled_idle_change": 0.5, "gpu_filled_idle_change": 0.5}
"""Features of a node and their weights, for every pod."""
SHARE_FORECASTS = {"lost_planned_change": 0.5}
"""The same for pods that ask for a part of a device, in addition."""

Array = npt.NDArray[np.float64]


def forecast_weights() -> Array:
    """Weights, [4, F] by kind of pod, of the node features whose sum is the growth of the expected loss, in GPUs."""
    weights = np.zeros((KINDS, len(GPU.node)))
    for name, weight in FORECASTS.items():
        weights[:, GPU.node_column(name)] = weight
    for name, weight in SHARE_FORECASTS.items():
        weights[GPU.pod_column("gpu_part"), GPU.node_column(name)] = weight
    return weights


def forecast_policy(name: str = NAME) -> LinearPolicy:
    """Make the policy, under the name that results call it."""
    weights = np.zeros((KINDS, WEIGHTS))
    weights[:, : len(GPU.node)] = -forecast_weights()
    return LinearPolicy(name, weights)


def forecast_card(name: str = NAME) -> Card:
    """Make the model card of a policy file that holds it."""
    return Card(
        name=name,
        view=GPU.name,
        view_version=GPU.version,
        network="linear",
        objective="expected leftovers",
        algorithm="none",
        made_by=f"steersman {steersman.__version__}",
    )
