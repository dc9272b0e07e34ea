"""Compiled steps of the simulated cluster with telemetry where it runs in real time, driven by pods of a real cluster.

Everything is environment 0 of a `SimulatorState`. Times are seconds since the model began and never decrease.
"""

from __future__ import annotations

import numpy as np

from steersman.core.compiled import kernel
from steersman.core.random_numbers import mixed
from steersman.envs.latency import dynamics, measurements
from steersman.envs.latency.generator import draw_application, draw_pod_use, draw_zones
from steersman.envs.latency.measurements import count_up
from steersman.envs.latency.state import NEXT_LOAD, NOW, SATURATED, WORKLOAD, SimulatorState
from steersman.policies.node_metrics.arrays import POD
from steersman.workloads.generators.latency_settings import LatencySettings


@kernel
def draw_cluster(simulator: SimulatorState, settings: LatencySettings) -> None:
    """Draw where the zones are, and begin at time 0. The streams of random numbers are seeded."""
    draw_zones(simulator, settings, 0)


@kernel
def draw_use(simulator: SimulatorState, pod: int, kind: int, owner_seed: np.uint64, pod_seed: np.uint64) -> None:
    """Draw what a pod, whose requests are known, uses: of its Deployment from one seed, of itself from another."""
    # Only this stream is set: the same pod draws the same use, whenever it comes.
    simulator.rng[0, WORKLOAD] = mixed(owner_seed)
    use, connections = draw_application(simulator, 0, kind)
    simulator.rng[0, WORKLOAD] = mixed(pod_seed)
    draw_pod_use(simulator, 0, pod, kind, use, connections)


@kernel
def advance(simulator: SimulatorState, settings: LatencySettings, time: float) -> None:
    """Change the load as often as it changes until `time`."""
    while simulator.clock[0, NEXT_LOAD] <= time:
        dynamics.change_load(simulator, settings, 0)
    simulator.clock[0, NOW] = time


@kernel
def bind(simulator: SimulatorState, settings: LatencySettings, pod: int, n: int) -> int:
    """Bind a pod to node `n` now; return how its limits are kept, see `dynamics.bind`."""
    pods = simulator.scheduler_view.counts[0, POD]
    # `dynamics.bind` binds the current pod and moves on to the next; here pods come in any order.
    simulator.scheduler_view.counts[0, POD] = pod
    kept = dynamics.bind(simulator, settings, 0, n)
    simulator.scheduler_view.counts[0, POD] = pods
    return kept


@kernel
def unbind(simulator: SimulatorState, pod: int) -> None:
    """Remove a pod from its node now."""
    dynamics.unbind(simulator, 0, pod, simulator.clock[0, NOW])


@kernel
def sample(simulator: SimulatorState, settings: LatencySettings, n: int) -> None:
    """Sample node `n` now, see `measurements.scrape`."""
    measurements.scrape(simulator, settings, 0, n, simulator.clock[0, NOW])


@kernel
def take_note(simulator: SimulatorState, settings: LatencySettings) -> None:
    """Write the true state now into the totals of samples, as the only sample."""
    # SATURATED is the last column of samples; those of placements after it keep counting.
    for i in range(SATURATED + 1):
        simulator.total[0, i] = 0.0
    dynamics.take_note(simulator, settings, 0)


@kernel
def settle(simulator: SimulatorState, n: int) -> None:
    """Count up the counters of node `n`, before its capacity changes."""
    count_up(simulator, 0, n, simulator.clock[0, NOW])
