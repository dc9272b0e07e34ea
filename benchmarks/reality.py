"""Simulation beside reality at full size: openb inflated to 130 % through kube-scheduler with the native plugin."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.e2e import reality
from tests.e2e.plugin_build import plugged_scheduler

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
                found = reality.compare(program, kubeconfig, folder, nodes, policy)
        print(f"  {policy}: {found}", flush=True)
        assert not found.wrong, found.wrong[0]
        assert not found.out_of_order
        results["nodes"], results["pods"] = len(nodes.names), found.pods
        results[policy] = {
            "simulated_gpu_allocation_percent": round(found.simulated, 3),
            "real_gpu_allocation_percent": round(found.real, 3),
            "pods_bound_simulated": found.simulated_bound,
            "pods_bound_real": found.real_bound,
            "pods_with_same_fate": found.same_fate,
            "pods_on_same_node": found.same_node,
            "pods_on_same_devices": found.same_devices,
            "fullest_device_milli": found.fullest_device,
            "seconds": round(found.seconds, 1),
        }
    return results
