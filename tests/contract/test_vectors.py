"""The shared vectors: compiled kernels, NumPy and torch score what the file says, which Go is held to as well."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.contract.cases import (
    Json,
    answers,
    as_array,
    decider_of,
    open_as_said,
    peers_of,
    policy_files,
    read,
    recorder_of,
)
from tests.contract.make import DRAWN, POLICIES, view_said
from tests.support.decision_states import pod_features

from steersman.agents.networks.score_networks import ScoreNetwork, build, load
from steersman.agents.networks.spec import FeatureCounts
from steersman.cluster.pod_query import PodQuery
from steersman.policies.decision.cluster_view import ClusterView
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.description import VIEW_NUMBERS
from steersman.policies.features import GPU, POD_KINDS, VIEWS
from steersman.policies.files.policy_file import read_policy
from steersman.policies.heuristics import HEURISTIC_IDS, HeuristicPolicy
from steersman.policies.linear import LinearPolicy

TOLERANCE = 1e-5
NAMES = [said["name"] for said in POLICIES]
WITH_CONTEXT = [name for name, drawn in DRAWN.items() if drawn.context]
LEARNED = ["steersman-default", "steersman-gpuspec25", *(name for name in DRAWN if name not in WITH_CONTEXT)]
NODE, POD, CONTEXT = len(GPU.node), len(GPU.pod), len(GPU.context)


@pytest.fixture(scope="module")
def content() -> Json:
    return read()


@pytest.fixture(scope="module")
def files() -> Iterator[dict[str, Path]]:
    with policy_files() as found:
        yield found


def said_of(content: Json, name: str) -> Json:
    return next(said for said in content["policies"] if said["name"] == name)


def test_vectors_cover_every_kind_of_case(content: Json) -> None:
    pods = [pod for cluster in content["clusters"] for pod in cluster["pods"]]
    assert len(pods) * len(content["policies"]) >= 10_000
    assert [said["name"] for said in content["policies"]] == NAMES
    assert content["views"] == {name: view_said(VIEWS[name]) for name in VIEW_NUMBERS}
    kinds = {(min(pod["gpu_count"], 2), 0 < pod["gpu_milli"] < 1000) for pod in pods}
    assert kinds == {(0, False), (1, True), (1, False), (2, False), (2, True)}
    nodes = [node for cluster in content["clusters"] for node in cluster["nodes"]]
    assert min(node["cpu"][1] for node in nodes) < 0
    for here in ({0}, {1000}, set()):  # full, empty, without GPUs
        assert any(set(node["gpu_free"]) == here for node in nodes)


@pytest.mark.parametrize("name", NAMES)
def test_compiled_kernels_match_the_vectors(content: Json, files: dict[str, Path], name: str) -> None:
    policy, profile = open_as_said(said_of(content, name), files)
    for cluster in content["clusters"][::3]:
        found, wanted = answers(cluster, policy, profile), cluster["answers"][name]
        np.testing.assert_allclose(found.scores, as_array(wanted["scores"]), rtol=TOLERANCE, atol=TOLERANCE)
        assert found.best == wanted["best"]
        assert found.devices == wanted["devices"]


def torch_of(policy: LinearPolicy) -> ScoreNetwork:
    """The network of a policy in torch, which sees the cluster with weight 0."""
    hidden = tuple(len(bias) for _, bias in policy.network[:-1])
    network = build("mlp", FeatureCounts(NODE, POD, CONTEXT), hidden).eval()
    with torch.no_grad():
        layers = zip([*network.body.layers, network.head], policy.network, strict=True)
        for layer, (weight, bias) in layers:
            layer.weight.zero_()
            layer.weight[:, : weight.shape[1]] = torch.tensor(weight)
            layer.bias[:] = torch.tensor(bias)
    return network


def in_torch(network: ScoreNetwork, shown: dict[str, np.ndarray]) -> np.ndarray:
    """[N] the scores of a network for one observation."""
    with torch.no_grad():
        return network({name: torch.tensor(array)[None] for name, array in shown.items()})[0].numpy()


def compare(found: np.ndarray, wanted: list[float | None], best: int, scale: float) -> None:
    """Hold scores that were computed in another way, on numbers of that size, to those of the file."""
    scores = as_array([wanted])[0]
    room = np.isfinite(scores)
    np.testing.assert_allclose(found[room], scores[room], rtol=TOLERANCE, atol=TOLERANCE * scale)
    assert found[best] >= found[room].max() - 2 * TOLERANCE * max(scale, abs(found[best]))


@pytest.mark.parametrize("name", LEARNED)
def test_features_and_weights_match_the_vectors(content: Json, files: dict[str, Path], name: str) -> None:
    """NumPy multiplies the features that the policy shows with its weights, torch runs its network."""
    policy, _ = open_as_said(said_of(content, name), files)
    assert isinstance(policy, LinearPolicy)
    assert policy.prepared is not None
    network = torch_of(policy) if policy.network else None
    for cluster in content["clusters"][::8]:
        decider, classes = decider_of(cluster, policy, ())
        wanted, pods = cluster["answers"][name], pod_features(decider.state.class_arrays)
        for i, c in enumerate(classes):
            rows = decider.live.decider.features(c)[: len(cluster["nodes"])]
            found, scale = rows @ policy.weights[pod_kind_of(pods[c])], max(1.0, float(np.abs(rows).max()))
            if policy.rules is not None:
                weights = policy.rules[pod_kind_of(pods[c])]
                for rule, number in HEURISTIC_IDS.items():
                    points = np.zeros(len(rows))
                    if rule != "fgd":  # whose weight stands among the features'
                        own = Decider(
                            ClusterView(decider.state, profile=policy.prepared.pods),
                            HeuristicPolicy("rule", (number,), (1.0,)),
                        )
                        points = np.nan_to_num(own.scores(PodQuery(c)), neginf=0.0)
                    found = found + weights[number] * points
                scale = max(scale, float(np.abs(found).max()))
            if network is not None:
                shown = {"nodes": rows.astype(np.float32), "pod": pods[c], "context": np.zeros(CONTEXT, np.float32)}
                found = found + in_torch(network, shown | {"mask": np.ones(len(rows), dtype=np.bool_)})
            if wanted["best"][i] >= 0:
                compare(found, wanted["scores"][i], wanted["best"][i], scale)


def pod_kind_of(pod: np.ndarray) -> int:
    return int(pod[:POD_KINDS].argmax())


@pytest.mark.parametrize("name", WITH_CONTEXT)
def test_torch_matches_the_vectors(content: Json, files: dict[str, Path], name: str) -> None:
    policy, _ = open_as_said(said_of(content, name), files)
    card, arrays = read_policy(files[name])
    view = VIEWS[card.view]
    sizes = FeatureCounts(len(view.node), len(view.pod), len(view.context))
    network = build(card.network, sizes, card.hidden, 0.0, card.normalisation).eval()
    load(network, {tensor: array for tensor, array in arrays.items() if not tensor.startswith(("mix.", "outlook."))})
    for cluster in content["clusters"][::8]:
        decider, classes = decider_of(cluster, policy, ())
        wanted = cluster["answers"][name]
        for i, (c, pod) in enumerate(zip(classes, cluster["pods"], strict=True)):
            if decider.choose(PodQuery(c, owner_pods=peers_of(pod))) is not None:
                recorder = recorder_of(decider)
                assert recorder is not None
                found, scale = in_torch(network, recorder.shown), max(1.0, float(np.abs(recorder.shown["nodes"]).max()))
                compare(found, wanted["scores"][i], wanted["best"][i], scale)
                assert int(found.argmax()) == wanted["best"][i] or found[wanted["best"][i]] == pytest.approx(
                    found.max()
                )
