"""A pod in the scheduling queue."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from steersman.kubernetes.cache.cached_pod import CachedPod

Group = tuple[int, int, int, str]
"""Class, labels and priority of pods, and the key of one with claims, which are its own, or without numbers.

What fits one of them fits all, and higher priorities are tried first.
"""
NO_GROUP: Group = (-2, -2, 0, "")  # group of pods that no cluster change will help
QueueState = Literal["", "active", "backoff", "unschedulable", "tried"]


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod in the queue."""

    pod: CachedPod  # pod of the cache
    since: float  # when it began to wait, seconds of the clock
    clock: Callable[[], float] = time.monotonic  # clock of the queue
    attempts: int = 0  # failed attempts so far
    backoff_until: float = 0.0  # end of its backoff
    unschedulable_since: float = 0.0  # when it was last found unschedulable
    message: str = ""  # why it was unschedulable at the last attempt, as in its event
    reported_at: float = 0.0  # when the message was last computed, seconds of the clock
    hopeful: bool = True  # whether a cluster change may help it
    # `group`, `follows`: group that it is woken with, and `CachedPod.follows`, when it was last found unschedulable.
    group: Group = NO_GROUP
    follows: bool = False
    place: QueueState = ""  # its queue; "tried" from `pop` on
    number: int = 0  # number of its last move
    order_group: int = -1  # group of pods that are alike for the order, -1: none
    order_owner: tuple[str, str] | None = None  # namespace and owner whose first pod that ends changes that group
    # When it was to start by the earliest of its reservations, on the clock; inf: it has had none
    promised: float = math.inf
    reserved_node: str = ""  # node of its last reservation, "": it has had none

    def waited(self) -> float:
        """Seconds since it began to wait."""
        return max(self.clock() - self.since, 0.0)
