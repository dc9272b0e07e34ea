"""Requests to a run that is learning: a file with one word, which the run looks for between two iterations.

Whoever asks creates `request.txt`, which fails while another request is there; the run obeys, says so in its log, and
removes the file. In a shell: `echo pause > FOLDER/request.txt`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from steersman.core.errors import SteersmanError, UsageError
from steersman.core.folder_lock import is_locked
from steersman.core.regular_files import open_regular_file

REQUEST = "request.txt"
LOG = "log.txt"
PAUSE, CONTINUE, STOP, CHECKPOINT = "pause", "continue", "stop", "checkpoint"
REQUESTS = (PAUSE, CONTINUE, STOP, CHECKPOINT)
"""`pause` until `continue`; `stop` ends the run as its limits would; `checkpoint` writes the current policy."""
LIVE_REQUESTS = (STOP, CHECKPOINT)
"""Those of a run that decides in a live cluster: it cannot pause, since pods wait for its answers."""
LONGEST = 100


def post_request(folder: Path, request: str) -> None:
    """Leave a request in the folder of a run.

    Raises:
        UsageError: there is no such request.
        SteersmanError: no process trains there, another request is there, or the folder cannot be written.
    """
    if request not in REQUESTS:
        raise UsageError(f"request {request[:40]!r}: expected one of {', '.join(REQUESTS)}")
    if not is_locked(folder):
        raise SteersmanError(f"{folder}: no process trains there now, so nobody would answer")
    try:
        # O_EXCL: two requests at once cannot overwrite each other; O_NOFOLLOW: no link leads out of the folder.
        descriptor = os.open(folder / REQUEST, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    except FileExistsError:
        raise SteersmanError(
            f"{folder}: another request waits for the end of the iteration; ask again when {REQUEST} is gone"
        ) from None
    except OSError as error:
        raise SteersmanError(f"{folder / REQUEST}: cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{request}\n")


def pending_request(folder: Path) -> str:
    """Return what is asked of a run, "" if nothing is; a line that is not complete yet is nothing."""
    try:
        with open_regular_file(folder / REQUEST) as file:
            text = file.read(LONGEST).decode(errors="replace")
    except OSError:
        return ""
    # The writer may be in the middle of its line.
    return text.strip() if text.endswith("\n") else ""


def remove_request(folder: Path) -> None:
    """Remove a request that was obeyed, or that an ended run has left."""
    with suppress(FileNotFoundError):
        (folder / REQUEST).unlink()
