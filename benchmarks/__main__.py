"""`python -m benchmarks [NAME...]`: run the benchmarks, print them, and keep them in benchmarks/results.json."""

from __future__ import annotations

import json
import sys
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
RESULTS = Path(__file__).with_name("results.json")


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"error: no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names or BENCHMARKS:
        print(f"{name} ...", flush=True)
        results[name] = BENCHMARKS[name]()
        for key, value in results[name].items():
            print(f"  {key} = {value}", flush=True)
        RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
