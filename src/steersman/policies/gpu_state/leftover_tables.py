"""Leftover tables in the layout of kernels: by free milli of a device, and by GPU model.

They are derived from `policies.gpu_state.leftovers` and the workload profile. All values of an amount of free milli are
in one row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI
from steersman.policies.gpu_state.leftovers import LeftoverArrays
from steersman.workloads.profile import ProfileArrays

PLANNED, LEAST_WASTE, UNUSABLE, SQUARE = range(4)  # columns of `LeftoverTables.by_left`

STEP_CPU, STEP_DEVICES, STEP_MILLI = range(3)  # columns of `LeftoverTables.steps`

SMALLEST, LEAST_CPU = range(2)  # columns of `LeftoverTables.least`

CPU_PER_GPU, CPU_PER_MEMORY, UNIT = range(3)  # columns of `LeftoverTables.ratios`

CPU_UNIT = 12_000.0  # unit of CPU, in milli-CPU, if no typical pod requests a GPU

NEVER = 1 << 60  # CPU request of a pod on a GPU model that it does not accept: more than any node has

Array = npt.NDArray[np.float64]


class LeftoverTables(NamedTuple):
    """Leftover tables of a profile, with M GPU models and S sequences of L pods."""

    # [1001, 4] by free milli of a device, in GPUs: PLANNED, the expected final loss; LEAST_WASTE, the rest beside the
    # largest typical pod that fits; UNUSABLE, the free GPU if no typical pod fits; SQUARE, the free GPU squared
    by_left: Array
    # [M + 1, S, L, 3] milli-CPU, devices and milli per device of each pod of the sequences, by model. The second half
    # of the sequences consists of GPU pods.
    steps: npt.NDArray[np.int64]
    ratios: Array  # [3] see `LeftoverArrays`; UNIT, the unit of CPU: milli-CPU per requested whole GPU of the profile
    least: npt.NDArray[np.int64]  # [2] the smallest requests of typical pods: milli of a device, milli-CPU


def leftover_tables(leftovers: LeftoverArrays, profile: ProfileArrays) -> LeftoverTables:
    """Return the tables in the layout of kernels."""
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
