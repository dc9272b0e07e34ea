"""Workload inflation: the order of pods and nodes of the published openb experiments, with Go's random numbers.

Pods of the trace are shuffled, then drawn again with replacement until their GPU demand reaches `ratio` times the
cluster's capacity; nodes get a random rank that breaks ties. Times in the trace are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI
from steersman.core.errors import SteersmanError
from steersman.workloads.workload import Workload

# Go's `math/rand` number stream, bit for bit, so that an experiment defined by a Go program can be repeated.
# Source: Go 1's `math/rand`, an additive lagged Fibonacci generator, x[k] = x[k-607] + x[k-273] mod 2^64, over a fixed
# table that a Lehmer generator perturbs by the seed. The stream is frozen by Go's compatibility promise.

LENGTH = 607
TAP = 273
LEHMER_MODULUS = (1 << 31) - 1
DEFAULT_SEED = 89482311  # what Go uses for a seed that is 0 modulo 2^31-1
Integers = npt.NDArray[np.int64]
BLOCKS = 16  # blocks of TAP numbers generated at once


@lru_cache(maxsize=1)
def _table() -> npt.NDArray[np.uint64]:
    text = resources.files("steersman.data").joinpath("go_math_rand_607.txt").read_text("ascii")
    return np.array([int(line, 16) for line in text.split()], dtype=np.uint64)


@lru_cache(maxsize=1)
def _lehmer_powers() -> npt.NDArray[np.uint64]:
    """Return the powers of the Lehmer generator's factor, from the 21st on: three for each number of the table."""
    powers = [pow(48271, k, LEHMER_MODULUS) for k in range(21, 21 + 3 * LENGTH)]
    return np.array(powers, dtype=np.uint64)


class GoRand:
    """The stream of `rand.New(rand.NewSource(seed))`, and of the global functions after `rand.Seed(seed)`."""

    def __init__(self, seed: int) -> None:
        first = np.uint64(seed % LEHMER_MODULUS or DEFAULT_SEED)
        # A product of two numbers below 2^31 fits in 64 bits.
        high, middle, low = (_lehmer_powers() * first % np.uint64(LEHMER_MODULUS)).reshape(LENGTH, 3).T
        vector = (high << np.uint64(40)) ^ (middle << np.uint64(20)) ^ low ^ _table()
        # Draw k reads vector[(333 - k) mod 607], so this is x[-607], ..., x[-1] in the order of the recurrence.
        self._history = vector[(LENGTH - TAP - 1 - np.arange(LENGTH)) % LENGTH]
        self._drawn = np.zeros(0, dtype=np.uint64)
        self._next = 0  # of the drawn numbers

    def _ahead(self, count: int) -> npt.NDArray[np.uint64]:
        """Return the next numbers in [0, 2^63), which stay the next ones."""
        while len(self._drawn) - self._next < count:
            x = np.empty(LENGTH + BLOCKS * TAP, dtype=np.uint64)
            x[:LENGTH] = self._history
            # A number depends on none of the TAP before it, so that many are computed at once.
            for start in range(LENGTH, len(x), TAP):
                x[start : start + TAP] = x[start - LENGTH : start - LENGTH + TAP] + x[start - TAP : start]
            self._history = x[-LENGTH:].copy()
            self._drawn = np.concatenate([self._drawn[self._next :], x[LENGTH:] & np.uint64(0x7FFFFFFFFFFFFFFF)])
            self._next = 0
        return self._drawn[self._next : self._next + count]

    def skip(self, count: int) -> None:
        """Draw so many numbers."""
        self._ahead(count)
        self._next += count

    def int63(self) -> int:
        """Return a number in [0, 2^63)."""
        value = int(self._ahead(1)[0])
        self.skip(1)
        return value

    def intn(self, n: int) -> int:
        """Return `rand.Intn(n)`: a number in [0, n), 0 < n < 2^31, by modulo with rejection."""
        while True:
            values, drawn = self.intn_ahead(np.full(1, n))
            self.skip(drawn)
            if len(values):
                return int(values[0])

    def intn_ahead(self, n: npt.NDArray[np.int64]) -> tuple[Integers, int]:
        """Return what the next calls of `intn` would, without drawing: the first ones, up to a rejected number.

        Also return how many numbers these calls draw.
        """
        values = (self._ahead(len(n)) >> np.uint64(32)).astype(np.int64)
        is_power = n & (n - 1) == 0
        rejected = np.flatnonzero(~is_power & (values > (1 << 31) - 1 - (1 << 31) % n))
        count = int(rejected[0]) if len(rejected) else len(n)
        return np.where(is_power, values & (n - 1), values % n)[:count], min(count + 1, len(n))

    def shuffle(self, items: list[Any]) -> None:
        """Shuffle a list in place as `rand.Shuffle` does, by Lemire's multiplication with rejection."""
        ends = np.arange(len(items), 1, -1, dtype=np.uint64)
        while len(ends):
            products = (self._ahead(len(ends)) >> np.uint64(31)) * ends
            low = products & np.uint64(0xFFFFFFFF)
            rejected = np.flatnonzero((low < ends) & (low < ((1 << 32) - ends) % ends))
            taken = int(rejected[0]) if len(rejected) else len(ends)
            for end, j in zip(ends[:taken].tolist(), (products[:taken] >> np.uint64(32)).tolist(), strict=True):
                items[end - 1], items[j] = items[j], items[end - 1]
            # A rejected number is drawn, too, and then another one in its place.
            self.skip(min(taken + 1, len(ends)))
            ends = ends[taken:]

    def perm(self, n: int) -> list[int]:
        """Return `rand.Perm(n)`: a permutation of 0..n-1."""
        permutation, i = [0] * n, 0
        while i < n:
            values, drawn = self.intn_ahead(np.arange(i + 1, n + 1))
            self.skip(drawn)
            for j in values.tolist():
                permutation[i] = permutation[j]
                permutation[j] = i
                i += 1
        return permutation


