"""How a report writes numbers, intervals and lists."""

from __future__ import annotations

import math
from collections.abc import Sequence

from steersman.core.counting import counted
from steersman.core.statistics import Interval

BOUND_LABEL = "bound (LP)"
"""Displayed name of the policy `bound` of the result files."""
INTERVAL = "95 % interval"
DASH = "–"
FEW_SEEDS = 5
"""With fewer seeds an interval is wide and leans on normally distributed values; the text says that they are few."""
NAMED = 3
"""Most policies that a sentence names; of more it gives the number."""


def fixed(value: float, digits: int) -> str:
    """Return a displayed number: this many decimals, a thousands separator, a dash for NaN."""
    # + 0.0 turns -0.0 into 0.0, which has no sign.
    return f"{round(value, digits) + 0.0:,.{digits}f}" if math.isfinite(value) else DASH


def signed(value: float, digits: int) -> str:
    """Return a displayed number with its sign, a true minus."""
    return f"{round(value, digits) + 0.0:+,.{digits}f}".replace("-", "−") if math.isfinite(value) else DASH


def interval_text(interval: Interval, digits: int, *, sign: bool = False) -> str:
    """Return a displayed interval, empty if there is none."""
    if not math.isfinite(interval.low):
        return ""
    write = signed if sign else fixed
    return f"{write(interval.low, digits)} to {write(interval.high, digits)}"


def brackets(interval: Interval, digits: int) -> str:
    """Return an interval in a sentence, with the space before it; empty if there is none."""
    low, high = (signed(end, digits).removeprefix("+") for end in interval)
    return f" [{low}, {high}]" if math.isfinite(interval.low) else ""


def listed(names: Sequence[str]) -> str:
    """Return names in a sentence: all of a few, else the first ones and the number of others."""
    if len(names) > NAMED + 1:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} others"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def seeds_text(number: int, noun: str) -> str:
    """Return the number of seeds of a claim, with a note if they are few."""
    return f"{'only ' if number < FEW_SEEDS else ''}{counted(number, noun)}"
