"""Which pods the policy scores, and when it is too late for it: everything else gets neutral scores."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from steersman.cluster.model import Pod
from steersman.service.config import Canary, Config

SHADOW, CANARY, DEADLINE, OVERLOAD, STALE, POLICY = "shadow", "canary", "deadline", "overload", "stale", "policy"
UNUSUAL = "unusual"
"""Why scores are neutral: nothing is to be changed; not this pod; too slow; too many requests; the state of the cluster
is old; the policy failed; the pod is large, or like none of the cluster, and too many such pods were asked about."""
REASONS = (SHADOW, CANARY, DEADLINE, OVERLOAD, STALE, POLICY, UNUSUAL)


def in_canary(canary: Canary, pod: Pod) -> bool:
    """Whether a pod is one of those that the policy scores."""
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
    """When an answer is of no use any more.

    Attributes:
        seconds: from the beginning.
        clock: of seconds.
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return self.clock() - self.began > self.seconds


def refusal(deadline: Deadline, *, overloaded: bool) -> str:
    """Why a question is answered neutrally whatever it says, so that nothing of it need be decoded; "" if it is not."""
    if overloaded:
        return OVERLOAD
    return DEADLINE if deadline.passed else ""


def excuse(config: Config, pod: Pod, state_age: float | None) -> str:
    """Why a pod gets neutral scores before the policy was asked; "" if it is to be asked.

    Args:
        config: of the service.
        pod: which.
        state_age: seconds since what is known of the cluster was right; None: the request brought the cluster.
    """
    if not in_canary(config.canary, pod):
        return CANARY
    if state_age is not None and state_age > config.stale_seconds:
        return STALE
    return ""
