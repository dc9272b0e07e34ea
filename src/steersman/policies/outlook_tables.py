"""The outlook as kernels read it: laid out by what is left of a device, by group of typical pods, by GPU model.

All of it follows from `policies.outlook` and the mix. Rows of tables lie together, so that what is known of an amount
costs one or two lines of the processor's cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import WHOLE
from steersman.policies.outlook import GROUPS, TABLES, OutlookArrays
from steersman.workloads.mix import MixArrays

LEAST_WASTE, DEAD, SQUARE = range(len(TABLES), len(TABLES) + 3)
"""Columns of `OutlookTables.by_left` after `TABLES`."""

STEP_CPU, STEP_DEVICES, STEP_MILLI = range(3)
"""Columns of `OutlookTables.steps`."""

SMALLEST, LEAST_CPU = range(2)
"""Columns of `OutlookTables.least`."""

CPU_PER_GPU, CPU_PER_MEMORY, UNIT = range(3)
"""Columns of `OutlookTables.ratios`."""

CPU_UNIT = 12_000.0
"""Milli-CPU; the unit of CPU where no typical pod asks for a GPU."""

NEVER = 1 << 60
"""More CPU than there is: what a pod asks for that may not run on a model."""

Array = npt.NDArray[np.float64]


class OutlookTables(NamedTuple):
    """What kernels read; T typical pods, V distinct milli, M GPU models, S sequences of L pods.

    Attributes:
        by_left: [1001, 8] of a device with so many milli left: GPUs that will be lost by `outlook.TABLES`, what the
            largest typical pod that fits would leave, what is left if no typical pod fits, what is left squared.
        counts: [1001, V] how many pods of `mix.milli[v]` it takes.
        order: [T] typical pods by group.
        start: [6] where in `order` each group begins, and T.
        pods_per_cpu: [T] pods for each free milli-CPU.
        steps: [M + 1, S, L, 3] for each model the sequences: milli-CPU, devices and milli of each pod. The second half
            of the sequences is GPU pods.
        model: [M + 1, 2] see `OutlookArrays`.
        ratios: [3] see `OutlookArrays`, and the milli-CPU that the mix asks for with a whole GPU, the unit of CPU.
        least: [2] the least that a typical pod asks for: milli of a device, milli-CPU.
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


def outlook_tables(outlook: OutlookArrays, mix: MixArrays) -> OutlookTables:
    """The outlook of a mix, laid out."""
    return OutlookTables(
        by_left=_by_left(outlook, mix),
        counts=np.ascontiguousarray(outlook.counts.T),
        order=np.argsort(outlook.group, kind="stable"),
        start=np.searchsorted(np.sort(outlook.group), np.arange(len(GROUPS) + 1)),
        pods_per_cpu=outlook.pods_per_cpu,
        steps=_steps(outlook, mix),
        model=outlook.model,
        ratios=np.append(outlook.ratios, WHOLE * outlook.ratios[CPU_PER_GPU] or CPU_UNIT),
        least=np.array([outlook.smallest[0], mix.cpu.min(initial=NEVER)], dtype=np.int64),
    )


def _by_left(outlook: OutlookArrays, mix: MixArrays) -> Array:
    left = np.arange(WHOLE + 1)
    largest = np.concatenate([[0], mix.milli])[np.searchsorted(mix.milli, left, side="right")]
    dead = np.where(left < outlook.smallest[0], left, 0)
    return np.column_stack([*outlook.tables, (left - largest) / WHOLE, dead / WHOLE, (left / WHOLE) ** 2])


def _steps(outlook: OutlookArrays, mix: MixArrays) -> npt.NDArray[np.int64]:
    sequences = outlook.sequences
    devices = mix.gpu_count[sequences]
    milli = np.where(devices > 0, np.append(mix.milli, 0)[mix.value[sequences]], 0)
    fine = np.moveaxis(mix.accepts[sequences], -1, 0) | (devices == 0)
    cpu = np.where(fine, mix.cpu[sequences], NEVER)
    steps = np.stack([cpu, np.broadcast_to(devices, cpu.shape), np.broadcast_to(milli, cpu.shape)], axis=-1)
    return np.ascontiguousarray(steps)  # kernels are compiled for a layout, and that of an empty mix is this one
