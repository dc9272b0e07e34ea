"""Run times of what ended in a live cluster: groups that come and go, and the file that keeps them over restarts.

Levels and smoothing are those of `estimates`. An owner of which nothing has ended yet says nothing: its namespace
stands for it, in which each owner counts once, so that Jobs of one pod teach what the next Job may take.

How far stated run times were off is counted by owner, namespace and for all pods, in bins of actual over stated times.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Pod, Requests
from steersman.core.atomic_files import replacing
from steersman.core.errors import InputError
from steersman.orders.estimates import BINS, BINS_PER_OCTAVE, MEDIAN, empty_history
from steersman.orders.group_scores import estimate_groups
from steersman.orders.order import recurring_owner

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_GROUPS = 20_000
"""Groups beyond which some are forgotten, see `LiveHistory`."""
CHANCES = 16
"""Groups that are kept, and count as used, while one of which a single pod has ended is looked for."""
DROPPED_ROWS = 1024
"""Rows of forgotten groups that are remembered."""
FIRST_ROWS = 64
NOTHING, ALL_PODS = range(2)
"""Rows: of groups of which nothing has ended, and of all pods."""
SCHEMA = 1
RATIO_UNIT = 2.0 ** (-BINS / BINS_PER_OCTAVE / 2)
"""Ratios of actual to stated run times are counted in this unit, so that 1 is in the middle of the bins."""


class RunTimeGroup(NamedTuple):
    """Pods whose run times are told apart. None: of any. The owner "" stands for the namespace."""

    requests: Requests | None
    namespace: str | None
    owner: str | None


EVERY_POD = RunTimeGroup(None, None, None)


class SavedGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A group in a file: the pods that ended, by bin of their run time."""

    pods: dict[int, float]
    requests: Requests | None = None
    namespace: str | None = None
    owner: str | None = None


class SavedRunTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file of run times; the group that was not used for longest comes first. Older files have no ratios."""

    run_times: int
    groups: list[SavedGroup]
    stated_ratios: list[SavedGroup] = []


class HistoryCopy(NamedTuple):
    """A history at some time: groups with their rows, least recently used first, counts [K, BINS], and ratios."""

    groups: list[tuple[RunTimeGroup, int]]
    counts: Floats
    ratios: dict[RunTimeGroup, Floats]


class LiveHistory:
    """Run times by groups of pods, updated as pods end.

    Of too many groups the one that was not used for longest is forgotten, or one among the next of which a single pod
    has ended: Jobs that never run again would drive out those that run each day.

    Args:
        max_groups: groups beyond which some are forgotten.

    Attributes:
        version: increases whenever an estimate may change.
        added, dropped: groups that were added and forgotten since the beginning, after which `keys` may differ; of
            those that were added a new owner's do not count, since no pod was in them.
        dropped_rows: rows of those that were forgotten last.
        ratios: [BINS] pods that ended and had stated a run time, by actual over stated time, of owners, namespaces and
            all; those that were not used for longest come first and are forgotten.
    """

    def __init__(self, max_groups: int = MAX_GROUPS) -> None:
        self.version = self.added = self.dropped = 0
        self._max_groups = max_groups
        self._arrays = empty_history(FIRST_ROWS)
        self._rows: OrderedDict[RunTimeGroup, int] = OrderedDict()
        self._free = list(range(FIRST_ROWS - 1, ALL_PODS, -1))
        self.dropped_rows: deque[int] = deque(maxlen=DROPPED_ROWS)
        self._buffer = np.zeros((1, 2))
        self.ratios: OrderedDict[RunTimeGroup, Floats] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def ended(self) -> int:
        return round(float(self._arrays.ended[ALL_PODS]))

    def knows(self, namespace: str, owner: str) -> bool:
        """Return whether a pod of an owner has ended, maybe in another run of it."""
        return RunTimeGroup(None, namespace, recurring_owner(owner)) in self._rows

    def note(self, pod: Pod, seconds: float) -> bool:
        """Count a pod that ended after so many seconds; return whether it is the first one of its owner."""
        is_first = bool(pod.owner) and not self.knows(pod.namespace, pod.owner)
        own = recurring_owner(pod.owner)
        k = _bin(seconds)
        groups = [RunTimeGroup(pod.requests, None, None)]
        for owner in (own, "") if is_first else (own,):
            groups += [RunTimeGroup(None, pod.namespace, owner), RunTimeGroup(pod.requests, pod.namespace, owner)]
        self._count(ALL_PODS, k)
        for group in groups:
            # At once: the next new row may replace the arrays, or this group.
            self._count(self._row_to_count(group, of_new_owner=is_first and group.owner == own), k)
        if pod.estimated_seconds is not None:
            k = _bin(seconds / max(pod.estimated_seconds, 1.0) / RATIO_UNIT)
            for group in dict.fromkeys((*ratio_groups(pod.namespace, own), EVERY_POD)):
                self._ratios_of(group)[k] += 1.0
        self.version += 1
        return is_first

    def keys(self, requests: Requests, namespace: str, owner: str) -> tuple[int, ...]:
        """Return the row of pods at each level, NOTHING where nothing has ended; these groups are used."""
        rows = [ALL_PODS]
        for group in self.groups(requests, namespace, owner)[1:]:
            row = self._rows.get(group, NOTHING)
            if row != NOTHING:
                self._rows.move_to_end(group)
            rows.append(row)
        return tuple(rows)

    def counts(self, group: RunTimeGroup) -> Floats:
        """Return [BINS] the pods of a group that ended, by run time."""
        row = ALL_PODS if group == EVERY_POD else self._rows.get(group, NOTHING)
        return np.array(self._arrays.counts[row])

    def ratio_counts(self, group: RunTimeGroup) -> Floats:
        """Return [BINS] the pods of a group that ended and had stated a run time, by actual over stated time."""
        return self.ratios.get(group, np.zeros(BINS))

    def groups(self, requests: Requests, namespace: str, owner: str) -> tuple[RunTimeGroup, ...]:
        who = recurring_owner(owner) if self.knows(namespace, owner) else ""
        with_requests = RunTimeGroup(requests, None, None), RunTimeGroup(None, namespace, who)
        return EVERY_POD, *with_requests, RunTimeGroup(requests, namespace, who)

    def write_estimates(self, keys: Ints, rows: Ints, out: Floats) -> None:
        """Write estimates of M groups (`keys` [M, LEVELS]) to `rows` [M] of `out`, [K, 2] columns MEDIAN and SPREAD."""
        estimate_groups(self._arrays, keys, rows, out)

    def estimate(self, pod: Pod) -> float:
        keys = np.array([self.keys(pod.requests, pod.namespace, pod.owner)], dtype=np.int64)
        self.write_estimates(keys, np.zeros(1, dtype=np.int64), self._buffer)
        return float(self._buffer[0, MEDIAN])

    def copy(self) -> HistoryCopy:
        """Return what a file keeps of it now, within milliseconds."""
        ratios = {group: counts.copy() for group, counts in self.ratios.items()}
        return HistoryCopy([(EVERY_POD, ALL_PODS), *self._rows.items()], self._arrays.counts.copy(), ratios)

    # -----------------------------------------------------------------------------------------------------------------

    def _ratios_of(self, group: RunTimeGroup) -> Floats:
        """Return the counts of a group, which is used and may be new."""
        counts = self.ratios.setdefault(group, np.zeros(BINS))
        self.ratios.move_to_end(group)
        if len(self.ratios) > self._max_groups:
            self.ratios.popitem(last=False)
        return counts

    def _count(self, row: int, k: int) -> None:
        self._arrays.counts[row, k] += 1.0
        self._arrays.ended[row] += 1.0

    def _row_to_count(self, group: RunTimeGroup, *, of_new_owner: bool = False) -> int:
        """Return the row of a group, which is used and may be new."""
        row = self._rows.get(group)
        if row is not None:
            self._rows.move_to_end(group)
            return row
        if len(self._rows) >= self._max_groups:
            self._forget_one()
        elif not self._free:
            self._grow()
        self._rows[group] = row = self._free.pop()
        self.added += not of_new_owner
        return row

    def _forget_one(self) -> None:
        for _ in range(CHANCES):
            oldest, row = next(iter(self._rows.items()))
            if self._arrays.ended[row] <= 1.0:
                break
            self._rows.move_to_end(oldest)
        _, dropped = self._rows.popitem(last=False)
        self._arrays.counts[dropped] = self._arrays.ended[dropped] = 0.0
        self._free.append(dropped)
        self.dropped_rows.append(dropped)
        self.dropped += 1

    def _grow(self) -> None:
        previous, count = self._arrays, len(self._arrays.ended)
        self._arrays = empty_history(2 * count)
        for old, new in zip(previous[:3], self._arrays[:3], strict=True):
            new[:count] = old
        self._free = list(range(2 * count - 1, count - 1, -1))

    def _add(self, saved: SavedGroup) -> None:
        group = _group_of(saved)
        row = ALL_PODS if group == EVERY_POD else self._row_to_count(group)
        for k, pods in saved.pods.items():
            self._arrays.counts[row, k] += pods
        self._arrays.ended[row] = self._arrays.counts[row].sum()

    def _add_ratios(self, saved: SavedGroup) -> None:
        counts = self._ratios_of(_group_of(saved))
        for k, pods in saved.pods.items():
            counts[k] += pods


def ratio_groups(namespace: str, owner: str) -> tuple[RunTimeGroup, RunTimeGroup]:
    """Return the groups by which it is counted how far stated run times are off: a namespace, and an owner in it."""
    return RunTimeGroup(None, namespace, ""), RunTimeGroup(None, namespace, owner)


def _group_of(saved: SavedGroup) -> RunTimeGroup:
    owner = None if saved.owner is None else recurring_owner(saved.owner)
    return RunTimeGroup(saved.requests, saved.namespace, owner)


def _bin(seconds: float) -> int:
    return min(max(int(BINS_PER_OCTAVE * math.log2(max(seconds, 1.0))), 0), BINS - 1)


def _saved(group: RunTimeGroup, counts: Floats) -> SavedGroup:
    return SavedGroup({int(k): float(counts[k]) for k in np.flatnonzero(counts)}, *group)


def write_run_times(file: Path, copy: HistoryCopy) -> None:
    """Write a file of run times; missing folders are created. Raises InputError: it cannot be written."""
    groups = [_saved(group, copy.counts[row]) for group, row in copy.groups]
    ratios = [_saved(group, counts) for group, counts in copy.ratios.items()]
    with replacing(file) as part:
        part.write_bytes(msgspec.json.encode(SavedRunTimes(SCHEMA, groups, ratios)) + b"\n")


def read_run_times(file: Path) -> LiveHistory:
    if file.exists() and not file.is_file():
        # A device or a pipe could be read without an end.
        raise InputError(file, "", "", "is not a regular file")
    try:
        saved = msgspec.json.decode(file.read_bytes(), type=SavedRunTimes)
    except OSError as error:
        raise InputError(file, "", "", f"cannot be read: {error.strerror or error}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(file, "", "", f"is not a file of run times: {error}") from None
    if saved.run_times != SCHEMA:
        problem = f"{saved.run_times} is of another version of steersman; expected {SCHEMA}"
        raise InputError(file, "", "run_times", problem)
    history = LiveHistory()
    parts = ("group", saved.groups, history._add), ("stated_ratios", saved.stated_ratios, history._add_ratios)
    for what, groups, add in parts:
        for i, group in enumerate(groups):
            if not all(0 <= k < BINS and 0 < pods < math.inf for k, pods in group.pods.items()):
                problem = f"expected numbers of pods above 0 by bins from 0 to {BINS - 1}"
                raise InputError(file, f"{what} {i}", "pods", problem)
            add(group)
    return history
