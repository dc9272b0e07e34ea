"""Dynamics of the simulated cluster between decisions: pods arrive and leave, load changes, nodes are scraped."""

from __future__ import annotations

import math

import numpy as np

from steersman.cluster.arrays import place, remove
from steersman.core.compiled import inlined_kernel
from steersman.core.random_numbers import normal
from steersman.envs.latency.measurements import count_up, observe, scrape
from steersman.envs.latency.state import (
    DEVIATION,
    EMPTY,
    HARD_AVOIDABLE,
    HARD_BROKEN,
    HARD_NOW,
    LEFT,
    LIMITED,
    LIMITED_NOW,
    LOAD,
    MOST_CONNECTIONS,
    NEXT_LOAD,
    NOW,
    PEAK,
    PLACED,
    REFUSED,
    SAMPLES,
    SATURATED,
    SCRAPED,
    SOFT_MET,
    SOFT_NOW,
    USE_CPU,
    USE_NETWORK,
    USED,
    USES,
    SimulatorState,
)
from steersman.envs.latency.truth import connections, cpu_deviation, cpu_wanted, latency
from steersman.objectives.latency import BEYOND_ANY, BEYOND_AVOIDABLE, WITHIN_HARD, WITHIN_SOFT
from steersman.policies.node_metrics.arrays import HARD, INDEX, NODES, POD, SOFT
from steersman.policies.node_metrics.requests import class_of, cpu_allocatable, fits_on, row_of, running
from steersman.workloads.generators.latency_settings import LatencySettings

LOAD_STEP = 15.0
"""Seconds for which the load is constant."""
LOAD_CORRELATION_SECONDS = 300.0
LEAST_LOAD = 0.05


@inlined_kernel
def advance(simulator: SimulatorState, settings: LatencySettings, e: int) -> bool:
    """Advance to the next pod that fits on some node, and query the metrics then. Return False if no pod is left.

    A pod that fits nowhere is dropped without a decision. At equal times pods leave first, then load changes, then
    nodes are scraped.
    """
    view, clock = simulator.scheduler_view, simulator.clock
    while True:
        pod = view.counts[e, POD]
        if pod >= settings.pods:
            return False
        arrival = simulator.arrival[e, pod]
        leaving = _next_leave(simulator, settings, e)
        scraping = _next_scrape(simulator, settings, e)
        if leaving <= min(arrival, clock[e, NEXT_LOAD], scraping):
            _leave(simulator, e, leaving)
        elif clock[e, NEXT_LOAD] <= min(arrival, scraping):
            time = clock[e, NEXT_LOAD]
            change_load(simulator, settings, e)
            if time >= settings.warmup:
                take_note(simulator, settings, e)
        elif scraping <= arrival:
            turn = simulator.cursor[e, SCRAPED] % view.counts[e, NODES]
            scrape(simulator, settings, e, simulator.turn[e, turn], scraping)
            simulator.cursor[e, SCRAPED] += 1
        else:
            clock[e, NOW] = arrival
            # The first pod of a Deployment: siblings are counted from here.
            if view.replica[e, pod, INDEX] == 0:
                for n in range(view.counts[e, NODES]):
                    view.siblings[e, n] = 0
            for n in range(view.counts[e, NODES]):
                if fits_on(simulator.scheduler_view, e, pod, n):
                    observe(simulator, e)
                    return True
            refuse(simulator, settings, e)


@inlined_kernel
def refuse(simulator: SimulatorState, settings: LatencySettings, e: int) -> None:
    """Drop the current pod and count it."""
    if simulator.clock[e, NOW] >= settings.warmup:
        simulator.total[e, REFUSED] += 1.0
    simulator.scheduler_view.counts[e, POD] += 1


@inlined_kernel
def bind(simulator: SimulatorState, settings: LatencySettings, e: int, n: int) -> int:
    """Bind the current pod to node `n`, where it must fit; return how its limits are kept, WITHIN_SOFT...

    Limits are judged by the true state right after binding, including the pod's own use.
    """
    pod = simulator.scheduler_view.counts[e, POD]
    # Before the pod is bound: the judgement adds its use itself.
    kept = _judge(simulator, settings, e, pod, n)
    # Before the node's use changes, so that the time up to now counts with the old use.
    count_up(simulator, e, n, simulator.clock[e, NOW])
    place(
        simulator.scheduler_view.nodes,
        simulator.scheduler_view.pods,
        class_of(simulator.scheduler_view, e, pod),
        row_of(simulator.scheduler_view, e, n),
        0,
    )
    _add_use(simulator, e, pod, n, 1)
    simulator.slot[e, pod] = n
    simulator.scheduler_view.siblings[e, n] += 1
    simulator.scheduler_view.counts[e, POD] += 1
    if simulator.clock[e, NOW] >= settings.warmup:
        simulator.total[e, PLACED] += 1.0
        if simulator.scheduler_view.user[e, pod] >= 0:
            simulator.total[e, LIMITED] += 1.0
            simulator.total[e, SOFT_MET] += kept == WITHIN_SOFT
            simulator.total[e, HARD_BROKEN] += kept >= BEYOND_ANY
            simulator.total[e, HARD_AVOIDABLE] += kept == BEYOND_AVOIDABLE
    return kept


@inlined_kernel
def latency_with(simulator: SimulatorState, settings: LatencySettings, e: int, pod: int, n: int) -> float:
    """Return the milliseconds from node `n` to the users of a pod, which has some, if it ran there too."""
    user = simulator.scheduler_view.user[e, pod]
    cpu = simulator.pod_use[e, pod, USE_CPU] * simulator.load[e, user]
    bytes_ = simulator.pod_use[e, pod, USE_NETWORK] * simulator.load[e, user]
    return latency(simulator, settings, e, n, user, cpu, bytes_)


