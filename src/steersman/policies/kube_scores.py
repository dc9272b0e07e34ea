"""kube-scheduler's scores that look at one node at a time: free resources, taints, preferred nodes, images.

The arithmetic is that of kube-scheduler 1.36 to the last bit: 64-bit integers, floats in the same order. Source: its
pkg/scheduler/framework/plugins/{noderesources,tainttoleration,nodeaffinity,imagelocality}. What depends on how full a
node is (CPU and memory, of equal weight) are kernels; what does not is a row of numbers, made once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, ClassArrays, NodeArrays
from steersman.cluster.constraints import NodeTable, term_nodes, tolerates
from steersman.cluster.model import Node, PreferredNodeTerm, Toleration
from steersman.compiled import inner

MAX_SCORE = 100
SOFT_EFFECT = "PreferNoSchedule"

MIN_IMAGE_BYTES = 23 << 20
MAX_IMAGE_BYTES = 1000 << 20
"""Bytes of image on a node that score 0, and that score 100 (for each container)."""


@inner
def least_allocated(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """(a - q) 100 // a, the mean over CPU and memory: q of the a allocatable are taken, this pod's included.

    A resource of which more is taken than there is counts 0; one that the node does not have is left out. Requests are
    those of the scoring view, in which a container that states none counts as 100m and 200MiB.
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


@inner
def most_allocated(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """min(q, a) 100 // a, the mean over CPU and memory, with q and a as in `least_allocated`."""
    total, counted = 0, 0
    for r in range(2):  # CPU, MEMORY
        capacity = nodes.allocatable[n, r]
        if capacity != 0:
            taken = nodes.nonzero[n, r] + classes.nonzero[c, r]
            counted += 1
            total += min(taken, capacity) * MAX_SCORE // capacity
    return total // 2 if counted == 2 else total


@inner
def balanced_allocation(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """50 + (50 + B(with the pod) - B(without)) // 2 in 50..100: how much the pod brings CPU and memory into balance.

    Requests are the real ones. 0 for a pod that requests neither CPU nor memory, which kube-scheduler does not score.
    """
    cpu, memory = classes.request[c, CPU], classes.request[c, MEMORY]
    if cpu == 0 and memory == 0:
        return 0
    cpu_all, memory_all = nodes.allocatable[n, CPU], nodes.allocatable[n, MEMORY]
    cpu_taken, memory_taken = cpu_all - nodes.free[n, CPU], memory_all - nodes.free[n, MEMORY]
    before = _balance(cpu_taken, cpu_all, memory_taken, memory_all)
    after = _balance(cpu_taken + cpu, cpu_all, memory_taken + memory, memory_all)
    return MAX_SCORE // 2 + (MAX_SCORE // 2 + after - before) // 2


@inner
def _balance(cpu: int, cpu_all: int, memory: int, memory_all: int) -> int:
    """int(100 (1 - |f - g| / 2)) with f and g the shares of CPU and memory taken, at most 1."""
    if cpu_all == 0 or memory_all == 0:
        return MAX_SCORE
    difference = min(cpu / cpu_all, 1.0) - min(memory / memory_all, 1.0)
    return int((1.0 - abs(difference / 2.0)) * MAX_SCORE)


class Image(NamedTuple):
    """A container image on the nodes: its bytes as the first node reported them, and the slots that have it."""

    size: int
    slots: list[int]


def images_on(nodes: Sequence[Node | None]) -> dict[str, Image]:
    """The images of all nodes, by name."""
    images: dict[str, Image] = {}
    for slot, node in enumerate(nodes):
        if node is not None:
            for name, size in node.images.items():
                images.setdefault(name, Image(size, [])).slots.append(slot)
    return images


def image_locality(images: Mapping[str, Image], wanted: Sequence[str], nodes: int, slots: int) -> npt.NDArray[np.int64]:
    """[N] 0..100: how many bytes of a pod's images a node has, each weighted by the share of nodes that have it.

    Args:
        images: what nodes have.
        wanted: the image of every container and init container; one that is used twice counts twice.
        nodes: how many there are.
        slots: N, with free ones.
    """
    total = np.zeros(slots, dtype=np.int64)
    for name in wanted:
        image = images.get(name)
        if image is not None:
            total[image.slots] += int(float(image.size) * (len(image.slots) / nodes))
    most = MAX_IMAGE_BYTES * max(len(wanted), 1)
    found: npt.NDArray[np.int64] = np.clip(total, MIN_IMAGE_BYTES, most) - MIN_IMAGE_BYTES
    return MAX_SCORE * found // (most - MIN_IMAGE_BYTES)


def soft_taints(nodes: Sequence[Node | None], tolerations: Sequence[Toleration]) -> npt.NDArray[np.int64]:
    """[N] how many PreferNoSchedule taints of a node are not tolerated."""
    counts = np.zeros(len(nodes), dtype=np.int64)
    for slot, node in enumerate(nodes):
        for taint in node.taints if node is not None else ():
            if taint.effect == SOFT_EFFECT and not any(tolerates(each, taint) for each in tolerations):
                counts[slot] += 1
    return counts


def preferred_weights(table: NodeTable, preferred: Sequence[PreferredNodeTerm]) -> npt.NDArray[np.int64]:
    """[N] the sum of the weights of the preferred node affinity terms that a node satisfies."""
    weights = np.zeros(len(table), dtype=np.int64)
    for each in preferred:
        weights[term_nodes(table, each.term)] += each.weight
    return weights
