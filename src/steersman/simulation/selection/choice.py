"""The choice of one of several policies for a cluster and its pods, by paired simulations.

All candidates play the same draws (common random numbers): the workload's own pods in random order, drawn again until
the demand is reached (`inflation`), in random order once (`arrivals`), or as Poisson arrivals (`timed`). The draws are
the same for every command, and none is a run of an evaluation.

After each round the worse half is eliminated, so that every round costs about the same (successive halving: Karnin,
Koren and Somekh, "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013). The leader is the best of a few
noisy draws, and so looks better than it is. It therefore meets the fallback in further draws, and replaces it only if
a paired t test of these alone is clear.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from steersman.core.statistics import Interval, mean, stratified_interval
from steersman.policies.base import Policy
from steersman.policies.portfolio_policy import DEFAULT_RULE, KindLimit
from steersman.simulation.result import Protocol

Floats = npt.NDArray[np.float64]

FIRST_SEED = 2_000_000_000
"""First seed of draws, below 2^31 - 1, since `workloads.generators.inflation` takes seeds modulo that."""
ROUND_DRAWS, TEST_DRAWS = (2, 64), (8, 256)
"""Least and most draws of a round, and of the test of the leader."""
ROUND_ARRIVALS = {"inflation": 100_000, "arrivals": 100_000, "timed": 250_000}
"""Simulated arrivals of all candidates in a round, which say how many draws it has; waits differ more between draws."""
TEST_ROUNDS = 2
"""Arrivals of the test, in those of a round."""

Play = Callable[[int, int], float]
"""Return the cost of candidate I in the draw of a seed."""
Excess = Callable[[int], float]
"""Return by how much candidate I breaks a limit in the draws that it has played, 0: it keeps it."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The best of several candidates in a few draws, and how it does against the fallback in further ones."""

    leader: int  # index of the candidate that was left after all rounds
    fallback: int  # index of the candidate that is chosen unless the leader is clearly better
    # [2, D] costs of the leader and of the fallback in the draws of the test; D is 0 if both are the same
    costs: Floats
    excess: tuple[float, float]  # by how much the leader and the fallback break the limit, 0: it keeps it
    protocol: Protocol  # of the draws

    @property
    def savings(self) -> Floats:
        """Return [D] by how much the leader costs less than the fallback."""
        return np.asarray(self.costs[1] - self.costs[0])

    @property
    def best(self) -> int:
        """Return the chosen candidate: the leader if it breaks the limit by less, or is clearly better."""
        leads, stays = self.excess
        is_better = leads < stays or (leads == stays and is_clear(self.savings, self.protocol))
        return self.leader if is_better else self.fallback


@dataclass(frozen=True, slots=True)
class MemberChoice:
    """The member of a portfolio that decides."""

    policy: Policy  # the member under its own name
    evidence: str = ""  # the comparison that chose it, in a sentence; "" of a policy that is no portfolio
    # [D] by how much the leader of the comparison cost less than the fallback
    savings: Floats = field(default_factory=lambda: np.zeros(0), compare=False)


def select(
    count: int, play: Play, arrivals: int, protocol: Protocol, *, fallback: int = 0, excess: Excess | None = None
) -> Selection:
    """Compare candidates; of equal ones the fallback leads, then the first.

    Args:
        count: number of candidates.
        play: returns a candidate's cost in a draw.
        arrivals: of a draw.
        protocol: of the draws.
        fallback: the candidate that is chosen unless another is clearly better.
        excess: by how much a candidate breaks a limit; None: there is no limit.
    """
    broken, budget = excess or (lambda _: 0.0), ROUND_ARRIVALS[protocol]
    alive, costs, seed = list(range(count)), np.zeros((count, 0)), FIRST_SEED
    while len(alive) > 1:
        seeds = range(seed, seed + draws_of(ROUND_DRAWS, budget, arrivals * len(alive)))
        played = np.full((count, len(seeds)), np.nan)
        played[alive] = [[play(i, each) for each in seeds] for i in alive]
        costs, seed = np.hstack([costs, played]), seeds.stop
        alive = _better_half(costs, alive, fallback, broken)
    leader, pair = alive[0], np.zeros((2, 0))
    if leader != fallback:
        seeds = range(seed, seed + draws_of(TEST_DRAWS, TEST_ROUNDS * budget, 2 * arrivals))
        pair = np.array([[play(i, each) for each in seeds] for i in (leader, fallback)])
    return Selection(leader, fallback, pair, (broken(leader), broken(fallback)), protocol)


