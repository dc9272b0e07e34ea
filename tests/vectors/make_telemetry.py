"""Writes telemetry.json.gz: what nodes are like, what was measured, a pod, and what ma, la, lc, p0 and the filter say.

`python -m tests.vectors.make_telemetry` makes the file anew; tests in Python and Go are held to it.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from steersman.cluster.latency import LatencyLimits
from steersman.cluster.model import Node, PodClass, Requests
from steersman.cluster.state import ClusterState
from steersman.policies.telemetry_policy import OBJECTIVES
from steersman.policies.telemetry_sight import Sight
from steersman.telemetry.prometheus.configuration import LATENCY, configuration
from steersman.telemetry.prometheus.readings import Found, Readings

FILE = Path(__file__).parent / "telemetry.json.gz"
CASES = 500
NOW, LATER = 200.0, 190.0
"""Seconds: of the decision, and when pods came whom no sample has seen."""
USERS = ("rome", "oslo")
# The features that decide.
RANGES = {
    "cpu_used_percent": (0.0, 100.0),
    "network_received_bytes_per_second": (0.0, 60e6),
    "tcp_connections": (0.0, 900.0),
    LATENCY: (1.0, 180.0),
}
Json = dict[str, Any]


class Case:
    """Telemetry as a case says.

    Args:
        said: the case.
    """

    def __init__(self, said: Mapping[str, Any]) -> None:
        self.configuration = configuration(
            {"features": {name: {"whenStale": how} for name, how in said["whenStale"].items()}}
        )
        self.readings, self.limits, self.now = Readings(self.configuration), Counter[str](), 0.0
        nodes = said["nodes"]
        self.state = ClusterState([Node(each["name"], each["cpuMilli"], 1 << 40, pods=110) for each in nodes])
        self._fill(nodes, "requestedThen", "podsThen", "before")
        self._sight = Sight(self.state, self)
        self.now = LATER
        for slot in self._fill(nodes, "requested", "pods", "since"):
            self._sight.changed(slot)
        self.now = NOW
        for each in nodes:
            for feature, found in each["values"].items():
                self.readings.take(feature, [Found(each["name"], "", found["value"], found["age"])], NOW)
            for user, found in each["latency"].items():
                self.readings.take(LATENCY, [Found(each["name"], user, found["value"], found["age"])], NOW)
        pod = said["pod"]
        self._pod = self.state.class_id(PodClass(Requests(cpu_milli=pod["cpuMilli"], memory_bytes=1 << 20)))
        self._limits = LatencyLimits(pod["soft"] or np.inf, pod["hard"] or np.inf, pod["user"])
        self._feasible = np.array([each["feasible"] for each in nodes])
        self._peers = {slot: each["siblings"] for slot, each in enumerate(nodes) if each["siblings"]}

    def clock(self) -> float:
        """See `telemetry_sight.Telemetry`."""
        return self.now

    def _fill(self, nodes: list[Json], requested: str, pods: str, name: str) -> list[int]:
        """Place pods until nodes have so many and so much is requested; the slots where some came."""
        changed = []
        free, count = self.state.arrays.free, self.state.arrays.allocatable[:, 2] - self.state.arrays.free[:, 2]
        for slot, each in enumerate(nodes):
            missing, left = each[pods] - int(count[slot]), each["cpuMilli"] - int(free[slot, 0])
            for i in range(missing):
                cpu = each[requested] - left if i == 0 else 0
                c = self.state.class_id(PodClass(Requests(cpu_milli=cpu)))
                self.state.place(f"{name}-{slot}-{i}", c, slot, force=True)
            if missing:
                changed.append(slot)
        return changed

    def answers(self) -> Json:
        """What the filter keeps, its outcome, and scores by policy of nodes that the pod fits on; null elsewhere."""
        kept, outcome = self._sight.keep_limit(self._pod, self._feasible, self._peers, self._limits)
        made: Json = {"outcome": outcome, "kept": kept.tolist(), "scores": {}}
        for name, rule in OBJECTIVES.items():
            scores = self._sight.scores(rule, self._pod, self._feasible, self._peers, self._limits)
            made["scores"][name] = [float(score) if np.isfinite(score) else None for score in scores]
        return made


def draw(rng: np.random.Generator) -> Json:
    """A case without answers."""
    count = int(rng.integers(2, 9))
    asked = [name for name in RANGES if rng.random() < 0.85]
    nodes = [_node(rng, i, asked) for i in range(count)]
    if not any(each["feasible"] for each in nodes):
        nodes[0]["feasible"] = True
    soft, hard = float(rng.integers(20, 100)), float(rng.integers(40, 160))
    return {
        "whenStale": {name: str(rng.choice(["last", "impute", "neutral"])) for name in RANGES if rng.random() < 0.5},
        "nodes": nodes,
        "pod": {
            "cpuMilli": int(rng.choice([100, 250, 1000, 4000])),
            "soft": soft if rng.random() < 0.7 else 0,
            "hard": hard if rng.random() < 0.7 else 0,
            "user": str(rng.choice(["", *USERS, "unheard-of"], p=[0.5, 0.22, 0.22, 0.06])),
        },
    }


def _node(rng: np.random.Generator, i: int, asked: list[str]) -> Json:
    cpu = int(rng.choice([4, 8, 16, 64])) * 1000
    pods = int(rng.integers(0, 12)) if rng.random() < 0.7 else 0
    requested = int(rng.integers(0, cpu // 2)) if pods else 0
    came = int(rng.integers(1, 4)) if rng.random() < 0.3 else 0
    values = {name: _value(rng, name) for name in asked if name != LATENCY and rng.random() < 0.9}
    users = USERS if LATENCY in asked else ()
    return {
        "name": f"n{i}",
        "cpuMilli": cpu,
        "requestedThen": requested,
        "podsThen": pods,
        "requested": requested + (int(rng.integers(0, cpu // 4)) if came else 0),
        "pods": pods + came,
        "siblings": int(rng.integers(0, pods + 1)) if rng.random() < 0.3 else 0,
        "feasible": bool(rng.random() < 0.85),
        "values": values,
        "latency": {user: _value(rng, LATENCY) for user in users if rng.random() < 0.9},
    }


def _value(rng: np.random.Generator, feature: str) -> Json:
    low, high = RANGES[feature]
    age = rng.uniform(20, 110) if rng.random() < 0.85 else rng.uniform(130, 1000)
    return {"value": round(float(rng.uniform(low, high)), 3), "age": round(float(age), 3)}


def make() -> Json:
    """All cases with their answers."""
    rng = np.random.default_rng(20)
    cases = [draw(rng) for _ in range(CASES)]
    return {"maxAgeSeconds": 120, "cases": [{**case, "answers": Case(case).answers()} for case in cases]}


def read() -> Json:
    """What the file holds."""
    content: Json = json.loads(gzip.decompress(FILE.read_bytes()))
    return content


if __name__ == "__main__":
    FILE.write_bytes(gzip.compress(json.dumps(make(), separators=(",", ":")).encode(), mtime=0))
