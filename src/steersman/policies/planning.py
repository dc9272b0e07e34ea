"""Planning with a model of the GPUs alone: what a device with so much left will lose in the end.

The model is a heap of equal devices, without nodes, CPU or GPU models, that typical pods fill in random order until
their demand is 1.3 times the devices. The placing rule is greedy in a table T of losses: of the devices with enough
left, one whose loss grows least, T(left - pod) - T(left). Devices with equal leftovers are interchangeable, so the
state is a histogram and an episode takes a fraction of a millisecond: a good table can be searched for.

Two steps. *Policy iteration*: along an episode the expected final leftover of a device is exact by recursion backwards
(of n devices with x left, the one that is taken is each with probability 1 / n); its means become the next table. Then
*evolution* of the table (`strategies.SeparableCma`) on the leftover itself: it also finds tables that no such iteration
leads to, where small pods are spread so that pods which waste much find no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from steersman import strategies
from steersman.cluster.arrays import WHOLE
from steersman.compiled import kernel
from steersman.policies import planned_tables
from steersman.strategies import SeparableCma
from steersman.workloads.mix import TypicalPod

DEVICES = 1_500
DEMAND = 1.3  # of the devices
ITERATIONS = 14
NEW_SHARE = 0.4  # of a table in the next one
GENERATIONS = 80
POPULATION = 16
STEPS = (0.015, 0.06)  # GPUs; two searches, since the best tables of some mixes lie far off
SEQUENCES = 6
SEED = 100

Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


@lru_cache(maxsize=256)
def planned_losses(pods: tuple[TypicalPod, ...]) -> Array:
    """Find what a device with so many milli left loses in the end, [1001] GPUs; kept in the user's cache folder."""
    sizes, shares = device_requests(pods)
    if not len(sizes):
        return np.zeros(WHOLE + 1)
    settings = (DEVICES, DEMAND, ITERATIONS, NEW_SHARE, GENERATIONS, POPULATION, STEPS, SEQUENCES, SEED)
    key = repr((settings, sizes.tolist(), shares.tolist())).encode()
    return planned_tables.kept(key, (Path(__file__), Path(strategies.__file__)), lambda: plan_losses(sizes, shares))


def plan_losses(sizes: Whole, shares: Array) -> Array:
    """Search for the best table, [1001] GPUs, for pods that ask for `sizes` milli of a device, [V], by their shares."""
    sequences = [_sequence(sizes, shares, SEED + i) for i in range(2 * SEQUENCES)]
    search, check = sequences[:SEQUENCES], sequences[SEQUENCES:]
    first = _iterate(sizes, search[:2], filling_losses(sizes.tolist(), shares.tolist()))
    steps = STEPS if len(sizes) > 1 else ()  # one size fills every device alike, whatever the table says
    tables = [first] + [_evolve(sizes, search, first, step) for step in steps]
    lost = [sum(_episode(sizes, sequence, table)[0] for sequence in check) for table in tables]
    return _smoothed(sizes, check, tables[int(np.argmin(lost))])


def device_requests(pods: Sequence[TypicalPod]) -> tuple[Whole, Array]:
    """The distinct milli that pods ask of a device, ascending, and each one's share of all requests for a device."""
    wanted: dict[int, float] = {}
    for pod in pods:
        if pod.gpu_count and pod.gpu_milli:
            wanted[pod.gpu_milli] = wanted.get(pod.gpu_milli, 0.0) + pod.share * pod.gpu_count
    sizes = sorted(wanted)
    shares = np.array([wanted[size] for size in sizes])
    return np.array(sizes, dtype=np.int64), shares / shares.sum() if sizes else shares


def filling_losses(sizes: Sequence[int], shares: Sequence[float]) -> Array:
    """[1001] GPUs left of a device in the mean, if pods of these sizes come at random until none fits."""
    lost = np.arange(WHOLE + 1) / WHOLE
    for left in range(WHOLE + 1):
        fitting = [(size, share) for size, share in zip(sizes, shares, strict=True) if size <= left]
        if fitting:
            lost[left] = sum(share * lost[left - size] for size, share in fitting) / sum(share for _, share in fitting)
    return lost


def _grain(sizes: Whole) -> int:
    """What all leftovers are multiples of."""
    return int(np.gcd.reduce(np.append(sizes, WHOLE)))


