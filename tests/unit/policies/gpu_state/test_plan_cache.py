"""Planned tables are kept, for one code and one mix; expected whatever lies in the folder, the answer."""

import threading
from pathlib import Path

import numpy as np
import pytest

from steersman.policies.gpu_state import plan_cache, planning
from steersman.policies.gpu_state.plan_cache import DIGEST_BYTES, FOLDER, SIZE, SUFFIX, kept
from steersman.workloads.profile import TypicalPod

TABLE = np.linspace(0.0, 1.0, 1001)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEERSMAN_CACHE_DIR", str(tmp_path))
    return tmp_path / FOLDER


def never() -> np.ndarray:
    raise AssertionError("it planned")


def test_table_is_computed_once_per_key():
    np.testing.assert_array_equal(kept(b"a", (), lambda: TABLE), TABLE)
    np.testing.assert_array_equal(kept(b"a", (), never), TABLE)
    np.testing.assert_array_equal(kept(b"b", (), lambda: 2 * TABLE), 2 * TABLE)


def test_changed_code_recomputes_the_table(tmp_path):
    for i, text in enumerate(("old", "new")):
        source = tmp_path / f"{i}.py"
        source.write_text(text)
        kept(b"a", (source,), lambda i=i: i * TABLE)
        np.testing.assert_array_equal(kept(b"a", (source,), never), i * TABLE)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content[:0],
        lambda content: content[:-1],
        lambda content: content + b"x",
        lambda content: content[:DIGEST_BYTES] + b"\xff" * (SIZE - DIGEST_BYTES),
        lambda content: content[:-8] + np.float64(7).tobytes(),
        lambda content: b"\x80\x04cos\nsystem\n." + content[12:],
    ],
)
def test_corrupt_file_is_recomputed(folder, spoil):
    kept(b"a", (), lambda: TABLE)
    (file,) = folder.glob(f"*{SUFFIX}")
    file.write_bytes(spoil(file.read_bytes()))
    np.testing.assert_array_equal(kept(b"a", (), lambda: TABLE), TABLE)
    np.testing.assert_array_equal(kept(b"a", (), never), TABLE)


def test_folder_is_bounded_and_evicts_least_recently_used(folder, monkeypatch):
    monkeypatch.setattr(plan_cache, "MOST_FILES", 3)
    for i in range(5):
        kept(bytes([i]), (), lambda i=i: i * TABLE)
        for file in folder.iterdir():
            plan_cache.os.utime(file, (1, 1)) if i < 2 else None
    assert len(list(folder.iterdir())) == 3
    np.testing.assert_array_equal(kept(bytes([4]), (), never), 4 * TABLE)


def test_unwritable_folder_costs_time_only(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STEERSMAN_CACHE_DIR", str(tmp_path / "file"))
    np.testing.assert_array_equal(kept(b"a", (), lambda: TABLE), TABLE)


def test_concurrent_readers_see_whole_tables(folder):
    wrong: list[object] = []

    def work(number: int) -> None:
        for i in range(60):
            key = bytes([i % 3])
            if not np.array_equal(kept(key, (), lambda i=i: (i % 3) * TABLE), (i % 3) * TABLE):
                wrong.append((number, i))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(list(folder.iterdir())) == 3


def test_planning_uses_the_cache(monkeypatch):
    pods = (TypicalPod(1000, 400, 1, (), 0.75), TypicalPod(1000, 1000, 1, (), 0.25))
    monkeypatch.setattr(planning, "GENERATIONS", 1)
    planning.planned_losses.cache_clear()
    first = planning.planned_losses(pods)
    planning.planned_losses.cache_clear()
    monkeypatch.setattr(planning, "plan_losses", lambda *_: never())
    np.testing.assert_array_equal(planning.planned_losses(pods), first)
    monkeypatch.setattr(planning, "GENERATIONS", 2)
    planning.planned_losses.cache_clear()
    with pytest.raises(AssertionError, match="it planned"):
        planning.planned_losses(pods)
    planning.planned_losses.cache_clear()
