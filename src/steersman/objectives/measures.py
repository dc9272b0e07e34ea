"""Rewards: what an action was worth, from the state before it and the state *after* it (rows of `summary`)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import WHOLE
from steersman.compiled import inner
from steersman.objectives.summary import (
    CPU_NODES,
    CPU_SHARE,
    CPU_SQUARE,
    FRAGMENTED,
    GPU_TAKEN,
    NODES,
    NODES_USED,
    TOGETHER,
    WAITED,
)

ALLOCATION, FRAGMENTATION, BALANCE, MOST_ALLOCATED, LEAST_ALLOCATED, WAITING_TIME, LOCALITY = range(7)
"""Numbers of the objectives in compiled code."""

Row = npt.NDArray[np.float64]

SECONDS_AN_HOUR = 3600.0
RESIDUE = 1e-12  # a variance below it is rounding: the sums are kept by adding and subtracting


@inner
def cpu_mean(row: Row) -> float:
    """Mean over nodes of the share of CPU in use."""
    return float(row[CPU_SHARE] / max(row[CPU_NODES], 1.0))


@inner
def cpu_deviation(row: Row) -> float:
    """Standard deviation over nodes of the share of CPU in use."""
    nodes = max(row[CPU_NODES], 1.0)
    mean = row[CPU_SHARE] / nodes
    variance = row[CPU_SQUARE] / nodes - mean * mean
    return math.sqrt(variance) if variance > RESIDUE else 0.0


@inner
def allocation(before: Row, after: Row) -> float:
    """GPUs that the action put to use. Summed over a run without departures: the GPUs in use at its end."""
    return float((after[GPU_TAKEN] - before[GPU_TAKEN]) / WHOLE)


@inner
def fragmentation(before: Row, after: Row) -> float:
    """(F_before - F_after) / 1000, F the fragmented GPU milli of the cluster: GPUs made useful to typical pods."""
    return float((before[FRAGMENTED] - after[FRAGMENTED]) / WHOLE)


@inner
def balance(after: Row) -> float:
    """1 - 2 s / (s + 1), s the standard deviation over nodes of the share of CPU in use; 1 when all are equal."""
    s = cpu_deviation(after)
    return 1.0 - 2.0 * s / (s + 1.0)


@inner
def most_allocated(after: Row) -> float:
    """Share of the nodes that hold no pod and could be switched off."""
    return float(1.0 - after[NODES_USED] / max(after[NODES], 1.0))


@inner
def least_allocated(after: Row) -> float:
    """1 - sqrt(mean of u²), u the share of CPU in use on a node: the less and the more evenly, the better."""
    return 1.0 - math.sqrt(max(after[CPU_SQUARE], 0.0) / max(after[CPU_NODES], 1.0))


@inner
def waiting_time(after: Row) -> float:
    """-(pod-hours waited from the action to the next decision). Summed over a run: all hours waited, negative."""
    return float(-after[WAITED] / SECONDS_AN_HOUR)


@inner
def locality(after: Row) -> float:
    """Share of the running pods of the placed pod's owner that are in its rack, itself included; 1 without an owner."""
    return float(after[TOGETHER])


@inner
def measure(objective: int, before: Row, after: Row) -> float:
    """The reward of one objective."""
    if objective == ALLOCATION:
        return allocation(before, after)
    if objective == FRAGMENTATION:
        return fragmentation(before, after)
    if objective == BALANCE:
        return balance(after)
    if objective == MOST_ALLOCATED:
        return most_allocated(after)
    if objective == LEAST_ALLOCATED:
        return least_allocated(after)
    if objective == WAITING_TIME:
        return waiting_time(after)
    return locality(after)


@inner
def weighted(objectives: npt.NDArray[np.int64], weights: npt.NDArray[np.float64], before: Row, after: Row) -> float:
    """The weighted sum of several objectives' rewards."""
    total = 0.0
    for i in range(objectives.shape[0]):
        total += weights[i] * measure(objectives[i], before, after)
    return total
