"""`steersman aliases`, `completion` and `docs`: what a shell sources, and the documentation in a browser."""

from __future__ import annotations

import enum
import os
import shlex
import webbrowser
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from steersman.core.errors import SteersmanError, checkout_of_this


class Shell(enum.StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def current_shell() -> Shell:
    """Return the shell of $SHELL; bash, whose syntax others share, if it is none of those known here."""
    name = Path(os.environ.get("SHELL", "")).name
    return Shell(name) if name in set(Shell) else Shell.BASH


ALIASES = {
    "runsim": "steersman workload run",
    "rundqn": "steersman schedule --learn runs/dqn --algorithm dqn --network mlp",
    "rungnn": "steersman schedule --learn runs/gnn --algorithm dqn --network gnn",
    "runacdqn": "steersman schedule --learn runs/acdqn --algorithm actor-critic --network mlp",
    "runacgnn": "steersman schedule --learn runs/acgnn --algorithm actor-critic --network gnn",
    "create_nodes": "steersman cluster nodes add --node-shape 64cpu,256Gi,110pods",
    "cleancluster": "steersman cluster clean",
    "ktop": "steersman top",
    "k": "steersman cluster kubectl",
    "kg": "steersman cluster kubectl get",
    "kgn": "steersman cluster kubectl get nodes",
    "kgp": "steersman cluster kubectl get pods",
    "kge": "steersman cluster kubectl get events --sort-by=.metadata.creationTimestamp",
    "kd": "steersman cluster kubectl describe",
    "kdp": "steersman cluster kubectl describe pod",
    "kdel": "steersman cluster kubectl delete",
    "kl": "steersman cluster kubectl logs",
    "aliases": "steersman aliases",
}
"""AAML's names. Agents learn in folders below `runs`, which the TensorBoard of the workbench shows."""


def aliases(
    shell: Annotated[Shell | None, typer.Option(help="Syntax of the aliases. [default: that of $SHELL]")] = None,
) -> None:
    """Print aliases with the names of AAML's commands: runsim, rundqn, rungnn, cleancluster, ktop, kgp, ...

    Further options may follow, as in **rundqn --hidden 128,64** and **runsim -h**. kubectl's shortcuts use the cluster
    of 'steersman cluster up'.

    **In bash and zsh**: eval "$(steersman aliases)"

    **In fish**: steersman aliases | source
    """
    equals = " " if (shell or current_shell()) is Shell.FISH else "="
    for name, command in ALIASES.items():
        print(f"alias {name}{equals}{shlex.quote(command)}")


COMPLETE = "_STEERSMAN_COMPLETE"  # environment variable by which a shell's script asks for completions


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


def docs(
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the first page in a browser.")] = True,
) -> None:
    """Open the documentation in a browser, and print the path of its first page. It needs no network.

    **Example**: steersman docs --no-open
    """
    page = first_page()
    print(page)
    if browser:
        webbrowser.open(page.as_uri())


def first_page() -> Path:
    """Return the first page of the site, in the package or in the checkout. Raises SteersmanError: it is not there."""
    checkout = checkout_of_this()
    folder = checkout / "build" if checkout else Path(str(resources.files("steersman.data")))
    page = folder / "site" / "index.html"
    if not page.is_file():
        builds = f"make -C {checkout} site builds it" if checkout else "wheels of 'make wheel' have it"
        raise SteersmanError(f"{page}: there is no documentation; {builds}")
    return page
