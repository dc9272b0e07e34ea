"""Choose the best of several policies for a cluster and its pods, by short simulations.

Every candidate plays the same draws: the workload's own pods in a random order, drawn again until the demand is reached
(`inflation`), in a random order once (`arrivals`), or as Poisson arrivals (`timed`). No draw is a seed of an
evaluation, so a candidate is chosen by what the cluster and the mix are, not by the arrivals that it will meet.

The worse half of the candidates plays no further draws after each round, and rounds double (successive halving: Karnin,
Koren and Somekh, "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013).
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
"""Seeds of draws begin here. `workloads.gorand` takes them modulo 2^31 - 1, so they must stay below that."""

FIRST_ROUND = 4
MOST_DRAWS = 32
ARRIVALS = 400_000
"""After so many simulated arrivals (some 4 s) no further round begins."""

Play = Callable[[int, Schedule, int], float]
"""Return the cost of candidate I on a schedule, with the seed of the run."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What was chosen, and by which figures.

    Attributes:
        best: index of the candidate that was chosen.
        costs: [candidates, draws] what each lost in each draw, NaN where it did not play.
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
        count: of candidates.
        draw: gives the arrivals of a draw by its seed.
        play: gives a candidate's cost on them.
        most_arrivals: simulated arrivals after which no further draw begins.
        kept: a candidate that plays every draw, however bad it is.
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
    """Return the better half of the candidates, the best first, without those that did exactly as the best did."""
    means = costs.mean(axis=1)
    best, *others = sorted(alive, key=lambda i: (float(means[i]), i))
    different = [i for i in others if not np.array_equal(costs[i], costs[best])]
    return [best, *different[: max(1, (len(alive) - 1) // 2)]]


def unallocated_percent(state: ClusterState, *, gpus: bool) -> float:
    """Return how much of the GPUs is not allocated, in percent; of the CPU if not `gpus`, or where no node has any."""
    used, capacity = state.gpu_use_by_node()
    if gpus and capacity.any():
        return 100.0 * (1.0 - float(used.sum()) / float(capacity.sum()))
    nodes = state.arrays
    return 100.0 * float(nodes.free[:, CPU].sum()) / max(1.0, float(nodes.allocatable[:, CPU].sum()))
