"""Steps of a batch of telemetry clusters, compiled: bind, judge the state after, advance to the next pod, observe."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.core.compiled import inlined_kernel, kernel
from steersman.envs.latency import truth
from steersman.envs.latency.dynamics import advance, bind, latency_with
from steersman.envs.latency.generator import start
from steersman.envs.latency.state import SimulatorState
from steersman.envs.observation import Observation, StepResults, attempt, observation_of
from steersman.objectives import summary
from steersman.objectives.connections import least_connections
from steersman.objectives.latency import latency_aware
from steersman.objectives.measures import measure
from steersman.objectives.telemetry import LATENCY_AWARE, LEAST_CONNECTIONS
from steersman.policies.node_metrics.arrays import NODES, POD
from steersman.policies.node_metrics.requests import cpu_allocatable, cpu_requested, fits_on, running
from steersman.policies.observations.kernels import write_terminal_observation
from steersman.policies.observations.telemetry_encoding import encode
from steersman.workloads.generators.latency_settings import LatencySettings

# Columns of `LatencyConfig.counts`: steps taken, whether the last action was illegal, how the last placement keeps its
# limits.
STEPS, ILLEGAL, KEPT = range(3)
COUNTS = 3


class LatencyConfig(NamedTuple):
    """The reward, and the state of each environment.

    Attributes:
        objectives, weights: [K] the reward.
        row: [E, 16] float64 the state after the last action, see `objectives.summary`; CPU is what is used.
        counts: [E, 3] int64, see STEPS...
        penalty: cost of an illegal action.
        step_limit: steps after which an episode is truncated.
    """

    objectives: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    row: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]
    penalty: float
    step_limit: int


@kernel
def begin(
    simulator: SimulatorState,
    settings: LatencySettings,
    task: LatencyConfig,
    out: Observation,
    e: int,
    seed: np.uint64,
    nodes: int,
) -> bool:
    """Start the episode of `seed` in environment `e` and observe its first decision. Return False if there is none."""
    start(simulator, settings, e, seed, nodes)
    for i in range(COUNTS):
        task.counts[e, i] = 0
    _summarise(simulator, task, e)
    asking = advance(simulator, settings, e)
    if asking:
        _observe(simulator, out, e)
    return asking


@kernel
def step(
    simulator: SimulatorState,
    settings: LatencySettings,
    task: LatencyConfig,
    out: Observation,
    actions: npt.NDArray[np.int64],
    results: StepResults,
) -> None:
    """Take one action in each of E environments, and write its results into the other arrays.

    An illegal action (no such node, or the pod does not fit there) changes nothing but the count of steps, and costs
    the penalty.
    """
    rewards, terminated, truncated = results
    for e in range(actions.shape[0]):
        n, counts = actions[e], task.counts[e]
        terminated[e] = False
        if attempt(counts, STEPS, ILLEGAL, out.mask[e], n):
            counts[KEPT] = bind(simulator, settings, e, n)
            # Before `advance`: the reward is about the state that the action leads to, not about what happens next.
            _summarise(simulator, task, e)
            rewards[e] = _reward(simulator, task, e)
            if advance(simulator, settings, e):
                _observe(simulator, out, e)
            else:
                terminated[e] = True
                _observe_end(out, e)
        else:
            rewards[e] = -task.penalty
        truncated[e] = not terminated[e] and counts[STEPS] >= task.step_limit


@kernel
def placement_latency(simulator: SimulatorState, settings: LatencySettings, e: int, n: int) -> float:
    """Return the milliseconds from node `n` to the users of the current pod if it ran there; NaN if it has none."""
    pod = simulator.scheduler_view.counts[e, POD]
    if simulator.scheduler_view.user[e, pod] < 0:
        return float(np.nan)
    return latency_with(simulator, settings, e, pod, n)


@inlined_kernel
def _summarise(simulator: SimulatorState, task: LatencyConfig, e: int) -> None:
    row, nodes = task.row, simulator.scheduler_view.counts[e, NODES]
    used, share, square = 0, 0.0, 0.0
    for n in range(nodes):
        used += running(simulator.scheduler_view, e, n) > 0
        part = truth.cpu_used(simulator, e, n) / cpu_allocatable(simulator.scheduler_view, e, n)
        share += part
        square += part * part
    row[e, summary.NODES] = row[e, summary.CPU_NODES] = row[e, summary.SLOTS] = nodes
    row[e, summary.NODES_USED] = used
    row[e, summary.CPU_SHARE] = share
    row[e, summary.CPU_SQUARE] = square


@inlined_kernel
def _reward(simulator: SimulatorState, task: LatencyConfig, e: int) -> float:
    total = 0.0
    for i in range(task.objectives.shape[0]):
        objective = task.objectives[i]
        if objective == LEAST_CONNECTIONS:
            value = _connections(simulator, e)
        elif objective == LATENCY_AWARE:
            value = _latency(simulator, e, task.counts[e, KEPT])
        else:
            # The same row twice: formulas of these objectives read the state after the action only.
            value = measure(objective, task.row[e], task.row[e])
        total += task.weights[i] * value
    return total


@inlined_kernel
def _connections(simulator: SimulatorState, e: int) -> float:
    total, most, nodes = 0.0, 0.0, simulator.scheduler_view.counts[e, NODES]
    for n in range(nodes):
        count = truth.connections(simulator, e, n)
        total += count
        most = max(most, count)
    return least_connections(total / nodes, most)


@inlined_kernel
def _latency(simulator: SimulatorState, e: int, kept: int) -> float:
    total_requested, allocatable, used, nodes = 0, 0, 0, simulator.scheduler_view.counts[e, NODES]
    for n in range(nodes):
        if running(simulator.scheduler_view, e, n) > 0:
            total_requested += cpu_requested(simulator.scheduler_view, e, n)
            allocatable += cpu_allocatable(simulator.scheduler_view, e, n)
            used += 1
    return latency_aware(nodes, used, total_requested / allocatable if allocatable > 0 else 0.0, kept)


@inlined_kernel
def _observe(simulator: SimulatorState, out: Observation, e: int) -> None:
    view, nodes = simulator.scheduler_view, simulator.scheduler_view.counts[e, NODES]
    for n in range(out.mask.shape[1]):
        present = n < nodes
        out.mask[e, n] = present and fits_on(view, e, view.counts[e, POD], n)
        out.groups[e, n, 0] = view.zone[e, n] if present else -1
        out.groups[e, n, 1] = -1
    encode(view, e, view.user[e, view.counts[e, POD]], out.mask, out.nodes, out.pod, out.context)


@inlined_kernel
def _observe_end(out: Observation, e: int) -> None:
    """Write the observation after the end of the workload: no pod, no node to choose."""
    write_terminal_observation(observation_of(out, e))
    for i in range(out.context.shape[1]):
        out.context[e, i] = 0.0
