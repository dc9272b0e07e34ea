"""Start of an episode: a cluster, its zones, and the pods that will arrive, drawn from a seed in compiled code."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, PODS
from steersman.cluster.node_metrics import AGE_LIMIT
from steersman.core.compiled import inlined_kernel
from steersman.core.random_numbers import below, exponential, normal, split, uniform
from steersman.envs.latency.state import (
    CLUSTER,
    COUNTERS,
    LEFT,
    LOAD,
    NEVER,
    NEXT_LOAD,
    NOW,
    SCRAPED,
    TOTALS,
    USE_CONNECTIONS,
    USE_CPU,
    USE_FILESYSTEM,
    USE_MEMORY,
    USE_NETWORK,
    USES,
    WORKLOAD,
    SimulatorState,
)
from steersman.policies.node_metrics.arrays import HARD, INDEX, NODES, POD, REPLICAS, SOFT
from steersman.policies.node_metrics.requests import class_of, row_of
from steersman.workloads.generators.latency_settings import (
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
    LatencySettings,
)

MEAN_REQUEST = sum(
    share * sum(requests) / len(requests) for share, requests in zip(KIND_SHARES, CPU_REQUESTS, strict=True)
)
"""milli-CPU."""
MIB = 1 << 20
FIRST_ARRIVAL = 60.0
"""Seconds that the cluster runs without pods, so that there are metrics."""
SHORTEST_LIFE = 30.0


@inlined_kernel
def start(simulator: SimulatorState, settings: LatencySettings, e: int, seed: np.uint64, nodes: int) -> None:
    """Begin the episode of a seed, with that many nodes.

    Only the cluster and the rate of arrivals depend on the number of nodes.
    """
    split(simulator.rng, e, seed)
    simulator.scheduler_view.counts[e, NODES] = nodes
    simulator.scheduler_view.counts[e, POD] = 0
    simulator.cursor[e, LEFT] = simulator.cursor[e, SCRAPED] = 0
    simulator.clock[e, NOW] = simulator.clock[e, NEXT_LOAD] = 0.0
    for i in range(TOTALS):
        simulator.total[e, i] = 0.0
    draw_zones(simulator, settings, e)
    capacity = 0
    for n in range(simulator.scheduler_view.zone.shape[1]):
        capacity += _draw_node(simulator, settings, e, n, n < nodes)
    _order_scrapes(simulator, settings, e, nodes)
    _draw_pods(simulator, settings, e, capacity)
    _sort_by(simulator.leave, simulator.order, e, settings.pods)


@inlined_kernel
def draw_zones(simulator: SimulatorState, settings: LatencySettings, e: int) -> None:
    """Draw zones on a unit square: 2 ms within a zone, and `distance` ms for the side of the square."""
    # Coordinates are kept in `load_noise` and `phase`, which are set afterwards.
    for z in range(settings.zones):
        simulator.load_noise[e, z] = uniform(simulator.rng, e, CLUSTER)
        simulator.phase[e, z] = uniform(simulator.rng, e, CLUSTER)
    for a in range(settings.zones):
        for b in range(settings.zones):
            across = math.hypot(
                simulator.load_noise[e, a] - simulator.load_noise[e, b], simulator.phase[e, a] - simulator.phase[e, b]
            )
            simulator.distance[e, a, b] = 2.0 + settings.distance * across
    for z in range(settings.zones):
        # From their stationary distribution, so that an episode does not begin with a calm.
        simulator.load_noise[e, z] = settings.load_noise * normal(simulator.rng, e, LOAD)
        simulator.phase[e, z] = 2.0 * math.pi * uniform(simulator.rng, e, LOAD)
        simulator.load[e, z] = 1.0
    simulator.load[e, settings.zones] = 1.0


@inlined_kernel
def _draw_node(simulator: SimulatorState, settings: LatencySettings, e: int, n: int, present: bool) -> int:
    """Draw node `n`, without pods, and return its milli-CPU; an absent node has no capacity."""
    nodes, row = simulator.scheduler_view.nodes, row_of(simulator.scheduler_view, e, n)
    cpu = NODE_CPU[below(simulator.rng, e, CLUSTER, len(NODE_CPU))]
    low, high = SYSTEM_CPU
    simulator.system[e, n] = low + (high - low) * uniform(simulator.rng, e, CLUSTER) if present else 0.0
    simulator.scheduler_view.zone[e, n] = n % settings.zones if present else -1
    nodes.allocatable[row, CPU] = cpu if present else 0
    nodes.allocatable[row, MEMORY] = cpu // 1000 * MEMORY_PER_CPU if present else 0
    nodes.allocatable[row, PODS] = NODE_PODS if present else 0
    for r in range(nodes.free.shape[1]):
        nodes.free[row, r] = nodes.allocatable[row, r]
    nodes.nonzero[row, 0] = nodes.nonzero[row, 1] = 0
    for z in range(simulator.node_use.shape[2]):
        for i in range(USES):
            simulator.node_use[e, n, z, i] = 0
    for i in range(COUNTERS):
        simulator.counter[e, n, i] = 0.0
    simulator.counted[e, n] = 0.0
    simulator.rings[e, n] = simulator.gauge_pods[e, n] = simulator.down[e, n] = simulator.scheduler_view.siblings[
        e, n
    ] = 0
    for m in range(simulator.gauge.shape[2]):
        simulator.gauge[e, n, m] = simulator.scheduler_view.measured[e, n, m] = np.nan
        simulator.scheduler_view.age[e, n, m] = AGE_LIMIT
    for i in range(simulator.sampled.shape[2]):
        simulator.sampled[e, n, i] = NEVER
        simulator.scheduler_view.since[e, n, i] = 0.0
    return cpu if present else 0


@inlined_kernel
def _order_scrapes(simulator: SimulatorState, settings: LatencySettings, e: int, nodes: int) -> None:
    for n in range(nodes):
        simulator.offset[e, n] = settings.scrape_interval * uniform(simulator.rng, e, CLUSTER)
    _sort_by(simulator.offset, simulator.turn, e, nodes)


@inlined_kernel
def _draw_pods(simulator: SimulatorState, settings: LatencySettings, e: int, capacity: int) -> None:
    """Draw Deployments, whose pods arrive, and leave, together.

    They arrive as a Poisson process, or as many copies of one as the settings say, which leave together.
    """
    rng, p = simulator.rng, 0
    mean_replicas = (1.0 + settings.replicas) / 2.0
    # Little's law: pods in the cluster = rate of Deployments times replicas times lifetime.
    rate = settings.load * capacity / (MEAN_REQUEST * mean_replicas * settings.lifetime)
    # Users are not spread evenly over zones: weights 1, 1/2, 1/3...
    weights = 0.0
    for z in range(settings.zones):
        weights += 1.0 / (z + 1.0)
    time, end, copy = FIRST_ARRIVAL, 0.0, 0
    replicas, kind, user, cpu, memory, soft, hard = 1, WORKER, 0, 0, 0, 0.0, 0.0
    while p < settings.pods:
        if settings.copies > 0:
            time += settings.copy_interval if copy > 0 else 0.0
            if copy == 0:
                end = time + (settings.copies - 1) * settings.copy_interval + settings.copy_pause
            life = end - time
        else:
            time += exponential(rng, e, WORKLOAD) / rate
            # The shortest life plus an exponential one, together `lifetime` on average.
            life = SHORTEST_LIFE + (settings.lifetime - SHORTEST_LIFE) * exponential(rng, e, WORKLOAD)
        if copy == 0:
            replicas = 1 + below(rng, e, WORKLOAD, settings.replicas)
            pick, kind = uniform(rng, e, WORKLOAD), 0
            # Inverse transform sampling: the shares are used up one by one.
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
        # Per copy, not per Deployment: copies differ in what they use.
        use, connections = draw_application(simulator, e, kind)
        for index in range(min(replicas, settings.pods - p)):
            request, nonzero = simulator.scheduler_view.pods.request, simulator.scheduler_view.pods.nonzero
            row = class_of(simulator.scheduler_view, e, p)
            request[row, CPU] = nonzero[row, 0] = cpu
            request[row, MEMORY] = nonzero[row, 1] = memory
            request[row, PODS] = 1
            simulator.scheduler_view.user[e, p] = user if kind != WORKER else -1
            simulator.scheduler_view.limit[e, p, SOFT] = soft if kind != WORKER else np.inf
            simulator.scheduler_view.limit[e, p, HARD] = hard if kind != WORKER else np.inf
            simulator.scheduler_view.replica[e, p, INDEX] = index
            simulator.scheduler_view.replica[e, p, REPLICAS] = replicas
            draw_pod_use(simulator, e, p, kind, use, connections)
            simulator.arrival[e, p] = time
            simulator.leave[e, p] = time + life
            simulator.slot[e, p] = -1
            p += 1
        if settings.copies > 0:
            copy = (copy + 1) % settings.copies
            if copy == 0:
                time = end + settings.copy_pause


@inlined_kernel
def draw_application(simulator: SimulatorState, e: int, kind: int) -> tuple[float, float]:
    """Draw what the pods of a Deployment use: CPU over requested CPU, and connections of a pod."""
    use = USE_MEDIAN[kind] * math.exp(USE_SIGMA[kind] * normal(simulator.rng, e, WORKLOAD))
    connections = CONNECTION_MEDIAN[kind] * math.exp(CONNECTION_SIGMA[kind] * normal(simulator.rng, e, WORKLOAD))
    return use, connections


@inlined_kernel
def draw_pod_use(simulator: SimulatorState, e: int, p: int, kind: int, use: float, connections: float) -> None:
    """Draw what pod `p`, whose requests are known, uses at load 1; `use` and `connections` are its Deployment's."""
    rng, request = simulator.rng, simulator.scheduler_view.pods.request
    row = class_of(simulator.scheduler_view, e, p)
    factor = math.exp(POD_SIGMA * normal(rng, e, WORKLOAD))
    memory_share = MEMORY_USE[0] + (MEMORY_USE[1] - MEMORY_USE[0]) * uniform(rng, e, WORKLOAD)
    disk = FILESYSTEM_MIB[0] + below(rng, e, WORKLOAD, FILESYSTEM_MIB[1] - FILESYSTEM_MIB[0])
    each = min(connections * factor, MAX_CONNECTIONS)
    simulator.pod_use[e, p, USE_CPU] = int(request[row, CPU] * min(use * factor, MAX_USE))
    simulator.pod_use[e, p, USE_CONNECTIONS] = int(each)
    simulator.pod_use[e, p, USE_NETWORK] = int(each * CONNECTION_BYTES[kind])
    simulator.pod_use[e, p, USE_MEMORY] = int(request[row, MEMORY] * memory_share)
    simulator.pod_use[e, p, USE_FILESYSTEM] = disk * MIB


@inlined_kernel
def _sort_by(keys: npt.NDArray[np.float64], order: npt.NDArray[np.int64], e: int, count: int) -> None:
    """Heap-sort into row `e` of `order` the first `count` indices by their key, then by themselves."""
    # Heap sort, since np.argsort would allocate.
    for i in range(count):
        order[e, i] = i
    for root in range(count // 2 - 1, -1, -1):
        _sift(keys, order, e, root, count)
    for last in range(count - 1, 0, -1):
        order[e, 0], order[e, last] = order[e, last], order[e, 0]
        _sift(keys, order, e, 0, last)


@inlined_kernel
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


@inlined_kernel
def _after(keys: npt.NDArray[np.float64], e: int, a: int, b: int) -> bool:
    return keys[e, a] > keys[e, b] or (keys[e, a] == keys[e, b] and a > b)
