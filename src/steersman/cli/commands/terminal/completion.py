"""`steersman completion`: the script by which a shell completes our commands, options and values."""

from __future__ import annotations

from typing import Annotated

import typer

from steersman.cli.commands.terminal.shells import Shell, current_shell

COMPLETE = "_STEERSMAN_COMPLETE"
"""Environment variable by which a shell's script asks for completions."""


def completion(
    shell: Annotated[Shell | None, typer.Argument(help="Shell to complete in. [default: that of $SHELL]")] = None,
) -> None:
    """Print the script that completes commands, options and values in a shell.

    Completed are also policies and policy files, workloads, contexts, objectives, algorithms and networks.

    **In bash and zsh**: eval "$(steersman completion)"

    **In fish**: steersman completion | source
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    shell = shell or current_shell()
    print(get_completion_script(prog_name="steersman", complete_var=COMPLETE, shell=shell.value))
