"""Policy files: what is written is read back, and a file that is no good is refused in one line."""

import json
import tracemalloc

import msgspec
import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.support.errors import raises
from tests.support.weights import fgd_weights

from steersman.core.errors import InputError, SteersmanError
from steersman.policies.features import GPU
from steersman.policies.policy_file import CARD, Card, WorkloadResult, read_policy, write_policy
from steersman.policies.registry import resolve

CARD_OF_TEST = Card(
    name="mine",
    view=GPU.name,
    view_version=GPU.version,
    network="linear",
    objective="allocation",
    algorithm="evolution",
    training=("default",),
    test=("cpu072",),
    scores=(WorkloadResult("default", "gpu_unallocated_percent", 3.7, "fgd", 4.6, 3),),
    settings={"population": 20, "strategy": "cma-es"},
)


def written(folder, card=CARD_OF_TEST, **arrays):
    file = folder / "policy.safetensors"
    write_policy(file, card, arrays or {"weights": fgd_weights()})
    return file


def test_written_policy_is_read_back(tmp_path):
    weights = np.random.default_rng(0).normal(size=fgd_weights().shape)
    card, arrays = read_policy(written(tmp_path, weights=weights))
    assert card == CARD_OF_TEST
    assert (arrays["weights"] == weights).all()
    policy = resolve(str(tmp_path / "policy.safetensors"))
    assert (policy.weights == weights).all()
    assert policy.name == tmp_path.name
    (tmp_path / "policy.safetensors").rename(tmp_path / "better.safetensors")
    assert resolve(str(tmp_path / "better.safetensors")).name == "better"


def test_equal_policies_have_equal_bytes(tmp_path):
    first = written(tmp_path).read_bytes()
    assert written(tmp_path).read_bytes() == first


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_weights_are_rejected_and_the_old_file_stays(tmp_path, value):
    file = written(tmp_path)
    before = file.read_bytes()
    with raises(SteersmanError):
        written(tmp_path, weights=np.full(fgd_weights().shape, value))
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def raw(folder, arrays=None, **changes):
    """A file with a card that `write_policy` would not write."""
    card = {**json.loads(msgspec.json.encode(CARD_OF_TEST)), **changes}
    card = {key: value for key, value in card.items() if value is not None}
    file = folder / "bad.safetensors"
    save_file(arrays or {"weights": fgd_weights()}, file, metadata={CARD: json.dumps(card)})
    return file


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 99}, "schema"),
        ({"schema": None}, "schema"),
        ({"view_version": 0}, "view_version: is 0"),
        ({"name": 3}, "not a model card"),
        ({"objective": None}, "not a model card"),
        ({"surprise": 1}, "not a model card"),
        ({"network": "rnn"}, "network: is 'rnn'"),
        ({"arrays": None, "steps": "many"}, "not a model card"),
    ],
)
def test_mismatched_model_card_fails_in_one_line(tmp_path, changes, message):
    with pytest.raises(InputError) as error:
        resolve(str(raw(tmp_path, **changes)))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_view_fails_in_one_line(tmp_path):
    with raises(InputError, "'other'"):
        resolve(str(raw(tmp_path, view="other")))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"weights": np.full(fgd_weights().shape, np.nan)}, "not a finite number"),
        ({"weights": np.full(fgd_weights().shape, -1e13)}, r"holds a weight beyond 1e\+12"),
        ({"weights": np.zeros((2, 3))}, r"of shape \[2, 3\]"),
        ({"other": np.zeros(3)}, "missing"),
        ({"weights": np.zeros(fgd_weights().shape, dtype=np.bool_)}, "is BOOL; expected F32 or F64"),
        ({"weights": np.zeros(fgd_weights().shape, dtype=np.int8)}, "is I8; expected F32 or F64 for weights"),
        ({"weights": fgd_weights(), "rules": np.zeros((4, 7), dtype=np.uint64)}, "rules: is U64; expected F32 or F64"),
    ],
)
def test_mismatched_weights_fail_in_one_line(tmp_path, arrays, message):
    with pytest.raises(InputError, match=message):
        resolve(str(raw(tmp_path, arrays)))


def test_oversized_input_is_rejected_before_decompression(tmp_path):
    large = tmp_path / "large.safetensors"
    with large.open("wb") as file:
        file.truncate((64 << 20) + 1)
    whole = raw(tmp_path, {"weights": np.zeros(16 << 20, dtype=np.int8)})
    for path, message in (
        (large, "large.safetensors, file, size: is 67108865 bytes; a policy has 64 MiB at most"),
        (whole, "tensor, weights: is I8; expected F32 or F64 for weights"),
    ):
        tracemalloc.start()
        with pytest.raises(InputError) as error:
            read_policy(path)
        allocated = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert message in str(error.value)
        assert "\n" not in str(error.value)
        assert allocated < 1 << 20


@pytest.mark.parametrize("length", [0, 5, 100, 1000])
def test_a_truncated_file_fails_in_one_line(tmp_path, length):
    file = written(tmp_path)
    file.write_bytes(file.read_bytes()[:length])
    with raises(InputError):
        resolve(str(file))


def test_foreign_files_fail_in_one_line(tmp_path):
    with raises(InputError):
        resolve(str(tmp_path / "missing.safetensors"))
    (tmp_path / "folder.safetensors").mkdir()
    save_file({"weights": fgd_weights()}, tmp_path / "plain.safetensors")
    (tmp_path / "text.safetensors").write_text("weights = 1\n" * 100)
    for name, message in (
        ("folder", "policy"),
        ("plain", "is missing: expected the model card of a policy file of steersman"),
        ("text", "no safetensors file"),
    ):
        with pytest.raises(InputError, match=message):
            resolve(str(tmp_path / f"{name}.safetensors"))
