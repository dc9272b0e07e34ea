"""ClusterState of a live cluster: fed by watches of nodes and pods, and by our own decisions.

A decision counts at once (the pod is *assumed* on its node), long before the watch reports the binding; the watch wins.
Pods on unknown nodes wait for these. A pod with a node nominated by another scheduler counts there until it is bound,
as in kube-scheduler.

A bound pod counts whatever it says of itself. Its GPU annotations can be changed by anyone who may patch the pod, so it
holds what it had when it was first seen bound. One that requests no GPUs holds those of its claims.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import msgspec
import structlog

from steersman.cluster.constraints.node import Mask
from steersman.cluster.gpu_resources import PLUGIN_GPUS
from steersman.cluster.model import GPU_MILLI, Constraints, Node, Pod
from steersman.cluster.objects.api.decoding import node_from_json, pod_from_json, valid_pod
from steersman.cluster.objects.api.metadata import named_object
from steersman.cluster.objects.api.pods import LivePod
from steersman.cluster.objects.api_fields import kubernetes_table, live_field_use
from steersman.cluster.objects.decoding import decode_node, decode_pod, pod_from_object
from steersman.cluster.objects.device_offers import DeviceOffers
from steersman.cluster.objects.fields import FieldError
from steersman.cluster.objects.partial import partial_pod
from steersman.cluster.objects.pod_gpus import GPU_INDEX_KEY, device_numbers
from steersman.cluster.objects.replicas import decode_replica
from steersman.cluster.objects.requests import is_resizing
from steersman.cluster.objects.selectors import selects_namespaces
from steersman.cluster.owner_pods import NO_OWNER_PODS, OwnerPods
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.provisional import pod_selectors, selector_keys
from steersman.cluster.state import ClusterState, RunningPod
from steersman.core.errors import InputError
from steersman.kubernetes.cache.device_claims import DeviceClaims
from steersman.kubernetes.cache.gpu_mixing import GpuPods
from steersman.kubernetes.client import Client
from steersman.kubernetes.namespaces import Namespaces
from steersman.kubernetes.selectors import Selectors
from steersman.kubernetes.volumes.pod_claims import PodClaim, pod_claims
from steersman.kubernetes.watch import EventType, Reflector

NODES_PATH, PODS_PATH = "/api/v1/nodes", "/api/v1/pods"
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector; a pod that finishes leaves such a watch as if it were deleted."""
CLASSES_KEPT = 2_000
"""Number of pod classes, label sets and selectors beyond which unused ones are forgotten."""

log = structlog.get_logger("cache")


def has_changed(pod: CachedPod, head: LivePod) -> bool:
    """Return whether a pending pod differs from what its model was decoded from, or is being deleted."""
    meta = head.metadata
    return (
        meta.deletion_timestamp is not None
        or meta.generation != pod.generation
        or (meta.labels or {}) != pod.pod.labels
        or meta.annotations != pod.notes
    )


@dataclass(slots=True, eq=False)
class CachedPod:
    """A pod of the cluster.

    Attributes:
        key: namespace and name.
        uid: distinguishes it from an earlier pod of that name.
        pod: model, without a node's name among its constraints.
        generation: of the spec that the model was decoded from.
        version: resource version as last seen.
        node: where it is bound or assumed; "" while it is pending.
        devices: bit mask of the GPU devices that it is known to hold; None: unknown.
        assumed: whether it is there by our decision, which the watch has not confirmed yet.
        unmodelled: features it uses that affect its placement and that the model lacks.
        class_id, labels_id: numbers in the state.
        notes: its annotations until it is bound, since they hold requests and may change.
        gated: whether it has scheduling gates.
        resizing: whether its resources may change without its spec.
        nominated: node that another scheduler nominated for it while it is pending, where it counts; "" if none.
        problem: what in it makes no sense, "" if nothing.
        claims: its persistent volume claims.
        has_device_claims: whether its GPUs are those of its ResourceClaims.
        seen: monotonic seconds at which it was first seen.
    """

    key: str
    uid: str
    pod: Pod
    generation: int
    node: str = ""
    devices: int | None = None
    assumed: bool = False
    unmodelled: tuple[str, ...] = ()
    class_id: int = -1
    labels_id: int = -1
    version: str = ""
    notes: dict[str, str] | None = None
    gated: bool = False
    resizing: bool = False
    nominated: str = ""
    problem: str = ""
    claims: tuple[PodClaim, ...] = ()
    has_device_claims: bool = False
    seen: float = field(default_factory=time.monotonic)

    @property
    def deleting(self) -> bool:
        """Whether it is being deleted."""
        return self.pod.terminating


