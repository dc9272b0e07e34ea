"""Leftover tables of a workload profile: expected losses of GPU by free milli of a device, computed once.

A device with 190 milli left is useless if the smallest typical pod requests 220. The table holds the loss for every
amount of free milli; fixed sequences of typical pods estimate what a whole node could still take. A policy file can
embed the tables of one profile. They do not depend on the nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.policies.gpu_state.planning import planned_losses
from steersman.workloads.profile import TypicalPod

SEQUENCES = 6
SEQUENCE_LENGTH = 24
SEED = 7  # of the sequences, so that equal profiles have equal tables

Array = npt.NDArray[np.float64]


class LeftoverArrays(NamedTuple):
    """Leftover tables of a profile, with S sequences of L pods."""

    planned: Array  # [1001] expected final loss in GPUs by free milli of a device, see `policies.gpu_state.planning`
    # [S, L] typical pods in arrival order; the second half of the sequences consists of GPU pods
    sequences: npt.NDArray[np.int64]
    ratios: Array  # [2] requested milli-CPU per GPU milli, and per byte of memory (0 without memory requests)
    smallest: npt.NDArray[np.int64]  # [1] smallest milli per device of a typical pod


def leftover_arrays(pods: Sequence[TypicalPod]) -> LeftoverArrays:
    """Return the tables of the typical `pods`; neutral values without GPU pods."""
    total = np.array([pod.share * pod.gpu_milli * pod.gpu_count for pod in pods], dtype=np.float64).sum()
    cpu = np.array([pod.share * pod.cpu_milli for pod in pods], dtype=np.float64).sum()
    memory = sum(pod.share * pod.memory_bytes for pod in pods)
    return LeftoverArrays(
        planned=planned_losses(tuple(pods)),
        sequences=_sequences(pods),
        ratios=np.array([cpu / total if total else 0.0, cpu / memory if memory else 0.0]),
        smallest=np.array([min((pod.gpu_milli for pod in pods if pod.gpu_count), default=0)], dtype=np.int64),
    )


def _sequences(pods: Sequence[TypicalPod]) -> npt.NDArray[np.int64]:
    """Draw sequences, [S, L], by share: half of them from all typical pods, half from those with GPUs."""
    shares = np.array([pod.share for pod in pods])
    gpu = np.where([pod.gpu_count > 0 for pod in pods], shares, 0.0)
    if not gpu.any():
        return np.zeros((SEQUENCES, 0), dtype=np.int64)
    rng = np.random.default_rng(SEED)
    distributions = [shares / shares.sum()] * (SEQUENCES // 2) + [gpu / gpu.sum()] * (SEQUENCES // 2)
    return np.array([rng.choice(len(pods), SEQUENCE_LENGTH, p=p) for p in distributions], dtype=np.int64)
