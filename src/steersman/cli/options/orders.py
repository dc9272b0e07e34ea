"""The order of waiting pods, which a policy's name may end with."""

from __future__ import annotations

from steersman.core.errors import UsageError


def split_order(policy: str, order: str | None) -> tuple[str, str]:
    """Return a policy without its order, and the order, "" if none is given.

    Args:
        policy: such as `fgd` or `fgd+shortest`.
        order: of another option.

    Raises:
        UsageError: there are two orders.
    """
    from steersman.policies import registry

    name, own = registry.split_order(policy)
    if own and order is not None:
        raise UsageError(f"--policy {policy} names an order; leave out --order {order}, or +{own}")
    return name, order or own
