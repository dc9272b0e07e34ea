"""The values of --policy and --baseline: names, the order of waiting pods that they may end with, and servers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from steersman.apps.http_policy.access import CA_FILE, HEADER_FILE, read_authority, read_headers
from steersman.cli.options.common import path
from steersman.cli.options.declaring import option
from steersman.core.errors import UsageError
from steersman.core.extensions import attribute_errors

if TYPE_CHECKING:
    from steersman.orders.order import Order


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


_option = partial(option, parser=path, metavar="FILE", rich_help_panel="Policies of a URL")


@dataclass(frozen=True, slots=True)
class PolicyServer:
    policy_header_file: Annotated[
        Path | None,
        _option(
            "Headers of requests to the policy's server, a line 'Name: value' each, such as its token; read again "
            "when it changes. Unlike in a URL, a secret in it is in no list of processes. "
            f"[default: ${HEADER_FILE}]"
        ),
    ] = None
    policy_ca: Annotated[
        Path | None,
        _option(
            "Certificates of the authority that signs that of the policy's server (PEM). "
            f"[default: ${CA_FILE}, else those of the system]"
        ),
    ] = None

    def use(self) -> None:
        """Let this process and its workers ask like that. Raises InputError: a file cannot be used."""
        if self.policy_header_file is not None:
            read_headers(self.policy_header_file)
            # By the environment, which the processes of --jobs inherit. They may have another working directory.
            os.environ[HEADER_FILE] = os.path.abspath(self.policy_header_file)
        if self.policy_ca is not None:
            read_authority(self.policy_ca)
            os.environ[CA_FILE] = os.path.abspath(self.policy_ca)
