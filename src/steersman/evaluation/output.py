"""The folder of results: nobody else's files are overwritten, and nothing changes before all files are written."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from steersman.core.atomic_files import STAGE, filling, naming_in_errors
from steersman.core.counting import first_names
from steersman.core.errors import InputError, UsageError
from steersman.core.folder_lock import LOCK
from steersman.core.stored_command import COMMAND, read_command
from steersman.evaluation.replay_file import REPLAY, REPLAY_START
from steersman.evaluation.results import COMMANDS, FINISHED, FINISHED_START, REPORT, REPORT_MARK, first_lines
from steersman.policies.files.policy_file import SUFFIX, read_policy
from steersman.workloads.files import check_writable

MARK_WITHIN_BYTES = 1024
FORMATS = ("table", "json", "csv", "yaml")
"""Names that are formats to users of kubectl."""


def check_output(folder: Path, files: Collection[str]) -> None:
    """Check that `files` may be written to `folder`, new, empty, or with earlier results of these names."""
    if folder.name in FORMATS and str(folder) == folder.name and not folder.exists():
        raise UsageError(f"--output {folder}: names a folder; for the printed format give --format {folder}")
    target = Path(os.path.realpath(folder))  # `new/../x` is `x`, and does not create `new`
    if os.path.isdir(target):  # also of a name that is too long
        entries = sorted(each for each in target.iterdir() if each.name != LOCK and not each.name.startswith(STAGE))
        for entry in entries:
            _check_entry(folder, entry, files)
        if entries and not any(entry.name in files for entry in entries):
            problem = f"holds {first_names([entry.name for entry in entries])}, and no earlier result of this command"
            raise UsageError(f"--output {folder}: {problem}; name another folder")
    check_writable("--output", folder, max(files, key=len))


def _check_entry(folder: Path, entry: Path, files: Collection[str]) -> None:
    if entry.name in files and not is_result(entry):
        problem = f"{entry.name} is there and no result of steersman, and would be written over"
    elif entry.name not in files and is_result(entry):
        problem = f"the folder holds {entry.name} of an earlier steersman {COMMANDS[entry.name]}"
    else:
        return
    raise UsageError(f"--output {folder}: {problem}; name another folder")


def is_result(path: Path) -> bool:
    """Return whether a file was written by steersman, by its name and its first line."""
    if path.name not in COMMANDS or not path.is_file():
        return False
    try:
        if path.name == COMMAND:
            return read_command(path.parent).name == COMMANDS[COMMAND]
        if path.suffix == SUFFIX:
            read_policy(path)
            return True
        with path.open("rb") as file:
            if start := {REPLAY: REPLAY_START, FINISHED: FINISHED_START}.get(path.name):
                return gzip.GzipFile(fileobj=file).read(len(start)) == start
            if path.name == REPORT:
                return REPORT_MARK.encode() in file.read(MARK_WITHIN_BYTES)
            return file.readline().decode(errors="replace").rstrip("\r\n") in first_lines(path.name)
    except (OSError, EOFError, zlib.error, InputError):
        return False


@contextmanager
def staged(folder: Path, replaced: Collection[str] = ()) -> Iterator[Path]:
    """Yield a folder to write result files to. They move to `folder` if the block succeeds; otherwise nothing changes.

    A new folder appears with all files at once; in an existing one they are replaced one by one. Earlier results among
    `replaced` that were not written again are removed.
    """
    with filling(folder) as stage:
        yield stage
        written = {entry.name for entry in stage.iterdir()}
    # Only after the new files are in place.
    for name in replaced:
        if name not in written and is_result(folder / name):
            with naming_in_errors(folder / name):
                (folder / name).unlink()