MAX_DRAWS = 20_000_000  # about 20 seconds, and what fits in memory
DRAWN_AHEAD = 4_000  # draws of pods that are looked at together
DISCARDED_DRAWS = 10  # what the published program draws between tuning and the permutation of nodes


@dataclass(frozen=True, slots=True)
class Inflation:
    """One experiment: [E] indices of the workload's pods in order of arrival, and [N] indices of its nodes by rank.

    A pod may arrive several times. Pods that run from the start come first. Among equal scores the first node wins.
    """

    pods: npt.NDArray[np.int64]
    nodes: npt.NDArray[np.int64]


def inflate(workload: Workload, *, ratio: float, seed: int, shuffle: bool = True) -> Inflation:
    """Make the experiment of `seed`, at `ratio` times the GPU capacity of the nodes.

    `shuffle` False keeps the order of `workload.pods` (simon's `shufflePod: false`) and appends the draws. Pods that
    run from the start count towards the ratio; those that belong to their node are not drawn.

    Where running pods stay (`Workload.from_now`), all that wait arrive, even if they exceed the ratio. Pods that fit
    on no node (`Workload.fits`) arrive once, and do not count towards it.
    """
    capacity, demand = workload.gpu_capacity, workload.counted_demand
    standing, drawable = workload.standing(), workload.drawable()
    if not capacity or not any(demand[i] for i in drawable):
        who = "pods" if capacity else "counted nodes" if workload.account.left_out else "nodes"
        raise SteersmanError(
            f"{workload.name}: its {who} have no GPU, so it cannot be inflated to a share of GPU capacity; "
            "use --protocol arrivals or timed"
        )
    # Order and draws of the published program (pkg/simulator: SortClusterPods, tuneUpPods), for the same pods by seed.
    by_name = sorted(drawable, key=lambda i: workload.pods[i].name)
    drawn = [i for i in by_name if workload.fits[i]]
    there = set(standing)
    random = GoRand(seed)
    random.skip(1)  # it draws a number for its log, right after seeding
    order = [i for i in (by_name if shuffle else drawable) if i not in there]
    if shuffle:
        random.shuffle(order)
    running = sum(workload.recorded_demand[i] for i in standing)
    target = ratio * capacity - running
    total = sum(demand[i] for i in order)
    _check_reachable(workload, [demand[i] for i in drawn], target - total)
    requests = [pod.requests for pod in workload.pods]
    device_milli = [min(r.gpu_milli, whole) or whole for r, whole in zip(requests, demand, strict=True)]
    if total <= target:
        _draw(order, drawn, demand, device_milli, total, target, random)
    elif not workload.from_now:
        _drop(order, demand, total, target, random)
    if not order and (smaller := [i for i in drawn if demand[i] <= target]):
        # The first pod that was drawn exceeds the target, which says nothing of the others.
        order.append(smaller[random.intn(len(smaller))])
        _draw(order, drawn, demand, device_milli, demand[order[0]], target, random)
    if not order:
        whole, wanted = capacity / GPU_MILLI, ratio * capacity / GPU_MILLI
        raise SteersmanError(
            f"{workload.name}: no pod arrives at ratio {ratio:g}, a demand of {wanted:g} of {whole:g} GPUs: "
            f"pods that run already request {running / GPU_MILLI:g}, and the smallest other pod "
            f"{min(demand[i] for i in drawn) / GPU_MILLI:g}; expected a larger --ratio"
        )
    random.skip(DISCARDED_DRAWS)
    nodes = sorted(np.flatnonzero(workload.eligible).tolist(), key=lambda i: workload.nodes[i].name)
    rank = random.perm(len(nodes))
    ranked = np.empty(len(nodes), dtype=np.int64)
    ranked[rank] = nodes
    ranked = np.concatenate([ranked, np.flatnonzero(~workload.eligible)])
    return Inflation(np.array([*standing, *order], dtype=np.int64), ranked)


