"""The order of waiting pods, which a policy's name may end with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from steersman.core.errors import UsageError

if TYPE_CHECKING:
    from steersman.orders.order import Order


def split_order(policy: str, order: str | None) -> tuple[str, str]:
    """Return a policy without its order, and the order, "" if none is given.

    Args:
        policy: such as `fgd` or `fgd+shortest`.
        order: of another option.
    """
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
