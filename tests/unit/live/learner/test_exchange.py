"""The policy in use is replaced only by one that held-back decisions show to be better, and can be put back."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.errors import raises
from tests.support.nightly import examples

from steersman.agents.networks.score_networks import build, export
from steersman.agents.networks.spec import FeatureCounts
from steersman.core.errors import SteersmanError
from steersman.live.learner.bindings import TEST_BLOCK, ObservedBinding
from steersman.live.learner.follower import CANDIDATE, EXCHANGES, MIN_BLOCKS, PREVIOUS, PolicyExchange, undo
from steersman.live.scheduler.agent_link import DecisionOutcome
from steersman.objectives import summary
from steersman.policies.features import CLUSTER
from steersman.policies.policy_file import Card, read_policy, write_policy
from steersman.training.run import POLICY

ENOUGH = MIN_BLOCKS * TEST_BLOCK
COUNTS = FeatureCounts(len(CLUSTER.node), len(CLUSTER.pod), len(CLUSTER.context))


def policy(file: Path, feature: int, sign: float) -> None:
    """A linear policy that takes the node with the highest (or lowest) value of a feature."""
    arrays = export(build("linear", COUNTS, ()))
    for array in arrays.values():
        array[...] = 0.0
    arrays["head.weight"][:, feature] = sign
    card = Card(
        name="one", view="cluster", view_version=CLUSTER.version, network="linear", objective="balance", algorithm="dqn"
    )
    write_policy(file, card, arrays)


def bindings(count: int, gain: float, seed: int = 0, noise: float = 0.1) -> list[ObservedBinding]:
    """Decisions in which the node with the highest first feature earns `gain` more, with noise."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(count):
        nodes = rng.random((5, COUNTS.node)).astype(np.float32)
        rewards = rng.normal(0.0, noise, 5)
        rewards[nodes[:, 0].argmax()] += gain
        pod = np.zeros(COUNTS.pod, dtype=np.float32)
        pod[0] = 1.0
        observation = {
            "nodes": nodes,
            "pod": pod,
            "context": np.zeros(COUNTS.context, dtype=np.float32),
            "mask": np.ones(5, dtype=np.int8),
            "groups": np.full((5, 2), -1, dtype=np.int32),
        }
        row = np.zeros(summary.COLUMNS)
        result.append(ObservedBinding(observation, DecisionOutcome(0, row, row), False, 0.0, rewards))
    return result


def exchange(folder: Path, gain: float, seed: int = 0, noise: float = 0.1) -> tuple[PolicyExchange, bool]:
    """A test of the highest first feature against the lowest."""
    policy(folder / POLICY, 0, -1.0)
    tested = PolicyExchange(folder)
    for binding in bindings(ENOUGH, gain, seed, noise):
        assert not tested.is_due
        tested.hold_back(binding)
    assert tested.is_due
    result = tested.test(lambda file: policy(file, 0, 1.0))
    assert not tested.is_due, "every held-back decision serves one test"
    return tested, result


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / EXCHANGES).read_text().splitlines()))


def test_better_candidate_is_promoted_and_undone(tmp_path):
    tested, is_used = exchange(tmp_path, 0.2)
    assert is_used
    assert read_policy(tmp_path / POLICY)[1]["head.weight"].max() == 1.0
    assert not tested.was_replaced(), "by itself"
    assert undo(tmp_path) == "0001.safetensors"
    assert read_policy(tmp_path / POLICY)[1]["head.weight"].min() == -1.0
    assert tested.was_replaced()
    assert not tested.was_replaced(), "once"
    done, undone = rows(tmp_path)
    assert (done["result"], undone["result"]) == ("exchanged", "undone")
    assert float(done["low"]) > 0
    assert float(done["difference"]) == pytest.approx(0.2, abs=0.03)
    assert int(done["held_back"]) == ENOUGH
    assert done["policy"] != undone["policy"]
    with raises(SteersmanError, str(tmp_path)):
        undo(tmp_path)


@pytest.mark.parametrize(("gain", "noise"), [(-0.2, 0.1), (0.0, 0.1), (2e-7, 0.0)])
def test_worse_or_equal_candidate_is_not_promoted(tmp_path, gain, noise):
    _, is_used = exchange(tmp_path, gain, noise=noise)
    assert not is_used
    assert read_policy(tmp_path / POLICY)[1]["head.weight"].min() == -1.0
    assert not (tmp_path / PREVIOUS).exists()
    (row,) = rows(tmp_path)
    assert row["result"] == "kept"
    assert float(row["low"]) <= 0.0, "also as it is rounded"


def test_equal_candidates_are_rarely_promoted(tmp_path):
    used = 0
    for seed in range(60):
        folder = tmp_path / str(seed)
        folder.mkdir()
        used += exchange(folder, 0.0, seed)[1]
    assert used <= 6, "one in forty by chance"


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(1, 6))
def test_several_exchanges_are_undone_one_by_one(tmp_path_factory, times):
    folder = tmp_path_factory.mktemp("run")
    policy(folder / POLICY, 0, -1.0)
    contents = []
    for i in range(times):
        contents.append((folder / POLICY).read_bytes())
        tested = PolicyExchange(folder)
        for binding in bindings(ENOUGH, 0.5 * (i + 1), i):
            tested.hold_back(binding)
        feature = i % 2
        assert tested.test(lambda file, feature=feature: policy(file, feature, 1.0)) == (feature == 0 and i == 0)
    assert undo(folder) == "0001.safetensors"
    assert (folder / POLICY).read_bytes() == contents[0]


def test_failed_write_changes_nothing(tmp_path):
    policy(tmp_path / POLICY, 0, -1.0)
    before = (tmp_path / POLICY).read_bytes()
    tested = PolicyExchange(tmp_path)
    for binding in bindings(ENOUGH, 0.5):
        tested.hold_back(binding)
    (tmp_path / PREVIOUS).write_text("in the way")
    with raises(SteersmanError, str(tmp_path)):
        tested.test(lambda file: policy(file, 0, 1.0))
    assert (tmp_path / POLICY).read_bytes() == before
    assert not (tmp_path / EXCHANGES).exists()
    for binding in bindings(ENOUGH, 0.5):
        tested.hold_back(binding)

    def refuse(file: Path) -> None:
        shutil.copy(tmp_path / POLICY, file)
        raise SteersmanError(f"{file.parent}: no space")

    with raises(SteersmanError, "no space"):
        tested.test(refuse)
    assert (tmp_path / POLICY).read_bytes() == before
    assert (tmp_path / CANDIDATE).exists()
