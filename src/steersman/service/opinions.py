"""What the policy thinks of a pod on the nodes of a cluster: one that is watched, or one that the request brings."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import repeat
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from steersman.cluster import explaining
from steersman.cluster.latency import NO_LIMITS, LatencyLimits
from steersman.cluster.model import Node, Pod
from steersman.cluster.objects import node_from_object, pod_from_object
from steersman.cluster.state import ClusterState
from steersman.errors import InputError, SteersmanError
from steersman.kube.objects import whole
from steersman.policies.base import NO_PEERS
from steersman.policies.decider import Decider
from steersman.service.kernels.ranking import NOWHERE, pick
from steersman.service.ranking import Ranking, version_of

SETS_KEPT = 64
"""Lists of nodes that can be named by their version."""
LARGEST_SET = 4 << 20
"""Characters of a list, counted in the same way; a longer one is not remembered."""
SETS_CHARACTERS = 32 << 20
"""Of all lists together, with `NAME_OVERHEAD` for each name."""
NAME_OVERHEAD = 64
PODS_KEPT, LARGEST_POD, PODS_BYTES = 1024, 16 << 10, 4 << 20
"""Pods that are remembered, so that their replicas need not be decoded; bytes of one, and of all."""
LARGEST_OBJECT = 2 << 20
"""Bytes of a Pod or Node; the API server stores none of more than 1.5 MiB."""
PLAIN_NAME = re.compile("[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?")
"""Names that are right without a closer look."""
UNKNOWN_METADATA = {"uid", "resourceVersion", "generation", "generateName", "creationTimestamp", "managedFields"}
UNKNOWN_OF_CONTAINERS = {"env", "envFrom", "volumeMounts"}
"""Fields that the model of a pod does not know, and large or different for each replica."""


Numbers = tuple[int, int]
"""Of a pod's class and labels in a state."""


class BadQuestion(SteersmanError):  # noqa: N818 - what the asker did
    """The question makes no sense; the message says why."""


class RefusedQuestion(SteersmanError):  # noqa: N818 - what the asker did
    """The question makes sense, but is not allowed here."""


class UnknownSet(SteersmanError):  # noqa: N818 - not our fault
    """A version of a list of nodes that is not known, or no more."""


class NodeSet:
    """A list of nodes that is asked about; equal lists have equal versions.

    Args:
        names: in the order of the question.

    Attributes:
        names: see there.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._slots = np.zeros(0, dtype=np.int64)
        self._as_of: object = None

    @cached_property
    def version(self) -> str:
        """A short name for the list."""
        return version_of(self.names)

    def slots(self, state: ClusterState, as_of: object) -> npt.NDArray[np.int64]:
        """[K] where the nodes are, -1 for those that are not known.

        Args:
            state: the cluster.
            as_of: another object whenever a name may stand for another slot.
        """
        if self._as_of is not as_of:
            found = map(state.slots.get, self.names, repeat(-1))
            self._slots, self._as_of = np.fromiter(found, dtype=np.int64, count=len(self.names)), as_of
        return self._slots


class Part(NodeSet):
    """Some of the nodes of a list, in its order.

    Args:
        whole: the list.
        mask: see `messages.Question.among`.

    Raises:
        BadQuestion: the mask is not one of that list, or no node is meant.
    """

    def __init__(self, whole: NodeSet, mask: bytes) -> None:
        self.whole, count = whole, len(whole.names)
        length = -(-count // 8)
        if len(mask) != length:
            raise BadQuestion(f"among: has {len(mask)} bytes; {length} are right for {count} nodes")
        self._picked = np.flatnonzero(np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little"))
        if not len(self._picked) or self._picked[-1] >= count:
            raise BadQuestion(f"among: one or more of the lowest {count} bits are right, and no others")
        super().__init__([whole.names[i] for i in self._picked.tolist()])

    def slots(self, state: ClusterState, as_of: object) -> npt.NDArray[np.int64]:
        """See `NodeSet`."""
        return self.whole.slots(state, as_of)[self._picked]


class NodeSets:
    """Lists of nodes by version, the least used forgotten first: at most `SETS_KEPT`, of `SETS_CHARACTERS` together."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, NodeSet] = OrderedDict()
        self._held = 0

    def keep(self, nodes: NodeSet) -> str:
        """Remember a list, the whole one if these are a part of one; its version."""
        if isinstance(nodes, Part):
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
        """The list of a version. Raises UnknownSet: it is not known."""
        if version not in self._known:
            raise UnknownSet(f"nodeSet {version!r} is not known here; send the names of the nodes")
        self._known.move_to_end(version)
        return self._known[version]


