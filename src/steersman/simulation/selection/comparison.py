"""Compare a policy with every rule on a cluster and pods like the expected ones, by short simulations."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from steersman.policies.base import Policy
from steersman.policies.files.policy_file import Arrays, Card, prepare_policy
from steersman.policies.heuristics import HEURISTIC_IDS, heuristic
from steersman.policies.kinds import kind_limit
from steersman.simulation.result import Protocol
from steersman.simulation.run import Simulator
from steersman.simulation.selection.choice import MemberChoice, choice_of, gain_text
from steersman.simulation.selection.halving import default_of, is_clear
from steersman.workloads.workload import Workload

MARGIN = 1e-9
"""Percentage points by which a policy may cost more than the best rule and count as at least as good: rounding."""
CLEAR_POINTS = 0.25
"""Percentage points by which a candidate must beat the active one of a portfolio to replace it, by a clear paired test.

On 32 simulated clusters this halved how often the choice did worse than the active candidate, at no cost on average."""


@dataclass(frozen=True, slots=True)
class RuleComparison:
    """Results of a policy and every rule on the same draws.

    Attributes:
        names: [C] names of the candidates: the policy or a portfolio's members, then the rules.
        rules: [C] whether the candidate is a rule.
        own: [C] whether the candidate belongs to the policy; of a portfolio a rule may, too.
        costs: [C, D] percent of the GPUs that were unallocated at the end, NaN where a candidate was eliminated by
            then.
        seconds: time it took.
        excess: [C] by how much a candidate breaks the policy's limit of what any kind of pod may lose, 0: it keeps it.
    """

    names: tuple[str, ...]
    rules: tuple[bool, ...]
    own: tuple[bool, ...]
    costs: npt.NDArray[np.float64]
    seconds: float
    excess: npt.NDArray[np.float64]

    @property
    def draws(self) -> int:
        """Return the number of draws of the best candidates."""
        return int(self.costs.shape[1])

    @property
    def ranking(self) -> list[int]:
        """Return the candidates, best first: one with more draws was better in those before.

        Those that break the limit come after all others.
        """
        played = (~np.isnan(self.costs)).sum(axis=1)
        means = np.nanmean(self.costs, axis=1)
        # Eliminated earlier means worse, whatever the mean of the fewer draws; then the order of the candidates.
        return sorted(range(len(self.names)), key=lambda i: (self.excess[i], -int(played[i]), float(means[i]), i))

    @property
    def best_own(self) -> int:
        """Return the best candidate of the policy."""
        return next(i for i in self.ranking if self.own[i])

    @property
    def best_rule(self) -> int:
        """Return the best rule."""
        return next(i for i in self.ranking if self.rules[i])

    @property
    def difference(self) -> float:
        """Return the mean extra cost of the policy over the best rule in the draws of both, percentage points."""
        return float(np.nanmean(self.costs[self.best_own] - self.costs[self.best_rule]))

    @property
    def is_good(self) -> bool:
        """Return whether the policy is at least as good as the best rule."""
        own, rule = self.excess[self.best_own], self.excess[self.best_rule]
        return bool(own < rule) or (bool(own == rule) and self.difference <= MARGIN)

    def is_clearly_better(self, one: int, other: int) -> bool:
        """Return whether a candidate costs less than another by `CLEAR_POINTS`, clearly, in the draws of both.

        Or whether it breaks the limit by less.
        """
        if self.excess[one] != self.excess[other]:
            return bool(self.excess[one] < self.excess[other])
        savings = self.costs[other] - self.costs[one]
        return float(np.nanmean(savings)) > CLEAR_POINTS and is_clear(savings)

    def evidence(self, one: int, other: int) -> str:
        """Return how a candidate did against another, in a sentence."""
        return gain_text(self.names[one], self.names[other], self.costs[other] - self.costs[one], "inflation")

    def mean(self, candidate: int) -> float:
        """Return the mean cost of a candidate over its draws."""
        return float(np.nanmean(self.costs[candidate]))


def members_of(policy: Policy) -> dict[str, Policy]:
    """Return the possible deciders of a policy by name: the members of a portfolio, else the policy itself."""
    return {each.name: each for each in policy.members or (policy,)}


def compare(workload: Workload, policy: Policy, deciding: str = "") -> RuleComparison:
    """Compare a policy with every rule on a workload's nodes, empty, and draws of its pods.

    Args:
        workload: the nodes, and pods like the expected ones, which may run already.
        policy: learned.
        deciding: the active candidate, if there is one, else `fgd`: it takes part in every draw.

    Raises:
        SteersmanError: no pod requests GPUs, no node has any, or the policy failed.
    """
    began = time.monotonic()
    rules = [heuristic(name) for name in HEURISTIC_IDS]
    own = list(members_of(policy).values())
    # A rule that is a member of the portfolio takes part once, as a member.
    candidates = [*own, *(rule for rule in rules if rule not in own)]
    names = tuple(each.name for each in candidates)
    default = names.index(deciding) if deciding in names else default_of(candidates)
    selection = Simulator(workload.unbound()).select(
        candidates, protocol="inflation", bursts=True, default=default, limit=kind_limit(policy)
    )
    return RuleComparison(
        names=names,
        rules=tuple(each in rules for each in candidates),
        own=tuple(i < len(own) for i in range(len(candidates))),
        costs=selection.costs,
        seconds=time.monotonic() - began,
        excess=selection.excess,
    )


def choose_member(portfolio: Policy, workload: Workload) -> Policy:
    """Return the member of a portfolio that short simulations choose for a workload, under its own name."""
    return member_choice(portfolio, workload).policy


def prepare_chosen(path: Path, workload: Workload) -> tuple[Card, Arrays, str]:
    """Return `prepare_policy` with the chosen member of a portfolio, and the evidence for it, "" of another policy.

    Raises:
        InputError: see `prepare_policy`.
    """
    evidence = ""

    def choose(portfolio: Policy, of: Workload) -> Policy:
        nonlocal evidence
        choice = member_choice(portfolio, of)
        evidence = choice.evidence
        return choice.policy

    card, arrays = prepare_policy(path, workload, choose)
    return card, arrays, evidence


def member_choice(portfolio: Policy, workload: Workload) -> MemberChoice:
    """Return the member of a portfolio that short simulations choose for a workload, and why.

    Where no pod requests GPUs, or no node has any, they are compared on the workload's pods in random order, once each.
    """
    workload = workload.unbound()
    protocol: Protocol = "inflation" if workload.gpu_capacity and any(workload.gpu_demand) else "arrivals"
    selection = Simulator(workload).select(
        portfolio.members, protocol=protocol, bursts=True, limit=kind_limit(portfolio)
    )
    return choice_of(portfolio.members, selection, protocol)
