"""The advice of a comparison: the cheapest way to run a cluster that no dearer one clearly beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import TextWrapper

import numpy as np
import numpy.typing as npt

from steersman.core.statistics import Interval, mean, mean_interval
from steersman.evaluation.report.style import interval_text, signed

LEAST_GAIN = 0.5
"""Points by which a dearer way must be better."""


@dataclass(frozen=True, slots=True)
class Gain:
    """What a way gains on another one in a setting, and the 95 % interval of that mean; NaN: there is none."""

    mean: float
    interval: Interval

    @property
    def counts(self) -> bool:
        """Return whether it is more than `LEAST_GAIN`, by an interval that excludes 0."""
        return self.mean > LEAST_GAIN and self.interval.low > 0

    @property
    def is_loss(self) -> bool:
        """Return whether the other way has a gain that counts."""
        return self.mean < -LEAST_GAIN and self.interval.high < 0

    def text(self, unit: str) -> str:
        """Return it with its sign, a unit and the interval: "+2.2 points (1.0 to 3.4)"."""
        interval = interval_text(self.interval, 1)
        return f"{signed(self.mean, 1)} {unit}" + (f" ({interval})" if interval else "")


@dataclass(frozen=True, slots=True)
class Setting:
    """A cluster on which ways were compared.

    Attributes:
        title: which cluster, such as `now`.
        unit: of the values, such as `points of GPUs allocated`.
        values: [D] values by way, one for each draw of the arrivals, the same draws for all; more is better.
    """

    title: str
    unit: str
    values: Mapping[str, npt.NDArray[np.float64]]

    def gain(self, way: str, other: str) -> Gain:
        """Return what a way gains on another one, paired by draw."""
        differences = self.values[way] - self.values[other]
        return Gain(mean(differences), mean_interval(differences))


@dataclass(frozen=True, slots=True)
class Advice:
    """An advice in words.

    Attributes:
        way: what is advised, by its name.
        headline: what to do, in a sentence.
        lines: gain, who pays, how to install, how to go back, and what is unsure: a name and a text each.
    """

    way: str
    headline: str
    lines: tuple[tuple[str, str], ...]

    @property
    def named_lines(self) -> list[tuple[str, str]]:
        """Return the lines; of several with the same name only the first one has it."""
        before = ["", *(name for name, _ in self.lines)]
        return [("" if name == last else name, text) for (name, text), last in zip(self.lines, before, strict=False)]

    def text(self, columns: int) -> str:
        """Return the headline, and the lines below it, wrapped to so many columns."""
        wrapper = TextWrapper(columns, subsequent_indent=" " * 11, break_long_words=False, break_on_hyphens=False)
        lines = [wrapper.fill(f"  {name:<8} {text}") for name, text in self.named_lines]
        return "\n".join([self.headline, *lines])


def choose_way(ways: Sequence[str], settings: Sequence[Setting]) -> str:
    """Return the way that is advised.

    A dearer way replaces the one chosen so far if it gains in a setting both on that one and on what runs today, and
    if it loses to neither in another.

    Args:
        ways: names in `Setting.values`, the cheapest first: what runs today.
        settings: the clusters on which they were compared.
    """
    chosen = ways[0]
    for way in ways[1:]:
        # Better than a way that is itself worse than today, which is not shown, is no reason to change.
        gains = [[each.gain(way, other) for other in (ways[0], chosen)] for each in settings]
        gaining = any(all(each.counts for each in pair) for pair in gains)
        if gaining and not any(each.is_loss for pair in gains for each in pair):
            chosen = way
    return chosen
