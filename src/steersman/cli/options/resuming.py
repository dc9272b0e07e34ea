"""`--resume` needs only `--output`: the run's folder stores the arguments of the command that began the run."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steersman.cli.options.common import ManyValues
from steersman.core.atomic_files import write_atomically
from steersman.core.errors import InputError, UsageError
from steersman.core.redaction import redact_url

COMMAND = "command.json"
WORDS = "steersman.words"
"""Key of the parsed arguments in the metadata of a context."""
SESSION_LIMITS = {"iterations", "minutes", "patience", "validate_every"}
FREE = {"output", "resume", "jobs", "engine", "progress", "log_file"} | SESSION_LIMITS
"""Options that a later session may change: when it ends, and how it is computed and shown."""


class ResumableCommand(ManyValues):
    """A command that `--resume` completes by the options of the run in `--output`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as usual, and fill in the options of the run that is resumed.

        Raises:
            UsageError: an option has another value than in the run.
            InputError: the file of the command is damaged.
        """
        words = list(args)
        rest = super().parse_args(ctx, args)
        ctx.meta[WORDS] = words
        if not ctx.params.get("resume") or not (file := ctx.params["output"] / COMMAND).exists():
            return rest
        first = type(ctx)(self, info_name=ctx.info_name, parent=ctx.parent)
        super().parse_args(first, _stored_words(file))
        given = {each for each in ctx.params if ctx.get_parameter_source(each).name == "COMMANDLINE"}
        flags = {each.name: each.opts[0] for each in self.params}
        for name in sorted(given - FREE):
            if ctx.params[name] != first.params[name]:
                raise UsageError(
                    f"{flags[name]} is not that of the run in {ctx.params['output']}; leave it out, or name a new "
                    "folder without --resume"
                )
        ctx.params |= {name: value for name, value in first.params.items() if name not in given}
        return rest


def keep_words(words: Sequence[str], folder: Path) -> None:
    """Write the words of a command that begins a run into its folder, unless one of them holds a secret.

    Raises:
        InputError: the file cannot be written.
    """
    if all(redact_url(each) == each for each in words):
        content = {"folder": os.getcwd(), "words": list(words)}
        write_atomically(folder / COMMAND, (json.dumps(content, indent=2) + "\n").encode())


def _stored_words(file: Path) -> list[str]:
    try:
        content = json.loads(file.read_text())
        folder, words = Path(content["folder"]), [str(each) for each in content["words"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(file, "", "", "is damaged; remove it, and give --resume all options of the run") from None
    if folder == Path.cwd():
        return words
    return [_from_here(each, folder) for each in words]


def _from_here(word: str, folder: Path) -> str:
    """Return a word whose value is a file of another working directory with that file's whole path."""
    flag, equals, value = word.rpartition("=") if word.startswith("--") else ("", "", word)
    is_file = bool(value) and not value.startswith("-") and (folder / value).exists()
    return f"{flag}{equals}{folder / value}" if is_file else word
