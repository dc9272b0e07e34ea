"""What is chosen for one cluster and its pods: a policy file, or a configuration of kube-scheduler, with a comparison.

The choice and the search of a policy are those of every command (`simulation.run.Simulator.choose`), compared on
held-out draws. `simulation.selection.stock_search` finds the configuration that allocates most of a cluster, or lets
its pods wait least; it is kept only if a paired test on draws that the search did not see is clear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.core.errors import SteersmanError, UsageError
from steersman.core.statistics import Interval
from steersman.orders.order import Order
from steersman.policies.base import Policy, with_own_order
from steersman.policies.embedded_profile import embed_profile
from steersman.policies.features import view
from steersman.policies.kinds import kube_scheduler
from steersman.policies.kube_scheduler.policy import KUBE_DEFAULT, STOCK_TUNED, KubeSchedulerPolicy
from steersman.policies.kube_scheduler.profile import KubeProfile
from steersman.policies.learned_weights import GPU_VIEW
from steersman.policies.policy_file import (
    FITTED_BY,
    Arrays,
    Card,
    ComparedOn,
    WorkloadResult,
    network_of,
    tensors_of,
)
from steersman.policies.portfolio_policy import DEFAULT_RULE, PortfolioPolicy
from steersman.policies.registry import packaged_portfolio, resolve
from steersman.simulation.arrivals import check_times, draw
from steersman.simulation.kind_losses import excess_loss
from steersman.simulation.pod_kinds import KINDS
from steersman.simulation.run import Simulator
from steersman.simulation.selection.choice import draws_of, is_clear, saving_interval
from steersman.simulation.selection.stock_search import SearchOptions, StockSearchOptions, find_profile
from steersman.version import __version__
from steersman.workloads.profile import node_shapes, shapes_digest
from steersman.workloads.warnings import no_devices
from steersman.workloads.workload import Workload

FIRST_HELD_OUT = 2_100_000_000  # first seed of the draws of the comparison; no search and no choice uses them
HELD_OUT = (8, 48)  # the least and the most draws of the comparison
ARRIVALS = 500_000  # simulated arrivals of the comparison, unless that is less than the least number of draws
BASELINES = (DEFAULT_RULE, KUBE_DEFAULT)


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of a fit."""

    policy: Policy  # what was chosen, under its own name
    evidence: str  # the comparisons that chose it, in a sentence
    # By name of the policy and of `BASELINES` the cost in each held-out draw, [draws], see `Execution.cost`
    costs: dict[str, npt.NDArray[np.float64]]
    # `card`, `arrays`: a policy file's, with the profile of the workload.
    card: Card
    arrays: Arrays


