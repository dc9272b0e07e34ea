"""Newest values of every feature with their age, by node and as arrays by slot.

A value that a round of queries does not bring stays with the time of its sample, so it ages. Time is our monotonic
clock: an age is the time of evaluation minus that of the sample, both by Prometheus' clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.prometheus.configuration import FEATURES, LATENCY_FEATURE, Configuration

USERS_KEPT = 64
FUTURE_SECONDS = 60.0  # samples further in the future are refused (milliseconds for seconds, say)
ALL_USERS = 0  # the group of all users: the largest latency of a node

Floats = npt.NDArray[np.float64]


class RawSample(NamedTuple):
    """A value and the time of its newest sample, in seconds of our monotonic clock."""

    value: float
    taken: float


class MetricSample(NamedTuple):
    """Result of a feature's queries for one node: users of a latency, value, age in seconds."""

    node: str
    user: str
    value: float
    age: float


@dataclass(frozen=True, slots=True)
class NodeMetricsArrays:
    """Values to decide by, as arrays of M columns.

    Columns are `cluster.model.METRICS`, then latencies to groups of users.
    """

    values: Floats  # [N, M], stale and missing values replaced; NaN where there is no replacement
    fresh: npt.NDArray[np.bool_]  # [N, M] bool, whether the value is measured and not stale
    age: Floats  # [N, M] seconds, inf where there never was a value
    taken: Floats  # [N, M] monotonic seconds of the sample, -inf where there never was one
    users: dict[str, int]  # column of a group of users, relative to that of the latency; `ALL_USERS` is all users


@dataclass(slots=True)
class MetricStore:
    """Values by feature and node."""

    configuration: Configuration  # defines staleness and replacements
    # Number of refused values by reason: `not finite`, `in the future`, `unknown node`, `too many users`
    dropped: Counter[str] = field(default_factory=Counter)
    version: int = 0  # incremented with every change, so that users of `last_values` know when to read again
    _values: dict[str, dict[str, RawSample]] = field(default_factory=lambda: {name: {} for name in FEATURES[:-1]})
    _latency: dict[str, dict[str, RawSample]] = field(default_factory=dict)  # by users, then by node

    @property
    def users(self) -> dict[str, int]:
        """Column of each group of users, relative to that of the latency."""
        return {user: 1 + i for i, user in enumerate(self._latency)}

    def record(self, feature: str, result: Iterable[MetricSample], now: float) -> None:
        """Store the results of a round of queries for one feature; of several values of a node the newest.

        Args:
            now: monotonic seconds of the evaluation.
        """
        self.version += 1
        for node, user, value, age in result:
            if not (math.isfinite(value) and math.isfinite(age)):
                self.dropped["not finite"] += 1
                continue
            if age < -FUTURE_SECONDS:
                self.dropped["in the future"] += 1
                continue
            if feature != LATENCY_FEATURE:
                kept = self._values[feature]
            elif user in self._latency or len(self._latency) < USERS_KEPT:
                kept = self._latency.setdefault(user, {})
            else:
                self.dropped["too many users"] += 1
                continue
            # Differences such as `100 - avg(...)` fall below 0 by rounding, ages by two queries a moment apart.
            sample, known = RawSample(max(value, 0.0), now - max(age, 0.0)), kept.get(node)
            if known is None or (sample.taken, sample.value) > (known.taken, known.value):
                kept[node] = sample

    def prune(self, nodes: Collection[str]) -> None:
        """Forget all other nodes, and users whose newest latency is older by `max_age` than the newest of all users."""
        self.version += 1
        for kept in (*self._values.values(), *self._latency.values()):
            for node in kept.keys() - nodes:
                del kept[node]
        newest = {
            user: max((each.taken for each in kept.values()), default=-math.inf) for user, kept in self._latency.items()
        }
        # Relative to other users and not to now: while Prometheus is away, all would be forgotten.
        gone = max(newest.values(), default=0.0) - self.configuration.max_age(LATENCY_FEATURE)
        for user, taken in newest.items():
            if taken < gone:
                del self._latency[user]

    def nodes_with(self, feature: str) -> set[str]:
        kept = self._latency.values() if feature == LATENCY_FEATURE else (self._values[feature],)
        return {node for values in kept for node in values}

    def last_values(self, names: Sequence[str | None]) -> tuple[Floats, Floats]:
        """Return the last values of the nodes in N slots, [N, M], NaN where there is none, and their times, -inf there.

        The column of all users is empty; `resolve` fills it.
        """
        columns = (*self._values.values(), *self._latency.values())
        values = np.full((len(names), len(columns) + 1), np.nan)
        taken = np.full_like(values, -np.inf)
        everybody = len(FEATURES) - 1
        for i, kept in enumerate(columns):
            column = i if i < everybody else i + 1
            for slot, name in enumerate(names):
                sample = kept.get(name) if name is not None else None
                if sample is not None:
                    values[slot, column], taken[slot, column] = sample
        return values, taken

    def resolve(self, values: Floats, taken: Floats, present: npt.NDArray[np.bool_], now: float) -> NodeMetricsArrays:
        """Return the values to decide by at a moment: stale and missing ones replaced as configured (`WhenStale`).

        The column of all users is the largest latency of the node, with the time of its oldest sample; it counts as
        missing where one group is not measured from the node. Users whose newest latency is stale while others' is not
        do not count in it.

        Args:
            values: [N, M] as from `last_values`.
            taken: [N, M] as from `last_values`.
            present: [N] whether a slot has a node.
        """
        values, taken = self._with_all_users(values, taken, now)
        age = now - taken
        max_ages, modes = [], []
        for column in range(values.shape[1]):
            name = FEATURES[min(column, len(FEATURES) - 1)]
            max_ages.append(self.configuration.max_age(name))
            modes.append(self.configuration.features[name].when_stale)
        fresh = (age <= np.array(max_ages)) & present[:, None]
        fresh_values = np.where(fresh, values, np.nan)
        for column, mode in enumerate(modes):
            if mode == "last":
                fresh_values[:, column] = np.where(present, values[:, column], np.nan)
            elif mode == "impute" and fresh[:, column].any():
                median = float(np.median(fresh_values[fresh[:, column], column]))
                fresh_values[present & ~fresh[:, column], column] = median
        return NodeMetricsArrays(fresh_values, fresh, age, taken, self.users)

    def _with_all_users(self, values: Floats, taken: Floats, now: float) -> tuple[Floats, Floats]:
        """Return copies of the arrays of `last_values` with the column of all users."""
        values, taken, everybody = values.copy(), taken.copy(), len(FEATURES) - 1
        newest = taken[:, everybody + 1 :].max(axis=0, initial=-np.inf)
        counted = now - newest <= self.configuration.max_age(LATENCY_FEATURE)
        users = everybody + 1 + np.flatnonzero(counted if counted.any() else newest > -np.inf)
        if len(users):
            each = values[:, users]
            values[:, everybody] = np.where(np.isnan(each).all(axis=1), np.nan, np.fmax.reduce(each, axis=1))
            taken[:, everybody] = taken[:, users].min(axis=1)
        return values, taken
