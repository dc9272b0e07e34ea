"""Build observations and rewards of a cluster of fixed nodes, as environments would."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.cluster.constraints.node import eligible_nodes
from steersman.cluster.model import Node, Pod, PodClass
from steersman.cluster.state import ClusterState
from steersman.objectives.fragmentation import fragment_arrays, refresh
from steersman.policies.features import GPU, View
from steersman.policies.gpu_state.arrays import empty_learned, features_only, learned_arrays
from steersman.policies.gpu_state.fragmentation_cache import empty_fragmentation_cache, profile_key
from steersman.policies.gpu_state.leftovers import LeftoverArrays, renumber_models
from steersman.policies.observations.encoder import ObservationEncoder, owner_arrays, summary_of
from steersman.policies.observations.encoding import EncodingContext, count_owner
from steersman.workloads.profile import ProfileArrays, TypicalPod, profile_arrays
from steersman.workloads.topology import node_places

Arrays = dict[str, npt.NDArray[Any]]
Row = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod on a node, with a bit mask of its GPU devices (None: those of the default rule)."""

    pod: Pod
    node: str
    devices: int | None


class EpisodeContext:
    """What is known of all pods in advance: the workload profile and the owners' numbers.

    Args:
        view: view of the observations.
        profile: typical pods.
        pods: all pods of the episode.
        demand: classes of those that the scheduler places, which decide which nodes are eligible.
        leftovers: leftover tables of the profile, for the view `gpu`.
    """

    def __init__(
        self,
        view: View,
        profile: tuple[TypicalPod, ...],
        pods: Iterable[Pod],
        demand: Iterable[PodClass],
        leftovers: LeftoverArrays | None = None,
    ) -> None:
        self.view, self.profile, self.pods, self.leftovers = view, profile, list(pods), leftovers
        self.demand = {each.constraints for each in demand}
        self.owners: dict[tuple[str, str], int] = {}
        for pod in self.pods:
            if pod.owner:
                self.owners.setdefault((pod.namespace, pod.owner), len(self.owners))

    def owner(self, pod: Pod) -> int:
        """Return the number of a pod's owner, -1 if it has none."""
        return self.owners.get((pod.namespace, pod.owner), -1) if pod.owner else -1


class ObservationBuilder:
    """Nodes that stay the same, and the pods on them.

    Args:
        known: context of the episode.
        nodes: nodes.
        pods: placed pods by key.
        changes: maximum number of placements and removals.
    """

    def __init__(
        self, known: EpisodeContext, nodes: Sequence[Node], pods: Mapping[str, PlacedPod], changes: int
    ) -> None:
        self.known, self.names = known, [node.name for node in nodes]
        state = self.state = ClusterState(nodes)
        self._classes = {pod.pod_class: state.class_id(pod.pod_class) for pod in known.pods}
        for pod in known.pods:
            state.labels_id(pod)
        self.eligible = eligible_nodes(state.table, known.demand)
        places = node_places(nodes)
        self.groups = np.stack([places.rack, places.server], axis=1).astype(np.int32)
        self.owners = owner_arrays(len(known.owners), places.rack, places.racks)
        for key, placed in pods.items():
            if placed.node in state.slots:
                self._place(key, placed)
        profile = profile_arrays(known.profile, state.gpu_types)
        self._profile, self._fragments = profile, fragment_arrays(profile, state.arrays)
        self._log, self._logged = np.zeros(changes, dtype=np.int64), np.zeros(1, dtype=np.int64)
        learned = empty_learned() if known.view != GPU else _learned(known, profile, state)
        marks = empty_fragmentation_cache(profile_key(profile))
        context = EncodingContext(
            state.arrays, state.class_arrays, profile, self._fragments, marks, learned.leftovers, learned.room
        )
        self._observer = ObservationEncoder(known.view, context, self.owners, self.eligible, self._log, self._logged)

    def slot(self, name: str) -> int | None:
        """Return the slot of a node, None if it is unknown."""
        return self.state.slots.get(name)

    def look(self, pod: Pod, waiting: int) -> Arrays:
        """Return the observation of a pod that is to be placed, while `waiting` others wait."""
        observer = self._observer
        observer.summary[:] = self.summary(waiting)
        c = self._classes[pod.pod_class]
        allowed = self.state.mask(c, self.state.labels_id(pod))
        encoded = observer.encode(c, self.known.owner(pod), allowed)
        parts = {name: getattr(encoded, name).copy() for name in ("nodes", "pod", "context", "mask")}
        return parts | {"groups": self.groups}

    def place(self, key: str, placed: PlacedPod) -> None:
        """Place a pod on a node."""
        self._changed(self._place(key, placed))

    def remove(self, key: str, pod: Pod) -> None:
        """Remove a pod, if it is on one of the nodes."""
        if key in self.state.placements:
            slot = self.state.remove(key).slot
            count_owner(self.owners, self.known.owner(pod), slot, -1)
            self._changed(slot)

    def summary(self, waiting: int) -> Row:
        """Return the state in numbers, see `objectives.summary`."""
        return summary_of(self.state.arrays, self.eligible, self._fragments.total, waiting)

    def together(self, pod: Pod, slot: int) -> float:
        """Return the share of the running pods of a pod's owner that are in its rack, 0 to 1."""
        owner, owners = self.known.owner(pod), self.owners
        if owner < 0 or not owners.running[owner]:
            return 1.0
        rack = owners.rack[slot]
        near = owners.on_node[owner, slot] if rack < 0 else owners.in_rack[owner, rack]
        return float(near / owners.running[owner])

    def _place(self, key: str, placed: PlacedPod) -> int:
        state, slot = self.state, self.state.slots[placed.node]
        c = self._classes[placed.pod.pod_class]
        state.place(key, c, slot, placed.devices, state.labels_id(placed.pod), force=True)
        count_owner(self.owners, self.known.owner(placed.pod), slot, 1)
        return slot

    def _changed(self, slot: int) -> None:
        refresh(self._profile, self.state.arrays, self._fragments, slot)
        self._log[self._logged[0]] = slot
        self._logged[0] += 1


def _learned(known: EpisodeContext, profile: ProfileArrays, state: ClusterState) -> Any:
    assert known.leftovers is not None, "the view gpu shows what follows from the workload profile"
    leftovers = renumber_models(known.leftovers, known.profile, profile)  # the view counts all nodes that ever existed
    return features_only(learned_arrays(leftovers, profile, state.arrays))
