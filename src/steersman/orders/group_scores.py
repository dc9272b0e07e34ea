"""Scores of groups of equal pods that wait for a live scheduler, compiled, and which group goes next."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.core.compiled import inlined_kernel, kernel
from steersman.orders.estimates import MEDIAN, OWNER_REQUESTS, SPREAD, RunTimeHistory, update_estimate
from steersman.orders.scores import LEARNED, learned_score, simple_score

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Kinds of scores beside those of `scores`: of age, and known when a pod arrives.
BY_AGE, BY_GIVEN = -1, 0
# Indices of the limits of `first_group`: seconds after which a pod goes before all others of its priority, the time
# that arrivals count from, the size of the cluster, its free share, and the number of pods that wait.
AGEING, BEGAN, CAPACITY, FREE, WAITING = range(5)


class GroupTable(NamedTuple):
    """Groups of equal pods, K of them.

    Attributes:
        priority: [K] pods of higher priority go first.
        given: [K] scores that are known at the arrival.
        size: [K] what a pod requests, in the unit of the cluster's size.
        estimates: [K, 2] columns MEDIAN and SPREAD of `estimates`.
    """

    priority: Ints
    given: Floats
    size: Floats
    estimates: Floats


class WaitingGroups(NamedTuple):
    """Those groups of a table that have waiting pods, in any order.

    Attributes:
        group: [G] row of the table.
        since: [G] when the oldest pod of the group began to wait, seconds.
        number: [G] decides ties of equally old pods, the lowest first.
        score: [G] output: the lowest goes first.
    """

    group: Ints
    since: Floats
    number: Ints
    score: Floats


@inlined_kernel
def _group_score(
    table: GroupTable, kind: int, weights: Floats, limits: Floats, g: int, since: float, now: float
) -> float:
    """Return the score of a group by its oldest pod, infinite if it is not a number."""
    w = max(now - since, 0.0)
    if w > limits[AGEING]:
        return -math.inf
    if kind == BY_AGE:
        return since
    if kind == BY_GIVEN:
        value = table.given[g]
    else:
        r = max(table.estimates[g, MEDIAN], 1.0)
        if kind == LEARNED:
            share = min(table.size[g] / limits[CAPACITY], 1.0)
            spread, free = table.estimates[g, SPREAD], limits[FREE]
            value = learned_score(weights, r, spread, share, w, free, limits[WAITING], 0.0)
        else:
            value = simple_score(kind, r, table.size[g], w, since - limits[BEGAN])
    return float(math.inf if math.isnan(value) else value)


@kernel
def first_group(
    table: GroupTable, waiting: WaitingGroups, count: int, kind: int, weights: Floats, limits: Floats, now: float
) -> int:
    """Return the row of `waiting` whose oldest pod goes next: by priority, score and age.

    The first `count` rows count, at least 1; their scores are written. `weights` are those of a learned order, `limits`
    [5] see AGEING...
    """
    best = 0
    for i in range(count):
        g, b = waiting.group[i], waiting.group[best]
        waiting.score[i] = _group_score(table, kind, weights, limits, g, waiting.since[i], now)
        if i == best or table.priority[g] < table.priority[b]:
            continue
        if table.priority[g] == table.priority[b]:
            if waiting.score[i] > waiting.score[best]:
                continue
            if waiting.score[i] == waiting.score[best]:
                if waiting.since[i] > waiting.since[best]:
                    continue
                if waiting.since[i] == waiting.since[best] and waiting.number[i] > waiting.number[best]:
                    continue
        best = i
    return best


@kernel
def estimate_groups(history: RunTimeHistory, keys: Ints, rows: Ints, out: Floats) -> None:
    """Write estimates of M groups (`keys` [M, LEVELS]) to `rows` [M] of `out`, [K, 2] as `GroupTable.estimates`."""
    for i in range(keys.shape[0]):
        update_estimate(history, keys[i])
        k = keys[i, OWNER_REQUESTS]
        out[rows[i], MEDIAN] = history.estimates[k, MEDIAN]
        out[rows[i], SPREAD] = history.estimates[k, SPREAD]
