"""Run times of what ended in a live cluster: groups that come and go, and the file that keeps them over restarts.

The groups and what is forgotten are in the core (`core/src/run_times.rs`), what they tell of a pod is in its
`core/src/belief.rs`.

How far stated run times were off is counted by owner, namespace and for all pods, in bins of actual over stated times.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Pod, Requests
from steersman.core.atomic_files import replacing
from steersman.core.errors import InputError
from steersman.core.handles import BELIEF_WEIGHTS, BINS, GROUP_PARTS, CoreRunTimes, PodKind
from steersman.orders.order import owner_series, recurring_owner
from steersman.workloads.recorded import belongs_to_node

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BINS_PER_OCTAVE = 2
PRIOR_PODS = 4.0
"""Pods as which a level counts in the one below it."""
FIRST_PRIOR = (8, 40)
"""Bins that are equally likely while nothing has ended: from 16 s to 12 days, with a median of 68 minutes."""
MAX_GROUPS = 20_000
"""Groups beyond which some are forgotten, see `RunTimeHistory`."""
REPLACING = ("ReplicaSet", "Deployment", "StatefulSet", "ReplicationController")
"""Kinds of owners that replace a pod that ends, so that its resources stay taken."""
SCHEMA = 2
RATIO_UNIT = 2.0 ** (-BINS / BINS_PER_OCTAVE / 2)
"""Ratios of actual to stated run times are counted in this unit, so that 1 is in the middle of the bins."""


class RunTimeGroup(NamedTuple):
    """Pods whose run times are told apart. None: of any. The owner "" stands for the namespace."""

    requests: Requests | None = None
    namespace: str | None = None
    owner: str | None = None
    image: str | None = None
    stated: int | None = None
    """The bin of the stated run time."""

    def encode(self) -> tuple[tuple[int, ...], bytes]:
        """Return what tells it to the core, see `CoreRunTimes`."""
        names = (None if each is None else each.encode(errors="surrogatepass") for each in self[1:4])
        texts = [None if self.requests is None else written(self.requests), *names]
        lengths = (-1 if each is None else len(each) for each in texts)
        return (*lengths, -1 if self.stated is None else self.stated), b"".join(each or b"" for each in texts)


EVERY_POD = RunTimeGroup()


class SavedGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A group in a file: the pods that ended, by bin of their run time, all and with older ones counting less.

    `last` is the bin of the last pod. With `after` they are those of the group that came after a pod of that bin.
    """

    pods: dict[int, float]
    recent: dict[int, float] = {}
    requests: Requests | None = None
    namespace: str | None = None
    owner: str | None = None
    image: str | None = None
    stated: int | None = None
    after: int | None = None
    last: int | None = None

    @property
    def group(self) -> RunTimeGroup:
        owner = None if self.owner is None else recurring_owner(self.owner)
        return RunTimeGroup(self.requests, self.namespace, owner, self.image, self.stated)


class SavedRunTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file of run times; the group that was not used for longest comes first.

    `weights`, [2, BELIEF_WEIGHTS], are what the belief has learned, (): nothing.
    """

    run_times: int
    groups: list[SavedGroup]
    stated_ratios: list[SavedGroup] = []
    weights: tuple[tuple[float, ...], ...] = ()


class HistoryRow(NamedTuple):
    """What a history knows of a group, or of those of its pods that came after one of a bin."""

    group: RunTimeGroup
    after: int  # -1: all
    last: int  # bin of the last pod; -1: none
    pods: Floats  # [BINS] that ended
    recent: Floats  # [BINS] the same, of which older ones count less


class HistoryCopy:
    """A history at some time.

    Attributes:
        counts: [K, 2 * BINS] pods that ended, all and recent ones, by row.
        ratios: [BINS] by group, see `RunTimeHistory`.
        weights: [2, BELIEF_WEIGHTS], see `CoreRunTimes`.
    """

    def __init__(self, core: CoreRunTimes, ratios: dict[RunTimeGroup, Floats]) -> None:
        self.counts, self._parts, self._text = core.groups()
        self.weights = core.weights
        self.ratios = ratios

    @cached_property
    def rows_of(self) -> dict[tuple[tuple[int, ...], bytes], list[int]]:
        """Return the rows of each encoded group: of all of its pods, then of those after others."""
        found: dict[tuple[tuple[int, ...], bytes], list[int]] = {}
        end = 0
        for row, parts in enumerate(self._parts.tolist()):
            start, end = end, end + sum(length for length in parts[: GROUP_PARTS - 1] if length > 0)
            found.setdefault((tuple(parts[:GROUP_PARTS]), self._text[start:end]), []).append(row)
        return found

    def row(self, number: int, group: RunTimeGroup) -> HistoryRow:
        """Return what is known of a group that has this row."""
        after, last = self._parts[number, GROUP_PARTS:].tolist()
        return HistoryRow(group, after, last, *np.split(self.counts[number], 2))

    def rows(self) -> Iterator[HistoryRow]:
        """Yield all groups, that of all pods first, then those that were not used for longest."""
        known: dict[bytes, Requests] = {}
        for (parts, text), numbers in self.rows_of.items():
            texts: list[bytes | None] = []
            for length in parts[:-1]:
                texts.append(None if length < 0 else text[:length])
                text = text[max(length, 0) :]
            requests, *names = texts
            if requests is not None and requests not in known:
                known[requests] = msgspec.json.decode(requests, type=Requests)
            namespace, owner, image = (None if each is None else each.decode(errors="surrogatepass") for each in names)
            stated = None if parts[-1] < 0 else parts[-1]
            group = RunTimeGroup(None if requests is None else known[requests], namespace, owner, image, stated)
            yield from (self.row(number, group) for number in numbers)


class RunTimeHistory:
    """Run times by groups of pods, updated as pods end.

    Args:
        max_groups: groups beyond which some are forgotten.

    Attributes:
        core: the groups.
        version: increases whenever an estimate may change.
        ratios: [BINS] pods that ended and had stated a run time, by actual over stated time, of owners, namespaces and
            all; those that were not used for longest come first and are forgotten.
    """

    def __init__(self, max_groups: int = MAX_GROUPS) -> None:
        self.core, self.version = CoreRunTimes(max_groups), 0
        self._max_groups = max_groups
        self.ratios: OrderedDict[RunTimeGroup, Floats] = OrderedDict()

    @property
    def ended(self) -> int:
        return round(float(self.counts(EVERY_POD).sum()))

    def knows(self, namespace: str, owner: str) -> bool:
        """Return whether a pod of an owner has ended, maybe in another run of it."""
        return self.core.knows(namespace, owner)

    def lasts(self, pod: Pod) -> bool:
        """Return whether a pod that runs is taken to stay.

        It belongs to its node, or its owner replaces what ends. Then neither has it stated a run time, nor has a pod of
        that owner ended.
        """
        if belongs_to_node(pod):
            return True
        is_replaced = pod.owner.partition("/")[0] in REPLACING and pod.estimated_seconds is None
        return is_replaced and not self.knows(pod.namespace, pod.owner)

    def note(self, pod: Pod, seconds: float) -> bool:
        """Count a pod that ended after so many seconds; return whether it is the first one of its owner."""
        is_first = self.core.note(kind_of(pod), seconds)
        if pod.estimated_seconds is not None:
            k = run_time_bin(seconds / max(pod.estimated_seconds, 1.0) / RATIO_UNIT)
            for group in dict.fromkeys((*ratio_groups(pod.namespace, recurring_owner(pod.owner)), EVERY_POD)):
                self._ratios_of(group)[k] += 1.0
        self.version += 1
        return is_first

    def counts(self, group: RunTimeGroup) -> Floats:
        """Return [BINS] the pods of a group that ended, by run time."""
        return self.core.counts(*group.encode())

    def ratio_counts(self, group: RunTimeGroup) -> Floats:
        """Return [BINS] the pods of a group that ended and had stated a run time, by actual over stated time."""
        return self.ratios.get(group, np.zeros(BINS))

    def estimate(self, pod: Pod) -> float:
        """Return the estimated seconds of a pod, whose groups are used."""
        return self.core.estimate(kind_of(pod))

    def distribution(self, pod: Pod) -> Floats:
        """Return [BINS] the probability of each bin of a pod's run time; its groups are used."""
        return self.core.distribution(kind_of(pod))

    def copy(self) -> HistoryCopy:
        """Return what a file keeps of it now, within milliseconds."""
        return HistoryCopy(self.core, {group: counts.copy() for group, counts in self.ratios.items()})

    def add(self, saved: SavedGroup) -> None:
        """Take over what is saved of one group alone."""
        after, last = (-1 if each is None else each for each in (saved.after, saved.last))
        self.core.set(*saved.group.encode(), after, last, _counts(saved.pods), _counts(saved.recent))
        self.version += 1

    def add_ratios(self, saved: SavedGroup) -> None:
        """Count pods that ended before and had stated a run time."""
        self._ratios_of(saved.group)[:] += _counts(saved.pods)

    def _ratios_of(self, group: RunTimeGroup) -> Floats:
        """Return the counts of a group, which is used and may be new."""
        counts = self.ratios.setdefault(group, np.zeros(BINS))
        self.ratios.move_to_end(group)
        if len(self.ratios) > self._max_groups:
            self.ratios.popitem(last=False)
        return counts


def written(requests: Requests) -> bytes:
    """Return requests as the core tells them apart."""
    return msgspec.json.encode(requests)


