"""How the cluster is measured, as Prometheus does with node-exporter: samples, rates, failed scrapes and their age."""

from __future__ import annotations

import math

import numpy as np

from steersman.cluster.arrays import MEMORY
from steersman.compiled import inner
from steersman.telemetry.model import (
    AGE_LIMIT,
    CONNECTIONS,
    COUNTERS,
    CPU_SECONDS,
    CPU_USED,
    FILESYSTEM_USED,
    LATENCY,
    MEASURING,
    MEMORY_AVAILABLE,
    NETWORK_BYTES,
    NETWORK_RECEIVED,
    NEVER,
    NODE_SAMPLE,
    NODES,
    NOW,
    PODS_SINCE,
    PROBE_SAMPLE,
    REQUEST_SECONDS,
    REQUESTED_SINCE,
    RING,
    RUNNING_PODS,
    USE_FILESYSTEM,
    USE_MEMORY,
    World,
)
from steersman.telemetry.randomness import exponential, normal, uniform
from steersman.telemetry.requests import capacity, requested, row_of, running
from steersman.telemetry.settings import NODE_FILESYSTEM, SYSTEM_FILESYSTEM, SYSTEM_MEMORY, Settings
from steersman.telemetry.truth import connections, cpu_used, latency, network

IRATE_WINDOW = 60.0
RATE_WINDOW = 300.0
"""Seconds: `irate(...[1m])` of CPU and `rate(...[5m])` of traffic, reference C's queries."""
OUTAGE = 4.0
"""Scrapes that an outage lasts on average."""
PINGS_ROOT = math.sqrt(50.0)
"""A probe is the mean of 50 pings, as in reference C: its error is that of a sample by the root of 50."""
PROBE_LOST = 0.02
"""Chance that a probe of latencies alone is lost."""


@inner
def count_up(world: World, e: int, n: int, time: float) -> None:
    """Bring the counters of node `n` up to `time`; call it before anything about the node changes."""
    passed = time - world.counted[e, n]
    world.counted[e, n] = time
    world.counter[e, n, CPU_SECONDS] += passed * cpu_used(world, e, n)
    world.counter[e, n, NETWORK_BYTES] += passed * network(world, e, n)
    world.counter[e, n, REQUEST_SECONDS] += passed * requested(world.seen, e, n)


@inner
def scrape(world: World, settings: Settings, e: int, n: int, time: float) -> None:
    """Sample node `n`, unless it cannot be reached. The same random numbers are drawn whatever happens."""
    chance, length = uniform(world.rng, e, MEASURING), exponential(world.rng, e, MEASURING)
    lost = uniform(world.rng, e, MEASURING) < PROBE_LOST
    if world.down[e, n] > 0:
        world.down[e, n] -= 1
    elif chance < settings.missed:
        world.down[e, n] = int(OUTAGE * length)
        chance = -1.0
    failed = world.down[e, n] > 0 or chance < 0.0
    count_up(world, e, n, time)
    if not failed:
        _sample_counters(world, e, n, time)
    _sample_gauges(world, settings, e, n, failed)
    for user in range(settings.zones):
        error = normal(world.rng, e, MEASURING)
        true = latency(world, settings, e, n, user, 0.0, 0.0)
        world.gauge[e, n, LATENCY + user] = np.nan if failed or lost else true * _error(settings, error / PINGS_ROOT)
    if not failed:
        world.sampled[e, n, NODE_SAMPLE] = time
        world.gauge_pods[e, n] = running(world.seen, e, n)
        if not lost:
            world.sampled[e, n, PROBE_SAMPLE] = time


@inner
def _sample_counters(world: World, e: int, n: int, time: float) -> None:
    k = world.rings[e, n] % RING
    world.rings[e, n] += 1
    world.ring[e, n, k, 0] = time
    for i in range(COUNTERS):
        world.ring[e, n, k, 1 + i] = world.counter[e, n, i]


