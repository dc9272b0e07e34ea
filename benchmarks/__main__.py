"""Run the benchmarks, and keep their figures in benchmarks/results.json: `python -m benchmarks [NAME...]`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests.support.parity import comparison

from benchmarks.live import (
    dashboard,
    frozen_leader,
    heterogeneous,
    large,
    listing,
    plugin,
    rate,
    reality,
    unschedulable,
    waking,
)
from benchmarks.service import hostile, load
from benchmarks.simulation import environments, learning, simulator

BENCHMARKS = {
    "fgd-run": simulator.fgd_run,
    "start": simulator.start,
    "growth": simulator.growth,
    "published-grid": simulator.published_grid,
    "learned-run": learning.learned_run,
    "evolution": learning.evolution,
    "deployments-env": environments.deployments_env,
    "inflation-env": environments.inflation_env,
    "schedule-rate": rate.schedule_rate,
    "large-cluster": large.large_cluster,
    "large-live": large.large_live,
    "listing": listing.listing,
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
    "waking": waking.waking,
    "heterogeneous": heterogeneous.heterogeneous,
    "reality": reality.simulation_equals_reality,
}
DESCRIPTION = "Run the benchmarks, and keep their figures in benchmarks/results.json."
RESULTS = Path(__file__).with_name("results.json")


def main() -> None:
    """Run the named benchmarks, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=DESCRIPTION)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all if left out")
    names = parser.parse_args().names
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"{unknown[0]!r} is not a benchmark; expected one of {', '.join(BENCHMARKS)}")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names or BENCHMARKS:
        print(f"{name} ...", flush=True)
        results[name] = BENCHMARKS[name]()
        for key, value in results[name].items():
            print(f"  {key} = {value}", flush=True)
        RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
