"""What is true of the simulated cluster at this moment: used CPU, connections, traffic and latencies of nodes."""

from __future__ import annotations

import math

from steersman.compiled import inner
from steersman.telemetry.model import NODES, USE_CONNECTIONS, USE_CPU, USE_NETWORK, World
from steersman.telemetry.requests import capacity
from steersman.telemetry.settings import NODE_NETWORK, SYSTEM_CONNECTIONS, Settings

BUSIEST = 0.98
"""The use of a node at which its queue is cut: latency does not grow without bound."""


@inner
def _used(world: World, e: int, n: int, what: int) -> float:
    """What the pods of node `n` use of `what` now: a sum over zones of users, each with its load."""
    total = 0.0
    for z in range(world.node_use.shape[2]):
        total += world.node_use[e, n, z, what] * world.load[e, z]
    return total


@inner
def cpu_wanted(world: World, e: int, n: int) -> float:
    """milli-CPU that node `n` would use if it had it."""
    return float(world.system[e, n] + _used(world, e, n, USE_CPU))


@inner
def cpu_used(world: World, e: int, n: int) -> float:
    """milli-CPU that node `n` uses."""
    return float(min(cpu_wanted(world, e, n), capacity(world.seen, e, n)))


@inner
def connections(world: World, e: int, n: int) -> float:
    """Established TCP connections of node `n`."""
    return SYSTEM_CONNECTIONS + _used(world, e, n, USE_CONNECTIONS)


@inner
def network(world: World, e: int, n: int) -> float:
    """Bytes per second that node `n` receives."""
    return min(_used(world, e, n, USE_NETWORK), NODE_NETWORK)


@inner
def latency(world: World, settings: Settings, e: int, n: int, user: int, cpu: float, bytes_: float) -> float:
    """Milliseconds from node `n` to the users of zone `user`, were its use higher by `cpu` and `bytes_` a second.

    distance + service (1 + r / (1 - r)), the time in an M/M/1 queue, with r the larger one of the shares of CPU and
    network used, at most `BUSIEST`.
    """
    busy = max(
        (cpu_wanted(world, e, n) + cpu) / capacity(world.seen, e, n),
        (_used(world, e, n, USE_NETWORK) + bytes_) / NODE_NETWORK,
    )
    busy = min(busy, BUSIEST)
    return float(world.distance[e, world.seen.zone[e, n], user] + settings.service / (1.0 - busy))


@inner
def cpu_deviation(world: World, e: int) -> float:
    """The standard deviation over nodes of the share of CPU used."""
    count = world.seen.counts[e, NODES]
    total, squares = 0.0, 0.0
    for n in range(count):
        share = cpu_used(world, e, n) / capacity(world.seen, e, n)
        total += share
        squares += share * share
    mean = total / count
    return math.sqrt(max(squares / count - mean * mean, 0.0))
