"""Files in the user's cache folder, which are whole or not read."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from steersman.core.atomic_files import write_atomically
from steersman.core.errors import InputError

DIGEST_BYTES = hashlib.sha256().digest_size


def cache_root() -> Path:
    """Return the user's cache folder: `$STEERSMAN_CACHE_DIR`, else below `$XDG_CACHE_HOME` or `~/.cache`."""
    own = os.environ.get("STEERSMAN_CACHE_DIR")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "steersman"


def read_cached(file: Path) -> bytes | None:
    """Return the content of a file that `write_cached` wrote; None if there is none, or it is damaged."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    body = content[DIGEST_BYTES:]
    return body if hashlib.sha256(body).digest() == content[:DIGEST_BYTES] else None


def write_cached(file: Path, body: bytes) -> None:
    """Write a file with a digest of its content; a folder that cannot be written to gets none."""
    with suppress(OSError, InputError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, hashlib.sha256(body).digest() + body)
