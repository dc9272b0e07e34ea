"""Draws of the pods that arrive while others wait: at the rate and of the kinds of what arrived lately.

Each draw has its own rate and its own weights of the kinds. Source: Rubin, "The Bayesian bootstrap" (1981).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.simulation.prediction.moment import RECENT_ARRIVALS, Arrived

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ComingPods:
    """What arrives: U kinds of units (single pods, and pods of an owner that arrived together).

    Attributes:
        pods: indices of the pods of each unit, all units after each other.
        first: [U] position of the first pod of each unit.
        size: [U] its number of pods.
        together: [U] whether it is a gang, whose pods start together.
        seconds: for which they were observed.
    """

    pods: Ints
    first: Ints
    size: Ints
    together: npt.NDArray[np.bool_]
    seconds: float

    @property
    def rate(self) -> float:
        """Return units a second, 0: none is known to arrive."""
        return len(self.first) / self.seconds if len(self.first) else 0.0

    def draw(self, until: float, most: int, random: Sequence[np.random.Generator]) -> tuple[Floats, Ints, Ints]:
        """Return the pods that arrive until a time: times, indices and members as in `Schedule`, [A] each.

        A later `until` adds arrivals to the same ones.

        Args:
            until: seconds.
            most: units to draw at most.
            random: two generators, of the gaps and of the kinds.
        """
        if not self.rate:
            nothing = np.zeros(0, dtype=np.int64)
            return np.zeros(0), nothing, nothing
        gaps, kinds = random
        # The rate and the mix are known from as many arrivals as were seen: a Bayesian bootstrap.
        rate = gaps.standard_gamma(len(self.first)) / self.seconds
        mix = np.cumsum(kinds.standard_exponential(len(self.first)))
        time = np.cumsum(gaps.exponential(1.0 / rate, most))
        time = time[: int(np.searchsorted(time, until, side="right"))]
        unit = np.minimum(np.searchsorted(mix, kinds.random(len(time)) * mix[-1], side="right"), len(mix) - 1)
        size = self.size[unit]
        nth = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        members = np.where(
            nth == 0, np.repeat(np.where(self.together[unit], size, 1), size), 1 - np.repeat(self.together[unit], size)
        )
        return np.repeat(time, size), self.pods[np.repeat(self.first[unit], size) + nth], members.astype(np.int64)


def coming_pods(arrived: Sequence[Arrived], index: Sequence[int], observed: float) -> ComingPods:
    """Return what arrives if it goes on as lately.

    Args:
        arrived: [R] pods that arrived lately.
        index: [R] of each in the workload.
        observed: seconds for which they were observed.
    """
    latest = sorted(range(len(arrived)), key=lambda i: arrived[i].age)
    if len(latest) > RECENT_ARRIVALS:
        latest = latest[:RECENT_ARRIVALS]
        observed = min(observed, arrived[latest[-1]].age)
    units: dict[object, list[int]] = {}
    for i in latest:
        pod = arrived[i].pod
        key: object = i
        if pod.gang:
            key = "gang", pod.namespace, pod.gang
        elif pod.owner:
            key = "owner", pod.namespace, pod.owner, arrived[i].age
        units.setdefault(key, []).append(i)
    size = np.array([len(unit) for unit in units.values()], dtype=np.int64)
    return ComingPods(
        pods=np.array([index[i] for unit in units.values() for i in unit], dtype=np.int64),
        first=np.cumsum(size) - size,
        size=size,
        together=np.array([bool(arrived[unit[0]].pod.gang) for unit in units.values()], dtype=np.bool_),
        seconds=max(observed, 1.0),
    )
