"""Orders by name: `NAME[:OVERTAKING][@ESTIMATES][@ageing:TIME]`, such as `shortest`, `wfp3:easy` or `area@history`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from steersman.core.errors import UsageError, unknown_name
from steersman.core.quantities import duration_seconds
from steersman.orders import queue
from steersman.orders.order import BUILT_IN, OVERTAKING, Order
from steersman.orders.order_file import SUFFIX, open_order
from steersman.orders.run_times import SOURCES, parse_run_times

AGEING = "ageing:"


def find_order(spec: str) -> Order:
    """Return the order of a text `NAME[:OVERTAKING]` or `FILE`, either with `@ESTIMATES`, `@ageing:TIME` or both.

    Raises:
        UsageError: there is no such order; the message lists the known ones.
        InputError: the file is no order file.
    """
    text, settings = _split(spec)
    name, colon, overtaking = (text, "", "") if text.endswith(SUFFIX) else text.partition(":")
    order = open_order(Path(name))[1] if name.endswith(SUFFIX) else BUILT_IN.get(name)
    if order is None:
        if Path(name).is_dir():
            raise UsageError(f"order {spec!r}: is a folder; expected a name or an order file (order{SUFFIX})")
        others = (
            *(f"NAME:{'|'.join(OVERTAKING)}", f"NAME@{'|'.join(SOURCES)}"),
            *(f"NAME@{AGEING}TIME", f"an order file (order{SUFFIX})"),
        )
        raise unknown_name("order", name, tuple(BUILT_IN), *others)
    if colon:
        if overtaking not in OVERTAKING:
            raise UsageError(f"order {spec!r}: {overtaking!r} is unknown; expected {', '.join(OVERTAKING)}")
        if order.overtaking != queue.ANYBODY:
            raise UsageError(f"order {spec!r}: {name!r} says already who may overtake; expected age:{overtaking}")
        order = replace(order, overtaking=OVERTAKING[overtaking])
    for setting in settings:
        if setting.startswith(AGEING):
            order = replace(order, ageing=_ageing(spec, setting.removeprefix(AGEING)))
        else:
            order = replace(order, run_times=parse_run_times(setting))
    # Results call a file's order by its own name.
    return replace(order, name="@".join([order.name, *settings]) if name.endswith(SUFFIX) else spec)


def _split(spec: str) -> tuple[str, list[str]]:
    """Return a name or file, and what follows each `@`."""
    text, settings = spec, list[str]()
    # The path of a file may contain the sign.
    while "@" in text and not text.endswith(SUFFIX):
        text, _, setting = text.rpartition("@")
        settings.insert(0, setting)
    aged = sum(setting.startswith(AGEING) for setting in settings)
    if aged > 1 or len(settings) - aged > 1:
        raise UsageError(f"order {spec!r}: expected one source of estimates and one {AGEING}TIME at most")
    return text, settings


def _ageing(spec: str, text: str) -> float:
    try:
        return duration_seconds(text)
    except ValueError as error:
        raise UsageError(f"order {spec!r}: {AGEING} {error}") from None
