"""Nodes and pods of which no two ask for the same, as many as one likes."""

from __future__ import annotations

import random
from typing import Any


def objects(pods: int, nodes: int) -> dict[str, Any]:
    """Return distinct nodes and pods in one list as kubectl writes them."""
    draw = random.Random(1)
    found: list[dict[str, Any]] = []
    for i in range(nodes):
        held = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(draw.choice((0, 2, 4, 8)))}
        found.append(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}"}, "status": {"allocatable": held}}
        )
    for i in range(pods):
        asked = {"cpu": f"{1000 + i}m", "memory": f"{draw.randrange(1, 9000)}Mi", "nvidia.com/gpu": str(i % 3)}
        spec = {"containers": [{"name": "c", "resources": {"requests": asked, "limits": asked}}]}
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{i}"}, "spec": spec})
    return {"apiVersion": "v1", "kind": "List", "items": found}


def table(pods: int) -> str:
    """Return the same pods as CSV."""
    draw = random.Random(1)
    rows = (
        f"p{i},{1000 + i},{draw.randrange(1, 9000)},{i % 3},{(0, draw.randrange(10, 1000, 10), 1000)[i % 3]},"
        for i in range(pods)
    )
    return "\n".join(["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec", *rows])
