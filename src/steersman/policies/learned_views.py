"""What learned policies see of a cluster, for those who want to look at it: features of nodes, and how they differ."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays, best_devices, fits, pod_kind
from steersman.compiled import kernel
from steersman.policies.gpu_features import FEATURES
from steersman.policies.learned import LearnedArrays
from steersman.policies.learned_scores import features_now, features_with, learned_device
from steersman.policies.local import gradient
from steersman.workloads.mix import MixArrays


@kernel
def add_spread(
    learned: LearnedArrays,
    mix: MixArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
    sums: npt.NDArray[np.float64],
    counts: npt.NDArray[np.float64],
    moments: npt.NDArray[np.float64],
) -> None:
    """How much features differ between the nodes that class `c` could go to.

    Adds to sums, [4, 2, F], the variances of their changes and of their values after, at the kind of `c`; to counts,
    [4], 1. `moments`, [5, F], is scratch.
    """
    kind, found = pod_kind(classes, c), 0
    for i in range(FEATURES):
        for j in range(4):
            moments[j, i] = 0.0
    for n in range(nodes.gpu_count.shape[0]):
        if not fits(nodes, classes, c, n):
            continue
        found += 1
        row = features_now(learned, mix, nodes, n)
        for i in range(FEATURES):
            moments[4, i] = learned.features[row, i]
        row = features_with(learned, mix, nodes, classes, c, n, best_devices(nodes, classes, c, n))
        for i in range(FEATURES):
            after = float(learned.features[row, i])
            change = after - moments[4, i]
            moments[0, i] += change
            moments[1, i] += change * change
            moments[2, i] += after
            moments[3, i] += after * after
    if found < 2:
        return
    counts[kind] += 1.0
    for i in range(FEATURES):
        for j in range(2):
            mean = moments[2 * j, i] / found
            sums[kind, j, i] += max(0.0, moments[2 * j + 1, i] / found - mean * mean)


@kernel
def see_nodes(
    learned: LearnedArrays,
    mix: MixArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
    out: npt.NDArray[np.float64],
) -> None:
    """The features of view `gpu` for class `c` into out, [N, W]; rows of nodes that it does not fit on are zero.

    A share goes to the device that the policy chooses. Scores are these rows times the weights of the pod's kind.
    """
    kind = pod_kind(classes, c)
    for n in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[n, i] = 0.0
        if not fits(nodes, classes, c, n):
            continue
        if kind == 1:
            devices = 1 << learned_device(learned, mix, nodes, classes, c, n)
        else:
            devices = best_devices(nodes, classes, c, n)
        row = features_now(learned, mix, nodes, n)
        before = learned.fragmented[row]
        for i in range(FEATURES):
            out[n, FEATURES + i] = -learned.features[row, i]
        row = features_with(learned, mix, nodes, classes, c, n, devices)
        for i in range(FEATURES):
            out[n, i] = learned.features[row, i]
            out[n, FEATURES + i] += learned.features[row, i]
        out[n, 2 * FEATURES] = gradient(before, learned.fragmented[row])
