"""Decide which pods the policy scores, and when an answer must be neutral."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from steersman.apps.service.config import Canary, ServiceConfig
from steersman.cluster.model import Pod

# Why scores are neutral.
SHADOW = "shadow"
"""The service is in shadow mode."""
CANARY = "canary"
"""The pod is not in the canary."""
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


def in_canary(canary: Canary, pod: Pod) -> bool:
    """Return whether the policy scores a pod."""
    if canary.namespaces and pod.namespace not in canary.namespaces:
        return False
    if any(pod.labels.get(key) != value for key, value in canary.labels.items()):
        return False
    if canary.share >= 1:
        return True
    # Not `hash`, which differs between processes: replicas of the service must treat a pod alike.
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


def request_neutral_reason(deadline: Deadline, *, overloaded: bool) -> str:
    """Return why a request gets neutral scores without being decoded, whatever its pod; "" if it is decoded."""
    if overloaded:
        return OVERLOAD
    return DEADLINE if deadline.passed else ""


def pod_neutral_reason(config: ServiceConfig, pod: Pod, state_age: float | None) -> str:
    """Return why a pod gets neutral scores without asking the policy; "" if the policy is asked.

    Args:
        config: configuration of the service.
        pod: the pod.
        state_age: seconds since the API server was last heard, 0 while all is watched; None: the request brought the
            cluster.
    """
    if not in_canary(config.canary, pod):
        return CANARY
    if state_age is not None and state_age > config.stale_seconds:
        return STALE
    return ""
