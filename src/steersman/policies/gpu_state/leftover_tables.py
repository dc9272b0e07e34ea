"""Leftover tables in the layout of kernels: by free milli of a device, group of typical pods, and GPU model.

They are derived from `policies.gpu_state.leftovers` and the workload profile. All values of an amount of free milli are
in one row, which takes one or two of the processor's cache lines.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI
from steersman.policies.gpu_state.leftovers import GROUPS, TABLES, LeftoverArrays
from steersman.workloads.profile import ProfileArrays

LEAST_WASTE, UNUSABLE, SQUARE = range(len(TABLES), len(TABLES) + 3)
"""Columns of `LeftoverTables.by_left` after `TABLES`."""

STEP_CPU, STEP_DEVICES, STEP_MILLI = range(3)
"""Columns of `LeftoverTables.steps`."""

SMALLEST, LEAST_CPU = range(2)
"""Columns of `LeftoverTables.least`."""

CPU_PER_GPU, CPU_PER_MEMORY, UNIT = range(3)
"""Columns of `LeftoverTables.ratios`."""

CPU_UNIT = 12_000.0
"""Unit of CPU, in milli-CPU, if no typical pod requests a GPU."""

NEVER = 1 << 60
"""CPU request of a pod on a GPU model that it does not accept: more than any node has."""

Array = npt.NDArray[np.float64]


class LeftoverTables(NamedTuple):
    """Leftover tables of T typical pods, V distinct milli, M GPU models and S sequences of L pods.

    Attributes:
        by_left: [1001, 8] by free milli of a device, in GPUs: expected losses by `leftovers.TABLES`; LEAST_WASTE, the
            rest beside the largest typical pod that fits; UNUSABLE, the free GPU if no typical pod fits; SQUARE, the
            free GPU squared.
        counts: [1001, V] number of pods of `profile.milli[v]` that fit on the device.
        order: [T] typical pods sorted by group.
        start: [6] first index of each group in `order`, and T.
        pods_per_cpu: [T] pods per free milli-CPU.
        steps: [M + 1, S, L, 3] milli-CPU, devices and milli per device of each pod of the sequences, by model. The
            second half of the sequences consists of GPU pods.
        model: [M + 1, 2] see `LeftoverArrays`.
        ratios: [3] see `LeftoverArrays`; UNIT, the unit of CPU: milli-CPU per requested whole GPU of the profile.
        least: [2] the smallest requests of typical pods: milli of a device, milli-CPU.
    """

    by_left: Array
    counts: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    pods_per_cpu: Array
    steps: npt.NDArray[np.int64]
    model: Array
    ratios: Array
    least: npt.NDArray[np.int64]


def leftover_tables(leftovers: LeftoverArrays, profile: ProfileArrays) -> LeftoverTables:
    """Return the tables in the layout of kernels."""
    return LeftoverTables(
        by_left=_by_left(leftovers, profile),
        counts=np.ascontiguousarray(leftovers.counts.T),
        order=np.argsort(leftovers.group, kind="stable"),
        start=np.searchsorted(np.sort(leftovers.group), np.arange(len(GROUPS) + 1)),
        pods_per_cpu=leftovers.pods_per_cpu,
        steps=_steps(leftovers, profile),
        model=leftovers.model,
        # `or`: without GPU demand the ratio is 0, and nothing may be divided by it.
        ratios=np.append(leftovers.ratios, GPU_MILLI * leftovers.ratios[CPU_PER_GPU] or CPU_UNIT),
        least=np.array([leftovers.smallest[0], profile.cpu.min(initial=NEVER)], dtype=np.int64),
    )


def _by_left(leftovers: LeftoverArrays, profile: ProfileArrays) -> Array:
    left = np.arange(GPU_MILLI + 1)
    # side="right": a size equal to what is left fits. Index 0 stands for no size that fits.
    largest = np.concatenate([[0], profile.milli])[np.searchsorted(profile.milli, left, side="right")]
    unusable = np.where(left < leftovers.smallest[0], left, 0)
    return np.column_stack(
        [*leftovers.tables, (left - largest) / GPU_MILLI, unusable / GPU_MILLI, (left / GPU_MILLI) ** 2]
    )


def _steps(leftovers: LeftoverArrays, profile: ProfileArrays) -> npt.NDArray[np.int64]:
    sequences = leftovers.sequences
    devices = profile.gpu_count[sequences]
    # Without GPU pods `milli` is empty: the appended 0 is what the index of CPU pods points to.
    milli = np.where(devices > 0, np.append(profile.milli, 0)[profile.value[sequences]], 0)
    is_accepted = np.moveaxis(profile.accepts[sequences], -1, 0) | (devices == 0)
    cpu = np.where(is_accepted, profile.cpu[sequences], NEVER)
    steps = np.stack([cpu, np.broadcast_to(devices, cpu.shape), np.broadcast_to(milli, cpu.shape)], axis=-1)
    return np.ascontiguousarray(steps)  # kernels are compiled for the C layout, which an empty array may not have
