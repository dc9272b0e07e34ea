"""What happens on the simulated cluster between decisions: pods come and leave, load changes, nodes are scraped."""

from __future__ import annotations

import math

import numpy as np

from steersman.cluster.arrays import place, remove
from steersman.compiled import inner
from steersman.telemetry.metrics import count_up, observe, scrape
from steersman.telemetry.model import (
    BEYOND_ANY,
    BEYOND_AVOIDABLE,
    DEVIATION,
    EMPTY,
    HARD,
    HARD_AVOIDABLE,
    HARD_BROKEN,
    HARD_NOW,
    INDEX,
    LEFT,
    LIMITED,
    LIMITED_NOW,
    LOAD,
    MOST_CONNECTIONS,
    NEXT_LOAD,
    NODES,
    NOW,
    PEAK,
    PLACED,
    POD,
    REFUSED,
    SAMPLES,
    SATURATED,
    SCRAPED,
    SOFT,
    SOFT_MET,
    SOFT_NOW,
    USE_CPU,
    USE_NETWORK,
    USED,
    USES,
    WITHIN_HARD,
    WITHIN_SOFT,
    World,
)
from steersman.telemetry.randomness import normal
from steersman.telemetry.requests import capacity, class_of, fits_on, row_of, running
from steersman.telemetry.settings import Settings
from steersman.telemetry.truth import connections, cpu_deviation, cpu_wanted, latency

LOAD_STEP = 15.0
"""Seconds for which the load stays as it is."""
UNREST_TIME = 300.0
LEAST_LOAD = 0.05


@inner
def advance(world: World, settings: Settings, e: int) -> bool:
    """Go on to the next pod that fits on some node, and look at the metrics then; False: no pod is left.

    A pod that fits nowhere is refused: nobody is asked. At equal times pods leave first, then load changes, then nodes
    are scraped.
    """
    seen, clock = world.seen, world.clock
    while True:
        pod = seen.counts[e, POD]
        if pod >= settings.pods:
            return False
        arrival = world.arrival[e, pod]
        leaving = _next_leave(world, settings, e)
        scraping = _next_scrape(world, settings, e)
        if leaving <= min(arrival, clock[e, NEXT_LOAD], scraping):
            _leave(world, e, leaving)
        elif clock[e, NEXT_LOAD] <= min(arrival, scraping):
            _change_load(world, settings, e)
        elif scraping <= arrival:
            turn = world.cursor[e, SCRAPED] % seen.counts[e, NODES]
            scrape(world, settings, e, world.turn[e, turn], scraping)
            world.cursor[e, SCRAPED] += 1
        else:
            clock[e, NOW] = arrival
            if seen.replica[e, pod, INDEX] == 0:
                for n in range(seen.counts[e, NODES]):
                    seen.siblings[e, n] = 0
            for n in range(seen.counts[e, NODES]):
                if fits_on(world.seen, e, pod, n):
                    observe(world, e)
                    return True
            refuse(world, settings, e)


@inner
def refuse(world: World, settings: Settings, e: int) -> None:
    """Drop the pod in question and count it."""
    if world.clock[e, NOW] >= settings.warmup:
        world.total[e, REFUSED] += 1.0
    world.seen.counts[e, POD] += 1


@inner
def bind(world: World, settings: Settings, e: int, n: int) -> int:
    """Place the pod in question on node `n`, where it must fit; how its limits are kept, WITHIN_SOFT...

    Limits are judged by the truth, the pod's own use included, the moment after.
    """
    pod = world.seen.counts[e, POD]
    kept = _judge(world, settings, e, pod, n)
    count_up(world, e, n, world.clock[e, NOW])
    place(world.seen.nodes, world.seen.pods, class_of(world.seen, e, pod), row_of(world.seen, e, n), 0)
    _add_use(world, e, pod, n, 1)
    world.slot[e, pod] = n
    world.seen.siblings[e, n] += 1
    world.seen.counts[e, POD] += 1
    if world.clock[e, NOW] >= settings.warmup:
        world.total[e, PLACED] += 1.0
        if world.seen.user[e, pod] >= 0:
            world.total[e, LIMITED] += 1.0
            world.total[e, SOFT_MET] += kept == WITHIN_SOFT
            world.total[e, HARD_BROKEN] += kept >= BEYOND_ANY
            world.total[e, HARD_AVOIDABLE] += kept == BEYOND_AVOIDABLE
    return kept


