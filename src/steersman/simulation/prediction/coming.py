"""Draws of the pods that arrive while others wait: at the rate and of the kinds of what arrived lately.

Each draw has its own rate and its own weights of the kinds. Source: Rubin, "The Bayesian bootstrap" (1981).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Pod
from steersman.simulation.prediction.moment import RECENT_ARRIVALS, Arrived

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEAST_SECONDS = 6 * 3600.0
"""Of these latest seconds all arrivals count, or a sample of them."""
SHORTEST_SECONDS = 3600.0
"""Arrivals that were observed for less are taken to be those of so many seconds."""
AT_ONCE_SECONDS = 60.0
"""Pods of an owner that arrive within this time arrive together."""


@dataclass(frozen=True, eq=False)
class ComingPods:
    """What arrives: U kinds of units (single pods, and pods of an owner that arrived together).

    Attributes:
        pods: indices of the pods of each unit, all units after each other.
        first: [U] position of the first pod of each unit.
        size: [U] its number of pods.
        least: [U] how many of its pods must start together, if it is a gang; else 1.
        seconds: for which they were observed, or stand for.
    """

    pods: Ints
    first: Ints
    size: Ints
    least: Ints
    seconds: float

    @property
    def rate(self) -> float:
        """Return units a second, 0: none is known to arrive."""
        return len(self.first) / self.seconds if len(self.first) else 0.0

    @property
    def pod_rate(self) -> float:
        """Return pods a second."""
        return float(self.size.sum()) / self.seconds

    def draw(self, until: float, most: int, random: Sequence[np.random.Generator]) -> tuple[Floats, Ints, Ints, Ints]:
        """Return the pods that arrive until a time: times, indices, members and least as in `Schedule`, [A] each.

        A later `until` adds arrivals to the same ones.

        Args:
            until: seconds.
            most: units to draw at most.
            random: two generators, of the gaps and of the kinds.
        """
        if not self.rate:
            nothing = np.zeros(0, dtype=np.int64)
            return np.zeros(0), nothing, nothing, nothing
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
        return np.repeat(time, size), self.pods[np.repeat(self.first[unit], size) + nth], members, least


def coming_pods(arrived: Sequence[Arrived], index: Sequence[int], observed: float) -> ComingPods:
    """Return what arrives if it goes on as lately.

    Args:
        arrived: [R] pods that arrived lately.
        index: [R] of each in the workload.
        observed: seconds for which they were observed.
    """
    units, observed = _units(arrived), max(observed, SHORTEST_SECONDS)
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
    )


def _least(pods: Sequence[Pod]) -> int:
    """Return how many of the pods of a unit must start together."""
    return min(pods[0].gang_minimum or len(pods), len(pods)) if pods[0].gang else 1


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
