"""kube-scheduler's scores of single nodes that do not depend on the pods there: taints, preferred nodes, images.

The arithmetic equals that of kube-scheduler 1.37 bit for bit: 64-bit integers, floats in the same order. Source:
pkg/scheduler/framework/plugins/{tainttoleration,nodeaffinity,imagelocality}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.constraints.node import NodeTable, nodes_matching_term, tolerates
from steersman.cluster.model import Node, PreferredNodeTerm, Toleration

MAX_SCORE = 100
SOFT_EFFECT = "PreferNoSchedule"

MIN_IMAGE_BYTES = 23 << 20
MAX_IMAGE_BYTES = 1000 << 20
"""Bytes of a pod's images on a node that score 0, and bytes per container that score 100."""


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
