"""Order files (safetensors): the weights of a learned order, and a card of how it was made.

Nothing in such a file is executed when it is read.
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from steersman.core.atomic_files import replacing
from steersman.core.errors import InputError, UsageError
from steersman.orders.order import OVERTAKING, Order
from steersman.orders.run_times import parse_run_times
from steersman.orders.scores import LEARNED, learned_size

SCHEMA = 2
CARD = "steersman-order"
POLICY_CARD = "steersman"
"""Key of the model card of a policy file, which may have an order."""
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
    """What the model card of a policy file says of who goes next, see `orders.registry.from_policy_order`.

    Attributes:
        order: such as `wfp3:easy@history`, or `learned:easy`; "": the file has no order.
        order_weights: of a learned order.
    """

    order: str = ""
    order_weights: tuple[float, ...] = ()


def read_policy_order(file: Path) -> PolicyOrder | None:
    """Return the order in a policy file; None: it is not a policy file, or cannot be read.

    Raises:
        InputError: its model card is damaged.
    """
    try:
        with safe_open(str(file), framework="numpy") as opened:
            card = (opened.metadata() or {}).get(POLICY_CARD)
        return None if card is None else msgspec.json.decode(card, type=PolicyOrder)
    except (OSError, SafetensorError):
        return None
    except (msgspec.MsgspecError, ValueError) as error:
        raise InputError(file, "", "", f"is not a policy file of this version of steersman: {error}") from None


def write_order(file: Path, card: OrderCard, weights: tuple[float, ...]) -> None:
    """Write an order file. Raises InputError: it cannot be written."""
    tensors = {WEIGHTS: np.array(weights, dtype=np.float64)}
    with replacing(file) as staged:
        staged.write_bytes(save(tensors, {CARD: msgspec.json.encode(card, order="sorted").decode()}))


def open_order(file: Path) -> tuple[OrderCard, Order]:
    """Return the card and the order of a file.

    Raises:
        InputError: the file is missing, damaged, or no order file of this version.
    """
    try:
        with safe_open(str(file), framework="numpy") as opened:
            card = (opened.metadata() or {}).get(CARD)
            if card is None:
                raise InputError(file, "", "", "is not an order file")
            decoded = msgspec.json.decode(card, type=OrderCard)
            weights = np.asarray(opened.get_tensor(WEIGHTS), dtype=np.float64)
    except (OSError, SafetensorError) as error:
        reason = "no such file" if not file.exists() else f"cannot be read: {error}"
        raise InputError(file, "", "", reason) from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise InputError(file, "", "", f"is no order file of this version of steersman: {error}") from None
    return decoded, _order(file, decoded, weights)


def _order(file: Path, card: OrderCard, weights: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Order:
    if card.schema != SCHEMA:
        raise InputError(file, "", "schema", f"{card.schema} is of another version of steersman; expected {SCHEMA}")
    if card.overtaking not in OVERTAKING:
        raise InputError(file, "", "overtaking", f"{card.overtaking!r} is unknown; expected {', '.join(OVERTAKING)}")
    if not 0 <= card.hidden <= MAX_HIDDEN:
        raise InputError(file, "", "hidden", f"{card.hidden} must be at least 0 and at most {MAX_HIDDEN}")
    if weights.shape != (count := learned_size(card.hidden),):
        raise InputError(file, "", WEIGHTS, f"has shape {list(weights.shape)}; expected [{count}] for its hidden units")
    if not np.isfinite(weights).all():
        raise InputError(file, "", WEIGHTS, "has a weight that is not a finite number")
    if card.ageing is not None and not card.ageing > 0:
        raise InputError(file, "", "ageing", f"{card.ageing:g} must be above 0 seconds")
    try:
        run_times = parse_run_times(card.estimates)
    except UsageError as error:
        raise InputError(file, "", "estimates", str(error)) from None
    return Order(
        card.name,
        LEARNED,
        OVERTAKING[card.overtaking],
        tuple(weights.tolist()),
        math.inf if card.ageing is None else card.ageing,
        run_times,
    )
