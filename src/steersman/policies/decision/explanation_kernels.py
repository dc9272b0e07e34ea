"""Score components and features of one node under policies of the score table, for explanations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from steersman.core.compiled import kernel
from steersman.policies.decision.kernels import DecisionState
from steersman.policies.gpu_state.arrays import WEIGHTS
from steersman.policies.gpu_state.gpu_features import FEATURES
from steersman.policies.gpu_state.kernels import features_now, features_with
from steersman.policies.node_scores.local_scores import fgd_points, local_score


def rule_scores(cluster: DecisionState, rules: Sequence[int], c: int, n: int) -> list[int]:
    """Return the scores of heuristics, [K], by their ids, for class `c` on node `n`, where it must fit."""
    scores = np.zeros(len(rules), dtype=np.int64)
    ids = np.array(rules, dtype=np.int64)
    _rule_scores(cluster, ids, c, n, scores)
    return [int(score) for score in scores]


def linear_features(cluster: DecisionState, c: int, n: int, devices: int) -> npt.NDArray[np.float64]:
    """Return the linear features, [W], of class `c` on these devices of node `n`: state after, change, FGD's score."""
    row = np.zeros(WEIGHTS)
    _learned_row(cluster, c, n, devices, row)
    return row


@kernel
def _rule_scores(
    cluster: DecisionState, ids: npt.NDArray[np.int64], c: int, n: int, scores: npt.NDArray[np.int64]
) -> None:
    profile, fragments = cluster.profile, cluster.fragments
    for k in range(ids.shape[0]):
        scores[k] = local_score(ids[k], profile, fragments, cluster.nodes, cluster.classes, c, n)


@kernel
def _learned_row(cluster: DecisionState, c: int, n: int, devices: int, row: npt.NDArray[np.float64]) -> None:
    learned, profile, nodes = cluster.learned, cluster.profile, cluster.nodes
    before = features_now(learned, profile, nodes, n)
    # Saved before `features_with`, which may overwrite the same row of the cache.
    fragmented = learned.fragmented[before]
    for i in range(FEATURES):
        row[FEATURES + i] = -learned.features[before, i]
    after = features_with(learned, profile, nodes, cluster.classes, c, n, devices)
    for i in range(FEATURES):
        row[i] = learned.features[after, i]
        row[FEATURES + i] += learned.features[after, i]
    row[2 * FEATURES] = fgd_points(fragmented, learned.fragmented[after])
