"""Decide when an answer must be neutral."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

# Why scores are neutral.
SHADOW = "shadow"
"""The service is in shadow mode."""
DEADLINE = "deadline"
"""The deadline passed before there were scores."""
OVERLOAD = "overload"
"""There are too many requests."""
STALE = "stale"
"""The state of the watched cluster is too old."""
POLICY = "policy"
"""The policy failed."""
UNUSUAL = "unusual"
"""The pod is large or unlike all pods of the cluster, and too many such pods were sent lately."""


@dataclass(slots=True)
class Deadline:
    """Time after which an answer is useless.

    Attributes:
        seconds: time limit, counted from construction.
        clock: monotonic clock, seconds.
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        """Check the values."""
        self.began = self.clock()

    @property
    def passed(self) -> bool:
        """Return whether the deadline has passed."""
        return self.clock() - self.began > self.seconds


def request_neutral_reason(deadline: Deadline, *, overloaded: bool) -> str:
    """Return why a request gets neutral scores without being decoded, whatever its pod; "" if it is decoded."""
    if overloaded:
        return OVERLOAD
    return DEADLINE if deadline.passed else ""
