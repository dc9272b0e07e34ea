"""Write whole files so that a reader sees the former content or the new one, and a failure leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from steersman.core.errors import InputError

PART = ".part"


def write_atomically(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Replace a file, or create it; if that fails, the former file stays and the temporary one is removed.

    Args:
        path: the file; its folder exists.
        content: of the whole file.
        sync: whether the content must be on the disk before the file is replaced, as it must if the machine may stop.

    Raises:
        OSError: the file cannot be written.
    """
    part = path.with_name(f"{path.name}{PART}")
    try:
        with open(part, "wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


@contextmanager
def naming_in_errors(path: Path) -> Iterator[None]:
    """Name a file or folder in an OSError of the block: the system does not say which write failed.

    Raises:
        InputError: in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise InputError(path, "", "", f"cannot be written: {error.strerror or error}") from None
