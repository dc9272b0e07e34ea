"""Run times of what ended in a live cluster: groups that come and go, and the file that keeps them over restarts.

The groups and what is forgotten are in the core (`core/src/run_times.rs`), levels and smoothing in its
`core/src/history.rs`.

How far stated run times were off is counted by owner, namespace and for all pods, in bins of actual over stated times.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Pod, Requests
from steersman.core.atomic_files import replacing
from steersman.core.errors import InputError
from steersman.core.handles import BINS, CoreRunTimes
from steersman.orders.order import recurring_owner
from steersman.workloads.recorded import belongs_to_node

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEVELS = 4
"""Groups of a pod: all pods, those of the same requests, of the same owner, and of both."""
BINS_PER_OCTAVE = 2
PRIOR_PODS = 4.0
"""Pods as which a level counts in the one below it."""
FIRST_PRIOR = (8, 40)
"""Bins that are equally likely while nothing has ended: from 16 s to 12 days, with a median of 68 minutes."""
MAX_GROUPS = 20_000
"""Groups beyond which some are forgotten, see `RunTimeHistory`."""
REPLACING = ("ReplicaSet", "Deployment", "StatefulSet", "ReplicationController")
"""Kinds of owners that replace a pod that ends, so that its resources stay taken."""
SCHEMA = 1
RATIO_UNIT = 2.0 ** (-BINS / BINS_PER_OCTAVE / 2)
"""Ratios of actual to stated run times are counted in this unit, so that 1 is in the middle of the bins."""


class RunTimeGroup(NamedTuple):
    """Pods whose run times are told apart. None: of any. The owner "" stands for the namespace."""

    requests: Requests | None
    namespace: str | None
    owner: str | None

    @property
    def level(self) -> int:
        """Return its level in the core, see `CoreRunTimes`."""
        return (self.requests is not None) + 2 * (self.owner is not None)

    @property
    def parts(self) -> tuple[bytes, str, str]:
        """Return its parts as the core has them; those that it does not have are empty."""
        return b"" if self.requests is None else written(self.requests), self.namespace or "", self.owner or ""


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


class HistoryCopy:
    """A history at some time.

    Attributes:
        counts: [K, BINS] pods that ended, by group.
        ratios: [BINS] by group, see `RunTimeHistory`.
    """

    def __init__(self, core: CoreRunTimes, ratios: dict[RunTimeGroup, Floats]) -> None:
        self.counts, self._lengths, self._text = core.groups()
        self.ratios = ratios

    @cached_property
    def groups(self) -> list[RunTimeGroup]:
        """Return [K] the groups, that of all pods first, then those that were not used for longest."""
        found, end = [], 0
        known: dict[bytes, Requests] = {}
        for lengths in self._lengths.tolist():
            parts: list[bytes | None] = []
            for length in lengths:
                parts.append(None if length < 0 else self._text[end : end + length])
                end += max(length, 0)
            requests, *names = parts
            if requests is not None and requests not in known:
                known[requests] = msgspec.json.decode(requests, type=Requests)
            texts = (None if name is None else name.decode(errors="surrogatepass") for name in names)
            found.append(RunTimeGroup(None if requests is None else known[requests], *texts))
        return found


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
        is_first = self.core.note(written(pod.requests), pod.namespace, pod.owner, seconds)
        if pod.estimated_seconds is not None:
            k = _bin(seconds / max(pod.estimated_seconds, 1.0) / RATIO_UNIT)
            for group in dict.fromkeys((*ratio_groups(pod.namespace, recurring_owner(pod.owner)), EVERY_POD)):
                self._ratios_of(group)[k] += 1.0
        self.version += 1
        return is_first

    def counts(self, group: RunTimeGroup) -> Floats:
        """Return [BINS] the pods of a group that ended, by run time."""
        return self.core.counts(group.level, *group.parts)

    def ratio_counts(self, group: RunTimeGroup) -> Floats:
        """Return [BINS] the pods of a group that ended and had stated a run time, by actual over stated time."""
        return self.ratios.get(group, np.zeros(BINS))

    def groups(self, requests: Requests, namespace: str, owner: str) -> tuple[RunTimeGroup, ...]:
        """Return the group of pods at each level."""
        who = recurring_owner(owner) if self.knows(namespace, owner) else ""
        with_requests = RunTimeGroup(requests, None, None), RunTimeGroup(None, namespace, who)
        return EVERY_POD, *with_requests, RunTimeGroup(requests, namespace, who)

    def estimate(self, pod: Pod) -> float:
        """Return the estimated seconds of a pod, whose groups are used."""
        return self.core.estimate(written(pod.requests), pod.namespace, pod.owner)[0]

    def copy(self) -> HistoryCopy:
        """Return what a file keeps of it now, within milliseconds."""
        return HistoryCopy(self.core, {group: counts.copy() for group, counts in self.ratios.items()})

    def add(self, saved: SavedGroup) -> None:
        """Count pods that ended before in one group alone."""
        group = _group_of(saved)
        self.core.add(group.level, *group.parts, _counts(saved))
        self.version += 1

    def add_ratios(self, saved: SavedGroup) -> None:
        """Count pods that ended before and had stated a run time."""
        self._ratios_of(_group_of(saved))[:] += _counts(saved)

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


def ratio_groups(namespace: str, owner: str) -> tuple[RunTimeGroup, RunTimeGroup]:
    """Return the groups by which it is counted how far stated run times are off: a namespace, and an owner in it."""
    return RunTimeGroup(None, namespace, ""), RunTimeGroup(None, namespace, owner)


def _group_of(saved: SavedGroup) -> RunTimeGroup:
    owner = None if saved.owner is None else recurring_owner(saved.owner)
    return RunTimeGroup(saved.requests, saved.namespace, owner)


def _bin(seconds: float) -> int:
    return min(max(int(BINS_PER_OCTAVE * math.log2(max(seconds, 1.0))), 0), BINS - 1)


def _counts(saved: SavedGroup) -> Floats:
    counts = np.zeros(BINS)
    counts[list(saved.pods)] = list(saved.pods.values())
    return counts


def _saved(group: RunTimeGroup, counts: Floats) -> SavedGroup:
    return SavedGroup({int(k): float(counts[k]) for k in np.flatnonzero(counts)}, *group)


def write_run_times(file: Path, copy: HistoryCopy) -> None:
    """Write a file of run times; missing folders are created. Raises InputError: it cannot be written."""
    groups = [_saved(*each) for each in zip(copy.groups, copy.counts, strict=True)]
    ratios = [_saved(group, counts) for group, counts in copy.ratios.items()]
    with replacing(file) as part:
        part.write_bytes(msgspec.json.encode(SavedRunTimes(SCHEMA, groups, ratios)) + b"\n")


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
            if not all(0 <= k < BINS and 0 < pods < math.inf for k, pods in group.pods.items()):
                problem = f"expected numbers of pods above 0 by bins from 0 to {BINS - 1}"
                raise InputError(file, f"{what} {i}", "pods", problem)
            if (group.namespace is None) != (group.owner is None):
                raise InputError(file, f"{what} {i}", "owner", "expected a namespace and an owner, or neither")
            add(group)
    return history
