"""When the order `las` has pods evicted that can resume (`core/src/evictions.rs` decides).

Two queues by attained service: what has attained little goes first, and may have others evicted that have attained
much. Source: Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning" (NSDI 2019), discretized
two-dimensional attained service.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Pod

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

LEAST_PER_HOUR = 10.0


@dataclass(frozen=True, slots=True)
class EvictionRules:
    """Rules of evictions.

    Attributes:
        threshold: service from which on a job may be evicted, in seconds of one GPU (of one CPU where no pod requests a
            GPU): its seconds times its size to the power of `exponent`.
        exponent: 1: GPU time, 0: time. In between, as jobs of many GPUs otherwise pay for all others.
        least_run: seconds that a job runs between two evictions, at least; also as long as it had waited.
        per_hour: jobs that may be evicted in an hour for each GPU of the cluster; at least `LEAST_PER_HOUR` in all.
        worth: what evictions for a job may cost in GPU time, as a share of its service up to the threshold.
        most_wait: seconds of waiting since its eviction after which a job is in the first queue again.
    """

    threshold: float = 3600.0
    exponent: float = 0.5
    least_run: float = 1800.0
    per_hour: float = 1.0
    worth: float = 0.5
    most_wait: float = 7200.0


RULES = EvictionRules()


def described_evictions(
    pods: Sequence[Pod], members: Ints, capacity: float, rules: EvictionRules
) -> dict[str, npt.NDArray[np.generic]]:
    """Return what the core reads of arrivals that may be evicted: `evictions.*`; nothing where none may.

    Args:
        pods: of the arrivals, A of them.
        members: [A] how many start together from each on, see `Schedule`.
        capacity: GPUs of the cluster, or its CPUs.
        rules: of the order.
    """
    interval = np.array([np.nan if pod.resumable is None else pod.resumable for pod in pods], dtype=np.float64)
    if np.isnan(interval).all():
        return {}
    restart = np.array([pod.restart_seconds for pod in pods], dtype=np.float64)
    leaders = np.flatnonzero(members)
    if len(leaders) < len(pods):
        # A gang can resume if all of its pods can, from the checkpoint of the slowest.
        for values in (interval, restart):
            values[:] = np.repeat(np.maximum.reduceat(values, leaders), members[leaders])
    threshold, exponent, least_run, per_hour, *others = astuple(rules)
    settings = [threshold, exponent, least_run, max(np.floor(per_hour * capacity), LEAST_PER_HOUR), *others]
    return {
        "evictions.settings": np.array(settings, dtype=np.float64),
        "evictions.interval": interval,
        "evictions.restart": restart,
    }
