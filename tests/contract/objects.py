"""Clusters of Kubernetes objects with the scores that a live policy gives: Python and Go are held to the same answers.

The file `objects.json.gz` holds clusters of v1 Nodes and the v1 Pods that run there, pods that want a node, and for
every policy the score of every node (null where the pod has no room), the whole-numbered scores that other schedulers
get, the best node (-1: none), and the mask of the GPU devices there. `python -m tests.contract.make_objects` writes it.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from tests.contract.cases import FOLDER, Answers, Json, Recorder

from steersman.cluster.objects.decoding import pod_from_object
from steersman.cluster.pod_query import PodQuery
from steersman.kubernetes.cache.cached_pod import Listener
from steersman.kubernetes.cache.cluster_cache import ClusterCache
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeCluster, KubeConfig, KubeUser
from steersman.live.service.scoring.node_scorer import Ranking
from steersman.policies.base import Policy
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.network_policy import NetworkPolicy
from steersman.workloads.profile import TypicalPod

FILE = FOLDER / "objects.json.gz"


class Silent(Listener):
    """A listener that nobody needs to be."""


class Told(NamedTuple):
    """Answers, and [P, N] the whole-numbered scores."""

    answers: Answers
    ranks: list[list[int]]


def read() -> Json:
    """All of the file."""
    found: Json = json.loads(gzip.decompress(FILE.read_bytes()))
    return found


def cache_of(cluster: Json) -> ClusterCache:
    """The live scheduler's cache when it has heard of the cluster's objects."""
    client = Client(KubeConfig(Path("nowhere"), "", KubeCluster("http://127.0.0.1:9"), KubeUser(), "default"))
    cache = ClusterCache(client, Silent())
    for node in cluster["nodes"]:
        cache.upsert_node(raw(node))
    for pod in cluster["running"]:
        cache.upsert_pod(raw(pod))
    return cache


def raw(obj: Json) -> msgspec.Raw:
    """An object as it comes from the API."""
    return msgspec.Raw(json.dumps(obj).encode())


def ask(cluster: Json, policy: Policy, profile: tuple[TypicalPod, ...]) -> Told:
    """What a policy on the live scheduler's cache says of the pods that want a node."""
    recorder = None
    if isinstance(policy, NetworkPolicy):
        recorder = Recorder(policy.network)
        policy = replace(policy, network=recorder)
    cache = cache_of(cluster)
    names = [node["metadata"]["name"] for node in cluster["nodes"]]
    assert [node.name for node in cache.state.nodes if node is not None] == names
    decider = Decider(ClusterView(cache.state, profile=profile), policy)
    scores, best, devices, clear, ranks = [], [], [], [], []
    for obj in cluster["pods"]:
        pod = pod_from_object(obj)
        query = PodQuery(cache.state.class_id(pod.pod_class), cache.state.labels_id(pod), cache.owner_pods(pod))
        found = decider.scores(query)[: len(names)]
        choice = decider.choose(query)
        chosen = -1 if choice is None else choice.slot
        scores.append(found)
        best.append(chosen)
        devices.append(0 if choice is None else choice.devices)
        clear.append(choice is None or recorder is None or recorder.clear)
        ranks.append(Ranking(names, found, chosen).scores().tolist())
    return Told(Answers(np.array(scores), best, devices, clear), ranks)
