"""Cache of a live cluster: its pods and nodes, as watches report them, in a ClusterState.

The resources of a bound pod count even if its object is invalid. Its GPU annotations can be changed by anyone who may
patch the pod, so it holds what it had when it was first seen bound. One that requests no GPUs holds those of its
ResourceClaims.

A decision counts at once, long before the watch reports the binding; the watch wins. A pod with a node nominated by
another scheduler counts there until it is bound, as in kube-scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Set
from contextlib import contextmanager
from dataclasses import replace

import msgspec
import structlog

from steersman.cluster.constraints.node import Mask
from steersman.cluster.model import GPU_MILLI, Node, Pod
from steersman.cluster.objects.api.metadata import named_object
from steersman.cluster.objects.api.pods import UNSCHEDULABLE, LivePod
from steersman.cluster.objects.decoding import decode_node
from steersman.cluster.objects.device_offers import DeviceOffers
from steersman.cluster.objects.fields import FieldError, node_from_json, pod_from_json, unix_seconds, valid_pod
from steersman.cluster.objects.gpus import GPU_INDEX_KEY, device_numbers
from steersman.kubernetes.cache.cached_pod import CachedPod, Listener, PodDecoder, may_differ
from steersman.kubernetes.cache.device_claims import DeviceClaims
from steersman.kubernetes.cache.store import PodStore
from steersman.kubernetes.client import Client
from steersman.kubernetes.selectors import Namespaces, Selectors, as_written
from steersman.kubernetes.watch import EventType, Reflector


class ExpectedPods:
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


NODES_PATH, PODS_PATH = "/api/v1/nodes", "/api/v1/pods"
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector; a pod that finishes leaves such a watch as if it were deleted."""
log = structlog.get_logger("cache")


