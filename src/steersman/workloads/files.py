"""Workload files on disk: which a folder holds, what their names mean, and writing without ever leaving half a file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from steersman.errors import InputError, UsageError

YAML_SUFFIXES = (".yaml", ".yml", ".json", ".yaml.gz", ".yml.gz", ".json.gz")
CSV_SUFFIXES = (".csv", ".csv.gz")
STAGE = ".steersman-"
"""Begins the names of folders that are there only while something is written."""
HIERARCHY_SUFFIX = "-hier"
"""Ends the stem of a file that `workload topology` wrote beside its original, and which stands for it."""


def stem(path: Path) -> str:
    """A file's name without its suffixes: `pods` of `pods.csv.gz`."""
    for suffix in sorted((*YAML_SUFFIXES, *CSV_SUFFIXES), key=len, reverse=True):
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix)
    return path.name


def folder_files(folder: Path, suffixes: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """The files below a folder with one of the suffixes, sorted, and those that a `-hier` file stands for.

    The latter are no part of the former.

    Raises:
        InputError: see `visible_files`.
    """
    files = visible_files(folder, suffixes)
    stems = {p.parent / stem(p) for p in files}
    replaced = [p for p in files if p.parent / (stem(p) + HIERARCHY_SUFFIX) in stems]
    return [p for p in files if p not in replaced], replaced


def visible_files(folder: Path, suffixes: Iterable[str]) -> list[Path]:
    """The files below a folder with one of the suffixes, sorted. Hidden files and folders are no part of it.

    Raises:
        InputError: a folder cannot be read, or a link among the files leads nowhere.
    """
    found: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += (Path(root, n) for n in names if n.endswith(tuple(suffixes)) and not n.startswith("."))
    for path in found:
        if path.is_symlink() and not path.exists():
            raise InputError(path, "", "", f"is a link to {os.readlink(path)}, which is not there")
    return sorted(path for path in found if path.is_file())


def check_writable(option: str, path: Path, name: str = "") -> None:
    """Find out before a long run whether a file can be written; nothing is left behind.

    Args:
        option: that says where, for the message.
        path: the file, or the folder that it is to be in. Folders that are missing are made when it is written.
        name: of the file, if `path` is a folder.

    Raises:
        UsageError: the file system refuses the place, the name or a write.
    """
    target = Path(os.path.realpath(path)) / name  # `new/../x` is `x`, and makes no `new`
    if not name and os.path.isdir(target):  # also of a name that is too long
        raise UsageError(f"{option} {path}: is a folder; a file is to be written there")
    try:
        existing = target.parent
        while not os.path.lexists(existing) and existing != existing.parent:
            existing = existing.parent
        if not existing.is_dir():
            raise UsageError(f"{option} {path}: {existing} is not a folder")
        with tempfile.TemporaryDirectory(prefix=STAGE, dir=existing) as stage:
            inside = Path(stage, target.relative_to(existing))
            inside.parent.mkdir(parents=True, exist_ok=True)
            inside.touch()
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot be written: {error.strerror}") from None


def _unreadable(error: OSError) -> None:
    raise InputError(str(error.filename), "", "", f"cannot be read: {error.strerror}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that becomes `path` when the block ends well, and vanishes when it does not.

    Raises:
        InputError: the folder of `path` is missing or cannot be written, or `path` is a folder.
    """
    if path.is_dir():
        raise InputError(path, "", "", "is a folder; a file is to be written there")
    with _temporary(path) as folder:
        part = folder / path.name
        yield part
        part.replace(path)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path` that becomes `path` when the block ends well, and vanishes when it does not.

    Raises:
        InputError: there is something at `path` already (an empty folder is fine), or its folder cannot be written.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(path, "", "", "is there already and not an empty folder; name a new one")
    with _temporary(path) as folder:
        part = folder / path.name
        part.mkdir()
        yield part
        if path.exists():
            path.rmdir()
        part.replace(path)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """A private folder on the file system of `path`, gone afterwards."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise InputError(path, "", "", f"cannot be written: {error.strerror}") from None
    try:
        yield folder
    except OSError as error:
        raise InputError(path, "", "", f"cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
