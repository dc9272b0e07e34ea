"""Policy `greedy-forecast`: place each pod where the forecast loss of GPU grows least; nothing is learned.

Forecasts are features of view `gpu`: the idle GPU of a node after fixed sequences of typical pods and, for pods that
request a share of a device, the devices' expected final loss (`policies.leftovers`). The score is minus their
growth by the placement, in GPUs: a linear policy with the constant weights below.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from steersman.policies.features import GPU, POD_KINDS
from steersman.policies.learned_weights import BEST_FIT, RULE_COUNT, WEIGHTS
from steersman.policies.linear import LinearPolicy
from steersman.policies.policy_file import Card
from steersman.version import __version__

NAME = "greedy-forecast"

FORECASTS = {"filled_idle_change": 0.5, "gpu_filled_idle_change": 0.5}  # weights of node features for all pods
SHARE_FORECASTS = {"lost_planned_change": 0.5}  # additional weights for pods that request a share of a device

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


def blend(fgd: float, best_fit: float) -> LinearPolicy:
    """Return `greedy-forecast` with a weight of FGD's score and of best fit's, in GPUs for a point.

    A forecast alone is equal for many nodes where sequences of typical pods fill them alike.
    """
    added = [f"{weight:g} {rule}" for weight, rule in ((fgd, "fgd"), (best_fit, "best-fit")) if weight]
    policy = forecast_policy(f"{NAME} with {' and '.join(added)}" if added else NAME)
    policy.weights[:, -1] = fgd
    if not best_fit:
        return policy
    rules = np.zeros((POD_KINDS, RULE_COUNT))
    rules[:, BEST_FIT] = best_fit
    return replace(policy, rules=rules)


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
