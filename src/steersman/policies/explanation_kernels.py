"""What policies of the score table weigh on one node, for explanations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays
from steersman.compiled import kernel
from steersman.objectives.fragmentation import FragmentArrays
from steersman.policies.deciding import Cluster
from steersman.policies.gpu_features import FEATURES
from steersman.policies.learned import WEIGHTS, LearnedArrays
from steersman.policies.learned_scores import features_now, features_with
from steersman.policies.local import gradient, local_score
from steersman.workloads.mix import MixArrays


def rule_scores(cluster: Cluster, rules: Sequence[int], c: int, n: int) -> list[int]:
    """Return the scores of rules, [K], by their numbers, for class `c` on node `n`, where it must fit."""
    points = np.zeros(len(rules), dtype=np.int64)
    numbers = np.array(rules, dtype=np.int64)
    _rule_scores(numbers, cluster.mix, cluster.fragments, cluster.nodes, cluster.classes, c, n, points)
    return [int(each) for each in points]


def learned_row(cluster: Cluster, c: int, n: int, devices: int) -> npt.NDArray[np.float64]:
    """Return what weights weigh, [W], for class `c` on devices of node `n`: state after, its change, FGD's score."""
    row = np.zeros(WEIGHTS)
    _learned_row(cluster.learned, cluster.mix, cluster.nodes, cluster.classes, c, n, devices, row)
    return row


@kernel
def _rule_scores(
    kinds: npt.NDArray[np.int64],
    mix: MixArrays,
    fragments: FragmentArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
    n: int,
    points: npt.NDArray[np.int64],
) -> None:
    for k in range(kinds.shape[0]):
        points[k] = local_score(kinds[k], mix, fragments, nodes, classes, c, n)


@kernel
def _learned_row(
    learned: LearnedArrays,
    mix: MixArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
    n: int,
    devices: int,
    row: npt.NDArray[np.float64],
) -> None:
    now = features_now(learned, mix, nodes, n)
    fragmented = learned.fragmented[now]
    for i in range(FEATURES):
        row[FEATURES + i] = -learned.features[now, i]
    after = features_with(learned, mix, nodes, classes, c, n, devices)
    for i in range(FEATURES):
        row[i] = learned.features[after, i]
        row[FEATURES + i] += learned.features[after, i]
    row[2 * FEATURES] = gradient(fragmented, learned.fragmented[after])
