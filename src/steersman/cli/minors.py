"""The minor of Kubernetes as whose kube-scheduler policies decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from steersman.cli.options.cluster import ClusterOptions, run_with_client
from steersman.cli.output.display import say
from steersman.core.errors import UsageError

if TYPE_CHECKING:
    from steersman.apps.load.target import ClusterTarget


def with_minor(policies: Sequence[str], minor: str | None, live: ClusterOptions | None = None) -> list[str]:
    """Return policies with the minor of `chosen_minor`. Raises SteersmanError: as that does."""
    from steersman.policies.registry import of_minor

    minor = chosen_minor(policies, minor, live)
    return [of_minor(each, minor) for each in policies]


def chosen_minor(policies: Sequence[str], minor: str | None, live: ClusterOptions | None = None) -> str | None:
    """Return the minor that is stated, else that of the live cluster, if one is read; None: the newest."""
    from steersman.policies.node_scores.kube_minors import rules_of
    from steersman.policies.registry import is_kube_scheduler

    if minor is not None:
        rules_of(minor)
        if not any(map(is_kube_scheduler, policies)):
            raise UsageError(f"--kubernetes {minor} is about policies of kube-scheduler; none is given")
    elif live is not None and any(map(is_kube_scheduler, policies)):
        minor = minor_of_cluster(live.find())
    return minor


def minor_of_cluster(target: ClusterTarget) -> str | None:
    """Return the minor of a cluster, None for the newest; the nearest one, with a line, if it is not computed."""
    from steersman.apps.runtime.server_version import server_version
    from steersman.policies.node_scores.kube_minors import NEWEST, nearest_minor

    version = run_with_client(target, server_version)
    minor = nearest_minor(version)
    if not version.startswith(f"v{minor}."):
        say(f"the cluster runs Kubernetes {version}; kube-scheduler is computed as of {minor}")
    return None if minor == NEWEST else minor
