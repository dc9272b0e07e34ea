"""Files that are written whole: on a full disk the former one stays, and nothing else is left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.errors import raises
from tests.support.full_disk import largest_file

from steersman.core.atomic_files import naming_in_errors, write_atomically
from steersman.core.errors import InputError
from steersman.policies.features import view
from steersman.policies.files.policy_file import Card, write_policy
from steersman.training.checkpoint import write_checkpoint

CARD = Card(
    name="mine", view="gpu", view_version=view("gpu").version, network="linear", objective="allocation", algorithm="dqn"
)
ARRAYS = {"w": np.zeros(4096)}


@pytest.mark.parametrize("sync", [False, True])
def test_a_file_is_replaced(tmp_path: Path, sync: bool) -> None:
    for content in (b"former", b"new"):
        write_atomically(tmp_path / "a.json", content, sync=sync)
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.json", content)]


def test_a_full_disk_keeps_the_former_file_and_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b"former")
    with largest_file(1000), pytest.raises(OSError, match="too large"):
        write_atomically(file, bytes(2000))
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.json", b"former")]


@pytest.mark.parametrize("kind", ["policy", "checkpoint"])
def test_policies_and_checkpoints_that_do_not_fit_are_named(tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"{kind}.safetensors"
    with raises(InputError, file, "cannot be written"), largest_file(1000):
        if kind == "policy":
            write_policy(file, CARD, ARRAYS)
        else:
            write_checkpoint(file, ARRAYS, {})
    assert not list(tmp_path.iterdir())


def test_an_error_without_a_name_gets_one() -> None:
    with (
        raises(InputError, "results.csv", "No space left on device"),
        naming_in_errors(Path("results.csv")),
        Path("/dev/full").open("w") as file,
    ):
        file.write("x")
