"""A frozen leader that goes on after another has taken over: pods over capacity, beside kube-scheduler."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.frozen_leader import ROOM, FrozenLeaderResult, FrozenLeaderTrial, Kind, as_json

from benchmarks.live.rate import local_cluster
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import load

TRIALS, CONCURRENT = 20, 4
SERIES: dict[str, tuple[Kind, bool]] = {
    "steersman-shares": ("shares", False),
    "steersman-cpu": ("cpu", False),
    "kube-scheduler-cpu": ("cpu", True),
}
"""What is scarce, and whether kube-scheduler decides."""


def frozen_leader() -> dict[str, Any]:
    """Pods and devices over capacity after a leader was frozen with bindings under way, in 20 trials each.

    The leader is stopped (SIGSTOP) in the middle of a burst of 300 pods of which 96 fit. Another takes over and fills
    the room; then the first goes on (SIGCONT). STEERSMAN_BENCH_TRIALS is the number of trials.
    """
    trials = int(os.environ.get("STEERSMAN_BENCH_TRIALS", TRIALS))
    with TemporaryDirectory() as folder, local_cluster(Path(folder), 1) as (kubeconfig, programs):
        return asyncio.run(_all_series(trials, Path(folder), kubeconfig, programs / "kube-scheduler"))


async def _all_series(trials: int, folder: Path, kubeconfig: Path, kube_scheduler: Path) -> dict[str, Any]:
    rows: dict[str, Any] = {"pods_that_fit": ROOM}
    async with Client(load(kubeconfig)) as client:
        for name, (kind, is_stock) in SERIES.items():
            results: list[FrozenLeaderResult] = []
            for first in range(0, trials, CONCURRENT):
                lanes = [f"{name}-{i}" for i in range(first, min(first + CONCURRENT, trials))]
                program = kube_scheduler if is_stock else None
                runs = (FrozenLeaderTrial(client, kubeconfig, folder, lane, kind, program).run() for lane in lanes)
                results += await asyncio.gather(*runs)
                for lane, result in zip(lanes, results[first:], strict=True):
                    print(f"  {lane}: {as_json(result)}", flush=True)
            rows[name] = {
                "trials": trials,
                "trials_over_capacity": sum(result.over > 0 for result in results),
                "over_capacity": sum(result.over for result in results),
                "pods_beyond_the_room": sum(max(0, result.bound - ROOM) for result in results),
                "late_bindings": sum(result.late for result in results),
                "worst_milli": max(result.worst for result in results),
                "bound_when_frozen": [result.bound_before for result in results],
            }
    return rows
