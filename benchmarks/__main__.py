"""Run the benchmarks, and keep their figures in benchmarks/results.json: `python -m benchmarks [NAME...]`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.parity import comparison

from benchmarks.live import (
    dashboard,
    frozen_leader,
    heterogeneous,
    hostile_pods,
    large,
    plugin,
    rate,
    reality,
    scaling,
    unschedulable,
    waking,
)
from benchmarks.scaling import engines, gradients
from benchmarks.service import hostile, load
from benchmarks.simulation import coverage, environments, learning, live, orders, simulator, waits

BENCHMARKS: dict[str, Callable[[], dict[str, Any]]] = {
    "fgd-run": simulator.fgd_run,
    "core-run": simulator.core_run,
    "start": simulator.start,
    "growth": simulator.growth,
    "published-grid": simulator.published_grid,
    "order-cost": orders.order_cost,
    "million-pods": orders.million_pods,
    "wait-calibration": waits.wait_calibration,
    "wait-calibration-trace": waits.wait_calibration_trace,
    "wait-speed": waits.wait_speed,
    "interval-coverage": coverage.interval_coverage,
    "learned-run": learning.learned_run,
    "evolution": learning.evolution,
    "ray-scaling": engines.ray_scaling,
    "rollout-share": gradients.rollout_share,
    "deployments-env": environments.deployments_env,
    "inflation-env": environments.inflation_env,
    "schedule-rate": rate.schedule_rate,
    "large-cluster": large.large_cluster,
    "large-live": large.large_live,
    "dashboard-live": dashboard.dashboard_live,
    "dashboard-frames": dashboard.dashboard_frames,
    "unschedulable": unschedulable.unschedulable,
    "frozen-leader": frozen_leader.frozen_leader,
    "parity": comparison.benchmark,
    "plugin-native": plugin.plugin_native,
    "plugin-service": plugin.plugin_service,
    "plugin-breaker": plugin.plugin_breaker,
    "extender-rate": load.extender_rate,
    "service-latency": load.latency,
    "service-hostile": hostile.hostile,
    "heterogeneous": heterogeneous.heterogeneous,
    "live-against-simulated": live.live_against_simulated,
    "reality": reality.simulation_equals_reality,
}
IN_PARTS: dict[str, Callable[[dict[str, Any], str], Iterator[dict[str, Any]]]] = {
    "scaling": scaling.scaling,
    "waking": waking.waking,
    "hostile-pods": hostile_pods.hostile_pods,
}
"""Benchmarks of many scenarios. They take the results so far and `--only`, and yield the results after each."""
DESCRIPTION = "Run the benchmarks, and keep their figures in benchmarks/results.json."
RESULTS = Path(__file__).with_name("results.json")


def main() -> None:
    """Run the named benchmarks, or all."""
    known = (*BENCHMARKS, *IN_PARTS)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=DESCRIPTION)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; all if left out")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help=f"run the scenarios with this in their names ({', '.join(IN_PARTS)})"
    )
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"{unknown[0]!r} is not a benchmark; expected one of {', '.join(known)}")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in options.names or known:
        print(f"{name} ...", flush=True)
        parts = IN_PARTS[name](results.get(name, {}), options.only) if name in IN_PARTS else [BENCHMARKS[name]()]
        for results[name] in parts:
            RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
        for key, value in results[name].items():
            print(f"  {key} = {value}", flush=True)


if __name__ == "__main__":
    main()
