"""History of a live cluster in bounded memory: fine samples of the last hour, coarse ones of the last day."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

FINE = 5.0, 720  # seconds between two samples and number of samples: an hour
COARSE = 60.0, 1440  # a day
MOST_SERIES = 128  # series of numbers; further ones are left out
MOST_NODES = 8192  # nodes whose pods are counted; beyond it the longest gone are forgotten, then new ones left out
MOST_LINES = 20  # lines of a graph; beyond it the smaller groups of nodes are one
MOST_REASONS = 32  # reasons of waiting pods that are kept; beyond it that of longest ago is one of the others
MOST_REASON_LINES = 7  # lines of a graph of reasons
MOST_POINTS = 360  # points of a line; more are thinned out
UNKNOWN = np.iinfo(np.uint16).max
OTHERS = "all others"
OTHER_REASONS = "other reasons"

Floats = npt.NDArray[np.float64]


class _Ring:
    """Samples `step` seconds apart or more, the oldest overwritten.

    Times, each series and each reason are [S], pods [S, columns].
    """

    def __init__(self, step: float, size: int) -> None:
        self.step, self.size, self.count = step, size, 0
        self.times = np.full(size, -math.inf)
        self.series: dict[str, npt.NDArray[np.float32]] = {}
        self.reasons: dict[str, npt.NDArray[np.float32]] = {}
        self.pods = np.full((size, 0), UNKNOWN, dtype=np.uint16)

    @property
    def newest(self) -> float:
        return float(self.times[(self.count - 1) % self.size])

    def order(self, since: float, until: float) -> npt.NDArray[np.int64]:
        """Return the rows of the samples of a time, the oldest first."""
        rows = np.arange(max(0, self.count - self.size), self.count) % self.size
        return rows[(self.times[rows] >= since) & (self.times[rows] <= until)]

    def write(
        self, now: float, values: Mapping[str, float], pods: npt.NDArray[np.uint16], waiting: Mapping[str, float]
    ) -> None:
        row = self.count % self.size
        self.count += 1
        self.times[row], self.pods[row] = now, pods
        for name in values.keys() - self.series.keys():
            self.series[name] = np.full(self.size, math.nan, dtype=np.float32)
        for name, column in self.series.items():
            column[row] = values.get(name, math.nan)
        for name in waiting.keys() - self.reasons.keys():
            self.reasons[name] = np.zeros(self.size, dtype=np.float32)
        for name, column in self.reasons.items():
            column[row] = waiting.get(name, 0)

    def merge(self, reason: str, into: str) -> None:
        column = self.reasons.pop(reason, None)
        if column is not None:
            self.reasons[into] = self.reasons[into] + column if into in self.reasons else column

    def widen(self, columns: int) -> None:
        more = np.full((self.size, columns - self.pods.shape[1]), UNKNOWN, dtype=np.uint16)
        self.pods = np.hstack((self.pods, more))


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of a graph: times, [T], and values by label, [T] each, NaN where nothing is known."""

    times: Floats
    values: Mapping[str, Floats] = field(default_factory=dict)


