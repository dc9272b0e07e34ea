"""Exclusive use of a folder by one command: a locked file in it, whose content says who holds it.

The lock (`flock`) belongs to the open file, so the system releases it when the last process that has it ends, however
it ends. Only the holder removes the file, and who locks a file that was removed meanwhile tries again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import reduction
from pathlib import Path
from typing import Any

from steersman.core.atomic_files import naming_in_errors
from steersman.core.errors import SteersmanError

LOCK = "run.lock"
TRIES, PAUSE_SECONDS = 20, 0.05  # a process that was killed holds its lock until its workers have ended
UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
LONGEST = 300


class FolderLock:
    """Lock on a folder, until it is closed or the process ends.

    A worker process that gets it as an argument holds it, too, and so even if its parent is killed.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Hand the open file over to a process that is being started."""
        assert self._descriptor is not None
        return _inherited, (reduction.DupFd(self._descriptor),)


def lock_folder(folder: Path) -> FolderLock:
    """Lock a folder, which is created if it does not exist. Where files cannot be locked nothing is."""
    path = folder / LOCK
    with naming_in_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
        # Another person may have put a link or a pipe there: neither is followed or waited for.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    lock = FolderLock(descriptor)
    try:
        with naming_in_errors(path):
            if not _try_lock(descriptor):
                raise SteersmanError(
                    f"{folder}: is in use by {_holder(descriptor)}; wait for it, or name another folder"
                )
            if not _is_at(path, descriptor):
                lock.close()
                return lock_folder(folder)
            # Only by the holder: others read this to name it.
            os.ftruncate(descriptor, 0)
            stamp = time.strftime("%Y-%m-%d %H:%M:%S")
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()} since {stamp}\n".encode(), 0)
    except BaseException:
        lock.close()
        raise
    return lock


@contextmanager
def using_folder(folder: Path) -> Iterator[None]:
    """Lock a folder for a block, after which the lock's file is gone, and a new folder if the block left it empty."""
    folder = Path(os.path.realpath(folder))
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    with lock_folder(folder):
        try:
            yield
        finally:
            with suppress(OSError):  # a folder that is not empty, too
                (folder / LOCK).unlink()
                for each in missing:
                    each.rmdir()


def _try_lock(descriptor: int) -> bool:
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE_SECONDS)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except OSError as error:
            # Some network file systems have no locks. Working without one is better than not at all.
            if error.errno not in UNSUPPORTED:
                raise
        return True
    return False


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _holder(descriptor: int) -> str:
    text = os.pread(descriptor, LONGEST, 0).decode(errors="replace").strip()
    return text if text.isprintable() and text else "another process"


def _inherited(duplicate: Any) -> FolderLock:
    return FolderLock(duplicate.detach())
