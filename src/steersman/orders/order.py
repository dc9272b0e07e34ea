"""Orders: who goes next among pods that wait, and who may overtake a pod that fits nowhere.

Higher priority always goes first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Pod
from steersman.orders import queue, scores
from steersman.orders.run_times import AUTO, RunTimes

Floats = npt.NDArray[np.float64]

OVERTAKING = {
    "any": queue.ANYBODY,
    "none": queue.NO_ONE,
    "easy": queue.EASY,
}
"""Who may overtake a pod that fits nowhere: every pod that fits; nobody; whoever does not delay its reservation."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order of waiting pods.

    Attributes:
        name: name in results.
        score: kind of score, see `scores`; the lowest goes first, the oldest on ties.
        overtaking: one of the values of `OVERTAKING`.
        weights: of a learned order.
        ageing: seconds after which a pod goes before all others of its priority, with a reservation; inf: never.
        run_times: where estimated run times come from.
    """

    name: str
    score: int = scores.GIVEN
    overtaking: int = queue.ANYBODY
    weights: tuple[float, ...] = ()
    ageing: float = math.inf
    run_times: RunTimes = AUTO

    @property
    def uses_estimates(self) -> bool:
        """Return whether estimates of run times matter to it."""
        by_score = self.score not in (scores.GIVEN, scores.FAIR)
        return by_score or self.overtaking == queue.EASY or self.ageing < math.inf

    @property
    def learns_run_times(self) -> bool:
        """Return whether run times of what ended matter to it."""
        return self.uses_estimates and self.run_times.uses_history

    @property
    def commits(self) -> bool:
        """Return whether one pod goes next, and stays the next one until it starts."""
        return self.overtaking != queue.ANYBODY

    @property
    def uses_delay(self) -> bool:
        """Return whether the delay is an input of learned weights."""
        weights = np.array(self.weights)
        hidden = max(len(weights) - len(scores.LINEAR), 0) // scores.UNIT_SIZE
        return len(weights) > 0 and bool(weights[scores.delay_weights(hidden)].any())

    @property
    def follows_age(self) -> bool:
        """Return whether the oldest pod goes first."""
        return type(self).given is Order.given and self.score in (scores.GIVEN, scores.EXTERNAL)

    def given(self, time: Floats, size: Floats, pods: Sequence[Pod]) -> Floats:
        """Return [A] the scores that are known at the arrival; those of age unless overridden.

        Args:
            time: [A] arrival, seconds.
            size: [A] requested GPUs, or CPUs where no pod requests a GPU.
            pods: [A] the pods.
        """
        return time


class _Smallest(Order):
    """The smallest pod first."""

    __slots__ = ()

    def given(self, time: Floats, size: Floats, pods: Sequence[Pod]) -> Floats:
        """Return the sizes, see `Order`."""
        return size


class _Largest(Order):
    """The largest pod first."""

    __slots__ = ()

    def given(self, time: Floats, size: Floats, pods: Sequence[Pod]) -> Floats:
        """Return the sizes with the other sign, see `Order`."""
        return -size


AGE = Order("age")
BUILT_IN: dict[str, Order] = {
    "age": AGE,
    "fcfs": Order("fcfs", overtaking=queue.NO_ONE),
    "easy": Order("easy", overtaking=queue.EASY),
    "smallest": _Smallest("smallest"),
    "largest": _Largest("largest"),
    "shortest": Order("shortest", scores.SHORTEST),
    "area": Order("area", scores.AREA),
    "wfp3": Order("wfp3", scores.WFP3),
    "unicef": Order("unicef", scores.UNICEF),
    "f1": Order("f1", scores.F1),
    "fair": Order("fair", scores.FAIR),
}
"""The orders of names."""
