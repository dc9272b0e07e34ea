"""Numbers of the rules, and sizes of learned policies, which sum them up with features of nodes.

The score of placing a pod of kind k (no GPU, a share, one GPU, several) on a node is

    after[k] . f(node after) + change[k] . (f(node after) - f(node before)) + fgd[k] FGD(node) + rules[k] . r(node)

with the features f of view `gpu` (`policies.features`), FGD's integer score and the scores r of other rules. A
network may add its output for the same features and the pod's. `core/src/learned.rs` computes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.policies.features import POD_KINDS
from steersman.policies.rules import RULES

NAMES = tuple(RULES)
BEST_FIT, FGD = NAMES.index("best-fit"), NAMES.index("fgd")
LEARNED = len(NAMES)
"""Number of a learned policy among what is summed."""

GPU_VIEW = "gpu"  # name of the weights' view (`steersman.policies.features`)
FEATURES = 15  # of a node's state
RULE_COUNT = len(NAMES)  # columns of `rules`; that of FGD is unused, its weight is in `weights`
WEIGHTS = 2 * FEATURES + 1  # number of weights per pod kind: of the state after, of its change, of FGD's score

Array = npt.NDArray[np.float64]
Layer = tuple[Array, Array]  # weights [H, I] and biases [H] of a layer


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