class ClusterCache(PodStore):
    """Store of a live cluster's pods and nodes, fed by watches.

    Args:
        listener: notified of changes.
        selectors: what selects pods for default spreading, for policies that use it; its reflectors join ours, the
            labels that it reads are stored, and pods have the classes that it reads.
        ranked: see `PodStore`.
    """

    def __init__(
        self, client: Client, listener: Listener, selectors: Selectors | None = None, *, ranked: bool = False
    ) -> None:
        super().__init__(listener, as_written if selectors is None else selectors.read, ranked=ranked)
        # `expected`: pods that count on nodes before the API says so
        self.selectors, self.expected = selectors, ExpectedPods(self)
        self.namespaces = Namespaces(client, self._namespaces_changed)
        self.device_claims = DeviceClaims(client, self._device_claims_changed, self._offers_changed)
        self._decoder = PodDecoder(self.namespaces, self.device_claims)
        self.node_problems: dict[str, str] = {}  # why nodes take no pods, by name
        self._nodes: dict[str, Node] = {}  # as written, without what they offer by DRA
        # Watches of what pods and nodes refer to
        self.related_reflectors: tuple[Reflector, ...] = (self.namespaces, *self.device_claims.reflectors)
        if selectors is not None:
            self.related_reflectors += selectors.reflectors
            selectors.follow(self._selectors_changed)
        # These, and before them the watches of nodes and pods
        self.reflectors: tuple[Reflector, ...] = (
            Reflector(client, NODES_PATH, NodeFeed(self)),
            Reflector(client, PODS_PATH, PodFeed(self), {"fieldSelector": UNFINISHED}),
            *self.related_reflectors,
        )

    @property
    def synced(self) -> bool:
        return all(reflector.synced.is_set() for reflector in self.reflectors)

    def waiting(self, raw: msgspec.Raw) -> CachedPod | None:
        """Return the pod of this JSON if it is pending here in exactly this form; else None."""
        try:
            head = pod_from_json(raw)
        except (msgspec.DecodeError, FieldError, UnicodeDecodeError):
            return None
        known = self.pods.get(head.key)
        if known is None or known.uid != head.metadata.uid or known.node or head.node:
            return None
        is_clear = known.generation > 0 and not known.unmodelled and not known.gated
        return known if is_clear and not may_differ(known, head) else None

    def decode_model(self, raw: msgspec.Raw) -> Pod:
        """Return a pod that is not part of the cache, such as one that has ended; what makes no sense is left out."""
        return self._decoder.decode_model(valid_pod(raw), raw)[0]

    # Pods ------------------------------------------------------------------------------------------------------------

    def upsert_pod(self, raw: msgspec.Raw) -> None:
        self.apply(valid_pod(raw), raw)

    def apply(self, head: LivePod, raw: msgspec.Raw) -> None:
        """Add or update a pod that is decoded from its JSON as far as it is valid."""
        known = self.pods.get(head.key)
        if head.finished:
            self.delete_pod(head.key)
            return
        # A relist shows only the new pod of that name; the deletion of the old one was missed.
        if known is not None and known.uid != head.metadata.uid:
            self.delete_pod(head.key)
            known = None
        if known is None:
            known = self._decoded(head, raw)
            created, condition = unix_seconds(head.metadata.creation_timestamp), head.scheduled_condition
            # As `live.scheduler.reporting` wrote it where the pod was gated after its creation.
            told = unix_seconds(condition.last_transition_time) if condition.reason == UNSCHEDULABLE else None
            known.waits_since = max((seconds for seconds in (created, told) if seconds is not None), default=None)
            self.keep(known)
            self.listener.on_pod_added(known)
            self._settle(known, head, raw, new=True)
        else:
            self._settle(known, head, raw, new=False)

    def delete_pod(self, key: str) -> None:
        pod = self.pods.pop(key, None)
        if pod is not None:
            self.expected.nominate(pod, "")
            self._decoder.selecting.pop(key, None)
            self.drop(pod)
            pod.assumed = False
            self.listener.on_pod_deleted(pod)

    def _namespaces_changed(self) -> None:
        """Decode the pods again that select namespaces by labels."""
        for key, raw in list(self._decoder.selecting.items()):
            pod, head = self.pods[key], valid_pod(raw)
            if self._update_pod(pod, head, raw) and not pod.node and not pod.gated and not pod.deleting:
                self.listener.on_pod_pending(pod)

    def _selectors_changed(self, keys: Set[str]) -> None:
        """Tell pods apart by the keys of new selectors, and read pending pods again, whose constraints may follow."""
        pending = () if self._read is as_written else [pod for pod in self.pods.values() if not pod.node]
        known = [pod.class_id for pod in pending]  # before the keys are followed, which numbers pods, too
        self.follow(keys)
        for pod, before in zip(pending, known, strict=True):
            if before >= 0:
                self.renumber(pod)
            # Of a pod without numbers it is not known which class it had.
            if (before < 0 or pod.class_id != before) and not pod.gated and not pod.deleting:
                self.listener.on_pod_pending(pod)

    def _decoded(self, head: LivePod, raw: msgspec.Raw) -> CachedPod:
        pod, known = self._decoder.decode(head, raw), self.pods.get(head.key)
        if pod.problem and (known is None or known.problem != pod.problem):
            log.warning("pod half understood", pod=pod.key, why=pod.problem)
        return pod

    def _settle(self, pod: CachedPod, head: LivePod, raw: msgspec.Raw, *, new: bool) -> None:
        """Apply the API's version of a known pod."""
        node, deleting = head.node, head.metadata.deletion_timestamp is not None
        pod.version, condition = head.metadata.resource_version, head.scheduled_condition
        pod.refusal = condition.message or "" if condition.reason == UNSCHEDULABLE else ""
        if pod.started is None and head.status.start_time:
            pod.started = unix_seconds(head.status.start_time)
        changed = new or deleting != pod.deleting
        if deleting != pod.deleting:  # topology spread counts it no more, but it keeps its resources
            self.remodel(pod, replace(pod.pod, terminating=deleting), may_have_grown=False)
        # An assumed pod keeps the requests that it was decided with, until the watch confirms or contradicts.
        if not new and not pod.assumed and may_differ(pod, head):
            changed |= self._update_pod(pod, head, raw)
        if node:
            self.bind(pod, node, head)
        elif not pod.assumed:
            # A pod that is being deleted will not take its nominated node.
            self.expected.nominate(pod, "" if deleting else head.status.nominated_node_name or "")
            if changed and not pod.gated:
                self.listener.on_pod_pending(pod)

    def _update_pod(self, pod: CachedPod, head: LivePod, raw: msgspec.Raw) -> bool:
        fresh = self._decoded(head, raw)
        fresh.pod = replace(fresh.pod, terminating=pod.deleting)  # stored JSON may be older
        if pod.node:
            fresh.pod = _with_gpus_of(pod.pod, fresh.pod)
        pod.generation, pod.notes, pod.resizing = fresh.generation, fresh.notes, fresh.resizing
        pod.problem = fresh.problem
        if (fresh.pod, fresh.unmodelled, fresh.gated) == (pod.pod, pod.unmodelled, pod.gated):
            return False
        if pod.gated and not fresh.gated:
            pod.waits_since = time.time()
        pod.unmodelled, pod.gated = fresh.unmodelled, fresh.gated
        self.remodel(pod, fresh.pod, may_have_grown=True)
        return True

    def bind(self, pod: CachedPod, node: str, head: LivePod) -> None:
        """Count a pod on the node that the API reports: confirm our assumption, correct it, or count a new pod."""
        if pod.node == node:
            if pod.assumed:
                # Annotations of bound pods are not compared any more, so they need no memory.
                pod.assumed, pod.notes = False, None
                self._correct_devices(pod, head)
                self.listener.on_pod_bound(pod)
            return
        if pod.node:  # assumed elsewhere; the API is right
            pod.assumed = False
            self.take(pod)
        self.expected.nominate(pod, "")
        self._count_device_claims(pod)
        held = _devices(head, pod.pod) or _mask(pod.pod.gpu_devices)
        # Without a valid annotation the account chooses devices, see `ClusterState.place_running`.
        self.put(pod, node, held or None)
        self.listener.on_pod_bound(pod)

    def _correct_devices(self, pod: CachedPod, head: LivePod) -> None:
        """Give an assumed pod the devices that it was bound with, since another leader may have chosen others."""
        held = _devices(head, pod.pod)
        if held and held != pod.devices and pod.key in self.state.placements:
            slot = self.state.remove(pod.key).slot
            pod.devices = held
            self.place(pod, slot)
            self.listener.on_node_changed(slot, may_have_grown=True)

    # Nodes and what they offer ---------------------------------------------------------------------------------------

    def upsert_node(self, raw: msgspec.Raw) -> None:
        """Add or update a node.

        One that makes no sense takes no pods, and stays in its last valid form with its pods.
        """
        try:
            node = decode_node(node_from_json(raw))
        except FieldError as error:
            self._close(named_object(raw).metadata.name, str(error))
            return
        self._decoder.unmodelled(raw, "Node")
        self._nodes[node.name] = node
        if self.node_problems.pop(node.name, None) is not None:
            self.listener.on_node_problem(node.name, "")
        self.put_node(self.device_claims.offers.node(node))

    def _close(self, name: str, problem: str) -> None:
        """Close a node to new pods, since its object makes no sense."""
        if self.node_problems.get(name) == problem:
            return
        self.node_problems[name] = problem
        log.warning("node takes no pods", node=name, why=problem)
        self.listener.on_node_problem(name, problem)
        slot = self.state.slots.get(name)
        known = None if slot is None else self.state.nodes[slot]
        if known is not None:
            self.put_node(replace(known, unschedulable=True, pods=0))  # a pod may tolerate the first

    def delete_node(self, name: str) -> None:
        """Remove a node; its pods stay known."""
        self.node_problems.pop(name, None)
        self._nodes.pop(name, None)
        slot = self.state.slots.get(name)
        if slot is not None:
            self.state.remove_node(name)
            self.listener.on_node_changed(slot, may_have_grown=False)

    def offered_devices(self, pod: Pod, node: str) -> list[str]:
        """Return the resources of a pod that a node offers by DRA alone."""
        written, offered = self._nodes.get(node), self.device_claims.offers.devices.get(node, {})
        if written is None or not offered:
            return []
        names = (pod.requests.gpu_resource, *dict(pod.requests.extended))
        by_plugin = {*written.gpu_resources, *dict(written.extended)}
        return [name for name in names if name in offered and name not in by_plugin]

    def _offers_changed(self, last: DeviceOffers) -> None:
        """Follow what nodes offer by DRA, and names of resources."""
        offers = self.device_claims.offers
        # Also nodes of the last offers, which may offer nothing now.
        for name in last.devices.keys() | offers.devices.keys():
            written = self._nodes.get(name)
            if written is not None and name not in self.node_problems:
                self.put_node(offers.node(written))
        if (last.names, last.problems) == (offers.names, offers.problems):
            return
        for pod in list(self.pods.values()):
            renamed, before = offers.pod(pod.pod), last.unmodelled(pod.pod)
            uses = (*(use for use in pod.unmodelled if use not in before), *offers.unmodelled(renamed))
            if (renamed, uses) != (pod.pod, pod.unmodelled):
                self._replace_model(pod, renamed, uses)
                if not pod.node and not pod.gated and not pod.deleting:
                    self.listener.on_pod_pending(pod)

    def _replace_model(self, pod: CachedPod, model: Pod, uses: tuple[str, ...]) -> None:
        node = pod.node
        if node:
            self.take(pod)
        pod.pod, pod.unmodelled = model, uses
        self.forget_numbers(pod)
        if node:
            self.put(pod, node, None)

    def _device_claims_changed(self, key: str) -> None:
        """Count a bound pod's GPUs again; a pending pod holds none."""
        pod = self.pods.get(key)
        if pod is None or not pod.node or not pod.has_device_claims:
            return
        node = pod.node
        self.take(pod)
        self._count_device_claims(pod)
        self.put(pod, node, None)

    def _count_device_claims(self, pod: CachedPod) -> None:
        """Set the GPU requests of a pod that counts nowhere to those that its ResourceClaims hold."""
        if not pod.has_device_claims:
            return
        resource, count = self.device_claims.gpus(pod.key, pod.uid)
        milli = GPU_MILLI if count else 0
        requests = replace(pod.pod.requests, gpu_count=count, gpu_milli=milli, gpu_resource=resource)
        if requests != pod.pod.requests:
            pod.pod = replace(pod.pod, pod_class=replace(pod.pod.pod_class, requests=requests))
            self.forget_numbers(pod)


