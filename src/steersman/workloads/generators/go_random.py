"""Go's `math/rand` number stream, bit for bit, so that an experiment defined by a Go program can be repeated.

Source of the facts: Go 1's `math/rand` (additive lagged Fibonacci generator x[k] = x[k-607] + x[k-273] mod 2^64 over a
fixed table that a Lehmer generator perturbs by the seed). The stream is frozen by Go's compatibility promise.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

LENGTH = 607
TAP = 273
LEHMER_MODULUS = (1 << 31) - 1
DEFAULT_SEED = 89482311  # what Go uses for a seed that is 0 modulo 2^31-1
BLOCKS = 16  # blocks of TAP numbers generated at once


@lru_cache(maxsize=1)
def _table() -> tuple[int, ...]:
    text = resources.files("steersman.data").joinpath("go_math_rand_607.txt").read_text("ascii")
    return tuple(int(line, 16) for line in text.split())


def _lehmer(x: int) -> int:
    return (48271 * x) % LEHMER_MODULUS


class GoRand:
    """The stream of `rand.New(rand.NewSource(seed))`, and of the global functions after `rand.Seed(seed)`."""

    def __init__(self, seed: int) -> None:
        x = seed % LEHMER_MODULUS or DEFAULT_SEED
        for _ in range(20):
            x = _lehmer(x)
        vector = []
        for cooked in _table():
            x = _lehmer(x)
            u = x << 40
            x = _lehmer(x)
            u ^= x << 20
            x = _lehmer(x)
            vector.append((u ^ x ^ cooked) & 0xFFFFFFFFFFFFFFFF)
        # Draw k reads vector[(333 - k) mod 607], so this is x[-607], ..., x[-1] in the order of the recurrence.
        history = [vector[(LENGTH - TAP - 1 - k) % LENGTH] for k in range(LENGTH)]
        self._history: npt.NDArray[np.uint64] = np.array(history, dtype=np.uint64)
        self._block: list[int] = []
        self._next = 0

    def _refill(self) -> None:
        x = np.empty(LENGTH + BLOCKS * TAP, dtype=np.uint64)
        x[:LENGTH] = self._history
        # A number depends on none of the TAP before it, so that many are computed at once.
        for start in range(LENGTH, len(x), TAP):
            x[start : start + TAP] = x[start - LENGTH : start - LENGTH + TAP] + x[start - TAP : start]
        self._history = x[-LENGTH:].copy()
        self._block = (x[LENGTH:] & np.uint64(0x7FFFFFFFFFFFFFFF)).tolist()
        self._next = 0

    def int63(self) -> int:
        """Return a number in [0, 2^63)."""
        if self._next == len(self._block):
            self._refill()
        value = self._block[self._next]
        self._next += 1
        return value

    def intn(self, n: int) -> int:
        """Return `rand.Intn(n)`: a number in [0, n), 0 < n < 2^31, by modulo with rejection."""
        if n & (n - 1) == 0:
            return (self.int63() >> 32) & (n - 1)
        limit = (1 << 31) - 1 - (1 << 31) % n
        value = self.int63() >> 32
        while value > limit:
            value = self.int63() >> 32
        return value % n

    def _bounded(self, n: int) -> int:
        """Return the unexported `int31n` behind `rand.Shuffle`: Lemire's multiplication with rejection."""
        product = (self.int63() >> 31) * n
        if product & 0xFFFFFFFF < n:
            threshold = ((1 << 32) - n) % n
            while product & 0xFFFFFFFF < threshold:
                product = (self.int63() >> 31) * n
        return product >> 32

    def shuffle(self, items: list[Any]) -> None:
        """Shuffle a list in place as `rand.Shuffle` does."""
        for i in range(len(items) - 1, 0, -1):
            j = self._bounded(i + 1)
            items[i], items[j] = items[j], items[i]

    def perm(self, n: int) -> list[int]:
        """Return `rand.Perm(n)`: a permutation of 0..n-1."""
        permutation = [0] * n
        for i in range(n):
            j = self.intn(i + 1)
            permutation[i] = permutation[j]
            permutation[j] = i
        return permutation
