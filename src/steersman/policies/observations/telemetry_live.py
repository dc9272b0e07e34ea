"""Observations of a live cluster in the view `telemetry`, equal to those of `steersman/Latency-v0`."""

from __future__ import annotations

import math
import operator

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, ClassArrays, NodeArrays
from steersman.cluster.pod_query import PodQuery
from steersman.core.compiled import kernel
from steersman.objectives import summary
from steersman.objectives.registry import WeightedObjectives
from steersman.objectives.telemetry import TELEMETRY_OBJECTIVES
from steersman.policies.base import Candidates
from steersman.policies.features import TELEMETRY
from steersman.policies.node_metrics.arrays import NODES, POD, SchedulerView
from steersman.policies.node_metrics.latency_filter import find_nearest
from steersman.policies.node_metrics.view import NodeMetricsView
from steersman.policies.node_scores.kube_arrays import ZONE
from steersman.policies.observations.kernels import ObservationArrays
from steersman.policies.observations.telemetry_encoding import encode
from steersman.policies.observations.telemetry_outcomes import write_outcome

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class TelemetryObservations:
    """Observe the nodes' requests and metrics.

    Nodes with the same label `topology.kubernetes.io/zone` are a zone, and a node without it is one of its own. The
    zone of a pod's users is the one whose idle nodes have the least latency to them.
    """

    def __init__(self, metrics: NodeMetricsView) -> None:
        self._metrics = metrics
        self._nodes: list[object] = []
        self._zones = np.zeros(0, dtype=np.int64)

    def observe(self, query: PodQuery, candidates: Candidates) -> tuple[ObservationArrays, npt.NDArray[np.int32]]:
        """Return the observation of a decision, see `policies.base.Observations`; the rows of others are 0.

        Shown are the eligible nodes (`Candidates.eligible`).
        """
        view = self._metrics.scheduler_view(query)
        slots = _shown_slots(view, candidates)
        zones = self._zones_of_slots()
        count = len(zones)
        rows = np.zeros((1, len(slots), len(TELEMETRY.node)), dtype=np.float32)
        pod = np.zeros((1, len(TELEMETRY.pod)), dtype=np.float32)
        context = np.zeros((1, len(TELEMETRY.context)), dtype=np.float32)
        if len(slots):
            mask = candidates.feasible[slots].astype(np.int8)[None]
            _observe(_present(view, slots, zones), mask, rows, pod, context)
        nodes = np.zeros((count, len(TELEMETRY.node)), dtype=np.float32)
        nodes[slots] = rows[0]
        groups = np.full((count, 2), -1, dtype=np.int32)
        groups[slots, 0] = zones[slots]
        mask_of_slots = candidates.feasible.astype(np.int8)
        return ObservationArrays(nodes, nodes.reshape(-1), pod[0], context[0], mask_of_slots), groups

    def outcome(
        self, query: PodQuery, candidates: Candidates, slot: int, objectives: WeightedObjectives
    ) -> tuple[Floats, float]:
        """Return the estimated state after a pod's placement on a slot, [16], and its reward, see `outcomes`."""
        view = self._metrics.scheduler_view(query)
        slots = _shown_slots(view, candidates)
        row, mask = np.zeros(summary.COLUMNS), candidates.feasible[slots].astype(np.int8)[None]
        numbers = np.array([TELEMETRY_OBJECTIVES[each.name] for each in objectives.objectives], dtype=np.int64)
        weights = np.array(objectives.weights, dtype=np.float64)
        chosen = int(np.searchsorted(slots, slot))
        reward = write_outcome(_present(view, slots, self._zones_of_slots()), mask, chosen, numbers, weights, row)
        return row, float(reward)

    def reset_cache(self) -> None:
        """Do nothing: no feature is cached; see `policies.base.Observations`."""

    def _zones_of_slots(self) -> Integers:
        nodes = self._metrics.state.nodes
        if len(nodes) != len(self._nodes) or any(map(operator.is_not, nodes, self._nodes)):
            self._nodes = list(nodes)
            numbers: dict[object, int] = {}
            self._zones = np.array(
                [
                    # A node without the label is a zone of its own, under its slot.
                    numbers.setdefault(slot if node is None else node.labels.get(ZONE) or slot, len(numbers))
                    for slot, node in enumerate(nodes)
                ],
                dtype=np.int64,
            )
        return self._zones


def _shown_slots(view: SchedulerView, candidates: Candidates) -> Integers:
    """Return [K] the slots of eligible nodes with CPU and memory, in order."""
    has_capacity = (view.nodes.allocatable[:, CPU] > 0) & (view.nodes.allocatable[:, MEMORY] > 0)
    return np.flatnonzero(has_capacity & candidates.eligible)


def _present(view: SchedulerView, slots: Integers, zones: Integers) -> SchedulerView:
    """Return the view of the nodes in these slots, [K], with their zones.

    All arrays are contiguous (an index of a second axis gives transposed ones), so that one kernel is compiled.
    """
    return view._replace(
        nodes=NodeArrays(*(array.take(slots, axis=0) for array in view.nodes)),
        pods=ClassArrays(
            **{
                name: array if name != "allowed" else array.take(slots, axis=1)
                for name, array in view.pods._asdict().items()
            }
        ),
        counts=np.array([[len(slots), 0]], dtype=np.int64),
        measured=view.measured.take(slots, axis=1),
        age=view.age.take(slots, axis=1),
        since=view.since.take(slots, axis=1),
        siblings=view.siblings.take(slots, axis=1),
        zone=zones[None, slots],
        nearest=np.full((1, len(zones)), np.nan),
    )


@kernel
def _observe(
    view: SchedulerView,
    mask: npt.NDArray[np.int8],
    nodes: npt.NDArray[np.float32],
    pod: npt.NDArray[np.float32],
    context: npt.NDArray[np.float32],
) -> None:
    """Write the observation of the view's only pod, see `encode`."""
    users_zone = -1
    if view.user[0, view.counts[0, POD]] >= 0:
        find_nearest(view, 0)
        least = np.inf
        for n in range(view.counts[0, NODES]):
            latency = view.nearest[0, view.zone[0, n]]
            if not math.isnan(latency) and latency < least:
                least, users_zone = latency, view.zone[0, n]
    encode(view, 0, users_zone, mask, nodes, pod, context)
