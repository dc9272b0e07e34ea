"""Draws of run times, given for how long pods have run already.

Pods that are alike have a hazard in each bin of `orders.estimates` on the logarithmic axis of ages: of those that reach
the bin, the share 1 - exp(-hazard) ends in it, anywhere in it. It is estimated at five levels, each smoothed by the one
above it: all pods, those with as many GPUs, those of the same requests, those of the same owner with as many GPUs, and
those of the same owner and requests.

    hazard[level] ~ Gamma(ended[level] + PRIOR_ENDS * hazard[level - 1], seen[level] + PRIOR_PODS)

with pods that ended in a bin, and how often that hazard would have to run through it for as many to end of those that
could have ended there. Pods that still run count among the latter, and pods that began earlier count from when they
were first seen: what has ended alone is too short or too long a sample while a queue grows or shrinks. Each rollout
draws its own hazards, since of many a group few pods have ended. Source: the piecewise exponential model with a gamma
prior, e.g. Ibrahim, Chen and Sinha, "Bayesian Survival Analysis" (2001); ends are uniform in a bin, so that run times
that are always the same are not said to outrun it.

A pod that stated a run time has a hazard over the ratio of actual to stated times instead, at three levels: all pods,
those of its namespace, and those of its owner.

Pods that an owner submits within hours often end alike, sooner or later than its others: each rollout draws a factor of
the hazards of each owner, by the gamma frailty model (Duchateau and Janssen, "The Frailty Model", 2008),

    factor[owner] ~ Gamma(1 / variance, 1 / variance)

and hazards are taken for marginal ones, whatever the factor is. The variance is estimated from the pods that were seen
to run, by its moments: of pairs of pods of an owner that arrived within three hours, how many more have both ended, or
both outlasted what was expected, than chance lets them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI, Pod, Requests
from steersman.orders.estimates import BINS, BINS_PER_OCTAVE, FIRST_PRIOR, PRIOR_PODS
from steersman.orders.live_history import EVERY_POD, RATIO_UNIT, LiveHistory, RunTimeGroup, ratio_groups
from steersman.orders.run_times import NORMAL_90, recurring_owner
from steersman.simulation.prediction.moment import Spell

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

UNKNOWN_FACTOR = 10.0
"""While nothing is known of stated run times, 90 % are within this factor of the actual ones."""
PRIOR_ENDS = 1.0 / math.log1p(1.0 / PRIOR_PODS)
"""Ends among `PRIOR_PODS` pods at a hazard of 1, by which the expected share that survives is that of the level above:
the mean of exp(-h) over draws of the hazard h. With `PRIOR_PODS` instead it would be larger at each level."""
NOTHING = np.zeros((2, BINS))
MOST_ENDING = 0.99
"""Largest share of the pods that reach a bin of which a history alone says that they end there."""
LAST_HAZARD = math.log(2.0) / BINS_PER_OCTAVE
"""Hazard beyond all that is known: one half runs for twice as long."""
ALIKE_SECONDS = 3 * 3600.0
"""Pods of an owner that arrive within this time may end alike."""
PRIOR_VARIANCE, PRIOR_PAIRS = 0.1, 100.0
"""Variance of owners' factors, as if it were known from so many pairs of pods that were expected to end."""
LEAST_VARIANCE, MOST_VARIANCE = 1e-3, 1.0
"""Limits of that variance: run times that are always the same say nothing of it."""
LEAST_FACTOR = 1e-9


class DrawnHazards(NamedTuple):
    """Hazards of a rollout.

    Attributes:
        cumulative: [G, BINS + 1] of every group at the beginning of each bin.
        factor: [O] of every owner.
    """

    cumulative: Floats
    factor: Floats


