"""State folder of local clusters, and a lock that allows one command at a time for each."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from steersman.core.errors import SteersmanError


def state_root() -> Path:
    """Return the user's state folder: `$STEERSMAN_STATE_DIR`, else below `$XDG_STATE_HOME` or `~/.local/state`."""
    own = os.environ.get("STEERSMAN_STATE_DIR")
    if own:
        return Path(own).absolute()
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state").absolute() / "steersman"


def clusters_root() -> Path:
    """Return the folder that has a folder for each local cluster."""
    return state_root() / "clusters"


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a lock file, which the system releases when this process ends, however it ends.

    Args:
        path: lock file; it stays.
        waiting: called once before waiting for another holder; may raise.

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
            # Without waiting first, so that `waiting` is called only if there is somebody to wait for.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
