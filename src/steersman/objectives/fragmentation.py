"""GPU fragmentation: how much idle GPU the typical pods cannot use, and why.

F_n(M) = sum over typical pods m of share_m * f_n(m), where f_n(m) is the idle GPU milli of node n that m cannot use:
all of it if m does not fit (or wants no GPU), otherwise what lies on devices too full for m. Source: Weng et al.,
"Beware of Fragmentation", USENIX ATC 2023, with the artifact's order of summation: an amount is summed per cause over
typical pods, then over the causes. That order decides the last bits, and these decide truncated scores.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, NodeArrays, idle_gpu
from steersman.core.compiled import inlined_kernel, kernel
from steersman.workloads.profile import ProfileArrays

CAUSES = ("lack_both", "lack_gpu", "lack_cpu", "cpu_pod_satisfied", "cpu_pod_lack_cpu", "no_access")
"""Why a typical pod cannot use idle GPU, in the order of summation: the node lacks both CPU and GPU for it, GPU alone,
CPU alone; the pod wants no GPU (with and without the CPU for it); the pod does not accept the node's GPU model."""


class DeviceChange(NamedTuple):
    """What a placement takes of a node's devices.

    Attributes:
        before, after: free milli of each of them.
    """

    devices: int
    before: int
    after: int


NO_CHANGE = DeviceChange(0, 0, 0)


class FragmentArrays(NamedTuple):
    """Fragmentation of nodes, refreshed when a node changes.

    Attributes:
        total: [N] fragmented GPU milli.
        causes: [N, 6] the same by `CAUSES`.
        usable: [N, V] devices with at least `profile.milli[v]` left.
        wasted: [N, V] milli left on the node's other devices.
    """

    total: npt.NDArray[np.float64]
    causes: npt.NDArray[np.float64]
    usable: npt.NDArray[np.int64]
    wasted: npt.NDArray[np.int64]


def fragment_arrays(profile: ProfileArrays, nodes: NodeArrays) -> FragmentArrays:
    count, values = len(nodes.gpu_count), len(profile.milli)
    arrays = FragmentArrays(
        total=np.zeros(count),
        causes=np.zeros((count, len(CAUSES))),
        usable=np.zeros((count, values), dtype=np.int64),
        wasted=np.zeros((count, values), dtype=np.int64),
    )
    refresh_all(profile, nodes, arrays)
    return arrays


@kernel
def refresh_all(profile: ProfileArrays, nodes: NodeArrays, fragments: FragmentArrays) -> None:
    """Refresh every node."""
    for n in range(nodes.gpu_count.shape[0]):
        refresh(profile, nodes, fragments, n)


@kernel
def refresh(profile: ProfileArrays, nodes: NodeArrays, fragments: FragmentArrays, n: int) -> None:
    """Recompute the fragmentation of node `n`."""
    idle = idle_gpu(nodes, n)
    for v in range(profile.milli.shape[0]):
        usable, wasted = 0, 0
        for d in range(nodes.gpu_count[n]):
            left = nodes.gpu_free[n, d]
            # V thresholds: devices with enough for this size, and the rest that the others have.
            if left >= profile.milli[v]:
                usable += 1
            else:
                # Devices of an overcommitted node may have less than nothing left.
                wasted += max(left, 0)
        fragments.usable[n, v] = usable
        fragments.wasted[n, v] = wasted
    by_cause = causes(
        profile, fragments.usable[n], fragments.wasted[n], nodes.free[n, CPU], idle, nodes.gpu_model[n], NO_CHANGE
    )
    total = 0.0
    for i in range(len(by_cause)):
        fragments.causes[n, i] = by_cause[i]
        total += by_cause[i]
    fragments.total[n] = total


@inlined_kernel
def fragment_after(
    profile: ProfileArrays, fragments: FragmentArrays, n: int, cpu: int, idle: int, model: int, change: DeviceChange
) -> float:
    """Return the fragmented GPU milli of node `n` after a placement.

    It would have `cpu` milli-CPU and `idle` GPU milli left.
    """
    by_cause = causes(profile, fragments.usable[n], fragments.wasted[n], cpu, idle, model, change)
    total = 0.0
    for i in range(len(by_cause)):
        total += by_cause[i]
    return total


@inlined_kernel
def causes(
    profile: ProfileArrays,
    usable: npt.NDArray[np.int64],
    wasted: npt.NDArray[np.int64],
    cpu: int,
    idle: int,
    model: int,
    change: DeviceChange,
) -> tuple[float, float, float, float, float, float]:
    """Return the fragmented GPU milli of a node by `CAUSES`.

    Args:
        profile: typical pods.
        usable: [V] devices of the node as it is, see `FragmentArrays`.
        wasted: [V] milli on its other devices, see there.
        cpu: milli-CPU left after the placement.
        idle: GPU milli left after it.
        model: its GPU model.
        change: what the placement takes.
    """
    devices, old, new = change
    lack_both = lack_gpu = lack_cpu = cpu_satisfied = cpu_lack = no_access = 0.0
    # Typical pods are the outer loop: each cause is summed over them in this order, as the artifact does.
    for m in range(profile.cpu.shape[0]):
        share = profile.share[m]
        enough_cpu = cpu >= profile.cpu[m]
        # Pods without GPU cannot use any idle GPU; the cause tells whether they could run at all.
        if profile.gpu_count[m] == 0:
            if enough_cpu:
                cpu_satisfied += share * idle
            else:
                cpu_lack += share * idle
        elif not profile.accepts[m, model]:
            no_access += share * idle
        else:
            v = profile.value[m]
            milli = profile.milli[v]
            enough, few = usable[v], wasted[v]
            # The devices that change leave the group that they were in, and join that of their new free milli.
            if old >= milli:
                enough -= devices
            else:
                few -= devices * old
            if new >= milli:
                enough += devices
            else:
                few += devices * new
            # Enough devices: only what lies on the others is of no use to this pod.
            if enough >= profile.gpu_count[m]:
                if enough_cpu:
                    lack_gpu += share * few
                else:
                    lack_cpu += share * idle
            elif enough_cpu:
                lack_gpu += share * idle
            else:
                lack_both += share * idle
    return lack_both, lack_gpu, lack_cpu, cpu_satisfied, cpu_lack, no_access
