"""Orders by name: `NAME[:OVERTAKING][@ESTIMATES][@ageing:TIME]`, such as `shortest`, `wfp3:easy` or `area@history`.

A file in place of the name is an order file, or a policy file with an order: its card has such a text, in which the
name `learned` refers to the weights next to it. Elsewhere it is the order that ships with the package.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from steersman.core.errors import InputError, UsageError, unknown_name
from steersman.core.quantities import duration_literal, duration_seconds
from steersman.orders import queue, scores
from steersman.orders.order import BUILT_IN, OVERTAKING, Order
from steersman.orders.order_file import MAX_HIDDEN, SUFFIX, PolicyOrder, open_order, packaged_order, read_policy_order
from steersman.orders.run_times import AUTO, SOURCES, parse_run_times

AGEING = "ageing:"
LEARNED_NAME = "learned"
"""Name of the packaged order; in the card of a policy file, of the order of its weights."""
NAMES = (*BUILT_IN, LEARNED_NAME)


def find_order(spec: str) -> Order:
    """Return the order of a text `NAME[:OVERTAKING]` or `FILE`, either with `@ESTIMATES`, `@ageing:TIME` or both.

    Raises:
        UsageError: there is no such order; the message lists the known ones.
        InputError: the file is no order file.
    """
    text, settings = _split(spec)
    name, colon, overtaking = (text, "", "") if text.endswith(SUFFIX) else text.partition(":")
    order = _open(Path(name)) if name.endswith(SUFFIX) else BUILT_IN.get(name)
    if name == LEARNED_NAME:
        order = packaged_order()
    if order is None:
        if Path(name).is_dir():
            raise UsageError(f"order {spec!r}: is a folder; expected a name or an order file (order{SUFFIX})")
        others = (
            *(f"NAME:{'|'.join(OVERTAKING)}", f"NAME@{'|'.join(SOURCES)}"),
            *(f"NAME@{AGEING}TIME", f"an order file (order{SUFFIX})"),
        )
        raise unknown_name("order", name, NAMES, *others)
    order = _with_settings(spec, order, colon + overtaking, settings)
    # Results call a file's order by its own name.
    return replace(order, name="@".join([order.name, *settings]) if name.endswith(SUFFIX) else spec)


def from_policy_order(file: str | Path, stored: PolicyOrder) -> Order | None:
    """Return the order in the card of a policy file; None: it has none.

    Raises:
        InputError: the text or the weights are not those of an order.
    """
    if not stored.order:
        if stored.order_weights:
            raise InputError(str(file), "card", "order_weights", "belong to an order, but the card has none")
        return None
    try:
        text, settings = _split(stored.order)
        if text.endswith(SUFFIX):
            raise UsageError(f"order {stored.order!r} is a file; expected a name")
        name, colon, overtaking = text.partition(":")
        if name != LEARNED_NAME:
            if stored.order_weights:
                raise UsageError(
                    f"order {stored.order!r} takes no weights; expected {LEARNED_NAME!r} with order_weights"
                )
            return find_order(stored.order)
        weights = stored.order_weights
        hidden, rest = divmod(len(weights) - len(scores.LINEAR), scores.UNIT_SIZE)
        if rest or not 0 <= hidden <= MAX_HIDDEN:
            least = f"{len(scores.LINEAR)}, and {scores.UNIT_SIZE} for each hidden unit"
            raise UsageError(f"order_weights are {len(weights)} numbers; expected {least}")
        if not np.isfinite(weights).all():
            raise UsageError("order_weights hold a number that is not finite")
        order = Order(LEARNED_NAME, scores.LEARNED, weights=weights)
        return replace(_with_settings(stored.order, order, colon + overtaking, settings), name=stored.order)
    except UsageError as error:
        raise InputError(str(file), "card", "order", str(error)) from None


def to_policy_order(order: Order) -> PolicyOrder:
    """Return an order as the card of a policy file has it, see `from_policy_order`."""
    name, times = order.name.partition("@")[0], order.run_times
    if order.score == scores.LEARNED:
        names = {value: name for name, value in OVERTAKING.items()}
        name = LEARNED_NAME if order.overtaking == queue.ANYBODY else f"{LEARNED_NAME}:{names[order.overtaking]}"
    estimates = "" if times == AUTO else f"@{times.source}" + (f":{times.error:g}" if times.error > 1 else "")
    ageing = "" if order.ageing == math.inf else f"@{AGEING}{duration_literal(order.ageing)}"
    return PolicyOrder(f"{name}{estimates}{ageing}", order.weights)


def _open(file: Path) -> Order:
    """Return the order of an order file or of a policy file. Raises InputError: it is neither."""
    found = read_policy_order(file)
    if found is None:
        return open_order(file)[1]
    order = from_policy_order(file, found)
    if order is None:
        raise InputError(str(file), "", "", "is a policy without an order; expected an order file, or a name")
    return order


def _with_settings(spec: str, order: Order, overtaking: str, settings: list[str]) -> Order:
    """Return an order with what follows its name: `:OVERTAKING`, then sources of estimates and ageing."""
    colon, overtaking = overtaking[:1], overtaking[1:]
    name = order.name
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
    return order


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
