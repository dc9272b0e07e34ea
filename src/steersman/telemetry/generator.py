"""The start of an episode: a cluster, its zones, and the pods that will arrive, drawn from a seed in compiled code."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, PODS
from steersman.compiled import inner
from steersman.telemetry.model import (
    AGE_LIMIT,
    CLUSTER,
    COUNTERS,
    HARD,
    INDEX,
    LEFT,
    LOAD,
    NEVER,
    NEXT_LOAD,
    NODES,
    NOW,
    POD,
    REPLICAS,
    SCRAPED,
    SOFT,
    TOTALS,
    USE_CONNECTIONS,
    USE_CPU,
    USE_FILESYSTEM,
    USE_MEMORY,
    USE_NETWORK,
    USES,
    WORKLOAD,
    World,
)
from steersman.telemetry.randomness import below, exponential, normal, split, uniform
from steersman.telemetry.requests import class_of, row_of
from steersman.telemetry.settings import (
    CONNECTION_BYTES,
    CONNECTION_MEDIAN,
    CONNECTION_SIGMA,
    CPU_REQUESTS,
    FILESYSTEM_MIB,
    HARD_FACTORS,
    KIND_SHARES,
    MAX_CONNECTIONS,
    MAX_USE,
    MEMORY_PER_CPU,
    MEMORY_REQUESTS,
    MEMORY_USE,
    NODE_CPU,
    NODE_PODS,
    POD_SIGMA,
    SOFT_LIMITS,
    SYSTEM_CPU,
    USE_MEDIAN,
    USE_SIGMA,
    WORKER,
    Settings,
)

MEAN_REQUEST = sum(
    share * sum(requests) / len(requests) for share, requests in zip(KIND_SHARES, CPU_REQUESTS, strict=True)
)
"""milli-CPU."""
MIB = 1 << 20
FIRST_ARRIVAL = 60.0
"""Seconds that the cluster runs without pods, so that there are metrics."""
SHORTEST_LIFE = 30.0


@inner
def start(world: World, settings: Settings, e: int, seed: np.uint64, nodes: int) -> None:
    """Begin the episode that `seed` decides, with that many nodes.

    What `seed` decides besides the cluster does not depend on the number of nodes, except for the rate of arrivals.
    """
    split(world.rng, e, seed)
    world.seen.counts[e, NODES] = nodes
    world.seen.counts[e, POD] = 0
    world.cursor[e, LEFT] = world.cursor[e, SCRAPED] = 0
    world.clock[e, NOW] = world.clock[e, NEXT_LOAD] = 0.0
    for i in range(TOTALS):
        world.total[e, i] = 0.0
    _draw_zones(world, settings, e)
    capacity = 0
    for n in range(world.seen.zone.shape[1]):
        capacity += _draw_node(world, settings, e, n, n < nodes)
    _order_scrapes(world, settings, e, nodes)
    _draw_pods(world, settings, e, capacity)
    _sort_by(world.leave, world.order, e, settings.pods)


@inner
def _draw_zones(world: World, settings: Settings, e: int) -> None:
    """Zones on a unit square: 2 ms within a zone, and `distance` ms for the side of the square."""
    # Coordinates wait in the first two rows' places of what is drawn: `unrest` and `phase` are set afterwards.
    for z in range(settings.zones):
        world.unrest[e, z] = uniform(world.rng, e, CLUSTER)
        world.phase[e, z] = uniform(world.rng, e, CLUSTER)
    for a in range(settings.zones):
        for b in range(settings.zones):
            across = math.hypot(
                world.unrest[e, a] - world.unrest[e, b],
                world.phase[e, a] - world.phase[e, b],
            )
            world.distance[e, a, b] = 2.0 + settings.distance * across
    for z in range(settings.zones):
        world.unrest[e, z] = settings.unrest * normal(world.rng, e, LOAD)
        world.phase[e, z] = 2.0 * math.pi * uniform(world.rng, e, LOAD)
        world.load[e, z] = 1.0
    world.load[e, settings.zones] = 1.0


@inner
def _draw_node(world: World, settings: Settings, e: int, n: int, present: bool) -> int:
    """Make node `n`, without pods, and return its milli-CPU; a node that is absent has no room."""
    nodes, row = world.seen.nodes, row_of(world.seen, e, n)
    cpu = NODE_CPU[below(world.rng, e, CLUSTER, len(NODE_CPU))]
    low, high = SYSTEM_CPU
    world.system[e, n] = low + (high - low) * uniform(world.rng, e, CLUSTER) if present else 0.0
    world.seen.zone[e, n] = n % settings.zones if present else -1
    nodes.allocatable[row, CPU] = cpu if present else 0
    nodes.allocatable[row, MEMORY] = cpu // 1000 * MEMORY_PER_CPU if present else 0
    nodes.allocatable[row, PODS] = NODE_PODS if present else 0
    for r in range(nodes.free.shape[1]):
        nodes.free[row, r] = nodes.allocatable[row, r]
    nodes.nonzero[row, 0] = nodes.nonzero[row, 1] = 0
    for z in range(world.node_use.shape[2]):
        for i in range(USES):
            world.node_use[e, n, z, i] = 0
    for i in range(COUNTERS):
        world.counter[e, n, i] = 0.0
    world.counted[e, n] = 0.0
    world.rings[e, n] = world.gauge_pods[e, n] = world.down[e, n] = world.seen.siblings[e, n] = 0
    for m in range(world.gauge.shape[2]):
        world.gauge[e, n, m] = world.seen.measured[e, n, m] = np.nan
        world.seen.age[e, n, m] = AGE_LIMIT
    for i in range(world.sampled.shape[2]):
        world.sampled[e, n, i] = NEVER
        world.seen.since[e, n, i] = 0.0
    return cpu if present else 0


@inner
def _order_scrapes(world: World, settings: Settings, e: int, nodes: int) -> None:
    for n in range(nodes):
        world.offset[e, n] = settings.scrape_interval * uniform(world.rng, e, CLUSTER)
    _sort_by(world.offset, world.turn, e, nodes)


@inner
def _draw_pods(world: World, settings: Settings, e: int, capacity: int) -> None:
    """Deployments arrive as a Poisson process; their pods arrive, and leave, together."""
    rng, p = world.rng, 0
    mean_replicas = (1.0 + settings.replicas) / 2.0
    rate = settings.load * capacity / (MEAN_REQUEST * mean_replicas * settings.lifetime)
    # Users are not spread evenly over zones: weights 1, 1/2, 1/3...
    weights = 0.0
    for z in range(settings.zones):
        weights += 1.0 / (z + 1.0)
    time = FIRST_ARRIVAL
    while p < settings.pods:
        time += exponential(rng, e, WORKLOAD) / rate
        life = SHORTEST_LIFE + (settings.lifetime - SHORTEST_LIFE) * exponential(rng, e, WORKLOAD)
        replicas = 1 + below(rng, e, WORKLOAD, settings.replicas)
        pick, kind = uniform(rng, e, WORKLOAD), 0
        while kind < WORKER and pick >= KIND_SHARES[kind]:
            pick -= KIND_SHARES[kind]
            kind += 1
        pick, user = uniform(rng, e, WORKLOAD) * weights, 0
        while user < settings.zones - 1 and pick >= 1.0 / (user + 1.0):
            pick -= 1.0 / (user + 1.0)
            user += 1
        cpu = CPU_REQUESTS[kind][below(rng, e, WORKLOAD, 3)]
        memory = MEMORY_REQUESTS[kind][below(rng, e, WORKLOAD, 3)] * MIB
        soft = SOFT_LIMITS[below(rng, e, WORKLOAD, 3)]
        hard = soft * HARD_FACTORS[below(rng, e, WORKLOAD, 3)]
        use = USE_MEDIAN[kind] * math.exp(USE_SIGMA[kind] * normal(rng, e, WORKLOAD))
        connections = CONNECTION_MEDIAN[kind] * math.exp(CONNECTION_SIGMA[kind] * normal(rng, e, WORKLOAD))
        for index in range(replicas):
            # Numbers are drawn for every replica, so that a shorter episode is the beginning of a longer one.
            mine = math.exp(POD_SIGMA * normal(rng, e, WORKLOAD))
            memory_share = MEMORY_USE[0] + (MEMORY_USE[1] - MEMORY_USE[0]) * uniform(rng, e, WORKLOAD)
            disk = FILESYSTEM_MIB[0] + below(rng, e, WORKLOAD, FILESYSTEM_MIB[1] - FILESYSTEM_MIB[0])
            if p == settings.pods:
                break
            request, nonzero = world.seen.pods.request, world.seen.pods.nonzero
            row = class_of(world.seen, e, p)
            request[row, CPU] = nonzero[row, 0] = cpu
            request[row, MEMORY] = nonzero[row, 1] = memory
            request[row, PODS] = 1
            world.seen.user[e, p] = user if kind != WORKER else -1
            world.seen.limit[e, p, SOFT] = soft if kind != WORKER else np.inf
            world.seen.limit[e, p, HARD] = hard if kind != WORKER else np.inf
            world.seen.replica[e, p, INDEX] = index
            world.seen.replica[e, p, REPLICAS] = replicas
            world.pod_use[e, p, USE_CPU] = int(cpu * min(use * mine, MAX_USE))
            each = min(connections * mine, MAX_CONNECTIONS)
            world.pod_use[e, p, USE_CONNECTIONS] = int(each)
            world.pod_use[e, p, USE_NETWORK] = int(each * CONNECTION_BYTES[kind])
            world.pod_use[e, p, USE_MEMORY] = int(memory * memory_share)
            world.pod_use[e, p, USE_FILESYSTEM] = disk * MIB
            world.arrival[e, p] = time
            world.leave[e, p] = time + life
            world.slot[e, p] = -1
            p += 1


@inner
def _sort_by(keys: npt.NDArray[np.float64], order: npt.NDArray[np.int64], e: int, count: int) -> None:
    """Into row `e` of `order`, the first `count` indices by their key, then by themselves: a heap sort in place."""
    for i in range(count):
        order[e, i] = i
    for root in range(count // 2 - 1, -1, -1):
        _sift(keys, order, e, root, count)
    for last in range(count - 1, 0, -1):
        order[e, 0], order[e, last] = order[e, last], order[e, 0]
        _sift(keys, order, e, 0, last)


@inner
def _sift(keys: npt.NDArray[np.float64], order: npt.NDArray[np.int64], e: int, root: int, size: int) -> None:
    item, hole = order[e, root], root
    while 2 * hole + 1 < size:
        child = 2 * hole + 1
        if child + 1 < size and _after(keys, e, order[e, child + 1], order[e, child]):
            child += 1
        if not _after(keys, e, order[e, child], item):
            break
        order[e, hole] = order[e, child]
        hole = child
    order[e, hole] = item


@inner
def _after(keys: npt.NDArray[np.float64], e: int, a: int, b: int) -> bool:
    return keys[e, a] > keys[e, b] or (keys[e, a] == keys[e, b] and a > b)