class RunTimeDraws:
    """Distributions of the run times of pods, P of them.

    Args:
        pods: [P] the pods.
        history: run times of what ended.
        spells: pods that were seen to run; (): the history alone is known.
    """

    def __init__(self, pods: Sequence[Pod], history: LiveHistory, spells: Sequence[Spell]) -> None:
        seen = SeenRunTimes(history, spells)
        groups: dict[tuple[RunTimeGroup, ...], int] = {}
        of_stated: dict[tuple[RunTimeGroup, ...], int] = {}
        known: dict[tuple[object, ...], int] = {}
        owners: dict[tuple[str, str], int] = {}
        group, unit, owner = [], [], []
        for pod in (*(spell.pod for spell in spells), *pods):
            whose = recurring_owner(pod.owner)
            owner.append(owners.setdefault((pod.namespace, whose), len(owners)))
            if pod.estimated_seconds is not None:
                levels = EVERY_POD, *ratio_groups(pod.namespace, whose)
                # Counted from the end, after all others.
                group.append(-1 - of_stated.setdefault(levels, len(of_stated)))
                unit.append(max(pod.estimated_seconds, 1.0) * RATIO_UNIT)
                continue
            key = pod.requests, pod.namespace, pod.owner
            if key not in known:
                known[key] = groups.setdefault(seen.levels(pod), len(groups))
            group.append(known[key])
            unit.append(1.0)
        self._unit, self._owner, self._owners = np.array(unit), np.array(owner, dtype=np.int64), len(owners)
        self._group = np.array(group, dtype=np.int64) % max(len(groups) + len(of_stated), 1)
        self._hazards = HazardLevels([*groups], seen.times, _continued(seen.times(EVERY_POD)))
        self._ratios = HazardLevels(
            [*of_stated], lambda each: _exposure(_all_seen(history.ratio_counts(each))), _ratio_hazard()
        )
        self._variance = self._variance_of(spells)
        # From here on pods are those that were given.
        self._group, self._unit, self._owner = (each[len(spells) :] for each in (self._group, self._unit, self._owner))

    def _variance_of(self, spells: Sequence[Spell]) -> float:
        """Return the variance of owners' factors; the first pods are those of the spells."""
        columns = [(each.entered, each.left, each.ended, each.age) for each in spells]
        entered, left, ended, age = np.array(columns, dtype=np.float64).reshape(-1, 4).T
        pods, expected = np.arange(len(spells)), self._cumulative(None)
        expected = self._reached(expected, pods, left) - self._reached(expected, pods, entered)
        hours = np.array([self._owner[pods], age // ALIKE_SECONDS], dtype=np.int64)
        alike = np.unique(hours, axis=1, return_inverse=True)[1].reshape(-1)

        def pairs(values: Floats) -> float:
            return float((np.bincount(alike, values) ** 2).sum() - (values**2).sum())

        more = pairs(ended - expected) + PRIOR_PAIRS * PRIOR_VARIANCE
        return min(max(more / (pairs(expected) + PRIOR_PAIRS), LEAST_VARIANCE), MOST_VARIANCE)

    def hazards(self, random: np.random.Generator) -> DrawnHazards:
        """Return the hazards of a rollout, drawn."""
        # What is drawn for some pods is the same whichever others follow them.
        random, of_owners = random.spawn(2)
        factor = of_owners.gamma(1.0 / self._variance, self._variance, self._owners)
        return DrawnHazards(self._cumulative(random), np.maximum(factor, LEAST_FACTOR))

    def _cumulative(self, random: np.random.Generator | None) -> Floats:
        """Return [G, BINS + 1] the cumulative hazard of every group at the beginning of each bin; None: as expected."""
        every = np.vstack([self._hazards.draw(random), self._ratios.draw(random)[::-1]])
        return np.concatenate([np.zeros((len(every), 1)), np.cumsum(every, axis=1)], axis=1)

    def _reached(self, hazards: Floats, pods: Ints, elapsed: Floats) -> Floats:
        """Return [M] the cumulative hazard of each pod at an age."""
        group, age = self._group[pods], _position(elapsed / self._unit[pods])
        k = np.minimum(age.astype(np.int64), BINS - 1)
        here = hazards[group, k]
        ending = -np.expm1(here - hazards[group, k + 1])
        return np.asarray(here - np.log1p(-np.minimum(age - k, 1.0) * ending))

    def draw(self, drawn: DrawnHazards, pods: Ints, elapsed: Floats, share: Floats) -> Floats:
        """Return [M] run times in seconds, each at least as long as the pod has run already.

        Args:
            drawn: from `hazards`.
            pods: [M] indices of pods.
            elapsed: [M] seconds that each has run.
            share: [M] uniform in 0..1: which share of the pods that ran as long ends before.
        """
        hazards, group, unit = drawn.cumulative, self._group[pods], self._unit[pods]
        age, begun = _position(elapsed / unit), self._reached(hazards, pods, elapsed)
        # Given its factor a pod has the cumulative hazard factor * expm1(variance * hazard) / variance.
        more = -np.log1p(-share) / drawn.factor[self._owner[pods]]
        target = begun + np.log1p(self._variance * more * np.exp(-self._variance * begun)) / self._variance
        # The last bin that begins with no more hazard than that, by bisection.
        k, after = np.zeros(len(pods), dtype=np.int64), np.full(len(pods), BINS, dtype=np.int64)
        for _ in range(BINS.bit_length()):
            middle = (k + after) // 2
            reached = hazards[group, middle] <= target
            k, after = np.where(reached, middle, k), np.where(reached, after, middle)
        here, last = hazards[group, k], hazards[group, -1]
        inside = target < last
        width = np.where(inside, hazards[group, k + 1] - here, LAST_HAZARD)
        begin = np.where(inside, k, np.maximum(BINS, age))
        since = np.where(inside, here, np.maximum(last, begun))
        # Ends in a bin are uniform, beyond all bins the hazard is constant.
        within = np.expm1(since - target) / np.minimum(np.expm1(-width), -1e-300)
        ends = begin + np.where(inside, within, (target - since) / LAST_HAZARD)
        return np.asarray(np.maximum(unit * 2.0 ** np.minimum(ends / BINS_PER_OCTAVE, 1000.0), elapsed))


class HazardLevels:
    """Hazards of G groups of pods at several levels, each smoothed by the one above it.

    Args:
        groups: [G] the group at each level; at the first one all are one.
        times: returns [2, BINS] the pods of a group that ended in each bin, and how often they ran through it.
        prior: [BINS] hazard above the first level.
    """

    def __init__(
        self, groups: Sequence[tuple[RunTimeGroup, ...]], times: Callable[[RunTimeGroup], Floats], prior: Floats
    ) -> None:
        self._prior, self._count, self._levels = prior, len(groups), []
        for level in range(len(groups[0]) if groups else 0):
            # Groups with the same levels so far share a draw.
            numbers: dict[tuple[RunTimeGroup, ...], int] = {}
            where = np.array([numbers.setdefault(each[: level + 1], len(numbers)) for each in groups])
            first = np.unique(where, return_index=True)[1]
            self._levels.append((np.array([times(each[-1]) for each in numbers]), first, where))

    def draw(self, random: np.random.Generator | None) -> Floats:
        """Return [G, BINS] hazards; None: as expected."""
        drawn = np.broadcast_to(self._prior, (self._count, BINS))
        for times, first, where in self._levels:
            of_level = None if random is None else random.spawn(1)[0]
            drawn = _posterior(times, drawn[first], of_level)[where]
        return drawn


class SeenRunTimes:
    """Bins in which pods ended, and that they were seen to run through, by group.

    Args:
        history: run times of what ended.
        spells: pods that were seen to run; (): the history alone, as if it held every pod from its beginning on.
    """

    def __init__(self, history: LiveHistory, spells: Sequence[Spell]) -> None:
        self._history = history
        of_group: dict[RunTimeGroup, list[int]] = {}
        if not spells:
            copy = history.copy()
            for group, row in copy.groups:
                of_group.setdefault(group, []).append(row)
                if group.requests is not None:
                    of_group.setdefault(group._replace(requests=gpus_of(group.requests)), []).append(row)
            at_risk = _all_seen(copy.counts)
        else:
            columns = zip(*((each.entered, each.left, each.ended) for each in spells), strict=True)
            at_risk = _at_risk(*map(np.array, columns))
            alike: dict[tuple[Requests, str, str], list[int]] = {}
            for i, spell in enumerate(spells):
                owner = recurring_owner(spell.pod.owner)
                alike.setdefault((spell.pod.requests, spell.pod.namespace, owner), []).append(i)
            owners: set[tuple[str, str]] = set()
            for some in sorted(alike.values()):
                pod = spells[some[0]].pod
                owner = recurring_owner(pod.owner)
                for group in dict.fromkeys(_levels(pod, owner)):
                    of_group.setdefault(group, []).extend(some)
                # As in the history, each owner counts once in its namespace.
                if owner and (pod.namespace, owner) not in owners:
                    for group in dict.fromkeys(_levels(pod, "")[-2:]):
                        of_group.setdefault(group, []).append(some[0])
                owners.add((pod.namespace, owner))
        self._sums: dict[RunTimeGroup, Floats] = {
            group: _exposure(at_risk[:, some].sum(axis=1)) for group, some in of_group.items()
        }

    def levels(self, pod: Pod) -> tuple[RunTimeGroup, ...]:
        """Return the group of a pod at each level; the namespace stands for an owner of which nothing has ended."""
        known = self._history.knows(pod.namespace, pod.owner)
        return _levels(pod, recurring_owner(pod.owner) if known else "")

    def times(self, group: RunTimeGroup) -> Floats:
        """Return [2, BINS] the pods of a group that ended in each bin, and how often they ran through it."""
        return self._sums.get(group, NOTHING)


def gpus_of(requests: Requests) -> Requests:
    """Return the requested GPUs alone; all shares of GPUs are alike."""
    return Requests(gpu_count=requests.gpu_count, gpu_milli=GPU_MILLI * (requests.gpu_milli // GPU_MILLI))


def _levels(pod: Pod, owner: str) -> tuple[RunTimeGroup, ...]:
    gpus = gpus_of(pod.requests)
    every, same = (RunTimeGroup(each, None, None) for each in (gpus, pod.requests))
    return (
        EVERY_POD,
        every,
        same,
        RunTimeGroup(gpus, pod.namespace, owner),
        RunTimeGroup(pod.requests, pod.namespace, owner),
    )


def _position(seconds: Floats) -> Floats:
    """Return the place of times on the axis of bins."""
    return np.asarray(BINS_PER_OCTAVE * np.log2(np.maximum(seconds, 1.0)))


def _at_risk(entered: Floats, left: Floats, ended: npt.NDArray[np.bool_]) -> Floats:
    """Return [2, M, BINS]: whether each of M spells ended in a bin, and in what share of it it could have."""
    begin, end, k = _position(entered)[:, None], _position(left)[:, None], np.arange(BINS)
    is_last = (np.minimum(end.astype(np.int64), BINS - 1) == k) & ended[:, None]
    until = np.where(is_last, k + 1, np.minimum(end, k + 1))
    return np.array([is_last, np.clip(until - np.maximum(begin, k), 0.0, 1.0)])


def _all_seen(ended: Floats) -> Floats:
    """Return [2, ..., BINS] pods that ended in each bin, and those that reached it, if all were seen from the first."""
    return np.array([ended, np.cumsum(ended[..., ::-1], axis=-1)[..., ::-1]])


def _exposure(at_risk: Floats) -> Floats:
    """Return [2, BINS] the pods that ended in each bin, and how often a constant hazard ran through it.

    Args:
        at_risk: [2, BINS] the pods that ended, and those that could have.
    """
    ended, could = at_risk
    hazard = -np.log1p(-np.minimum(ended / np.maximum(could, 1e-9), MOST_ENDING))
    return np.array([ended, np.where(ended > 0.0, ended / np.maximum(hazard, 1e-300), could)])


def _posterior(times: Floats, prior: Floats, random: np.random.Generator | None) -> Floats:
    """Return draws of hazards, [..., BINS], from times [..., 2, BINS] and those of the level above; see the module.

    None: what is expected of them.
    """
    shape, rate = times[..., 0, :] + PRIOR_ENDS * prior, times[..., 1, :] + PRIOR_PODS
    return np.asarray((shape if random is None else random.standard_gamma(shape)) / rate)


def _first_hazard() -> Floats:
    """Return [BINS] the hazard while nothing has ended: that of bins that are equally likely."""
    low, high = FIRST_PRIOR
    k = np.arange(BINS)
    left = np.maximum(high - k, 1.0)
    return np.where(k < low, 0.0, np.minimum(1.0 / left, LAST_HAZARD))


def _continued(times: Floats) -> Floats:
    """Return [BINS] the prior hazard of all pods: beyond the ages at which many ended it stays what it was there.

    Otherwise whatever has not been seen to end yet would run for days. At most it is `LAST_HAZARD`.
    """
    prior, before = _first_hazard(), 0.0
    for k in range(BINS):
        prior[k] = max(prior[k], before)
        before = min((times[0, k] + PRIOR_PODS * prior[k]) / (times[1, k] + PRIOR_PODS), LAST_HAZARD)
    return prior


def _ratio_hazard() -> Floats:
    """Return [BINS] the hazard of ratios of actual to stated run times while none is known: log-normal."""
    spread = math.log2(UNKNOWN_FACTOR) * BINS_PER_OCTAVE / NORMAL_90
    edges = (np.arange(BINS + 1) - BINS / 2) / (spread * math.sqrt(2.0))
    survival = np.array([0.5 * math.erfc(edge) for edge in edges])
    return np.asarray(np.log(survival[:-1] / survival[1:]))
