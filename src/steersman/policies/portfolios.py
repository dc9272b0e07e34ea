"""Policies `rules` and `steersman`: short simulations choose one of several policies; neither ships learned weights.

`rules` has published rules and `greedy-forecast`. `steersman` also has blends of `greedy-forecast` with a little of two
rules, since a forecast alone is equal for many nodes, and its choice is fitted to the cluster, see
`simulation.selection.fitting`. The difference between the two is what fitting is worth.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from steersman.policies import greedy_forecast
from steersman.policies.features import POD_KINDS
from steersman.policies.learned_weights import RULE_COUNT
from steersman.policies.linear import LinearPolicy
from steersman.policies.policy_file import FITTED_BY, Card
from steersman.policies.portfolio_policy import DEFAULT_RULE, PORTFOLIO

RULES, STEERSMAN = "rules", "steersman"
CHOOSABLE_RULES = (
    DEFAULT_RULE,
    "best-fit",
    "gpu-packing",
    "dot-product",
    "most-allocated",
    "least-allocated",
    "balanced-allocation",
)
"""Rules that a portfolio may choose as they are."""
FGD_WEIGHTS, BEST_FIT_WEIGHTS = (0.0, 0.01, 0.03, 0.1), (0.0, 0.03)
"""GPUs of forecast loss that a point of FGD's score, and of best fit's, counts for in a blend."""


def blends() -> list[LinearPolicy]:
    """Return `greedy-forecast` and its blends."""
    return [greedy_forecast.blend(fgd, best_fit) for fgd in FGD_WEIGHTS for best_fit in BEST_FIT_WEIGHTS]


def _weighted(name: str) -> list[LinearPolicy]:
    return blends() if name == STEERSMAN else [greedy_forecast.forecast_policy()]


def portfolio_card(name: str) -> Card:
    """Return the model card of `RULES` or `STEERSMAN`."""
    return msgspec.structs.replace(
        greedy_forecast.forecast_card(name),
        network=PORTFOLIO,
        members=(*(each.name for each in _weighted(name)), *CHOOSABLE_RULES),
        objective="allocation",
        algorithm=FITTED_BY if name == STEERSMAN else "none",
    )


def portfolio_tensors(name: str) -> dict[str, npt.NDArray[np.float64]]:
    """Return the tensors of the file of `RULES` or `STEERSMAN`: the constant weights of its linear policies."""
    policies = _weighted(name)
    none = np.zeros((POD_KINDS, RULE_COUNT))
    return {
        "weights": np.stack([each.weights for each in policies]),
        "rules": np.stack([none if each.rules is None else each.rules for each in policies]),
    }
