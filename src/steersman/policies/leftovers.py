"""Leftover tables of a workload profile: expected losses of GPU by free milli of a device, computed once.

A device with 190 milli left is useless if the smallest typical pod requests 220. The table holds the loss for every
amount of free milli; fixed sequences of typical pods estimate what a whole node could still take. A policy file can
embed the tables of one profile. They do not depend on the nodes. The core reads them in another layout, by free milli
of a device and by GPU model, which is derived from them and the profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI
from steersman.policies.planning import planned_losses
from steersman.workloads.profile import ProfileArrays, TypicalPod

SEQUENCES = 6
SEQUENCE_LENGTH = 24
SEED = 7  # of the sequences, so that equal profiles have equal tables

PLANNED, LEAST_WASTE, UNUSABLE, SQUARE = range(4)  # columns of `LeftoverTables.by_left`

STEP_CPU, STEP_DEVICES, STEP_MILLI = range(3)  # columns of `LeftoverTables.steps`

SMALLEST, LEAST_CPU = range(2)  # columns of `LeftoverTables.least`

CPU_PER_GPU, CPU_PER_MEMORY, UNIT = range(3)  # columns of `LeftoverTables.ratios`

CPU_UNIT = 12_000.0  # unit of CPU, in milli-CPU, if no typical pod requests a GPU

NEVER = 1 << 60  # CPU request of a pod on a GPU model that it does not accept: more than any node has

Array = npt.NDArray[np.float64]


class LeftoverArrays(NamedTuple):
    """Leftover tables of a profile, with S sequences of L pods."""

    planned: Array  # [1001] expected final loss in GPUs by free milli of a device, see `policies.planning`
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


class LeftoverTables(NamedTuple):
    """Leftover tables as the core reads them: all values of an amount of free milli are in one row.

    M GPU models, S sequences of L pods.
    """

    # [1001, 4] by free milli of a device, in GPUs: PLANNED, the expected final loss; LEAST_WASTE, the rest beside the
    # largest typical pod that fits; UNUSABLE, the free GPU if no typical pod fits; SQUARE, the free GPU squared
    by_left: Array
    # [M + 1, S, L, 3] milli-CPU, devices and milli per device of each pod of the sequences, by model. The second half
    # of the sequences consists of GPU pods.
    steps: npt.NDArray[np.int64]
    ratios: Array  # [3] see `LeftoverArrays`; UNIT, the unit of CPU: milli-CPU per requested whole GPU of the profile
    least: npt.NDArray[np.int64]  # [2] the smallest requests of typical pods: milli of a device, milli-CPU


def leftover_tables(leftovers: LeftoverArrays, profile: ProfileArrays) -> LeftoverTables:
    """Return the tables as the core reads them."""
    left = np.arange(GPU_MILLI + 1)
    # side="right": a size equal to what is left fits. Index 0 stands for no size that fits.
    largest = np.concatenate([[0], profile.milli])[np.searchsorted(profile.milli, left, side="right")]
    unusable = np.where(left < leftovers.smallest[0], left, 0)
    shares = (leftovers.planned, (left - largest) / GPU_MILLI, unusable / GPU_MILLI, (left / GPU_MILLI) ** 2)
    return LeftoverTables(
        by_left=np.column_stack(shares),
        steps=_steps(leftovers, profile),
        # `or`: without GPU demand the ratio is 0, and nothing may be divided by it.
        ratios=np.append(leftovers.ratios, GPU_MILLI * leftovers.ratios[CPU_PER_GPU] or CPU_UNIT),
        least=np.array([leftovers.smallest[0], profile.cpu.min(initial=NEVER)], dtype=np.int64),
    )


def _steps(leftovers: LeftoverArrays, profile: ProfileArrays) -> npt.NDArray[np.int64]:
    sequences = leftovers.sequences
    devices = profile.gpu_count[sequences]
    # Without GPU pods `milli` is empty: the appended 0 is what the index of CPU pods points to.
    milli = np.where(devices > 0, np.append(profile.milli, 0)[profile.value[sequences]], 0)
    is_accepted = np.moveaxis(profile.accepts[sequences], -1, 0) | (devices == 0)
    cpu = np.where(is_accepted, profile.cpu[sequences], NEVER)
    return np.stack([cpu, np.broadcast_to(devices, cpu.shape), np.broadcast_to(milli, cpu.shape)], axis=-1)
