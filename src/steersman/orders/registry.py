"""Orders by name: `NAME[:OVERTAKING][@ESTIMATES][@ageing:TIME]`, such as `shortest`, `wfp3:easy` or `area@history`.

A file in place of the name is an order file, or a policy file with an order: its card has such a text, in which the
name `learned` refers to the weights next to it. What follows a file replaces what the file says of it.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from safetensors.numpy import save

from steersman.core.atomic_files import replacing
from steersman.core.errors import InputError, SteersmanError, UsageError, input_error, unknown_name
from steersman.core.extensions import Registry, attribute_errors
from steersman.core.handles import OrderFileHandle
from steersman.core.quantities import duration_literal, duration_seconds
from steersman.orders import scores
from steersman.orders.order import AGE, ANYBODY, AUTO, BUILT_IN, OVERTAKING, SOURCES, Order, parse_estimates
from steersman.orders.scores import LEARNED

# Order files (safetensors): the weights of a learned order, and a card of how it was made. Nothing in such a file is
# executed when it is read.

SCHEMA = 2
CARD = "steersman-order"
WEIGHTS = "order"
SUFFIX = ".safetensors"
MAX_HIDDEN = 1000


class OrderCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The card of an order file.

    Attributes:
        schema: version of this layout.
        name: the order's name in results.
        overtaking: who may overtake a pod that fits nowhere, a key of `OVERTAKING`.
        estimates: where estimates of run times come from, as in `NAME@ESTIMATES`.
        ageing: seconds after which a pod goes before all others of its priority; None: never.
        hidden: units on top of the linear score.
        objective: what it was trained for.
        training: what it was trained on.
        settings: options of the search.
        gain: in validation, the mean logarithm of the reference's cost over its own.
        reference: the order that it was compared with.
        made_by: version of steersman.
    """

    schema: int = SCHEMA
    name: str
    overtaking: str
    estimates: str
    ageing: float | None = None
    hidden: int = 0
    objective: str = ""
    training: tuple[str, ...] = ()
    settings: dict[str, bool | int | float | str] = {}
    gain: float = 0.0
    reference: str = ""
    made_by: str = ""


class PolicyOrder(msgspec.Struct, frozen=True):
    """The order in the card of a policy file, such as `learned:easy` ("": none), and weights of a learned one."""

    order: str = ""
    order_weights: tuple[float, ...] = ()


def write_order(file: Path, card: OrderCard, weights: tuple[float, ...]) -> None:
    """Write an order file. Raises InputError: it cannot be written."""
    tensors = {WEIGHTS: np.array(weights, dtype=np.float64)}
    with replacing(file) as staged:
        staged.write_bytes(save(tensors, {CARD: msgspec.json.encode(card, order="sorted").decode()}))


def open_order(file: Path) -> tuple[OrderCard, Order]:
    opened = _opened(file)
    if not len(opened.weights):
        raise InputError(file, "", "", "is not an order file")
    try:
        card = msgspec.json.decode(opened.card, type=OrderCard)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InputError(file, "", "", f"is no order file of this version of steersman: {error}") from None
    try:
        estimates = parse_estimates(card.estimates)
    except UsageError as error:
        raise InputError(file, "", "estimates", str(error)) from None
    ageing = math.inf if card.ageing is None else card.ageing
    weights = tuple(opened.weights.tolist())
    return card, Order(card.name, LEARNED, OVERTAKING[card.overtaking], weights, ageing, estimates)


def _opened(file: Path) -> OrderFileHandle:
    if file.exists() and not file.is_file():
        # A device or a pipe could be read without an end.
        raise InputError(file, "", "", "is not a regular file")
    try:
        return OrderFileHandle(file.read_bytes())
    except OSError as error:
        reason = "no such file" if not file.exists() else f"cannot be read: {error.strerror or error}"
        raise InputError(file, "", "", reason) from None
    except SteersmanError as error:
        raise input_error(file, str(error)) from None


REGISTRY: Registry[Order] = Registry("order", "steersman.orders", Order, BUILT_IN)
"""Orders by name. Users' own are classes whose method `given` scores pods at their arrival."""
AGEING = "ageing:"
LEARNED_NAME = "learned"
"""In the card of a policy file, the name of the order of its weights."""
_FILE = re.compile(rf".*{re.escape(SUFFIX)}(?=[:@]|\Z)")


def find_order(spec: str) -> Order:
    """Return the order of a text `NAME` or `FILE` with `:OVERTAKING`, `@ESTIMATES` and `@ageing:TIME`, or some of them.

    Its name is accepted here again and gives an equal order.
    """
    text = _read(spec)
    if text.name.endswith(SUFFIX):
        return _of_file(spec, text)
    order = REGISTRY.get(text.name)
    if order is None:
        if not text.name:
            named = f"expected one such as {AGE.name}{spec}"
            raise UsageError(f"order {spec!r}: a name is missing{f' before {spec!r}' if spec else ''}; {named}")
        if Path(text.name).is_dir():
            raise UsageError(f"order {spec!r}: is a folder; expected a name or an order file (order{SUFFIX})")
        others = (
            *(f"NAME:{'|'.join(OVERTAKING)}", f"NAME@{'|'.join(SOURCES)}"),
            *(f"NAME@{AGEING}TIME", f"an order file (order{SUFFIX})"),
        )
        raise unknown_name("order", text.name, REGISTRY.names(), *others)
    with attribute_errors(f"order {text.name!r}"):  # a user's class may not be one that can be copied
        return replace(_with_settings(spec, order, text), name=spec)


