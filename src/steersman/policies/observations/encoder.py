"""Encode one observation at a time, of a run, a recording or a live cluster, as environments do for a batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, PODS, NodeArrays
from steersman.cluster.model import GPU_MILLI
from steersman.core.compiled import kernel
from steersman.objectives import summary as summed
from steersman.policies.features import View
from steersman.policies.observations.encoding import EncodingContext, ObservedCluster, OwnerArrays, number_of
from steersman.policies.observations.kernels import (
    CachedFeatures,
    ObservationArrays,
    new_feature_cache,
    write_observation,
)


class ObservationEncoder:
    """Encode the observations of one cluster; features of unchanged nodes are reused.

    Used by simulated runs (`simulation.observations`), by the live scheduler and the service
    (`policies.observations.live`) and for recordings (`apps.recorder.transitions`).

    The caller keeps `context` up to date, and writes slots of changed nodes to `log` [L], its length to `logged`.
    The summary is taken over eligible nodes, [N], see `cluster.constraints.node.eligible_nodes`.
    """

    def __init__(
        self,
        view: View,
        context: EncodingContext,
        owners: OwnerArrays,
        eligible: npt.NDArray[np.bool_],
        log: npt.NDArray[np.int64],
        logged: npt.NDArray[np.int64],
    ) -> None:
        self.view, self.context, self.owners, self.log, self.logged = view, context, owners, log, logged
        self.number = number_of(view)
        self.summary = fixed_summary(context.nodes, eligible)
        self.observation = _empty_observation(view, len(context.nodes.gpu_count))
        self._rows = new_feature_cache((), len(context.classes.gpu_count), len(context.nodes.gpu_count), len(view.node))

    def encode(self, c: int, owner: int, allowed: npt.NDArray[np.bool_] | None) -> ObservationArrays:
        """Return the observation, valid until the next call, of a pod of class `c`; `summary` is the state.

        `owner` -1: it has none. `allowed`: [N] where it may run, if other pods matter to it; None: wherever it fits.
        """
        cluster = ObservedCluster(self.context, self.owners, self.summary)
        known = CachedFeatures(self._rows, self.log, int(self.logged[0]))
        _write(
            self.number, cluster, known, c, owner, _WHEREVER_IT_FITS if allowed is None else allowed, self.observation
        )
        return self.observation


def fixed_summary(nodes: NodeArrays, eligible: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return [16] a summary (`objectives.summary`) with the constant entries of eligible nodes, [N]; the rest is 0."""
    row = np.zeros(summed.COLUMNS)
    allocatable = nodes.allocatable[eligible]
    row[summed.NODES] = len(allocatable)
    row[summed.CPU_NODES] = (allocatable[:, CPU] > 0).sum()
    row[summed.CPU_TOTAL] = allocatable[:, CPU].sum()
    row[summed.MEMORY_TOTAL] = allocatable[:, MEMORY].sum()
    row[summed.GPU_TOTAL] = nodes.gpu_count[eligible].sum() * GPU_MILLI
    row[summed.SLOTS] = len(nodes.gpu_count)
    return row


def summary_of(
    nodes: NodeArrays, eligible: npt.NDArray[np.bool_], fragmented: npt.NDArray[np.float64], waiting: int
) -> npt.NDArray[np.float64]:
    """Return [16] a summary of eligible nodes, [N], as they are, with [N] fragmented GPU milli and waiting pods."""
    row = fixed_summary(nodes, eligible)
    allocatable = nodes.allocatable[eligible]
    # Free may be below 0 where pods run on a node that shrank; shares then exceed 1.
    used = allocatable - nodes.free[eligible]
    with_cpu = allocatable[:, CPU] > 0
    share = used[with_cpu, CPU] / allocatable[with_cpu, CPU]
    row[summed.NODES_USED] = (used[:, PODS] > 0).sum()
    row[summed.CPU_SHARE], row[summed.CPU_SQUARE] = share.sum(), (share * share).sum()
    row[summed.CPU_TAKEN], row[summed.MEMORY_TAKEN] = used[:, CPU].sum(), used[:, MEMORY].sum()
    row[summed.GPU_TAKEN] = row[summed.GPU_TOTAL] - nodes.gpu_free[eligible].sum()
    row[summed.FRAGMENTED] = fragmented[eligible].sum()
    row[summed.WAITING] = waiting
    return row


def owner_arrays(owners: int, rack: npt.NDArray[np.int64], racks: int) -> OwnerArrays:
    """Return the arrays of owners of which no pod runs yet, on nodes in these racks."""
    return OwnerArrays(
        rack=rack,
        running=np.zeros(owners, dtype=np.int32),
        on_node=np.zeros((owners, len(rack) if owners else 0), dtype=np.int32),
        in_rack=np.zeros((owners, racks), dtype=np.int32),
    )


_WHEREVER_IT_FITS = np.zeros(0, dtype=np.bool_)


def _empty_observation(view: View, nodes: int) -> ObservationArrays:
    features = np.zeros((nodes, len(view.node)), dtype=np.float32)
    return ObservationArrays(
        nodes=features,
        flat=features.reshape(-1),
        pod=np.zeros(len(view.pod), dtype=np.float32),
        context=np.zeros(len(view.context), dtype=np.float32),
        mask=np.zeros(nodes, dtype=np.int8),
    )


@kernel
def _write(
    view: int,
    cluster: ObservedCluster,
    known: CachedFeatures,
    c: int,
    owner: int,
    allowed: npt.NDArray[np.bool_],
    observation: ObservationArrays,
) -> None:
    write_observation(view, cluster, known, c, owner, allowed, observation)
