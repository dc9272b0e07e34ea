"""kube-scheduler's scores of single nodes: free resources, taints, preferred nodes, images.

The arithmetic equals that of kube-scheduler 1.37 bit for bit: 64-bit integers, floats in the same order. Source:
pkg/scheduler/framework/plugins/{noderesources,tainttoleration,nodeaffinity,imagelocality}. Scores that depend on a
node's free CPU and memory (of equal weight) are kernels; the others are arrays, computed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, ClassArrays, NodeArrays
from steersman.cluster.constraints.node import NodeTable, nodes_matching_term, tolerates
from steersman.cluster.model import Node, PreferredNodeTerm, Toleration
from steersman.core.compiled import inlined_kernel

MAX_SCORE = 100
SOFT_EFFECT = "PreferNoSchedule"

MIN_IMAGE_BYTES = 23 << 20
MAX_IMAGE_BYTES = 1000 << 20
"""Bytes of a pod's images on a node that score 0, and bytes per container that score 100."""


@inlined_kernel
def least_allocated(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Return the mean over CPU and memory of (a - q) 100 // a; a is allocatable, q requested, this pod included.

    A resource with q > a scores 0; a resource that the node does not have is ignored. Requests are non-zero requests: a
    container without requests counts as 100m and 200MiB.
    """
    total, counted = 0, 0
    for r in range(2):  # CPU, MEMORY
        capacity = nodes.allocatable[n, r]
        if capacity != 0:
            taken = nodes.nonzero[n, r] + classes.nonzero[c, r]
            counted += 1
            if taken <= capacity:
                total += (capacity - taken) * MAX_SCORE // capacity
    return total // 2 if counted == 2 else total


@inlined_kernel
def most_allocated(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Return the mean over CPU and memory of min(q, a) 100 // a, with q and a as in `least_allocated`."""
    total, counted = 0, 0
    for r in range(2):  # CPU, MEMORY
        capacity = nodes.allocatable[n, r]
        if capacity != 0:
            taken = nodes.nonzero[n, r] + classes.nonzero[c, r]
            counted += 1
            total += min(taken, capacity) * MAX_SCORE // capacity
    return total // 2 if counted == 2 else total


@inlined_kernel
def balanced_allocation(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Return 50 + (50 + B(with the pod) - B(without)) // 2 in 50..100, B the balance of CPU and memory.

    Requests are the actual ones. A pod without CPU and memory requests scores 0; kube-scheduler skips it.
    """
    cpu, memory = classes.request[c, CPU], classes.request[c, MEMORY]
    if cpu == 0 and memory == 0:
        return 0
    cpu_all, memory_all = nodes.allocatable[n, CPU], nodes.allocatable[n, MEMORY]
    cpu_taken, memory_taken = cpu_all - nodes.free[n, CPU], memory_all - nodes.free[n, MEMORY]
    before = _balance(cpu_taken, cpu_all, memory_taken, memory_all)
    after = _balance(cpu_taken + cpu, cpu_all, memory_taken + memory, memory_all)
    return MAX_SCORE // 2 + (MAX_SCORE // 2 + after - before) // 2


@inlined_kernel
def _balance(cpu: int, cpu_all: int, memory: int, memory_all: int) -> int:
    """Return int(100 (1 - |f - g| / 2)), with f and g the requested shares of CPU and memory, at most 1."""
    if cpu_all == 0 or memory_all == 0:
        return MAX_SCORE
    difference = min(cpu / cpu_all, 1.0) - min(memory / memory_all, 1.0)
    return int((1.0 - abs(difference / 2.0)) * MAX_SCORE)


class Image(NamedTuple):
    """Container image on nodes: its size in bytes as the first node reports it, and the slots that have it."""

    size: int
    slots: list[int]


def images_on(nodes: Sequence[Node | None]) -> dict[str, Image]:
    """Return the images of all nodes by name."""
    images: dict[str, Image] = {}
    for slot, node in enumerate(nodes):
        if node is not None:
            for name, size in node.images.items():
                images.setdefault(name, Image(size, [])).slots.append(slot)
    return images


def image_locality(
    images: Mapping[str, Image], names: Sequence[str], counted: int, nodes: int, slots: int
) -> npt.NDArray[np.int64]:
    """Return scores 0..100, [N], of the bytes of a pod's images on each node, weighted by their shares of nodes.

    Args:
        images: images of the nodes by name.
        names: images of all containers, init containers and volumes; an image used twice counts twice.
        counted: number of those that bound the score.
        nodes: number of nodes.
        slots: N, the number of slots, free ones included.
    """
    total = np.zeros(slots, dtype=np.int64)
    for name in names:
        image = images.get(name)
        if image is not None:
            # Scaled per image and truncated before adding, as scaledImageScore does.
            total[image.slots] += int(float(image.size) * (len(image.slots) / nodes))
    most = MAX_IMAGE_BYTES * max(counted, 1)
    excess: npt.NDArray[np.int64] = np.clip(total, MIN_IMAGE_BYTES, most) - MIN_IMAGE_BYTES
    return MAX_SCORE * excess // (most - MIN_IMAGE_BYTES)


def soft_taints(nodes: Sequence[Node | None], tolerations: Sequence[Toleration]) -> npt.NDArray[np.int64]:
    """Return the number of untolerated PreferNoSchedule taints of each node, [N]."""
    counts = np.zeros(len(nodes), dtype=np.int64)
    for slot, node in enumerate(nodes):
        for taint in node.taints if node is not None else ():
            if taint.effect == SOFT_EFFECT and not any(tolerates(toleration, taint) for toleration in tolerations):
                counts[slot] += 1
    return counts


def preferred_weights(table: NodeTable, preferred: Sequence[PreferredNodeTerm]) -> npt.NDArray[np.int64]:
    """Return the summed weights of the preferred node affinity terms that each node matches, [N]."""
    weights = np.zeros(len(table), dtype=np.int64)
    for preference in preferred:
        weights[nodes_matching_term(table, preference.term)] += preference.weight
    return weights
