"""The command `steersman`: root command, errors and exit status.

The exit status is 0 for success, 1 for failure, 2 for wrong usage, and as shells have it if a signal ended the command:
130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.completion import completion_init  # type: ignore[attr-defined]

from steersman.cli.commands.advise import advise, demo
from steersman.cli.commands.cluster import app as cluster
from steersman.cli.commands.dashboard import dashboard, workbench
from steersman.cli.commands.evaluate import evaluate
from steersman.cli.commands.fit import app as fit
from steersman.cli.commands.observe import doctor, top
from steersman.cli.commands.pod import explain, wait
from steersman.cli.commands.policy import app as policy
from steersman.cli.commands.schedule import schedule
from steersman.cli.commands.serve import probe, serve
from steersman.cli.commands.simulate import simulate
from steersman.cli.commands.terminal import COMPLETE, aliases, completion, docs
from steersman.cli.commands.training import train, tune
from steersman.cli.commands.workload import app as workload
from steersman.cli.options.common import CommandGroup, HelpLevels, ManyValues
from steersman.cli.options.results import ResumableCommand
from steersman.cli.output.display import mirror_lines, one_line, say
from steersman.core.errors import SteersmanError
from steersman.core.extras import missing_extra
from steersman.core.signals import interruptible
from steersman.live.http_policy.scheme import register_http_policies
from steersman.version import __version__

INTERRUPTED = 130
TRACEBACK = "STEERSMAN_TRACEBACK"
FILES, NO_FILES = 0, 4  # directives of kubectl's completion (cobra): offer files if there is no value, or none

app = CommandGroup(name="steersman", add_completion=False, pretty_exceptions_enable=False)
CLASSES = {dashboard: ManyValues, evaluate: ResumableCommand, train: ResumableCommand, tune: ResumableCommand}
for each in (
    *(advise, aliases, completion, dashboard, demo, docs, doctor, evaluate, explain),
    *(probe, schedule, serve, simulate, top, train, tune, wait, workbench),
):
    app.command(cls=CLASSES.get(each, HelpLevels))(each)
app.add_typer(cluster, name="cluster")
app.add_typer(fit, name="fit")
app.add_typer(policy, name="policy")
app.add_typer(workload, name="workload")


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and the core, and end.")] = False,
) -> None:
    """Which scheduler should a Kubernetes cluster run, and what would it gain?

    Start with **steersman demo**; then compare schedulers on your own nodes and pods with **steersman evaluate**.
    """
    if version:
        from steersman.core.library import core_line

        print(f"steersman {__version__}")
        print(core_line())
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status. An error is one line on standard error."""
    lost = open_closed_streams()
    with interruptible() as signals:
        try:
            status = run(arguments)
        except KeyboardInterrupt:  # another signal, while the first was handled
            status = INTERRUPTED
    if status == INTERRUPTED:
        return signals.status()
    # A command that printed to a closed stream has not succeeded, since nobody has its output.
    return status or int(lost)