@inner
def _sample_gauges(world: World, settings: Settings, e: int, n: int, failed: bool) -> None:
    """What is sampled as it is. Prometheus marks a metric as gone when a scrape fails, so no old value is left."""
    memory, disk = 0, SYSTEM_FILESYSTEM
    for z in range(world.node_use.shape[2]):
        memory += world.node_use[e, n, z, USE_MEMORY]
        disk += world.node_use[e, n, z, USE_FILESYSTEM]
    total = world.seen.nodes.allocatable[row_of(world.seen, e, n), MEMORY]
    error = _error(settings, normal(world.rng, e, MEASURING))
    count = _error(settings, normal(world.rng, e, MEASURING)) * connections(world, e, n)
    gauge = world.gauge
    gauge[e, n, MEMORY_AVAILABLE] = np.nan if failed else max(total - (memory + SYSTEM_MEMORY) * error, 0.0)
    gauge[e, n, FILESYSTEM_USED] = np.nan if failed else min(100.0 * disk / NODE_FILESYSTEM, 100.0)
    gauge[e, n, CONNECTIONS] = np.nan if failed else np.rint(count)
    gauge[e, n, RUNNING_PODS] = np.nan if failed else float(running(world.seen, e, n))
    # The error of the CPU metric is drawn with the sample, so that asking twice gives the same answer.
    gauge[e, n, CPU_USED] = _error(settings, normal(world.rng, e, MEASURING))


@inner
def _error(settings: Settings, error: float) -> float:
    return max(1.0 + settings.noise * error, 0.0)


@inner
def observe(world: World, e: int) -> None:
    """Answer the queries now: fill `seen.measured`, `seen.age` and `seen.since` of environment `e`."""
    now = world.clock[e, NOW]
    measured, age, since = world.seen.measured, world.seen.age, world.seen.since
    for n in range(world.seen.counts[e, NODES]):
        for m in range(measured.shape[2]):
            sampled = world.sampled[e, n, PROBE_SAMPLE if m >= LATENCY else NODE_SAMPLE]
            age[e, n, m] = min(now - sampled, AGE_LIMIT) if sampled != NEVER else AGE_LIMIT
            measured[e, n, m] = world.gauge[e, n, m]
        before = _irate_start(world, e, n, now)
        measured[e, n, CPU_USED] = measured[e, n, NETWORK_RECEIVED] = np.nan
        since[e, n, REQUESTED_SINCE] = 0.0
        if before >= 0:
            last = (world.rings[e, n] - 1) % RING
            cpu = _slope(world, e, n, before, last, CPU_SECONDS) / capacity(world.seen, e, n)
            measured[e, n, CPU_USED] = min(100.0 * cpu * world.gauge[e, n, CPU_USED], 100.0)
            average = _slope(world, e, n, before, last, REQUEST_SECONDS)
            since[e, n, REQUESTED_SINCE] = requested(world.seen, e, n) - average
        first = _rate_start(world, e, n, now)
        if first >= 0:
            last = (world.rings[e, n] - 1) % RING
            measured[e, n, NETWORK_RECEIVED] = _slope(world, e, n, first, last, NETWORK_BYTES)
        since[e, n, PODS_SINCE] = running(world.seen, e, n) - world.gauge_pods[e, n]


@inner
def _slope(world: World, e: int, n: int, first: int, last: int, counter: int) -> float:
    """Increase of a counter a second between two samples."""
    ring = world.ring
    return float(
        (ring[e, n, last, 1 + counter] - ring[e, n, first, 1 + counter]) / (ring[e, n, last, 0] - ring[e, n, first, 0])
    )


@inner
def _irate_start(world: World, e: int, n: int, now: float) -> int:
    """The last sample but one, if two lie within a minute, else -1: `irate` is the slope between the last two."""
    if world.rings[e, n] < 2:
        return -1
    k = (world.rings[e, n] - 2) % RING
    return k if world.ring[e, n, k, 0] >= now - IRATE_WINDOW else -1


@inner
def _rate_start(world: World, e: int, n: int, now: float) -> int:
    """The first sample within five minutes, if there are two, else -1."""
    count = world.rings[e, n]
    for back in range(min(count, RING), 1, -1):
        k = (count - back) % RING
        if world.ring[e, n, k, 0] >= now - RATE_WINDOW:
            return int(k)
    return -1
