"""Options of commands that talk to a cluster: which one, and names as Kubernetes allows them."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from steersman.cli.completing import contexts
from steersman.cli.options.common import path
from steersman.cli.output.display import say
from steersman.core.errors import InputError
from steersman.workloads.files import check_writable

if TYPE_CHECKING:
    from steersman.apps.load.target import ClusterTarget
    from steersman.kubernetes.client import Client
    from steersman.policies.base import Policy

T = TypeVar("T")

DEFAULT_CLUSTER = "$KUBECONFIG, else ~/.kube/config, else the pod's own, else the one of 'steersman cluster up'"
"""kubectl's order; the local cluster comes last."""


def dns_label(text: str) -> str:
    """Return the name of a namespace. Raises an error unless Kubernetes allows it."""
    if not re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", text):
        raise ValueError(f"{text!r} is not a name of a namespace; expected a-z, 0-9 and - inside, at most 63")
    return text


def optional_dns_label(text: str) -> str:
    """Return the name of a namespace, or an empty text."""
    return dns_label(text) if text else ""


def scheduler(text: str) -> str:
    """Return the name of a scheduler. Raises an error unless Kubernetes allows it."""
    if not re.fullmatch("[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", text):
        raise ValueError(f"{text!r} is not a name of a scheduler; expected letters, digits and - . _ inside")
    return text


def optional_scheduler(text: str) -> str:
    """Return the name of a scheduler, or an empty text."""
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
    str | None,
    typer.Option(metavar="NAME", autocompletion=contexts, help="A context of --kubeconfig. [default: its current one]"),
]
ClusterName = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="A cluster of 'steersman cluster up --name' instead.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Allow it in a cluster that steersman did not start.")]


def check_new_folder(output: Path) -> None:
    """Check before anything is watched that an output path is free. Raises InputError: it is not."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(output, "", "", "exists already and is not an empty folder; name a new one")
    check_writable("--output", output, "file")


def find_cluster(kubeconfig: Path | None, context: str | None, name: str | None) -> ClusterTarget:
    """Return the cluster of these options (`apps.load.target`); print it if the local one is the only choice.

    Raises:
        SteersmanError: there is none.
    """
    from steersman.apps.load.target import find_target

    target = find_target(kubeconfig, context, name)
    if target.by_default:
        say(
            f"using the cluster of 'steersman cluster up' at {target.config.cluster.server}: neither $KUBECONFIG nor "
            "~/.kube/config names another"
        )
    return target


def log_cluster(target: ClusterTarget) -> None:
    """Log which cluster a long-running command talks to."""
    import structlog

    config = target.config
    structlog.get_logger("cluster").info(
        "cluster", context=config.context, server=config.cluster.server, source=str(config.source)
    )


def run_with_client(target: ClusterTarget, question: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """Return the result of a coroutine with a client of a cluster. Raises SteersmanError: it does not answer."""
    from steersman.apps.load.live_cluster import run_client

    return run_client(target, question)


def say_without_telemetry(policy: Policy, spec: str, *, has_telemetry: bool) -> None:
    """Say that a rule of nodes' metrics decides without any. Raises UsageError: a learned policy cannot."""
    from steersman.policies.base import Need
    from steersman.policies.registry import check_telemetry

    check_telemetry(policy, spec, has_telemetry=has_telemetry)
    if Need.TELEMETRY in policy.needs and not has_telemetry:
        say(f"--policy {spec} without --telemetry uses the pods' requests alone")
