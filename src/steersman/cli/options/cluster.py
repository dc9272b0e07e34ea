"""Options of commands that talk to a cluster: which one, and names as Kubernetes allows them."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from steersman.cli.completing import contexts
from steersman.cli.options.common import path_option
from steersman.cli.options.declaring import RequiresOption, advanced, option
from steersman.cli.output.display import say
from steersman.core.errors import InputError
from steersman.workloads.files import check_writable

if TYPE_CHECKING:
    from steersman.kubernetes.client import Client
    from steersman.live.load.live_cluster import ClusterTarget
    from steersman.policies.base import Policy

T = TypeVar("T")


def dns_label(text: str) -> str:
    """Return the name of a namespace. Raises an error unless Kubernetes allows it."""
    if not re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", text):
        raise ValueError(f"{text!r} is not a name of a namespace; expected a-z, 0-9 and - inside, at most 63")
    return text


def optional_dns_label(text: str) -> str:
    return dns_label(text) if text else ""


def scheduler(text: str) -> str:
    """Return the name of a scheduler. Raises an error unless Kubernetes allows it."""
    if not re.fullmatch("[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", text):
        raise ValueError(f"{text!r} is not a name of a scheduler; expected letters, digits and - . _ inside")
    return text


def optional_scheduler(text: str) -> str:
    return scheduler(text) if text else ""


Kubeconfig = Annotated[
    Path | None,
    path_option("Which live cluster. [default: as kubectl, else that of 'cluster up']"),
    RequiresOption("cluster", "live"),
]
Context = Annotated[
    str | None,
    advanced("A context of --kubeconfig. [default: its current one]", metavar="NAME", autocompletion=contexts),
    RequiresOption("cluster", "live"),
]
ClusterName = Annotated[
    str | None,
    advanced("A cluster of 'steersman cluster up --name' instead.", metavar="NAME"),
    RequiresOption("cluster", "live"),
]
Yes = Annotated[bool, option("Allow it in a cluster that steersman did not start.")]


@dataclass(frozen=True, slots=True)
class KubeconfigOptions:
    kubeconfig: Kubeconfig = None
    context: Context = None

    def find(self) -> ClusterTarget:
        return find_cluster(self.kubeconfig, self.context, None)


@dataclass(frozen=True, slots=True)
class ClusterOptions(KubeconfigOptions):
    """A live cluster: that of a kubeconfig, or one of `steersman cluster up`."""

    name: ClusterName = None

    def find(self) -> ClusterTarget:
        return find_cluster(self.kubeconfig, self.context, self.name)


@dataclass(frozen=True, slots=True)
class WritableClusterOptions(ClusterOptions):
    yes: Yes = False


def check_new_folder(output: Path) -> None:
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(output, "", "", "exists already and is not an empty folder; name a new one")
    check_writable("--output", output, "file")


def find_cluster(kubeconfig: Path | None, context: str | None, name: str | None) -> ClusterTarget:
    """Return the cluster of these options (`live.load.live_cluster`); print it if the local one is the only choice."""
    from steersman.live.load.live_cluster import find_target

    target = find_target(kubeconfig, context, name)
    if target.by_default:
        say(
            f"using the cluster of 'steersman cluster up' at {target.config.cluster.server}: neither $KUBECONFIG nor "
            "~/.kube/config names another"
        )
    return target


def log_cluster(target: ClusterTarget) -> None:
    import structlog

    config = target.config
    structlog.get_logger("cluster").info(
        "cluster", context=config.context, server=config.cluster.server, source=str(config.source)
    )


def run_with_client(target: ClusterTarget, question: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """Return the result of a coroutine with a client of a cluster. Raises SteersmanError: it does not answer."""
    from steersman.live.load.live_cluster import run_client

    return run_client(target, question)


def say_without_telemetry(policy: Policy, spec: str, *, has_telemetry: bool) -> None:
    """Say that a rule of nodes' metrics decides without any. Raises UsageError: a learned policy cannot."""
    from steersman.policies.base import Need
    from steersman.policies.registry import check_telemetry

    check_telemetry(policy, spec, has_telemetry=has_telemetry)
    if Need.TELEMETRY in policy.needs and not has_telemetry:
        say(f"--policy {spec} without --telemetry uses the pods' requests alone")
