"""A ClusterState in step with the API server: fed by watches of nodes and pods, and by what we have decided ourselves.

A decision counts at once (the pod is *assumed* on its node), long before the watch says that it was bound; what the
watch says wins. Pods on nodes that are not known yet wait for these. A pod for which another scheduler has nominated a
node counts there until it is bound, as in kube-scheduler.

A bound pod counts whatever it says of itself. What of its GPUs is in annotations, anybody who may patch the pod can
change; so it holds what it had when it was first seen bound. One that requests no GPUs holds those of its claims.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace

import msgspec
import structlog

from steersman.cluster.fields import FieldError, Object
from steersman.cluster.model import GPU_MILLI, Constraints, Node, Pod
from steersman.cluster.objects import (
    GPU_INDEX_KEY,
    device_numbers,
    node_from_object,
    pod_from_object,
    unmodelled,
)
from steersman.cluster.partial import partial_pod
from steersman.cluster.provisional import pod_selectors, selector_keys
from steersman.cluster.requests import is_resizing
from steersman.cluster.selectors import selects_namespaces
from steersman.cluster.state import ClusterState
from steersman.errors import InputError
from steersman.kube.client import Client
from steersman.kube.device_claims import DeviceClaims
from steersman.kube.gpu_mixing import GpuPods
from steersman.kube.namespaces import Namespaces
from steersman.kube.objects import PodHead, named_head, pod_head, whole
from steersman.kube.reflector import EventType, Reflector
from steersman.kube.selectors import Selectors
from steersman.kube.volume_objects import PodClaim, pod_claims

NODES_PATH, PODS_PATH = "/api/v1/nodes", "/api/v1/pods"
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
"""A pod that finishes leaves such a watch as if it were deleted."""
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
        version: of the object, as it was last seen.
        node: where it is bound or assumed; "" while it waits.
        devices: the GPU devices that it is known to hold there, as a bit mask; None: not said.
        assumed: it is there by our decision, which the watch has not confirmed yet.
        deleting: it is being deleted.
        unmodelled: what it uses that decides about its placement and that we do not know.
        class_id, labels_id: numbers in the state.
        notes: its annotations while it waits: they say what it asks for, and may be others.
        gated: it has scheduling gates, and nobody may place it before the last of them is removed.
        resizing: what it holds may change without its spec.
        nominated: the node that another scheduler has nominated for it while it waits, where it counts; "" if none.
        problem: what in it makes no sense, "" if nothing.
        claims: its persistent volume claims.
        has_device_claims: its GPUs are those that its ResourceClaims hold.
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
    version: str = ""
    notes: dict[str, str] | None = None
    gated: bool = False
    resizing: bool = False
    nominated: str = ""
    problem: str = ""
    claims: tuple[PodClaim, ...] = ()
    has_device_claims: bool = False
    seen: float = field(default_factory=time.monotonic)


class Listener:
    """Base of those who are told what happens in the cluster. Called in the event loop; must not block."""

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

    def node_problem(self, name: str, problem: str) -> None:
        """A node makes no sense, so that it takes no pods; or it does again: then there is no problem, ""."""

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
        node_problems: what makes no sense of nodes that take no pods, by name.
        claims_on: node -> key of a claim -> how many pods there have it.
        gpu_pods: which nodes have pods with GPUs of which kind.
    """

    def __init__(self, client: Client, listener: Listener, selectors: Selectors | None = None) -> None:
        self.listener, self.selectors = listener, selectors
        self.state = ClusterState(())
        self.pods: dict[str, CachedPod] = {}
        self.namespaces = Namespaces(client, self._namespaces_changed)
        self.reflectors: tuple[Reflector, ...] = (
            Reflector(client, NODES_PATH, NodeFeed(self)),
            Reflector(client, PODS_PATH, PodFeed(self), {"fieldSelector": UNFINISHED}),
            self.namespaces,
        )
        self.device_claims = DeviceClaims(client, self._device_claims_changed)
        self.reflectors += self.device_claims.reflectors
        if selectors is not None:
            self.reflectors += selectors.reflectors
            selectors.follow(self.follow)
        self.node_problems: dict[str, str] = {}
        self.claims_on: dict[str, Counter[str]] = {}
        self.gpu_pods = GpuPods()
        # What pods are like that select namespaces by labels: they are other pods when labels change.
        self._selecting_namespaces: dict[str, msgspec.Raw] = {}
        self._on_node: dict[str, set[str]] = defaultdict(set)
        self._nominated: dict[str, set[str]] = defaultdict(set)
        self._owners: dict[str, Counter[str]] = defaultdict(Counter)
        self._selected: set[str] = set()
        self._followed: set[str] = set()
        # Pods by the keys of their labels, of those that are not selected by: these may be, some day.
        self._labelled: dict[str, set[str]] = defaultdict(set)

    @property
    def synced(self) -> bool:
        """Whether everything was listed."""
        return all(reflector.synced.is_set() for reflector in self.reflectors)

    @property
    def selected(self) -> Set[str]:
        """Keys of labels: pods whose labels of these keys differ are kept apart in the state."""
        return self._selected

    def peers(self, pod: Pod) -> dict[int, int]:
        """Slot -> how many pods of the same owner run there."""
        if not pod.owner:
            return {}
        slots = self.state.slots
        return {slots[node]: n for node, n in self._owners.get(_owner(pod), {}).items() if n and node in slots}

    def number(self, pod: Pod) -> tuple[int, int]:
        """The class and labels of a pod, here or not, in the state. Labels that nobody selects by are left out."""
        self.select(_selected_keys(pod.constraints))
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
        is_clear = known.generation > 0 and not known.unmodelled and not known.gated
        return known if is_clear and not self._may_differ(known, head) else None

    # What we decide --------------------------------------------------------------------------------------------------

    def assume(self, pod: CachedPod, slot: int, devices: int) -> None:
        """Count a pod on a node before the API knows."""
        node = self.state.nodes[slot]
        assert node is not None
        pod.assumed = True
        self._nominate(pod, "")
        self._put(pod, node.name, devices)

    def forget(self, pod: CachedPod) -> None:
        """Take an assumed pod back. Nothing happens if it was confirmed or is gone."""
        if pod.assumed and self.pods.get(pod.key) is pod:
            pod.assumed = False
            self._take(pod)
            pod.devices = None

    def without_nominated(self, pod: CachedPod) -> list[CachedPod]:
        """Take the pods off their nominated nodes that do not keep this one away: those of less priority, and itself.

        Returns:
            Them, to be given to `nominate_again` after the decision.
        """
        if not self._nominated:
            return []
        keys = {key for keys in self._nominated.values() for key in keys}
        found = [self.pods[key] for key in keys if key in self.state.placements]
        found = [each for each in found if each is pod or each.pod.priority < pod.pod.priority]
        for each in found:
            self._displace(each)
        return found

    def nominate_again(self, pods: list[CachedPod]) -> None:
        """Undo `without_nominated`, but for a pod that was assumed meanwhile."""
        for pod in pods:
            if pod.nominated and pod.nominated in self.state.slots:
                self._place(pod, self.state.slots[pod.nominated])
                self.listener.node_changed(self.state.slots[pod.nominated], more=False)

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
            self._keep(known)
            self.listener.pod_came(known)
            self._settle(known, head, raw, new=True)
        else:
            self._settle(known, head, raw, new=False)

    def lose_pod(self, key: str) -> None:
        """A pod was deleted or has finished."""
        pod = self.pods.pop(key, None)
        if pod is not None:
            self._nominate(pod, "")
            self._drop_labels(pod)
            self._selecting_namespaces.pop(key, None)
            if pod.node:
                self._take(pod, keep_node=True)
            pod.assumed = False
            self.listener.pod_gone(pod)

    def see_node(self, raw: msgspec.Raw) -> None:
        """A node is as the JSON says.

        One that makes no sense takes no pods: it stays as it last was, with those that it has.
        """
        try:
            node = node_from_object(whole(raw))
        except InputError as error:
            self._close(named_head(raw).metadata.name, str(error))
            return
        if self.node_problems.pop(node.name, None) is not None:
            self.listener.node_problem(node.name, "")
        self._see_node(node)

    def _see_node(self, node: Node) -> None:
        slot = self.state.slots.get(node.name)
        if slot is None:
            slot = self.state.add_node(node)
            self._place_all(self.state, node.name, slot)
        elif self.state.nodes[slot] == node:
            return
        else:
            self.state.update_node(node)
        self.listener.node_changed(slot, more=True)

    def _close(self, name: str, problem: str) -> None:
        """Let a node take no pods, since what the API says of it makes no sense."""
        if self.node_problems.get(name) == problem:
            return
        self.node_problems[name] = problem
        log.warning("node takes no pods", node=name, why=problem)
        self.listener.node_problem(name, problem)
        slot = self.state.slots.get(name)
        known = None if slot is None else self.state.nodes[slot]
        if known is not None:
            self._see_node(replace(known, unschedulable=True, pods=0))  # a pod may tolerate the first

    def lose_node(self, name: str) -> None:
        """A node was deleted; pods on it stay known."""
        self.node_problems.pop(name, None)
        slot = self.state.slots.get(name)
        if slot is not None:
            self.state.remove_node(name)
            self.listener.node_changed(slot, more=False)

    def rebuild(self) -> None:
        """Make the state anew, with the classes and labels alone that pods still have."""
        state = ClusterState([node for node in self.state.nodes if node is not None])
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
        self.listener.rebuilt()

    def select(self, keys: Set[str]) -> None:
        """Keep apart pods whose labels of these keys differ."""
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
                self.listener.node_changed(placed.slot, more=False)

    def follow(self, keys: Set[str]) -> None:
        """Keep apart pods whose labels of these keys differ, from now on: objects that are no pods select by them."""
        self._followed |= keys
        self.select(keys)

    # -----------------------------------------------------------------------------------------------------------------

    def _keep(self, pod: CachedPod) -> None:
        """Know a new pod."""
        self.pods[pod.key] = pod
        self._note_labels(pod)

    def _note_labels(self, pod: CachedPod) -> None:
        for key in pod.pod.labels:
            if key not in self._selected:
                self._labelled[key].add(pod.key)

    def _note_selecting(self, head: PodHead, spec: Object, raw: msgspec.Raw) -> None:
        """Keep what a pod is like that selects namespaces by labels."""
        try:
            selects = selects_namespaces(spec)
        except (AttributeError, TypeError):  # it makes no sense, which is found out next
            selects = False
        if selects:
            self._selecting_namespaces[head.key] = msgspec.Raw(bytes(raw))
            self.namespaces.need()
        else:
            self._selecting_namespaces.pop(head.key, None)

    def _namespaces_changed(self) -> None:
        """Decode the pods again that select namespaces by labels."""
        for key, raw in list(self._selecting_namespaces.items()):
            pod, head = self.pods[key], pod_head(raw)
            if self._renew(pod, head, raw) and not pod.node and not pod.gated and not pod.deleting:
                self.listener.pod_waits(pod)

    def _drop_labels(self, pod: CachedPod) -> None:
        for key in pod.pod.labels:
            if key in self._labelled:
                self._labelled[key].discard(pod.key)
                if not self._labelled[key]:
                    del self._labelled[key]

    def _decode(self, head: PodHead, raw: msgspec.Raw) -> CachedPod:
        obj = whole(raw)
        spec = obj.get("spec", {})
        spec.pop("nodeName", None)
        uses, problem, resizing = unmodelled(obj, with_claims=False), "", False
        # Only what is in order is looked at before it is decoded.
        if head.key in self._selecting_namespaces or b'"namespaceSelector"' in bytes(raw):
            self._note_selecting(head, spec, raw)
        if spec.get("resourceClaims"):
            self.device_claims.need()
        try:
            pod = pod_from_object(obj, namespaces=self.namespaces.labels)
            resizing = bool(head.spec.node_name) and is_resizing(spec, obj.get("status") or {})
        except (InputError, FieldError) as error:
            # What it takes counts where it runs, whatever else it says; and while it waits somebody should be told.
            problem = str(error)
            uses, pod = (*uses, f"what it does not understand ({problem})"), partial_pod(obj)
        meta = head.metadata
        made = CachedPod(
            head.key,
            meta.uid,
            pod,
            meta.generation,
            unmodelled=uses,
            notes=meta.annotations,
            gated=bool(spec.get("schedulingGates")),
            resizing=resizing,
            problem=problem,
            claims=pod_claims(obj),
            has_device_claims=bool(spec.get("resourceClaims")) and not pod.requests.gpu_count,
        )
        made.class_id, made.labels_id = self.number(pod)
        known = self.pods.get(head.key)
        if problem and (known is None or known.problem != problem):
            log.warning("pod half understood", pod=head.key, why=problem)
        return made

    def _number(self, pod: Pod, state: ClusterState | None = None) -> tuple[int, int]:
        state = self.state if state is None else state
        labels = {key: value for key, value in pod.labels.items() if key in self._selected}
        return state.class_id(pod.pod_class), state.terms.labels_id(pod.namespace, labels)

    def _settle(self, pod: CachedPod, head: PodHead, raw: msgspec.Raw, *, new: bool) -> None:
        """Follow what the API says of a pod that is known."""
        node, deleting = head.spec.node_name, head.metadata.deletion_timestamp is not None
        pod.version = head.metadata.resource_version
        changed = new or deleting != pod.deleting
        pod.deleting = deleting
        if not new and not pod.assumed and self._may_differ(pod, head):
            changed |= self._renew(pod, head, raw)
        if node:
            self._is_bound(pod, node, head)
        elif not pod.assumed:
            self._nominate(pod, "" if deleting else head.status.nominated_node_name)
            if changed and not pod.gated:
                self.listener.pod_waits(pod)

    def _may_differ(self, pod: CachedPod, head: PodHead) -> bool:
        """Whether it must be decoded to see if the model is another."""
        meta = head.metadata
        if pod.resizing or meta.generation != pod.generation or (meta.labels or {}) != pod.pod.labels:
            return True
        # Before 1.33 pods have no generation.
        return not pod.node and (not meta.generation or meta.annotations != pod.notes)

    def _renew(self, pod: CachedPod, head: PodHead, raw: msgspec.Raw) -> bool:
        """Decode a pod again; whether the model is another."""
        fresh = self._decode(head, raw)
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
        pod.pod, pod.unmodelled, pod.gated = fresh.pod, fresh.unmodelled, fresh.gated
        self._note_labels(pod)
        pod.class_id, pod.labels_id = self._number(pod.pod)
        if placed:
            slot = self.state.slots[pod.node or pod.nominated]
            self._place(pod, slot)
            self.listener.node_changed(slot, more=True)
        return True

    def _is_bound(self, pod: CachedPod, node: str, head: PodHead) -> None:
        if pod.node == node:
            if pod.assumed:
                pod.assumed = False
                self._correct_devices(pod, head)
                self.listener.pod_bound(pod)
            return
        if pod.node:  # assumed elsewhere: the API knows better
            pod.assumed = False
            self._take(pod)
        self._nominate(pod, "")
        self._count_device_claims(pod)
        held = _devices(head, pod.pod) or _mask(pod.pod.gpu_devices)
        self._put(pod, node, held or None)
        self.listener.pod_bound(pod)

    def _correct_devices(self, pod: CachedPod, head: PodHead) -> None:
        """Let an assumed pod hold the devices that it was bound with: another leader may have chosen others."""
        held = _devices(head, pod.pod)
        if held and held != pod.devices and pod.key in self.state.placements:
            slot = self.state.remove(pod.key).slot
            pod.devices = held
            self._place(pod, slot)
            self.listener.node_changed(slot, more=True)

    def _device_claims_changed(self, key: str) -> None:
        """Count a pod's GPUs anew if it is bound; while it waits they are nobody's."""
        pod = self.pods.get(key)
        if pod is None or not pod.node or not pod.has_device_claims:
            return
        node = pod.node
        self._take(pod)
        self._count_device_claims(pod)
        self._put(pod, node, None)

    def _count_device_claims(self, pod: CachedPod) -> None:
        """Let a pod that is counted nowhere ask for the GPUs that its ResourceClaims hold."""
        if not pod.has_device_claims:
            return
        resource, count = self.device_claims.gpus(pod.key, pod.uid)
        milli = GPU_MILLI if count else 0
        requests = replace(pod.pod.requests, gpu_count=count, gpu_milli=milli, gpu_resource=resource)
        if requests != pod.pod.requests:
            pod.pod = replace(pod.pod, pod_class=replace(pod.pod.pod_class, requests=requests))
            pod.class_id, pod.labels_id = self._number(pod.pod)

    def _nominate(self, pod: CachedPod, node: str) -> None:
        """Count a waiting pod on the node that is nominated for it, "" for none any more."""
        if pod.nominated == node:
            return
        if pod.nominated:
            self._nominated[pod.nominated].discard(pod.key)
            if not self._nominated[pod.nominated]:
                del self._nominated[pod.nominated]
            self._displace(pod, more=True)
        pod.nominated = node
        if node:
            self._nominated[node].add(pod.key)
            slot = self.state.slots.get(node)
            if slot is not None:
                self._place(pod, slot)
                self.listener.node_changed(slot, more=False)

    def _displace(self, pod: CachedPod, *, more: bool = False) -> None:
        """Count a pod nowhere that is counted on its nominated node."""
        if pod.key in self.state.placements:
            slot = self.state.remove(pod.key).slot
            pod.devices = None
            self.listener.node_changed(slot, more=more)

    def _put(self, pod: CachedPod, node: str, devices: int | None) -> None:
        pod.node, pod.devices, pod.notes = node, devices, None
        self._on_node[node].add(pod.key)
        self.gpu_pods.add(node, pod.pod.requests)
        if pod.claims:
            self.claims_on.setdefault(node, Counter()).update(claim.key for claim in pod.claims)
        if pod.pod.owner:
            self._owners[_owner(pod.pod)][node] += 1
        slot = self.state.slots.get(node)
        if slot is not None:
            self._place(pod, slot)
            self.listener.node_changed(slot, more=False)

    def _place_all(self, state: ClusterState, name: str, slot: int) -> None:
        """Count all pods of a node there, those first whose devices are known."""
        here = [self.pods[key] for key in (*self._on_node.get(name, ()), *self._nominated.get(name, ()))]
        for pod in sorted(here, key=lambda pod: (not pod.devices, pod.key)):
            self._place(pod, slot, state)

    def _place(self, pod: CachedPod, slot: int, state: ClusterState | None = None) -> None:
        """Count a pod on a node whatever the constraints say: it is there."""
        state = self.state if state is None else state
        devices = pod.devices or None
        if devices is not None and devices >> int(state.arrays.gpu_count[slot]):
            devices = None  # the node does not have these devices
        pod.devices = state.place(pod.key, pod.class_id, slot, devices, pod.labels_id, force=True).devices

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


