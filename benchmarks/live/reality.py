"""Simulation beside reality at full size: openb inflated to 130 % through kube-scheduler with the native plugin."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support import reality
from tests.support.servers.plugin_scheduler import plugged_scheduler

POLICIES = ("fgd", "steersman")


def simulation_equals_reality() -> dict[str, Any]:
    """GPU allocation by `steersman simulate` and by kube-scheduler on 1,213 nodes, and how many pods went the same way.

    STEERSMAN_BENCH_POLICY chooses one policy; STEERSMAN_BENCH_EVERY takes one node in so many.
    """
    chosen = os.environ.get("STEERSMAN_BENCH_POLICY")
    every = int(os.environ.get("STEERSMAN_BENCH_EVERY", "1"))
    program = plugged_scheduler()
    results: dict[str, Any] = {}
    for policy in [chosen] if chosen else POLICIES:
        with TemporaryDirectory() as made:
            folder = Path(made)
            nodes = reality.some_nodes(folder, every)
            with reality.cluster_of(folder, nodes) as kubeconfig:
                compare = reality.compare(program, kubeconfig, folder, nodes, policy)
        print(f"  {policy}: {compare}", flush=True)
        assert not compare.wrong, compare.wrong[0]
        assert not compare.out_of_order
        results["nodes"], results["pods"] = len(nodes.names), compare.pods
        results[policy] = {
            "simulated_gpu_allocation_percent": round(compare.simulated, 3),
            "real_gpu_allocation_percent": round(compare.real, 3),
            "pods_bound_simulated": compare.simulated_bound,
            "pods_bound_real": compare.real_bound,
            "pods_with_same_fate": compare.same_fate,
            "pods_on_same_node": compare.same_node,
            "pods_on_same_devices": compare.same_devices,
            "fullest_device_milli": compare.fullest_device,
            "seconds": round(compare.seconds, 1),
        }
    return results
