"""What a network is shown of a cluster: the observation that environments show, for one run, brought up to date.

Local features of a node are kept for each class of pods and computed anew for nodes that changed; those that depend on
the rest of the cluster are written for every decision (`policies.encoding`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, WHOLE, NodeArrays, fits
from steersman.compiled import inner, kernel
from steersman.features import View
from steersman.objectives import summary as summed
from steersman.policies.encoding import (
    OwnerArrays,
    Scene,
    encode_context,
    encode_node,
    encode_pod,
    encode_shared,
    number_of,
)

MAX_KEPT_BYTES = 1 << 30


class Rows(NamedTuple):
    """Local features of C classes on N nodes, kept from decision to decision.

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


class Observer:
    """Sees one run.

    Args:
        view: what is seen.
        scene: the cluster, which the run keeps up to date.
        owners: where pods of owners run.
        log: [L] slots of changed nodes, in order, which the run writes.
        logged: [1] how much of it is written.
    """

    def __init__(
        self,
        view: View,
        scene: Scene,
        owners: OwnerArrays,
        log: npt.NDArray[np.int64],
        logged: npt.NDArray[np.int64],
    ) -> None:
        self.view, self.scene, self.owners, self.log, self.logged = view, scene, owners, log, logged
        self.number = number_of(view)
        self.summary = fixed_summary(scene.nodes)
        self.seen = _seen(view, len(scene.nodes.gpu_count))
        self._rows = _rows(len(scene.classes.gpu_count), len(scene.nodes.gpu_count), len(view.node))

    def look(self, c: int, owner: int, allowed: npt.NDArray[np.bool_] | None) -> Seen:
        """What there is to see for a pod of class `c` of an owner (-1: none); `summary` says how the cluster is.

        Args:
            c: the class.
            owner: its index.
            allowed: [N] where the pod may run, if other pods matter to it; None: wherever it fits.

        Returns:
            The observation, valid until the next look.
        """
        masked = allowed is not None
        where = allowed if allowed is not None else _NOWHERE
        scene, owners, summary = self.scene, self.owners, self.summary
        _look(
            self.number, scene, owners, summary, self._rows, self.log, self.logged, self.seen, c, owner, where, masked
        )
        return self.seen


def fixed_summary(nodes: NodeArrays) -> npt.NDArray[np.float64]:
    """[15] a summary (`objectives.summary`) with what never changes about these nodes; the rest is 0."""
    row = np.zeros(summed.COLUMNS)
    row[summed.NODES] = len(nodes.gpu_count)
    row[summed.CPU_NODES] = (nodes.allocatable[:, CPU] > 0).sum()
    row[summed.CPU_TOTAL] = nodes.allocatable[:, CPU].sum()
    row[summed.MEMORY_TOTAL] = nodes.allocatable[:, MEMORY].sum()
    row[summed.GPU_TOTAL] = nodes.gpu_count.sum() * WHOLE
    return row


def owner_arrays(owners: int, rack: npt.NDArray[np.int64], racks: int) -> OwnerArrays:
    """Of as many owners, none of whose pods runs yet, on nodes in these racks."""
    return OwnerArrays(
        rack=rack,
        running=np.zeros(owners, dtype=np.int32),
        on_node=np.zeros((owners, len(rack) if owners else 0), dtype=np.int32),
        in_rack=np.zeros((owners, racks), dtype=np.int32),
    )


def count_owner(owners: OwnerArrays, owner: int, n: int, sign: int) -> None:
    """Count that a pod of an owner (-1: none) came to node `n`, or with -1 that it left."""
    if owner < 0:
        return
    owners.running[owner] += sign
    owners.on_node[owner, n] += sign
    if owners.rack[n] >= 0:
        owners.in_rack[owner, owners.rack[n]] += sign


_NOWHERE = np.zeros(0, dtype=np.bool_)


def _seen(view: View, nodes: int) -> Seen:
    features = np.zeros((nodes, len(view.node)), dtype=np.float32)
    return Seen(
        nodes=features,
        flat=features.reshape(-1),
        pod=np.zeros(len(view.pod), dtype=np.float32),
        context=np.zeros(len(view.context), dtype=np.float32),
        mask=np.zeros(nodes, dtype=np.int8),
    )


def _rows(classes: int, nodes: int, width: int) -> Rows:
    """Room for the local features of every class; none if it would be too much."""
    kept = classes if classes * nodes * width * 4 <= MAX_KEPT_BYTES else 0
    return Rows(
        features=np.zeros((kept, nodes * width), dtype=np.float32),
        fit=np.zeros((kept, nodes), dtype=np.int8),
        seen=np.full(classes, -1, dtype=np.int64),
        stamp=np.zeros(nodes, dtype=np.int64),
        stamps=np.zeros(1, dtype=np.int64),
    )


@inner
def _local(
    view: int,
    scene: Scene,
    rows: Rows,
    log: npt.NDArray[np.int64],
    logged: int,
    c: int,
    seen: Seen,
) -> None:
    """The local features of all nodes for class `c`, and where it fits; by bringing those that are kept up to date."""
    count, width = seen.nodes.shape[0], seen.nodes.shape[1]
    kept, known = rows.features.shape[0] > 0, -1
    features, fit = seen.flat, seen.mask
    if kept:
        features, fit = rows.features[c], rows.fit[c]
        known = rows.seen[c]
        rows.seen[c] = logged
    rows.stamps[0] += 1
    stamp = rows.stamps[0]
    for k in range(count if known < 0 else logged - known):
        n = k if known < 0 else log[known + k]
        if rows.stamp[n] != stamp:
            rows.stamp[n] = stamp
            fit[n] = fits(scene.nodes, scene.classes, c, n)
            encode_node(view, scene, c, n, features[n * width : (n + 1) * width])
    if kept:
        # Plain loops over one axis: the only form that becomes a block copy.
        flat, mask = seen.flat, seen.mask
        for i in range(count * width):
            flat[i] = features[i]
        for n in range(count):
            mask[n] = fit[n]


@kernel
def _look(
    view: int,
    scene: Scene,
    owners: OwnerArrays,
    summary: npt.NDArray[np.float64],
    rows: Rows,
    log: npt.NDArray[np.int64],
    logged: npt.NDArray[np.int64],
    seen: Seen,
    c: int,
    owner: int,
    allowed: npt.NDArray[np.bool_],
    masked: bool,
) -> None:
    _local(view, scene, rows, log, logged[0], c, seen)
    feasible = 0
    for n in range(seen.mask.shape[0]):
        if masked:
            seen.mask[n] = allowed[n]
        feasible += seen.mask[n]
    encode_shared(view, scene, owner, owners, summary, seen.nodes)
    encode_pod(view, scene.classes, c, owners.running[owner] if owner >= 0 else 0, seen.pod)
    encode_context(view, summary, feasible, seen.context)
