"""Policy `greedy-forecast`: place each pod where the forecast loss of GPU grows least; nothing is learned.

Forecasts are features of view `gpu`: the idle GPU of a node after fixed sequences of typical pods and, for pods that
request a share of a device, the devices' expected final loss (`policies.gpu_state.planning`). The score is minus their
growth by the placement, in GPUs: a linear policy with the constant weights below.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.policies.features import GPU, POD_KINDS
from steersman.policies.files.policy_file import Card
from steersman.policies.gpu_state.arrays import WEIGHTS
from steersman.policies.linear import LinearPolicy
from steersman.version import __version__

NAME = "greedy-forecast"

FORECASTS = {"filled_idle_change": 0.5, "gpu_filled_idle_change": 0.5}
"""Weights of node features for all pods."""
SHARE_FORECASTS = {"lost_planned_change": 0.5}
"""Additional weights for pods that request a share of a device."""

Array = npt.NDArray[np.float64]


def forecast_weights() -> Array:
    """Return weights by pod kind, [4, F], of the node features whose sum is the growth of expected loss, in GPUs."""
    weights = np.zeros((POD_KINDS, len(GPU.node)))
    for name, weight in FORECASTS.items():
        weights[:, GPU.node_column(name)] = weight
    for name, weight in SHARE_FORECASTS.items():
        weights[GPU.pod_column("gpu_part"), GPU.node_column(name)] = weight
    return weights


def forecast_policy(name: str = NAME) -> LinearPolicy:
    """Return the policy with a name for results."""
    weights = np.zeros((POD_KINDS, WEIGHTS))
    # Minus: the score is highest where the loss grows least. The columns are those of `GPU.node`.
    weights[:, : len(GPU.node)] = -forecast_weights()
    return LinearPolicy(name, weights)


def forecast_card(name: str = NAME) -> Card:
    """Return the model card of the policy's file."""
    return Card(
        name=name,
        view=GPU.name,
        view_version=GPU.version,
        network="linear",
        objective="expected leftovers",
        algorithm="none",
        made_by=f"steersman {__version__}",
    )