def _characters(nodes: NodeSet) -> int:
    """About what a list takes in memory."""
    return sum(map(len, nodes.names)) + NAME_OVERHEAD * len(nodes.names)


class Pods:
    """Decodes v1 Pods, and remembers what it made of them: replicas differ in their name alone.

    Those that were asked for last are kept: at most `PODS_KEPT`, of `PODS_BYTES` together.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Pod] = OrderedDict()
        self._held = 0

    def decode(self, raw: msgspec.Raw) -> Pod:
        """A v1 Pod. Raises BadQuestion: it is none."""
        content = _object(raw, "pod")
        called = content.get("metadata")
        name = called.pop("name", None) if isinstance(called, dict) else None
        essence = msgspec.json.encode(_essence(content))
        known = self._known.get(essence)
        if known is not None and isinstance(name, str) and PLAIN_NAME.fullmatch(name):
            self._known.move_to_end(essence)
            return replace(known, name=name)
        if isinstance(called, dict):
            called["name"] = name
        pod = decode_pod(content)
        if len(essence) <= LARGEST_POD:
            self._held += len(essence) if essence not in self._known else 0
            self._known[essence] = pod
        while len(self._known) > PODS_KEPT or self._held > PODS_BYTES:
            self._held -= len(self._known.popitem(last=False)[0])
        return pod


def _essence(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod without what its model does not know, and what differs between replicas. Anything else is kept."""
    found = {key: value for key, value in pod.items() if key != "status"}
    metadata, spec = pod.get("metadata"), pod.get("spec")
    if isinstance(metadata, dict):
        found["metadata"] = {key: value for key, value in metadata.items() if key not in UNKNOWN_METADATA}
    if isinstance(spec, dict):
        found["spec"] = {key: value for key, value in spec.items() if key != "volumes"}
        containers = spec.get("containers")
        if isinstance(containers, list) and all(isinstance(each, dict) for each in containers):
            found["spec"]["containers"] = [
                {key: value for key, value in each.items() if key not in UNKNOWN_OF_CONTAINERS} for each in containers
            ]
    return found


def decode_pod(content: dict[str, Any]) -> Pod:
    """A v1 Pod. Raises BadQuestion: it is none."""
    try:
        return pod_from_object(content)
    except InputError as error:
        raise BadQuestion(f"pod: {error}") from None


def cluster_of(nodes: Sequence[msgspec.Raw], pods: Sequence[msgspec.Raw]) -> ClusterState:
    """A cluster out of v1 Nodes and the v1 Pods that run there. Raises BadQuestion: they make none."""
    found = []
    for i, raw in enumerate(nodes):
        try:
            found.append(node_from_object(_object(raw, f"nodes[{i}]")))
        except InputError as error:
            raise BadQuestion(f"nodes[{i}]: {error}") from None
    if not found:
        raise BadQuestion("nodes: there is none; one or more are right")
    try:
        state = ClusterState(found)
    except SteersmanError as error:
        raise BadQuestion(f"nodes: {error}") from None
    for i, raw in enumerate(pods):
        try:
            _place(state, pod_from_object(_object(raw, f"pods[{i}]")))
        except SteersmanError as error:
            raise BadQuestion(f"pods[{i}]: {error}") from None
    return state


def _place(state: ClusterState, pod: Pod) -> None:
    name, key = pod.constraints.node_name, f"{pod.namespace}/{pod.name}"
    if not name:
        raise BadQuestion("has no spec.nodeName; only pods that run are right")
    if name not in state.slots:
        raise BadQuestion(f"runs on {name!r}, which is none of the nodes")
    if key in state.placements:
        raise BadQuestion(f"is there twice ({key})")
    place(state, pod)


