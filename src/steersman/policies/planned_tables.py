"""Planned tables kept in the user's cache folder: what `policies.planning` works out in a second is looked up.

A file is one table of 1,001 float64, named by a digest of the mix, of the code that plans and of the libraries whose
arithmetic it rests on. It is never executed, only read as numbers, and one that is not what was written is worked out
anew. Files are written under another name and renamed, so that readers and other writers never see half of one.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import WHOLE
from steersman.compiled import cache_root

FOLDER = "planned"
SUFFIX = ".table"
MOST_FILES = 1024
"""About 8 MB; beyond that those that were not looked at for longest go."""
DIGEST_BYTES = 32
SIZE = DIGEST_BYTES + 8 * (WHOLE + 1)

Array = npt.NDArray[np.float64]


def kept(key: bytes, sources: tuple[Path, ...], plan: Callable[[], Array]) -> Array:
    """Look up the table, [1001] GPUs, of a key, or make it by `plan` and keep it.

    Args:
        key: all that the table depends on beside the code.
        sources: files of the code that it depends on.
        plan: works it out.
    """
    name = hashlib.sha256(_version(sources) + key).hexdigest()
    file = cache_root() / FOLDER / f"{name}{SUFFIX}"
    found = _read(file)
    if found is None:
        found = plan()
        _write(file, found)
    return found


@cache
def _version(sources: tuple[Path, ...]) -> bytes:
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.digest()


def _read(file: Path) -> Array | None:
    """The table of a file; None: there is none, or it is not what was written."""
    try:
        with open(file, "rb") as opened:
            content = opened.read(SIZE + 1)
        os.utime(file)
    except OSError:
        return None
    body = content[DIGEST_BYTES:]
    if len(content) != SIZE or hashlib.sha256(body).digest() != content[:DIGEST_BYTES]:
        return None
    table = np.frombuffer(body, dtype="<f8").astype(np.float64)
    return table if np.isfinite(table).all() else None


def _write(file: Path, table: Array) -> None:
    """Keep a table; where nothing can be written it is worked out anew each time."""
    body = table.astype("<f8").tobytes()
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, suffix=".tmp")
        try:
            with open(handle, "wb") as opened:
                opened.write(hashlib.sha256(body).digest() + body)
            os.replace(name, file)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
        _bound(file.parent)


def _bound(folder: Path) -> None:
    """Delete what was not looked at for longest; another process may be doing the same."""
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_file():
                    files.append((entry.stat().st_mtime, entry.path))
    for _, path in sorted(files)[:-MOST_FILES]:
        with suppress(OSError):
            os.unlink(path)
