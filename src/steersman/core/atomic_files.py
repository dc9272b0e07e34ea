"""Write files and folders so that a reader sees all of the previous content or all of the new one.

Each write has a private folder next to its target, so that any number of processes may write one file at the same time:
the last one that ends wins. A failed write changes nothing and leaves nothing behind.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from steersman.core.errors import InputError

STAGE = ".steersman-"  # prefix of folders that exist only while something is written


def write_atomically(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Replace a file, or create it in an existing folder."""
    with naming_in_errors(path), _replacing(path, sync) as part:
        part.write_bytes(content)


@contextmanager
def replacing(path: Path, *, sync: bool = False) -> Iterator[Path]:
    """Yield a temporary path of the same name that replaces `path` if the block succeeds and is removed if it fails.

    Missing folders are created. A file that is replaced keeps its permissions; of a link the target is replaced.

    Args:
        sync: whether the content must be on the disk before the file is replaced, as it must if the machine may stop.
    """
    with naming_in_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _replacing(path, sync) as part:
            yield part


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` if the block succeeds and is removed if it fails."""
    with naming_in_errors(path):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InputError(path, "", "", "exists already and is not an empty folder; name a new one")
        path.parent.mkdir(parents=True, exist_ok=True)
        with _private_folder(path.parent) as stage:
            part = stage / path.name
            part.mkdir()
            yield part
            if path.exists():
                path.rmdir()
            part.rename(path)


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder whose files move to `folder` if the block succeeds; otherwise nothing changes.

    A new folder appears with all files at once; in an existing one they are replaced one by one.
    """
    folder = Path(os.path.realpath(folder))
    missing = _first_missing(folder)
    with naming_in_errors(folder), _private_folder(folder if missing is None else missing.parent) as stage:
        try:
            yield stage
            if missing is not None and _become(stage, folder):
                return
            # The folder existed, or another process has created it meanwhile.
            with _locked(folder):  # files of two writers do not mix
                for name in sorted(entry.name for entry in stage.iterdir()):
                    (stage / name).replace(folder / name)
        except OSError as error:
            written = Path(error.filename).name if isinstance(error.filename, str) else _latest(stage)
            raise InputError(folder / written, "", "", f"cannot be written: {error.strerror or error}") from None


def set_aside(path: Path) -> Path | None:
    """Rename a file to the first free of `NAME.1`, `NAME.2`, ...; return that, None if there is no such file."""
    if not path.exists():
        return None
    target = _free_name(path)
    with naming_in_errors(path):
        path.rename(target)
    return target


def keep_copy(path: Path) -> Path:
    """Copy a file that is about to be replaced to the first free of `NAME.1`, `NAME.2`, ..., and return that."""
    target = _free_name(path)
    with replacing(target) as part:
        shutil.copy2(path, part)
    return target


@contextmanager
def naming_in_errors(path: Path) -> Iterator[None]:
    """Name a file or folder in an OSError of the block: the system does not say which write failed."""
    try:
        yield
    except OSError as error:
        raise InputError(path, "", "", f"cannot be written: {error.strerror or error}") from None


@contextmanager
def _replacing(path: Path, sync: bool) -> Iterator[Path]:
    """Yield a temporary path whose file replaces that of `path`; raises OSError or InputError."""
    target = Path(os.path.realpath(path))
    with suppress(FileNotFoundError):
        if not stat.S_ISREG((existing := target.stat()).st_mode):
            is_folder = stat.S_ISDIR(existing.st_mode)
            raise InputError(path, "", "", f"is {'a folder' if is_folder else 'a device or pipe'}; expected a file")
    with _private_folder(target.parent) as stage:
        part = stage / target.name
        yield part
        _keep_access(target, part)
        if sync:
            _sync(part)
        part.replace(target)
        if sync:
            # The rename is an entry of the folder, which has to reach the disk by itself.
            _sync(target.parent)


@contextmanager
def _private_folder(parent: Path) -> Iterator[Path]:
    stage = Path(tempfile.mkdtemp(prefix=STAGE, dir=parent))
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _become(stage: Path, folder: Path) -> bool:
    """Rename a temporary folder; return False if the folder was created meanwhile."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # mkdtemp makes folders that only their owner may read. A process's umask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    stage.chmod(0o777 & ~mask)
    try:
        stage.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        return False
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait for other processes that move files into a folder; do not wait where folders cannot be locked."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _keep_access(target: Path, part: Path) -> None:
    """Give a new file the owner and the permissions of the one that it replaces, as far as the system lets us."""
    with suppress(FileNotFoundError):
        existing = target.stat()
        with suppress(PermissionError):
            # Before chmod, since chown may clear bits of the mode.
            os.chown(part, existing.st_uid, existing.st_gid)
        part.chmod(stat.S_IMODE(existing.st_mode))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _free_name(path: Path) -> Path:
    number = 1
    while os.path.lexists(target := path.with_name(f"{path.name}.{number}")):
        number += 1
    return target


def _latest(stage: Path) -> str:
    """Return the name of the last file that was written: the system does not say which write failed."""
    return max(stage.iterdir(), key=lambda path: path.stat().st_mtime_ns, default=Path()).name


def _first_missing(folder: Path) -> Path | None:
    missing = None
    while not folder.exists():
        missing, folder = folder, folder.parent
    return missing


def open_regular_file(path: Path) -> BinaryIO:
    """Open a regular file for reading; follow no link, and never wait, as `open` does for the writer of a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is no regular file")
    return os.fdopen(descriptor, "rb")
