"""A reservation on a live cluster for the pod that goes next, see `reservations`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays
from steersman.cluster.state import ClusterState
from steersman.core.compiled import kernel
from steersman.orders.reservations import ReservationArrays, RunningArrivals, leaves_room, no_reservations, reserve

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


@kernel
def reserve_node(
    nodes: NodeArrays,
    classes: ClassArrays,
    running: RunningArrivals,
    count: int,
    res: ReservationArrays,
    c: int,
    now: float,
) -> None:
    """Make a reservation for one pod, see `reservations.reserve`."""
    reserve(nodes, classes, running, count, res, c, 1, now)


@kernel
def takes_room_beside(
    nodes: NodeArrays, classes: ClassArrays, res: ReservationArrays, c: int, n: int, other: int, devices: int
) -> bool:
    """Count a pod on a reserved node for good if it leaves room, see `reservations.leaves_room`."""
    return leaves_room(nodes, classes, res, c, n, other, devices)


class LiveReservation:
    """A reservation of the node on which a pod, which fits nowhere now, can start first.

    `begins`: when it can, in seconds; inf: nobody knows when.
    """

    def __init__(self, state: ClusterState, class_id: int, running: EndingPods, now: float) -> None:
        self._state, self._class_id = state, class_id
        count = len(running.class_id)
        self._arrays = no_reservations(max(count, 1), state.arrays)
        self._arrays.expected[:count] = running.expected
        arrivals = RunningArrivals(
            np.arange(count, dtype=np.int64), running.class_id, running.slot, running.devices, running.started
        )
        reserve_node(state.arrays, state.class_arrays, arrivals, count, self._arrays, class_id, float(now))
        self.begins = float(self._arrays.begins[0])

    def holds(self, state: ClusterState) -> bool:
        """Return whether nodes and classes have the numbers that they had, and the reserved nodes take the pod."""
        shapes = (self._arrays.free.shape, self._arrays.gpu_free.shape)
        if state is not self._state or shapes != (state.arrays.free.shape, state.arrays.gpu_free.shape):
            return False
        slots = np.flatnonzero(self._arrays.pods[: len(state.nodes)])
        allowed = state.class_arrays.allowed[state.class_arrays.constraint[self._class_id]]
        return bool(allowed[slots].all()) and all(state.nodes[slot] is not None for slot in slots)

    def compile(self) -> None:
        """Compile what `take` calls."""
        self._take(self._class_id, 0, 0)

    @property
    def node(self) -> str:
        """Return the name of the reserved node, "" if there is none."""
        nodes = [node.name for slot in np.flatnonzero(self.reserved) if (node := self._state.nodes[slot]) is not None]
        return nodes[0] if nodes else ""

    @property
    def reserved(self) -> npt.NDArray[np.bool_]:
        """Return which nodes are reserved, [N]."""
        return self._arrays.pods > 0

    def take(self, class_id: int, slot: int, devices: int) -> bool:
        """Count a pod that does not end in time on a node; return False if it would delay the reserved pod there."""
        return not self._arrays.pods[slot] or self._take(class_id, slot, devices)

    def _take(self, class_id: int, slot: int, devices: int) -> bool:
        state = self._state
        return bool(
            takes_room_beside(
                state.arrays, state.class_arrays, self._arrays, self._class_id, slot, class_id, int(devices)
            )
        )
