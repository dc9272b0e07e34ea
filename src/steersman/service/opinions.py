"""What the policy thinks of a pod on the nodes of a cluster: one that is watched, or one that the request brings."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from steersman.cluster import explaining
from steersman.cluster.model import Pod
from steersman.cluster.objects import node_from_object, pod_from_object
from steersman.cluster.state import ClusterState
from steersman.errors import InputError, SteersmanError
from steersman.kube.objects import whole
from steersman.policies.decider import Decider
from steersman.service.ranking import Ranking, version_of

SETS_KEPT = 64
"""Lists of nodes that can be named by their version."""


class BadQuestion(SteersmanError):  # noqa: N818 - what the asker did
    """The question makes no sense; the message says why."""


class UnknownSet(SteersmanError):  # noqa: N818 - not our fault
    """A version of a list of nodes that is not known, or no more."""


class NodeSets:
    """Lists of nodes by version, the least used forgotten first."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def keep(self, names: Sequence[str]) -> str:
        """Remember a list; its version."""
        version = version_of(names)
        self._known[version] = tuple(names)
        self._known.move_to_end(version)
        while len(self._known) > SETS_KEPT:
            self._known.popitem(last=False)
        return version

    def get(self, version: str) -> tuple[str, ...]:
        """The list of a version. Raises UnknownSet: it is not known."""
        if version not in self._known:
            raise UnknownSet(f"nodeSet {version!r} is not known here; send the names of the nodes")
        self._known.move_to_end(version)
        return self._known[version]


def decode_pod(raw: msgspec.Raw) -> Pod:
    """A v1 Pod. Raises BadQuestion: it is none."""
    content = _object(raw, "pod")
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


def _object(raw: msgspec.Raw, what: str) -> dict[str, object]:
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

    @property
    def names(self) -> list[str]:
        """Of all nodes, in the order of their slots."""
        return [node.name for node in self.decider.state.nodes if node is not None]

    def ask(self, pod: Pod, names: Sequence[str] | None, peers: Mapping[int, int] | None = None) -> Ranking:
        """What the policy thinks of nodes for a pod.

        Args:
            pod: which.
            names: of the nodes in question; None: all. Those that are not known fit nothing.
            peers: slot -> how many pods of its owner run there.

        Raises:
            SteersmanError: the policy failed.
        """
        state = self.decider.state
        c, labels = state.class_id(pod.pod_class), state.labels_id(pod)
        scores = self.decider.scores(c, labels, peers or {})
        if names is None:
            names = self.names
        slots = np.array([state.slots.get(name, -1) for name in names], dtype=np.int64)
        raw = np.where(slots >= 0, scores[slots], -np.inf) if len(slots) else np.zeros(0)
        fits = np.isfinite(raw)
        if not fits.any():
            return Ranking(names, raw, -1)
        # Of equals the lowest slot, as everywhere.
        best = np.flatnonzero(raw == raw[fits].max())
        chosen = int(best[np.argmin(slots[best])])
        return Ranking(names, raw, chosen, self.decider.devices(c, int(slots[chosen])))

    def refused(self, pod: Pod) -> dict[str, tuple[str, ...]]:
        """Node -> why the pod may not run there."""
        state = self.decider.state
        return explaining.reasons(state, state.class_id(pod.pod_class), state.labels_id(pod))
