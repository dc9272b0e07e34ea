"""The clusters of the shared vectors, read; and the scores that policies give on them.

The file `cases.json.gz` holds clusters of a few nodes in states that are random whole numbers, pods for each, and for
every policy the score of every node (null where the pod has no room), the best node (-1: none), and the mask of the GPU
devices there. `python -m tests.contract.make` writes it anew.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, PODS
from steersman.cluster.model import Constraints, Node, Pod, PodClass, Requests
from steersman.cluster.pod_query import OwnerPods, PodQuery
from steersman.cluster.state import ClusterState
from steersman.policies.base import Policy
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.network_policy import ROUNDING, Array, Flags, Floats, Network, NetworkPolicy
from steersman.policies.policy_file import open_policy
from steersman.policies.registry import resolve
from steersman.workloads.profile import TypicalPod

FOLDER = Path(__file__).parent / "data"
FILE = FOLDER / "cases.json.gz"
LOCAL = "local"
"""The field of a policy that says that it is a built-in one; its `file` is where its mix comes from."""

Json = dict[str, Any]


class Recorder:
    """A network that keeps what it was shown last, and the scores that it gave."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.shown: dict[str, npt.NDArray[Any]] = {}
        self.found: Floats = np.zeros(0)

    def scores(self, nodes: Array, pod: Array, context: Array, mask: Flags, groups: npt.NDArray[np.int32]) -> Floats:
        """See `Network`."""
        self.shown = {"nodes": nodes, "pod": pod, "context": context, "mask": mask}
        self.found = self.network.scores(nodes, pod, context, mask, groups)
        return self.found

    @property
    def clear(self) -> bool:
        """Whether no node that looks otherwise scores like the best but for rounding, which is each reader's own."""
        best = float(self.found.max())
        near = self.found >= best - ROUNDING * max(1.0, abs(best))
        nodes = self.shown["nodes"]
        return bool((nodes[near] == nodes[self.found.argmax()]).all())


class Answers(NamedTuple):
    """What a policy says of P pods on N nodes.

    Attributes:
        scores: [P, N] -inf where the pod has no room.
        best: [P] the node that it chooses, -1: none.
        devices: [P] the mask of the GPU devices there, 0 without.
        clear: [P] whether the best node is so by more than rounding (of single precision; of others it always is).
    """

    scores: npt.NDArray[np.float64]
    best: list[int]
    devices: list[int]
    clear: list[bool]


@contextmanager
def policy_files() -> Iterator[dict[str, Path]]:
    """The policy files beside this one, unpacked, by name."""
    with TemporaryDirectory() as folder:
        found = {}
        for packed in sorted(FOLDER.glob("*.safetensors.gz")):
            found[packed.name.partition(".")[0]] = file = Path(folder, packed.stem)
            file.write_bytes(gzip.decompress(packed.read_bytes()))
        yield found


def read() -> Json:
    """All of `cases.json.gz`."""
    found: Json = json.loads(gzip.decompress(FILE.read_bytes()))
    return found


def open_as_said(said: Json, files: dict[str, Path]) -> tuple[Policy, tuple[TypicalPod, ...]]:
    """A policy of the vectors, and the typical pods for one that brings none."""
    policy = open_policy(files[said["file"]], said["name"])
    assert policy.prepared is not None
    if LOCAL in said:
        return resolve(said[LOCAL]), policy.prepared.pods
    return policy, ()


def state_of(nodes: list[Json]) -> ClusterState:
    """The cluster, with what is left of its nodes as said."""
    state = ClusterState([_node(node) for node in nodes])
    for n, node in enumerate(nodes):
        for column, resource in ((CPU, "cpu"), (MEMORY, "memory"), (PODS, "pods")):
            state.arrays.free[n, column] = node[resource][1]
        state.arrays.nonzero[n] = node["scored"]
        state.arrays.gpu_free[n, : len(node["gpu_free"])] = node["gpu_free"]
        state.arrays.gpu_kinds[n, : len(node["gpu_pods"])] = node["gpu_pods"]
    return state


