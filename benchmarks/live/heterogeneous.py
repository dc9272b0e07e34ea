"""Schedulers beside each other on a live cluster of unequal GPU nodes, with pods of controllers and constraints."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.heterogeneous.cluster import Draw, Outcome, fit, play

NODES, SEEDS, GENERATIONS = 200, (0, 1, 2), 100


def heterogeneous() -> dict[str, Any]:
    """GPUs in use after the same creations on a fresh cluster, by scheduler, and violations by an independent checker.

    Each draw is played by kube-scheduler as it comes (`stock`), by `fgd`, by the shipped policy and by one that was
    fitted to the nodes and to a tenth of the pods (`fitted`). For the last three that tenth waited when they were
    started, ran, and was gone when the pods came: so the shipped policy had been compared on such pods, and who was
    better there decided from the first one on. Nothing ran before in `fgd-burst` and `steersman-burst`: there `fgd`
    decides until the burst is over, by a mix of what came so far.

    STEERSMAN_BENCH_SEEDS chooses the draws, such as 0,1.
    """
    seeds = tuple(map(int, os.environ.get("STEERSMAN_BENCH_SEEDS", ",".join(map(str, SEEDS))).split(",")))
    results: dict[str, Any] = {"nodes": NODES, "seeds": list(seeds), "generations": GENERATIONS}
    for seed in seeds:
        draw = Draw(NODES, seed)
        with TemporaryDirectory() as folder:
            fitted = str(fit(draw, Path(folder), GENERATIONS))
            rows = {
                "stock": _played(draw, "", day_before=False),
                "fgd": _played(draw, "fgd", day_before=True),
                "steersman": _played(draw, "steersman", day_before=True),
                "fgd-burst": _played(draw, "fgd", day_before=False),
                "steersman-burst": _played(draw, "steersman", day_before=False),
                "fitted": _played(draw, fitted, day_before=True),
            }
        results[f"draw-{seed}"] = rows
    return results


def _played(draw: Draw, policy: str, *, day_before: bool) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        result = play(draw, Path(folder), policy, day_before=day_before)
    row = _row(result)
    print(f"  draw {draw.seed}, {Path(policy).stem or 'stock'}: {row}", flush=True)
    return row


def _row(outcome: Outcome) -> dict[str, Any]:
    row: dict[str, Any] = {
        "gpus": outcome.gpus,
        "gpus_in_use": outcome.gpus_in_use,
        "pods": outcome.pods,
        "pods_bound": outcome.bound,
        "violations": len(outcome.violations),
        "violations_by_kind": outcome.violations_by_kind,
        "seconds": round(outcome.seconds, 1),
    }
    return row | ({"deciders": outcome.deciders} if outcome.deciders else {})
