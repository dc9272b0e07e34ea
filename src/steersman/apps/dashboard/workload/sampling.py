"""Which rows of a long table a page shows."""

from __future__ import annotations

from collections.abc import Iterable

MOST_ROWS = 2000


def chosen_rows(count: int, most: int = MOST_ROWS, keep: Iterable[int] = ()) -> list[int]:
    """Return the positions of at most `most` of `count` rows at equal distances, the last of them, and those to keep.

    Of those to keep, too, there are `most` at most.
    """
    stride = max(1, -(-count // most))
    kept = list(keep)
    # Counted from the end, so that the last row is among them.
    return sorted({*range(count - 1, -1, -stride), *kept[:: max(1, -(-len(kept) // most))]})
