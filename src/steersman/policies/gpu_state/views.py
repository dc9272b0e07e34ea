"""Variance of the features of learned policies over feasible nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.policies.features import POD_KINDS
from steersman.policies.gpu_state.arrays import FEATURES


class FeatureVariances(NamedTuple):
    """Sums of variances of features by pod kind.

    Attributes:
        sums: [4, 2, F] of the features' changes, and of their values after placement.
        counts: [4] number of summands.
    """

    sums: npt.NDArray[np.float64]
    counts: npt.NDArray[np.float64]


def empty_variances() -> FeatureVariances:
    """Return sums of nothing."""
    return FeatureVariances(np.zeros((POD_KINDS, 2, FEATURES)), np.zeros(POD_KINDS))


def feature_spread(variances: Iterable[FeatureVariances]) -> npt.NDArray[np.float64]:
    """Return [4, 2, F] by kind of pod how much a feature's change, and the feature after, differ between nodes.

    It is the mean standard deviation within a decision.
    """
    sums, counts = (np.sum(each, axis=0) for each in zip(*((v.sums, v.counts) for v in variances), strict=True))
    spread: npt.NDArray[np.float64] = np.sqrt(sums / np.maximum(counts, 1.0)[:, None, None])
    return spread
