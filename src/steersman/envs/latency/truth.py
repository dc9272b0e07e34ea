"""The true state of the simulated cluster at this moment: used CPU, connections, traffic and latencies of nodes."""

from __future__ import annotations

import math

from steersman.core.compiled import inlined_kernel
from steersman.envs.latency.state import USE_CONNECTIONS, USE_CPU, USE_NETWORK, SimulatorState
from steersman.policies.node_metrics.arrays import NODES
from steersman.policies.node_metrics.requests import cpu_allocatable
from steersman.workloads.generators.latency_settings import NODE_NETWORK, SYSTEM_CONNECTIONS, LatencySettings

BUSIEST = 0.98
"""The use of a node at which its queue is cut: latency does not grow without bound."""


@inlined_kernel
def _used(simulator: SimulatorState, e: int, n: int, what: int) -> float:
    """Return what the pods of node `n` use of `what` now: a sum over zones of users, each with its load."""
    total = 0.0
    for z in range(simulator.node_use.shape[2]):
        total += simulator.node_use[e, n, z, what] * simulator.load[e, z]
    return total


@inlined_kernel
def cpu_wanted(simulator: SimulatorState, e: int, n: int) -> float:
    """Return the milli-CPU that node `n` would use if it had it."""
    return float(simulator.system[e, n] + _used(simulator, e, n, USE_CPU))


@inlined_kernel
def cpu_used(simulator: SimulatorState, e: int, n: int) -> float:
    return float(min(cpu_wanted(simulator, e, n), cpu_allocatable(simulator.scheduler_view, e, n)))


@inlined_kernel
def connections(simulator: SimulatorState, e: int, n: int) -> float:
    return SYSTEM_CONNECTIONS + _used(simulator, e, n, USE_CONNECTIONS)


@inlined_kernel
def network(simulator: SimulatorState, e: int, n: int) -> float:
    return min(_used(simulator, e, n, USE_NETWORK), NODE_NETWORK)


@inlined_kernel
def latency(
    simulator: SimulatorState, settings: LatencySettings, e: int, n: int, user: int, cpu: float, bytes_: float
) -> float:
    """Return the milliseconds from node `n` to the users of zone `user`, if its use were higher by `cpu` and `bytes_`.

    distance + service (1 + r / (1 - r)), the time in an M/M/1 queue, with r the larger one of the shares of CPU and
    network used, at most `BUSIEST`.
    """
    busy = max(
        (cpu_wanted(simulator, e, n) + cpu) / cpu_allocatable(simulator.scheduler_view, e, n),
        (_used(simulator, e, n, USE_NETWORK) + bytes_) / NODE_NETWORK,
    )
    busy = min(busy, BUSIEST)
    # 1 + r / (1 - r) = 1 / (1 - r).
    return float(simulator.distance[e, simulator.scheduler_view.zone[e, n], user] + settings.service / (1.0 - busy))


@inlined_kernel
def cpu_deviation(simulator: SimulatorState, e: int) -> float:
    """Return the standard deviation over nodes of the share of CPU used."""
    count = simulator.scheduler_view.counts[e, NODES]
    total, squares = 0.0, 0.0
    for n in range(count):
        share = cpu_used(simulator, e, n) / cpu_allocatable(simulator.scheduler_view, e, n)
        total += share
        squares += share * share
    mean = total / count
    return math.sqrt(max(squares / count - mean * mean, 0.0))
