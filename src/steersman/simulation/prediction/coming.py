"""Draws of the pods that arrive while others wait: stretches of the days before, and Poisson arrivals like them.

A draw is put together from stretches of random lengths. Of D whole days that are known, a stretch repeats what came at
the same time of one of these days, with the run times of its pods, in D of D + 1 cases: bursts stay together, and night
follows day. Otherwise pods arrive at the rate and of the kinds of what arrived lately, and each draw has its own rate
and its own weights of the kinds. Sources: Politis and Romano, "The Stationary Bootstrap" (1994), and Rubin, "The
Bayesian bootstrap" (1981).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Pod
from steersman.simulation.arrivals import least_of
from steersman.simulation.prediction.moment import DAY, RECENT_ARRIVALS, Arrived

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEAST_SECONDS = 6 * 3600.0
"""Of these latest seconds all arrivals count, or a sample of them."""
SHORTEST_SECONDS = 3600.0
"""Arrivals that were observed for less are taken to be those of so many seconds."""
AT_ONCE_SECONDS = 60.0
"""Pods of an owner that arrive within this time arrive together."""
STRETCH_SECONDS = 24 * 3600.0
"""Mean length of a stretch, unless it reaches the present before."""


class ArrivingPods(NamedTuple):
    """Pods that arrive, [A] each.

    Attributes:
        time: seconds, ascending.
        pods: indices.
        members, least: as in `Schedule`.
        ran: seconds that each is known to run.
        ended: whether it ends then.
    """

    time: Floats
    pods: Ints
    members: Ints
    least: Ints
    ran: Floats
    ended: npt.NDArray[np.bool_]

    def part(self, which: slice | Ints, shift: float = 0.0) -> ArrivingPods:
        """Return some of them, later."""
        return ArrivingPods._make([self.time[which] + shift, *(each[which] for each in self[1:])])


@dataclass(frozen=True, eq=False)
class ComingPods:
    """What arrives: U kinds of units (single pods, and pods of an owner that arrived together)."""

    pods: Ints  # indices of the pods of each unit, all units after each other
    first: Ints  # [U] position of the first pod of each unit
    size: Ints  # [U] its number of pods
    least: Ints  # [U] how many of its pods must start together, if it is a gang; else 1
    seconds: float  # for which they were observed, or stand for
    past: ArrivingPods  # all that arrived, at times before 0
    days: int  # whole days for which that was observed

    @property
    def rate(self) -> float:
        """Return units a second, 0: none is known to arrive."""
        return len(self.first) / self.seconds if len(self.first) else 0.0

    @property
    def pod_rate(self) -> float:
        """Return pods a second, at most over the days or lately."""
        of_days = len(self.past.time) / (self.days * DAY) if self.days else 0.0
        return max(float(self.size.sum()) / self.seconds, of_days)

    def draw(self, until: float, most: int, random: Sequence[np.random.Generator]) -> ArrivingPods:
        """Return the pods that arrive until a time. A later `until` adds arrivals to the same ones.

        Args:
            until: seconds.
            most: units to draw at most, and pods of the days before.
            random: three generators, of the gaps, of the kinds and of the stretches.
        """
        if not self.rate:
            return self.past.part(slice(0))
        drawn, stretches = self._poisson(until, most, random[:2]), random[2]
        if not self.days:
            return drawn
        parts, count, begin = [drawn.part(slice(0))], 0, 0.0
        while begin < until and count < most:
            day, length = stretches.integers(self.days + 1), stretches.exponential(STRETCH_SECONDS)
            since = begin % DAY - day * DAY
            source, shift = (self.past, begin - since) if day else (drawn, 0.0)
            first = since if day else begin
            length = min(length, -since) if day else length
            part = source.part(slice(*np.searchsorted(source.time, [first, first + length])), shift)
            parts.append(part)
            count, begin = count + len(part.time), begin + length
        joined = ArrivingPods(*(np.concatenate(each) for each in zip(*parts, strict=True)))
        return joined.part(slice(min(int(np.searchsorted(joined.time, until, side="right")), most)))

    def _poisson(self, until: float, most: int, random: Sequence[np.random.Generator]) -> ArrivingPods:
        gaps, kinds = random
        # The rate and the mix are known from as many arrivals as were seen: a Bayesian bootstrap.
        rate = gaps.standard_gamma(len(self.first)) / self.seconds
        mix = np.cumsum(kinds.standard_exponential(len(self.first)))
        time = np.cumsum(gaps.exponential(1.0 / rate, most))
        time = time[: int(np.searchsorted(time, until, side="right"))]
        unit = np.minimum(np.searchsorted(mix, kinds.random(len(time)) * mix[-1], side="right"), len(mix) - 1)
        size = self.size[unit]
        nth = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        least, of_unit = np.repeat(self.least[unit], size), np.repeat(size, size)
        members = np.where(least > 1, np.where(nth == 0, of_unit, 0), 1)
        pods, unknown = self.pods[np.repeat(self.first[unit], size) + nth], np.zeros(len(nth))
        return ArrivingPods(np.repeat(time, size), pods, members, least, unknown, unknown.astype(np.bool_))


def coming_pods(arrived: Sequence[Arrived], index: Sequence[int], observed: float) -> ComingPods:
    """Return what arrives if it goes on as lately.

    Args:
        arrived: [R] pods that arrived lately.
        index: [R] of each in the workload.
        observed: seconds for which they were observed.
    """
    units, days, observed = _units(arrived), int(observed // DAY), max(observed, SHORTEST_SECONDS)
    past = _past(arrived, index, units)
    if len(units) > RECENT_ARRIVALS:
        # A burst says nothing of the hours after it, so that the latest hours count in any case, by a sample.
        latest = max(arrived[units[RECENT_ARRIVALS - 1][0]].age, min(observed, LEAST_SECONDS))
        recent = [unit for unit in units if arrived[unit[0]].age <= latest]
        units = recent[:: math.ceil(len(recent) / RECENT_ARRIVALS)]
        observed = latest * len(units) / len(recent)
    size = np.array([len(unit) for unit in units], dtype=np.int64)
    return ComingPods(
        pods=np.array([index[i] for unit in units for i in unit], dtype=np.int64),
        first=np.cumsum(size) - size,
        size=size,
        least=np.array([_least([arrived[i].pod for i in unit]) for unit in units], dtype=np.int64),
        seconds=observed,
        past=past,
        days=days,
    )


def _least(pods: Sequence[Pod]) -> int:
    return min(least_of(pods, {}), len(pods)) if pods[0].gang else 1


def _past(arrived: Sequence[Arrived], index: Sequence[int], units: list[list[int]]) -> ArrivingPods:
    """Return what arrived, at times before 0; a gang at that of its last pod."""
    rows = []
    for unit in units:
        latest, least = arrived[unit[0]], _least([arrived[i].pod for i in unit])
        for nth, i in enumerate(unit if latest.pod.gang else unit[::-1]):
            each = arrived[i]
            members = (0 if nth else len(unit)) if least > 1 else 1
            age = (latest if each.pod.gang else each).age
            rows.append((-age, index[i], members, least, each.ran, each.ended))
    rows.sort(key=lambda row: row[0])
    columns = np.array(rows, dtype=np.float64).reshape(-1, 6).T
    return ArrivingPods._make([columns[0], *columns[1:4].astype(np.int64), columns[4], columns[5].astype(np.bool_)])


def _units(arrived: Sequence[Arrived]) -> list[list[int]]:
    """Return pods that arrived at once, as numbers in `arrived`, the latest first: gangs, and pods of one owner."""
    units: list[list[int]] = []
    last: dict[object, list[int]] = {}
    for i in sorted(range(len(arrived)), key=lambda i: arrived[i].age):
        pod, key = arrived[i].pod, None
        if pod.gang:
            key = "gang", pod.namespace, pod.gang
        elif pod.owner:
            key = "owner", pod.namespace, pod.owner
        unit = None if key is None else last.get(key)
        if unit is None or not (pod.gang or arrived[i].age - arrived[unit[0]].age <= AT_ONCE_SECONDS):
            unit = []
            units.append(unit)
            if key is not None:
                last[key] = unit
        unit.append(i)
    return units
