"""The score service with and without a hostile client, in turns: what others get, how long it takes, what it keeps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.service.api_server import pod_object
from benchmarks.service.load import CLASSES, Service, served

NODES, PODS = 1_000, 10_000
SECONDS, PHASE_SECONDS = 600, 15
"""Of all phases together, and of each."""
RATE, HOSTILE_RATE = 100, 50
"""Requests a second of the honest client, and of the hostile one."""
DEADLINE_MILLISECONDS = 10_000
"""So late that nothing is neutral because of it: whatever the hostile client asks costs what it can."""


def hostile() -> dict[str, Any]:
    """Latency, scores and memory of a service beside a hostile client, each pair of phases without it and with it."""
    seconds = int(os.environ.get("STEERSMAN_BENCH_SECONDS", SECONDS))
    policy = os.environ.get("STEERSMAN_BENCH_POLICY", "steersman")
    return {"policy": policy} | measure(policy, NODES, PODS, max(2, seconds // (2 * PHASE_SECONDS)), PHASE_SECONDS)


def measure(policy: str, nodes: int, pods: int, pairs: int, phase: float) -> dict[str, Any]:
    """Measure on a cluster of any size, in pairs of phases of so many seconds; the first pair only warms up."""
    calm, attacked, ratios, memory = [], [], [], []
    statuses, failed = Counter[str](), 0
    patient = ("--deadline", str(DEADLINE_MILLISECONDS))
    with TemporaryDirectory() as folder, served(Path(folder), nodes, pods, policy, *patient, changes=0) as service:
        first = service.ask({"pod": pod_object(0)})
        questions = [{"pod": pod_object(i), "nodeSet": first["nodeSet"]} for i in range(CLASSES)]
        bodies = [json.dumps(each, separators=(",", ":")) for each in questions]
        before = _scores(service, questions)
        assert not any(neutral for _, neutral in before), "the honest client gets scores"
        changed = 0
        for pair in range(pairs + 1):
            alone = _percentiles(service.load(bodies, RATE, int(RATE * phase)))
            command = [
                sys.executable,
                "-m",
                "benchmarks.service.hostile_client",
                str(service.port),
                str(HOSTILE_RATE),
            ]
            command += [str(phase + 1.0), str(int(pair * phase * HOSTILE_RATE * 2))]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:
                said = service.load(bodies, RATE, int(RATE * phase))
                answered = json.loads(attacker.communicate()[0])
            changed += _scores(service, questions) != before
            memory.append(_resident(service.process.pid))
            if pair:
                beside = _percentiles(said)
                calm.append(alone)
                attacked.append(beside)
                ratios.append([b / a for a, b in zip(alone, beside, strict=True)])
                statuses.update(answered)
                failed += sum(n for status, n in said["statuses"].items() if status != "200")
    middle = np.median(np.array([calm, attacked]), axis=1).round(2)
    ratio = np.array(ratios)
    return {
        "nodes": nodes,
        "pods": pods,
        "pairs": pairs,
        "hostile_requests": sum(statuses.values()),
        "hostile_answers": dict(sorted(statuses.items())),
        "scores_changed": changed,
        "failed": failed,
        "calm_ms_median": middle[0, 0],
        "calm_ms_p99": middle[0, 1],
        "attacked_ms_median": middle[1, 0],
        "attacked_ms_p99": middle[1, 1],
        "ratio_median": round(float(np.median(ratio[:, 0])), 2),
        "ratio_p99": round(float(np.median(ratio[:, 1])), 2),
        "ratio_p99_range": [round(float(each), 2) for each in (ratio[:, 1].min(), ratio[:, 1].max())],
        "memory_mb": [round(each / 1e6) for each in (memory[0], max(memory), memory[-1])],
    }


def _percentiles(said: dict[str, Any]) -> tuple[float, float]:
    milliseconds = said["milliseconds"]
    return float(np.median(milliseconds)), float(np.percentile(milliseconds, 99))


def _scores(service: Service, questions: list[dict[str, Any]]) -> list[Any]:
    """Return the answers of the honest client: scores, and why they are neutral."""
    answers = [service.ask(each) for each in questions[::6]]
    return [(each["scores"], each["neutral"]) for each in answers]


def _resident(pid: int) -> int:
    """Bytes that a process has in memory now."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
