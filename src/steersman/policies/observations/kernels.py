"""Write the observations of one run: local features of nodes, which are cached, and shared features.

Local features are cached for each class of pods and recomputed for nodes that changed since the class was last
observed; those that depend on the rest of the cluster are written for every decision
(`policies.observations.encoding`). Environments and simulations call the same functions, so that a network observes
the same in both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.core.compiled import inlined_kernel
from steersman.objectives.summary import SLOTS
from steersman.policies.observations.encoding import (
    EncodingContext,
    ObservedCluster,
    encode_context,
    encode_node,
    encode_pod,
    encode_shared,
)

MAX_KEPT_BYTES = 1 << 30


class FeatureCache(NamedTuple):
    """Local features of C classes on N nodes, kept between decisions; a batch of runs has an axis E before all.

    Attributes:
        features: [C, N F] float32; [0, N F] if they would take too much memory.
        fit: [C, N] int8 whether the class fits.
        log_position: [C] position in the log up to which the class is current, -1: none.
        stamp: [N] the last update that computed the node.
        stamps: [1] number of updates so far.
    """

    features: npt.NDArray[np.float32]
    fit: npt.NDArray[np.int8]
    log_position: npt.NDArray[np.int64]
    stamp: npt.NDArray[np.int64]
    stamps: npt.NDArray[np.int64]


class CachedFeatures(NamedTuple):
    """The cache of one run, and the log of what has changed since: [L] slots, in order, and its length."""

    rows: FeatureCache
    log: npt.NDArray[np.int64]
    logged: int


class ObservationArrays(NamedTuple):
    """An observation.

    Attributes:
        nodes: [N, F] float32.
        flat: [N F] the same memory.
        pod: [P] float32.
        context: [X] float32.
        mask: [N] int8, 1 where the pod may run.
    """

    nodes: npt.NDArray[np.float32]
    flat: npt.NDArray[np.float32]
    pod: npt.NDArray[np.float32]
    context: npt.NDArray[np.float32]
    mask: npt.NDArray[np.int8]


def new_feature_cache(runs: tuple[int, ...], classes: int, nodes: int, width: int) -> FeatureCache:
    """Return an empty cache of the local features of every class, or of none if they would take too much memory.

    `runs` is `(E,)`, or `()` for one run without the axis.
    """
    kept = classes if np.prod(runs, dtype=np.int64) * classes * nodes * width * 4 <= MAX_KEPT_BYTES else 0
    return FeatureCache(
        features=np.zeros((*runs, kept, nodes * width), dtype=np.float32),
        fit=np.zeros((*runs, kept, nodes), dtype=np.int8),
        log_position=np.full((*runs, classes), -1, dtype=np.int64),
        stamp=np.zeros((*runs, nodes), dtype=np.int64),
        stamps=np.zeros((*runs, 1), dtype=np.int64),
    )


@inlined_kernel
def write_observation(
    view: int,
    cluster: ObservedCluster,
    known: CachedFeatures,
    c: int,
    owner: int,
    allowed: npt.NDArray[np.bool_],
    observation: ObservationArrays,
) -> None:
    """Write the observation for a pod of class `c`.

    `known`: local features that may be reused; `owner` -1: none; `allowed`: [N] where the pod may run, if other pods
    matter to it, [0]: wherever it fits.
    """
    count = int(cluster.summary[SLOTS])
    _write_local_features(view, cluster.context, known, c, count, observation)
    # The mask from fitting is replaced: other pods matter, and `allowed` has both.
    if allowed.shape[0] > 0:
        for n in range(count):
            observation.mask[n] = allowed[n]
    feasible = 0
    for n in range(count):
        feasible += observation.mask[n]
    write_shared_features(view, cluster, c, owner, feasible, observation)


@inlined_kernel
def write_shared_features(
    view: int, cluster: ObservedCluster, c: int, owner: int, feasible: int, observation: ObservationArrays
) -> None:
    """Write the features that depend on the whole cluster, where the pod fits on `feasible` nodes."""
    context, owners, summary = cluster
    encode_shared(view, context, owner, owners, summary, observation.nodes)
    encode_pod(context.classes, c, owners.running[owner] if owner >= 0 else 0, observation.pod)
    encode_context(summary, feasible, observation.context)


@inlined_kernel
def write_terminal_observation(observation: ObservationArrays) -> None:
    """Write an observation without a pod and nodes to choose: all is 0 but the context, which stays."""
    for n in range(observation.mask.shape[0]):
        observation.mask[n] = 0
    for i in range(observation.flat.shape[0]):
        observation.flat[i] = 0.0
    for i in range(observation.pod.shape[0]):
        observation.pod[i] = 0.0


@inlined_kernel
def _write_local_features(
    view: int, context: EncodingContext, known: CachedFeatures, c: int, count: int, observation: ObservationArrays
) -> None:
    """Write the local features of all nodes for class `c`, and where it fits, after updating the cache."""
    rows, width, current_to = known.rows, observation.nodes.shape[1], -1
    kept = rows.features.shape[0] > 0
    if kept:
        current_to = rows.log_position[c]
        rows.log_position[c] = known.logged
    if current_to >= 0:
        # Copy all rows at once, then recompute those that changed: they are in the CPU cache by then.
        _copy_floats(rows.features[c], observation.flat, count * width)
        _copy_flags(rows.fit[c], observation.mask, count)
    rows.stamps[0] += 1
    stamp = rows.stamps[0]
    for k in range(count if current_to < 0 else known.logged - current_to):
        n = k if current_to < 0 else known.log[current_to + k]
        if rows.stamp[n] != stamp:
            rows.stamp[n] = stamp
            row = observation.flat[n * width : (n + 1) * width]
            observation.mask[n] = encode_node(view, context, c, n, row)
            if kept:
                rows.fit[c, n] = observation.mask[n]
                _copy_floats(row, rows.features[c, n * width : (n + 1) * width], width)


@inlined_kernel
def _copy_floats(source: npt.NDArray[np.float32], target: npt.NDArray[np.float32], count: int) -> None:
    # A plain loop over one axis, from 0 on, is the only form that becomes a block copy.
    for i in range(count):
        target[i] = source[i]


@inlined_kernel
def _copy_flags(source: npt.NDArray[np.int8], target: npt.NDArray[np.int8], count: int) -> None:
    for i in range(count):
        target[i] = source[i]