class ClusterHistory:
    """What a cluster was like in the last day.

    Memory is bounded whatever names come: `MOST_SERIES` series, `MOST_REASONS` reasons and `MOST_NODES` nodes of `FINE`
    and `COARSE` samples.
    """

    def __init__(self) -> None:
        self._fine, self._coarse = _Ring(*FINE), _Ring(*COARSE)
        self._columns: dict[str, int] = {}
        self._free: list[int] = []
        self._gone: dict[str, float] = {}
        self._names: set[str] = set()
        self._sums: dict[str, tuple[float, int]] = {}
        self._reasons: dict[str, float] = {}  # when pods waited for each last
        self._waited = Counter[str]()
        self._samples = 0  # of `_waited`

    def is_due(self, now: float) -> bool:
        return now - self._fine.newest >= self._fine.step

    @property
    def bytes(self) -> int:
        """Bytes of all samples."""
        return sum(
            ring.times.nbytes
            + ring.pods.nbytes
            + sum(each.nbytes for columns in (ring.series, ring.reasons) for each in columns.values())
            for ring in (self._fine, self._coarse)
        )

    def sample(
        self, now: float, values: Mapping[str, float], pods: Mapping[str, int], waiting: Mapping[str, int]
    ) -> None:
        """Add a sample: numbers by the name of their series, the pods on each node, and waiting pods by reason."""
        self._forget(now, pods)
        row = np.full(self._fine.pods.shape[1], UNKNOWN, dtype=np.uint16)
        for name, count in pods.items():
            column = self._columns.get(name)
            if column is None and (column := self._new_column(name)) is None:
                continue
            if column >= len(row):
                row = np.pad(row, (0, self._fine.pods.shape[1] - len(row)), constant_values=UNKNOWN)
            # The largest number stands for unknown.
            row[column] = min(count, UNKNOWN - 1)
        self._names |= set(list(values.keys() - self._names)[: MOST_SERIES - len(self._names)])
        kept = {name: value for name, value in values.items() if name in self._names and math.isfinite(value)}
        for name, value in kept.items():
            total, count = self._sums.get(name, (0.0, 0))
            self._sums[name] = total + value, count + 1
        reasons = self._bounded(now, waiting)
        self._waited.update(reasons)
        self._samples += 1
        self._fine.write(now, kept, row, reasons)
        if now - self._coarse.newest >= self._coarse.step:
            means = {name: count / self._samples for name, count in self._waited.items()}
            self._coarse.write(now, {name: total / count for name, (total, count) in self._sums.items()}, row, means)
            self._sums.clear()
            self._waited.clear()
            self._samples = 0

    def numbers(self, since: float, until: float) -> Lines:
        fine, coarse, times = self._rows(since, until)
        empty = np.zeros(0, dtype=np.float32)
        values = {}
        for name in sorted(self._names):
            parts = [
                ring.series[name][rows] if name in ring.series else np.full(len(rows), np.nan)
                for ring, rows in ((self._coarse, coarse), (self._fine, fine))
            ]
            values[name] = np.concatenate([empty, *parts]).astype(np.float64)
        return Lines(times, values)

    def pods(self, since: float, until: float, groups: Mapping[str, str], also: str = "") -> Lines:
        """Return the mean number of pods on a node, by group of nodes, between two times.

        Nodes that have no group are left out; the node `also` has a line of its own.
        """
        fine, coarse, times = self._rows(since, until)
        pods = np.vstack((self._coarse.pods[coarse], self._fine.pods[fine])).astype(np.float64)
        pods[pods == UNKNOWN] = np.nan
        members: dict[str, list[int]] = {}
        for name, column in self._columns.items():
            if name in groups:
                members.setdefault(groups[name], []).append(column)
        ranked = sorted(members.items(), key=lambda item: (-len(item[1]), item[0]))
        if len(ranked) > MOST_LINES:
            rest = [column for _, columns in ranked[MOST_LINES - 1 :] for column in columns]
            ranked = [*ranked[: MOST_LINES - 1], (OTHERS, rest)]
        values = {name: _mean(pods[:, columns]) for name, columns in sorted(ranked)}
        if also in self._columns:
            values[also] = pods[:, self._columns[also]]
        return Lines(times, values)

    def waiting(self, since: float, until: float) -> Lines:
        """Return the waiting pods by reason between two times: those of most pods, and the others together."""
        fine, coarse, times = self._rows(since, until)
        lines: dict[str, Floats] = {}
        for name in (*sorted(self._reasons), OTHER_REASONS):
            parts = [
                ring.reasons[name][rows] if name in ring.reasons else np.zeros(len(rows))
                for ring, rows in ((self._coarse, coarse), (self._fine, fine))
            ]
            lines[name] = np.concatenate(parts).astype(np.float64)
        rest = lines.pop(OTHER_REASONS)
        ranked = sorted(((name, line) for name, line in lines.items() if line.any()), key=lambda item: -item[1].sum())
        rest = rest + sum((line for _, line in ranked[MOST_REASON_LINES:]), np.zeros(len(times)))
        values = dict(ranked[:MOST_REASON_LINES])
        if rest.any():
            values[OTHER_REASONS] = rest
        return Lines(times, values)

    def _bounded(self, now: float, waiting: Mapping[str, int]) -> Counter[str]:
        """Return the waiting pods by reasons of which there are few; note when each reason was there last."""
        result = Counter[str]()
        for name in self._reasons.keys() & waiting.keys():
            self._reasons[name] = now
        for name, count in sorted(waiting.items(), key=lambda item: (-item[1], item[0])):
            if name not in self._reasons:
                if len(self._reasons) >= MOST_REASONS:
                    oldest = min(self._reasons, key=lambda each: self._reasons[each])
                    # All kept reasons are there now; none of them makes room.
                    if self._reasons[oldest] == now:
                        result[OTHER_REASONS] += count
                        continue
                    self._merge(oldest)
                self._reasons[name] = now
            result[name] += count
        return result

    def _merge(self, reason: str) -> None:
        del self._reasons[reason]
        for ring in (self._fine, self._coarse):
            ring.merge(reason, OTHER_REASONS)
        self._waited[OTHER_REASONS] += self._waited.pop(reason, 0)

    def _rows(self, since: float, until: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Floats]:
        """Return rows of fine samples, of coarse ones from before these, and the times of the coarse, then the fine."""
        fine = self._fine.order(since, until)
        first = float(self._fine.times[fine[0]]) if len(fine) else math.inf
        coarse = self._coarse.order(since, until)
        coarse = coarse[self._coarse.times[coarse] < first]
        stride = -(-(len(fine) + len(coarse)) // MOST_POINTS) or 1
        # Thinned out from the newest backwards, so that the present is always shown.
        fine, coarse = fine[::-stride][::-1], coarse[::-stride][::-1]
        return fine, coarse, np.concatenate((self._coarse.times[coarse], self._fine.times[fine]))

    def _forget(self, now: float, pods: Mapping[str, int]) -> None:
        step, size = COARSE
        for name in self._columns.keys() - pods.keys() - self._gone.keys():
            self._gone[name] = now
        for name, since in list(self._gone.items()):
            if name in pods:
                del self._gone[name]
            elif since < now - step * size:
                self._drop(name)

    def _drop(self, name: str) -> None:
        del self._gone[name]
        column = self._columns.pop(name)
        for ring in (self._fine, self._coarse):
            ring.pods[:, column] = UNKNOWN
        self._free.append(column)

    def _new_column(self, name: str) -> int | None:
        if not self._free and len(self._columns) >= MOST_NODES and self._gone:
            self._drop(min(self._gone, key=lambda each: self._gone[each]))
        if not self._free:
            columns = len(self._columns)
            if columns >= MOST_NODES:
                return None
            more = min(MOST_NODES, max(64, 2 * columns))
            for ring in (self._fine, self._coarse):
                ring.widen(more)
            # Descending, since `pop` takes the last.
            self._free = list(range(more - 1, columns - 1, -1))
        self._columns[name] = self._free.pop()
        return self._columns[name]


def _mean(pods: Floats) -> Floats:
    """Return the mean of each row over what is known, [T]; NaN where nothing is."""
    known = np.isfinite(pods)
    count = known.sum(axis=1)
    return np.where(count > 0, np.where(known, pods, 0.0).sum(axis=1) / np.maximum(count, 1), np.nan)
