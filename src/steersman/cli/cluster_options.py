"""Options of commands that talk to a cluster: which one, and names as Kubernetes has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from steersman.cli.display import say
from steersman.cli.options import path
from steersman.errors import InputError
from steersman.workloads.files import check_writable

if TYPE_CHECKING:
    from steersman.kube.client import Client
    from steersman.live.target import Target

T = TypeVar("T")

DEFAULT_CLUSTER = "$KUBECONFIG, else ~/.kube/config, else the pod's own, else the one of 'steersman cluster up'"
"""kubectl's order; the local cluster comes last."""


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
        help=f"Which cluster. [default: {DEFAULT_CLUSTER}]",
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
    check_writable("--output", output, "file")


def find_cluster(kubeconfig: Path | None, context: str | None, name: str | None) -> Target:
    """Return the cluster that these options mean, see `live.target`; say so where the local one is the only choice.

    Raises:
        SteersmanError: there is none.
    """
    from steersman.live.target import find

    target = find(kubeconfig, context, name)
    if target.by_default:
        say(
            f"using the cluster of 'steersman cluster up' at {target.config.cluster.server}: neither $KUBECONFIG nor "
            "~/.kube/config names another"
        )
    return target


def log_cluster(target: Target) -> None:
    """Log which cluster a long-running command talks to."""
    import structlog

    config = target.config
    structlog.get_logger("cluster").info(
        "cluster", context=config.context, server=config.cluster.server, source=str(config.source)
    )


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
