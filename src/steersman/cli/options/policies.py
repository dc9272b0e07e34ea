"""The values of --policy and --baseline: names, orders, servers, and the kube-scheduler of a live cluster."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.cli.options.cluster import ClusterOptions, run_with_client
from steersman.cli.options.common import path
from steersman.cli.options.declaring import option
from steersman.cli.output.display import say
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.extensions import attribute_errors
from steersman.live.http_policy.access import CA_FILE, HEADER_FILE, read_authority, read_headers
from steersman.policies.kube_scheduler.minors import NEWEST, nearest_minor, rules_of
from steersman.workloads.workload import Workload

if TYPE_CHECKING:
    from steersman.live.load.live_cluster import ClusterTarget
    from steersman.live.runtime.cluster_schedulers import FoundScheduler
    from steersman.orders.order import Order

KUBE_DEFAULT = "kube-default"


def check_policies(policies: Sequence[str], baseline: str | None) -> str:
    """Check the names of policies, and return the baseline's."""
    from steersman.evaluation.experiment import RESERVED
    from steersman.policies.registry import resolve

    specs: dict[str, str] = {}
    for spec in policies:
        with attribute_errors(f"policy {spec!r}"):
            label = resolve(spec).name
        if label in RESERVED:
            raise UsageError(
                f"--policy {spec} is called {label}, which is the name of {RESERVED[label]} in results; rename it"
            )
        if label in specs:
            raise UsageError(
                f"--policy {spec} and {specs[label]} are both called {label}; names must be unique in results"
            )
        specs[label] = spec
    if baseline is not None and baseline not in policies:
        raise UsageError(f"--baseline {baseline}: must be one of the policies that run: {', '.join(policies)}")
    return baseline if baseline is not None else policies[0]


def split_order(policy: str, order: str | None) -> tuple[str, str]:
    """Return a policy without its order, and the order, "" if none is given."""
    from steersman.policies import registry

    name, own = registry.split_order(policy)
    if own and order is not None:
        raise UsageError(f"--policy {policy} names an order; leave out --order {order}, or +{own}")
    return name, order or own


def check_pods_wait(policies: Iterable[str], protocol: str | None) -> None:
    """Raise UsageError if a policy is named with an order and no pod waits; a protocol of None: none is given."""
    from steersman.policies import registry

    for policy in policies:
        order = registry.split_order(policy)[1]
        if order and protocol != "timed":
            other = f", not to {protocol}" if protocol else "; give that too, or leave it out"
            raise UsageError(f"policy {policy}: +{order} belongs to --protocol timed{other}")


def check_live_order(order: Order, policy: str, *, is_own: bool) -> None:
    """Raise UsageError for an order that only simulations can follow; `is_own`: it is that of the policy's file."""
    from steersman.orders.live_order import check_live

    try:
        check_live(order)
    except UsageError as error:
        if not is_own:
            raise
        raise UsageError(f"--policy {policy}: its {error}; --order, such as --order age, replaces it") from None


def stored_order_warnings(order: Order) -> tuple[str, ...]:
    """Return a warning of a policy file's order that no live cluster can follow."""
    from steersman.orders.live_order import check_live

    try:
        check_live(order)
    except UsageError as error:
        return (f"the policy file is for simulations alone: {error}",)
    return ()


_server_option = partial(option, parser=path, metavar="FILE", rich_help_panel="Policies of a URL")


@dataclass(frozen=True, slots=True)
class PolicyServer:
    policy_header_file: Path | None = _server_option(
        "Headers of requests to the policy's server, a line 'Name: value' each, such as its token; read again "
        "when it changes. Unlike in a URL, a secret in it is in no list of processes. "
        f"[default: ${HEADER_FILE}]"
    )
    policy_ca: Path | None = _server_option(
        "Certificates of the authority that signs that of the policy's server (PEM). "
        f"[default: ${CA_FILE}, else those of the system]"
    )

    def use(self) -> None:
        """Let this process and its workers ask like that. Raises InputError: a file cannot be used."""
        if self.policy_header_file is not None:
            read_headers(self.policy_header_file)
            # By the environment, which the processes of --jobs inherit. They may have another working directory.
            os.environ[HEADER_FILE] = os.path.abspath(self.policy_header_file)
        if self.policy_ca is not None:
            read_authority(self.policy_ca)
            os.environ[CA_FILE] = os.path.abspath(self.policy_ca)


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
    from steersman.live.runtime.listing import server_version

    version = run_with_client(target, server_version)
    minor = nearest_minor(version)
    if not version.startswith(f"v{minor}."):
        say(f"the cluster runs Kubernetes {version}; kube-scheduler is computed as of {minor}")
    return None if minor == NEWEST else minor


def cluster_baseline(
    live: ClusterOptions, source: Workload, file: Path, minor: str | None, flag: str = "--baseline"
) -> str | None:
    """Return the policy of the configuration that schedules a cluster, written to a file; None if it is not known.

    Prints in a line what is known of each scheduler, and to give its file by `flag`.
    """
    from steersman.live.runtime.cluster_schedulers import find_schedulers

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
    from steersman.live.runtime.cluster_schedulers import read_profiles
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
    from steersman.policies.kube_scheduler.configuration import is_configuration
    from steersman.policies.registry import split_order

    return baseline is None and not any(is_configuration(split_order(each)[0]) for each in policies)