@inner
def latency_with(world: World, settings: Settings, e: int, pod: int, n: int) -> float:
    """Milliseconds from node `n` to the users of a pod, which has some, if it ran there too."""
    user = world.seen.user[e, pod]
    cpu = world.pod_use[e, pod, USE_CPU] * world.load[e, user]
    bytes_ = world.pod_use[e, pod, USE_NETWORK] * world.load[e, user]
    return latency(world, settings, e, n, user, cpu, bytes_)


@inner
def _judge(world: World, settings: Settings, e: int, pod: int, n: int) -> int:
    if world.seen.user[e, pod] < 0:
        return WITHIN_SOFT
    soft, hard = world.seen.limit[e, pod, SOFT], world.seen.limit[e, pod, HARD]
    there = latency_with(world, settings, e, pod, n)
    if there <= soft:
        return WITHIN_SOFT
    if there <= hard:
        return WITHIN_HARD
    for other in range(world.seen.counts[e, NODES]):
        if fits_on(world.seen, e, pod, other) and latency_with(world, settings, e, pod, other) <= hard:
            return BEYOND_AVOIDABLE
    return BEYOND_ANY


@inner
def _next_leave(world: World, settings: Settings, e: int) -> float:
    left = world.cursor[e, LEFT]
    return float(world.leave[e, world.order[e, left]]) if left < settings.pods else np.inf


@inner
def _next_scrape(world: World, settings: Settings, e: int) -> float:
    nodes = world.seen.counts[e, NODES]
    done, turn = world.cursor[e, SCRAPED] // nodes, world.cursor[e, SCRAPED] % nodes
    return float(done * settings.scrape_interval + world.offset[e, world.turn[e, turn]])


@inner
def _leave(world: World, e: int, time: float) -> None:
    pod = world.order[e, world.cursor[e, LEFT]]
    world.cursor[e, LEFT] += 1
    n = world.slot[e, pod]
    if n >= 0:
        count_up(world, e, n, time)
        remove(world.seen.nodes, world.seen.pods, class_of(world.seen, e, pod), row_of(world.seen, e, n), 0)
        _add_use(world, e, pod, n, -1)
        world.slot[e, pod] = -1


@inner
def _add_use(world: World, e: int, pod: int, n: int, sign: int) -> None:
    user = world.seen.user[e, pod]
    z = user if user >= 0 else world.load.shape[1] - 1
    for i in range(USES):
        world.node_use[e, n, z, i] += sign * world.pod_use[e, pod, i]


@inner
def _change_load(world: World, settings: Settings, e: int) -> None:
    """Draw the load of the next 15 seconds, and after the warm-up take note of what is true then."""
    time = world.clock[e, NEXT_LOAD]
    for n in range(world.seen.counts[e, NODES]):
        count_up(world, e, n, time)
    keep = math.exp(-LOAD_STEP / UNREST_TIME)
    for z in range(settings.zones):
        fresh = settings.unrest * normal(world.rng, e, LOAD)
        world.unrest[e, z] = keep * world.unrest[e, z] + math.sqrt(1.0 - keep * keep) * fresh
        swing = settings.swing * math.sin(2.0 * math.pi * time / settings.period + world.phase[e, z])
        world.load[e, z] = max(1.0 + swing + world.unrest[e, z], LEAST_LOAD)
    world.clock[e, NEXT_LOAD] = time + LOAD_STEP
    if time >= settings.warmup:
        _take_note(world, settings, e)


@inner
def _take_note(world: World, settings: Settings, e: int) -> None:
    total, nodes, most = world.total, world.seen.counts[e, NODES], 0.0
    empty = 0
    for n in range(nodes):
        empty += running(world.seen, e, n) == 0
        most = max(most, connections(world, e, n))
        total[e, SATURATED] += cpu_wanted(world, e, n) > capacity(world.seen, e, n)
    total[e, SAMPLES] += 1.0
    total[e, EMPTY] += empty
    total[e, USED] += nodes - empty
    total[e, DEVIATION] += cpu_deviation(world, e)
    total[e, MOST_CONNECTIONS] += most
    total[e, PEAK] = max(total[e, PEAK], most)
    for pod in range(world.seen.counts[e, POD]):
        n, user = world.slot[e, pod], world.seen.user[e, pod]
        if n >= 0 and user >= 0:
            total[e, LIMITED_NOW] += 1.0
            there = latency(world, settings, e, n, user, 0.0, 0.0)
            total[e, SOFT_NOW] += there <= world.seen.limit[e, pod, SOFT]
            total[e, HARD_NOW] += there > world.seen.limit[e, pod, HARD]
