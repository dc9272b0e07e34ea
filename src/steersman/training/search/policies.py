"""What is chosen for one cluster and its pods as a policy file, with a comparison on held-out draws.

The choice and the search are those of every command (`simulation.run.Simulator.choose`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.core.errors import SteersmanError, UsageError
from steersman.orders.order import Order
from steersman.policies.base import Policy, with_own_order
from steersman.policies.embedded_profile import embed_profile
from steersman.policies.features import view
from steersman.policies.files.policy_file import (
    FITTED_BY,
    Arrays,
    Card,
    ComparedOn,
    WorkloadResult,
    network_of,
    tensors_of,
)
from steersman.policies.gpu_state.arrays import GPU_VIEW
from steersman.policies.kube_scheduler import KUBE_DEFAULT
from steersman.policies.portfolio_policy import DEFAULT_RULE, PortfolioPolicy
from steersman.policies.registry import packaged_portfolio, resolve
from steersman.simulation.arrivals import check_times, draw
from steersman.simulation.run import Simulator
from steersman.simulation.selection.choice import draws_of
from steersman.simulation.selection.stock_search import SearchOptions
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
