"""Orders: who goes next among pods that wait, by name, and who may overtake a pod that fits nowhere.

`NAME[:OVERTAKING][@ESTIMATES]`, such as `shortest`, `wfp3:easy`, `age:none` or `area@history`. Higher priority always
goes first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Pod
from steersman.core.errors import UsageError, unknown_name
from steersman.orders import queue, scores
from steersman.orders.run_times import AUTO, SOURCES, RunTimes, parse_run_times

Floats = npt.NDArray[np.float64]

OVERTAKING = {
    "any": queue.ANYBODY,
    "none": queue.NO_ONE,
    "easy": queue.EASY,
    "ending-before": queue.ENDING_BEFORE,
}
"""Who may overtake a pod that fits nowhere: every pod that fits; nobody; whoever does not delay its reservation;
whoever ends before that begins."""


@dataclass(frozen=True, slots=True, eq=False)
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
        return self.score != scores.GIVEN or self.overtaking > queue.NO_ONE or self.ageing < math.inf

    @property
    def follows_age(self) -> bool:
        """Return whether the oldest pod goes first."""
        return type(self).given is Order.given and self.score == scores.GIVEN

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
}
"""The orders of names."""


def find_order(spec: str) -> Order:
    """Return the order of a text `NAME[:OVERTAKING][@ESTIMATES]`.

    Raises:
        UsageError: there is no such order; the message lists the known ones.
    """
    text, at, estimates = spec.partition("@")
    name, colon, overtaking = text.partition(":")
    order = BUILT_IN.get(name)
    if order is None:
        raise unknown_name("order", name, tuple(BUILT_IN), f"NAME:{'|'.join(OVERTAKING)}", f"NAME@{'|'.join(SOURCES)}")
    if colon:
        if overtaking not in OVERTAKING:
            raise UsageError(f"order {spec!r}: {overtaking!r} is unknown; expected {', '.join(OVERTAKING)}")
        if order.overtaking != queue.ANYBODY:
            raise UsageError(f"order {spec!r}: {name!r} says already who may overtake; expected age:{overtaking}")
        order = replace(order, overtaking=OVERTAKING[overtaking])
    if at:
        order = replace(order, run_times=parse_run_times(estimates))
    return replace(order, name=spec)