class Listener:
    """Base class of listeners to the cluster. Called in the event loop; must not block."""

    def on_pod_added(self, pod: CachedPod) -> None:
        """Handle a new pod."""

    def on_pod_pending(self, pod: CachedPod) -> None:
        """Handle a pod that waits for a node: it is new, or was changed."""

    def on_pod_bound(self, pod: CachedPod) -> None:
        """Handle a pod that the watch reports on `pod.node`, by whichever scheduler."""

    def on_pod_deleted(self, pod: CachedPod) -> None:
        """Handle a deleted or finished pod, in its last form."""

    def on_node_changed(self, slot: int, *, may_have_grown: bool) -> None:
        """Handle a node that was added, changed or deleted, or whose pods changed.

        Args:
            slot: of the node.
            may_have_grown: whether there may be room for a pod that waits; not after a deletion.
        """

    def on_node_problem(self, name: str, problem: str) -> None:
        """Handle a node that takes no pods since its object makes no sense, or that is valid again ("")."""

    def on_rebuilt(self) -> None:
        """Handle a new state object, in which all numbers differ."""


class ClusterCache:
    """ClusterState of a live cluster, with its pods.

    Args:
        client: connection to the API server.
        listener: notified of changes.
        selectors: what selects pods for default spreading, for policies that use it; its reflectors join ours, and the
            labels that it reads are stored.
        ranked: whether listed nodes are ranked at random, for who decides: of equal scores the lowest slot wins.

    Attributes:
        state: the cluster; pods by their key.
        pods: all unfinished pods.
        node_problems: why nodes take no pods, by name.
        claims_on: node -> key of a claim -> number of its pods there.
        gpu_pods: nodes by the kind of GPU pods on them.
    """

    def __init__(
        self, client: Client, listener: Listener, selectors: Selectors | None = None, *, ranked: bool = False
    ) -> None:
        self.listener, self.selectors = listener, selectors
        self.state = ClusterState(())
        self.pods: dict[str, CachedPod] = {}
        self.namespaces = Namespaces(client, self._namespaces_changed)
        self.reflectors: tuple[Reflector, ...] = (
            Reflector(client, NODES_PATH, NodeFeed(self)),
            Reflector(client, PODS_PATH, PodFeed(self), {"fieldSelector": UNFINISHED}),
            self.namespaces,
        )
        self.device_claims = DeviceClaims(client, self._device_claims_changed, self._offers_changed)
        self.reflectors += self.device_claims.reflectors
        if selectors is not None:
            self.reflectors += selectors.reflectors
            selectors.follow(self.follow)
        self.node_problems: dict[str, str] = {}
        self.claims_on: dict[str, Counter[str]] = {}
        self.gpu_pods = GpuPods()
        # JSON of pods that select namespaces by labels; their models change with these labels.
        self._selecting_namespaces: dict[str, msgspec.Raw] = {}
        self._on_node: dict[str, set[str]] = defaultdict(set)
        self._nominated: dict[str, set[str]] = defaultdict(set)
        self._owners: dict[str, Counter[str]] = defaultdict(Counter)
        self._owned = Counter[str]()  # all pods of an owner
        self._unknown: set[tuple[str, str]] = set()
        self._nodes: dict[str, Node] = {}  # as written, without what they offer by DRA
        self._ranked = 1.0 if ranked else math.inf
        self._selected: set[str] = set()
        self._followed: set[str] = set()
        # Pods by label keys that nobody selects by yet.
        self._labelled: dict[str, set[str]] = defaultdict(set)

    @property
    def synced(self) -> bool:
        """Whether everything was listed."""
        return all(reflector.synced.is_set() for reflector in self.reflectors)

    @property
    def selected(self) -> Set[str]:
        """Label keys by which pods are told apart in the state."""
        return self._selected

    def owner_pods(self, pod: Pod) -> OwnerPods:
        """Return the pods of the same owner."""
        if not pod.owner:
            return NO_OWNER_PODS
        slots, owner = self.state.slots, _owner(pod)
        on_nodes = self._owners.get(owner, Counter())
        running = {slots[node]: count for node, count in on_nodes.items() if count and node in slots}
        return OwnerPods(running, max(self._owned[owner] - on_nodes.total(), 1))

    def query(self, pod: CachedPod) -> PodQuery:
        """Return a pod that wants a node, as policies are asked about it."""
        return PodQuery(pod.class_id, pod.labels_id, self.owner_pods(pod.pod), pod.pod.latency, pod=pod.pod)

    def pods_on(self, node: str) -> list[CachedPod]:
        """Return the pods that are bound to a node or assumed there."""
        return [self.pods[key] for key in sorted(self._on_node.get(node, ()))]

    def number(self, pod: Pod) -> tuple[int, int]:
        """Return the class and labels of a pod in the state, without labels that nobody selects by."""
        self.select(_selected_keys(pod.constraints))
        return self._number(pod)

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
        return known if is_clear and not self._may_differ(known, head) else None

    @contextmanager
    def unplaced(self, pod: CachedPod) -> Iterator[PodQuery]:
        """Take a placed pod off its node inside the block, and yield it as it was asked about before its binding."""
        placed = self.state.remove(pod.key)
        self.listener.on_node_changed(placed.slot, may_have_grown=False)
        try:
            query = self.query(pod)
            yield replace(query, owner_pods=query.owner_pods.without(placed.slot))
        finally:
            self.state.place(pod.key, pod.class_id, placed.slot, placed.devices, pod.labels_id, force=True)
            self.listener.on_node_changed(placed.slot, may_have_grown=False)

    # Our decisions ---------------------------------------------------------------------------------------------------

    def assume(self, pod: CachedPod, slot: int, devices: int) -> None:
        """Assume a pod on a node before the API confirms it."""
        node = self.state.nodes[slot]
        assert node is not None
        pod.assumed = True
        self._nominate(pod, "")
        self._put(pod, node.name, devices)

    def forget(self, pod: CachedPod) -> None:
        """Take an assumed pod back, unless it was confirmed or deleted."""
        if pod.assumed and self.pods.get(pod.key) is pod:
            pod.assumed = False
            self._take(pod)
            pod.devices = None

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
        allowed = self.state.mask(pod.class_id, pod.labels_id) if beside else None
        for each in beside:
            self._displace(each)
        try:
            yield allowed
        finally:
            for each in nominated:
                if each.nominated in self.state.slots:
                    self._place(each, self.state.slots[each.nominated])
                    self.listener.on_node_changed(self.state.slots[each.nominated], may_have_grown=False)

    def _nominated_pods(self) -> list[CachedPod]:
        """Return the pods that count on nominated nodes."""
        return [self.pods[key] for keys in self._nominated.values() for key in keys if key in self.state.placements]

    # Changes of the API ----------------------------------------------------------------------------------------------

    def upsert_pod(self, raw: msgspec.Raw) -> None:
        """Add or update a pod."""
        head = valid_pod(raw)
        known = self.pods.get(head.key)
        if head.finished:
            self.delete_pod(head.key)
            return
        if known is not None and known.uid != head.metadata.uid:
            self.delete_pod(head.key)
            known = None
        if known is None:
            known = self._decode(head, raw)
            self._keep(known)
            self.listener.on_pod_added(known)
            self._settle(known, head, raw, new=True)
        else:
            self._settle(known, head, raw, new=False)

    def delete_pod(self, key: str) -> None:
        """Remove a deleted or finished pod."""
        pod = self.pods.pop(key, None)
        if pod is not None:
            self._nominate(pod, "")
            self._drop_labels(pod)
            self._selecting_namespaces.pop(key, None)
            if pod.node:
                self._take(pod, keep_node=True)
            self._count_owned(pod, -1)
            pod.assumed = False
            self.listener.on_pod_deleted(pod)

    def upsert_node(self, raw: msgspec.Raw) -> None:
        """Add or update a node.

        One that makes no sense takes no pods, and stays in its last valid form with its pods.
        """
        try:
            node = decode_node(node_from_json(raw))
        except FieldError as error:
            self._close(named_object(raw).metadata.name, str(error))
            return
        self._unmodelled(raw, "Node")
        self._nodes[node.name] = node
        if self.node_problems.pop(node.name, None) is not None:
            self.listener.on_node_problem(node.name, "")
        self._upsert_node(self.device_claims.offers.node(node))

    def _upsert_node(self, node: Node) -> None:
        slot = self.state.slots.get(node.name)
        if slot is None:
            slot = self.state.add_node(node)
            self._place_all(self.state, node.name, slot)
        elif self.state.nodes[slot] == node:
            return
        else:
            self.state.update_node(node)
        self.listener.on_node_changed(slot, may_have_grown=True)

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
            self._upsert_node(replace(known, unschedulable=True, pods=0))  # a pod may tolerate the first

    def delete_node(self, name: str) -> None:
        """Remove a node; its pods stay known."""
        self.node_problems.pop(name, None)
        self._nodes.pop(name, None)
        slot = self.state.slots.get(name)
        if slot is not None:
            self.state.remove_node(name)
            self.listener.on_node_changed(slot, may_have_grown=False)

    def rank_nodes(self) -> None:
        """Rank the nodes of a `ranked` cache at random, as simulations do, if they are twice as many as last time.

        The API lists them by name, so by pool: pods that every pool suits equally well would all go to the first one.
        """
        if len(self.state.slots) >= 2 * self._ranked:
            self._ranked = len(self.state.slots)
            self.rebuild(sorted(self.state.slots, key=_rank))

    def rebuild(self, order: Iterable[str] | None = None) -> None:
        """Rebuild the state with only the classes and labels that pods still have.

        Args:
            order: names of the nodes by slot; None: the order stays.
        """
        former = self.state
        nodes = former.nodes if order is None else [former.nodes[former.slots[name]] for name in order]
        state = ClusterState([node for node in nodes if node is not None], received=former.slots)
        self._selected = set(self._followed)
        for pod in self.pods.values():
            self._selected |= _selected_keys(pod.pod.constraints)
        self._labelled.clear()
        numbers = {}
        for pod in self.pods.values():
            self._note_labels(pod)
            numbers[pod.key] = self._number(pod.pod, state)
        for pod in self.pods.values():
            pod.class_id, pod.labels_id = numbers[pod.key]
        for name, slot in state.slots.items():
            self._place_all(state, name, slot)
        self.state = state
        self.listener.on_rebuilt()

    def select(self, keys: Set[str]) -> None:
        """Tell pods apart by the labels of these keys."""
        new = keys - self._selected
        if not new:
            return
        self._selected |= new
        state = self.state
        for key in set().union(*(self._labelled.pop(key, ()) for key in new)):
            pod = self.pods[key]
            placed = state.placements.get(key)
            if placed is not None:
                state.remove(key)
            pod.class_id, pod.labels_id = self._number(pod.pod)
            if placed is not None:
                state.place(key, pod.class_id, placed.slot, placed.devices, pod.labels_id, force=True)
                self.listener.on_node_changed(placed.slot, may_have_grown=False)

    def follow(self, keys: Set[str]) -> None:
        """Tell pods apart by the labels of these keys from now on, since objects other than pods select by them."""
        self._followed |= keys
        self.select(keys)

    # -----------------------------------------------------------------------------------------------------------------

    def _keep(self, pod: CachedPod) -> None:
        """Add a new pod."""
        self.pods[pod.key] = pod
        self._count_owned(pod, 1)
        self._note_labels(pod)

    def _note_labels(self, pod: CachedPod) -> None:
        for key in pod.pod.labels:
            if key not in self._selected:
                self._labelled[key].add(pod.key)

    def _note_selecting(self, head: LivePod, raw: msgspec.Raw) -> None:
        """Store the JSON of a pod that selects namespaces by labels."""
        if selects_namespaces(head.spec):
            self._selecting_namespaces[head.key] = msgspec.Raw(bytes(raw))
            self.namespaces.need()
        else:
            self._selecting_namespaces.pop(head.key, None)

    def _namespaces_changed(self) -> None:
        """Decode the pods again that select namespaces by labels."""
        for key, raw in list(self._selecting_namespaces.items()):
            pod, head = self.pods[key], valid_pod(raw)
            if self._update_pod(pod, head, raw) and not pod.node and not pod.gated and not pod.deleting:
                self.listener.on_pod_pending(pod)

    def _drop_labels(self, pod: CachedPod) -> None:
        for key in pod.pod.labels:
            if key in self._labelled:
                self._labelled[key].discard(pod.key)
                if not self._labelled[key]:
                    del self._labelled[key]

    def _decode(self, head: LivePod, raw: msgspec.Raw) -> CachedPod:
        meta, spec = head.metadata, head.spec
        self._note_selecting(head, raw)
        if spec.resource_claims:
            self.device_claims.need()
        pod, problem = self._model(head, raw)
        uses = self._unmodelled(raw, "Pod")
        # Its requests count where it runs, whatever else it says; while it is pending the problem is reported.
        uses += (f"what it does not understand ({problem})",) if problem else self.device_claims.offers.unmodelled(pod)
        if pod.requests.gpu_resource in PLUGIN_GPUS or any("/" in name for name, _ in pod.requests.extended):
            self.device_claims.need_classes()
        cached = CachedPod(
            head.key,
            meta.uid,
            pod,
            meta.generation,
            unmodelled=uses,
            notes=meta.annotations,
            gated=bool(spec.scheduling_gates),
            resizing=bool(head.node) and not problem and is_resizing(head),
            problem=problem,
            claims=pod_claims(head),
            has_device_claims=bool(spec.resource_claims) and not pod.requests.gpu_count,
        )
        cached.class_id, cached.labels_id = self.number(pod)
        known = self.pods.get(head.key)
        if problem and (known is None or known.problem != problem):
            log.warning("pod half understood", pod=head.key, why=problem)
        return cached

    def _model(self, head: LivePod, raw: msgspec.Raw) -> tuple[Pod, str]:
        """Return a pod without its node, and what in it makes no sense, "" if nothing; only the rest counts then."""
        namespaces = self.namespaces.labels
        try:
            if selects_namespaces(head.spec):
                pod = decode_pod(head, namespaces=namespaces).unbound()
            else:
                pod = decode_replica(head)
            return self.device_claims.offers.pod(pod), ""
        except FieldError:
            document = msgspec.json.decode(raw)
        try:  # since `head` may lack what is wrong
            return pod_from_object(document, namespaces=namespaces).unbound(), ""
        except InputError as error:
            return partial_pod(document).unbound(), str(error)

    def _unmodelled(self, raw: msgspec.Raw, kind: str) -> tuple[str, ...]:
        """Return the fields that are not modelled. Name unknown ones once; kube-scheduler ignores them, too."""
        use = live_field_use(raw, kind)
        for path in use.unknown:
            if (kind, path) not in self._unknown:
                self._unknown.add((kind, path))
                minor = kubernetes_table().minor
                log.warning(f"field ignored that Kubernetes {minor} does not have", kind=kind, field=path)
        return tuple(use.unmodelled)

    def _number(self, pod: Pod, state: ClusterState | None = None) -> tuple[int, int]:
        state = self.state if state is None else state
        labels = {key: value for key, value in pod.labels.items() if key in self._selected}
        return state.class_id(pod.pod_class), state.terms.labels_id(pod.namespace, labels, terminating=pod.terminating)

    def _settle(self, pod: CachedPod, head: LivePod, raw: msgspec.Raw, *, new: bool) -> None:
        """Apply the API's version of a known pod."""
        node, deleting = head.node, head.metadata.deletion_timestamp is not None
        pod.version = head.metadata.resource_version
        changed = new or deleting != pod.deleting
        self._set_terminating(pod, deleting)
        if not new and not pod.assumed and self._may_differ(pod, head):
            changed |= self._update_pod(pod, head, raw)
        if node:
            self._on_bound(pod, node, head)
        elif not pod.assumed:
            self._nominate(pod, "" if deleting else head.status.nominated_node_name or "")
            if changed and not pod.gated:
                self.listener.on_pod_pending(pod)

    def _set_terminating(self, pod: CachedPod, terminating: bool) -> None:
        """Follow the deletion of a pod: topology spread counts it no more, but it keeps its resources."""
        if pod.pod.terminating == terminating:
            return
        pod.pod = replace(pod.pod, terminating=terminating)
        pod.class_id, pod.labels_id = self._number(pod.pod)
        placed = self.state.placements.get(pod.key)
        if placed is not None:
            self.state.remove(pod.key)
            self._place(pod, placed.slot)
            self.listener.on_node_changed(placed.slot, may_have_grown=False)

    def _may_differ(self, pod: CachedPod, head: LivePod) -> bool:
        """Return whether a pod must be decoded to see if its model changed."""
        meta = head.metadata
        if pod.resizing or meta.generation != pod.generation or (meta.labels or {}) != pod.pod.labels:
            return True
        # Before 1.33 pods have no generation.
        return not pod.node and (not meta.generation or meta.annotations != pod.notes)

    def _update_pod(self, pod: CachedPod, head: LivePod, raw: msgspec.Raw) -> bool:
        """Decode a pod again, and return whether its model changed."""
        fresh = self._decode(head, raw)
        fresh.pod = replace(fresh.pod, terminating=pod.deleting)  # stored JSON may be older
        if pod.node:
            fresh.pod = _with_gpus_of(pod.pod, fresh.pod)
        pod.generation, pod.notes, pod.resizing = fresh.generation, fresh.notes, fresh.resizing
        pod.problem = fresh.problem
        if (fresh.pod, fresh.unmodelled, fresh.gated) == (pod.pod, pod.unmodelled, pod.gated):
            return False
        placed = pod.key in self.state.placements
        if placed:
            self.state.remove(pod.key)
        self._drop_labels(pod)
        self._count_owned(pod, -1)
        self._count_running(pod, pod.node, -1)
        pod.pod, pod.unmodelled, pod.gated = fresh.pod, fresh.unmodelled, fresh.gated
        self._count_owned(pod, 1)
        self._count_running(pod, pod.node, 1)
        self._note_labels(pod)
        pod.class_id, pod.labels_id = self._number(pod.pod)
        if placed:
            slot = self.state.slots[pod.node or pod.nominated]
            self._place(pod, slot)
            self.listener.on_node_changed(slot, may_have_grown=True)
        return True

    def _on_bound(self, pod: CachedPod, node: str, head: LivePod) -> None:
        """Handle a pod that the API reports on a node: confirm our assumption, correct it, or count a new pod."""
        if pod.node == node:
            if pod.assumed:
                pod.assumed, pod.notes = False, None
                self._correct_devices(pod, head)
                self.listener.on_pod_bound(pod)
            return
        if pod.node:  # assumed elsewhere; the API is right
            pod.assumed = False
            self._take(pod)
        self._nominate(pod, "")
        self._count_device_claims(pod)
        held = _devices(head, pod.pod) or _mask(pod.pod.gpu_devices)
        self._put(pod, node, held or None)
        self.listener.on_pod_bound(pod)

    def _correct_devices(self, pod: CachedPod, head: LivePod) -> None:
        """Give an assumed pod the devices that it was bound with, since another leader may have chosen others."""
        held = _devices(head, pod.pod)
        if held and held != pod.devices and pod.key in self.state.placements:
            slot = self.state.remove(pod.key).slot
            pod.devices = held
            self._place(pod, slot)
            self.listener.on_node_changed(slot, may_have_grown=True)

    def offered_devices(self, pod: Pod, node: str) -> list[str]:
        """Return the resources of a pod that a node offers by DRA alone."""
        written, offered = self._nodes.get(node), self.device_claims.offers.devices.get(node, {})
        if written is None or not offered:
            return []
        names = (pod.requests.gpu_resource, *dict(pod.requests.extended))
        return [name for name in names if name in offered and name not in _offered(written)]

    def _offers_changed(self, last: DeviceOffers) -> None:
        """Follow what nodes offer by DRA, and names of resources."""
        offers = self.device_claims.offers
        for name in last.devices.keys() | offers.devices.keys():
            written = self._nodes.get(name)
            if written is not None and name not in self.node_problems:
                self._upsert_node(offers.node(written))
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
            self._take(pod)
        pod.pod, pod.unmodelled = model, uses
        pod.class_id, pod.labels_id = self._number(model)
        if node:
            self._put(pod, node, None)

    def _device_claims_changed(self, key: str) -> None:
        """Count a bound pod's GPUs again; a pending pod holds none."""
        pod = self.pods.get(key)
        if pod is None or not pod.node or not pod.has_device_claims:
            return
        node = pod.node
        self._take(pod)
        self._count_device_claims(pod)
        self._put(pod, node, None)

    def _count_device_claims(self, pod: CachedPod) -> None:
        """Set the GPU requests of a pod that counts nowhere to those that its ResourceClaims hold."""
        if not pod.has_device_claims:
            return
        resource, count = self.device_claims.gpus(pod.key, pod.uid)
        milli = GPU_MILLI if count else 0
        requests = replace(pod.pod.requests, gpu_count=count, gpu_milli=milli, gpu_resource=resource)
        if requests != pod.pod.requests:
            pod.pod = replace(pod.pod, pod_class=replace(pod.pod.pod_class, requests=requests))
            pod.class_id, pod.labels_id = self._number(pod.pod)

    def _nominate(self, pod: CachedPod, node: str) -> None:
        """Count a pending pod on its nominated node, "" for none any more."""
        if pod.nominated == node:
            return
        if pod.nominated:
            self._nominated[pod.nominated].discard(pod.key)
            if not self._nominated[pod.nominated]:
                del self._nominated[pod.nominated]
            self._displace(pod, may_have_grown=True)
        pod.nominated = node
        if node:
            self._nominated[node].add(pod.key)
            slot = self.state.slots.get(node)
            if slot is not None:
                self._place(pod, slot)
                self.listener.on_node_changed(slot, may_have_grown=False)

    def _displace(self, pod: CachedPod, *, may_have_grown: bool = False) -> None:
        """Remove a pod from its nominated node."""
        if pod.key in self.state.placements:
            slot = self.state.remove(pod.key).slot
            pod.devices = None
            self.listener.on_node_changed(slot, may_have_grown=may_have_grown)

    def _put(self, pod: CachedPod, node: str, devices: int | None) -> None:
        pod.node, pod.devices = node, devices
        if not pod.assumed:
            pod.notes = None
        self._on_node[node].add(pod.key)
        self.gpu_pods.add(node, pod.pod.requests)
        if pod.claims:
            self.claims_on.setdefault(node, Counter()).update(claim.key for claim in pod.claims)
        self._count_running(pod, node, 1)
        slot = self.state.slots.get(node)
        if slot is not None:
            self._place(pod, slot)
            self.listener.on_node_changed(slot, may_have_grown=False)

    def _count_owned(self, pod: CachedPod, amount: int) -> None:
        """Count a pod among those of its owner."""
        if pod.pod.owner:
            owner = _owner(pod.pod)
            self._owned[owner] += amount
            if not self._owned[owner]:
                del self._owned[owner]

    def _count_running(self, pod: CachedPod, node: str, amount: int) -> None:
        """Count a pod among those of its owner on a node, "" for none."""
        if pod.pod.owner and node:
            owner = _owner(pod.pod)
            self._owners[owner][node] += amount
            if not self._owners[owner][node]:
                del self._owners[owner][node]
            if not self._owners[owner]:
                del self._owners[owner]

    def _place_all(self, state: ClusterState, name: str, slot: int) -> None:
        """Place all pods of a node."""
        here = [self.pods[key] for key in (*self._on_node.get(name, ()), *self._nominated.get(name, ()))]
        running = (RunningPod(pod.key, pod.class_id, slot, pod.devices or 0, pod.labels_id) for pod in here)
        for key, placed in state.place_running(running).items():
            self.pods[key].devices = placed.devices

    def _place(self, pod: CachedPod, slot: int) -> None:
        """Place a pod on its node whatever the constraints say, since it is there."""
        running = RunningPod(pod.key, pod.class_id, slot, pod.devices or 0, pod.labels_id)
        pod.devices = self.state.place_running([running])[pod.key].devices

    def _take(self, pod: CachedPod, *, keep_node: bool = False) -> None:
        node = pod.node
        self._on_node[node].discard(pod.key)
        if not self._on_node[node]:
            del self._on_node[node]
        self.gpu_pods.remove(node, pod.pod.requests)
        if pod.claims:
            left = self.claims_on[node] - Counter(claim.key for claim in pod.claims)
            if left:
                self.claims_on[node] = left
            else:
                del self.claims_on[node]
        self._count_running(pod, node, -1)
        if not keep_node:
            pod.node = ""
        if pod.key in self.state.placements:
            slot = self.state.remove(pod.key).slot
            self.listener.on_node_changed(slot, may_have_grown=True)

    def tidy(self) -> None:
        """Forget classes and labels of deleted pods, and unused selectors, if there are many."""
        state = self.state
        if max(len(state.classes), len(state.terms.label_sets), len(state.term_arrays.matched)) <= CLASSES_KEPT:
            return  # the rest reads every pod
        used = max(CLASSES_KEPT, 2 * len({pod.class_id for pod in self.pods.values()}))
        labels = max(CLASSES_KEPT, 2 * len({pod.labels_id for pod in self.pods.values()}))
        terms = state.term_arrays
        # A label set is spread by one selector at most, and a rule reads two at most.
        selectors = CLASSES_KEPT + len(state.terms.label_sets) + 2 * len(terms.rules)
        if len(state.classes) > used or len(state.terms.label_sets) > labels or len(terms.matched) > selectors:
            self.rebuild()