class PodFeed:
    """Feeds pods to a cache."""

    def __init__(self, cache: ClusterCache) -> None:
        self.cache = cache

    def keep(self, keys: Set[str]) -> None:
        """See `reflector.Handler`."""
        for key in self.cache.pods.keys() - keys:
            self.cache.lose_pod(key)

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

    def keep(self, keys: Set[str]) -> None:
        """See `reflector.Handler`."""
        for name in (self.cache.state.slots.keys() | self.cache.node_problems.keys()) - keys:
            self.cache.lose_node(name)

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """See `reflector.Handler`."""
        if kind == "DELETED":
            self.cache.lose_node(named_head(obj).metadata.name)
        else:
            self.cache.see_node(obj)


def _devices(head: PodHead, pod: Pod) -> int:
    """Return the devices that a pod's annotation says it holds as a bit mask, 0 if it says none that make sense."""
    stated = (head.metadata.annotations or {}).get(GPU_INDEX_KEY, "")
    try:
        return _mask(device_numbers(stated, pod.requests.gpu_count))
    except ValueError:
        return 0


def _mask(devices: Iterable[int]) -> int:
    return sum(1 << device for device in devices)


def _with_gpus_of(known: Pod, fresh: Pod) -> Pod:
    """Return the fresh pod with the GPUs of the known one: annotations of a pod that runs may say what they like."""
    was, now = known.requests, fresh.requests
    gpus = (was.gpu_count, was.gpu_milli, was.gpu_resource)
    if gpus == (now.gpu_count, now.gpu_milli, now.gpu_resource):
        return fresh
    requests = replace(now, gpu_count=was.gpu_count, gpu_milli=was.gpu_milli, gpu_resource=was.gpu_resource)
    return replace(fresh, pod_class=replace(fresh.pod_class, requests=requests))


def _owner(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.owner}"


def _selected_keys(constraints: Constraints) -> set[str]:
    """Return the keys of labels by which a pod selects others."""
    return {key for selector in pod_selectors(constraints) for key in selector_keys(selector)}
