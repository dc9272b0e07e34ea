"""Observations of a live cluster for networks, equal to those of an environment in the same state.

Those in the view `telemetry` equal those of `steersman/Latency-v0`.
"""

from __future__ import annotations

import operator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY
from steersman.cluster.pod_query import PodQuery
from steersman.core.handles import CoreDecider, MetricsQuestion
from steersman.objectives import summary as summed
from steersman.objectives.registry import WeightedObjectives
from steersman.objectives.telemetry import TELEMETRY_OBJECTIVES
from steersman.policies.base import Candidates
from steersman.policies.features import TELEMETRY, View
from steersman.policies.kube_scheduler.arrays import ZONE
from steersman.policies.node_metrics import NodeMetricsView
from steersman.policies.observation import ObservationArrays, empty_observation
from steersman.workloads.topology import NodePlaces

Row = npt.NDArray[np.float64]


class ObservedCluster(Protocol):
    """A live cluster that can be observed, see `decision.live_core.LiveCore`."""

    places: NodePlaces

    @property
    def decider(self) -> CoreDecider: ...

    def watching(self, view: View) -> CoreDecider: ...


class LiveObservations:
    """Observe a live cluster in a view."""

    def __init__(self, view: View, live: ObservedCluster) -> None:
        self.view, self._live = view, live
        self._state = np.zeros(summed.COLUMNS)
        self._seen = empty_observation(view, 0)

    def observe(self, query: PodQuery, nodes: Candidates) -> tuple[ObservationArrays, npt.NDArray[np.int32]]:
        """Return the observation of a decision, see `base.Observations`."""
        core, count = self._live.watching(self.view), len(nodes.feasible)
        if len(self._seen.mask) != count:
            self._seen = empty_observation(self.view, count)
        seen, places = self._seen, self._live.places
        core.observe(nodes.waiting, nodes.eligible.view(np.int8), query.owner_pods.running)
        parts = seen.nodes, seen.pod, seen.context, seen.mask
        count = core.look(query.class_id, nodes.feasible, *parts, self._state)
        groups = np.stack([places.rack[:count], places.server[:count]], axis=1).astype(np.int32)
        return seen._replace(nodes=seen.nodes[:count], mask=seen.mask[:count]), groups

    def state(self) -> Row:
        """Return the state when a pod was last observed, [16], see `objectives.summary`."""
        return self._state.copy()

    def outcome(self, query: PodQuery, nodes: Candidates, slot: int) -> tuple[Row, Row]:
        """Return the states before and after the placement on `slot` of the pod that was last observed, [16] each."""
        before, after = self.state(), self.state()
        self._live.decider.write_outcome(query.class_id, slot, after)
        return before, after


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
        slots, question = self._question(query, candidates)
        zones = self._zones_of_slots()
        count = len(zones)
        rows = np.zeros((len(slots), len(TELEMETRY.node)), dtype=np.float32)
        pod = np.zeros(len(TELEMETRY.pod), dtype=np.float32)
        context = np.zeros(len(TELEMETRY.context), dtype=np.float32)
        if len(slots):
            question.observe(rows, pod, context)
        nodes = np.zeros((count, len(TELEMETRY.node)), dtype=np.float32)
        nodes[slots] = rows
        groups = np.full((count, 2), -1, dtype=np.int32)
        groups[slots, 0] = zones[slots]
        mask_of_slots = candidates.feasible.astype(np.int8)
        return ObservationArrays(nodes, pod, context, mask_of_slots), groups

    def outcome(
        self, query: PodQuery, candidates: Candidates, slot: int, objectives: WeightedObjectives
    ) -> tuple[Floats, float]:
        """Return the estimated state after a pod's placement on a slot, [16], and its reward, see `outcomes`."""
        slots, question = self._question(query, candidates)
        numbers = np.array([TELEMETRY_OBJECTIVES[each.name] for each in objectives.objectives], dtype=np.int64)
        weights = np.array(objectives.weights, dtype=np.float64)
        state, reward = question.outcome(int(np.searchsorted(slots, slot)), numbers, weights)
        return np.append(state, 0.0), reward

    def _question(self, query: PodQuery, candidates: Candidates) -> tuple[Integers, MetricsQuestion]:
        """Return [K] the slots that are shown, in order, and the question about these.

        They are the eligible nodes with CPU and memory.
        """
        described = self._metrics.described(query)
        allocatable = self._metrics.state.arrays.allocatable
        has_capacity = (allocatable[:, CPU] > 0) & (allocatable[:, MEMORY] > 0)
        slots = np.flatnonzero(has_capacity & candidates.eligible)
        described |= {"view.zone": self._zones_of_slots(), "mask": candidates.feasible}
        if len(slots) < len(allocatable):
            by_slot = (name for name in described if name == "mask" or name.startswith("view."))
            described |= {name: described[name][slots] for name in by_slot if name != "view.assumed"}
        return slots, MetricsQuestion(described)

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
