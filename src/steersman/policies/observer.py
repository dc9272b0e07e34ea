"""What a network is shown of a cluster: the observation that environments show, for one run, brought up to date."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, PODS, WHOLE, NodeArrays
from steersman.compiled import kernel
from steersman.features import View
from steersman.objectives import summary as summed
from steersman.policies.encoding import OwnerArrays, Scene, number_of
from steersman.policies.showing import Rows, Seen, kept_rows, show


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
        self._rows = kept_rows((), len(scene.classes.gpu_count), len(scene.nodes.gpu_count), len(view.node))

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
            self.number, scene, owners, summary, self._rows, self.log, self.logged, c, owner, where, masked, self.seen
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


def summary_of(nodes: NodeArrays, fragmented: float, waiting: int) -> npt.NDArray[np.float64]:
    """[15] a summary of nodes as they are, with so much fragmented GPU milli and so many pods that wait."""
    row = fixed_summary(nodes)
    used = nodes.allocatable - nodes.free
    with_cpu = nodes.allocatable[:, CPU] > 0
    share = used[with_cpu, CPU] / nodes.allocatable[with_cpu, CPU]
    row[summed.NODES_USED] = (used[:, PODS] > 0).sum()
    row[summed.CPU_SHARE], row[summed.CPU_SQUARE] = share.sum(), (share * share).sum()
    row[summed.CPU_TAKEN], row[summed.MEMORY_TAKEN] = used[:, CPU].sum(), used[:, MEMORY].sum()
    row[summed.GPU_TAKEN] = nodes.gpu_count.sum() * WHOLE - nodes.gpu_free.sum()
    row[summed.FRAGMENTED] = fragmented
    row[summed.WAITING] = waiting
    return row


def owner_arrays(owners: int, rack: npt.NDArray[np.int64], racks: int) -> OwnerArrays:
    """Of as many owners, none of whose pods runs yet, on nodes in these racks."""
    return OwnerArrays(
        rack=rack,
        running=np.zeros(owners, dtype=np.int32),
        on_node=np.zeros((owners, len(rack) if owners else 0), dtype=np.int32),
        in_rack=np.zeros((owners, racks), dtype=np.int32),
    )


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


@kernel
def _look(
    view: int,
    scene: Scene,
    owners: OwnerArrays,
    summary: npt.NDArray[np.float64],
    rows: Rows,
    log: npt.NDArray[np.int64],
    logged: npt.NDArray[np.int64],
    c: int,
    owner: int,
    allowed: npt.NDArray[np.bool_],
    masked: bool,
    seen: Seen,
) -> None:
    show(view, scene, owners, summary, rows, log, logged[0], c, owner, allowed, masked, seen)
