"""The command that began a run, a study or a comparison, in its folder: `--resume` continues by it alone."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from steersman.core.atomic_files import write_atomically
from steersman.core.errors import InputError
from steersman.core.redaction import redact_url

COMMAND = "command.json"


@dataclass(frozen=True, slots=True)
class StoredCommand:
    """A command of the command line: its name, the words after that, and its working directory."""

    name: str
    words: tuple[str, ...]
    folder: Path

    def store(self, folder: Path, *further: str) -> None:
        """Write the command into the folder that it opens, unless one of its words holds a secret."""
        words = [*self.words, *further]
        if any(redact_url(each) != each for each in words):
            (folder / COMMAND).unlink(missing_ok=True)
            return
        content = {"command": self.name, "folder": str(self.folder), "words": words}
        write_atomically(folder / COMMAND, (json.dumps(content, indent=2) + "\n").encode())

    def words_from(self, folder: Path) -> list[str]:
        """Return the words as they are given in another working directory."""
        return list(self.words) if folder == self.folder else [_from_here(each, self.folder) for each in self.words]


def read_command(folder: Path) -> StoredCommand:
    """Return the command that a folder stores. Raises InputError: there is none, or it is damaged."""
    file = folder / COMMAND
    try:
        content = json.loads(file.read_text())
        return StoredCommand(str(content["command"]), tuple(map(str, content["words"])), Path(content["folder"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(file, "", "", "is damaged; remove it, and give --resume all options again") from None


def _from_here(word: str, folder: Path) -> str:
    """Return a word whose value is a file of another working directory with that file's whole path."""
    flag, equals, value = word.rpartition("=") if word.startswith("--") else ("", "", word)
    is_file = bool(value) and not value.startswith("-") and os.path.exists(folder / value)
    return f"{flag}{equals}{folder / value}" if is_file else word
