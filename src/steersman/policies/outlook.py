"""The outlook: what the mix of typical pods says about leftovers of GPUs, worked out once and then looked up.

A device with 190 milli left is worth nothing if the smallest typical pod wants 220. Tables say so for every amount;
fixed sequences of typical pods show what a whole node would still take. A policy file can carry the outlook of one mix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import WHOLE
from steersman.policies.planning import filling_losses, planned_losses
from steersman.workloads.mix import MixArrays, TypicalPod

GROUPS = ("cpu", "small_share", "large_share", "one_gpu", "several_gpus")
"""Groups of typical pods: no GPU, below and from half a device, one device, several."""

TABLES = ("knapsack", "filling_by_shares", "filling", "closed", "planned")
SEQUENCES = 6
SEQUENCE_LENGTH = 24
SEED = 7  # of the sequences, so that the same mix gives the same outlook

Array = npt.NDArray[np.float64]


class OutlookArrays(NamedTuple):
    """What kernels read; T typical pods, V distinct milli, M GPU types, S sequences of L pods.

    Attributes:
        tables: [5, 1001] GPUs that will be lost of a device with so many milli left, see `TABLES`.
        counts: [V, 1001] how many pods of `mix.milli[v]` that device takes.
        group: [T] the group of each typical pod.
        pods_per_cpu: [T] pods for each free milli-CPU.
        sequences: [S, L] typical pods in the order in which they come; the second half of the sequences is GPU pods.
        model: [M + 1, 2] share of the GPU demand that insists on the type's model (divided among those it accepts),
            and that accepts the type.
        ratios: [2] milli-CPU that the mix asks for with each GPU milli, and with each byte of memory (0: no memory).
        smallest: [1] the smallest milli of a device that a typical pod asks for.
    """

    tables: Array
    counts: npt.NDArray[np.int64]
    group: npt.NDArray[np.int64]
    pods_per_cpu: Array
    sequences: npt.NDArray[np.int64]
    model: Array
    ratios: Array
    smallest: npt.NDArray[np.int64]


def outlook_arrays(pods: Sequence[TypicalPod], mix: MixArrays) -> OutlookArrays:
    """The outlook of the typical `pods`, whose arrays are `mix`. Without GPU pods everything in it is neutral."""
    total = _demand(pods).sum()
    cpu = np.array([pod.share * pod.cpu_milli for pod in pods], dtype=np.float64).sum()
    memory = sum(pod.share * pod.memory_bytes for pod in pods)
    milli = sorted({pod.gpu_milli for pod in pods if pod.gpu_count})
    return OutlookArrays(
        tables=_tables(pods),
        counts=np.array([np.arange(WHOLE + 1) // m for m in milli], dtype=np.int64).reshape(len(milli), WHOLE + 1),
        group=np.array([_group(pod) for pod in pods], dtype=np.int64),
        pods_per_cpu=np.array([1.0 / pod.cpu_milli for pod in pods]),
        sequences=_sequences(pods),
        model=demand_by_type(pods, mix),
        ratios=np.array([cpu / total if total else 0.0, cpu / memory if memory else 0.0]),
        smallest=np.array([milli[0] if milli else 0], dtype=np.int64),
    )


def for_models(outlook: OutlookArrays, pods: Sequence[TypicalPod], mix: MixArrays) -> OutlookArrays:
    """Number the GPU models of the outlook of `pods` as `mix` does; nothing else of it depends on the nodes."""
    return outlook._replace(model=demand_by_type(pods, mix))


def _demand(pods: Sequence[TypicalPod]) -> Array:
    """[T] the GPU milli that each typical pod asks for, times its share."""
    return np.array([pod.share * pod.gpu_milli * pod.gpu_count for pod in pods], dtype=np.float64)


def _group(pod: TypicalPod) -> int:
    if pod.gpu_count == 0:
        return 0
    if pod.gpu_count > 1:
        return 4
    if pod.gpu_milli == WHOLE:
        return 3
    return 1 if 2 * pod.gpu_milli < WHOLE else 2


def _tables(pods: Sequence[TypicalPod]) -> Array:
    """[5, 1001] by `TABLES`, in GPUs."""
    sizes = sorted({pod.gpu_milli for pod in pods if pod.gpu_count == 1})
    shares = [sum(pod.share for pod in pods if pod.gpu_count == 1 and pod.gpu_milli == size) for size in sizes]
    parts = sum(size < WHOLE for size in sizes)
    return np.stack(
        [
            _knapsack(sizes[:parts]),
            filling_losses(sizes[:parts], shares[:parts]),
            filling_losses(sizes, shares),
            _closed(sizes, shares),
            planned_losses(tuple(pods)),
        ]
    )


def _knapsack(sizes: Sequence[int]) -> Array:
    """[1001] what the best combination of `sizes` must leave (unbounded knapsack)."""
    full = np.zeros(WHOLE + 1, dtype=np.int64)
    for left in range(1, WHOLE + 1):
        full[left] = max((size + full[left - size] for size in sizes if size <= left), default=0)
    return (np.arange(WHOLE + 1) - full) / WHOLE


def _closed(sizes: Sequence[int], shares: Sequence[float]) -> Array:
    """[1001] what is left, times the share of pods that it is too small for."""
    left = np.arange(WHOLE + 1)
    fitting = np.array([[size <= amount for size in sizes] for amount in left]).reshape(WHOLE + 1, len(sizes))
    total = sum(shares)
    return left / WHOLE * (1.0 - (fitting @ np.array(shares)) / total if total else np.ones(WHOLE + 1))


def _sequences(pods: Sequence[TypicalPod]) -> npt.NDArray[np.int64]:
    """[S, L] drawn by share: half of them from all typical pods, half from those with GPUs."""
    shares = np.array([pod.share for pod in pods])
    gpu = np.where([pod.gpu_count > 0 for pod in pods], shares, 0.0)
    if not gpu.any():
        return np.zeros((SEQUENCES, 0), dtype=np.int64)
    rng = np.random.default_rng(SEED)
    kinds = [shares / shares.sum()] * (SEQUENCES // 2) + [gpu / gpu.sum()] * (SEQUENCES // 2)
    return np.array([rng.choice(len(pods), SEQUENCE_LENGTH, p=p) for p in kinds], dtype=np.int64)


def demand_by_type(pods: Sequence[TypicalPod], mix: MixArrays) -> Array:
    """[M + 1, 2] `OutlookArrays.model` of the typical `pods`, whose arrays are `mix`."""
    demand = _demand(pods)
    demand /= demand.sum() or 1.0
    model = np.zeros((mix.accepts.shape[1], 2))
    for pod, accepts, share in zip(pods, mix.accepts, demand, strict=True):
        model[accepts, 1] += share
        if pod.gpu_models:
            model[accepts, 0] += share / len(pod.gpu_models)
    return model
