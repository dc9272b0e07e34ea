"""The kube-scheduler of a comparison: the minor of Kubernetes that it is of, and a live cluster's configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.cli.options.cluster import ClusterOptions, run_with_client
from steersman.cli.output.display import say
from steersman.core.errors import SteersmanError, UsageError
from steersman.policies.node_scores.kube_minors import NEWEST, nearest_minor, rules_of
from steersman.workloads.workload import Workload

if TYPE_CHECKING:
    from steersman.apps.load.live_cluster import ClusterTarget
    from steersman.apps.runtime.cluster_schedulers import FoundScheduler


def with_minor(policies: Sequence[str], minor: str | None, live: ClusterOptions | None = None) -> list[str]:
    """Return policies with the minor of `chosen_minor`. Raises SteersmanError: as that does."""
    from steersman.policies.registry import of_minor

    minor = chosen_minor(policies, minor, live)
    return [of_minor(each, minor) for each in policies]


def chosen_minor(policies: Sequence[str], minor: str | None, live: ClusterOptions | None = None) -> str | None:
    """Return the minor that is stated, else that of the live cluster, if one is read; None: the newest."""
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
    from steersman.apps.runtime.listing import server_version

    version = run_with_client(target, server_version)
    minor = nearest_minor(version)
    if not version.startswith(f"v{minor}."):
        say(f"the cluster runs Kubernetes {version}; kube-scheduler is computed as of {minor}")
    return None if minor == NEWEST else minor


KUBE_DEFAULT = "kube-default"


def cluster_baseline(
    live: ClusterOptions, source: Workload, file: Path, minor: str | None, flag: str = "--baseline"
) -> str | None:
    """Return the policy of the configuration that schedules a cluster, written to a file; None if it is not known.

    Prints in a line what is known of each scheduler, and to give its file by `flag`.
    """
    from steersman.apps.runtime.cluster_schedulers import find_schedulers

    found = run_with_client(live.find(), find_schedulers)
    if not found:
        say(
            f"the API does not tell which configuration this cluster's scheduler has; {KUBE_DEFAULT} is kube-scheduler "
            f"without one: give {flag} my-scheduler.yaml"
        )
    chosen, most = None, 0
    for scheduler in found:
        if not scheduler.content:
            say(_unread(scheduler, flag))
            continue
        spec, pods = _readable(scheduler, source, file, minor)
        if spec is not None and pods > most:
            chosen, most = (scheduler, spec), pods
    if chosen is None:
        return None
    scheduler, spec = chosen
    file.write_text(scheduler.content, encoding="utf-8")
    say(f"the baseline is {file.stem}, the configuration of {scheduler.name} ({scheduler.source}){_gates(scheduler)}")
    return spec


def _readable(scheduler: FoundScheduler, source: Workload, file: Path, minor: str | None) -> tuple[str | None, int]:
    """Return the policy of the profile that schedules most pods, and how many; say why there is none."""
    from steersman.apps.runtime.cluster_schedulers import read_profiles
    from steersman.policies.registry import of_minor

    try:
        profiles = read_profiles(scheduler, minor or NEWEST)
    except SteersmanError as error:
        say(f"{scheduler.name}: {error}")
        return None, 0
    pods = {name: sum(pod.scheduler_name == name for pod in source.pods) for name in profiles}
    name = max(pods, key=lambda each: pods[each])
    if not pods[name]:
        say(f"{scheduler.name} schedules none of these pods: its profiles are {', '.join(profiles)}")
    return of_minor(f"{file}:{name}", minor), pods[name]


def _unread(scheduler: FoundScheduler, flag: str) -> str:
    if not scheduler.file:
        return f"{scheduler.name} has no --config: {KUBE_DEFAULT} computes what it does{_gates(scheduler)}"
    if scheduler.source:
        return f"{scheduler.name}: {scheduler.source} cannot be read, or lacks {scheduler.file}"
    where = f"{scheduler.file} on node {scheduler.node}" if scheduler.node else scheduler.file
    return (
        f"{scheduler.name} reads {where}, which the API does not show: copy it, and give {flag} FILE{_gates(scheduler)}"
    )


def _gates(scheduler: FoundScheduler) -> str:
    return f"; its --feature-gates {scheduler.gates} are not computed" if scheduler.gates else ""


def is_to_be_found(policies: Sequence[str], baseline: str | None) -> bool:
    """Return whether a comparison names no baseline and no configuration of kube-scheduler."""
    from steersman.policies.files.kube_configuration import is_configuration
    from steersman.policies.registry import split_order

    return baseline is None and not any(is_configuration(split_order(each)[0]) for each in policies)
