"""A ClusterState in step with the API server: fed by watches of nodes and pods, and by what we have decided ourselves.

A decision counts at once (the pod is *assumed* on its node), long before the watch says that it was bound; what the
watch says wins. Pods on nodes that are not known yet wait for these.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import structlog

from steersman.cluster.model import Constraints, Pod, PodSelector
from steersman.cluster.objects import node_from_object, pod_from_object, unmodelled
from steersman.cluster.state import ClusterState
from steersman.errors import InputError
from steersman.kube.client import Client
from steersman.kube.objects import PodHead, named_head, pod_head, whole
from steersman.kube.reflector import EventType, Reflector
from steersman.kube.selectors import Selectors

NODES_PATH, PODS_PATH = "/api/v1/nodes", "/api/v1/pods"
CLASSES_KEPT = 2_000
"""Classes of pods, sets of labels and selectors beyond which those that nobody needs any more are forgotten."""

log = structlog.get_logger("cache")


@dataclass(slots=True, eq=False)
class CachedPod:
    """A pod that is in the API.

    Attributes:
        key: namespace and name.
        uid: tells it from an earlier pod of that name.
        pod: the model, without a node's name among its constraints.
        generation: of the spec that the model was decoded from.
        node: where it is bound or assumed; "" while it waits.
        devices: the GPU devices that it is known to hold there, as a bit mask; None: not said.
        assumed: it is there by our decision, which the watch has not confirmed yet.
        deleting: it is being deleted.
        unmodelled: what it uses that decides about its placement and that we do not know.
        class_id, labels_id: numbers in the state.
        notes: its annotations while it waits: they say what it asks for, and may be others.
        seen: monotonic seconds at which we first saw it.
    """

    key: str
    uid: str
    pod: Pod
    generation: int
    node: str = ""
    devices: int | None = None
    assumed: bool = False
    deleting: bool = False
    unmodelled: tuple[str, ...] = ()
    class_id: int = -1
    labels_id: int = -1
    notes: dict[str, str] | None = None
    seen: float = field(default_factory=time.monotonic)


class Listener(Protocol):
    """Who is told what happens in the cluster. Called in the event loop; must not block."""

    def pod_came(self, pod: CachedPod) -> None:
        """A pod is new."""

    def pod_waits(self, pod: CachedPod) -> None:
        """A pod waits for a node: it is new, or was changed."""

    def pod_bound(self, pod: CachedPod) -> None:
        """The watch says that a pod is on `pod.node`, by whomever."""

    def pod_gone(self, pod: CachedPod) -> None:
        """A pod was deleted or has finished; it is still as it last was."""

    def node_changed(self, slot: int, *, more: bool) -> None:
        """A node came, went or changed, or its pods did; `more`: perhaps there is more room than before."""

    def rebuilt(self) -> None:
        """The state is another object, and all numbers in it are new."""


class ClusterCache:
    """Keeps a ClusterState in step with the API.

    Args:
        client: the connection.
        listener: who is told.
        selectors: what selects pods to be spread by default, for a policy that does; its reflectors are then among
            ours, and the labels that it looks at are kept.

    Attributes:
        state: the cluster; pods by their key.
        pods: all pods that have not finished.
    """

    def __init__(self, client: Client, listener: Listener, selectors: Selectors | None = None) -> None:
        self.listener, self.selectors = listener, selectors
        self.state = ClusterState(())
        self.pods: dict[str, CachedPod] = {}
        self.reflectors: tuple[Reflector, ...] = (
            Reflector(client, NODES_PATH, NodeFeed(self)),
            Reflector(client, PODS_PATH, PodFeed(self)),
        )
        if selectors is not None:
            self.reflectors += selectors.reflectors
            selectors.follow(self.select)
        self._on_node: dict[str, set[str]] = defaultdict(set)
        self._owners: dict[str, Counter[str]] = defaultdict(Counter)
        self._selected: set[str] = set()
        self._complained: set[str] = set()

    @property
    def synced(self) -> bool:
        """Whether everything was listed."""
        return all(reflector.synced.is_set() for reflector in self.reflectors)

    def peers(self, pod: Pod) -> dict[int, int]:
        """Slot -> how many pods of the same owner run there."""
        if not pod.owner:
            return {}
        slots = self.state.slots
        return {slots[node]: n for node, n in self._owners[_owner(pod)].items() if n and node in slots}

    def number(self, pod: Pod) -> tuple[int, int]:
        """The class and labels of a pod, here or not, in the state. Labels that nobody selects by are left out.

        The state is another one afterwards if the pod selects by labels that were left out so far.
        """
        self.select({key for selector in _selectors(pod.constraints) for key in _keys(selector)})
        return self._number(pod)

    def waiting(self, raw: msgspec.Raw) -> CachedPod | None:
        """The pod of this JSON if it waits here, and just as the JSON says; None: look at it closely."""
        try:
            head = pod_head(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        known = self.pods.get(head.key)
        if known is None or known.uid != head.metadata.uid or known.node or head.spec.node_name:
            return None
        is_clear = known.generation > 0 and not known.unmodelled
        return known if is_clear and not self._may_differ(known, head) else None

    # What we decide --------------------------------------------------------------------------------------------------

    def assume(self, pod: CachedPod, slot: int, devices: int) -> None:
        """Count a pod on a node before the API knows."""
        node = self.state.nodes[slot]
        assert node is not None
        pod.assumed = True
        self._put(pod, node.name, devices)

    def forget(self, pod: CachedPod) -> None:
        """Take an assumed pod back. Nothing happens if it was confirmed or is gone."""
        if pod.assumed and self.pods.get(pod.key) is pod:
            pod.assumed = False
            self._take(pod)
            pod.devices = None

    # What the API says -----------------------------------------------------------------------------------------------

    def see_pod(self, raw: msgspec.Raw) -> None:
        """A pod is as the JSON says."""
        head = pod_head(raw)
        known = self.pods.get(head.key)
        if head.finished:
            self.lose_pod(head.key)
            return
        if known is not None and known.uid != head.metadata.uid:
            self.lose_pod(head.key)
            known = None
        if known is None:
            known = self._decode(head, raw)
            if known is not None:
                self.pods[known.key] = known
                self.listener.pod_came(known)
                self._settle(known, head, raw, new=True)
        else:
            self._settle(known, head, raw, new=False)

    def lose_pod(self, key: str) -> None:
        """A pod was deleted or has finished."""
        pod = self.pods.pop(key, None)
        if pod is not None:
            if pod.node:
                self._take(pod, keep_node=True)
            pod.assumed = False
            self.listener.pod_gone(pod)

    def see_node(self, raw: msgspec.Raw) -> None:
        """A node is as the JSON says."""
        try:
            node = node_from_object(whole(raw))
        except InputError as error:
            self._complain("node", named_head(raw).metadata.name, error)
            return
        slot = self.state.slots.get(node.name)
        if slot is None:
            slot = self.state.add_node(node)
            for key in self._on_node.get(node.name, ()):
                self._place(self.pods[key], slot)
        elif self.state.nodes[slot] == node:
            return
        else:
            self.state.update_node(node)
        self.listener.node_changed(slot, more=True)

    def lose_node(self, name: str) -> None:
        """A node was deleted; pods on it stay known."""
        slot = self.state.slots.get(name)
        if slot is not None:
            self.state.remove_node(name)
            self.listener.node_changed(slot, more=False)

    def rebuild(self) -> None:
        """Make the state anew, with the classes and labels alone that pods still have."""
        self.state = ClusterState([node for node in self.state.nodes if node is not None])
        for pod in self.pods.values():
            pod.class_id, pod.labels_id = self._number(pod.pod)
        for name, slot in self.state.slots.items():
            for key in self._on_node.get(name, ()):
                self._place(self.pods[key], slot)
        self.listener.rebuilt()

    def select(self, keys: Set[str]) -> None:
        """Keep apart pods whose labels of these keys differ."""
        new = keys - self._selected
        if new:
            self._selected |= new
            self.rebuild()

    # -----------------------------------------------------------------------------------------------------------------

    def _decode(self, head: PodHead, raw: msgspec.Raw) -> CachedPod | None:
        obj = whole(raw)
        obj.get("spec", {}).pop("nodeName", None)
        uses = unmodelled(obj)
        try:
            pod = pod_from_object(obj)
        except InputError as error:
            self._complain("pod", head.key, error)
            # What it asks for counts where it runs, whatever else it says; and while it waits somebody should be told.
            uses = (*uses, f"what it does not understand ({error})")
            try:
                pod = pod_from_object(_plain(obj))
            except InputError:
                return None
        uid, generation = head.metadata.uid, head.metadata.generation
        notes = head.metadata.annotations
        made = CachedPod(head.key, uid, pod, generation, unmodelled=uses, notes=notes)
        made.class_id, made.labels_id = self.number(pod)
        return made

    def _number(self, pod: Pod) -> tuple[int, int]:
        labels = {key: value for key, value in pod.labels.items() if key in self._selected}
        return self.state.class_id(pod.pod_class), self.state.terms.labels_id(pod.namespace, labels)

    def _settle(self, pod: CachedPod, head: PodHead, raw: msgspec.Raw, *, new: bool) -> None:
        """Follow what the API says of a pod that is known."""
        node, deleting = head.spec.node_name, head.metadata.deletion_timestamp is not None
        changed = new or deleting != pod.deleting
        pod.deleting = deleting
        if not new and not pod.assumed and self._may_differ(pod, head):
            changed |= self._renew(pod, head, raw)
        if node:
            self._is_bound(pod, node)
        elif changed and not pod.assumed:
            self.listener.pod_waits(pod)

    def _may_differ(self, pod: CachedPod, head: PodHead) -> bool:
        """Whether it must be decoded to see if the model is another."""
        meta = head.metadata
        if meta.generation != pod.generation or (meta.labels or {}) != pod.pod.labels:
            return True
        # Before 1.33 pods have no generation.
        return not pod.node and (not meta.generation or meta.annotations != pod.notes)

    def _renew(self, pod: CachedPod, head: PodHead, raw: msgspec.Raw) -> bool:
        """Decode a pod again; whether the model is another."""
        fresh = self._decode(head, raw)
        if fresh is None:
            return False
        pod.generation, pod.notes = fresh.generation, fresh.notes
        if (fresh.pod, fresh.unmodelled) == (pod.pod, pod.unmodelled):
            return False
        placed = pod.key in self.state.placements
        if placed:
            self.state.remove(pod.key)
        pod.pod, pod.unmodelled = fresh.pod, fresh.unmodelled
        pod.class_id, pod.labels_id = self._number(pod.pod)
        if placed:
            slot = self.state.slots[pod.node]
            self._place(pod, slot)
            self.listener.node_changed(slot, more=True)
        return True

    def _is_bound(self, pod: CachedPod, node: str) -> None:
        if pod.node == node:
            if pod.assumed:
                pod.assumed = False
                self.listener.pod_bound(pod)
            return
        if pod.node:  # assumed elsewhere: the API knows better
            pod.assumed = False
            self._take(pod)
        held = pod.pod.gpu_devices
        self._put(pod, node, sum(1 << d for d in held) if held else None)
        self.listener.pod_bound(pod)

    def _put(self, pod: CachedPod, node: str, devices: int | None) -> None:
        pod.node, pod.devices, pod.notes = node, devices, None
        self._on_node[node].add(pod.key)
        if pod.pod.owner:
            self._owners[_owner(pod.pod)][node] += 1
        slot = self.state.slots.get(node)
        if slot is not None:
            self._place(pod, slot)
            self.listener.node_changed(slot, more=False)

    def _place(self, pod: CachedPod, slot: int) -> None:
        """Count a pod on a node whatever the constraints say: it is there."""
        devices = pod.devices
        if devices is not None and devices >> int(self.state.arrays.gpu_count[slot]):
            devices = None  # the node does not have these devices
        placement = self.state.place(pod.key, pod.class_id, slot, devices, pod.labels_id, force=True)
        pod.devices = placement.devices

    def _take(self, pod: CachedPod, *, keep_node: bool = False) -> None:
        node = pod.node
        self._on_node[node].discard(pod.key)
        if not self._on_node[node]:
            del self._on_node[node]
        if pod.pod.owner:
            peers = self._owners[_owner(pod.pod)]
            peers[node] -= 1
            if not peers[node]:
                del peers[node]
            if not peers:
                del self._owners[_owner(pod.pod)]
        if not keep_node:
            pod.node = ""
        if pod.key in self.state.placements:
            slot = self.state.remove(pod.key).slot
            self.listener.node_changed(slot, more=True)

    def tidy(self) -> None:
        """Forget classes and labels of pods that are gone, and selectors that are no more, if there are many."""
        state = self.state
        if max(len(state.classes), len(state.terms.label_sets), len(state.term_arrays.matched)) <= CLASSES_KEPT:
            return  # what follows looks at every pod
        used = max(CLASSES_KEPT, 2 * len({pod.class_id for pod in self.pods.values()}))
        labels = max(CLASSES_KEPT, 2 * len({pod.labels_id for pod in self.pods.values()}))
        terms = state.term_arrays
        # A set of labels is spread by one selector at most, and a rule asks about two at most.
        selectors = CLASSES_KEPT + len(state.terms.label_sets) + 2 * len(terms.rules)
        if len(state.classes) > used or len(state.terms.label_sets) > labels or len(terms.matched) > selectors:
            self.rebuild()

    def _complain(self, kind: str, name: str, error: InputError) -> None:
        """Say once that an object makes no sense to us."""
        if (what := f"{kind} {name}: {error}") not in self._complained:
            self._complained.add(what)
            log.warning("object ignored", kind=kind, name=name, error=str(error))


class PodFeed:
    """Feeds pods to a cache."""

    def __init__(self, cache: ClusterCache) -> None:
        self.cache = cache

    def replace(self, objects: list[msgspec.Raw]) -> None:
        """See `reflector.Handler`."""
        there = {pod_head(raw).key for raw in objects}
        for key in self.cache.pods.keys() - there:
            self.cache.lose_pod(key)
        for raw in objects:
            self.cache.see_pod(raw)

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """See `reflector.Handler`."""
        if kind == "DELETED":
            self.cache.lose_pod(pod_head(obj).key)
            self.cache.tidy()
        else:
            self.cache.see_pod(obj)


class NodeFeed:
    """Feeds nodes to a cache."""

    def __init__(self, cache: ClusterCache) -> None:
        self.cache = cache

    def replace(self, objects: list[msgspec.Raw]) -> None:
        """See `reflector.Handler`."""
        there = {named_head(raw).metadata.name for raw in objects}
        for name in self.cache.state.slots.keys() - there:
            self.cache.lose_node(name)
        for raw in objects:
            self.cache.see_node(raw)

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """See `reflector.Handler`."""
        if kind == "DELETED":
            self.cache.lose_node(named_head(obj).metadata.name)
        else:
            self.cache.see_node(obj)


def _plain(obj: dict[str, Any]) -> dict[str, Any]:
    """A pod with nothing but what it is called, whose it is, and what its containers ask for."""
    metadata, spec = obj["metadata"], obj["spec"]
    kept = {key: metadata[key] for key in ("name", "namespace", "labels", "ownerReferences") if key in metadata}
    asked = {key: spec[key] for key in ("containers", "initContainers", "overhead", "schedulerName") if key in spec}
    return {"metadata": kept, "spec": asked}


def _owner(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.owner}"


def _selectors(constraints: Constraints) -> Iterator[PodSelector]:
    """All selectors of other pods in a pod's constraints."""
    for term in (*constraints.affinity, *constraints.anti_affinity):
        yield term.selector
    for preferred in (*constraints.preferred_affinity, *constraints.preferred_anti_affinity):
        yield preferred.term.selector
    for spread in constraints.spread:
        yield spread.selector


def _keys(selector: PodSelector) -> Iterator[str]:
    return (requirement.key for requirement in selector.requirements or ())