def kind_of(pod: Pod) -> PodKind:
    """Return what tells the run time of a pod."""
    stated = math.nan if pod.estimated_seconds is None else pod.estimated_seconds
    return PodKind(written(pod.requests), pod.namespace, pod.owner, pod.program, stated)


def levels_of(pod: Pod, *, is_owner_known: bool, by_stated: bool = True) -> list[RunTimeGroup | None]:
    """Return [LEVELS] the groups of a pod as `RunTimes::look_up` of the core does, None: it has none.

    Args:
        pod: the pod.
        is_owner_known: whether its owner says something; else its series stands for it.
        by_stated: whether its stated run time tells it apart.
    """
    requests, namespace, image = pod.requests, pod.namespace, pod.program or None
    series = owner_series(pod.owner)
    owner = recurring_owner(pod.owner) if is_owner_known else series
    stated = run_time_bin(pod.estimated_seconds) if by_stated and pod.estimated_seconds is not None else None
    of_series, of_owner = owner != series, bool(owner)
    levels = [
        (True, EVERY_POD),
        (True, RunTimeGroup(requests)),
        (True, RunTimeGroup(None, namespace, "")),
        (True, RunTimeGroup(requests, namespace, "")),
        (of_series, RunTimeGroup(None, namespace, series)),
        (of_series, RunTimeGroup(requests, namespace, series)),
        (of_owner, RunTimeGroup(None, namespace, owner)),
        (of_owner, RunTimeGroup(requests, namespace, owner)),
        (image is not None, RunTimeGroup(None, namespace, owner, image)),
        (image is not None, RunTimeGroup(requests, namespace, owner, image)),
        (stated is not None, RunTimeGroup(stated=stated)),
        (stated is not None, RunTimeGroup(None, namespace, owner, stated=stated)),
    ]
    return [group if is_given else None for is_given, group in levels]


def ratio_groups(namespace: str, owner: str) -> tuple[RunTimeGroup, RunTimeGroup]:
    """Return the groups by which it is counted how far stated run times are off: a namespace, and an owner in it."""
    return RunTimeGroup(None, namespace, ""), RunTimeGroup(None, namespace, owner)


def run_time_bin(seconds: float) -> int:
    """Return the bin of a run time."""
    return min(max(int(BINS_PER_OCTAVE * math.log2(max(seconds, 1.0))), 0), BINS - 1)


def _counts(saved: dict[int, float]) -> Floats:
    counts = np.zeros(BINS)
    counts[list(saved)] = list(saved.values())
    return counts


def _saved(counts: Floats) -> dict[int, float]:
    return {int(k): float(counts[k]) for k in np.flatnonzero(counts)}


def _number(value: int) -> int | None:
    return None if value < 0 else value


def write_run_times(file: Path, copy: HistoryCopy) -> None:
    """Write a file of run times; missing folders are created. Raises InputError: it cannot be written."""
    groups = [
        SavedGroup(_saved(row.pods), _saved(row.recent), *row.group, _number(row.after), _number(row.last))
        for row in copy.rows()
    ]
    ratios = [SavedGroup(_saved(counts), {}, *group) for group, counts in copy.ratios.items()]
    weights = tuple(map(tuple, copy.weights.tolist()))
    with replacing(file) as part:
        part.write_bytes(msgspec.json.encode(SavedRunTimes(SCHEMA, groups, ratios, weights)) + b"\n")


def read_run_times(file: Path) -> RunTimeHistory:
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
    history = RunTimeHistory()
    parts = ("group", saved.groups, history.add), ("stated_ratios", saved.stated_ratios, history.add_ratios)
    for what, groups, add in parts:
        for i, group in enumerate(groups):
            for name, pods in (("pods", group.pods), ("recent", group.recent)):
                if not all(0 <= k < BINS and 0 < count < math.inf for k, count in pods.items()):
                    problem = f"expected numbers of pods above 0 by bins from 0 to {BINS - 1}"
                    raise InputError(file, f"{what} {i}", name, problem)
            for name, bin_ in (("stated", group.stated), ("after", group.after), ("last", group.last)):
                if bin_ is not None and not 0 <= bin_ < BINS:
                    raise InputError(file, f"{what} {i}", name, f"{bin_} is not a bin from 0 to {BINS - 1}")
            if (group.namespace is None) != (group.owner is None):
                raise InputError(file, f"{what} {i}", "owner", "expected a namespace and an owner, or neither")
            add(group)
    if saved.weights:
        if [len(row) for row in saved.weights] != [BELIEF_WEIGHTS] * 2 or not np.isfinite(saved.weights).all():
            raise InputError(file, "", "weights", f"expected 2 lists of {BELIEF_WEIGHTS} finite numbers")
        history.core.weights = np.array(saved.weights)
    return history
