"""Policy `rules`: published rules and `greedy-forecast`, of which short simulations choose one; nothing is learned.

It is chosen as a member of `steersman` is, so the difference between the two is what learning is worth.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from steersman.policies import greedy_forecast
from steersman.policies.features import POD_KINDS
from steersman.policies.files.policy_file import Card
from steersman.policies.gpu_state.arrays import RULE_COUNT
from steersman.policies.portfolio_policy import DEFAULT_RULE, PORTFOLIO

NAME = "rules"
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


def rules_card() -> Card:
    """Return the model card of the policy's file."""
    members = greedy_forecast.NAME, *CHOOSABLE_RULES
    return msgspec.structs.replace(
        greedy_forecast.forecast_card(NAME), network=PORTFOLIO, members=members, objective="allocation"
    )


def rules_tensors() -> dict[str, npt.NDArray[np.float64]]:
    """Return the tensors of the policy's file: the fixed weights of `greedy-forecast`, the only member with any."""
    return {"weights": greedy_forecast.forecast_policy().weights[None], "rules": np.zeros((1, POD_KINDS, RULE_COUNT))}
