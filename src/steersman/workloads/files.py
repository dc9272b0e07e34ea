"""Workload files on disk: which ones a folder holds, what their names mean, and whether one can be written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from steersman.core.atomic_files import STAGE
from steersman.core.errors import InputError, UsageError

YAML_SUFFIXES = (".yaml", ".yml", ".json", ".yaml.gz", ".yml.gz", ".json.gz")
CSV_SUFFIXES = (".csv", ".csv.gz")
SWF_SUFFIXES = (".swf", ".swf.gz")
STDIN = Path("/dev/stdin")
HIERARCHY_SUFFIX = "-hier"  # of the stem of a file by `workload topology`, which replaces its original

_piped: dict[tuple[Path, int, int], bytes] = {}  # what came through pipes


def stem(path: Path) -> str:
    """Return a file's name without its suffixes: `pods` of `pods.csv.gz`."""
    for suffix in sorted((*YAML_SUFFIXES, *CSV_SUFFIXES, *SWF_SUFFIXES), key=len, reverse=True):
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix)
    return path.name


def input_path(path: str | Path) -> Path:
    """Return the path of an input; `-` is the standard input."""
    return STDIN if str(path) == "-" else Path(path)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file. What came through a pipe is remembered: it can be read once. Raises OSError."""
    if path.is_file():
        return path.read_bytes()
    status = path.stat()
    # Pipes of the same path are told apart.
    key = path, status.st_dev, status.st_ino
    if key not in _piped:
        _piped[key] = path.read_bytes()
    return _piped[key]


def folder_files(folder: Path, suffixes: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Return the files below a folder with one of the suffixes, sorted, and those that a `-hier` file replaces.

    Replaced files are not among the first.
    """
    files = visible_files(folder, suffixes)
    stems = {p.parent / stem(p) for p in files}
    replaced = [p for p in files if p.parent / (stem(p) + HIERARCHY_SUFFIX) in stems]
    return [p for p in files if p not in replaced], replaced


def visible_files(folder: Path, suffixes: Iterable[str]) -> list[Path]:
    """Return the files below a folder with one of the suffixes, sorted, without hidden files and folders."""
    paths: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=_unreadable):
        # In place, by which os.walk learns where to go.
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += (Path(root, n) for n in names if n.endswith(tuple(suffixes)) and not n.startswith("."))
    for path in paths:
        if path.is_symlink() and not path.exists():
            raise InputError(path, "", "", f"is a link to {os.readlink(path)}, which is not there")
    return sorted(path for path in paths if path.is_file())


def check_writable(option: str, path: Path, name: str = "") -> None:
    """Check before a long run that the option's path, or file `name` in it, can be written; leave nothing behind."""
    target = Path(os.path.realpath(path)) / name  # `new/../x` is `x`, and does not create `new`
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
