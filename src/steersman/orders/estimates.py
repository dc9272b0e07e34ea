"""Estimates of run times from what ended before, with their spread, updated as pods end.

Run times of like pods are a histogram over logarithmic bins, at four levels: all pods, those of the same requests,
those of the same owner, and those of both. Each level is smoothed by the one above it, as if that had added
`PRIOR_PODS` pods:

    p[level] = (counts[level] + PRIOR_PODS * p[level - 1]) / (pods[level] + PRIOR_PODS)

The estimate is the median of the last level, its spread the logarithm of the 90th percentile over the median. Source of
the smoothing: MacKay and Peto, "A Hierarchical Dirichlet Language Model" (1995), with a fixed strength.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.core.compiled import called_kernel

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BINS_PER_OCTAVE = 2
BINS = 48
"""Bins of the histogram: from 1 s to 2^24 s, 194 days."""
LEVELS = 4
ALL, REQUESTS, OWNER, OWNER_REQUESTS = range(LEVELS)
PRIOR_PODS = 4.0
FIRST_PRIOR = (8, 40)
"""Bins that are equally likely while nothing has ended: from 16 s to 12 days, with a median of 68 minutes."""
SPREAD_PERCENT = 90.0
MEDIAN, SPREAD = range(2)
"""Columns of `RunTimeHistory.estimates`: seconds, and the logarithm of the 90th percentile over the median."""


class RunTimeHistory(NamedTuple):
    """What is known of run times; K groups of pods over all levels.

    Attributes:
        counts: [K, BINS] pods that ended, by run time.
        ended: [K] pods that ended.
        estimates: [K, 2] columns MEDIAN and SPREAD, of the groups of the last level.
        buffer: [BINS] scratch.
    """

    counts: Floats
    ended: Floats
    estimates: Floats
    buffer: Floats


def empty_history(groups: int) -> RunTimeHistory:
    return RunTimeHistory(np.zeros((groups, BINS)), np.zeros(groups), np.full((groups, 2), np.nan), np.zeros(BINS))


@called_kernel
def update_estimate(history: RunTimeHistory, keys: Ints) -> None:
    """Compute the estimate of a group of the last level from all levels, see the module."""
    p = history.buffer
    low, high = FIRST_PRIOR
    for k in range(BINS):
        p[k] = 1.0 / (high - low) if low <= k < high else 0.0
    for level in range(LEVELS):
        total = history.ended[keys[level]] + PRIOR_PODS
        for k in range(BINS):
            p[k] = (history.counts[keys[level], k] + PRIOR_PODS * p[k]) / total
    median = quantile(p, 0.5)
    history.estimates[keys[OWNER_REQUESTS], MEDIAN] = median
    history.estimates[keys[OWNER_REQUESTS], SPREAD] = math.log(quantile(p, SPREAD_PERCENT / 100.0) / median)


@called_kernel
def quantile(p: Floats, share: float) -> float:
    """Return a quantile in seconds of a histogram, p [BINS] with sum 1, interpolated geometrically within a bin."""
    before = 0.0
    for k in range(BINS):
        if p[k] > 0.0 and before + p[k] >= share:
            return float(2.0 ** ((k + (share - before) / p[k]) / BINS_PER_OCTAVE))
        before += p[k]
    return float(2.0 ** (BINS / BINS_PER_OCTAVE))
