"""Shared cases of the rules of telemetry: what happens to a cluster, what is measured, a pod, and the nodes' scores.

Seconds count from when the scheduler began to look. `python -m tests.vectors.telemetry` writes them anew; Python and Go
are held to them.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from steersman.cluster.objects import node_from_object, pod_from_object
from steersman.cluster.state import ClusterState
from steersman.policies.telemetry_policy import OBJECTIVES
from steersman.policies.telemetry_sight import Sight
from steersman.telemetry.prometheus.configuration import LATENCY, configuration
from steersman.telemetry.prometheus.readings import Found, Readings

FILE = Path(__file__).with_name("telemetry.json.gz")
SEED, CASES = 5, 300
MEASURED = {
    "cpu_used_percent": 100.0,
    "network_received_bytes_per_second": 2e8,
    "tcp_connections": 2000.0,
    LATENCY: 150.0,
}
"""Features that rules look at, and the most that is drawn for them."""
LIMITS = ("steersman.dev/latency-hard-constraint", "latencyHardConstraint")
Json = dict[str, Any]


def pod_object(name: str, each: Json) -> Json:
    """A v1 Pod."""
    requests = {"cpu": f"{each['cpu']}m", "memory": "64Mi"}
    metadata: Json = {"name": name, "namespace": "default", "annotations": each.get("annotations", {})}
    if each["owner"]:
        metadata["ownerReferences"] = [{"kind": "ReplicaSet", "name": each["owner"], "controller": True}]
    return {"metadata": metadata, "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}


class _Telemetry:
    """What was measured, at a time that is told."""

    def __init__(self, case: Json) -> None:
        features = {name: {"whenStale": when} for name, when in case["whenStale"].items()}
        self.configuration = configuration({"features": features, "assumptions": case["assumptions"]})
        self.readings, self.limits, self.now = Readings(self.configuration), Counter[str](), 0.0
        for feature in MEASURED:
            found = [each for each in case["readings"] if each["feature"] == feature]
            self.readings.take(feature, [Found(e["node"], e["user"], e["value"], e["age"]) for e in found], case["now"])

    def clock(self) -> float:
        return self.now


def answer(case: Json) -> Json:
    """What became of the pod's hard limit, and the scores of every rule: None where the pod may not go."""
    state = ClusterState([node_from_object(_node_object(each)) for each in case["nodes"]])
    telemetry = _Telemetry(case) if case["measured"] else None
    events = sorted(
        {each["from"] for each in case["pods"]} | {each["until"] for each in case["pods"] if each["until"] is not None}
    )
    sight: Sight | None = None
    there: set[int] = set()
    for time in [*(at for at in events if at <= 0), 0.0, *(at for at in events if at > 0)]:
        if telemetry is not None:
            telemetry.now = time
        if time >= 0 and sight is None:
            sight = Sight(state, telemetry)
        for i, each in enumerate(case["pods"]):
            runs = each["from"] <= time and (each["until"] is None or time < each["until"])
            if runs != (i in there):
                _change(state, i, each, runs)
                there ^= {i}
                if sight is not None:
                    sight.changed(each["node"])
    assert sight is not None
    if telemetry is not None:
        telemetry.now = case["now"]
    pod = pod_from_object(pod_object("wanted", case["pod"]))
    wanted, mask = state.class_id(pod.pod_class), np.array(case["mask"])
    owner = case["pod"]["owner"]
    peers = Counter(case["pods"][i]["node"] for i in there if owner and case["pods"][i]["owner"] == owner)
    kept = mask
    if telemetry is not None:
        kept = sight.keep_limit(wanted, mask, peers, pod.latency)
    scores = {name: sight.scores(rule, wanted, kept, peers, pod.latency) for name, rule in OBJECTIVES.items()}
    return {
        "outcome": "no limit" if telemetry is None or not telemetry.limits else next(iter(telemetry.limits)),
        "scores": {name: [v if math.isfinite(v) else None for v in found.tolist()] for name, found in scores.items()},
    }