class PodFeed:
    """Handler of pod events."""

    def __init__(self, cache: ClusterCache) -> None:
        self.cache = cache

    def keep(self, keys: Set[str]) -> None:
        """See `watch.Handler`."""
        for key in self.cache.pods.keys() - keys:
            self.cache.delete_pod(key)

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """See `watch.Handler`."""
        if kind == "DELETED":
            self.cache.delete_pod(named_object(obj).key)
            self.cache.tidy()
        else:
            self.cache.upsert_pod(obj)


class NodeFeed:
    """Handler of node events."""

    def __init__(self, cache: ClusterCache) -> None:
        self.cache = cache

    def keep(self, keys: Set[str]) -> None:
        """See `watch.Handler`."""
        for name in (self.cache.state.slots.keys() | self.cache.node_problems.keys()) - keys:
            self.cache.delete_node(name)
        self.cache.rank_nodes()

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """See `watch.Handler`."""
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


def _with_gpus_of(known: Pod, fresh: Pod) -> Pod:
    """Return the fresh pod with the known one's GPUs, since anyone may change a running pod's annotations."""
    was, now = known.requests, fresh.requests
    gpus = (was.gpu_count, was.gpu_milli, was.gpu_resource)
    if gpus == (now.gpu_count, now.gpu_milli, now.gpu_resource):
        return fresh
    requests = replace(now, gpu_count=was.gpu_count, gpu_milli=was.gpu_milli, gpu_resource=was.gpu_resource)
    return replace(fresh, pod_class=replace(fresh.pod_class, requests=requests))


def _yields(nominated: CachedPod, pod: CachedPod) -> bool:
    return nominated is pod or nominated.pod.priority < pod.pod.priority


def _rank(node: str) -> bytes:
    """Return the random rank of a node, the same in every process: of equal scores the lowest rank wins."""
    return hashlib.blake2b(node.encode(), digest_size=8).digest()


def _owner(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.owner}"


def _offered(node: Node) -> set[str]:
    return {*node.gpu_resources, *dict(node.extended)}


def _selected_keys(constraints: Constraints) -> set[str]:
    """Return the label keys by which a pod selects others."""
    return {key for selector in pod_selectors(constraints) for key in selector_keys(selector)}
