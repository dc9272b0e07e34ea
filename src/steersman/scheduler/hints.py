"""Which pods that fit nowhere the room that came free may help, as kube-scheduler's queueing hints tell.

A pod whose chance depends on other pods may be helped by any change; another one only by nodes that it fits on now, and
no more pods of its class than fit there.
"""

from __future__ import annotations

import time
from collections.abc import Collection

import numpy as np

from steersman.cluster.arrays import room_for
from steersman.cluster.state import ClusterState

Group = tuple[int, int, int]
"""Class, labels and priority of pods: what fits for one of them fits for all, and those of more priority come first."""

VOLUME_GROUP: Group = (-2, -2, 0)
"""Of all pods with claims: whether room helps one of them depends on its claims."""

SHARE = 0.05
"""Of the time that looking for pods to be helped may take."""
ALL = 1 << 30


class Hints:
    """Collects changes, and says now and then which groups of pods they may help."""

    def __init__(self) -> None:
        self._freed: set[int] = set()
        self._bound = self._volumes = False
        self._due_at = 0.0

    def more_room(self, slot: int) -> None:
        """Something came free on a node, or it is new."""
        self._freed.add(slot)

    def pod_placed(self) -> None:
        """A pod was placed, which helps those that want to be near it."""
        self._bound = True

    def volumes_changed(self) -> None:
        """An object that pods' claims depend on changed."""
        self._volumes = True

    def forget(self) -> None:
        """Forget the changes: slots are other nodes'."""
        self._freed.clear()

    def wait_seconds(self) -> float | None:
        """Return for how long nothing is to be looked at; None: nothing has changed."""
        if not self._freed and not self._bound and not self._volumes:
            return None
        return max(0.0, self._due_at - time.monotonic())

    def warm(self, state: ClusterState) -> None:
        """Compile what `helped` runs: the first call would else seem slow, and the next one come late."""
        room_for(state.arrays, state.class_arrays, 0, np.empty(0, dtype=np.int64))

    def helped(self, state: ClusterState, groups: Collection[Group]) -> dict[Group, int]:
        """Return how many pods of each group may be helped by what has changed, and forget the changes.

        Args:
            state: the cluster.
            groups: of the pods that fit nowhere.
        """
        began = time.monotonic()
        found = {VOLUME_GROUP: ALL} if VOLUME_GROUP in groups and (self._freed or self._volumes) else {}
        slots = np.array(sorted(slot for slot in self._freed if slot < len(state.nodes)), dtype=np.int64)
        self._freed.clear()
        self._bound = self._volumes = False
        nodes, classes = state.arrays, state.class_arrays
        for group in groups:
            if group == VOLUME_GROUP:
                continue
            count = ALL if state.sees_others(*group[:2]) else int(room_for(nodes, classes, group[0], slots))
            if count:
                found[group] = count
        ended = time.monotonic()
        self._due_at = ended + (ended - began) / SHARE
        return found