def _sequence(sizes: Whole, shares: Array, seed: int) -> Whole:
    """Requests as indices of `sizes`, at random, until the demand is reached."""
    count = int(DEMAND * DEVICES * WHOLE / (sizes * shares).sum())
    return np.random.default_rng(seed).choice(len(sizes), count, p=shares).astype(np.int64)


def _episode(sizes: Whole, sequence: Whole, table: Array) -> tuple[float, Whole, Whole]:
    """GPUs lost of each device, the final histogram of leftovers, and the leftover that each request was put on."""
    devices = np.zeros(WHOLE + 1, dtype=np.int64)
    devices[WHOLE] = DEVICES
    chosen = np.zeros(len(sequence), dtype=np.int64)
    play(sizes, sequence, _grain(sizes), table, devices, chosen)
    return float((np.arange(WHOLE + 1) * devices).sum()) / WHOLE / DEVICES, devices, chosen


@kernel
def play(sizes: Whole, sequence: Whole, grain: int, table: Array, devices: Whole, chosen: Whole) -> None:
    """Place a sequence of requests; `devices`, [1001], is the histogram of leftovers, `chosen` -1: it fits nowhere."""
    for i in range(sequence.shape[0]):
        size = sizes[sequence[i]]
        least, at = np.inf, -1
        for left in range(-(-size // grain) * grain, WHOLE + 1, grain):
            if devices[left] > 0:
                growth = table[left - size] - table[left]
                if growth < least:
                    least, at = growth, left
        chosen[i] = at
        if at >= 0:
            devices[at] -= 1
            devices[at - size] += 1


@kernel
def look_back(
    sizes: Whole, sequence: Whole, chosen: Whole, devices: Whole, loss: Array, sums: Array, counts: Array
) -> None:
    """Undo an episode; adds to sums / counts, [1001], the expected final leftover at each visit, in GPUs."""
    for left in range(WHOLE + 1):
        loss[left] = left / WHOLE
    for k in range(sequence.shape[0]):
        i = sequence.shape[0] - 1 - k
        left = chosen[i]
        if left >= 0:
            after = left - sizes[sequence[i]]
            devices[left] += 1
            devices[after] -= 1
            loss[left] += (loss[after] - loss[left]) / devices[left]
            sums[after] += loss[after]
            counts[after] += 1.0


def _iterate(sizes: Whole, sequences: Sequence[Whole], table: Array) -> Array:
    best, least = table, np.inf
    for _ in range(ITERATIONS):
        sums, counts, lost = np.zeros(WHOLE + 1), np.zeros(WHOLE + 1), 0.0
        for sequence in sequences:
            left, devices, chosen = _episode(sizes, sequence, table)
            look_back(sizes, sequence, chosen, devices, np.zeros(WHOLE + 1), sums, counts)
            lost += left
        if lost < least:
            best, least = table, lost
        table = np.where(counts > 0, (1 - NEW_SHARE) * table + NEW_SHARE * sums / np.maximum(counts, 1), table)
    return best


def _evolve(sizes: Whole, sequences: Sequence[Whole], start: Array, step: float) -> Array:
    possible = np.arange(0, WHOLE + 1, _grain(sizes))
    strategy = SeparableCma(start[possible], step, POPULATION, SEED)
    table = start.copy()
    for generation in range(GENERATIONS):
        two = [sequences[(2 * generation + i) % len(sequences)] for i in range(2)]
        values = []
        for candidate in strategy.ask():
            table[possible] = candidate
            values.append(-sum(_episode(sizes, sequence, table)[0] for sequence in two))
        strategy.tell(values)
    table[possible] = strategy.mean
    return table


def _reached(sizes: Whole, sequences: Sequence[Whole], table: Array) -> npt.NDArray[np.bool_]:
    """[1001] which leftovers devices have at some time."""
    reached = np.zeros(WHOLE + 1, dtype=np.bool_)
    reached[[0, WHOLE]] = True
    for sequence in sequences:
        _, _, chosen = _episode(sizes, sequence, table)
        reached[chosen[chosen >= 0] - sizes[sequence[chosen >= 0]]] = True
    return reached


def _smoothed(sizes: Whole, sequences: Sequence[Whole], table: Array) -> Array:
    """The table relative to a full device; a leftover that no device had is the next smaller one and something lost."""
    reached = _reached(sizes, sequences, table)
    smooth: Array = table - table[0]
    last = 0
    for left in range(WHOLE + 1):
        if reached[left]:
            last = left
        else:
            smooth[left] = smooth[last] + (left - last) / WHOLE
    return smooth
