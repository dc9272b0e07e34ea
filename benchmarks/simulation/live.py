"""What `fgd` leaves in a cluster, in virtual time, next to what simulations of the same nodes and pods say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from tests.support.heterogeneous.replay import DrawReplay

from steersman.kubernetes.cache.cluster_cache import ClusterCache
from steersman.live.runtime import policy_manager

NODES, DRAWS, SEEDS = 200, range(12), range(8)
PATCHES: dict[str, dict[str, bool]] = {
    "": {},
    ", by-name": {"by_name": True},
    ", window-alone": {"window_alone": True},
    ", both": {"by_name": True, "window_alone": True},
}


def live_against_simulated() -> dict[str, Any]:
    """GPU allocation in percent on draws of `tests.support.heterogeneous`, and what each of two causes is worth.

    Nothing ran before in `burst`; in `day-before` a tenth of the pods came before, ran, and is gone. `by-name`: of
    equal scores the first node by name wins. `window-alone`: no generic pods are expected. STEERSMAN_BENCH_SEEDS
    chooses draws, such as 0,1, and STEERSMAN_BENCH_NODES their size.
    """
    named = os.environ.get("STEERSMAN_BENCH_SEEDS", "")
    nodes = int(os.environ.get("STEERSMAN_BENCH_NODES", NODES))
    rows: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        for seed in map(int, named.split(",")) if named else DRAWS:
            rows[f"draw-{seed}"] = row = _row(DrawReplay(nodes, seed, Path(folder)))
            print(f"  draw {seed}: {row}", flush=True)
    columns = next(iter(rows.values()))
    return {
        "nodes": nodes,
        "mean": {name: round(fmean(row[name] for row in rows.values()), 2) for name in columns},
    } | rows


def _row(replay: DrawReplay) -> dict[str, float]:
    simulated = [replay.simulated("fgd", [seed]) for seed in SEEDS]
    row = {"simulated": fmean(simulated), "simulated-deviation": stdev(simulated)}
    for name, changes in PATCHES.items():
        with _patched(**changes):
            row[f"burst{name}"] = replay.live("fgd")
            row[f"day-before{name}"] = replay.live("fgd", day_before=True)
    return {name: round(value, 1) for name, value in row.items()}


@contextmanager
def _patched(*, by_name: bool = False, window_alone: bool = False) -> Iterator[None]:
    """Disable ranked nodes, generic pods, or both."""
    with ExitStack() as stack:
        if by_name:
            stack.enter_context(patch.object(ClusterCache, "rank_nodes", lambda _: None))
        if window_alone:
            stack.enter_context(patch.object(policy_manager, "GENERIC_KINDS", 0))
        yield
