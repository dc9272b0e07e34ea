"""Choose one of several policies for a cluster and its pods, by short simulations.

Every candidate runs on the same draws (common random numbers): the workload's own pods in random order, drawn again
until the demand is reached (`inflation`), in random order once (`arrivals`), or as Poisson arrivals (`timed`). No draw
is a seed of an evaluation, so a candidate is chosen by the cluster and the profile, not by the arrivals that it will
meet.

After each round the worse half of the candidates is eliminated, and rounds double while the budget lasts (successive
halving: Karnin, Koren and Somekh, "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013). The default plays
every draw and stays chosen unless a paired t test shows that the last candidate costs less. On real arrivals, whose
waits are heavy-tailed, the least mean of a few draws is often another candidate in other draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU
from steersman.cluster.state import ClusterState
from steersman.core.statistics import mean_interval
from steersman.policies.base import Policy
from steersman.policies.portfolio_policy import DEFAULT_RULE
from steersman.simulation.arrivals import Schedule

FIRST_SEED = 2_000_000_000
"""First seed of draws, below 2^31 - 1, since `workloads.generators.go_random` takes seeds modulo that."""

ROUND_DRAWS = (4, 4, 8, 16)
"""Draws of each round, as far as the budget allows; at least one."""
MOST_DRAWS = sum(ROUND_DRAWS)
ARRIVALS = 400_000
"""Budget of simulated arrivals (about 4 s). It is shared among the rounds, so that the last candidates of a large
workload, too, have several draws."""
TIMED_ARRIVALS = 1_000_000
"""The same for waits, which differ more between draws."""

Play = Callable[[int, Schedule, int], float]
"""Return the cost of candidate I on a schedule, with the seed of the run."""


Excess = Callable[[int], float]
"""Return by how much candidate I breaks a limit, 0: it keeps it."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The costs of candidates and what follows from them.

    Attributes:
        leader: index of the candidate with the least mean cost of those that played every draw, of those that break
            the limit least.
        default: index of the candidate that stays unless the leader is clearly better.
        costs: [candidates, draws] cost of each candidate in each draw, NaN if it was eliminated.
        excess: [candidates] by how much each breaks a limit in its draws, 0: it keeps it.
    """

    leader: int
    default: int
    costs: npt.NDArray[np.float64]
    excess: npt.NDArray[np.float64]

    @property
    def savings(self) -> npt.NDArray[np.float64]:
        """Return [draws] by how much the leader costs less than the default."""
        return np.asarray(self.costs[self.default] - self.costs[self.leader])

    @property
    def best(self) -> int:
        """Return the chosen candidate: the leader if it is clearly better than the default, else the default.

        The leader, too, if the default breaks a limit that the leader keeps, or breaks by less.
        """
        if self.excess[self.leader] < self.excess[self.default]:
            return self.leader
        return self.leader if is_clear(self.savings) else self.default


def is_clear(savings: npt.NDArray[np.float64]) -> bool:
    """Return whether the mean of paired savings is above 0: its 95 % interval (Student's t) excludes 0.

    Two draws or more are needed.
    """
    return mean_interval(savings).low > 0


def default_of(candidates: Sequence[Policy]) -> int:
    """Return the index of the candidate that stays unless another is clearly better: `fgd`, without it the first."""
    names = [each.name for each in candidates]
    return names.index(DEFAULT_RULE) if DEFAULT_RULE in names else 0


def select(
    count: int,
    draw: Callable[[int], Schedule],
    play: Play,
    most_arrivals: int = ARRIVALS,
    default: int = 0,
    excess: Excess | None = None,
) -> Selection:
    """Compare `count` candidates and return their costs; of equal means the default leads, then the first.

    Args:
        count: number of candidates.
        draw: returns the arrivals of a draw by its seed.
        play: returns a candidate's cost on them.
        most_arrivals: simulated arrivals to spend on all rounds; every round has one draw at least.
        default: the candidate that takes part in every draw and stays unless another is clearly better.
        excess: by how much a candidate breaks a limit, over the draws that it has played; None: there is no limit.
    """
    broken = excess or (lambda _: 0.0)
    alive = list(range(count))
    costs = np.full((count, MOST_DRAWS), np.nan)
    spent = played = 0
    for number, planned in enumerate(ROUND_DRAWS):
        if len(alive) < 2:
            break
        # The default plays on after its elimination: the test pairs it with the leader.
        playing = alive if default in alive else [*alive, default]
        of_round = (most_arrivals - spent) // (len(ROUND_DRAWS) - number)
        before = spent
        for k in range(planned):
            plan = draw(FIRST_SEED + played)
            cost = len(plan.pods) * len(playing)
            # The first draw of a round is played in any case, or a large workload would have none.
            if k and spent - before + cost > of_round:
                break
            for i in playing:
                costs[i, played] = play(i, plan, FIRST_SEED + played)
            spent, played = spent + cost, played + 1
        alive = _better_half(costs[:, :played], alive, default, broken)
    return Selection(alive[0], default, costs[:, :played], np.array([broken(i) for i in range(count)]))


def _better_half(costs: npt.NDArray[np.float64], alive: list[int], default: int, broken: Excess) -> list[int]:
    """Return the better half of the candidates, best first, without those that did exactly as the best did."""
    means = costs.mean(axis=1)
    best, *others = sorted(alive, key=lambda i: (broken(i), float(means[i]), i != default, i))
    # Candidates that made the same decisions would share all further results.
    different = [i for i in others if not np.array_equal(costs[i], costs[best])]
    # At least one rival stays, so that the last round compares two.
    return [best, *different[: max(1, (len(alive) - 1) // 2)]]


def unallocated_percent(state: ClusterState, eligible: npt.NDArray[np.bool_], *, gpus: bool) -> float:
    """Return the unallocated share of GPUs in percent, of the eligible nodes, [N] bool.

    Of CPU if not `gpus`, or if no node has any. What is requested beyond a node's capacity counts on no other node.
    """
    used, capacity = (each[eligible] for each in state.gpu_use_by_node())
    if gpus and capacity.any():
        return 100.0 * (1.0 - float(np.minimum(used, capacity).sum()) / float(capacity.sum()))
    free, allocatable = (each[eligible, CPU] for each in (state.arrays.free, state.arrays.allocatable))
    return 100.0 * float(np.maximum(free, 0).sum()) / max(1.0, float(allocatable.sum()))
