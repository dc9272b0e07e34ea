"""Portfolio of policies from which short simulations select one for a cluster and its pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steersman.orders.order import AGE, Order
from steersman.policies.base import Need, Policy

PORTFOLIO = "portfolio"  # `saved_as`: weights of linear members, [members, 4, W], and the rules among the members

DEFAULT_RULE = "fgd"  # the best published rule: it decides until a portfolio's member is clearly better


@dataclass(frozen=True, slots=True)
class KindLimit:
    """What any kind of pod may lose under the chosen member."""

    percent: float  # see `simulation.kind_losses.kind_losses`
    baseline: Policy  # the policy that losses are against


@dataclass(frozen=True, eq=False, slots=True)
class PortfolioPolicy(Policy):
    """Portfolio of linear policies, rules and kube-scheduler's default, one of which decides.

    Short simulations select the member: `simulation.run.Simulator.member`, in a run, in every command, and live. Before
    a selection the first member decides.
    """

    name: str  # name in results, whichever member decides
    members: tuple[Policy, ...]  # the policies under their own names, learned ones first, `kube-default` last
    digest: str = ""  # digest of the members
    order: Order = AGE
    limit: KindLimit | None = None  # what any kind of pod may lose; None: the choice is free
    # Whether weights that are fitted to the cluster take the member's place where they are clearly better
    is_fitted: bool = False

    is_learned: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({Need.LEFTOVER_TABLES}).union(*(each.needs for each in self.members))
