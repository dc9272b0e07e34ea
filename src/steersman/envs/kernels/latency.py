"""Steps of a batch of telemetry clusters, compiled: bind, judge the state after, go on to the next pod, observe."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.compiled import inner, kernel
from steersman.envs.kernels.stepping import Observation, attempt, seen_of
from steersman.objectives import summary
from steersman.objectives.connections import least_connections
from steersman.objectives.latency import latency_aware
from steersman.objectives.measures import measure
from steersman.policies.showing import show_no_pod
from steersman.policies.telemetry_view import encode
from steersman.telemetry import truth
from steersman.telemetry.dynamics import advance, bind
from steersman.telemetry.generator import start
from steersman.telemetry.model import NODES, POD, World
from steersman.telemetry.requests import capacity, fits_on, requested, running
from steersman.telemetry.settings import Settings

LEAST_CONNECTIONS, LATENCY_AWARE = 100, 101
"""Numbers of the objectives that need telemetry; others are those of `objectives.measures`, of the CPU that is used."""

# Columns of `Task.counts`: steps taken, whether the last action was illegal, how the last placement keeps its limits.
STEPS, ILLEGAL, KEPT = range(3)
COUNTS = 3


class Task(NamedTuple):
    """What is asked of agents, and where each environment stands.

    Attributes:
        objectives, weights: [K] the reward.
        row: [E, 15] float64 the state after the last action, see `objectives.summary`; CPU is what is used.
        counts: [E, 3] int64, see STEPS...
        penalty: what an illegal action costs.
        step_limit: steps after which an episode is truncated.
    """

    objectives: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    row: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]
    penalty: float
    step_limit: int


@kernel
def begin(world: World, settings: Settings, task: Task, out: Observation, e: int, seed: np.uint64, nodes: int) -> bool:
    """Start the episode that `seed` decides in environment `e` and observe its first decision; False: there is none."""
    start(world, settings, e, seed, nodes)
    for i in range(COUNTS):
        task.counts[e, i] = 0
    _summarise(world, task, e)
    asking = advance(world, settings, e)
    if asking:
        _observe(world, out, e)
    return asking


@kernel
def step(
    world: World,
    settings: Settings,
    task: Task,
    out: Observation,
    actions: npt.NDArray[np.int64],
    rewards: npt.NDArray[np.float64],
    terminated: npt.NDArray[np.bool_],
    truncated: npt.NDArray[np.bool_],
) -> None:
    """Take one action in each of E environments that ask; all that comes of it is written into the other arrays.

    An illegal action (no such node, or the pod does not fit there) changes nothing but the count of steps, and costs
    the penalty.
    """
    for e in range(actions.shape[0]):
        n, counts = actions[e], task.counts[e]
        terminated[e] = False
        if attempt(counts, STEPS, ILLEGAL, out.mask[e], n):
            counts[KEPT] = bind(world, settings, e, n)
            _summarise(world, task, e)
            rewards[e] = _reward(world, task, e)
            if advance(world, settings, e):
                _observe(world, out, e)
            else:
                terminated[e] = True
                _observe_end(out, e)
        else:
            rewards[e] = -task.penalty
        truncated[e] = not terminated[e] and counts[STEPS] >= task.step_limit


@inner
def _summarise(world: World, task: Task, e: int) -> None:
    """Write what is true now into the row that formulas read."""
    row, nodes = task.row, world.seen.counts[e, NODES]
    used, share, square = 0, 0.0, 0.0
    for n in range(nodes):
        used += running(world.seen, e, n) > 0
        part = truth.cpu_used(world, e, n) / capacity(world.seen, e, n)
        share += part
        square += part * part
    row[e, summary.NODES] = row[e, summary.CPU_NODES] = nodes
    row[e, summary.NODES_USED] = used
    row[e, summary.CPU_SHARE] = share
    row[e, summary.CPU_SQUARE] = square


@inner
def _reward(world: World, task: Task, e: int) -> float:
    total = 0.0
    for i in range(task.objectives.shape[0]):
        objective = task.objectives[i]
        if objective == LEAST_CONNECTIONS:
            value = _connections(world, e)
        elif objective == LATENCY_AWARE:
            value = _latency(world, e, task.counts[e, KEPT])
        else:
            value = measure(objective, task.row[e], task.row[e])
        total += task.weights[i] * value
    return total


@inner
def _connections(world: World, e: int) -> float:
    total, most, nodes = 0.0, 0.0, world.seen.counts[e, NODES]
    for n in range(nodes):
        count = truth.connections(world, e, n)
        total += count
        most = max(most, count)
    return least_connections(total / nodes, most)


@inner
def _latency(world: World, e: int, kept: int) -> float:
    asked, room, used, nodes = 0, 0, 0, world.seen.counts[e, NODES]
    for n in range(nodes):
        if running(world.seen, e, n) > 0:
            asked += requested(world.seen, e, n)
            room += capacity(world.seen, e, n)
            used += 1
    return latency_aware(nodes, used, asked / room if room > 0 else 0.0, kept)


@inner
def _observe(world: World, out: Observation, e: int) -> None:
    seen, nodes = world.seen, world.seen.counts[e, NODES]
    for n in range(out.mask.shape[1]):
        present = n < nodes
        out.mask[e, n] = present and fits_on(seen, e, seen.counts[e, POD], n)
        out.groups[e, n, 0] = seen.zone[e, n] if present else -1
        out.groups[e, n, 1] = -1
    encode(seen, e, out.mask, out.nodes, out.pod, out.context)


@inner
def _observe_end(out: Observation, e: int) -> None:
    """The observation where the workload is over: no pod, no node to choose."""
    show_no_pod(seen_of(out, e))
    for i in range(out.context.shape[1]):
        out.context[e, i] = 0.0
