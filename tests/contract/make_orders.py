"""Writes the cases of orders (`python -m tests.contract.make_orders`): scores, estimates, sizes, and an order file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tests.contract.cases import FOLDER, Json
from tests.support.objects import node_from_object

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.cluster.objects.decoding import pod_from_object
from steersman.cluster.state import ClusterState
from steersman.core.handles import CoreOrder, CoreRunTimes
from steersman.orders import scores
from steersman.orders.live_history import LiveHistory, written
from steersman.orders.live_order import ClusterSize, cluster_size
from steersman.orders.order import SOURCES, RunTimes
from steersman.orders.registry import OrderCard, open_order, write_order

FILE = FOLDER / "orders.json"
ORDER_FILE = FOLDER / "order.safetensors"
SEED = 11
CASES, LEARNED_CASES, HISTORY_STEPS, PODS = 200, 100, 400, 40
HIDDEN = 4
MAX_GROUPS = 12
"""Few, so that groups are forgotten."""
KINDS = {
    "shortest": scores.SHORTEST,
    "area": scores.AREA,
    "wfp3": scores.WFP3,
    "unicef": scores.UNICEF,
    "f1": scores.F1,
}
CARD = OrderCard(name="learned", overtaking="any", estimates="stated", ageing=86_400.0, hidden=HIDDEN)

Random = np.random.Generator


def _between(random: Random, low: float, high: float) -> float:
    """Return a number, uniform in its logarithm."""
    return float(10 ** random.uniform(np.log10(low), np.log10(high)))


def _scores(kind: int, pods: list[list[float]], weights: tuple[float, ...] = ()) -> list[float]:
    found: list[float] = CoreOrder(CoreRunTimes(1), kind, np.array(weights)).scores(np.array(pods)).tolist()
    return found


def simple_cases(random: Random) -> list[Json]:
    """Return scores of rules."""
    cases = []
    for _ in range(CASES):
        r, n, arrived = _between(random, 0.1, 1e6), _between(random, 0.01, 1e3), _between(random, 0.1, 1e7)
        w = 0.0 if random.random() < 0.1 else _between(random, 0.1, 1e6)
        pod = [max(r, 1.0), 0.0, n, 0.0, w, arrived, 0.0, 0.0, 0.0]
        found = {name: _scores(kind, [pod])[0] for name, kind in KINDS.items()}
        cases.append({"seconds": r, "size": n, "wait": w, "arrived": arrived, "scores": found})
    return cases


def learned_cases(random: Random, weights: tuple[float, ...]) -> list[Json]:
    """Return scores of a learned order."""
    cases = []
    for _ in range(LEARNED_CASES):
        r, w, capacity = _between(random, 0.1, 1e6), _between(random, 0.1, 1e6), _between(random, 1, 1e4)
        size, free = capacity * _between(random, 1e-3, 2.0), float(random.random())
        if random.random() < 0.2:  # it just fits
            size = free * capacity
        spread, waiting = float(random.random() * 3), int(random.integers(0, 5000))
        share = min(size / capacity, 1.0)
        pod = [max(r, 1.0), spread, size, share, w, 0.0, free, waiting, 0.0]
        (found,) = _scores(scores.LEARNED, [pod], weights)
        case = {"seconds": r, "spread": spread, "size": size, "wait": w, "capacity": capacity, "free": free}
        cases.append({**case, "waiting": waiting, "score": found})
    return cases


def history_cases(random: Random) -> list[Json]:
    """Return pods that end, each with the estimate of another one afterwards."""
    history, cases = LiveHistory(MAX_GROUPS), []
    requests = [
        Requests(cpu_milli=1000),
        Requests(cpu_milli=2000, memory_bytes=1 << 30),
        Requests(gpu_count=1, gpu_milli=500),
    ]
    for _ in range(HISTORY_STEPS):
        ended, asked = (
            Pod(
                "pod",
                PodClass(requests[int(random.integers(len(requests)))]),
                namespace=f"n{random.integers(2)}",
                owner=("", "Job/a", "Job/b", f"Job/{random.integers(100)}")[int(random.integers(4))],
            )
            for _ in range(2)
        )
        seconds = _between(random, 0.1, 1e8)
        history.note(ended, seconds)
        median, spread = history.core.estimate(written(asked.requests), asked.namespace, asked.owner)
        case = {"ended": _told(ended), "seconds": seconds, "asked": _told(asked)}
        cases.append({**case, "median": median, "spread": spread})
    return cases


def _told(pod: Pod) -> Json:
    asked = pod.requests
    amounts = {"cpu": asked.cpu_milli, "memory": asked.memory_bytes, "gpus": asked.gpu_count, "milli": asked.gpu_milli}
    return {"namespace": pod.namespace, "owner": pod.owner, **amounts}


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
    known = {source: RunTimes(source).known(decoded) for source in SOURCES if source != "oracle"}
    # JSON has no NaN, which stands for an estimate from the history.
    stated = {source: None if np.isnan(seconds) else seconds for source, seconds in known.items()}
    return {"size": size.of(decoded.requests), "owner": decoded.owner, "stated": stated}


def content(order_file: Path) -> Json:
    """Return all cases; those of the learned order are by the weights in the file."""
    random = np.random.default_rng(SEED)
    _, order = open_order(order_file)
    return {
        "simple": simple_cases(random),
        "learned": learned_cases(random, order.weights),
        "max_groups": MAX_GROUPS,
        "history": history_cases(random),
        "clusters": object_cases(random),
    }


def main() -> None:
    """Write the files."""
    random = np.random.default_rng(SEED)
    write_order(ORDER_FILE, CARD, tuple(random.standard_normal(scores.learned_size(HIDDEN)).tolist()))
    FILE.write_text(json.dumps(content(ORDER_FILE), indent=None, separators=(",", ":")) + "\n")
    print(f"{FILE.stat().st_size} bytes in {FILE}, {ORDER_FILE.stat().st_size} in {ORDER_FILE}")


if __name__ == "__main__":
    main()
