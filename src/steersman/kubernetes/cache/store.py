"""What is known of a cluster: its pods, by node, owner and label, and the ClusterState that they are placed in.

A pod that is bound to a node that is not known yet is placed when that node appears. Pods that share GPUs by
annotations are kept apart from pods whose GPUs the kubelet or a driver chose, one kind per node (`GpuPods`): the
kubelet does not know the devices of annotations, and its choice is not known here, so both could use one device. The
plugin `SteersmanGpuShare` keeps them apart, too. GPUs that a node merely counts are not those that pods share.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import PLUGIN_GPUS, SHARED_GPUS, Constraints, Node, Pod, PodClass, Requests
from steersman.cluster.pod_query import NO_OWNER_PODS, NamespaceUse, OwnerPods, PodQuery
from steersman.cluster.provisional import pod_selectors, provisional_numbers, selector_keys
from steersman.cluster.state import ClusterState, RunningPod
from steersman.kubernetes.cache.cached_pod import CachedPod, Listener
from steersman.kubernetes.selectors import as_written

SHARED_THERE = "node(s) had pods that share GPUs"
CHOSEN_THERE = "node(s) had pods whose GPUs the kubelet chose"

Refusal = tuple[str, npt.NDArray[np.bool_]]


class GpuPods:
    """Number of pods with GPUs of each resource name on each node."""

    def __init__(self) -> None:
        self._shared: dict[str, Counter[str]] = {}
        self._chosen: dict[str, Counter[str]] = {}

    def add(self, node: str, requests: Requests) -> None:
        if requests.gpu_count:
            self._kind(requests).setdefault(node, Counter())[requests.gpu_resource] += 1

    def remove(self, node: str, requests: Requests) -> None:
        if requests.gpu_count:
            kind = self._kind(requests)
            kind[node][requests.gpu_resource] -= 1
            # Unary plus drops counts of zero.
            kind[node] = +kind[node]
            if not kind[node]:
                del kind[node]

    def refusal(self, state: ClusterState, requests: Requests) -> Refusal | None:
        """Return a reason and the nodes, [N], that the GPU pods there close to a pod; None: it may use all."""
        if not requests.gpu_count:
            return None
        is_shared = requests.gpu_resource not in PLUGIN_GPUS
        slots = [
            slot
            for name, there in (self._chosen if is_shared else self._shared).items()
            if (slot := state.slots.get(name)) is not None and _may_clash(state, slot, requests.gpu_resource, there)
        ]
        if not slots:
            return None
        refused = np.zeros(len(state.nodes), dtype=np.bool_)
        refused[slots] = True
        return (CHOSEN_THERE if is_shared else SHARED_THERE), refused

    def _kind(self, requests: Requests) -> dict[str, Counter[str]]:
        return self._chosen if requests.gpu_resource in PLUGIN_GPUS else self._shared


def _may_clash(state: ClusterState, slot: int, resource: str, there: Counter[str]) -> bool:
    """Return whether the pods there may have devices that are also offered for sharing."""
    node = state.nodes[slot]
    if node is None or SHARED_GPUS not in node.gpu_resources or node.counted_gpus.get(resource):
        return False
    return any(not node.counted_gpus.get(name) for name in there)


CLASSES_KEPT = 2_000  # number of pod classes, label sets and selectors beyond which unused ones are forgotten
NUMBERS_OF_WAITING, ALL_NUMBERS_OF_WAITING = 256, 2_048
"""Classes, rules and label sets of pending pods that stay in the state, of one namespace and of all. Further pods
without a node have numbers during an attempt alone, or pods that fit nowhere would make all decisions slower."""


class PodStore:
    """Pods and nodes of a cluster.

    Args:
        listener: notified of changes.
        read: the class of a pod as the policy reads it.
        ranked: whether listed nodes are ranked at random, for who decides: of equal scores the lowest slot wins.
    """

    def __init__(
        self, listener: Listener, read: Callable[[Pod], PodClass] = as_written, *, ranked: bool = False
    ) -> None:
        self.listener, self._read = listener, read
        self.state = ClusterState(())  # the cluster; pods by their key
        self.pods: dict[str, CachedPod] = {}  # all unfinished pods
        # Node -> keys of the pending pods that another scheduler nominated it for
        self.nominated: dict[str, set[str]] = defaultdict(set)
        self.claims_on: dict[str, Counter[str]] = {}  # node -> key of a claim -> number of its pods there
        self.gpu_pods = GpuPods()  # nodes by the kind of GPU pods on them
        self.use = NamespaceUse()  # what runs in each namespace
        self._on_node: dict[str, set[str]] = defaultdict(set)
        self._owners: dict[str, Counter[str]] = defaultdict(Counter)
        self._owned = Counter[str]()  # all pods of an owner
        self._ranked = 1.0 if ranked else math.inf
        self._selected: set[str] = set()
        self._followed: set[str] = set()
        # Pods by label keys that nobody selects by yet.
        self._labelled: dict[str, set[str]] = defaultdict(set)
        self._waiting_numbers = Counter[str]()  # by namespace, for pending pods
        self._charged: dict[str, int] = {}  # by pod, its part of these

    def owner_pods(self, pod: Pod) -> OwnerPods:
        if not pod.owner:
            return NO_OWNER_PODS
        slots, owner = self.state.slots, _owner(pod)
        on_nodes = self._owners.get(owner, Counter())
        running = {slots[node]: count for node, count in on_nodes.items() if count and node in slots}
        return OwnerPods(running, max(self._owned[owner] - on_nodes.total(), 1))

    def query(self, pod: CachedPod) -> PodQuery:
        """Return a pod that wants a node, as policies are asked about it."""
        return PodQuery(*self.number(pod), self.owner_pods(pod.pod), pod.pod.latency, pod=pod.pod)

    def pods_on(self, node: str) -> list[CachedPod]:
        """Return the pods that are bound to a node or assumed there."""
        return [self.pods[key] for key in sorted(self._on_node.get(node, ()))]

    @contextmanager
    def unplaced(self, pod: CachedPod) -> Iterator[PodQuery]:
        """Take a placed pod off its node inside the block, and yield it as it was asked about before its binding."""
        placed = self.state.remove(pod.key)
        self.listener.on_node_changed(placed.slot, may_have_grown=False)
        try:
            query = self.query(pod)
            yield replace(query, owner_pods=query.owner_pods.without(placed.slot))
        finally:
            # Forced: it runs there, whatever fits.
            self.state.place(pod.key, pod.class_id, placed.slot, placed.devices, pod.labels_id, force=True)
            self.listener.on_node_changed(placed.slot, may_have_grown=False)

    # Nodes -----------------------------------------------------------------------------------------------------------

    def put_node(self, node: Node) -> None:
        """Add or update a node, on which its pods are placed."""
        slot = self.state.slots.get(node.name)
        if slot is None:
            slot = self.state.add_node(node)
            self._place_on(node.name, slot)
        elif self.state.nodes[slot] == node:
            return
        else:
            self.state.update_node(node)
        self.listener.on_node_changed(slot, may_have_grown=True)

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
        previous = self.state
        nodes = previous.nodes if order is None else [previous.nodes[previous.slots[name]] for name in order]
        state = ClusterState([node for node in nodes if node is not None], received=previous.slots)
        # Keys of deleted pods are dropped here, so that labels nobody selects by stop splitting label sets.
        self._selected = set(self._followed)
        for pod in self.pods.values():
            self._selected |= selected_keys(pod.pod.constraints)
        self._labelled.clear()
        self._waiting_numbers.clear()
        self._charged.clear()
        self.state = state
        for pod in self.pods.values():
            self._note_labels(pod)
            self.forget_numbers(pod)
        for name, slot in state.slots.items():
            self._place_on(name, slot)
        self.listener.on_rebuilt()

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

    # Classes and labels ----------------------------------------------------------------------------------------------

    @property
    def selected(self) -> Set[str]:
        """Label keys by which pods are told apart in the state."""
        return self._selected

    def number(self, pod: CachedPod) -> tuple[int, int]:
        """Return the class and labels of a pod in the state, without labels that no pod selects by."""
        if pod.class_id < 0:
            self.renumber(pod)
        return pod.class_id, pod.labels_id

    def renumber(self, pod: CachedPod) -> None:
        """Set the numbers that a pod's model has in the state."""
        model, state = pod.pod, self.state
        self.select(selected_keys(model.constraints))
        labels = {key: value for key, value in model.labels.items() if key in self._selected}
        pod.class_id = state.class_id(self._read(model))
        pod.labels_id = state.terms.labels_id(model.namespace, labels, terminating=model.terminating)

    def forget_numbers(self, pod: CachedPod) -> None:
        """Have a pod numbered again when it is next placed or tried."""
        pod.class_id = pod.labels_id = -1

    def number_waiting(self, pod: CachedPod) -> bool:
        """Give a pending pod numbers unless its namespace or all have too many; return whether it has them."""
        namespace, given = pod.pod.namespace, self._waiting_numbers
        if pod.class_id < 0 and given[namespace] < NUMBERS_OF_WAITING and given.total() < ALL_NUMBERS_OF_WAITING:
            # Pods of others get numbers by the labels that it selects by; these are not charged to it.
            self.select(selected_keys(pod.pod.constraints))
            before = self.state.numbers
            self.renumber(pod)
            self._charged[pod.key] = self.state.numbers - before
            given[namespace] += self._charged[pod.key]
        return pod.class_id >= 0

    @contextmanager
    def numbered(self, pod: CachedPod) -> Iterator[None]:
        """Give a pod numbers inside the block, if it has none; nothing may be placed there."""
        if pod.class_id >= 0:
            yield
            return
        self.select(selected_keys(pod.pod.constraints))
        with provisional_numbers(self.state):
            self.renumber(pod)
            try:
                yield
            finally:
                self.forget_numbers(pod)

    def select(self, keys: Set[str]) -> None:
        """Tell pods apart by the labels of these keys."""
        new = keys - self._selected
        if not new:
            return
        self._selected |= new
        state = self.state
        # Placed pods are counted under their labels, so each is taken off and placed with its new number.
        for key in set().union(*(self._labelled.pop(key, ()) for key in new)):
            pod = self.pods[key]
            placed = state.placements.get(key)
            if pod.class_id < 0:
                continue
            if placed is not None:
                state.remove(key)
            self.renumber(pod)
            if placed is not None:
                state.place(key, pod.class_id, placed.slot, placed.devices, pod.labels_id, force=True)
                self.listener.on_node_changed(placed.slot, may_have_grown=False)

    def follow(self, keys: Set[str]) -> None:
        """Tell pods apart by the labels of these keys from now on, since objects other than pods select by them."""
        self._followed |= keys
        self.select(keys)

    def _note_labels(self, pod: CachedPod) -> None:
        for key in pod.pod.labels:
            if key not in self._selected:
                self._labelled[key].add(pod.key)

    def _forget_labels(self, pod: CachedPod) -> None:
        for key in pod.pod.labels:
            if key in self._labelled:
                self._labelled[key].discard(pod.key)
                if not self._labelled[key]:
                    del self._labelled[key]

    # Pods ------------------------------------------------------------------------------------------------------------

    def keep(self, pod: CachedPod) -> None:
        self.pods[pod.key] = pod
        self._count_owned(pod, 1)
        self._note_labels(pod)

    def drop(self, pod: CachedPod) -> None:
        """Remove a pod that is not among `pods` any more; it still names its node."""
        self._forget_labels(pod)
        self._charged.pop(pod.key, None)
        if pod.node:
            # Listeners are told of the deletion next, and read the node.
            self.take(pod, keep_node=True)
        self._count_owned(pod, -1)

    def remodel(self, pod: CachedPod, model: Pod, *, may_have_grown: bool) -> None:
        """Replace the model of a pod; where it is placed, with what it requests now."""
        placed = self.state.placements.get(pod.key)
        if placed is not None:
            self.state.remove(pod.key)
        self._forget_labels(pod)
        self._count_owned(pod, -1)
        self._count_running(pod, pod.node, -1)
        pod.pod = model
        self._count_owned(pod, 1)
        self._count_running(pod, pod.node, 1)
        self._note_labels(pod)
        self.forget_numbers(pod)
        if placed is not None:
            self.place(pod, placed.slot)
            self.listener.on_node_changed(placed.slot, may_have_grown=may_have_grown)

    def put(self, pod: CachedPod, node: str, devices: int | None) -> None:
        """Count a pod on a node, which may be unknown yet; devices: see `CachedPod`."""
        pod.node, pod.devices = node, devices
        if not pod.assumed:
            pod.notes = None
        self._waiting_numbers[pod.pod.namespace] -= self._charged.pop(pod.key, 0)
        self._on_node[node].add(pod.key)
        self.gpu_pods.add(node, pod.pod.requests)
        if pod.claims:
            self.claims_on.setdefault(node, Counter()).update(claim.key for claim in pod.claims)
        self._count_running(pod, node, 1)
        slot = self.state.slots.get(node)
        if slot is not None:
            self.place(pod, slot)
            self.listener.on_node_changed(slot, may_have_grown=False)

    def take(self, pod: CachedPod, *, keep_node: bool = False) -> None:
        """Take a pod off its node, which it names still with `keep_node`."""
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

    def place(self, pod: CachedPod, slot: int) -> None:
        """Place a pod on its node whatever the constraints say, since it is there."""
        self._place_all([pod], slot)

    def _place_on(self, name: str, slot: int) -> None:
        self._place_all([self.pods[key] for key in (*self._on_node.get(name, ()), *self.nominated.get(name, ()))], slot)

    def _place_all(self, pods: Sequence[CachedPod], slot: int) -> None:
        for pod in pods:
            self.number(pod)
        # Only now: each may select by further labels, which takes the numbers of pods that are not placed yet.
        numbered = [(pod, *self.number(pod)) for pod in pods]
        running = (RunningPod(pod.key, c, slot, pod.devices or 0, labels) for pod, c, labels in numbered)
        for key, placed in self.state.place_running(running).items():
            self.pods[key].devices = placed.devices

    def _count_owned(self, pod: CachedPod, amount: int) -> None:
        if pod.pod.owner:
            owner = _owner(pod.pod)
            self._owned[owner] += amount
            if not self._owned[owner]:
                del self._owned[owner]

    def _count_running(self, pod: CachedPod, node: str, amount: int) -> None:
        """Count a pod among those of its owner and namespace on a node, "" for none."""
        if node:
            self.use.count(pod.pod, amount)
        if pod.pod.owner and node:
            owner = _owner(pod.pod)
            self._owners[owner][node] += amount
            if not self._owners[owner][node]:
                del self._owners[owner][node]
            if not self._owners[owner]:
                del self._owners[owner]


def _rank(node: str) -> bytes:
    """Return the random rank of a node, the same in every process: of equal scores the lowest rank wins."""
    return hashlib.blake2b(node.encode(), digest_size=8).digest()


def _owner(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.owner}"


def selected_keys(constraints: Constraints) -> set[str]:
    """Return the label keys by which a pod selects others."""
    return {key for selector in pod_selectors(constraints) for key in selector_keys(selector)}
