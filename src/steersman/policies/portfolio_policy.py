"""Portfolio of policies from which short simulations select one for a cluster and its pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steersman.orders.order import AGE, Order
from steersman.policies.base import Need, Policy
from steersman.policies.heuristics import HeuristicPolicy
from steersman.policies.kube_scheduler import KubeSchedulerPolicy
from steersman.policies.linear import LinearPolicy

PORTFOLIO = "portfolio"
"""`saved_as` of a portfolio: weights of the linear members, [members, 4, W], and the rules among the members."""

DEFAULT_RULE = "fgd"
"""The best published rule: it decides until a portfolio's member is clearly better."""


@dataclass(frozen=True, slots=True)
class KindLimit:
    """What any kind of pod may lose under the chosen member.

    Attributes:
        percent: see `simulation.kind_losses.kind_losses`.
        baseline: the policy that losses are against.
    """

    percent: float
    baseline: Policy


@dataclass(frozen=True, eq=False, slots=True)
class PortfolioPolicy(Policy):
    """Portfolio of linear policies and rules, one of which decides.

    Short simulations select the member (`simulation.selection.halving`): `simulation.run.Simulator.member` for a run,
    `simulation.selection.comparison.choose_member` for `prepare` and `explain`, and live
    `apps.runtime.comparison.PolicyComparison` together with the rules. Before a selection, or if there is nothing to
    simulate, the first member decides.

    Attributes:
        name: name in results, whichever member decides.
        members: the policies under their own names, learned ones first.
        digest: digest of the members.
        limit: what any kind of pod may lose; None: the choice is free.
    """

    name: str
    members: tuple[LinearPolicy | HeuristicPolicy | KubeSchedulerPolicy, ...]
    digest: str = ""
    order: Order = AGE
    limit: KindLimit | None = None

    is_learned: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[Need]:
        """See `Policy`."""
        return frozenset({Need.LEFTOVER_TABLES})
