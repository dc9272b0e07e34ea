"""Random choices of Hypothesis in a few words, so that what it draws can be shrunk."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Draws:
    """Choices that `draw` makes; simpler ones come first, so a failing example shrinks towards them."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw

    def number(self, least: int, most: int) -> int:
        """Return a whole number of a range."""
        return int(self._draw(_integers(least, most)))

    def chance(self, percent: int) -> bool:
        """Return true in so many of 100 cases; false is the simpler one."""
        return self.number(0, 99) >= 100 - percent

    def choice(self, values: Sequence[T]) -> T:
        """Return one of the values; the first is the simplest."""
        return values[self.number(0, len(values) - 1)]

    def some(self, values: Sequence[T], most: int) -> list[T]:
        """Return one to `most` different values."""
        left = list(values)
        return [left.pop(self.number(0, len(left) - 1)) for _ in range(self.number(1, min(most, len(left))))]


class RandomDraws(Draws):
    """Choices of a seed, which are made faster than those that can be shrunk."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, least: int, most: int) -> int:
        """Return a whole number of a range."""
        return self._random.randint(least, most)


@cache
def _integers(least: int, most: int) -> st.SearchStrategy[int]:
    return st.integers(least, most)