class PodFeed:
    """Handler of pod events."""

    def __init__(self, cache: ClusterCache) -> None:
        self.cache = cache

    def keep(self, keys: Set[str]) -> None:
        for key in self.cache.pods.keys() - keys:
            self.cache.delete_pod(key)

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        if kind == "DELETED":
            self.cache.delete_pod(named_object(obj).key)
            # Only deletions leave classes and labels unused.
            self.cache.tidy()
        else:
            self.cache.upsert_pod(obj)


class NodeFeed:
    """Handler of node events."""

    def __init__(self, cache: ClusterCache) -> None:
        self.cache = cache

    def keep(self, keys: Set[str]) -> None:
        for name in (self.cache.state.slots.keys() | self.cache.node_problems.keys()) - keys:
            self.cache.delete_node(name)
        self.cache.rank_nodes()

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        if kind == "DELETED":
            self.cache.delete_node(named_object(obj).metadata.name)
        else:
            self.cache.upsert_node(obj)


def _devices(head: LivePod, pod: Pod) -> int:
    """Return the devices of a pod's annotation as a bit mask, 0 if it names none that make sense."""
    stated = (head.metadata.annotations or {}).get(GPU_INDEX_KEY, "")
    try:
        return _mask(device_numbers(stated, pod.requests.gpu_count))
    except ValueError:
        return 0


def _mask(devices: Iterable[int]) -> int:
    return sum(1 << device for device in devices)


def _with_gpus_of(previous: Pod, fresh: Pod) -> Pod:
    """Return the fresh pod with the previous one's GPUs, since anyone may change a running pod's annotations."""
    was, now = previous.requests, fresh.requests
    gpus = (was.gpu_count, was.gpu_milli, was.gpu_resource)
    if gpus == (now.gpu_count, now.gpu_milli, now.gpu_resource):
        return fresh
    requests = replace(now, gpu_count=was.gpu_count, gpu_milli=was.gpu_milli, gpu_resource=was.gpu_resource)
    return replace(fresh, pod_class=replace(fresh.pod_class, requests=requests))