def _better_half(costs: Floats, alive: list[int], fallback: int, broken: Excess) -> list[int]:
    """Return the better half of the candidates, best first, without those that did exactly as the best did."""
    best, *others = sorted(alive, key=lambda i: (broken(i), float(costs[i].mean()), i != fallback, i))
    # Candidates that made the same decisions would share all further results.
    different = [i for i in others if not np.array_equal(costs[i], costs[best])]
    return [best, *different[: len(alive) // 2 - 1]]


def draws_of(bounds: tuple[int, int], budget: int, arrivals: int) -> int:
    """Return how many draws of so many arrivals a budget of arrivals allows, within bounds; as many of either kind."""
    least, most = bounds
    return min(most, max(least, budget // max(1, arrivals) // 2 * 2))


def saving_interval(savings: Floats, protocol: Protocol) -> Interval:
    """Return the 95 % interval of the mean of paired savings by draw.

    Draws with and without bursts of equal pods alternate, but in `timed`. What both kinds differ by is no noise.
    """
    return stratified_interval(savings.reshape(-1, 1 if protocol == "timed" else 2))


def is_clear(savings: Floats, protocol: Protocol) -> bool:
    """Return whether the mean of paired savings is above 0: their 95 % interval excludes 0."""
    return saving_interval(savings, protocol).low > 0


def fallback_of(candidates: Sequence[Policy], limit: KindLimit | None) -> int:
    """Return the index of the candidate that is chosen unless another is clearly better, see `Simulator.select`."""
    names, name = [each.name for each in candidates], DEFAULT_RULE if limit is None else limit.baseline.name
    return names.index(name) if name in names else 0


def choice_of(candidates: Sequence[Policy], selection: Selection) -> MemberChoice:
    """Return the chosen candidate, with the evidence for it in a sentence."""
    leader, fallback = candidates[selection.leader].name, candidates[selection.fallback].name
    best = candidates[selection.best]
    if leader == fallback:
        text = "no member did better in short simulations"
    elif selection.excess[0] != selection.excess[1]:
        other = max(zip(selection.excess, (leader, fallback), strict=True))
        text = f"under {other[1]} a kind of pod loses {other[0]:.1f} % more than the limit"
    else:
        text = gain_text(leader, fallback, selection.savings, selection.protocol)
        text = text if selection.best == selection.leader else f"no member is clearly better; {text}"
    return MemberChoice(best, f"{best.name} decides: {text}", selection.savings)


def gain_text(one: str, other: str, savings: Floats, protocol: Protocol) -> str:
    """Return how much less one policy costs than another, from the savings by draw.

    Such as "general allocates 1.22 points more than fgd (95 % interval 0.90 to 1.54) in 8 paired draws".
    """
    by, (low, high) = mean(savings), saving_interval(savings, protocol)
    if protocol == "timed":
        # Savings are differences of logarithms: the ratio of costs is exp(-saving), and the ends change places.
        by, low, high = math.exp(-by), math.exp(-high), math.exp(-low)
        gain = f"waits and slowdowns under {one} are {by:.2f} times those under {other}"
    else:
        gain = f"{one} allocates {abs(by):.2f} points {'less' if by < 0 else 'more'} than {other}"
        low, high = (-high, -low) if by < 0 else (low, high)
    return f"{gain} (95 % interval {low:.2f} to {high:.2f}) in {len(savings)} paired draws"
