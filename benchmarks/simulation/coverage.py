"""How often each kind of interval that the product prints holds the truth, in simulations whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from studies.tables import reduction_percent

from steersman.core.statistics import Interval, deviations, mean_interval, moving_block_interval
from steersman.simulation.waiting import LEAST_BUSY_PERIODS, PARTS

SAMPLES = 4000
SEED = 8
SIZES = (3, 5, 10, 20)
"""Numbers of seeds, clusters or trainings that are repeated."""
LIGHT, STRONG = 0.3, 0.7
"""Standard deviations of the logarithms of skewed values."""
LOADS, ARRIVALS, QUEUES = (0.5, 0.7, 0.9), 3000, 400

Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Interval]


def log_normal(random: np.random.Generator, spread: float, n: int) -> Floats:
    """Return [n] values of mean 1."""
    return random.lognormal(-(spread**2) / 2, spread, n)


def paired(random: np.random.Generator, n: int) -> Interval:
    """Return the interval of the mean difference, 1, of two policies in the same draws, which differ much."""
    draws = 5 * random.normal(size=n)
    return mean_interval((draws + 1 + random.normal(size=n)) - draws)


def reduced(random: np.random.Generator, n: int) -> Interval:
    """Return the interval of a reduction of 25 %, of skewed costs in the same draws."""
    baseline = 4 * log_normal(random, LIGHT, n)
    return reduction_percent(0.75 * baseline * log_normal(random, 0.2, n), baseline)[1]


def ratio(random: np.random.Generator, n: int) -> Interval:
    """Return the interval of a geometric mean ratio, 1, from the logarithms of skewed waits of heavy tail."""
    return Interval(*np.exp(mean_interval(random.normal(0, STRONG, n))))


def of_decisions(random: np.random.Generator, n: int) -> Interval:
    """Return the interval of a mean, 0, over n blocks of 20 decisions, each of which depends on the one before."""
    noise, values = random.normal(size=20 * n), np.zeros(20 * n)
    for i in range(1, 20 * n):
        values[i] = 0.3 * values[i - 1] + noise[i]
    return mean_interval(values.reshape(n, 20).mean(axis=1))


KINDS: dict[str, tuple[Draw, float, tuple[int, ...]]] = {
    "mean of even values": (lambda random, n: mean_interval(random.normal(1, 1, n)), 1.0, SIZES),
    "mean of skewed values": (lambda random, n: mean_interval(log_normal(random, LIGHT, n)), 1.0, SIZES),
    "paired difference": (paired, 1.0, SIZES),
    "reduction in percent": (reduced, 25.0, SIZES),
    "geometric mean ratio": (ratio, 1.0, SIZES),
    "difference over blocks of decisions": (of_decisions, 0.0, (20,)),
}
"""Intervals that are called 95 %: how one is drawn, the truth, and the numbers of values."""
BEYOND = "mean of strongly skewed values"
"""The same interval where values differ by factors: it is too narrow there, which the page says."""


def coverage(draw: Draw, truth: float, n: int, samples: int = SAMPLES, seed: int = SEED) -> float:
    """Return the percentage that hold the truth of `samples` intervals of n values each, without those not printed."""
    random = np.random.default_rng([seed, n])
    intervals = np.array([draw(random, n) for _ in range(samples)])
    intervals = intervals[np.isfinite(intervals).all(axis=1)]
    return 100 * float(((intervals[:, 0] <= truth) & (truth <= intervals[:, 1])).mean())


def waits_of_queue(random: np.random.Generator, load: float, arrivals: int) -> Floats:
    """Return [arrivals] waits of a queue with one server, Poisson arrivals and exponential services (Lindley 1952)."""
    warm = 2000
    steps = random.exponential(load, arrivals + warm - 1) - random.exponential(1.0, arrivals + warm - 1)
    path = np.concatenate([[0.0], np.cumsum(steps)])
    return np.asarray(path - np.minimum.accumulate(path))[warm:]


def stretch(load: float, queues: int = QUEUES) -> dict[str, float]:
    """Return how often an interval over blocks of one stretch holds the mean of all stretches, and busy periods."""
    random, truth = np.random.default_rng([SEED, int(100 * load)]), load**2 / (1 - load)
    part = np.arange(ARRIVALS) * PARTS // ARRIVALS
    held, periods = [], []
    for _ in range(queues):
        waits = waits_of_queue(random, load, ARRIVALS)
        periods.append(int(np.count_nonzero((waits[1:] > 0) & (waits[:-1] == 0))))
        if periods[-1] < LEAST_BUSY_PERIODS:
            continue
        parts = np.stack([np.bincount(part, waits), np.bincount(part)], axis=1).astype(np.float64)
        low, high = moving_block_interval(float(waits.mean()), deviations(parts))
        held.append(low <= truth <= high)
    percent = 100 * float(np.mean(held)) if held else math.nan
    return {"percent": percent, "printed_percent": 100 * len(held) / queues, "busy_periods": float(np.median(periods))}


def interval_coverage() -> dict[str, Any]:
    """Return percentages by kind and number of values, and of stretches by load."""
    kinds = KINDS | {BEYOND: (lambda random, n: mean_interval(log_normal(random, STRONG, n)), 1.0, SIZES)}
    of_kinds = {
        kind: {str(n): round(coverage(draw, truth, n), 1) for n in sizes}
        for kind, (draw, truth, sizes) in kinds.items()
    }
    stretches = {str(load): {name: round(each, 1) for name, each in stretch(load).items()} for load in LOADS}
    return {"samples": SAMPLES, "kinds": of_kinds, "one stretch": stretches}
