"""Leftover tables of a workload profile: expected losses of GPU by free milli of a device, computed once.

A device with 190 milli left is useless if the smallest typical pod requests 220. Tables hold the loss for every amount
of free milli; fixed sequences of typical pods estimate what a whole node could still take. A policy file can embed the
tables of one profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI
from steersman.policies.gpu_state.planning import filling_losses, planned_losses
from steersman.workloads.profile import ProfileArrays, TypicalPod

GROUPS = ("cpu", "small_share", "large_share", "one_gpu", "several_gpus")
"""Groups of typical pods: no GPU, less than half a device, half a device or more, one device, several."""

TABLES = ("knapsack", "filling_by_shares", "filling", "closed", "planned")
"""Loss tables: best combination of shares; random shares; random shares and one-GPU pods; share of pods that are too
large; planned (`policies.gpu_state.planning`)."""
SEQUENCES = 6
SEQUENCE_LENGTH = 24
SEED = 7  # of the sequences, so that equal profiles have equal tables

Array = npt.NDArray[np.float64]


class LeftoverArrays(NamedTuple):
    """Leftover tables of T typical pods, V distinct milli, M GPU models and S sequences of L pods.

    Attributes:
        tables: [5, 1001] expected loss in GPUs by free milli of a device, see `TABLES`.
        counts: [V, 1001] number of pods of `profile.milli[v]` that fit on the device.
        group: [T] index in `GROUPS` of each typical pod.
        pods_per_cpu: [T] pods per free milli-CPU.
        sequences: [S, L] typical pods in arrival order; the second half of the sequences consists of GPU pods.
        model: [M + 1, 2] share of the GPU demand that requires the model (divided among the models that a pod accepts),
            and share that accepts it.
        ratios: [2] requested milli-CPU per GPU milli, and per byte of memory (0 without memory requests).
        smallest: [1] smallest milli per device of a typical pod.
    """

    tables: Array
    counts: npt.NDArray[np.int64]
    group: npt.NDArray[np.int64]
    pods_per_cpu: Array
    sequences: npt.NDArray[np.int64]
    model: Array
    ratios: Array
    smallest: npt.NDArray[np.int64]


def leftover_arrays(pods: Sequence[TypicalPod], profile: ProfileArrays) -> LeftoverArrays:
    """Return the tables of the typical `pods`, whose arrays are `profile`; neutral values without GPU pods."""
    total = _demand(pods).sum()
    cpu = np.array([pod.share * pod.cpu_milli for pod in pods], dtype=np.float64).sum()
    memory = sum(pod.share * pod.memory_bytes for pod in pods)
    milli = sorted({pod.gpu_milli for pod in pods if pod.gpu_count})
    return LeftoverArrays(
        tables=_tables(pods),
        counts=np.array([np.arange(GPU_MILLI + 1) // m for m in milli], dtype=np.int64).reshape(
            len(milli), GPU_MILLI + 1
        ),
        group=np.array([_group(pod) for pod in pods], dtype=np.int64),
        pods_per_cpu=np.array([1.0 / pod.cpu_milli for pod in pods]),
        sequences=_sequences(pods),
        model=demand_by_type(pods, profile),
        ratios=np.array([cpu / total if total else 0.0, cpu / memory if memory else 0.0]),
        smallest=np.array([milli[0] if milli else 0], dtype=np.int64),
    )


def renumber_models(leftovers: LeftoverArrays, pods: Sequence[TypicalPod], profile: ProfileArrays) -> LeftoverArrays:
    """Return the tables of `pods` with the model ids of `profile`; nothing else in them depends on the nodes."""
    return leftovers._replace(model=demand_by_type(pods, profile))


def _demand(pods: Sequence[TypicalPod]) -> Array:
    """Return the requested GPU milli of each typical pod times its share, [T]."""
    return np.array([pod.share * pod.gpu_milli * pod.gpu_count for pod in pods], dtype=np.float64)


def _group(pod: TypicalPod) -> int:
    if pod.gpu_count == 0:
        return 0
    if pod.gpu_count > 1:
        return 4
    if pod.gpu_milli == GPU_MILLI:
        return 3
    return 1 if 2 * pod.gpu_milli < GPU_MILLI else 2


def _tables(pods: Sequence[TypicalPod]) -> Array:
    """Return the expected losses, [5, 1001] GPUs, see `TABLES`."""
    sizes = sorted({pod.gpu_milli for pod in pods if pod.gpu_count == 1})
    shares = [sum(pod.share for pod in pods if pod.gpu_count == 1 and pod.gpu_milli == size) for size in sizes]
    below_one = sum(size < GPU_MILLI for size in sizes)
    return np.stack(
        [
            _knapsack(sizes[:below_one]),
            filling_losses(sizes[:below_one], shares[:below_one]),
            filling_losses(sizes, shares),
            _blocked_share(sizes, shares),
            planned_losses(tuple(pods)),
        ]
    )


def _knapsack(sizes: Sequence[int]) -> Array:
    """Return the GPU that the best combination of `sizes` leaves, [1001] (unbounded knapsack)."""
    used = np.zeros(GPU_MILLI + 1, dtype=np.int64)
    for left in range(1, GPU_MILLI + 1):
        used[left] = max((size + used[left - size] for size in sizes if size <= left), default=0)
    return (np.arange(GPU_MILLI + 1) - used) / GPU_MILLI


def _blocked_share(sizes: Sequence[int], shares: Sequence[float]) -> Array:
    """Return the free GPU times the share of pods that are too large for it, [1001]."""
    left = np.arange(GPU_MILLI + 1)
    fitting = np.array([[size <= amount for size in sizes] for amount in left]).reshape(GPU_MILLI + 1, len(sizes))
    total = sum(shares)
    # Without GPU pods nothing fits, and the share is 1.
    return left / GPU_MILLI * (1.0 - (fitting @ np.array(shares)) / total if total else np.ones(GPU_MILLI + 1))


def _sequences(pods: Sequence[TypicalPod]) -> npt.NDArray[np.int64]:
    """Draw sequences, [S, L], by share: half of them from all typical pods, half from those with GPUs."""
    shares = np.array([pod.share for pod in pods])
    gpu = np.where([pod.gpu_count > 0 for pod in pods], shares, 0.0)
    if not gpu.any():
        return np.zeros((SEQUENCES, 0), dtype=np.int64)
    rng = np.random.default_rng(SEED)
    distributions = [shares / shares.sum()] * (SEQUENCES // 2) + [gpu / gpu.sum()] * (SEQUENCES // 2)
    return np.array([rng.choice(len(pods), SEQUENCE_LENGTH, p=p) for p in distributions], dtype=np.int64)


def demand_by_type(pods: Sequence[TypicalPod], profile: ProfileArrays) -> Array:
    """Return `LeftoverArrays.model`, [M + 1, 2], of the typical `pods`, whose arrays are `profile`."""
    demand = _demand(pods)
    demand /= demand.sum() or 1.0
    model = np.zeros((profile.accepts.shape[1], 2))
    for pod, accepts, share in zip(pods, profile.accepts, demand, strict=True):
        model[accepts, 1] += share
        if pod.gpu_models:
            model[accepts, 0] += share / len(pod.gpu_models)
    return model
