"""Numbers and names in sentences."""

from __future__ import annotations

from collections.abc import Sequence

NAMED = 3  # names that a sentence lists before it says how many more there are


def counted(number: int, noun: str) -> str:
    """Return a number and a noun in singular or plural: "1 node", "1,024 nodes"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def first_names(names: Sequence[str]) -> str:
    """Return the first names, and how many follow: "a, b, c and 4 more"."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
