"""Cache of planned loss tables on disk, since `policies.gpu_state.planning` takes about a second per profile.

A file is one table of 1,001 float64, named by a digest of the profile, of the planning code and of the versions of the
libraries that it computes with. It is only read as numbers, and a damaged file is recomputed. Files are written under a
temporary name and renamed, so that concurrent readers and writers never see a partial file.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI
from steersman.core.atomic_files import write_atomically
from steersman.core.compiled import cache_root, delete_least_recently_used
from steersman.core.errors import InputError

FOLDER = "planned"
SUFFIX = ".table"
MOST_FILES = 1024  # largest number of files, about 8 MB; the least recently used are deleted
DIGEST_BYTES = 32
SIZE = DIGEST_BYTES + 8 * (GPU_MILLI + 1)

Array = npt.NDArray[np.float64]


def kept(key: bytes, sources: tuple[Path, ...], plan: Callable[[], Array]) -> Array:
    """Return the cached table, [1001] GPUs, of a key; if there is none, compute and cache it.

    Args:
        key: serialized inputs of the table.
        sources: source files that compute the table.
        plan: computes the table.
    """
    name = hashlib.sha256(_version(sources) + key).hexdigest()
    file = cache_root() / FOLDER / f"{name}{SUFFIX}"
    table = _read(file)
    if table is None:
        table = plan()
        _write(file, table)
    return table


@cache
def _version(sources: tuple[Path, ...]) -> bytes:
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    # Other versions may round differently, and tables must be the same for the same profile.
    for source in sources:
        digest.update(ast.dump(ast.parse(source.read_bytes())).encode())  # a comment changes nothing
    return digest.digest()


def _read(file: Path) -> Array | None:
    """Return the table of a file; None if the file does not exist or is damaged."""
    try:
        with open(file, "rb") as opened:
            # One byte more than expected, so that a longer file is recognised.
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
    """Write a table to a file; do nothing if the folder is not writable."""
    body = table.astype("<f8").tobytes()
    with suppress(OSError, InputError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, hashlib.sha256(body).digest() + body)
        delete_least_recently_used(file.parent, MOST_FILES)
