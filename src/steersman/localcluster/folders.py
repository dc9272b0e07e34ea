"""Where local clusters keep what outlives a command, and one command at a time for each of them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from steersman.errors import SteersmanError


def state_root() -> Path:
    """The user's state folder: `$STEERSMAN_STATE_DIR`, else below `$XDG_STATE_HOME` or `~/.local/state`."""
    own = os.environ.get("STEERSMAN_STATE_DIR")
    if own:
        return Path(own).absolute()
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state").absolute() / "steersman"


def clusters_root() -> Path:
    """The folder with a folder for each local cluster."""
    return state_root() / "clusters"


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file at `path`, which the system frees when this process ends, however it does.

    Args:
        path: the lock file; it stays.
        waiting: called once if somebody else holds the lock, before this waits for them. It may raise.

    Raises:
        SteersmanError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SteersmanError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