def run(arguments: Sequence[str] | None) -> int:
    """Run the command line with open streams; return `INTERRUPTED` for every interruption."""
    register_http_policies()
    # `main` may be called several times in a process, and the log file of an earlier call would go on.
    mirror_lines(None)
    try:
        if COMPLETE in os.environ:
            # typer itself calls it only with `add_completion`, whose options --install-completion we do not have.
            completion_init()
        # As the user calls it: kubectl finds it as a plugin.
        name = "kubectl steersman" if Path(sys.argv[0]).name == "kubectl-steersman" else "steersman"
        status = app(args=arguments, prog_name=name, complete_var=COMPLETE, standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has closed the pipe
        discard_unwritten()
        return 1
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted")
        return INTERRUPTED
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
            return 1  # how rich ends on a closed pipe
        # typer ends with this after it has printed completions.
        if isinstance(error, SystemExit) and COMPLETE in os.environ:
            return int(error.code or 0)
        if os.environ.get(TRACEBACK):
            raise
        if discard_unwritten() and isinstance(error, OSError) and error.filename is None:
            error.filename = "standard output"  # the system does not say which write failed
        message, status = describe(error)
        say(one_line(message) if status == INTERRUPTED else f"error: {one_line(message)}")
        return status
    if status == INTERRUPTED:  # typer's answer to Ctrl-C
        say("interrupted")
    return status if isinstance(status, int) else 0


def discard_unwritten() -> bool:
    """Discard what standard output does not take, and return whether there was any: Python would fail at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def complete_for_kubectl(words: Sequence[str]) -> int:
    """Print completions of a command line as kubectl wants them of a plugin; return the exit status.

    Each line is a value, a tab and its help. The last line tells what the shell does in addition.

    Args:
        words: after `kubectl steersman`; the last one is completed, and may be empty.
    """
    # Of typer's protocols only that of fish has the format of cobra: value, tab, help.
    line = shlex.join(["steersman", *words])
    os.environ |= {COMPLETE: "complete_fish", "_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    with redirect_stdout(io.StringIO()) as offered:
        status = main([])
    for value in filter(None, offered.getvalue().splitlines()):
        print(value.rstrip())
    print(f":{NO_FILES if offered.getvalue().strip() else FILES}")
    return status


def open_closed_streams() -> bool:
    """Open standard streams that were closed (`>&-`) on the null device; return whether output is lost.

    Otherwise the next file that is opened would take their place, and printing would write to it.
    """
    while (stream := os.open(os.devnull, os.O_RDWR)) <= 2:
        # As standard streams are; Python would close it in the programs that we start.
        os.set_inheritable(stream, True)
    os.close(stream)
    lost = False
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            # `closefd=False`: the number must stay taken when the object is collected.
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
            lost = True
    return lost


def describe(error: BaseException) -> tuple[str, int]:
    """Return the message of an error, and the exit status, which is never 0."""
    match error:
        case BaseExceptionGroup(exceptions=several):  # concurrent tasks; errors with a message come first
            return describe(min(several, key=lambda each: not isinstance(each, SteersmanError | BaseExceptionGroup)))
        case SteersmanError():
            return str(error), error.exit_status or SteersmanError.exit_status
        case typer.BadParameter():
            return bad_value(error), error.exit_code
        case typer.TyperException():
            return usage_hint(error.format_message()), error.exit_code
        case OSError(filename=str(file)):
            return f"{file}: {error.strerror}", 1
        case OSError():
            return str(error), 1
        case MemoryError():
            return "out of memory", 1
    if missing := missing_extra("this", error):
        return str(missing), missing.exit_status
    name = type(error).__name__
    return f"this is a bug in steersman: {name}: {error} (set {TRACEBACK}=1 to see where)", 1


NOT_A_VALUE = {
    "float_parsing": "is not a number",
    "float_type": "is not a number",
    "int_parsing": "is not a whole number",
    "int_parsing_size": "is too large",
    "int_from_float": "is not a whole number",
    "int_type": "is not a whole number",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
}
"""What the kinds of errors mean that typer has from pydantic."""


def bad_value(error: typer.BadParameter) -> str:
    """Return typer's message about an invalid value in the form of our own: `--jobs 0: must be ...`."""
    result: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    option = str(getattr(error.param, "opts", [""])[0])
    if not (result and option and result[0]["type"] in NOT_A_VALUE):
        return usage_hint(error.format_message())
    problem = NOT_A_VALUE[result[0]["type"]].format(**result[0].get("ctx", {}))
    return f"{option} {result[0]['input']}: {problem} (see --help)"


def usage_hint(message: str) -> str:
    """Return typer's message about a wrong option in the form of the other messages."""
    message = message.replace("Value error, ", "").rstrip(".")
    return f"{message[:1].lower()}{message[1:]} (see --help)"
