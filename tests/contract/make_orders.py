"""Writes what orders read of objects (`python -m tests.contract.make_orders`): sizes, owners and stated run times."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from tests.contract.cases import FOLDER, Json
from tests.support.objects import node_from_object

from steersman.cluster.model import Node
from steersman.cluster.objects.decoding import pod_from_object
from steersman.cluster.state import ClusterState
from steersman.orders.live_order import ClusterSize, cluster_size
from steersman.orders.order import SOURCES, Estimates

FILE = FOLDER / "orders.json"
SEED, PODS = 11, 40

Random = np.random.Generator


def object_cases(random: Random) -> list[Json]:
    """Return pods of clusters with and without GPUs, with their size and stated run time."""
    return [_cluster(random, gpus) for gpus in (0, 8)]


def _cluster(random: Random, gpus: int) -> Json:
    nodes = []
    for i in range(3):
        amounts = {"cpu": f"{16 * (i + 1)}", "memory": f"{64 * (i + 1)}Gi", "pods": "110"}
        if gpus and i < 2:
            amounts |= {"nvidia.com/gpu": str(gpus)} if i else {"alibabacloud.com/gpu-count": str(gpus)}
        nodes.append({"metadata": {"name": f"node-{i}"}, "status": {"allocatable": amounts, "capacity": amounts}})
    decoded: list[Node] = [node_from_object(node) for node in nodes]
    size = cluster_size(ClusterState(tuple(decoded)), ClusterSize())
    pods = [_pod(random, i, gpus) for i in range(PODS)]
    return {"nodes": nodes, "capacity": size.capacity, "pods": [{"pod": pod, **_answer(pod, size)} for pod in pods]}


def _pod(random: Random, number: int, gpus: int) -> dict[str, Any]:
    asked = {"cpu": f"{random.integers(1, 16000)}m", "memory": f"{random.integers(1, 1 << 36)}"}
    notes: dict[str, str] = {}
    if gpus and random.random() < 0.6:
        if random.random() < 0.5:
            asked["nvidia.com/gpu"] = str(random.integers(1, gpus))
        else:
            notes |= {"alibabacloud.com/gpu-count": "1", "alibabacloud.com/gpu-milli": str(random.integers(1, 1000))}
    if random.random() < 0.5:
        stated = (str(random.integers(1, 10_000)), "12.5", "1e3", "")[int(random.integers(4))]
        notes["steersman.dev/expected-seconds"] = stated
    if random.random() < 0.5:
        notes["steersman.dev/owner"] = f"Job/{number}"
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": asked, "limits": asked}}]}
    if random.random() < 0.5:
        spec["activeDeadlineSeconds"] = int(random.integers(1, 10_000))
    return {"metadata": {"name": f"pod-{number}", "namespace": "default", "annotations": notes}, "spec": spec}


def _answer(pod: dict[str, Any], size: ClusterSize) -> Json:
    decoded = pod_from_object(pod)
    known = {source: Estimates(source).known(decoded) for source in SOURCES if source != "oracle"}
    # JSON has no NaN, which stands for an estimate from the history.
    stated = {source: None if np.isnan(seconds) else seconds for source, seconds in known.items()}
    return {"size": size.of(decoded.requests), "owner": decoded.owner, "stated": stated}


def content() -> Json:
    """Return all cases."""
    return {"clusters": object_cases(np.random.default_rng(SEED))}


def main() -> None:
    """Write the file."""
    FILE.write_text(json.dumps(content(), indent=None, separators=(",", ":")) + "\n")
    print(f"{FILE.stat().st_size} bytes in {FILE}")


if __name__ == "__main__":
    main()
