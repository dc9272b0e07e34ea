"""Questions about the kind of a policy, which the interface of all policies leaves out."""

from __future__ import annotations

import numpy as np

from steersman.policies.base import Policy
from steersman.policies.features import POD_KINDS
from steersman.policies.heuristics import HeuristicPolicy
from steersman.policies.kube_scheduler.policy import KUBE_DEFAULT, KubeSchedulerPolicy, StockTunedPolicy
from steersman.policies.kube_scheduler.profile import DEFAULT_PROFILE
from steersman.policies.learned_weights import FEATURES, FGD, RULE_COUNT, WEIGHTS
from steersman.policies.linear import LinearPolicy
from steersman.policies.network_policy import NetworkPolicy
from steersman.policies.node_metrics import METRIC_RULES
from steersman.policies.portfolio_policy import PortfolioPolicy
from steersman.policies.telemetry import TelemetryPolicy


def metrics_rule(policy: Policy) -> str:
    """Return the name of the rule of `policies.node_metrics` that decides as a policy does; "" if none does."""
    match policy:
        case KubeSchedulerPolicy(profile=profile) if profile == DEFAULT_PROFILE.of_minor(profile.minor):
            return KUBE_DEFAULT
        case TelemetryPolicy():
            return next(name for name, number in METRIC_RULES.items() if number == policy.rule)
        case _:
            return ""


def kube_scheduler(policy: Policy) -> KubeSchedulerPolicy | None:
    """Return the policy if it is a configuration of kube-scheduler, else None."""
    return policy if isinstance(policy, KubeSchedulerPolicy) else None


def stock_tuned(policy: Policy) -> StockTunedPolicy | None:
    """Return the policy if a search has to find its configuration, else None."""
    return policy if isinstance(policy, StockTunedPolicy) else None


def as_portfolio(policy: Policy) -> PortfolioPolicy | None:
    """Return the policy if simulations choose one of its members, else None."""
    return policy if isinstance(policy, PortfolioPolicy) else None


def observing_policy(policy: Policy) -> NetworkPolicy | None:
    """Return the policy if it is a network over observations, else None."""
    return policy if isinstance(policy, NetworkPolicy) else None


def as_linear(policy: Policy) -> LinearPolicy | None:
    """Return a policy as a linear one, see `heuristic_as_linear`; None if it is of another kind."""
    if isinstance(policy, LinearPolicy):
        return policy
    return heuristic_as_linear(policy) if isinstance(policy, HeuristicPolicy) else None


def heuristic_as_linear(policy: HeuristicPolicy) -> LinearPolicy:
    """Return a heuristic as a linear policy.

    It is not the same in two points: its FGD score also depends on memory, and scores that a heuristic normalises over
    nodes are added as they are.
    """
    weights, rules = np.zeros((POD_KINDS, WEIGHTS)), np.zeros((POD_KINDS, RULE_COUNT))
    for kind, weight in zip(policy.kinds, policy.weights, strict=True):
        if kind == FGD:
            weights[:, 2 * FEATURES] = weight
        else:
            rules[:, kind] = weight
    return LinearPolicy(policy.name, weights, rules)
