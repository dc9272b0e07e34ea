"""A cluster of fixed nodes as environments show it: observations before decisions, and rewards after them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Node, Pod
from steersman.cluster.state import ClusterState
from steersman.features import GPU, View
from steersman.objectives.fragmentation import fragment_arrays, refresh
from steersman.policies.afterstates import afterstates, mark_of
from steersman.policies.encoding import Scene, count_owner
from steersman.policies.learned import for_showing, learned_arrays, no_learned
from steersman.policies.observer import Observer, owner_arrays, summary_of
from steersman.policies.outlook import OutlookArrays, for_models
from steersman.workloads.mix import MixArrays, TypicalPod, mix_arrays
from steersman.workloads.places import node_places

Arrays = dict[str, npt.NDArray[Any]]
Row = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod on a node, with its GPU devices as a bit mask (None: those of the default rule)."""

    pod: Pod
    node: str
    devices: int | None


class Known:
    """What is known of all pods beforehand: the mix, and numbers of owners.

    Args:
        view: what is shown.
        mix: the typical pods.
        pods: all that there will be.
        outlook: what follows from the mix, for the view `gpu`.
    """

    def __init__(
        self, view: View, mix: tuple[TypicalPod, ...], pods: Iterable[Pod], outlook: OutlookArrays | None = None
    ) -> None:
        self.view, self.mix, self.pods, self.outlook = view, mix, list(pods), outlook
        self.owners: dict[tuple[str, str], int] = {}
        for pod in self.pods:
            if pod.owner:
                self.owners.setdefault((pod.namespace, pod.owner), len(self.owners))

    def owner(self, pod: Pod) -> int:
        """The number of a pod's owner, -1 if it has none."""
        return self.owners.get((pod.namespace, pod.owner), -1) if pod.owner else -1


class Stage:
    """Nodes that stay the same, and the pods on them.

    Args:
        known: of all pods.
        nodes: the nodes.
        pods: those that are placed, by their key.
        changes: how often pods will come or go at most.
    """

    def __init__(self, known: Known, nodes: Sequence[Node], pods: Mapping[str, Placed], changes: int) -> None:
        self.known, self.names = known, [node.name for node in nodes]
        state = self.state = ClusterState(nodes)
        self._classes = {pod.pod_class: state.class_id(pod.pod_class) for pod in known.pods}
        for pod in known.pods:
            state.labels_id(pod)
        places = node_places(nodes)
        self.groups = np.stack([places.rack, places.server], axis=1).astype(np.int32)
        self.owners = owner_arrays(len(known.owners), places.rack, places.racks)
        for key, placed in pods.items():
            if placed.node in state.slots:
                self._place(key, placed)
        mix = mix_arrays(known.mix, state.gpu_types)
        self._mix, self._fragments = mix, fragment_arrays(mix, state.arrays)
        self._log, self._logged = np.zeros(changes, dtype=np.int64), np.zeros(1, dtype=np.int64)
        learned = no_learned() if known.view is not GPU else _learned(known, mix, state)
        marks = afterstates(mark_of(mix))
        scene = Scene(state.arrays, state.class_arrays, mix, self._fragments, marks, learned.outlook, learned.room)
        self._observer = Observer(known.view, scene, self.owners, self._log, self._logged)

    def slot(self, name: str) -> int | None:
        """The slot of a node, None if it is not here."""
        return self.state.slots.get(name)

    def look(self, pod: Pod, waiting: int) -> Arrays:
        """The observation of a pod that is to be placed, while so many others wait."""
        observer = self._observer
        observer.summary[:] = self.summary(waiting)
        c = self._classes[pod.pod_class]
        allowed = self.state.mask(c, self.state.labels_id(pod))
        seen = observer.look(c, self.known.owner(pod), allowed)
        parts: Arrays = {"nodes": seen.nodes, "pod": seen.pod, "context": seen.context, "mask": seen.mask}
        return {name: part.copy() for name, part in parts.items()} | {"groups": self.groups}

    def place(self, key: str, placed: Placed) -> None:
        """A pod came to a node that is here."""
        self._changed(self._place(key, placed))

    def remove(self, key: str, pod: Pod) -> None:
        """A pod left, if it was on a node that is here."""
        if key in self.state.placements:
            slot = self.state.remove(key).slot
            count_owner(self.owners, self.known.owner(pod), slot, -1)
            self._changed(slot)

    def summary(self, waiting: int) -> Row:
        """The state in numbers, see `objectives.summary`."""
        return summary_of(self.state.arrays, self._fragments.total.sum(), waiting)

    def together(self, pod: Pod, slot: int) -> float:
        """Share of the running pods of a placed pod's owner that are in its rack."""
        owner, owners = self.known.owner(pod), self.owners
        if owner < 0 or not owners.running[owner]:
            return 1.0
        rack = owners.rack[slot]
        near = owners.on_node[owner, slot] if rack < 0 else owners.in_rack[owner, rack]
        return float(near / owners.running[owner])

    def _place(self, key: str, placed: Placed) -> int:
        state, slot = self.state, self.state.slots[placed.node]
        devices = placed.devices
        if devices is not None and devices >> int(state.arrays.gpu_count[slot]):
            devices = None  # the node has no such devices
        c = self._classes[placed.pod.pod_class]
        state.place(key, c, slot, devices, state.labels_id(placed.pod), force=True)
        count_owner(self.owners, self.known.owner(placed.pod), slot, 1)
        return slot

    def _changed(self, slot: int) -> None:
        refresh(self._mix, self.state.arrays, self._fragments, slot)
        self._log[self._logged[0]] = slot
        self._logged[0] += 1


def _learned(known: Known, mix: MixArrays, state: ClusterState) -> Any:
    assert known.outlook is not None, "the view gpu shows what follows from the mix"
    outlook = for_models(known.outlook, known.mix, mix)  # it is of all nodes there ever were
    return for_showing(learned_arrays(outlook, mix, state.arrays))
