"""Cache of the fragmentation of a node after a placement, a feature of view `cluster`.

Fragmentation depends on the GPU model, the free CPU up to the largest typical request, and the free milli of each
device in any order. The cache is indexed by a hash of these and keeps the last of colliding states. Random placements
on 1,213 nodes have a hit rate of 90 %.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, ClassArrays, NodeArrays, devices_taken, place, remove
from steersman.cluster.model import GPU_MILLI
from steersman.core.compiled import called_kernel, inlined_kernel
from steersman.core.random_numbers import GOLDEN, mixed
from steersman.objectives.fragmentation import FragmentArrays, fragment_after, refresh
from steersman.workloads.profile import ProfileArrays

CACHE_SIZE = 1 << 14
"""Default number of cached states."""
KEY, FRAGMENTED = range(2)
"""Columns of `FragmentationCache.states`."""
PROFILE_HASH, MAX_CPU = range(2)
"""Columns of `FragmentationCache.mark`."""


class FragmentationCache(NamedTuple):
    """Cache of the fragmentation of S states.

    Attributes:
        states: [S, 2] KEY, a hash of the state, and FRAGMENTED, its fragmented GPU milli; S is a power of two.
        keys: [S, 2] uint64 view of `states`.
        mark: [2] int64 PROFILE_HASH, by which runs of different workloads share the cache; MAX_CPU, the largest CPU
            request of a typical pod in milli-CPU.
    """

    states: npt.NDArray[np.float64]
    keys: npt.NDArray[np.uint64]
    mark: npt.NDArray[np.int64]


def empty_fragmentation_cache(marks: npt.NDArray[np.int64], count: int = CACHE_SIZE) -> FragmentationCache:
    """Return an empty cache; `marks` is `profile_key` the profile, or one row per run of a batch, [E, 2]."""
    states = np.zeros((count, 2))
    return FragmentationCache(states, states.view(np.uint64), marks)


def profile_key(profile: ProfileArrays) -> npt.NDArray[np.int64]:
    """Return `FragmentationCache.mark`, [2], of a workload profile."""
    digest = hashlib.sha256()
    for array in profile:
        digest.update(repr(array.shape).encode() + array.tobytes())
    key = int.from_bytes(digest.digest()[:8], "little", signed=True)
    return np.array([key, profile.cpu.max(initial=0)], dtype=np.int64)


@inlined_kernel
def device_key(left: int) -> np.uint64:
    """Return a device's summand of the hash, 0 if nothing is left of it; the sum ignores the order of devices."""
    return mixed(np.uint64(left) * GOLDEN)


@inlined_kernel
def fragmented_with(
    known: FragmentationCache,
    nodes: NodeArrays,
    classes: ClassArrays,
    profile: ProfileArrays,
    fragments: FragmentArrays,
    c: int,
    n: int,
    devices: int,
    idle: int,
    old: int,
    devices_key: np.uint64,
) -> float:
    """Return the fragmented GPU milli of a node after placing a pod, which must fit, on given devices.

    Args:
        known: the cache.
        nodes: the nodes.
        classes: the pod classes.
        profile: the workload profile.
        fragments: current fragmentation of the nodes.
        c: the pod's class.
        n: the node.
        devices: bit mask of the devices.
        idle: current idle GPU milli of the node.
        old: current free milli of one of `devices`.
        devices_key: the sum of `device_key` over the node's devices after the placement.
    """
    cpu = min(nodes.free[n, CPU] - classes.request[c, CPU], known.mark[MAX_CPU])
    fixed = np.uint64(known.mark[PROFILE_HASH]) + np.uint64(nodes.gpu_model[n])
    key = mixed(mixed(devices_key + np.uint64(cpu) * GOLDEN) + fixed * GOLDEN) | np.uint64(1)
    row = int(key >> np.uint64(20)) & (known.keys.shape[0] - 1)
    if known.keys[row, KEY] != key:
        known.states[row, FRAGMENTED] = _compute_fragmentation(
            nodes, classes, profile, fragments, c, n, devices, idle, old
        )
        known.keys[row, KEY] = key
    return float(known.states[row, FRAGMENTED])


@called_kernel
def _compute_fragmentation(
    nodes: NodeArrays,
    classes: ClassArrays,
    profile: ProfileArrays,
    fragments: FragmentArrays,
    c: int,
    n: int,
    devices: int,
    idle: int,
    old: int,
) -> float:
    count, milli = devices_taken(nodes, classes, c, n), classes.gpu_milli[c]
    if count > 1 and milli < GPU_MILLI:
        # Devices with different free milli have no closed form: place the pod, measure, and remove it.
        place(nodes, classes, c, n, devices)
        refresh(profile, nodes, fragments, n)
        after = fragments.total[n]
        remove(nodes, classes, c, n, devices)
        refresh(profile, nodes, fragments, n)
        return float(after)
    cpu = nodes.free[n, CPU] - classes.request[c, CPU]
    return fragment_after(profile, fragments, n, cpu, idle - count * milli, nodes.gpu_model[n], count, old, old - milli)
