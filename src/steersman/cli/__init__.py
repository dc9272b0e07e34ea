"""The command `steersman`: what it answers, and how it ends (0 fine, 1 failed, 2 wrong usage, 130 interrupted)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import steersman
from steersman.cli.demo import demo
from steersman.cli.display import one_line, say
from steersman.cli.evaluate import evaluate
from steersman.cli.options import ManyValues
from steersman.cli.simulate import simulate
from steersman.cli.workload import app as workload
from steersman.errors import SteersmanError

INTERRUPTED = 130
TRACEBACK = "STEERSMAN_TRACEBACK"

app = typer.Typer(
    name="steersman",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command(cls=ManyValues)(evaluate)
app.command()(simulate)
app.add_typer(workload, name="workload")


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    """Which scheduler should a Kubernetes cluster run, and what would it gain?

    Start with **steersman demo**; then compare schedulers on your own nodes and pods with **steersman evaluate**.
    """
    if version:
        print(f"steersman {steersman.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status. An error is one line on standard error."""
    try:
        status = app(args=arguments, prog_name="steersman", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # Who read our output has gone. Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted")
        return INTERRUPTED
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        message, status = describe(error)
        say(one_line(message) if status == INTERRUPTED else f"error: {one_line(message)}")
        return status
    if status == INTERRUPTED:  # typer's answer to Ctrl-C
        say("interrupted")
    return status if isinstance(status, int) else 0


def describe(error: Exception) -> tuple[str, int]:
    """What a user is told about an error, and the exit status."""
    match error:
        case SteersmanError():
            return str(error), error.exit_status
        case typer.TyperException():
            return usage_hint(error.format_message()), error.exit_code
        case OSError(filename=str(file)):
            return f"{file}: {error.strerror}", 1
        case OSError():
            return str(error), 1
        case MemoryError():
            return "out of memory", 1
    name = type(error).__name__
    return f"this is a bug in steersman: {name}: {error} (set {TRACEBACK}=1 to see where)", 1


def usage_hint(message: str) -> str:
    """Typer's message about a wrong option, as the other messages are written."""
    message = message.replace("Value error, ", "").rstrip(".")
    return f"{message[:1].lower()}{message[1:]} (see --help)"
