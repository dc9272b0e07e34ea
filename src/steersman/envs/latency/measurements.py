"""Measurements of the cluster as by Prometheus with node-exporter: samples, rates, failed scrapes and their age."""

from __future__ import annotations

import math

import numpy as np

from steersman.cluster.arrays import MEMORY
from steersman.cluster.node_metrics import (
    AGE_LIMIT,
    CONNECTIONS,
    CPU_USED,
    FILESYSTEM_USED,
    LATENCY,
    MEMORY_AVAILABLE,
    NETWORK_RECEIVED,
    RUNNING_PODS,
)
from steersman.core.compiled import inlined_kernel
from steersman.core.random_numbers import exponential, normal, uniform
from steersman.envs.latency.state import (
    COUNTERS,
    CPU_SECONDS,
    MEASURING,
    NETWORK_BYTES,
    NEVER,
    NODE_SAMPLE,
    NOW,
    PROBE_SAMPLE,
    REQUEST_SECONDS,
    RING,
    USE_FILESYSTEM,
    USE_MEMORY,
    SimulatorState,
)
from steersman.envs.latency.truth import connections, cpu_used, latency, network
from steersman.policies.node_metrics.arrays import NODES, PODS_SINCE, REQUESTED_SINCE
from steersman.policies.node_metrics.requests import cpu_allocatable, cpu_requested, row_of, running
from steersman.workloads.generators.latency_settings import (
    NODE_FILESYSTEM,
    SYSTEM_FILESYSTEM,
    SYSTEM_MEMORY,
    LatencySettings,
)

IRATE_WINDOW = 60.0
RATE_WINDOW = 300.0
"""Seconds: `irate(...[1m])` of CPU and `rate(...[5m])` of traffic, the queries of Matranga's thesis."""
OUTAGE = 4.0
"""Mean length of an outage in scrapes."""
PINGS_ROOT = math.sqrt(50.0)
"""A probe is the mean of 50 pings, as in Matranga's thesis: its error is that of a sample by the root of 50."""
PROBE_LOST = 0.02
"""Probability that only a probe of latencies is lost."""


@inlined_kernel
def count_up(simulator: SimulatorState, e: int, n: int, time: float) -> None:
    """Update the counters of node `n` to `time`; call it before anything about the node changes."""
    passed = time - simulator.counted[e, n]
    simulator.counted[e, n] = time
    simulator.counter[e, n, CPU_SECONDS] += passed * cpu_used(simulator, e, n)
    simulator.counter[e, n, NETWORK_BYTES] += passed * network(simulator, e, n)
    simulator.counter[e, n, REQUEST_SECONDS] += passed * cpu_requested(simulator.scheduler_view, e, n)


@inlined_kernel
def scrape(simulator: SimulatorState, settings: LatencySettings, e: int, n: int, time: float) -> None:
    """Sample node `n`, unless it is unreachable. The same random numbers are drawn in either case."""
    chance, length = uniform(simulator.rng, e, MEASURING), exponential(simulator.rng, e, MEASURING)
    lost = uniform(simulator.rng, e, MEASURING) < PROBE_LOST
    if simulator.down[e, n] > 0:
        simulator.down[e, n] -= 1
    elif chance < settings.missed:
        # The outage in further scrapes; -1 makes this one fail even if it is 0.
        simulator.down[e, n] = int(OUTAGE * length)
        chance = -1.0
    failed = simulator.down[e, n] > 0 or chance < 0.0
    count_up(simulator, e, n, time)
    if not failed:
        _sample_counters(simulator, e, n, time)
    _sample_gauges(simulator, settings, e, n, failed)
    for user in range(settings.zones):
        error = normal(simulator.rng, e, MEASURING)
        true = latency(simulator, settings, e, n, user, 0.0, 0.0)
        # Scaled by the error: a noisier value, but never a negative one.
        simulator.gauge[e, n, LATENCY + user] = (
            np.nan if failed or lost else true * _error(settings, error / PINGS_ROOT)
        )
    if not failed:
        simulator.sampled[e, n, NODE_SAMPLE] = time
        simulator.gauge_pods[e, n] = running(simulator.scheduler_view, e, n)
        if not lost:
            simulator.sampled[e, n, PROBE_SAMPLE] = time


@inlined_kernel
def _sample_counters(simulator: SimulatorState, e: int, n: int, time: float) -> None:
    k = simulator.rings[e, n] % RING
    simulator.rings[e, n] += 1
    simulator.ring[e, n, k, 0] = time
    for i in range(COUNTERS):
        simulator.ring[e, n, k, 1 + i] = simulator.counter[e, n, i]


