"""Node features of learned policies as arrays, and their variance over feasible nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays, best_devices, fits, pod_kind
from steersman.core.compiled import kernel
from steersman.policies.features import POD_KINDS
from steersman.policies.gpu_state.arrays import LearnedArrays
from steersman.policies.gpu_state.gpu_features import FEATURES
from steersman.policies.gpu_state.kernels import features_now, features_with, learned_device
from steersman.policies.node_scores.local_scores import fgd_points
from steersman.workloads.profile import ProfileArrays


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


@kernel
def write_node_features(
    learned: LearnedArrays,
    profile: ProfileArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
    out: npt.NDArray[np.float64],
) -> None:
    """Write the features of view `gpu` for class `c` into `out`, [N, W]; rows of nodes that do not fit are zero.

    A GPU share is placed on the device that the policy chooses. Scores are these rows times the weights of the pod
    kind.
    """
    kind = pod_kind(classes, c)
    for n in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[n, i] = 0.0
        if not fits(nodes, classes, c, n):
            continue
        if kind == 1:
            devices = 1 << learned_device(learned, profile, nodes, classes, c, n)
        else:
            devices = best_devices(nodes, classes, c, n)
        row = features_now(learned, profile, nodes, n)
        # Saved before `features_with`, which may overwrite this row of the cache.
        before = learned.fragmented[row]
        for i in range(FEATURES):
            out[n, FEATURES + i] = -learned.features[row, i]
        row = features_with(learned, profile, nodes, classes, c, n, devices)
        for i in range(FEATURES):
            out[n, i] = learned.features[row, i]
            out[n, FEATURES + i] += learned.features[row, i]
        out[n, 2 * FEATURES] = fgd_points(before, learned.fragmented[row])
