"""Clusters of Kubernetes objects: the live scheduler's cache and policies say what the file says, as Go must, too."""

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import structlog
from tests.contract.cases import Json, as_array, open_as_said, policy_files
from tests.contract.make_objects import OBJECT_POLICIES, VENDORS
from tests.contract.objects import ask, read

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def content() -> Json:
    return read()


@pytest.fixture(scope="module")
def files() -> Iterator[dict[str, Path]]:
    with policy_files() as found:
        yield found


@pytest.fixture(autouse=True)
def _silent() -> None:
    """The cache complains of pods that make no sense, and of these there are many."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))


def test_vectors_cover_every_kind_of_object(content: Json) -> None:
    assert content["policies"] == list(OBJECT_POLICIES)
    pods = [pod for cluster in content["clusters"] for pod in (*cluster["running"], *cluster["pods"])]
    notes = [str(pod["metadata"]["annotations"]) for pod in pods]
    assert any("gpu-index" in each for each in notes)
    assert any("many" in each for each in notes)  # milli without sense
    assert any("steersman.dev/owner" in each for each in notes)
    assert any("initContainers" in pod["spec"] for pod in pods)
    for name in ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915"):
        assert any(name in str(pod["spec"]) for pod in pods)
    amounts = [node["status"]["allocatable"] for cluster in content["clusters"] for node in cluster["nodes"]]
    assert any({"nvidia.com/gpu", "amd.com/gpu"} <= each.keys() for each in amounts)
    assert any(each.get("nvidia.com/gpu") == "80" for each in amounts)
    chosen = [best for cluster in content["clusters"] for best in cluster["answers"]["best-fit"]["best"]]
    assert len(chosen) > 100
    assert -1 in chosen


@pytest.mark.parametrize("name", ["fgd-default", "steersman-default", "cluster-mlp", VENDORS])
def test_live_cache_and_policies_match_the_vectors(content: Json, files: dict[str, Path], name: str) -> None:
    policy, profile = open_as_said(next(said for said in content["policies"] if said["name"] == name), files)
    for cluster in content["clusters"]:
        found, wanted = ask(cluster, policy, profile), cluster["answers"][name]
        np.testing.assert_allclose(found.answers.scores, as_array(wanted["scores"]), rtol=TOLERANCE, atol=TOLERANCE)
        assert (found.answers.best, found.answers.devices) == (wanted["best"], wanted["devices"])
        np.testing.assert_allclose(found.ranks, wanted["ranks"], atol=1)
