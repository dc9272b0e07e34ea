"""Random numbers for compiled functions: SplitMix64 streams, a row for each environment and a column for each stream.

Separate streams are independent of each other: the workload, its load and the errors of measurement are the same
whatever a policy decides, so that runs of two policies are paired by their seed.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@numba.njit(error_model="numpy")
def mixed(z: np.uint64) -> np.uint64:
    """Return SplitMix64's finaliser of `z` (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@numba.njit(error_model="numpy")
def next_bits(rng: npt.NDArray[np.uint64], stream: int) -> np.uint64:
    """Return 64 random bits from one of several streams, [S]."""
    rng[stream] += GOLDEN
    return mixed(rng[stream])


@numba.njit(error_model="numpy")
def scaled(bits: np.uint64, bound: int) -> int:
    """Return an integer in [0, bound) from random bits, by multiplication."""
    return int(((bits >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@numba.njit(error_model="numpy")
def random_bits(rng: npt.NDArray[np.uint64], e: int, stream: int) -> np.uint64:
    """Return 64 random bits from a stream of environment `e`."""
    return next_bits(rng[e], stream)


@numba.njit(error_model="numpy")
def uniform(rng: npt.NDArray[np.uint64], e: int, stream: int) -> float:
    """Return a number in [0, 1)."""
    # A float holds 53 bits; more would round up to 1.
    return float(random_bits(rng, e, stream) >> np.uint64(11)) * 2.0**-53
