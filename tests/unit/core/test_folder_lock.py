"""The lock on a folder: who holds it is named, workers hold it, too, and it ends with the last of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.errors import raises

from steersman.core.errors import InputError, SteersmanError
from steersman.core.folder_lock import LOCK, lock_folder, using_folder

PARENT = """
import sys, time
from pathlib import Path
from steersman.core.folder_lock import lock_folder
from steersman.core.processes import start_worker
from tests.unit.core.test_folder_lock import hold
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    process = start_worker(hold, lock_folder(folder), folder)
    process.join()
"""


def hold(_: object, folder: Path) -> None:
    """Hold a lock that came from the parent until a file tells to end, also when the parent is gone."""
    (folder / "pid").write_text(str(os.getpid()))
    (folder / "ready").touch()
    while not (folder / "end").exists():
        time.sleep(0.02)


def stop(pid: int) -> None:
    """Stop a process and wait until all its threads have: until then one that waits for the parent may run."""
    os.kill(pid, signal.SIGSTOP)
    while any(status_of(path) != "T" for path in Path(f"/proc/{pid}/task").iterdir()):
        time.sleep(0.01)


def status_of(thread: Path) -> str:
    """Return the state of a thread of /proc, "T": it is stopped."""
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]


def test_second_process_is_rejected_and_names_the_holder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with lock_folder(folder), raises(SteersmanError, folder, str(os.getpid())):
        lock_folder(folder)
    with lock_folder(folder):
        pass
    assert (folder / LOCK).exists(), "whoever removed it could remove the lock of another"


def test_worker_holds_the_lock_until_it_ends(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdin=subprocess.DEVNULL) as parent:
        try:
            while not (tmp_path / "ready").exists():
                assert parent.poll() is None
            stop(int((tmp_path / "pid").read_text()))  # it cannot end with its parent meanwhile
            parent.kill()
            parent.wait(30)
            with raises(SteersmanError, tmp_path, str(parent.pid)):
                lock_folder(tmp_path)
        finally:
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
            parent.kill()
    with lock_folder(tmp_path):
        pass


def test_used_folder_is_locked_and_left_as_it_was(tmp_path: Path) -> None:
    for folder in (tmp_path / "new" / "out", tmp_path):
        with using_folder(folder):
            assert (folder / LOCK).exists()
            with raises(SteersmanError, f"{folder}: is in use by process {os.getpid()}"), using_folder(folder):
                pytest.fail("locked twice")
        assert list(tmp_path.iterdir()) == []
    with suppress(KeyboardInterrupt), using_folder(tmp_path / "out"):
        (tmp_path / "out" / "results.csv").write_text("")
        raise KeyboardInterrupt
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["results.csv"]


def test_lock_whose_file_was_removed_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder removes the file between another process's opening and locking of it."""
    first, opened = lock_folder(tmp_path), os.open

    def open_and_release(path: Any, *more: Any) -> int:
        monkeypatch.setattr(os, "open", opened)
        descriptor = opened(path, *more)
        (tmp_path / LOCK).unlink()
        first.close()
        return descriptor

    monkeypatch.setattr(os, "open", open_and_release)
    with lock_folder(tmp_path), raises(SteersmanError, "in use"):
        lock_folder(tmp_path)


def test_holder_that_is_not_text_is_not_printed(tmp_path: Path) -> None:
    with lock_folder(tmp_path):
        (tmp_path / LOCK).write_bytes(b"\x1b[2J\xff")
        with raises(SteersmanError, "another process"):
            lock_folder(tmp_path)


@pytest.mark.parametrize("kind", ["link", "file"])
def test_folder_that_cannot_be_locked_is_named(tmp_path: Path, kind: str) -> None:
    if kind == "link":
        (tmp_path / LOCK).symlink_to(tmp_path / "elsewhere")
        with raises(InputError, tmp_path / LOCK, "cannot be written"):
            lock_folder(tmp_path)
        assert not (tmp_path / "elsewhere").exists()
    else:
        (tmp_path / "run").touch()
        with raises(InputError, tmp_path / "run" / LOCK, "cannot be written"):
            lock_folder(tmp_path / "run")
