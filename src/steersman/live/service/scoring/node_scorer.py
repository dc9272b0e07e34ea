"""Score nodes for a pod, of a watched cluster or of one that a request brings."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import repeat

import msgspec
import numpy as np
import numpy.typing as npt

from steersman.cluster.constraints import reasons
from steersman.cluster.model import Node, Pod
from steersman.cluster.objects import decoding
from steersman.cluster.objects.api.pods import PodObject
from steersman.cluster.objects.decoding import decode_node
from steersman.cluster.objects.fields import FieldError, node_from_json, pod_from_json
from steersman.cluster.objects.free_resources import FREE_KEY, free_of, set_free
from steersman.cluster.objects.replicas import read_volumes
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState, RunningPod
from steersman.core.errors import SteersmanError
from steersman.live.service.scoring.choice import BEST, NOWHERE, pick, rank
from steersman.policies.decision.decider import Decider

HIGHEST = 10  # the best score that a scheduler extender may give
NEUTRAL = 50  # the score of every node where the policy does not score
Floats = npt.NDArray[np.float64]
SETS_KEPT = 64  # lists of nodes that can be named by their version
LARGEST_SET = 4 << 20  # characters of a list, with `NAME_OVERHEAD` for each name; longer ones are not stored
SETS_CHARACTERS = 32 << 20  # characters of all stored lists, with `NAME_OVERHEAD` for each name
NAME_OVERHEAD = 64
PODS_KEPT, LARGEST_POD, PODS_BYTES = 1024, 16 << 10, 4 << 20
"""Pods that are cached, so that their replicas need not be decoded; bytes of one, and of all."""
LARGEST_OBJECT = 2 << 20  # bytes of a Pod or Node; the API server stores none of more than 1.5 MiB
PLAIN_NAME = re.compile("[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?")  # names that need no further validation


@dataclass(frozen=True, slots=True)
class Ranking:
    """A policy's scores of the requested nodes."""

    names: Sequence[str]  # [K] names of the nodes
    raw: Floats  # [K] scores, -inf where the pod does not fit
    chosen: int  # position of the chosen node; `NOWHERE`: the pod fits on none of them
    devices: Callable[[], int] = int  # returns the GPU devices there, as a bit mask

    def scores(self, best: int = BEST) -> npt.NDArray[np.int64]:
        """Return integer scores, [K] from 0 to `best` (at most 100), 0 where the pod does not fit.

        The chosen node alone has `best`, so that whoever takes the highest score takes the policy's choice even where
        rounding, or the policy itself, makes no difference.
        """
        return rank(self.raw, self.chosen, best)

    def settled(self) -> Ranking:
        """Return the same ranking with its devices computed, before the state changes."""
        devices = self.devices() if self.chosen >= 0 else 0
        return replace(self, devices=lambda: devices)


