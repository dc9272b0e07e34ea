"""An observation of one run, written: local features of nodes, kept and brought up to date, and all that is shared.

Local features are kept for each class of pods and computed anew for nodes that changed since the class was last asked
for; those that depend on the rest of the cluster are written for every decision (`policies.encoding`). Environments and
simulations call the same functions, so that a network sees the same in both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.compiled import inner
from steersman.objectives.summary import NODES
from steersman.policies.encoding import OwnerArrays, Scene, encode_context, encode_node, encode_pod, encode_shared

MAX_KEPT_BYTES = 1 << 30


class Rows(NamedTuple):
    """Local features of C classes on N nodes, kept from decision to decision; a batch of runs has an axis E before all.

    Attributes:
        features: [C, N F] float32; [0, N F] where there is no room for them.
        fit: [C, N] int8 whether the class fits.
        seen: [C] how much of the log the class has caught up with, -1: nothing yet.
        stamp: [N] the last catch-up that looked at the node.
        stamps: [1] catch-ups so far.
    """

    features: npt.NDArray[np.float32]
    fit: npt.NDArray[np.int8]
    seen: npt.NDArray[np.int64]
    stamp: npt.NDArray[np.int64]
    stamps: npt.NDArray[np.int64]


class Seen(NamedTuple):
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


def kept_rows(runs: tuple[int, ...], classes: int, nodes: int, width: int) -> Rows:
    """Room for the local features of every class, or for none if that would be too much.

    Args:
        runs: `(E,)`, or `()` for one run without the axis.
        classes: C.
        nodes: N.
        width: F.
    """
    kept = classes if np.prod(runs, dtype=np.int64) * classes * nodes * width * 4 <= MAX_KEPT_BYTES else 0
    return Rows(
        features=np.zeros((*runs, kept, nodes * width), dtype=np.float32),
        fit=np.zeros((*runs, kept, nodes), dtype=np.int8),
        seen=np.full((*runs, classes), -1, dtype=np.int64),
        stamp=np.zeros((*runs, nodes), dtype=np.int64),
        stamps=np.zeros((*runs, 1), dtype=np.int64),
    )


@inner
def show(
    view: int,
    scene: Scene,
    owners: OwnerArrays,
    summary: npt.NDArray[np.float64],
    rows: Rows,
    log: npt.NDArray[np.int64],
    logged: int,
    c: int,
    owner: int,
    allowed: npt.NDArray[np.bool_],
    masked: bool,
    seen: Seen,
) -> None:
    """Write all there is to see for a pod of class `c`.

    Args:
        view: the number of the view.
        scene: the cluster.
        owners: where pods of owners run.
        summary: the state, see `objectives.summary`.
        rows: what is kept.
        log: [L] slots of changed nodes, in order.
        logged: how much of it is written.
        c: the class.
        owner: of the pod, -1: none.
        allowed: [N] where the pod may run if `masked`, which is where other pods matter to it; else it is not read.
        masked: see there.
        seen: what is written.
    """
    count = int(summary[NODES])
    _show_local(view, scene, rows, log, logged, c, count, seen)
    if masked:
        for n in range(count):
            seen.mask[n] = allowed[n]
    feasible = 0
    for n in range(count):
        feasible += seen.mask[n]
    show_shared(view, scene, owners, summary, c, owner, feasible, seen)


@inner
def show_shared(
    view: int,
    scene: Scene,
    owners: OwnerArrays,
    summary: npt.NDArray[np.float64],
    c: int,
    owner: int,
    feasible: int,
    seen: Seen,
) -> None:
    """Write what depends on the whole cluster, on `feasible` of whose nodes the pod fits; local features are there."""
    encode_shared(view, scene, owner, owners, summary, seen.nodes)
    encode_pod(scene.classes, c, owners.running[owner] if owner >= 0 else 0, seen.pod)
    encode_context(summary, feasible, seen.context)


@inner
def show_no_pod(seen: Seen) -> None:
    """No pod, no node to choose: all is 0 but the context, which stays."""
    for n in range(seen.mask.shape[0]):
        seen.mask[n] = 0
    for i in range(seen.flat.shape[0]):
        seen.flat[i] = 0.0
    for i in range(seen.pod.shape[0]):
        seen.pod[i] = 0.0


@inner
def _show_local(
    view: int, scene: Scene, rows: Rows, log: npt.NDArray[np.int64], logged: int, c: int, count: int, seen: Seen
) -> None:
    """The local features of all nodes for class `c`, and where it fits; by bringing those that are kept up to date."""
    width, kept, known = seen.nodes.shape[1], rows.features.shape[0] > 0, -1
    if kept:
        known = rows.seen[c]
        rows.seen[c] = logged
    if known >= 0:
        # All rows first, in one go, and then those that changed: they are in the processor's cache by then.
        _copy_floats(rows.features[c], seen.flat, count * width)
        _copy_flags(rows.fit[c], seen.mask, count)
    rows.stamps[0] += 1
    stamp = rows.stamps[0]
    for k in range(count if known < 0 else logged - known):
        n = k if known < 0 else log[known + k]
        if rows.stamp[n] != stamp:
            rows.stamp[n] = stamp
            row = seen.flat[n * width : (n + 1) * width]
            seen.mask[n] = encode_node(view, scene, c, n, row)
            if kept:
                rows.fit[c, n] = seen.mask[n]
                _copy_floats(row, rows.features[c, n * width : (n + 1) * width], width)


@inner
def _copy_floats(source: npt.NDArray[np.float32], target: npt.NDArray[np.float32], count: int) -> None:
    # A plain loop over one axis, from 0 on, is the only form that becomes a block copy.
    for i in range(count):
        target[i] = source[i]


@inner
def _copy_flags(source: npt.NDArray[np.int8], target: npt.NDArray[np.int8], count: int) -> None:
    for i in range(count):
        target[i] = source[i]