def _node(said: Json) -> Node:
    return Node(
        name=said["name"],
        cpu_milli=said["cpu"][0],
        memory_bytes=said["memory"][0],
        pods=said["pods"][0],
        gpu_count=len(said["gpu_free"]),
        gpu_model=said["model"],
        labels={"rack": said["rack"]} if said["rack"] else {},
    )


def pod_of(name: str, said: Json) -> Pod:
    """A pod as said."""
    requests = Requests(
        cpu_milli=said["cpu"],
        memory_bytes=said["memory"],
        gpu_count=said["gpu_count"],
        gpu_milli=said["gpu_milli"],
        cpu_nonzero_milli=said["scored"][0],
        memory_nonzero_bytes=said["scored"][1],
    )
    return Pod(name, PodClass(requests, Constraints(gpu_models=tuple(said["models"]))))


def decider_of(cluster: Json, policy: Policy, profile: tuple[TypicalPod, ...]) -> tuple[Decider, list[int]]:
    """A decider for a cluster of the vectors, and the class of each of its pods. Networks are recorded."""
    if isinstance(policy, NetworkPolicy):
        recorder = Recorder(policy.network)
        policy = replace(policy, network=recorder)
    state = state_of(cluster["nodes"])
    classes = [state.class_id(pod_of(f"p{i}", pod).pod_class) for i, pod in enumerate(cluster["pods"])]
    decider = Decider(ClusterView(state, profile=profile), policy)
    decider.waiting = cluster["waiting"]
    return decider, classes


def peers_of(pod: Json) -> OwnerPods:
    """How many pods of the pod's owner run on which node."""
    return OwnerPods(dict(pod["peers"]))


def answers(cluster: Json, policy: Policy, profile: tuple[TypicalPod, ...]) -> Answers:
    """What a policy says."""
    decider, classes = decider_of(cluster, policy, profile)
    scores, best, devices, clear = np.zeros((len(classes), len(decider.state.nodes))), [], [], []
    for i, (c, pod) in enumerate(zip(classes, cluster["pods"], strict=True)):
        choice = decider.choose(PodQuery(c, owner_pods=peers_of(pod)))
        scores[i] = scores_of(decider, c, nowhere=choice is None)
        best.append(-1 if choice is None else choice.slot)
        devices.append(0 if choice is None else choice.devices)
        recorder = recorder_of(decider)
        clear.append(choice is None or recorder is None or recorder.clear)
    return Answers(scores, best, devices, clear)


def recorder_of(decider: Decider) -> Recorder | None:
    """The recorded network of a decider, if its policy is one."""
    if not isinstance(decider.policy, NetworkPolicy):
        return None
    assert isinstance(decider.policy.network, Recorder)
    return decider.policy.network


def scores_of(decider: Decider, c: int, *, nowhere: bool) -> npt.NDArray[np.float64]:
    """[N] what the decider found of each node in its last decision."""
    recorder, count = recorder_of(decider), len(decider.state.nodes)
    if nowhere:
        return np.full(count, -np.inf)
    if recorder is None:
        return decider.live.decider.scores(c)[:count]
    return recorder.found.astype(np.float64)


def told(found: Answers, kept: npt.NDArray[np.bool_]) -> Json:
    """The answers on the pods that are kept, as the file holds them."""
    scores = [[score if np.isfinite(score) else None for score in row] for row in found.scores[kept].tolist()]
    best, devices = (np.array(each)[kept].tolist() for each in (found.best, found.devices))
    return {"scores": scores, "best": best, "devices": devices}


def as_array(scores: list[list[float | None]]) -> npt.NDArray[np.float64]:
    """[P, N] the scores of the file."""
    return np.array([[-np.inf if score is None else score for score in row] for row in scores])
