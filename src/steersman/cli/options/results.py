"""Options of comparisons: where results go and how they are computed. `--resume` needs only `--output`.

The folder stores the command that began what it continues.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steersman.cli.options.common import EngineOption, Format, FormatOption, Jobs, ManyValues, Output
from steersman.cli.options.declaring import option
from steersman.cli.output.logs import MessagesFileOption
from steersman.core.engines import Engine
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.core.stored_command import COMMAND, StoredCommand, read_command


@dataclass(frozen=True, slots=True)
class Results:
    """Where results go, and how many processes compute them; a report does not record these: they change no result."""

    output: Output = Path("comparison")
    jobs: Jobs = None
    engine: EngineOption = Engine.LOCAL
    output_format: FormatOption = Format.TABLE
    log_file: MessagesFileOption = None
    resume: bool = option(
        "Continue the interrupted comparison in --output by its own options; its finished runs are not done again.",
        default=False,
    )


ALWAYS_FREE = {"output", "resume", "jobs", "log_file"}
FREE = {
    "train": ALWAYS_FREE | {"iterations", "minutes", "patience", "validate_every", "engine", "progress"},
    "tune": ALWAYS_FREE | {"trials", "minutes"},
    "evaluate": ALWAYS_FREE | {"engine", "output_format"},
}
"""Command -> options that a later command may change: when it ends, and how it is computed and shown."""
BEGUN = "steersman.begun"  # key of the command in the metadata of its context


class InterruptedRunError(SteersmanError):
    exit_status = 130


class ResumableCommand(ManyValues):
    """A command that `--resume` completes by the options that the folder in `--output` stores."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as usual, and fill in the stored options."""
        ctx.meta[BEGUN] = StoredCommand(ctx.info_name, tuple(args), Path.cwd())
        rest = super().parse_args(ctx, args)
        folder = ctx.params.get("output")
        if not ctx.params.get("resume"):
            return rest
        given = {each for each in ctx.params if ctx.get_parameter_source(each).name == "COMMANDLINE"}
        if not (folder / COMMAND).exists():
            if given <= FREE[ctx.info_name]:
                problem = f"there is no {folder / COMMAND} to continue by"
                raise UsageError(f"--resume: {problem}; give all options again, or leave out --resume to start")
            return rest
        ctx.meta[BEGUN] = stored = read_command(folder)
        if stored.name != ctx.info_name:
            raise InputError(
                folder / COMMAND, "", "", f"is of steersman {stored.name}; name a folder of {ctx.info_name}"
            )
        first = type(ctx)(self, info_name=ctx.info_name, parent=ctx.parent)
        super().parse_args(first, stored.words_from(Path.cwd()))
        flags = {each.name: each.opts[0] for each in self.params}
        for name in sorted(given - FREE[ctx.info_name]):
            if ctx.params[name] != first.params[name]:
                raise UsageError(
                    f"{flags[name]} is not that of the run in {folder}; leave it out, or name a new folder without "
                    "--resume"
                )
        ctx.params |= {name: value for name, value in first.params.items() if name not in given}
        return rest


def continuation(command: StoredCommand, folder: Path) -> str:
    if not (folder / COMMAND).exists():  # a word holds a secret
        return "to continue: the same command with --resume"
    return f"to continue: {shlex.join(['steersman', command.name, '--output', str(folder), '--resume'])}"


@contextmanager
def naming_continuation(command: StoredCommand, folder: Path, needed: str = "") -> Iterator[None]:
    """Name the command that continues an interrupted one, if there is its folder, or the file there that this needs."""
    try:
        yield
    except KeyboardInterrupt as interruption:
        if not (folder / needed).exists():
            raise
        raise InterruptedRunError(f"interrupted; {continuation(command, folder)}") from interruption
