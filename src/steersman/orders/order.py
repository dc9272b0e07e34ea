"""Orders: who goes next among pods that wait, and who may overtake a pod that fits nowhere.

Higher priority always goes first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Pod
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.extensions import attribute_errors
from steersman.core.library import call
from steersman.orders import scores

Source = Literal["auto", "stated", "history", "oracle", "none"]

SOURCES: tuple[Source, ...] = ("auto", "stated", "history", "oracle", "none")
ANYBODY, NO_ONE, EASY = range(3)
"""Who may overtake a pod that fits nowhere: everybody; nobody; with a reservation for it, those that end before it
begins or leave room for it."""
UNKNOWN_SECONDS = 3600.0
"""Estimate of every pod that has none, where the history must not be used."""
NORMAL_90 = 1.6448536269514722
"""90 % of normal draws are within so many standard deviations."""
ERROR_SEED = 9_001


@dataclass(frozen=True, slots=True)
class Estimates:
    """Where estimates of run times come from.

    Attributes:
        source: `auto`: as stated, else from the history; `stated`: as stated, else an hour; `history`: from what ended
            before alone, where a stated time only tells pods apart; `oracle`: the truth, which no scheduler knows;
            `none`: an hour for every pod.
        error: factor within which 90 % of the oracle's estimates are (log-normal); 1: the truth.
    """

    source: Source = "auto"
    error: float = 1.0

    @property
    def uses_history(self) -> bool:
        """Return whether estimates are learned from what ends."""
        return self.source in ("auto", "history")

    def stated(self, pods: Sequence[Pod], durations: Floats, seed: int) -> Floats:
        """Return [A] estimates that are known at the arrival in seconds, NaN: from the history.

        `durations` [A] are true run times, inf: to the end. Only `oracle` reads them, and the seed of its errors.
        """
        if self.source == "oracle":
            random = np.random.default_rng((ERROR_SEED, seed))
            spread = math.log(self.error) / NORMAL_90
            return np.asarray(durations * np.exp(spread * random.standard_normal(len(pods))))
        return np.array([self.known(pod) for pod in pods], dtype=np.float64)

    def known(self, pod: Pod) -> float:
        """Return the estimate that is known at the arrival in seconds, NaN: from the history; not of `oracle`."""
        if self.source == "history":
            return math.nan
        if self.source == "none":
            return UNKNOWN_SECONDS
        if pod.estimated_seconds is not None:
            return pod.estimated_seconds
        return math.nan if self.source == "auto" else UNKNOWN_SECONDS


AUTO = Estimates()


def recurring_owner(owner: str) -> str:
    """Return by whom run times are told apart: `Job/backup-29384720` and later runs of the CronJob are `Job/backup`.

    A CronJob numbers its Jobs by minutes, Argo's CronWorkflow by seconds since 1970, and people by days.
    """
    return _owner_parts(owner)[0]


def owner_series(owner: str) -> str:
    """Return the series of an owner: `Job/train` of `Job/train-17` and of `Job/train-x7k2p`."""
    return _owner_parts(owner)[1]


@lru_cache(100_000)
def _owner_parts(owner: str) -> tuple[str, str]:
    text, lengths = owner.encode(errors="surrogatepass"), np.empty(2, dtype=np.int64)
    call("owner_lengths", text, len(text), lengths)
    any_run, series = (text[:length].decode(errors="surrogatepass") for length in lengths.tolist())
    return any_run, series


def parse_estimates(text: str) -> Estimates:
    """Return the source of a text such as `history`, `oracle` or `oracle:3`. Raises UsageError."""
    name, _, error = text.partition(":")
    if name not in SOURCES or (error and name != "oracle"):
        raise UsageError(f"estimates {text!r} are unknown; expected {', '.join(SOURCES)} or oracle:FACTOR")
    if not error:
        return Estimates(name)
    if not re.fullmatch(r"\d{1,3}(\.\d{1,3})?", error, re.ASCII) or float(error) < 1:
        raise UsageError(f"estimates {text!r}: the factor {error!r} must be a number of at least 1")
    return Estimates(name, float(error))


Floats = npt.NDArray[np.float64]

OVERTAKING = {"any": ANYBODY, "none": NO_ONE, "easy": EASY}
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
        estimates: where estimated run times come from.
    """

    name: str
    score: int = scores.GIVEN
    overtaking: int = ANYBODY
    weights: tuple[float, ...] = ()
    ageing: float = math.inf
    estimates: Estimates = AUTO

    @property
    def uses_estimates(self) -> bool:
        """Return whether estimates of run times matter to it."""
        by_score = self.score not in (scores.GIVEN, scores.FAIR)
        return by_score or self.overtaking == EASY or self.ageing < math.inf

    @property
    def learns_run_times(self) -> bool:
        return self.uses_estimates and self.estimates.uses_history

    @property
    def commits(self) -> bool:
        """Return whether one pod goes next, and stays the next one until it starts."""
        return self.overtaking != ANYBODY

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
        """Return [A] the scores that are known at the arrival (`time`, seconds); those of age unless overridden.

        `size`: [A] requested GPUs, or CPUs where no pod requests a GPU.
        """
        return time

    def scores_at_arrival(self, time: Floats, size: Floats, pods: Sequence[Pod]) -> Floats:
        """Return `given`, checked. Raises SteersmanError: a user's order failed, or a score is not a number."""
        with attribute_errors(f"order {self.name!r}"):
            found = np.asarray(self.given(time, size, pods), dtype=np.float64)
        if found.shape != time.shape or np.isnan(found).any():
            raise SteersmanError(
                f"order {self.name!r}: expected a score of each of {len(time)} pods, all of them numbers"
            )
        return found


class _Smallest(Order):
    """The smallest pod first."""

    __slots__ = ()

    def given(self, time: Floats, size: Floats, pods: Sequence[Pod]) -> Floats:
        return size


class _Largest(Order):
    """The largest pod first."""

    __slots__ = ()

    def given(self, time: Floats, size: Floats, pods: Sequence[Pod]) -> Floats:
        return -size


AGE = Order("age")
BUILT_IN: dict[str, Order] = {
    "age": AGE,
    "fcfs": Order("fcfs", overtaking=NO_ONE),
    "easy": Order("easy", overtaking=EASY),
    "smallest": _Smallest("smallest"),
    "largest": _Largest("largest"),
    "shortest": Order("shortest", scores.SHORTEST),
    "area": Order("area", scores.AREA),
    "wfp3": Order("wfp3", scores.WFP3),
    "unicef": Order("unicef", scores.UNICEF),
    "f1": Order("f1", scores.F1),
    "fair": Order("fair", scores.FAIR),
    "las": Order("las", scores.LAS),
}
"""The orders of names."""
