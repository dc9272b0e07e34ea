"""The newest values of every feature with their age, kept by node and as arrays by slot.

What a round of questions does not bring keeps its last value and the time of that value's sample, so it grows old. Time
is our monotonic clock: an age comes from Prometheus' clock alone, the time of its evaluation minus that of the sample.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.telemetry.prometheus.configuration import FEATURES, LATENCY, Configuration

USERS_KEPT = 64
"""Groups of users whose latencies are kept."""
USER_GONE = 2.0
"""Times the age limit of latencies that users' newest one is behind that of others: then they are forgotten."""
FUTURE_SECONDS = 60.0
"""A sample from further in the future has no time that can be believed: milliseconds for seconds, say."""
ALL_USERS = 0
"""The group of users that are everybody: the largest of a node's latencies."""

Floats = npt.NDArray[np.float64]


class Sample(NamedTuple):
    """A value and when its newest sample was taken, in seconds of our monotonic clock."""

    value: float
    taken: float


class Found(NamedTuple):
    """What a feature's questions brought for one node: whose latency, the value, its age in seconds."""

    node: str
    user: str
    value: float
    age: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The values to decide by, as arrays. M columns: `telemetry.model.METRICS`, then latencies to groups of users.

    Attributes:
        values: [N, M] with what stands for stale and missing values already put in; NaN where nothing does.
        fresh: [N, M] bool: the value is measured and not stale.
        age: [N, M] seconds, inf where there never was a value.
        taken: [N, M] monotonic seconds of the sample, -inf likewise.
        users: column of a group of users, counted from that of the latency; `ALL_USERS` is everybody.
    """

    values: Floats
    fresh: npt.NDArray[np.bool_]
    age: Floats
    taken: Floats
    users: dict[str, int]


@dataclass(slots=True)
class Readings:
    """All values by feature and node.

    Args:
        configuration: says what is stale, and what stands for it.

    Attributes:
        dropped: why values were not taken, counted: `not finite`, `in the future`, `unknown node`, `too many users`.
        version: counts what was taken or forgotten, so that who keeps `raw` knows when to ask again.
    """

    configuration: Configuration
    dropped: Counter[str] = field(default_factory=Counter)
    version: int = 0
    _values: dict[str, dict[str, Sample]] = field(default_factory=lambda: {name: {} for name in FEATURES[:-1]})
    _latency: dict[str, dict[str, Sample]] = field(default_factory=dict)
    """By users, then by node."""

    @property
    def users(self) -> dict[str, int]:
        """The column of each group of users, counted from that of the latency."""
        return {user: 1 + i for i, user in enumerate(self._latency)}

    def take(self, feature: str, found: Iterable[Found], now: float) -> None:
        """Take what the questions of a round brought for one feature; of several values of a node the newest.

        Args:
            feature: which.
            found: the values.
            now: monotonic seconds of the evaluation.
        """
        self.version += 1
        for node, user, value, age in found:
            if not (math.isfinite(value) and math.isfinite(age)):
                self.dropped["not finite"] += 1
                continue
            if age < -FUTURE_SECONDS:
                self.dropped["in the future"] += 1
                continue
            if feature != LATENCY:
                kept = self._values[feature]
            elif user in self._latency or len(self._latency) < USERS_KEPT:
                kept = self._latency.setdefault(user, {})
            else:
                self.dropped["too many users"] += 1
                continue
            sample, known = Sample(max(value, 0.0), now - max(age, 0.0)), kept.get(node)
            if known is None or (sample.taken, sample.value) > (known.taken, known.value):
                kept[node] = sample

    def tidy(self, nodes: Collection[str]) -> None:
        """Forget all nodes but these, and users whom nobody measures any more while others are measured."""
        self.version += 1
        for kept in (*self._values.values(), *self._latency.values()):
            for node in kept.keys() - nodes:
                del kept[node]
        newest = {
            user: max((each.taken for each in kept.values()), default=-math.inf) for user, kept in self._latency.items()
        }
        gone = max(newest.values(), default=0.0) - USER_GONE * self.configuration.age_limit(LATENCY)
        for user, taken in newest.items():
            if taken < gone:
                del self._latency[user]

    def raw(self, names: Sequence[str | None]) -> tuple[Floats, Floats]:
        """[N, M] the last values of the nodes in N slots, NaN where there is none, and when they were taken, -inf.

        The column of everybody is the largest latency of the node, taken when the oldest one was.
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
        if self._latency:
            each = values[:, everybody + 1 :]
            values[:, everybody] = np.where(np.isnan(each).all(axis=1), np.nan, np.fmax.reduce(each, axis=1))
            taken[:, everybody] = taken[:, everybody + 1 :].min(axis=1)
        return values, taken

    def measured(self, values: Floats, taken: Floats, present: npt.NDArray[np.bool_], now: float) -> Measured:
        """What to decide by at a moment.

        Args:
            values: [N, M] as `raw` gives them.
            taken: [N, M] likewise.
            present: [N] whether there is a node in a slot.
            now: monotonic seconds.
        """
        age = now - taken
        limits, policies = [], []
        for column in range(values.shape[1]):
            name = FEATURES[min(column, len(FEATURES) - 1)]
            limits.append(self.configuration.age_limit(name))
            policies.append(self.configuration.features[name].when_stale)
        fresh = (age <= np.array(limits)) & present[:, None]
        made = np.where(fresh, values, np.nan)
        for column, policy in enumerate(policies):
            if policy == "last":
                made[:, column] = np.where(present, values[:, column], np.nan)
            elif policy == "impute" and fresh[:, column].any():
                median = float(np.median(made[fresh[:, column], column]))
                made[present & ~fresh[:, column], column] = median
        return Measured(made, fresh, age, taken, self.users)
