"""Options of commands that talk to a cluster: which one, and names as Kubernetes has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from steersman.cli.options import path
from steersman.errors import InputError

if TYPE_CHECKING:
    from steersman.kube.client import Client
    from steersman.live.target import Target

T = TypeVar("T")


def dns_label(text: str) -> str:
    """A name as Kubernetes wants it for a namespace."""
    if not re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", text):
        raise ValueError(f"{text!r} is no name of a namespace; a-z, 0-9 and - inside, at most 63, are right")
    return text


def optional_dns_label(text: str) -> str:
    """The name of a namespace, or nothing."""
    return dns_label(text) if text else ""


def scheduler(text: str) -> str:
    """The name of a scheduler."""
    if not re.fullmatch("[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", text):
        raise ValueError(f"{text!r} is no name of a scheduler; letters, digits and - . _ inside are right")
    return text


def optional_scheduler(text: str) -> str:
    """The name of a scheduler, or nothing."""
    return scheduler(text) if text else ""


Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        parser=path,
        metavar="FILE",
        help="Which cluster. [default: $KUBECONFIG, else the one of 'steersman cluster up', else ~/.kube/config]",
    ),
]
Context = Annotated[
    str | None, typer.Option(metavar="NAME", help="A context of --kubeconfig. [default: its current one]")
]
ClusterName = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="A cluster of 'steersman cluster up --name' instead.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do so even in a cluster that steersman did not start.")]


def check_new_folder(output: Path) -> None:
    """Raise InputError before anything is watched if what is to be written would take the place of something."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(output, "", "", "is there already and not an empty folder; name a new one")


def find_cluster(kubeconfig: Path | None, context: str | None, name: str | None) -> Target:
    """The cluster that these options mean, see `live.target`. Raises SteersmanError: there is none."""
    from steersman.live.target import find

    return find(kubeconfig, context, name)


def ask_cluster(target: Target, question: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """What a coroutine finds out from, or does to, a cluster. Raises SteersmanError: it does not answer."""
    from steersman.kube.client import ApiError, Client
    from steersman.live.running import run

    async def ask() -> T:
        async with Client(target.config) as client:
            try:
                await client.request("GET", "/version")  # later failures are waited for, this one is not
            except ApiError as error:
                if error.status != 403:
                    raise
            return await question(client)

    return run(ask())
