"""Patterns of GPU shares on one device: the maximal multisets of sizes that fit, the columns of a cutting-stock LP."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI

Ints = npt.NDArray[np.int64]


class Patterns(NamedTuple):
    """The ways to fill a device, P patterns of S sizes.

    Attributes:
        sizes: [S] milli of a device, descending.
        counts: [P, S] number of shares of each size in a pattern. Together they take at most 1000 milli, and nothing
            of the smallest size fits beside them.
        exact: whether `sizes` are all that were requested.
    """

    sizes: Ints
    counts: Ints
    exact: bool

    def size_of(self, milli: Ints) -> Ints:
        """Return [G] the index of the largest size that is at most `milli`, S if there is none."""
        return np.asarray((self.sizes[np.newaxis] > milli[:, np.newaxis]).sum(axis=1), dtype=np.int64)


def device_patterns(demand: dict[int, int], limit: int) -> Patterns:
    """Return the patterns of the sizes in `demand` (milli -> GPU milli requested in that size), at most `limit`.

    Their number grows exponentially with that of the sizes. If it exceeds `limit`, only the sizes with the highest
    demand are kept; a share of another size then counts as one of the next smaller size that is kept, which can only
    make more shares fit (a relaxation).
    """
    ranked = sorted(demand, key=lambda milli: (-demand[milli], milli))
    counts = _maximal(ranked, limit)
    if counts is not None:
        return Patterns(np.array(sorted(ranked, reverse=True), dtype=np.int64), counts, True)
    # One size has one maximal pattern, which is always within the limit.
    kept, counts = 1, np.array([[GPU_MILLI // ranked[0]]], dtype=np.int64)
    fewest, most = 2, len(ranked) - 1
    # Bisection: more sizes never have fewer patterns.
    while fewest <= most:
        tried = (fewest + most) // 2
        maximal = _maximal(ranked[:tried], limit)
        if maximal is None:
            most = tried - 1
        else:
            kept, counts, fewest = tried, maximal, tried + 1
    return Patterns(np.array(sorted(ranked[:kept], reverse=True), dtype=np.int64), counts, False)


def _maximal(sizes: Iterable[int], limit: int) -> Ints | None:
    """Return [P, S] all patterns of the sizes, in descending order; None if there are more than `limit`."""
    descending = sorted(sizes, reverse=True)
    last = len(descending) - 1
    result: list[tuple[int, ...]] = []

    def extend(begun: tuple[int, ...], left: int) -> bool:
        size = descending[len(begun)]
        if len(begun) == last:
            result.append((*begun, left // size))
            return len(result) <= limit
        return all(extend((*begun, count), left - count * size) for count in range(left // size, -1, -1))

    return np.array(result, dtype=np.int64) if extend((), GPU_MILLI) else None
