"""Find the configuration of kube-scheduler that allocates most of a cluster, or lets its pods wait least.

`simulation.selection.stock_search` finds it. It is kept only if a paired test on draws that the search did not see is
clear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.core.errors import UsageError
from steersman.core.statistics import Interval
from steersman.policies.base import Policy
from steersman.policies.kinds import kube_scheduler
from steersman.policies.kube_scheduler import STOCK_TUNED, KubeSchedulerPolicy
from steersman.policies.node_scores.kube_profile import KubeProfile
from steersman.simulation.arrivals import check_times, draw
from steersman.simulation.kind_losses import excess_loss
from steersman.simulation.pod_kinds import KINDS
from steersman.simulation.run import Simulator
from steersman.simulation.selection.choice import draws_of, is_clear, saving_interval
from steersman.simulation.selection.stock_search import StockSearchOptions, find_profile
from steersman.workloads.workload import Workload

Floats = npt.NDArray[np.float64]

VALIDATION_SEED = 1_900_000_000  # first seed of the validation's draws; searches and evaluations have others
VALIDATION = (16, 64)  # least and most draws of the validation
ARRIVALS = 200_000  # simulated arrivals of the validation by policy, unless the least number of draws has more


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
    for seed in range(VALIDATION_SEED, VALIDATION_SEED + draws_of(VALIDATION, ARRIVALS, arrivals)):
        plan = draw(simulator.workload, protocol, seed, *kind)
        for name, policy in members.items():
            execution = simulator.play(policy, plan, seed)
            costs[name].append(execution.compared_cost(protocol))
            paid[name] += execution.paid_by_kind(protocol)
    return {name: np.array(each) for name, each in costs.items()}, paid
