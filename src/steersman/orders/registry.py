"""Orders by name: `NAME[:OVERTAKING][@ESTIMATES]`, such as `shortest`, `wfp3:easy`, `age:none` or `area@history`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from steersman.core.errors import UsageError, unknown_name
from steersman.orders import queue
from steersman.orders.order import BUILT_IN, OVERTAKING, Order
from steersman.orders.order_file import SUFFIX, open_order
from steersman.orders.run_times import SOURCES, parse_run_times


def find_order(spec: str) -> Order:
    """Return the order of a text `NAME[:OVERTAKING][@ESTIMATES]` or `FILE[@ESTIMATES]`.

    Raises:
        UsageError: there is no such order; the message lists the known ones.
        InputError: the file is no order file.
    """
    text, at, estimates = spec.rpartition("@") if "@" in spec else (spec, "", "")
    name, colon, overtaking = (text, "", "") if text.endswith(SUFFIX) else text.partition(":")
    order = open_order(Path(name))[1] if name.endswith(SUFFIX) else BUILT_IN.get(name)
    if order is None:
        others = f"NAME:{'|'.join(OVERTAKING)}", f"NAME@{'|'.join(SOURCES)}", f"an order file (order{SUFFIX})"
        raise unknown_name("order", name, tuple(BUILT_IN), *others)
    if colon:
        if overtaking not in OVERTAKING:
            raise UsageError(f"order {spec!r}: {overtaking!r} is unknown; expected {', '.join(OVERTAKING)}")
        if order.overtaking != queue.ANYBODY:
            raise UsageError(f"order {spec!r}: {name!r} says already who may overtake; expected age:{overtaking}")
        order = replace(order, overtaking=OVERTAKING[overtaking])
    if at:
        order = replace(order, run_times=parse_run_times(estimates))
    # Results call a file's order by its own name.
    label = f"{order.name}@{estimates}" if at else order.name
    return replace(order, name=label if name.endswith(SUFFIX) else spec)
