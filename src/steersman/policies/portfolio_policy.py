"""Several policies in one, of which short simulations take the best for a cluster and its pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steersman.policies.base import Policy
from steersman.policies.heuristics import LocalPolicy
from steersman.policies.linear_policy import LinearPolicy

PORTFOLIO = "portfolio"
"""`saved_as` of a portfolio: several sets of weights, [members, 4, W], and rules beside them."""


@dataclass(frozen=True, eq=False, slots=True)
class PortfolioPolicy(Policy):
    """Several sets of weights and rules, of which a short simulation takes the best for a cluster and its pods.

    `simulation.selection` chooses; until it has, or where there is nothing to simulate, the first member decides.

    Attributes:
        name: what results call it, whichever member decides.
        members: what there is to choose from, by its own name; learned policies first.
        digest: the same for two portfolios with the same members.
    """

    name: str
    members: tuple[LinearPolicy | LocalPolicy, ...]
    digest: str

    is_learned: ClassVar[bool] = True

    @property
    def needs_leftover_tables(self) -> bool:
        """See `Policy`."""
        return True

    @property
    def saved_as(self) -> str:
        """See `Policy`."""
        return PORTFOLIO

    @property
    def default_member(self) -> LinearPolicy | LocalPolicy:
        """See `Policy`."""
        return self.members[0].renamed(self.name)
