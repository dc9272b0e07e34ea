"""Files that are written whole: on a full disk the former one stays, and nothing else is left."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest
from tests.support.errors import raises
from tests.support.full_disk import largest_file

from steersman.core.atomic_files import (
    filling,
    keep_copy,
    naming_in_errors,
    new_folder,
    replacing,
    set_aside,
    write_atomically,
)
from steersman.core.errors import InputError
from steersman.policies.features import view
from steersman.policies.policy_file import Card, write_policy
from steersman.training.run import write_checkpoint

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
    with raises(InputError, file, "File too large"), largest_file(1000):
        write_atomically(file, bytes(2000))
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.json", b"former")]


def write_often(path: Path, letter: bytes, failures: multiprocessing.Queue[str]) -> None:
    """Write a file many times; report each failure."""
    for _ in range(100):
        try:
            write_atomically(path, letter * 200_000)
        except BaseException as error:
            failures.put(repr(error))
    failures.put("")


def test_concurrent_writers_of_a_file_do_not_mix(tmp_path: Path) -> None:
    file, context = tmp_path / "a.safetensors", multiprocessing.get_context("spawn")
    file.write_bytes(b"0" * 200_000)
    failures: multiprocessing.Queue[str] = context.Queue()
    writers = [context.Process(target=write_often, args=(file, letter, failures)) for letter in (b"a", b"b", b"c")]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        content = file.read_bytes()
        assert (len(content), len(set(content))) == (200_000, 1)
    assert [failures.get(timeout=30) for _ in writers] == ["", "", ""]
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_concurrent_writers_of_a_folder_do_not_mix(tmp_path: Path) -> None:
    with filling(tmp_path / "out") as slow:
        (slow / "a.csv").write_text("slow")
        with filling(tmp_path / "out") as fast:
            (fast / "a.csv").write_text("fast")
            (fast / "b.csv").write_text("fast")
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {"a.csv": "slow", "b.csv": "fast"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    file, link = tmp_path / "real" / "a.json", tmp_path / "link"
    file.parent.mkdir()
    file.write_text("previous")
    file.chmod(0o640)
    link.symlink_to(file)
    write_atomically(link, b"new")
    assert (file.read_text(), link.is_symlink(), file.stat().st_mode & 0o777) == ("new", True, 0o640)
    os.umask(before := os.umask(0o027))
    write_atomically(tmp_path / "b.json", b"")
    assert (tmp_path / "b.json").stat().st_mode & 0o777 == 0o666 & ~before


def test_long_names_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / ("n" * 255)
    write_atomically(file, b"new")
    assert file.read_bytes() == b"new"


@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_special_file_is_not_replaced(tmp_path: Path, kind: str) -> None:
    path = Path(os.devnull) if kind == "device" else tmp_path / "a"
    if kind != "device":
        (os.mkfifo if kind == "pipe" else os.mkdir)(path)
    with raises(InputError, path, "expected a file"):
        write_atomically(path, b"")
    with raises(InputError, path, "expected a file"), replacing(path) as part:
        part.write_text("")


def test_failed_block_leaves_nothing(tmp_path: Path) -> None:
    for write in (replacing, new_folder, filling):
        with pytest.raises(KeyboardInterrupt), write(tmp_path / "a"):
            raise KeyboardInterrupt
        assert not list(tmp_path.iterdir())


def test_backup_has_an_unused_name(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    assert set_aside(file) is None
    for content in ("1", "2"):
        file.write_text(content)
        assert set_aside(file) == tmp_path / f"metrics.csv.{content}"
    file.write_text("3")
    keep_copy(file)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "metrics.csv": "3",
        "metrics.csv.1": "1",
        "metrics.csv.2": "2",
        "metrics.csv.3": "3",
    }


@pytest.mark.parametrize("kind", ["policy", "checkpoint"])
def test_policies_and_checkpoints_that_do_not_fit_are_named(tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"{kind}.safetensors"
    with raises(InputError, file, "cannot be written"), largest_file(1000):
        if kind == "policy":
            write_policy(file, CARD, ARRAYS)
        else:
            write_checkpoint(file, ARRAYS, {})
    assert not list(tmp_path.iterdir())


def test_error_without_file_name_gets_one() -> None:
    with (
        raises(InputError, "results.csv", "No space left on device"),
        naming_in_errors(Path("results.csv")),
        Path("/dev/full").open("w") as file,
    ):
        file.write("x")