def file_of(spec: str) -> Path | None:
    """Return the file that the text of an order names; None: it names none. Raises UsageError."""
    name = _read(spec).name
    return Path(name) if name.endswith(SUFFIX) else None


def from_policy_order(file: str | Path, stored: PolicyOrder) -> Order | None:
    """Return the order in the card of a policy file; None: it has none."""
    if not stored.order:
        if stored.order_weights:
            raise InputError(str(file), "card", "order_weights", "belong to an order, but the card has none")
        return None
    try:
        text = _read(stored.order)
        if text.name.endswith(SUFFIX):
            raise UsageError(f"order {stored.order!r} is a file; expected a name")
        if text.name != LEARNED_NAME:
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
        # `learned` names no order where it is given again.
        return replace(_with_settings(stored.order, order, text), name=str(file))
    except UsageError as error:
        raise InputError(str(file), "card", "order", str(error)) from None


def to_policy_order(order: Order) -> PolicyOrder:
    """Return an order as the card of a policy file has it, see `from_policy_order`."""
    name, times = order.name.partition("@")[0], order.estimates
    if order.score == scores.LEARNED:
        names = {value: name for name, value in OVERTAKING.items()}
        name = LEARNED_NAME if order.overtaking == ANYBODY else f"{LEARNED_NAME}:{names[order.overtaking]}"
    estimates = "" if times == AUTO else f"@{times.source}" + (f":{times.error:g}" if times.error > 1 else "")
    ageing = "" if order.ageing == math.inf else f"@{AGEING}{duration_literal(order.ageing)}"
    return PolicyOrder(f"{name}{estimates}{ageing}", order.weights)


class _Text(NamedTuple):
    """The parts of an order's text, without `:` and `@`; "" for those that it does not state."""

    name: str
    overtaking: str = ""
    estimates: str = ""
    ageing: str = ""

    def __str__(self) -> str:
        signs = ("", ":", "@", f"@{AGEING}")
        return "".join(sign + part for sign, part in zip(signs, self, strict=True) if part)


def _read(spec: str) -> _Text:
    """Return the parts of a text. Raises UsageError: a setting is unknown, or two are of one kind."""
    # The path of a file may contain the signs.
    name = found[0] if (found := _FILE.match(spec)) else re.split("[:@]", spec, maxsplit=1)[0]
    overtaking, *stated = spec[len(name) :].split("@")
    colon, overtaking = overtaking[:1], overtaking[1:]
    if colon and overtaking not in OVERTAKING:
        raise UsageError(f"order {spec!r}: {overtaking!r} is unknown; expected {', '.join(OVERTAKING)}")
    for setting in stated:
        if not setting.startswith(AGEING) and setting.partition(":")[0] not in SOURCES:
            known = f"{', '.join(SOURCES)}, oracle:FACTOR or {AGEING}TIME"
            raise UsageError(f"order {spec!r}: {setting!r} is unknown; expected {known}")
    aged = [setting.removeprefix(AGEING) for setting in stated if setting.startswith(AGEING)]
    estimates = [setting for setting in stated if not setting.startswith(AGEING)]
    if len(aged) > 1 or len(estimates) > 1:
        raise UsageError(f"order {spec!r}: expected one source of estimates and one {AGEING}TIME at most")
    for each in aged:
        _ageing(spec, each)
    return _Text(name, overtaking, *(estimates or [""]), *aged)


def _of_file(spec: str, text: _Text) -> Order:
    file = Path(text.name)
    opened = _opened(file)
    if len(opened.weights):
        order: Order | None = open_order(file)[1]
    else:
        try:
            stored = msgspec.json.decode(opened.card, type=PolicyOrder)
        except (msgspec.MsgspecError, ValueError) as error:
            problem = f"is not a policy file of this version of steersman: {error}"
            raise InputError(file, "", "", problem) from None
        order = from_policy_order(file, stored)
    if order is None:
        raise InputError(str(file), "", "", "is a policy without an order; expected an order file, or a name")
    if order.weights:
        return replace(_with_settings(spec, order, text), name=spec)
    own = _read(order.name)
    return find_order(str(_Text(own.name, *(mine or its for mine, its in zip(text[1:], own[1:], strict=True)))))


def _with_settings(spec: str, order: Order, text: _Text) -> Order:
    """Return an order with what follows its name. Raises UsageError: its name says already who may overtake."""
    if text.overtaking:
        if order.overtaking != ANYBODY and not order.weights:
            problem = f"{order.name!r} says already who may overtake; expected {AGE.name}:{text.overtaking}"
            raise UsageError(f"order {spec!r}: {problem}")
        order = replace(order, overtaking=OVERTAKING[text.overtaking])
    if text.ageing:
        order = replace(order, ageing=_ageing(spec, text.ageing))
    return replace(order, estimates=parse_estimates(text.estimates)) if text.estimates else order


def _ageing(spec: str, text: str) -> float:
    try:
        return duration_seconds(text)
    except ValueError as error:
        raise UsageError(f"order {spec!r}: {AGEING} {error}") from None
