"""Choose the best of several policies for a cluster and its pods, by short simulations.

Every candidate runs on the same draws: the workload's own pods in random order, drawn again until the demand is reached
(`inflation`), in random order once (`arrivals`), or as Poisson arrivals (`timed`). No draw is a seed of an evaluation,
so a candidate is chosen by the cluster and the profile, not by the arrivals that it will meet.

After each round the worse half of the candidates is eliminated, and rounds double (successive halving: Karnin, Koren
and Somekh, "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU
from steersman.cluster.state import ClusterState
from steersman.simulation.arrivals import Schedule

FIRST_SEED = 2_000_000_000
"""First seed of draws, below 2^31 - 1, since `workloads.generators.go_random` takes seeds modulo that."""

FIRST_ROUND = 4
MOST_DRAWS = 32
ARRIVALS = 400_000
"""After so many simulated arrivals (about 4 s) no further draw begins."""

Play = Callable[[int, Schedule, int], float]
"""Return the cost of candidate I on a schedule, with the seed of the run."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen candidate and the costs.

    Attributes:
        best: index of the chosen candidate.
        costs: [candidates, draws] cost of each candidate in each draw, NaN if it was eliminated.
    """

    best: int
    costs: npt.NDArray[np.float64]


def select(
    count: int,
    draw: Callable[[int], Schedule],
    play: Play,
    most_arrivals: int = ARRIVALS,
    kept: int | None = None,
) -> Selection:
    """Find the candidate of `count` with the least mean cost; of equal ones the first.

    Args:
        count: number of candidates.
        draw: returns the arrivals of a draw by its seed.
        play: returns a candidate's cost on them.
        most_arrivals: simulated arrivals after which no further draw begins.
        kept: a candidate that takes part in every draw, however bad it is.
    """
    alive = list(range(count))
    costs = np.full((count, MOST_DRAWS), np.nan)
    arrivals = played = 0
    draws = FIRST_ROUND
    while len(alive) > 1 and played < draws and arrivals < most_arrivals:
        for k in range(played, draws):
            plan = draw(FIRST_SEED + k)
            for i in alive if kept is None or kept in alive else [*alive, kept]:
                costs[i, k] = play(i, plan, FIRST_SEED + k)
            arrivals += len(plan.pods) * len(alive)
            played = k + 1
            if arrivals >= most_arrivals:
                break
        alive = _better_half(costs[:, :played], alive)
        draws = min(MOST_DRAWS, 2 * played)
    return Selection(alive[0], costs[:, :played])


def _better_half(costs: npt.NDArray[np.float64], alive: list[int]) -> list[int]:
    """Return the better half of the candidates, best first, without those that did exactly as the best did."""
    means = costs.mean(axis=1)
    best, *others = sorted(alive, key=lambda i: (float(means[i]), i))
    different = [i for i in others if not np.array_equal(costs[i], costs[best])]
    return [best, *different[: max(1, (len(alive) - 1) // 2)]]


def unallocated_percent(state: ClusterState, eligible: npt.NDArray[np.bool_], *, gpus: bool) -> float:
    """Return the unallocated share of GPUs in percent, of the eligible nodes, [N] bool.

    Of CPU if not `gpus`, or if no node has any.
    """
    used, capacity = (each[eligible] for each in state.gpu_use_by_node())
    if gpus and capacity.any():
        return 100.0 * (1.0 - float(used.sum()) / float(capacity.sum()))
    free, allocatable = (float(each[eligible, CPU].sum()) for each in (state.arrays.free, state.arrays.allocatable))
    return 100.0 * free / max(1.0, allocatable)