def place(state: ClusterState, pod: Pod) -> int:
    """Count a pod on the node of the state that it names, whose slot is returned."""
    slot = state.slots[pod.constraints.node_name]
    devices = sum(1 << device for device in pod.gpu_devices) or None
    c = state.class_id(pod.unbound().pod_class)  # one class, wherever such pods run
    state.place(f"{pod.namespace}/{pod.name}", c, slot, devices, state.labels_id(pod), force=True)
    return slot


def _object(raw: msgspec.Raw, what: str) -> dict[str, Any]:
    if len(raw_bytes := memoryview(raw)) > LARGEST_OBJECT:
        raise BadQuestion(f"{what}: has {len(raw_bytes)} bytes; the API stores no object of more than {LARGEST_OBJECT}")
    content = whole(raw)
    if not isinstance(content, dict):
        raise BadQuestion(f"{what}: is no object")
    return content


class Opinions:
    """A decider's opinions.

    Args:
        decider: of the cluster.
    """

    def __init__(self, decider: Decider) -> None:
        self.decider = decider
        self._nodes: list[Node | None] = []
        self._as_of: object = None
        self._everywhere: NodeSet | None = None
        self._moved()

    def changed(self, slot: int) -> None:
        """Tell that a node changed: a pod came or left, or the node itself is another, came or went."""
        self.decider.changed(slot)
        nodes = self.decider.state.nodes
        if len(nodes) != len(self._nodes):
            self._moved()
        elif nodes[slot] is not self._nodes[slot]:
            before, now = self._nodes[slot], nodes[slot]
            self._nodes[slot] = now
            if before is None or now is None or before.name != now.name:
                self._moved()

    @property
    def everywhere(self) -> NodeSet:
        """All nodes, in the order of their slots."""
        if self._everywhere is None:
            self._everywhere = NodeSet([node.name for node in self._nodes if node is not None])
        return self._everywhere

    def with_decider(self, decider: Decider) -> Opinions:
        """The same nodes by another decider, which shares the state."""
        made = copy(self)
        made.decider = decider
        return made

    def number(self, pod: Pod) -> Numbers:
        """The numbers of a pod's class and labels in the state."""
        return self.decider.state.class_id(pod.pod_class), self.decider.state.labels_id(pod)

    def ask(
        self,
        c: int,
        labels: int,
        nodes: NodeSet | None = None,
        peers: Callable[[], Mapping[int, int]] | None = None,
        limits: LatencyLimits = NO_LIMITS,
    ) -> Ranking:
        """What the policy thinks of nodes for a pod. The choice is the live scheduler's, where it is among the nodes.

        Args:
            c: the pod's class.
            labels: its label set.
            nodes: in question; None: all. Those that are not known fit nothing.
            peers: says, slot -> how many pods of its owner run there.
            limits: how far it may be from its users.

        Raises:
            SteersmanError: the policy failed.
        """
        decider = self.decider
        there = peers() if peers is not None and decider.policy.needs_peers else NO_PEERS
        scores = decider.scores(c, labels, there, limits)
        by_scores = decider.is_by_scores(limits)
        choice = None if by_scores else decider.choose(c, labels, there, limits)
        nodes = nodes or self.everywhere
        slots = nodes.slots(decider.state, self._as_of)
        raw = np.empty(len(slots))
        chosen = pick(scores, slots, NOWHERE if choice is None else choice.slot, raw)
        if chosen == NOWHERE or (choice is None and not by_scores):
            return Ranking(nodes.names, raw, NOWHERE)
        slot = int(slots[chosen])
        if choice is not None and slot == choice.slot:
            return Ranking(nodes.names, raw, chosen, lambda: choice.devices)
        return Ranking(nodes.names, raw, chosen, partial(decider.devices, c, slot))

    def refused(self, c: int, labels: int) -> dict[str, tuple[str, ...]]:
        """Node -> why a pod of the class with these labels may not run there."""
        return explaining.reasons(self.decider.state, c, labels)

    def _moved(self) -> None:
        """A name may stand for another slot than before."""
        self._nodes = list(self.decider.state.nodes)
        self._as_of, self._everywhere = object(), None
