"""Decide which pods the policy scores, and when an answer must be neutral."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from steersman.apps.service.config import Canary, ServiceConfig
from steersman.cluster.model import Pod

SHADOW, CANARY, DEADLINE, OVERLOAD, STALE, POLICY = "shadow", "canary", "deadline", "overload", "stale", "policy"
UNUSUAL = "unusual"
"""Reasons of neutral scores: shadow mode; not in the canary; deadline passed; too many requests; the cluster's state is
too
old; the policy failed; the pod is large or unlike all pods of the cluster, and too many such pods were sent lately."""
REASONS = (SHADOW, CANARY, DEADLINE, OVERLOAD, STALE, POLICY, UNUSUAL)


def in_canary(canary: Canary, pod: Pod) -> bool:
    """Return whether the policy scores a pod."""
    if canary.namespaces and pod.namespace not in canary.namespaces:
        return False
    if any(pod.labels.get(key) != value for key, value in canary.labels.items()):
        return False
    if canary.share >= 1:
        return True
    digest = hashlib.blake2b(f"{pod.namespace}/{pod.name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) < canary.share * 2**64


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


def refusal(deadline: Deadline, *, overloaded: bool) -> str:
    """Return why any request is answered neutrally now, without being decoded; "" if it is not."""
    if overloaded:
        return OVERLOAD
    return DEADLINE if deadline.passed else ""


def skip_reason(config: ServiceConfig, pod: Pod, state_age: float | None) -> str:
    """Return why a pod gets neutral scores without asking the policy; "" if the policy is asked.

    Args:
        config: configuration of the service.
        pod: the pod.
        state_age: seconds since the watched state was last known to be current; None: the request brought the cluster.
    """
    if not in_canary(config.canary, pod):
        return CANARY
    if state_age is not None and state_age > config.stale_seconds:
        return STALE
    return ""