@inlined_kernel
def _sample_gauges(simulator: SimulatorState, settings: LatencySettings, e: int, n: int, failed: bool) -> None:
    """Sample the gauges. Prometheus marks a metric as stale when a scrape fails, so no old value is left."""
    memory, disk = 0, SYSTEM_FILESYSTEM
    for z in range(simulator.node_use.shape[2]):
        memory += simulator.node_use[e, n, z, USE_MEMORY]
        disk += simulator.node_use[e, n, z, USE_FILESYSTEM]
    total = simulator.scheduler_view.nodes.allocatable[row_of(simulator.scheduler_view, e, n), MEMORY]
    error = _error(settings, normal(simulator.rng, e, MEASURING))
    count = _error(settings, normal(simulator.rng, e, MEASURING)) * connections(simulator, e, n)
    gauge = simulator.gauge
    gauge[e, n, MEMORY_AVAILABLE] = np.nan if failed else max(total - (memory + SYSTEM_MEMORY) * error, 0.0)
    gauge[e, n, FILESYSTEM_USED] = np.nan if failed else min(100.0 * disk / NODE_FILESYSTEM, 100.0)
    gauge[e, n, CONNECTIONS] = np.nan if failed else np.rint(count)
    gauge[e, n, RUNNING_PODS] = np.nan if failed else float(running(simulator.scheduler_view, e, n))
    # The error of the CPU metric is drawn with the sample, so that asking twice gives the same answer.
    gauge[e, n, CPU_USED] = _error(settings, normal(simulator.rng, e, MEASURING))


@inlined_kernel
def _error(settings: LatencySettings, error: float) -> float:
    return max(1.0 + settings.noise * error, 0.0)


@inlined_kernel
def observe(simulator: SimulatorState, e: int) -> None:
    """Answer the queries now: fill `view.measured`, `view.age` and `view.since` of environment `e`."""
    now = simulator.clock[e, NOW]
    measured, age, since = (
        simulator.scheduler_view.measured,
        simulator.scheduler_view.age,
        simulator.scheduler_view.since,
    )
    for n in range(simulator.scheduler_view.counts[e, NODES]):
        for m in range(measured.shape[2]):
            sampled = simulator.sampled[e, n, PROBE_SAMPLE if m >= LATENCY else NODE_SAMPLE]
            # The age counts from the last sample that succeeded, also where the value is missing by now.
            age[e, n, m] = min(now - sampled, AGE_LIMIT) if sampled != NEVER else AGE_LIMIT
            measured[e, n, m] = simulator.gauge[e, n, m]
        before = _irate_start(simulator, e, n, now)
        # Both are rates, which the ring gives, if it holds enough samples.
        measured[e, n, CPU_USED] = measured[e, n, NETWORK_RECEIVED] = np.nan
        since[e, n, REQUESTED_SINCE] = 0.0
        if before >= 0:
            last = (simulator.rings[e, n] - 1) % RING
            cpu = _slope(simulator, e, n, before, last, CPU_SECONDS) / cpu_allocatable(simulator.scheduler_view, e, n)
            measured[e, n, CPU_USED] = min(100.0 * cpu * simulator.gauge[e, n, CPU_USED], 100.0)
            average = _slope(simulator, e, n, before, last, REQUEST_SECONDS)
            since[e, n, REQUESTED_SINCE] = cpu_requested(simulator.scheduler_view, e, n) - average
        first = _rate_start(simulator, e, n, now)
        if first >= 0:
            last = (simulator.rings[e, n] - 1) % RING
            measured[e, n, NETWORK_RECEIVED] = _slope(simulator, e, n, first, last, NETWORK_BYTES)
        since[e, n, PODS_SINCE] = running(simulator.scheduler_view, e, n) - simulator.gauge_pods[e, n]


@inlined_kernel
def _slope(simulator: SimulatorState, e: int, n: int, first: int, last: int, counter: int) -> float:
    """Return the increase of a counter per second between two samples."""
    ring = simulator.ring
    return float(
        (ring[e, n, last, 1 + counter] - ring[e, n, first, 1 + counter]) / (ring[e, n, last, 0] - ring[e, n, first, 0])
    )


@inlined_kernel
def _irate_start(simulator: SimulatorState, e: int, n: int, now: float) -> int:
    """Return the last sample but one, if two lie within a minute, else -1: `irate` is the slope of the last two."""
    if simulator.rings[e, n] < 2:
        return -1
    k = (simulator.rings[e, n] - 2) % RING
    return k if simulator.ring[e, n, k, 0] >= now - IRATE_WINDOW else -1


@inlined_kernel
def _rate_start(simulator: SimulatorState, e: int, n: int, now: float) -> int:
    """Return the first sample within five minutes, if there are two, else -1."""
    count = simulator.rings[e, n]
    # From the oldest on; at least two samples, since a rate needs two.
    for back in range(min(count, RING), 1, -1):
        k = (count - back) % RING
        if simulator.ring[e, n, k, 0] >= now - RATE_WINDOW:
            return int(k)
    return -1
