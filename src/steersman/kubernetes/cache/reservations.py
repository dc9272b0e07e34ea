"""Pods that count on nodes before the API says so: assumed there by us, or nominated by another scheduler.

A decision counts at once, long before the watch reports the binding; the watch wins. A pod with a node nominated by
another scheduler counts there until it is bound, as in kube-scheduler.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from steersman.cluster.constraints.node import Mask
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.cache.store import PodStore


class Reservations:
    """Pods of a store that are assumed on nodes or nominated for them."""

    def __init__(self, store: PodStore) -> None:
        self._store = store

    def assume(self, pod: CachedPod, slot: int, devices: int) -> None:
        """Assume a pod on a node before the API confirms it."""
        node = self._store.state.nodes[slot]
        assert node is not None
        pod.assumed = True
        self.nominate(pod, "")
        self._store.put(pod, node.name, devices)

    def forget(self, pod: CachedPod) -> None:
        """Take an assumed pod back, unless it was confirmed or deleted."""
        # The watch may have confirmed, deleted or replaced it while its binding was under way.
        if pod.assumed and self._store.pods.get(pod.key) is pod:
            pod.assumed = False
            self._store.take(pod)
            pod.devices = None

    def nominate(self, pod: CachedPod, node: str) -> None:
        """Count a pending pod on its nominated node, "" for none any more."""
        if pod.nominated == node:
            return
        if pod.nominated:
            self._store.nominated[pod.nominated].discard(pod.key)
            if not self._store.nominated[pod.nominated]:
                del self._store.nominated[pod.nominated]
            # Others may use the room that was kept for it.
            self._displace(pod, may_have_grown=True)
        pod.nominated = node
        if node:
            self._store.nominated[node].add(pod.key)
            slot = self._store.state.slots.get(node)
            if slot is not None:
                self._store.place(pod, slot)
                self._store.listener.on_node_changed(slot, may_have_grown=False)

    def displaces(self, pod: CachedPod) -> bool:
        """Return whether a pod of lower priority, or the pod itself, has a nominated node."""
        return any(_yields(each, pod) for each in self._nominated_pods())

    @contextmanager
    def without_nominated(self, pod: CachedPod) -> Generator[Mask | None]:
        """Take all pods off their nominated nodes inside the block; yield where a pod fits beside them, [N].

        kube-scheduler lets a pod onto a node where it fits both beside the nominated pods of at least its priority and
        without them, and scores nodes without them. None: there are no such pods.
        """
        nominated = self._nominated_pods()
        for each in nominated:
            if _yields(each, pod):
                self._displace(each)
        beside = [each for each in nominated if not _yields(each, pod)]
        # Between the two removals: pods that yield are gone, and the others still count.
        allowed = self._store.state.mask(pod.class_id, pod.labels_id) if beside else None
        for each in beside:
            self._displace(each)
        try:
            yield allowed
        finally:
            for each in nominated:
                slot = self._store.state.slots.get(each.nominated)
                if slot is not None:
                    self._store.place(each, slot)
                    self._store.listener.on_node_changed(slot, may_have_grown=False)

    def _nominated_pods(self) -> list[CachedPod]:
        placed = self._store.state.placements
        return [self._store.pods[key] for keys in self._store.nominated.values() for key in keys if key in placed]

    def _displace(self, pod: CachedPod, *, may_have_grown: bool = False) -> None:
        if pod.key in self._store.state.placements:
            slot = self._store.state.remove(pod.key).slot
            pod.devices = None
            self._store.listener.on_node_changed(slot, may_have_grown=may_have_grown)


def _yields(nominated: CachedPod, pod: CachedPod) -> bool:
    return nominated is pod or nominated.pod.priority < pod.pod.priority
