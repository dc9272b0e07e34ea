"""Find which unschedulable pods a cluster change may help, like kube-scheduler's queueing hints.

A pod with inter-pod constraints may be helped by any change; another pod only by changed nodes that it fits on now, and
no more pods of its class than fit there.
"""

from __future__ import annotations

import time
from collections.abc import Collection

import numpy as np

from steersman.cluster.arrays import room_for
from steersman.cluster.state import ClusterState

Group = tuple[int, int, int]
"""Class, labels and priority of pods: what fits one of them fits all, and higher priorities are tried first."""

VOLUME_GROUP: Group = (-2, -2, 0)
"""Group of all pods with volume claims: whether freed capacity helps one of them depends on its claims."""

SHARE = 0.05
"""Share of time that the search for helped pods may take."""
ALL = 1 << 30


class Hints:
    """Collected cluster changes, and the groups of pods that they may help."""

    def __init__(self) -> None:
        self._freed: set[int] = set()
        self._other = self._volumes = False
        self._due_at = 0.0

    def resources_freed(self, slot: int) -> None:
        """Record that resources of a node were freed, or that the node is new."""
        self._freed.add(slot)

    def other_change(self) -> None:
        """Record a change that freed no resources: a pod was placed, its labels were read, or a node was deleted.

        It may still help pods with inter-pod constraints, as by satisfying their affinity.
        """
        self._other = True

    def volumes_changed(self) -> None:
        """Record that an object that volume claims depend on changed."""
        self._volumes = True

    def forget(self) -> None:
        """Drop all changes, since slots were renumbered."""
        self._freed.clear()

    def wait_seconds(self) -> float | None:
        """Return how long to wait before the next search; None: nothing has changed."""
        if not self._freed and not self._other and not self._volumes:
            return None
        return max(0.0, self._due_at - time.monotonic())

    def warm(self, state: ClusterState) -> None:
        """Compile what `helped` runs; compiled in the first call it would seem slow, and delay the next."""
        room_for(state.arrays, state.class_arrays, 0, np.empty(0, dtype=np.int64))

    def helped(self, state: ClusterState, groups: Collection[Group]) -> dict[Group, int]:
        """Return how many pods of each group the recorded changes may help, and forget the changes.

        Args:
            state: the cluster.
            groups: groups of the unschedulable pods.
        """
        began = time.monotonic()
        counts = {VOLUME_GROUP: ALL} if VOLUME_GROUP in groups and (self._freed or self._volumes) else {}
        slots = np.array(sorted(slot for slot in self._freed if slot < len(state.nodes)), dtype=np.int64)
        self._freed.clear()
        self._other = self._volumes = False
        nodes, classes = state.arrays, state.class_arrays
        for group in groups:
            if group == VOLUME_GROUP:
                continue
            count = (
                ALL if state.has_inter_pod_constraints(*group[:2]) else int(room_for(nodes, classes, group[0], slots))
            )
            if count:
                counts[group] = count
        ended = time.monotonic()
        self._due_at = ended + (ended - began) / SHARE
        return counts
