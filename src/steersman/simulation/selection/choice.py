"""The chosen member of a portfolio, with the evidence for it in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.core.statistics import mean, mean_interval
from steersman.policies.base import Policy
from steersman.simulation.result import Protocol
from steersman.simulation.selection.halving import Selection


@dataclass(frozen=True, slots=True)
class MemberChoice:
    """The member of a portfolio that decides.

    Attributes:
        policy: the member under its own name.
        evidence: the comparison that chose it, in a sentence.
    """

    policy: Policy
    evidence: str


def choice_of(members: Sequence[Policy], selection: Selection, protocol: Protocol) -> MemberChoice:
    """Return the chosen member of a portfolio."""
    leader, default = members[selection.leader].name, members[selection.default].name
    if selection.excess[selection.leader] < selection.excess[selection.default]:
        by = selection.excess[selection.default]
        text = f"{leader} decides: under {default} a kind of pod loses {by:.1f} % more than the limit"
    elif leader == default:
        text = f"{default} decides: no member did better in {draws_text(selection.savings)}"
    elif selection.best == selection.leader:
        text = f"{leader} decides: {gain_text(leader, default, selection.savings, protocol)}"
    else:
        gain = gain_text(leader, default, selection.savings, protocol)
        text = f"{default} decides: no member is clearly better; {gain}"
    return MemberChoice(members[selection.best], text)


def gain_text(one: str, other: str, savings: npt.NDArray[np.float64], protocol: Protocol) -> str:
    """Return how much less one policy costs than another, from the savings by draw.

    Such as "general allocates 1.22 points more than fgd (95 % interval 0.90 to 1.54) in 8 paired draws".
    """
    by, (low, high) = mean(savings), mean_interval(savings)
    if protocol == "timed":
        # Savings are differences of logarithms: the ratio of costs is exp(-saving), and the ends change places.
        by, low, high = math.exp(-by), math.exp(-high), math.exp(-low)
        gain = f"waits and slowdowns under {one} are {by:.2f} times those under {other}"
    else:
        gain = f"{one} allocates {abs(by):.2f} points {'less' if by < 0 else 'more'} than {other}"
        low, high = (-high, -low) if by < 0 else (low, high)
    interval = f" (95 % interval {low:.2f} to {high:.2f})" if math.isfinite(low) else ""
    return f"{gain}{interval} in {draws_text(savings)}"


def draws_text(savings: npt.NDArray[np.float64]) -> str:
    """Return the number of draws that two candidates have in common."""
    count = int(np.isfinite(savings).sum())
    return f"{count} paired draw{'s' * (count != 1)}"
