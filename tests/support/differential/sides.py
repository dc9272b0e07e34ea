"""What steersman decides about pods in a cluster of objects: live, by watches, and in simulation, from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
from tests.support.differential.clusters import Cluster
from tests.support.differential.nodes import Object
from tests.support.kube_decisions import KubeDecisions

from steersman.cluster.constraints.reasons import FurtherRefusals, refusals, unschedulable_message
from steersman.cluster.state import ClusterState
from steersman.cluster.volumes import fit
from steersman.kubernetes.cache.cached_pod import CachedPod, Listener
from steersman.kubernetes.cache.cluster_cache import ClusterCache, NodeFeed, PodFeed
from steersman.kubernetes.client import Client
from steersman.kubernetes.selectors import SELECTING, Selectors
from steersman.kubernetes.volumes import COLLECTIONS, Volumes, storage_scores
from steersman.kubernetes.watch import Handler
from steersman.live.runtime.policy_manager import LiveSpreadSelectors
from steersman.policies.kube_scheduler.profile import DEFAULT_PROFILE, KubeProfile
from steersman.policies.kube_scheduler.spreading import PodReader, scheduled_by
from steersman.workloads.formats.yaml_documents import Document
from steersman.workloads.loading import workload_of_objects
from steersman.workloads.workload import RunningPods, SpreadSelectors, Workload

ALL_NODES = 100
"""`percentageOfNodesToScore`."""


@dataclass
class Decided:
    """What steersman says about a pod.

    Attributes:
        unmodelled: what it says that it does not model; nothing else is known then.
        gated: whether it does not try the pod.
        feasible: names of the nodes that the pod may go to.
        reasons: for each other node why; None: not told.
        message: why it fits nowhere, "" if it does somewhere.
        scores: of `kube-default` by plugin and node.
        total: their sum.
        top: nodes with the best score.
    """

    unmodelled: tuple[str, ...] = ()
    gated: bool = False
    feasible: set[str] = field(default_factory=set)
    reasons: dict[str, tuple[str, ...]] | None = field(default_factory=dict)
    message: str = ""
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    total: dict[str, int] = field(default_factory=dict)
    top: set[str] = field(default_factory=set)


# Live


class LiveCluster:
    """The cache of the live scheduler, which hears of objects as the API server stores them.

    Args:
        cluster: the objects.
        profile: of kube-scheduler.
    """

    def __init__(self, cluster: Cluster, profile: KubeProfile = DEFAULT_PROFILE) -> None:
        self.profile = profile
        client = cast(Client, None)  # nothing is listed
        self.selectors = Selectors(client)
        if profile.changes_pods:
            self.selectors.read = PodReader(profile, LiveSpreadSelectors(self.selectors))
        self.cache = ClusterCache(client, Listener(), self.selectors)
        self.volumes = Volumes(client, lambda _: None)
        self.pods = PodFeed(self.cache)
        handlers = self._handlers()
        for reflector in self.cache.device_claims.reflectors:
            reflector.need()
            reflector.synced.set()
        for obj in cluster.objects:
            if obj["kind"] in handlers:
                handlers[obj["kind"]].change("ADDED", _raw(obj))
        self.cache.namespaces.keep({each["metadata"]["name"] for each in cluster.of_kind("Namespace")})

    def _handlers(self) -> dict[str, Handler]:
        volumes = zip(COLLECTIONS, self.volumes.reflectors, strict=True)
        selecting = zip(SELECTING, self.selectors.reflectors, strict=True)
        return {
            "Node": NodeFeed(self.cache),
            "Pod": self.pods,
            "Namespace": self.cache.namespaces,
            **{kind.kind: reflector.handler for kind, reflector in selecting},
            **{_KINDS[path.rpartition("/")[2]]: reflector for (path, _, _), reflector in volumes},
            **dict(zip(("DeviceClass", "ResourceSlice"), self.cache.device_claims.reflectors, strict=False)),
        }

    def decide(self, obj: Object) -> Decided:
        """Decide about a new pod."""
        self.pods.change("ADDED", _raw(obj))
        key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        try:
            pod = self.cache.pods[key]
            with self.cache.numbered(pod):
                return self._decide(pod)
        finally:
            self.cache.delete_pod(key)

    def _decide(self, pod: CachedPod) -> Decided:
        if pod.unmodelled or pod.gated:
            return Decided(unmodelled=pod.unmodelled, gated=pod.gated)
        state, further, allowed, storage = self.cache.state, list[Any](), None, None
        if pod.claims:
            volumes = fit(self.volumes.objects, pod.claims, pod.uid, state.table, self.cache.claims_on)
            if volumes.problem:
                nodes = dict.fromkeys(state.slots, (volumes.problem,))
                message = f"0/{len(state.slots)} nodes are available: {volumes.problem}."
                return Decided(reasons=nodes, message=message)
            further, allowed = volumes.refusals, volumes.allowed(state.table)
            storage = storage_scores(volumes, self.profile.storage_shape)
        services = LiveSpreadSelectors(self.selectors)()
        with self.cache.expected.without_nominated(pod) as beside:
            if beside is not None:
                allowed = beside if allowed is None else allowed & beside
            found = decided(state, pod.class_id, pod.labels_id, services, self.profile, further, allowed, storage)
        if beside is not None:
            found.reasons, found.message = None, ""  # which filter refuses because of nominated pods is not told
        return found


_KINDS = {
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "persistentvolumes": "PersistentVolume",
    "storageclasses": "StorageClass",
    "csinodes": "CSINode",
    "csidrivers": "CSIDriver",
    "csistoragecapacities": "CSIStorageCapacity",
}


# From files


class FileCluster:
    """A workload of objects, of which those on nodes run from the start.

    Args:
        cluster: objects as a user writes them.
        profile: of kube-scheduler.

    Attributes:
        warnings: of loading it.
    """

    def __init__(self, cluster: Cluster, profile: KubeProfile = DEFAULT_PROFILE) -> None:
        self.profile = profile
        objects = [*cluster.objects, *cluster.pods]
        documents = [Document(obj, "cluster.yaml", f"document {i}") for i, obj in enumerate(objects, start=1)]
        loaded = workload_of_objects("cluster", documents, running=RunningPods.FROM_NOW)
        self.workload = scheduled_by(loaded, profile)
        self.warnings = self.workload.warnings
        self.state = _state(self.workload)
        self._pods = {(pod.namespace, pod.name): pod for pod in self.workload.pods}

    def is_gated(self, obj: Object) -> bool:
        """Return whether a pod does not arrive."""
        return (obj["metadata"]["namespace"], obj["metadata"]["name"]) not in self._pods

    def decide(self, obj: Object) -> Decided:
        """Decide about one of the pods."""
        pod = self._pods[obj["metadata"]["namespace"], obj["metadata"]["name"]]
        c, labels = self.state.class_id(pod.pod_class), self.state.labels_id(pod)
        return decided(self.state, c, labels, self.workload.services, self.profile)


def _state(workload: Workload) -> ClusterState:
    """Return the state before anything arrives."""
    state = ClusterState(workload.nodes)
    placed = [(pod, state.class_id(pod.pod_class), state.labels_id(pod)) for pod in workload.pods]
    for i in workload.standing():
        pod, c, labels = placed[i]
        where = workload.recorded[i]
        assert where is not None
        state.place(f"{pod.namespace}/{pod.name}", c, state.slot(where.node), where.devices, labels, force=True)
    return state


# Both


def decided(
    state: ClusterState,
    class_id: int,
    labels_id: int,
    services: SpreadSelectors,
    profile: KubeProfile = DEFAULT_PROFILE,
    further: FurtherRefusals = (),
    allowed: npt.NDArray[np.bool_] | None = None,
    storage: npt.NDArray[np.int64] | None = None,
) -> Decided:
    """Decide about a pod of a state as a profile of kube-scheduler does, and say why nodes are refused.

    `storage`: [N] scores of VolumeBinding, without its weight.
    """
    if storage is not None:
        storage = profile.storage_weight * storage
    mask = state.mask(class_id, labels_id)
    if allowed is not None:
        mask &= allowed
    reasons = dict[str, tuple[str, ...]]()
    for why, where in refusals(state, class_id, labels_id, further):
        for name in _names(state, where):
            reasons[name] = (*reasons.get(name, ()), why)
    found = Decided(feasible=set(_names(state, mask)), reasons=reasons)
    if not found.feasible:
        found.message = unschedulable_message(state, class_id, labels_id, further)
        return found
    kube = KubeDecisions(state, services, replace(profile, percentage=ALL_NODES, scores=True))
    if len(found.feasible) > 1:  # kube-scheduler does not score a single node, and neither do we
        for plugin, scores in kube.breakdown(class_id, labels_id, mask, storage).items():
            found.scores[plugin] = {name: int(scores[state.slots[name]]) for name in found.feasible}
        total = kube.scores(class_id, labels_id, mask, storage)
        found.total = {name: int(total[state.slots[name]]) for name in found.feasible}
    top = kube.top_scorers(class_id, labels_id, mask, storage)
    found.top = {node.name for slot in top if (node := state.nodes[slot]) is not None}
    return found


def _names(state: ClusterState, mask: npt.NDArray[np.bool_]) -> Sequence[str]:
    return [node.name for slot in np.flatnonzero(mask).tolist() if (node := state.nodes[slot]) is not None]


def _raw(obj: Object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(obj))