def fit(
    workload: Workload,
    options: SearchOptions,
    portfolio: PortfolioPolicy | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Fit:
    """Fit a policy to a workload's nodes and profile.

    Args:
        workload: nodes, and pods like the expected ones, which may run already.
        options: simulations, and their seed.
        portfolio: what is chosen among; waiting pods have its order in `timed`. None: the policy `steersman`.
        progress: called with the generations that are done, and all of them.

    Raises:
        UsageError: the protocol is `arrivals`, or there are no GPUs or no pods that request them.
        SteersmanError: the choice is kube-scheduler's default; in `timed` without a load, a time of a pod is unknown.
    """
    if options.protocol == "arrivals":
        raise UsageError("a policy is fitted in --protocol inflation or timed; inflation serves arrivals, too")
    if options.protocol == "timed" and options.load is None:
        check_times(workload)
    if not any(node.gpu_total for node in workload.eligible_nodes) or not any(workload.gpu_demand):
        raise UsageError(
            f"{workload.name}: {no_devices(workload)}; policies are fitted to GPUs; expected a rule, such as best-fit"
        )
    simulator = Simulator(workload)
    portfolio = portfolio or packaged_portfolio()
    choice = simulator.choose(portfolio, options, progress)
    if not network_of(choice.policy):
        raise SteersmanError(f"{choice.evidence}; expected no policy file: leave kube-scheduler as it is")
    costs = _compare(simulator.emptied, choice.policy, portfolio.order, options)
    return Fit(choice.policy, choice.evidence, costs, *_file(workload, choice.policy, costs, options))


def _compare(
    simulator: Simulator, policy: Policy, order: Order, options: SearchOptions
) -> dict[str, npt.NDArray[np.float64]]:
    """Return the costs of the policy and of the baselines in the same held-out draws; in `timed` with an order."""
    policies = {policy.name: policy} | {name: resolve(name) for name in BASELINES}
    if options.protocol == "timed":
        policies = {name: with_own_order(each, order) for name, each in policies.items()}
    kind = options.protocol, options.ratio, options.load, options.mean_duration
    arrivals = len(draw(simulator.workload, kind[0], FIRST_HELD_OUT, *kind[1:]).pods)
    costs = np.empty((len(policies), draws_of(HELD_OUT, ARRIVALS, arrivals * len(policies))))
    for k in range(costs.shape[1]):
        seed = FIRST_HELD_OUT + k
        plan = draw(simulator.workload, kind[0], seed, *kind[1:])
        costs[:, k] = [simulator.play(each, plan, seed).cost(options.protocol) for each in policies.values()]
    return dict(zip(policies, costs, strict=True))


def _file(
    workload: Workload, policy: Policy, costs: dict[str, npt.NDArray[np.float64]], options: SearchOptions
) -> tuple[Card, Arrays]:
    profile, profile_tensors = embed_profile(workload, GPU_VIEW)
    timed, draws = options.protocol == "timed", len(costs[policy.name])
    metric = "waiting_time_mean_seconds" if timed else "gpu_unallocated_percent"
    means = {name: round(float(each.mean()), 4) for name, each in costs.items()}
    card = Card(
        name=policy.name,
        view=GPU_VIEW,
        view_version=view(GPU_VIEW).version,
        network=network_of(policy),
        members=() if policy.is_learned else (policy.name,),
        objective="waiting-time" if timed else "allocation",
        algorithm=FITTED_BY if policy.is_learned else "rule",
        protocol=options.protocol,
        ratio=None if timed else options.ratio,
        load=options.load,
        training=(workload.name,),
        seeds=f"{options.seed} for the search, {draws} held-out draws",
        settings={} if options.limit is None else {"max_kind_loss": options.limit.percent},
        scores=tuple(
            WorkloadResult(workload.name, metric, means[policy.name], name, mean, draws)
            for name, mean in means.items()
            if name != policy.name
        ),
        made_by=f"steersman {__version__}",
        profile=profile,
        compared_on=ComparedOn(len(workload.nodes), shapes_digest(node_shapes(workload.nodes)), draws),
    )
    return card, tensors_of(policy) | profile_tensors


Floats = npt.NDArray[np.float64]

VALIDATION_SEED = 1_900_000_000  # first seed of the validation's draws; searches and evaluations have others
VALIDATION = (16, 64)  # least and most draws of the validation
VALIDATION_ARRIVALS = (
    200_000  # simulated arrivals of the validation by policy, unless the least number of draws has more
)


@dataclass(frozen=True)
class SchedulerFit:
    """A found configuration and its validation."""

    profile: KubeProfile  # the best profile
    scheduler_name: str  # name of the scheduler that it is for
    # That of what runs today, of which the found one keeps all else; None: kube-scheduler's own
    configuration: Mapping[str, Any] | None
    today: str  # name of the policy that it is compared with
    options: StockSearchOptions  # of the search
    costs: dict[str, Floats]  # [V] `Execution.compared_cost` of each draw of the validation, by policy
    # [2, 4] what kinds of pods paid in all draws, and their number, see `Execution.paid_by_kind`, by policy
    paid: dict[str, Floats]

    @property
    def policy(self) -> KubeSchedulerPolicy:
        return KubeSchedulerPolicy(STOCK_TUNED, self.profile, self.scheduler_name, self.configuration)

    @cached_property
    def savings(self) -> Floats:
        """By how much the configuration costs less than what runs today, [V]."""
        return np.asarray(self.costs[self.today] - self.costs[STOCK_TUNED])

    @property
    def is_better(self) -> bool:
        """Whether the gain is clear, and no kind of pod loses more than it may."""
        return is_clear(self.savings, self.options.protocol) and not self.breaks_limit

    @property
    def breaks_limit(self) -> bool:
        """Whether a kind of pod loses more than it may."""
        limit, protocol, paid = self.options.limit, self.options.protocol, self.paid
        return limit is not None and excess_loss(paid[STOCK_TUNED], paid[self.today], protocol, limit.percent) > 0

    def gain(self, policy: str) -> tuple[float, Interval]:
        """Return what a policy gains on what runs today, and its 95 % interval.

        Percentage points of allocated GPUs (without GPUs: CPU); in `timed` the logarithm of a ratio of waits.
        """
        savings = self.costs[self.today] - self.costs[policy]
        return float(savings.mean()), saving_interval(savings, self.options.protocol)

    def by_kind(self, policy: str) -> Floats:
        """Return [4] the pods of each kind that fail in a draw, in `timed` their mean wait in seconds; NaN: none."""
        paid, count = self.paid[policy]
        draws = count if self.options.protocol == "timed" else np.where(count > 0, len(self.savings), 0)
        result: Floats = np.divide(paid, draws, out=np.full(len(KINDS), np.nan), where=draws > 0)
        return result

    @property
    def arrived(self) -> Floats:
        """Pods of each kind that arrive in a draw, [4]; in `timed` those that are bound."""
        return np.asarray(self.paid[self.today][1] / len(self.savings))


def search_scheduler(
    workload: Workload,  # nodes, and pods like the expected ones
    options: StockSearchOptions,
    *,
    today: Policy,
    beside: Sequence[Policy] = (),  # further policies that are compared
    progress: Callable[[int, int], None] | None = None,
) -> SchedulerFit:
    """Search for the profile that costs least, and compare it with what runs today on further draws.

    Raises:
        UsageError: what runs today is no configuration of kube-scheduler.
        SteersmanError: in `timed` without a load, the time of a pod is not known.
    """
    runs = kube_scheduler(today)
    if runs is None:
        raise UsageError(
            f"--baseline {today.name} is no configuration of kube-scheduler; expected kube-default or a file"
        )
    if options.protocol == "timed" and options.load is None:
        check_times(workload)
    policies, selection = find_profile(Simulator(workload), runs, options, progress)
    profile = policies[selection.leader].profile
    compared = [today, KubeSchedulerPolicy(STOCK_TUNED, profile), *beside]
    costs, paid = _validate(workload, compared, options)
    return SchedulerFit(profile, runs.scheduler_name, runs.configuration, runs.name, options, costs, paid)


def _validate(
    workload: Workload, policies: Sequence[Policy], options: StockSearchOptions
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return costs, [V], and what kinds of pods paid, [2, 4], see `Execution.paid_by_kind`, by policy."""
    simulator, protocol = Simulator(workload.unbound()), options.protocol
    kind = options.ratio, options.load, options.mean_duration
    members = {
        each.name: simulator.member(each, protocol=protocol, ratio=kind[0], load=kind[1], mean_duration=kind[2]).policy
        for each in policies
    }
    costs: dict[str, list[float]] = {name: [] for name in members}
    paid = {name: np.zeros((2, len(KINDS))) for name in members}
    arrivals = len(draw(simulator.workload, protocol, VALIDATION_SEED, *kind).pods)
    for seed in range(VALIDATION_SEED, VALIDATION_SEED + draws_of(VALIDATION, VALIDATION_ARRIVALS, arrivals)):
        plan = draw(simulator.workload, protocol, seed, *kind)
        for name, policy in members.items():
            execution = simulator.play(policy, plan, seed)
            costs[name].append(execution.compared_cost(protocol))
            paid[name] += execution.paid_by_kind(protocol)
    return {name: np.array(each) for name, each in costs.items()}, paid
