"""Planned loss tables: the expected final loss of a GPU device by its free milli, from a model of the devices alone.

The model is a pool of equal devices, without nodes, CPU or GPU models. Typical pods arrive in random order until their
demand is 1.3 times the capacity. Placement is greedy in a table T of losses: of the devices with enough free milli,
one with the least increase T(left - pod) - T(left) is chosen. Devices with equal free milli are interchangeable, so the
state is a histogram and an episode takes a fraction of a millisecond, short enough to search for a good table.

The search has two steps. *Policy iteration*: along an episode the expected final leftover of a device follows exactly
from a backward recursion (each of n devices with x left is the chosen one with probability 1 / n); its means become the
next table. *Evolution* (`core.evolution_strategies.SeparableCma`) then minimizes the final leftover directly. It also
finds tables outside the reach of policy iteration, which spread small pods so that wasteful pods fit nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI
from steersman.core.evolution_strategies import SeparableCma
from steersman.core.handles import play_requests, undo_requests
from steersman.workloads.profile import TypicalPod

DEVICES = 1_500
DEMAND = 1.3  # of the devices
ITERATIONS = 14
NEW_SHARE = 0.4  # weight of new estimates in the next table
GENERATIONS = 80
POPULATION = 16
STEPS = (0.015, 0.06)  # GPUs; two searches, since the best tables of some profiles are far from the start
SEQUENCES = 6
SEED = 100

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@lru_cache(maxsize=256)
def planned_losses(pods: tuple[TypicalPod, ...]) -> FloatArray:
    """Return the expected final loss by free milli of a device, [1001] GPUs; a search takes half a second."""
    sizes, shares = device_requests(pods)
    return plan_losses(sizes, shares) if len(sizes) else np.zeros(GPU_MILLI + 1)


def plan_losses(sizes: IntArray, shares: FloatArray) -> FloatArray:
    """Search for the best table, [1001] GPUs, for requests of `sizes` milli per device, [V], and their shares, [V]."""
    sequences = [_sequence(sizes, shares, SEED + i) for i in range(2 * SEQUENCES)]
    # Tables are compared on other sequences than those that they were fitted to.
    search, check = sequences[:SEQUENCES], sequences[SEQUENCES:]
    start = _iterate(sizes, search[:2], filling_losses(sizes.tolist(), shares.tolist()))
    steps = STEPS if len(sizes) > 1 else ()  # with one size, all tables fill the devices alike
    tables = [start] + [_evolve(sizes, search, start, step) for step in steps]
    losses = [sum(_episode(sizes, sequence, table)[0] for sequence in check) for table in tables]
    return _smoothed(sizes, check, tables[int(np.argmin(losses))])


def device_requests(pods: Sequence[TypicalPod]) -> tuple[IntArray, FloatArray]:
    """Return the distinct requests in milli per device, ascending, and their shares of all device requests."""
    demand: dict[int, float] = {}
    for pod in pods:
        if pod.gpu_count and pod.gpu_milli:
            demand[pod.gpu_milli] = demand.get(pod.gpu_milli, 0.0) + pod.share * pod.gpu_count
    sizes = sorted(demand)
    shares = np.array([demand[size] for size in sizes])
    return np.array(sizes, dtype=np.int64), shares / shares.sum() if sizes else shares


def filling_losses(sizes: Sequence[int], shares: Sequence[float]) -> FloatArray:
    """Return the mean final leftover of a device, [1001] GPUs, if pods of these sizes arrive until none fits."""
    losses = np.arange(GPU_MILLI + 1) / GPU_MILLI
    for left in range(GPU_MILLI + 1):
        fitting = [(size, share) for size, share in zip(sizes, shares, strict=True) if size <= left]
        if fitting:
            losses[left] = sum(share * losses[left - size] for size, share in fitting) / sum(
                share for _, share in fitting
            )
    return losses


def _grain(sizes: IntArray) -> int:
    """Return the greatest common divisor of all possible leftovers."""
    return int(np.gcd.reduce(np.append(sizes, GPU_MILLI)))


def _sequence(sizes: IntArray, shares: FloatArray, seed: int) -> IntArray:
    """Draw requests, as indices of `sizes`, up to the total demand."""
    count = int(DEMAND * DEVICES * GPU_MILLI / (sizes * shares).sum())
    return np.random.default_rng(seed).choice(len(sizes), count, p=shares).astype(np.int64)


def _episode(sizes: IntArray, sequence: IntArray, table: FloatArray) -> tuple[float, IntArray, IntArray]:
    """Return the lost GPU per device, the final histogram of leftovers, and the leftover chosen for each request."""
    devices = np.zeros(GPU_MILLI + 1, dtype=np.int64)
    devices[GPU_MILLI] = DEVICES
    chosen = np.zeros(len(sequence), dtype=np.int64)
    play_requests(sizes, sequence, _grain(sizes), table, devices, chosen)
    return float((np.arange(GPU_MILLI + 1) * devices).sum()) / GPU_MILLI / DEVICES, devices, chosen


def _iterate(sizes: IntArray, sequences: Sequence[IntArray], table: FloatArray) -> FloatArray:
    """Return the best table of a policy iteration."""
    best, least = table, np.inf
    for _ in range(ITERATIONS):
        sums, counts, loss = np.zeros(GPU_MILLI + 1), np.zeros(GPU_MILLI + 1), 0.0
        for sequence in sequences:
            leftover, devices, chosen = _episode(sizes, sequence, table)
            undo_requests(sizes, sequence, chosen, devices, sums, counts)
            loss += leftover
        if loss < least:
            best, least = table, loss
        table = np.where(counts > 0, (1 - NEW_SHARE) * table + NEW_SHARE * sums / np.maximum(counts, 1), table)
    return best


def _evolve(sizes: IntArray, sequences: Sequence[IntArray], start: FloatArray, step: float) -> FloatArray:
    """Return the mean table of an evolution strategy that minimizes the final leftover."""
    possible = np.arange(0, GPU_MILLI + 1, _grain(sizes))
    strategy = SeparableCma(start[possible], step, POPULATION, SEED)
    table = start.copy()
    for generation in range(GENERATIONS):
        # Two sequences per generation, in rotation: a generation compares candidates on the same ones.
        batch = [sequences[(2 * generation + i) % len(sequences)] for i in range(2)]
        values = []
        for candidate in strategy.ask():
            table[possible] = candidate
            values.append(-sum(_episode(sizes, sequence, table)[0] for sequence in batch))
        strategy.tell(values)
    table[possible] = strategy.mean
    return table


def _reached(sizes: IntArray, sequences: Sequence[IntArray], table: FloatArray) -> npt.NDArray[np.bool_]:
    """Return which leftovers devices have at any time, [1001] bool."""
    reached = np.zeros(GPU_MILLI + 1, dtype=np.bool_)
    reached[[0, GPU_MILLI]] = True
    for sequence in sequences:
        _, _, chosen = _episode(sizes, sequence, table)
        reached[chosen[chosen >= 0] - sizes[sequence[chosen >= 0]]] = True
    return reached


def _smoothed(sizes: IntArray, sequences: Sequence[IntArray], table: FloatArray) -> FloatArray:
    """Return the table minus the loss of a fully used device; fill amounts that no device had.

    Such an amount has the loss of the next smaller one that occurred, plus the difference of the amounts.
    """
    reached = _reached(sizes, sequences, table)
    smooth: FloatArray = table - table[0]
    last = 0
    for left in range(GPU_MILLI + 1):
        if reached[left]:
            last = left
        else:
            smooth[left] = smooth[last] + (left - last) / GPU_MILLI
    return smooth
