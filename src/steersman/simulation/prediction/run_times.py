"""Draws of run times, given for how long pods have run already.

Pods that are alike have a hazard in each bin of the histories of run times on the logarithmic axis of ages: of those
that reach the bin, the share 1 - exp(-hazard) ends in it, anywhere in it. It is estimated at five levels, each smoothed
by the one above it: all pods, those with as many GPUs, those of the same requests, those of the same owner with as many
GPUs, and those of the same owner and requests.

    hazard[level] ~ Gamma(ended[level] + hazard[level - 1] / log(1 + 1 / PRIOR_PODS), seen[level] + PRIOR_PODS)

with pods that ended in a bin, and how often that hazard would have to run through it for as many to end of those that
could have ended there. Pods that still run count among the latter, and pods that began earlier count from when they
were first seen: what has ended alone is too short or too long a sample while a queue grows or shrinks. Each rollout
draws its own hazards, since of many a group few pods have ended. Source: the piecewise exponential model with a gamma
prior, e.g. Ibrahim, Chen and Sinha, "Bayesian Survival Analysis" (2001); ends are uniform in a bin, so that run times
that are always the same are not said to outrun it.

A pod that stated a run time has a hazard over the ratio of actual to stated times instead, at three levels: all pods,
those of its namespace, and those of its owner.

Pods that an owner submits within hours often run alike, and unlike its others. So bursts are one more level: pods that
are alike at the last of these levels, of one owner, and arrived within the same three hours. How many pods the level
above counts for there follows from the past, by the correlation of whether two pods of a burst end in a bin that both
reach:

    prior pods = 1 / correlation - 1

as in the beta-binomial distribution. It is estimated by its moments, where the share of the pods of other bursts that
ended is the expected one (Ridout, Demetrio and Firth, "Estimating Intraclass Correlation for Binary Data", 1999). At
the other levels a burst of n pods counts as n / (1 + (n - 1) * correlation) pods, by the design effect (Kish, "Survey
Sampling", 1965): a thousand pods of one burst say little about the next one.

Days differ, too: pods of a kind run longer on one than on another. So each rollout multiplies the hazards of a kind by
a log-normal level with a median of 1 (McGilchrist and Aisbett, "Regression with Frailty in Survival Analysis", 1991).
Its dispersion follows from the pods of a kind that arrived on a day, by how many more of them ended than of those of
other days. What two bursts of a day have in common is no chance:

    dispersion = sum of more * more / sum of expected * expected, over pairs of bursts of a kind and day

less what chance adds, since the other days are few as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI, Pod, Requests
from steersman.core.handles import BINS
from steersman.orders.order import NORMAL_90, recurring_owner
from steersman.orders.run_time_history import (
    BINS_PER_OCTAVE,
    EVERY_POD,
    FIRST_PRIOR,
    PRIOR_PODS,
    RATIO_UNIT,
    RunTimeGroup,
    RunTimeHistory,
    ratio_groups,
)
from steersman.simulation.prediction.moment import DAY, Spell

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

UNKNOWN_FACTOR = 10.0
"""While nothing is known of stated run times, 90 % are within this factor of the actual ones."""
NOTHING = np.zeros((2, BINS))
MOST_ENDING = 0.99
"""Largest share of the pods that reach a bin of which a history alone says that they end there."""
LAST_HAZARD = math.log(2.0) / BINS_PER_OCTAVE
"""Hazard beyond all that is known: one half runs for twice as long."""
RATIO_LEVELS = 3
"""Levels of pods that stated run times."""
BURST_SECONDS = 3 * 3600.0
"""Pods of an owner that arrive within this time may run alike."""
PRIOR_CORRELATION, PRIOR_PAIRS = 0.05, 20.0
"""Correlation of the pods of a burst, as if so many pairs of pods, each of another burst, were known to have it."""
LEAST_CORRELATION, MOST_CORRELATION = 1e-3, 0.8
LEAST_EXPECTED = 0.5
"""Pods of a kind and day that are expected to end; with fewer the day says nothing."""
PRIOR_DAYS = 5.0
"""Days of a kind, with many pods each, that were no different: without others the dispersion is 0."""


class RunTimeDraws:
    """Distributions of the run times of pods, P of them.

    Args:
        pods: [P] the pods.
        ages: [P] seconds since the arrival of each.
        history: run times of what ended.
        spells: pods that were seen to run; (): the history alone is known.
    """

    def __init__(self, pods: Sequence[Pod], ages: Floats, history: RunTimeHistory, spells: Sequence[Spell]) -> None:
        kinds: dict[tuple[RunTimeGroup, ...], int] = {}
        bursts: dict[tuple[int, str, str, float], int] = {}
        known: dict[tuple[object, ...], int] = {}
        unit, burst = [], []
        hours = np.concatenate([ages, [spell.age for spell in spells]]) // BURST_SECONDS
        for pod, hour in zip((*pods, *(spell.pod for spell in spells)), hours.tolist(), strict=True):
            owner, key = recurring_owner(pod.owner), (pod.requests, pod.namespace, pod.owner)
            if pod.estimated_seconds is not None:
                kind = kinds.setdefault((EVERY_POD, *ratio_groups(pod.namespace, owner)), len(kinds))
                unit.append(max(pod.estimated_seconds, 1.0) * RATIO_UNIT)
            else:
                if key not in known:
                    # The namespace stands for an owner of which nothing has ended.
                    levels = _levels(pod, owner if history.knows(pod.namespace, pod.owner) else "")
                    known[key] = kinds.setdefault(levels, len(kinds))
                kind = known[key]
                unit.append(1.0)
            burst.append(bursts.setdefault((kind, pod.namespace, owner, hour), len(bursts)))
        count = len(pods)
        self._unit, self._burst = np.array(unit[:count]), np.array(burst[:count], dtype=np.int64)
        kind_of = np.array([each[0] for each in bursts], dtype=np.int64)
        columns = [(each.entered, each.left, each.ended) for each in spells]
        entered, left, ended = np.array(columns, dtype=np.float64).reshape(-1, 3).T
        times, of_spell = np.zeros((len(bursts), 2, BINS)), np.array(burst[count:], dtype=np.int64)
        units = np.array(unit[count:])
        np.add.at(times, of_spell, _at_risk(entered / units, left / units, ended > 0.0).swapaxes(0, 1))
        of_kind = np.zeros((len(kinds), 2, BINS))
        np.add.at(of_kind, kind_of, times)
        correlation = _correlation(times, of_kind[kind_of] - times)
        days = np.array([each[-1] for each in bursts]) // (DAY / BURST_SECONDS)
        days, day_of = np.unique(np.array([kind_of, days]), axis=1, return_inverse=True)
        self._deviation = math.sqrt(math.log1p(_dispersion(times, of_kind[days[0].astype(np.int64)], day_of)))
        self._burst_prior = 1.0 / correlation - 1.0
        size = np.bincount(of_spell, minlength=len(bursts))[of_spell]
        weight = np.asarray(1.0 / (1.0 + (size - 1.0) * correlation), dtype=np.float64)
        seen = SeenRunTimes(history, spells, weight)
        # Bursts and kinds of the pods come first, so that their draws do not depend on others that follow.
        last = int(self._burst.max(initial=-1)) + 1
        self._kind, self._times = kind_of[:last], _exposure(times[:last].swapaxes(0, 1)).swapaxes(0, 1)
        of_pods = [*kinds][: int(self._kind.max(initial=-1)) + 1]
        self._is_stated = np.array([len(each) == RATIO_LEVELS for each in of_pods], dtype=np.bool_)
        timed, ratios = ([each for each in of_pods if (len(each) == RATIO_LEVELS) is which] for which in (False, True))
        self._hazards = HazardLevels(timed, seen.times, _continued(seen.times(EVERY_POD)))
        self._ratios = HazardLevels(
            ratios, lambda each: _exposure(_all_seen(history.ratio_counts(each))), _ratio_hazard()
        )

    def hazards(self, random: np.random.Generator) -> Floats:
        """Return [B, BINS + 1] the cumulative hazard of each burst at the beginning of each bin, for a rollout."""
        of_kinds, of_bursts, of_levels = random.spawn(3)
        kinds = np.zeros((len(self._is_stated), BINS))
        kinds[~self._is_stated], kinds[self._is_stated] = self._hazards.draw(of_kinds), self._ratios.draw(of_kinds)
        kinds *= np.exp(self._deviation * of_levels.standard_normal((len(kinds), 1)))
        every = _posterior(self._times, kinds[self._kind], of_bursts, self._burst_prior)
        return np.concatenate([np.zeros((len(every), 1)), np.cumsum(every, axis=1)], axis=1)

    def _reached(self, hazards: Floats, pods: Ints, elapsed: Floats) -> Floats:
        """Return [M] the cumulative hazard of each pod at an age."""
        burst, age = self._burst[pods], _position(elapsed / self._unit[pods])
        k = np.minimum(age.astype(np.int64), BINS - 1)
        here = hazards[burst, k]
        ending = -np.expm1(here - hazards[burst, k + 1])
        return np.asarray(here - np.log1p(-np.minimum(age - k, 1.0) * ending))

    def draw(self, hazards: Floats, pods: Ints, elapsed: Floats, share: Floats) -> Floats:
        """Return [M] run times in seconds, each at least as long as the pod has run already.

        Args:
            hazards: of a rollout, from `hazards`.
            pods: [M] indices of pods.
            elapsed: [M] seconds that each has run.
            share: [M] uniform in 0..1: which share of the pods that ran as long ends before.
        """
        burst, unit = self._burst[pods], self._unit[pods]
        age, begun = _position(elapsed / unit), self._reached(hazards, pods, elapsed)
        target = begun - np.log1p(-share)
        # The last bin that begins with no more hazard than that, by bisection.
        k, after = np.zeros(len(pods), dtype=np.int64), np.full(len(pods), BINS, dtype=np.int64)
        for _ in range(BINS.bit_length()):
            middle = (k + after) // 2
            reached = hazards[burst, middle] <= target
            k, after = np.where(reached, middle, k), np.where(reached, after, middle)
        here, last = hazards[burst, k], hazards[burst, -1]
        inside = target < last
        width = np.where(inside, hazards[burst, k + 1] - here, LAST_HAZARD)
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

    def draw(self, random: np.random.Generator) -> Floats:
        """Return [G, BINS] hazards."""
        drawn = np.broadcast_to(self._prior, (self._count, BINS))
        for times, first, where in self._levels:
            drawn = _posterior(times, drawn[first], random.spawn(1)[0], PRIOR_PODS)[where]
        return drawn


class SeenRunTimes:
    """Bins in which pods ended, and that they were seen to run through, by group.

    Args:
        history: run times of what ended.
        spells: pods that were seen to run; (): the history alone, as if it held every pod from its beginning on.
        weight: [M] how much each of these pods counts.
    """

    def __init__(self, history: RunTimeHistory, spells: Sequence[Spell], weight: Floats) -> None:
        of_group: dict[RunTimeGroup, list[int]] = {}
        if not spells:
            rows = [row for row in history.copy().rows() if row.after < 0 and row.group[3:] == (None, None)]
            for i, row in enumerate(rows):
                of_group.setdefault(row.group, []).append(i)
                if row.group.requests is not None:
                    gpus = gpus_of(row.group.requests)
                    of_group.setdefault(row.group._replace(requests=gpus), []).append(i)
            at_risk = _all_seen(np.array([row.pods for row in rows]))
        else:
            columns = zip(*((each.entered, each.left, each.ended) for each in spells), strict=True)
            each = _at_risk(*map(np.array, columns))
            at_risk = np.concatenate([each * weight[:, None], each], axis=1)
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
                # As in the history, each owner counts once in its namespace, with its full weight.
                if owner and (pod.namespace, owner) not in owners:
                    for group in dict.fromkeys(_levels(pod, "")[-2:]):
                        of_group.setdefault(group, []).append(len(spells) + some[0])
                owners.add((pod.namespace, owner))
        self._sums: dict[RunTimeGroup, Floats] = {
            group: _exposure(at_risk[:, some].sum(axis=1)) for group, some in of_group.items()
        }

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


def _posterior(times: Floats, prior: Floats, random: np.random.Generator, prior_pods: float) -> Floats:
    """Return draws of hazards, [..., BINS], from times [..., 2, BINS] and those of the level above; see the module."""
    # The prior ends are those by which the expected share that survives is that of the level above: the mean of exp(-h)
    # over draws of the hazard h. With `prior_pods` instead it would be larger at each level.
    shape = times[..., 0, :] + prior / math.log1p(1.0 / prior_pods)
    return np.asarray(random.standard_gamma(shape) / (times[..., 1, :] + prior_pods))


def _correlation(times: Floats, others: Floats) -> float:
    """Return the correlation of the pods of a burst, see the module.

    Args:
        times: [B, 2, BINS] pods of each burst that ended in a bin, and those that could have.
        others: [B, 2, BINS] those of the other bursts of its kind.
    """
    (ended, could), (others_ended, others_could) = times.swapaxes(0, 1), others.swapaxes(0, 1)
    counted = (others_could >= could) & (could > 1.0)
    ended, could, others_could = ended[counted], could[counted], others_could[counted]
    share = others_ended[counted] / others_could
    # Less what chance adds: by these pods one by one, and by the share that is known of the others alone.
    more = (ended - could * share) ** 2 - ended * (1.0 - share) ** 2 - (could - ended) * share**2
    more -= could**2 * share * (1.0 - share) / others_could
    pairs = share * (1.0 - share) * (could - 1.0)
    found = (float((more / could).sum()) + PRIOR_PAIRS * PRIOR_CORRELATION) / (float(pairs.sum()) + PRIOR_PAIRS)
    return min(max(found, LEAST_CORRELATION), MOST_CORRELATION)


def _dispersion(times: Floats, of_kind: Floats, day: Ints) -> float:
    """Return the variance of the level of hazards between days, see the module.

    Args:
        times: [B, 2, BINS] pods of each burst that ended in a bin, and those that could have.
        of_kind: [D, 2, BINS] those of all bursts of the kind of each day.
        day: [B] the day of each burst.
    """
    count = len(of_kind)
    of_day = np.zeros_like(of_kind)
    np.add.at(of_day, day, times)
    others_ended, others_could = (of_kind - of_day).swapaxes(0, 1)
    share = np.where(others_could > 1.0, np.minimum(others_ended / np.maximum(others_could, 1.0), 1.0), 0.0)
    expected = (times[:, 1] * share[day]).sum(axis=1)
    more = (times[:, 0] * (share[day] > 0.0)).sum(axis=1) - expected
    of_days = np.bincount(day, expected, count)
    pairs = of_days**2 - np.bincount(day, expected**2, count)
    products = np.bincount(day, more, count) ** 2 - np.bincount(day, more**2, count)
    chance = (of_day[:, 1] ** 2 * share * (1.0 - share) / np.maximum(others_could, 1.0)).sum(axis=1)
    products -= chance * pairs / np.maximum(of_days, LEAST_EXPECTED) ** 2
    weight = (of_days > LEAST_EXPECTED) / (1.0 + of_days) ** 2
    return max(float(weight @ products) / (float(weight @ pairs) + PRIOR_DAYS), 0.0)


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
