"""Sizes of learned policies.

The score of placing a pod of kind k (no GPU, a share, one GPU, several) on a node is

    after[k] . f(node after) + change[k] . (f(node after) - f(node before)) + fgd[k] FGD(node) + rules[k] . r(node)

with the features f of view `gpu` (`policies.features`), FGD's integer score and the scores r of other heuristics. A
network may add its output for the same features and the pod's. `core/src/learned.rs` computes it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.policies.node_scores.local_scores import NAMES

GPU_VIEW = "gpu"  # name of the weights' view (`steersman.policies.features`)
FEATURES = 15  # of a node's state
RULE_COUNT = len(NAMES)  # columns of `rules`; that of FGD is unused, its weight is in `weights`
WEIGHTS = 2 * FEATURES + 1  # number of weights per pod kind: of the state after, of its change, of FGD's score

Array = npt.NDArray[np.float64]
Layer = tuple[Array, Array]  # weights [H, I] and biases [H] of a layer