@inlined_kernel
def _judge(simulator: SimulatorState, settings: LatencySettings, e: int, pod: int, n: int) -> int:
    if simulator.scheduler_view.user[e, pod] < 0:
        return WITHIN_SOFT
    soft, hard = simulator.scheduler_view.limit[e, pod, SOFT], simulator.scheduler_view.limit[e, pod, HARD]
    milliseconds = latency_with(simulator, settings, e, pod, n)
    if milliseconds <= soft:
        return WITHIN_SOFT
    if milliseconds <= hard:
        return WITHIN_HARD
    # Whether another node could have kept it separates a bad choice from a full cluster.
    for other in range(simulator.scheduler_view.counts[e, NODES]):
        if (
            fits_on(simulator.scheduler_view, e, pod, other)
            and latency_with(simulator, settings, e, pod, other) <= hard
        ):
            return BEYOND_AVOIDABLE
    return BEYOND_ANY


@inlined_kernel
def _next_leave(simulator: SimulatorState, settings: LatencySettings, e: int) -> float:
    left = simulator.cursor[e, LEFT]
    return float(simulator.leave[e, simulator.order[e, left]]) if left < settings.pods else np.inf


@inlined_kernel
def _next_scrape(simulator: SimulatorState, settings: LatencySettings, e: int) -> float:
    nodes = simulator.scheduler_view.counts[e, NODES]
    # Round `done` of all scrapes, in which this node has its fixed offset.
    done, turn = simulator.cursor[e, SCRAPED] // nodes, simulator.cursor[e, SCRAPED] % nodes
    return float(done * settings.scrape_interval + simulator.offset[e, simulator.turn[e, turn]])


@inlined_kernel
def _leave(simulator: SimulatorState, e: int, time: float) -> None:
    # Dropped pods are in the order as well; they have no node, and nothing happens.
    pod = simulator.order[e, simulator.cursor[e, LEFT]]
    simulator.cursor[e, LEFT] += 1
    unbind(simulator, e, pod, time)


@inlined_kernel
def unbind(simulator: SimulatorState, e: int, pod: int, time: float) -> None:
    """Remove a pod from its node, if it has one."""
    n = simulator.slot[e, pod]
    if n >= 0:
        count_up(simulator, e, n, time)
        remove(
            simulator.scheduler_view.nodes,
            simulator.scheduler_view.pods,
            class_of(simulator.scheduler_view, e, pod),
            row_of(simulator.scheduler_view, e, n),
            0,
        )
        _add_use(simulator, e, pod, n, -1)
        simulator.slot[e, pod] = -1


@inlined_kernel
def _add_use(simulator: SimulatorState, e: int, pod: int, n: int, sign: int) -> None:
    user = simulator.scheduler_view.user[e, pod]
    # The last column is for pods without users, whose load is always 1.
    z = user if user >= 0 else simulator.load.shape[1] - 1
    for i in range(USES):
        simulator.node_use[e, n, z, i] += sign * simulator.pod_use[e, pod, i]


@inlined_kernel
def change_load(simulator: SimulatorState, settings: LatencySettings, e: int) -> None:
    """Draw the load of the next 15 seconds."""
    time = simulator.clock[e, NEXT_LOAD]
    for n in range(simulator.scheduler_view.counts[e, NODES]):
        count_up(simulator, e, n, time)
    # A first-order autoregressive process, exact for a step of LOAD_STEP: its deviation stays `load_noise`.
    keep = math.exp(-LOAD_STEP / LOAD_CORRELATION_SECONDS)
    for z in range(settings.zones):
        fresh = settings.load_noise * normal(simulator.rng, e, LOAD)
        simulator.load_noise[e, z] = keep * simulator.load_noise[e, z] + math.sqrt(1.0 - keep * keep) * fresh
        swing = settings.swing * math.sin(2.0 * math.pi * time / settings.period + simulator.phase[e, z])
        simulator.load[e, z] = max(1.0 + swing + simulator.load_noise[e, z], LEAST_LOAD)
    simulator.clock[e, NEXT_LOAD] = time + LOAD_STEP


@inlined_kernel
def take_note(simulator: SimulatorState, settings: LatencySettings, e: int) -> None:
    """Add the true state now to the totals of samples."""
    total, nodes, most = simulator.total, simulator.scheduler_view.counts[e, NODES], 0.0
    empty = 0
    for n in range(nodes):
        empty += running(simulator.scheduler_view, e, n) == 0
        most = max(most, connections(simulator, e, n))
        total[e, SATURATED] += cpu_wanted(simulator, e, n) > cpu_allocatable(simulator.scheduler_view, e, n)
    total[e, SAMPLES] += 1.0
    total[e, EMPTY] += empty
    total[e, USED] += nodes - empty
    total[e, DEVIATION] += cpu_deviation(simulator, e)
    total[e, MOST_CONNECTIONS] += most
    total[e, PEAK] = max(total[e, PEAK], most)
    for pod in range(simulator.scheduler_view.counts[e, POD]):
        n, user = simulator.slot[e, pod], simulator.scheduler_view.user[e, pod]
        if n >= 0 and user >= 0:
            total[e, LIMITED_NOW] += 1.0
            # Their own use is part of the node's already.
            milliseconds = latency(simulator, settings, e, n, user, 0.0, 0.0)
            total[e, SOFT_NOW] += milliseconds <= simulator.scheduler_view.limit[e, pod, SOFT]
            total[e, HARD_NOW] += milliseconds > simulator.scheduler_view.limit[e, pod, HARD]