def _node_object(each: Json) -> Json:
    room = {"cpu": f"{each['cpu']}m", "memory": "64Gi", "pods": "110"}
    return {"metadata": {"name": each["name"]}, "status": {"allocatable": room}}


def _change(state: ClusterState, i: int, each: Json, runs: bool) -> None:
    if not runs:
        state.remove(f"default/pod-{i}")
        return
    pod = pod_from_object(pod_object(f"pod-{i}", each))
    state.place(f"default/pod-{i}", state.class_id(pod.pod_class), each["node"], None, state.labels_id(pod), force=True)


def read() -> list[Json]:
    """The cases with their answers."""
    found: list[Json] = json.loads(gzip.decompress(FILE.read_bytes()))
    return found


def draw(rng: np.random.Generator) -> Json:
    """A case."""
    count = int(rng.integers(1, 7))
    names = [f"node-{n}" for n in range(count)]
    now = float(rng.integers(1, 240))
    pods = [_pod(rng, count, now) for _ in range(rng.integers(0, 12))]
    annotations: dict[str, str] = {}
    if rng.random() < 0.75:
        annotations[str(rng.choice(LIMITS))] = str(
            rng.choice(["30", "60", " 100.5 ", "1e2", "none", "-1"], p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.1])
        )
    if rng.random() < 0.5:
        annotations["latencySoftConstraint"] = str(rng.integers(10, 100))
    if annotations and rng.random() < 0.5:
        annotations["steersman.dev/latency-user"] = str(rng.choice(["shops", "games", "nobody"], p=[0.6, 0.3, 0.1]))
    return {
        "nodes": [{"name": name, "cpu": int(rng.choice([4000, 8000, 16000, 3500]))} for name in names],
        "pods": pods,
        "now": now,
        "measured": bool(rng.random() < 0.9),
        "readings": [each for feature in MEASURED for name in names for each in _readings(rng, feature, name)],
        "whenStale": {feature: str(rng.choice(["last", "impute", "neutral"])) for feature in MEASURED},
        "assumptions": {
            "serviceMilliseconds": float(rng.choice([0, 2, 5])),
            "podLinkShare": float(rng.choice([0.02, 0.15])),
        },
        "pod": {
            "cpu": int(rng.choice([0, 250, 1000])),
            "owner": str(rng.choice(["", "web", "db"])),
            "annotations": annotations,
        },
        "mask": [bool(each) for each in rng.random(count) < 0.85],
    }


def _pod(rng: np.random.Generator, count: int, now: float) -> Json:
    """One that runs on a node: since before we look or later, for good or not. No two things happen at a time."""
    begin = float(-rng.integers(1, 100)) if rng.random() < 0.5 else round(float(rng.uniform(0.001, now)), 6)
    until = round(float(rng.uniform(max(begin, 0.001), now)), 6) if rng.random() < 0.25 else None
    return {
        "from": begin,
        "until": until,
        "node": int(rng.integers(0, count)),
        "cpu": int(rng.choice([100, 250, 1000])),
        "owner": str(rng.choice(["", "web", "db"])),
    }


def _readings(rng: np.random.Generator, feature: str, node: str) -> list[Json]:
    found = []
    for user in ("shops", "games") if feature == LATENCY else ("",):
        if rng.random() < 0.85:
            value = round(float(rng.uniform(0, MEASURED[feature])), 3)
            age = round(float(rng.uniform(0, 140 if rng.random() < 0.3 else 40)), 6)
            found.append({"feature": feature, "node": node, "user": user, "value": value, "age": age})
    return found


def main() -> None:
    """Write the file, without the time of day."""
    rng = np.random.default_rng(SEED)
    cases = [draw(rng) for _ in range(CASES)]
    content = json.dumps([case | answer(case) for case in cases], separators=(",", ":")).encode()
    FILE.write_bytes(gzip.compress(content, mtime=0))
    print(
        f"{FILE}: {len(cases)} cases, {FILE.stat().st_size} bytes", Counter(answer(case)["outcome"] for case in cases)
    )


if __name__ == "__main__":
    main()
