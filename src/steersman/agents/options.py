"""Checks of agents' options: what is wrong and what would be right, in one line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from steersman.errors import UsageError

RULES: dict[str, tuple[Callable[[float], bool], str]] = {
    "count": (lambda value: value >= 1, "a whole number of 1 or more"),
    "amount": (lambda value: value >= 0 and math.isfinite(value), "0 or more"),
    "rate": (lambda value: value > 0 and math.isfinite(value), "a number above 0"),
    "share": (lambda value: 0 <= value <= 1, "a number from 0 to 1"),
}


def require(config: Any, right: str, *names: str) -> None:
    """Every named field of `config` is what `right` says.

    Args:
        config: a dataclass of options.
        right: `count` (1 or more), `amount` (0 or more), `rate` (a finite number above 0) or `share` (0 to 1).
        names: fields.

    Raises:
        UsageError: one is not; the message names the option as the command line spells it.
    """
    holds, words = RULES[right]
    for name in names:
        value = getattr(config, name)
        if not holds(value):
            raise UsageError(f"--{name.replace('_', '-')} {value} does not work; {words} is right")