def neutral(count: int, best: int = BEST) -> npt.NDArray[np.int64]:
    """Return the same score for each of `count` nodes, [K]."""
    return np.full(count, NEUTRAL * best // BEST)


def version_of(names: Sequence[str]) -> str:
    """Return a short name for a list of nodes; equal lists have equal ones."""
    return hashlib.blake2b("\n".join(names).encode(), digest_size=8).hexdigest()


class InvalidRequestError(SteersmanError):
    """A request makes no sense; the message says why."""


class RefusedRequestError(SteersmanError):
    """A request makes sense but is not allowed here."""


class UnknownNodeSetError(SteersmanError):
    """A version of a list of nodes is unknown or was forgotten."""


class NodeSet:
    """List of nodes in a request; equal lists have equal versions."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._slots = np.zeros(0, dtype=np.int64)
        self._as_of: object = None

    @cached_property
    def version(self) -> str:
        """Return a short name for the list."""
        return version_of(self.names)

    def slots(self, state: ClusterState, as_of: object) -> npt.NDArray[np.int64]:
        """Return the slots of the nodes, [K], -1 for unknown ones.

        Args:
            as_of: another object whenever a name may stand for another slot.
        """
        if self._as_of is not as_of:
            found = map(state.slots.get, self.names, repeat(-1))
            self._slots, self._as_of = np.fromiter(found, dtype=np.int64, count=len(self.names)), as_of
        return self._slots


class NodeSubset(NodeSet):
    """Some of the nodes of a list, in its order, by a mask as in `messages.ScoreInputs.among`."""

    def __init__(self, whole: NodeSet, mask: bytes) -> None:
        self.whole, count = whole, len(whole.names)
        length = -(-count // 8)
        if len(mask) != length:
            raise InvalidRequestError(f"among: has {len(mask)} bytes; expected {length} for {count} nodes")
        self._picked = np.flatnonzero(np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little"))
        if not len(self._picked) or self._picked[-1] >= count:
            raise InvalidRequestError(f"among: expected one or more of the lowest {count} bits, and no others")
        super().__init__([whole.names[i] for i in self._picked.tolist()])

    def slots(self, state: ClusterState, as_of: object) -> npt.NDArray[np.int64]:
        return self.whole.slots(state, as_of)[self._picked]


class NodeSets:
    """Lists of nodes by version, least recently used first: at most `SETS_KEPT`, of `SETS_CHARACTERS` together."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, NodeSet] = OrderedDict()
        self._held = 0

    def keep(self, nodes: NodeSet) -> str:
        """Store a list, the whole one if these are a subset, and return its version."""
        if isinstance(nodes, NodeSubset):
            nodes = nodes.whole
        if nodes.version not in self._known:
            if _characters(nodes) > LARGEST_SET:
                return nodes.version
            self._known[nodes.version] = nodes
            self._held += _characters(nodes)
        self._known.move_to_end(nodes.version)
        while len(self._known) > SETS_KEPT or self._held > SETS_CHARACTERS:
            self._held -= _characters(self._known.popitem(last=False)[1])
        return nodes.version

    def get(self, version: str) -> NodeSet:
        """Return the list of a version. Raises UnknownNodeSetError: it is unknown."""
        if version not in self._known:
            raise UnknownNodeSetError(f"nodeSet {version!r} is not known here; send the names of the nodes")
        self._known.move_to_end(version)
        return self._known[version]


def _characters(nodes: NodeSet) -> int:
    return sum(map(len, nodes.names)) + NAME_OVERHEAD * len(nodes.names)


class Pods:
    """Decoder of v1 Pods with a cache: replicas differ only in their name.

    The most recently used are kept: at most `PODS_KEPT`, of `PODS_BYTES` together.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Pod] = OrderedDict()
        self._held = 0

    def decode(self, raw: msgspec.Raw) -> Pod:
        """Return a v1 Pod. Raises InvalidRequestError: it is none."""
        _check_size(raw, "pod")
        try:
            obj = pod_from_json(raw)
        except FieldError as error:
            raise InvalidRequestError(f"pod: {error}") from None
        # What the model reads of a pod without a status, except its name.
        metadata = msgspec.structs.replace(
            obj.metadata, name="", uid="", resource_version="", generation=0, creation_timestamp=None
        )
        key = msgspec.json.encode((metadata, msgspec.structs.replace(obj.spec, volumes=read_volumes(obj.spec))))
        cached = self._known.get(key)
        # Any other name is decoded with its pod, which validates it.
        if cached is not None and PLAIN_NAME.fullmatch(obj.metadata.name):
            self._known.move_to_end(key)
            return replace(cached, name=obj.metadata.name)
        pod = decode_pod(obj)
        if len(key) <= LARGEST_POD:
            self._held += len(key) if key not in self._known else 0
            self._known[key] = pod
        while len(self._known) > PODS_KEPT or self._held > PODS_BYTES:
            self._held -= len(self._known.popitem(last=False)[0])
        return pod


def decode_pod(obj: PodObject) -> Pod:
    """Return a pod. Raises InvalidRequestError: a field is wrong."""
    try:
        return decoding.decode_pod(obj)
    except FieldError as error:
        raise InvalidRequestError(f"pod: {error}") from None


def cluster_of(nodes: Sequence[msgspec.Raw], pods: Sequence[msgspec.Raw]) -> ClusterState:
    """Return the cluster of v1 Nodes and the v1 Pods that run there.

    A node's annotation `cluster.objects.free_resources.FREE_KEY` stands for pods that are not sent.
    """
    decoded, free = [], []
    for i, raw in enumerate(nodes):
        try:
            _check_size(raw, f"nodes[{i}]")
            node = node_from_json(raw)
            decoded.append(decode_node(node))
            free.append(free_of(node))
        except FieldError as error:
            raise InvalidRequestError(f"nodes[{i}]: {error}") from None
    if not decoded:
        raise InvalidRequestError("nodes: expected at least one")
    try:
        state = ClusterState(decoded)
    except SteersmanError as error:
        raise InvalidRequestError(f"nodes: {error}") from None
    for slot, left in enumerate(free):
        if left is not None:
            if pods:
                raise InvalidRequestError(f"nodes[{slot}]: has {FREE_KEY}, and pods are sent; expected one of them")
            try:
                set_free(state, slot, left)
            except FieldError as error:
                raise InvalidRequestError(f"nodes[{slot}]: {error}") from None
    running: dict[str, RunningPod] = {}
    for i, raw in enumerate(pods):
        try:
            _check_size(raw, f"pods[{i}]")
            pod = decode_pod(pod_from_json(raw))
            _check_running(state, pod)
            there = running_pod(state, pod)
            if there.name in running:
                raise InvalidRequestError(f"is there twice ({there.name})")
            running[there.name] = there
        except (SteersmanError, FieldError) as error:
            raise InvalidRequestError(f"pods[{i}]: {error}") from None
    state.place_running(running.values())
    return state


def _check_running(state: ClusterState, pod: Pod) -> None:
    name = pod.constraints.node_name
    if not name:
        raise InvalidRequestError("has no spec.nodeName; expected pods that run")
    if name not in state.slots:
        raise InvalidRequestError(f"runs on {name!r}, which is none of the nodes")


def running_pod(state: ClusterState, pod: Pod) -> RunningPod:
    """Return a pod, of one class wherever such pods run, on the node that it names."""
    slot, devices = state.slots[pod.constraints.node_name], sum(1 << device for device in pod.gpu_devices)
    c = state.class_id(pod.unbound().pod_class)
    return RunningPod(f"{pod.namespace}/{pod.name}", c, slot, devices, state.labels_id(pod))


def _check_size(raw: msgspec.Raw, what: str) -> None:
    if len(raw_bytes := memoryview(raw)) > LARGEST_OBJECT:
        raise InvalidRequestError(
            f"{what}: has {len(raw_bytes)} bytes; the API stores no object of more than {LARGEST_OBJECT}"
        )


class NodeScorer:
    """Scores of nodes by a decider, with caches of node names."""

    def __init__(self, decider: Decider) -> None:
        self.decider = decider
        self._nodes: list[Node | None] = []
        self._as_of: object = None
        self._everywhere: NodeSet | None = None
        self._reset_index()

    def changed(self, slot: int) -> None:
        """Handle a change of a node: a pod was placed or removed, or the node was added, changed or deleted."""
        self.decider.changed(slot)
        nodes = self.decider.state.nodes
        if len(nodes) != len(self._nodes):
            self._reset_index()
        elif nodes[slot] is not self._nodes[slot]:
            # An update of a node keeps its name, and so the index.
            before, now = self._nodes[slot], nodes[slot]
            self._nodes[slot] = now
            if before is None or now is None or before.name != now.name:
                self._reset_index()

    @property
    def all_nodes(self) -> NodeSet:
        """Return all nodes in the order of their slots."""
        if self._everywhere is None:
            self._everywhere = NodeSet([node.name for node in self._nodes if node is not None])
        return self._everywhere

    def with_decider(self, decider: Decider) -> NodeScorer:
        """Return a scorer of the same nodes by another decider that shares the state."""
        scorer = copy(self)
        scorer.decider = decider
        return scorer

    def query(self, pod: Pod) -> PodQuery:
        """Return a pod of the state as it is asked about; no pod of its owner is known."""
        state = self.decider.state
        return PodQuery(state.class_id(pod.pod_class), state.labels_id(pod), limits=pod.latency, pod=pod)

    def ask(self, query: PodQuery, nodes: NodeSet | None = None) -> Ranking:
        """Rank nodes for a pod. The choice is the live scheduler's if that node is requested.

        Args:
            nodes: requested nodes; None: all. Unknown nodes fit nothing.
        """
        decider = self.decider
        scores = decider.scores(query)
        by_scores = decider.selects_argmax(query)
        choice = None if by_scores else decider.choose(query)
        nodes = nodes or self.all_nodes
        slots = nodes.slots(decider.state, self._as_of)
        raw = np.append(scores, -np.inf)[slots]  # that of unknown nodes, slot -1, is the last one
        chosen = pick(raw, slots, NOWHERE if choice is None else choice.slot)
        if chosen == NOWHERE or (choice is None and not by_scores):
            return Ranking(nodes.names, raw, NOWHERE)
        slot = int(slots[chosen])
        if choice is not None and slot == choice.slot:
            return Ranking(nodes.names, raw, chosen, lambda: choice.devices)
        return Ranking(nodes.names, raw, chosen, partial(decider.devices, query.class_id, slot))

    def limited(self, query: PodQuery, nodes: NodeSet) -> tuple[npt.NDArray[np.bool_] | None, str]:
        """Return which nodes a hard limit of latency leaves to a pod, and the outcome of the limit.

        Returns:
            [K] the nodes that are left, in the order of the request, None if the limit restricts nothing; and the
            outcome, see `policies.node_metrics.OUTCOMES`.
        """
        decider = self.decider
        decider.follow()
        slots = nodes.slots(decider.state, self._as_of)
        known = slots[slots >= 0]
        requested = np.zeros(len(decider.state.nodes), dtype=np.bool_)
        requested[known] = True
        feasible = decider.state.mask(query.class_id, query.labels_id) & requested
        if not feasible.any():
            return None, ""
        left, outcome = decider.live.node_metrics.filter_by_hard_limit(query, feasible)
        if (left == feasible).all():
            return None, outcome
        # For unknown nodes, `left[-1]` reads the last slot; the first term masks it.
        return (slots >= 0) & left[slots], outcome

    def refused(self, query: PodQuery) -> dict[str, tuple[str, ...]]:
        """Return node -> why a pod may not run there."""
        return reasons.reasons_by_node(self.decider.state, query.class_id, query.labels_id)

    def _reset_index(self) -> None:
        self._nodes = list(self.decider.state.nodes)
        self._as_of, self._everywhere = object(), None
