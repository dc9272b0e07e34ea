"""A reservation on a live cluster for the pod that goes next but fits nowhere yet, which nobody may delay.

It begins when the pod would fit if running pods ended as estimated and nothing else started. Whoever overtakes ends
before that by its own estimate, goes to another node, or leaves room for the reserved pod beside it. Simulations do the
same in the core (`core/src/reservation.rs`), also for gangs.

Source: EASY backfilling of Lifka, "The ANL/IBM SP Scheduling System" (JSSPP 1995), with nodes instead of a pool.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays, fits, place, remove
from steersman.cluster.state import ClusterState

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class EndingPods(NamedTuple):
    """Pods that run and will end, [P] each; in seconds when they started, and when they are expected to end."""

    class_id: Ints
    slot: Ints
    devices: Ints
    started: Floats
    expected: Floats

    def on(self, slot: int) -> EndingPods:
        there = self.slot == slot
        return EndingPods(*(each[there] for each in self))

    def ends(self, now: float) -> Floats:
        """Return [P] when they end by their estimates.

        One that has outrun its estimate is expected to run for as long again as it has so far.
        """
        return np.where(self.expected >= now, self.expected, now + np.maximum(now - self.started, 1.0))


class LiveReservation:
    """A reservation of the node on which a pod, which fits nowhere now, can start first.

    `begins`: when it can, in seconds; inf: nobody knows when.
    """

    def __init__(self, state: ClusterState, class_id: int, running: EndingPods, now: float) -> None:
        self._state, self._class_id, self.begins, self._slot = state, class_id, math.inf, -1
        self._shapes = _shapes(state)
        ends, nodes = running.ends(now), dict[int, _OneNode]()
        for k in np.lexsort((running.started, ends)).tolist():
            if ends[k] > self.begins:
                break
            slot = int(running.slot[k])
            node = nodes.setdefault(slot, _OneNode(state, slot))
            node.remove(int(running.class_id[k]), int(running.devices[k]))
            # What ends at the same moment leaves room for others.
            if self._slot < 0 and node.fits(class_id):
                self.begins, self._slot, self._node = float(ends[k]), slot, node

    def holds(self, state: ClusterState) -> bool:
        """Return whether nodes and classes have the numbers that they had, and the reserved node takes the pod."""
        if state is not self._state or self._shapes != _shapes(state):
            return False
        allowed = state.class_arrays.allowed[state.class_arrays.constraint[self._class_id]]
        return self._slot < 0 or bool(allowed[self._slot] and state.nodes[self._slot] is not None)

    @property
    def node(self) -> str:
        """Return the name of the reserved node, "" if there is none."""
        node = self._state.nodes[self._slot] if self._slot >= 0 else None
        return "" if node is None else node.name

    @property
    def reserved(self) -> npt.NDArray[np.bool_]:
        """Return which nodes are reserved, [N]."""
        return np.asarray(np.arange(len(self._state.nodes)) == self._slot)

    def take(self, class_id: int, slot: int, devices: int) -> bool:
        """Count a pod that does not end in time on a node; return False if it would delay the reserved pod there."""
        if slot != self._slot:
            return True
        self._node.place(class_id, devices)
        if self._node.fits(self._class_id):
            return True
        self._node.remove(class_id, devices)
        return False


class _OneNode:
    """A copy of a node, with the pods that it will have when the reservation begins."""

    def __init__(self, state: ClusterState, slot: int) -> None:
        self._state, self._slot = state, slot
        self._arrays = NodeArrays(*(array[slot : slot + 1].copy() for array in state.arrays))

    @property
    def _classes(self) -> ClassArrays:
        classes = self._state.class_arrays
        return classes._replace(allowed=classes.allowed[:, self._slot : self._slot + 1])

    def fits(self, class_id: int) -> bool:
        return fits(self._arrays, self._classes, class_id, 0)

    def place(self, class_id: int, devices: int) -> None:
        place(self._arrays, self._classes, class_id, 0, devices)

    def remove(self, class_id: int, devices: int) -> None:
        remove(self._arrays, self._classes, class_id, 0, devices)


def _shapes(state: ClusterState) -> tuple[tuple[int, ...], ...]:
    return state.arrays.free.shape, state.arrays.gpu_free.shape