def _check_reachable(workload: Workload, demand: list[int], missing: float) -> None:
    draws = missing / (sum(demand) / len(demand))
    if draws > MAX_DRAWS:
        raise SteersmanError(
            f"{workload.name}: its pods request so little GPU that about {draws:.0f} would have to be drawn; "
            "use --protocol arrivals, or a smaller --ratio"
        )


def _drop(order: list[int], demand: Sequence[int], total: int, target: float, random: GoRand) -> None:
    """Remove pods, whose demand is `total`, at random until it does not exceed the target."""
    while total > target and order:
        values, drawn = random.intn_ahead(np.arange(len(order), max(len(order) - DRAWN_AHEAD, 0), -1))
        for count, value in enumerate(values.tolist(), 1):
            total -= demand[order.pop(value)]
            if total <= target:
                drawn = count
                break
        random.skip(drawn)


def _draw(
    order: list[int],
    by_name: list[int],
    demand: Sequence[int],
    device_milli: list[int],
    total: int,
    target: float,
    random: GoRand,
) -> None:
    """Append pods at random to those whose demand is `total`, until the next one would exceed the target."""
    by_pod, of_device, names = np.array(demand), np.array(device_milli), np.array(by_name)
    while by_name:
        values, drawn = random.intn_ahead(np.full(DRAWN_AHEAD, len(by_name)))
        pods = names[values]
        before = total + np.cumsum(by_pod[pods]) - by_pod[pods]
        # The published program compares with the milli of one device, not of all; kept for comparable results.
        beyond = np.flatnonzero(before + of_device[pods] > target)
        end = int(beyond[0]) if len(beyond) else len(pods)
        order += pods[:end].tolist()
        random.skip(end + 1 if len(beyond) else drawn)
        if len(beyond):
            return
        total += int(by_pod[pods].sum())
