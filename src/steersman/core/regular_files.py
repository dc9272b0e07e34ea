"""Open files of folders that another person or process may have filled."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular_file(path: Path) -> BinaryIO:
    """Open a regular file for reading; follow no link, and never wait, as `open` does for the writer of a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is no regular file")
    return os.fdopen(descriptor, "rb")
