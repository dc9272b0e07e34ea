"""Fragmentation of a node after a placement, for features: the same few states come again and again, so it is kept.

It depends on the GPU model, the CPU up to what the largest typical pod wants, and what is left of each device, in any
order. It is kept by a hash of these; of states that share a place, the last one. Placements at random on 1,213 nodes
find nine of ten.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, WHOLE, ClassArrays, NodeArrays, devices_taken, place, remove
from steersman.compiled import inner, outlined
from steersman.objectives.fragmentation import FragmentArrays, fragment_after, refresh
from steersman.telemetry.randomness import GOLDEN, mixed
from steersman.workloads.mix import MixArrays

STATES_KEPT = 1 << 14
KEY, FRAGMENTED = range(2)
"""Columns of `Afterstates.states`."""
MIX, MOST_CPU = range(2)
"""Columns of `Afterstates.mark`."""


class Afterstates(NamedTuple):
    """S states whose fragmentation is kept.

    Attributes:
        states: [S, 2] KEY, a hash of the state, and FRAGMENTED, its fragmented GPU milli; S is a power of two.
        keys: the same memory as integers.
        mark: [2] int64 MIX, a hash of the mix, so that runs of different workloads can share the states; MOST_CPU, the
            most CPU that a typical pod asks for.
    """

    states: npt.NDArray[np.float64]
    keys: npt.NDArray[np.uint64]
    mark: npt.NDArray[np.int64]


def afterstates(marks: npt.NDArray[np.int64], count: int = STATES_KEPT) -> Afterstates:
    """None known yet; `marks` is `mark_of` the mix, or one for each run of a batch, [E, 2]."""
    states = np.zeros((count, 2))
    return Afterstates(states, states.view(np.uint64), marks)


def mark_of(mix: MixArrays) -> npt.NDArray[np.int64]:
    """[2] what tells a mix from others, see `Afterstates`."""
    digest = hashlib.sha256()
    for array in mix:
        digest.update(repr(array.shape).encode() + array.tobytes())
    key = int.from_bytes(digest.digest()[:8], "little", signed=True)
    return np.array([key, mix.cpu.max(initial=0)], dtype=np.int64)


@inner
def device_key(left: int) -> np.uint64:
    """A device's part of the hash, 0 if nothing is left of it; parts are added, so that their order does not matter."""
    return mixed(np.uint64(left) * GOLDEN)


@inner
def fragmented_with(
    known: Afterstates,
    nodes: NodeArrays,
    classes: ClassArrays,
    mix: MixArrays,
    fragments: FragmentArrays,
    c: int,
    n: int,
    devices: int,
    idle: int,
    old: int,
    devices_key: np.uint64,
) -> float:
    """Fragmented GPU milli of node `n` with a pod of class `c`, which must fit, on the devices of the bit mask.

    Args:
        known: states that were met.
        nodes: of the cluster.
        classes: of its pods.
        mix: the typical pods.
        fragments: of the nodes as they are.
        c: the class.
        n: the node.
        devices: a bit mask.
        idle: GPU milli left on the node now.
        old: milli left now on one of `devices`.
        devices_key: the sum of `device_key` over the node's devices with the pod.
    """
    cpu = min(nodes.free[n, CPU] - classes.request[c, CPU], known.mark[MOST_CPU])
    fixed = np.uint64(known.mark[MIX]) + np.uint64(nodes.gpu_model[n])
    key = mixed(mixed(devices_key + np.uint64(cpu) * GOLDEN) + fixed * GOLDEN) | np.uint64(1)
    row = int(key >> np.uint64(20)) & (known.keys.shape[0] - 1)
    if known.keys[row, KEY] != key:
        known.states[row, FRAGMENTED] = _work_out(nodes, classes, mix, fragments, c, n, devices, idle, old)
        known.keys[row, KEY] = key
    return float(known.states[row, FRAGMENTED])


@outlined
def _work_out(
    nodes: NodeArrays,
    classes: ClassArrays,
    mix: MixArrays,
    fragments: FragmentArrays,
    c: int,
    n: int,
    devices: int,
    idle: int,
    old: int,
) -> float:
    count, milli = devices_taken(nodes, classes, c, n), classes.gpu_milli[c]
    if count > 1 and milli < WHOLE:
        # Devices that differ: no shortcut, so the pod is placed and removed.
        place(nodes, classes, c, n, devices)
        refresh(mix, nodes, fragments, n)
        after = fragments.total[n]
        remove(nodes, classes, c, n, devices)
        refresh(mix, nodes, fragments, n)
        return float(after)
    cpu = nodes.free[n, CPU] - classes.request[c, CPU]
    return fragment_after(mix, fragments, n, cpu, idle - count * milli, nodes.gpu_model[n], count, old, old - milli)
