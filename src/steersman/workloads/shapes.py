"""Comparison of two clusters: their nodes by shape and count, and the distance between two profiles of pods."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

from steersman.cluster.model import Node

Shape = tuple[int, int, int, str]
"""milli-CPU, MiB of memory, GPUs and their model."""
GpuRequest = tuple[int, int]
"""Devices, and milli of each; (0, 0) for pods without a GPU."""

MEBIBYTE = 1 << 20


def node_shapes(nodes: Iterable[Node]) -> Counter[Shape]:
    """Count nodes by shape, regardless of names and labels."""
    return Counter((node.cpu_milli, node.memory_bytes // MEBIBYTE, node.gpu_count, node.gpu_model) for node in nodes)


def shapes_digest(shapes: Mapping[Shape, int]) -> str:
    """Return 16 hexadecimal digits that are equal for clusters with as many nodes of each shape."""
    return hashlib.sha256(repr(sorted(shapes.items())).encode()).hexdigest()[:16]


def profile_distance(one: Mapping[GpuRequest, float], other: Mapping[GpuRequest, float]) -> float:
    """Return the total variation distance between two profiles, 0 to 1: the share of pods that would have to change."""
    return 0.5 * sum(abs(one.get(kind, 0.0) - other.get(kind, 0.0)) for kind in one.keys() | other.keys())
