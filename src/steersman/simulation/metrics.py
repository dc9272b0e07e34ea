"""Curves and summary metrics from the record of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.objectives.fragmentation import CAUSES
from steersman.objectives.registry import WeightedObjectives
from steersman.simulation.event_arrays import (
    BOUND,
    CAUSE,
    CPU_SHARE,
    CPU_SQUARE,
    CPU_TAKEN,
    FAILED,
    FINISHED,
    GPU_EXCEEDING,
    GPU_SHARE,
    GPU_SQUARE,
    GPU_TAKEN,
    MEMORY_TAKEN,
    NODES_IN_USE,
    NOW_WAITING,
    OUTCOME,
    EventRecord,
)
from steersman.simulation.pod_kinds import KINDS, arrived_metric, failed_metric
from steersman.simulation.result import Curve, Metric, Timeline
from steersman.simulation.rewards import DecisionStates
from steersman.simulation.waiting import (
    LEAST_ARRIVALS,
    LEAST_BUSY_PERIODS,
    Waits,
    parts_of_arrivals,
    parts_of_time,
    percentile,
    waiting_metrics,
)

Floats = npt.NDArray[np.float64]

TIMED_POINTS = 200


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity of the cluster: GPU milli, milli-CPU, bytes; numbers of nodes, and of those with GPUs and with CPUs."""

    gpu: int
    cpu: int
    memory: int
    nodes: int
    gpu_nodes: int
    cpu_nodes: int


def _percent(used: npt.NDArray[np.int64], capacity: int) -> Floats:
    if capacity == 0:
        return np.full(len(used), np.nan)
    return np.round(100.0 * used / capacity, 2)


def _deviation(total: Floats, squares: Floats, count: int) -> Floats:
    if count == 0:
        return np.full(len(total), np.nan)
    mean = total / count
    variance = squares / count - mean * mean
    # The sums are updated by adding and subtracting, so a balanced cluster may show a rounding residue.
    return 100.0 * np.sqrt(np.where(variance < 1e-12, 0.0, variance))


def events_of(record: EventRecord, arrived_gpu: npt.NDArray[np.int64], capacity: Capacity) -> Timeline:
    """Return the record as shares; `arrived_gpu` [E] is the GPU milli that has arrived by each event."""
    taken = record.numbers[:, GPU_TAKEN]
    # GPU_EXCEEDING: what is taken beyond existing GPUs leaves none of them less idle.
    idle = (capacity.gpu - taken + record.numbers[:, GPU_EXCEEDING]).astype(np.float64)
    fragmented = record.sums[:, CAUSE:].sum(axis=1)
    ratio = np.full(len(idle), np.nan)
    np.divide(100.0 * fragmented, idle, out=ratio, where=idle > 0)
    gpu = float(capacity.gpu) or np.nan
    return Timeline(
        time=record.time,
        arrived_percent=(100.0 * arrived_gpu / gpu).astype(np.float64),
        gpu=_percent(taken, capacity.gpu),
        cpu=_percent(record.numbers[:, CPU_TAKEN], capacity.cpu),
        memory=_percent(record.numbers[:, MEMORY_TAKEN], capacity.memory),
        fragmentation=np.round(ratio, 2),
        causes=100.0 * record.sums[:, CAUSE:] / gpu,
        gpu_balance=_deviation(record.sums[:, GPU_SHARE], record.sums[:, GPU_SQUARE], capacity.gpu_nodes),
        cpu_balance=_deviation(record.sums[:, CPU_SHARE], record.sums[:, CPU_SQUARE], capacity.cpu_nodes),
        nodes_used=record.numbers[:, NODES_IN_USE].astype(np.float64),
        waiting=record.numbers[:, NOW_WAITING].astype(np.float64),
    )


def arrival_curve(events: Timeline, last: int) -> Curve:
    """Return the curve over arrived GPU demand, [0..last] percent, each point the mean of the events rounded to it.

    A point without an event takes the mean of its two neighbours, as the published tables do; NaN if there are none.
    """
    column = np.round(events.arrived_percent).astype(np.int64)
    groups = []
    for k in range(last + 1):
        chosen = np.flatnonzero(column == k)
        if len(chosen) == 0:
            chosen = np.flatnonzero(np.abs(column - k) <= 1)
        groups.append(chosen)

    def mean(values: Floats) -> Floats:
        empty = np.full(values.shape[1:], np.nan)
        return np.array([values[g].mean(axis=0) if len(g) else empty for g in groups])

    return _curve(np.arange(last + 1, dtype=np.float64), events, mean)


def time_curve(events: Timeline, until: float) -> Curve:
    """Return the curve over time: the state after the last event up to each of `TIMED_POINTS` evenly spaced moments.

    `until` is its end, usually the last arrival: how long the last pods run says nothing about a policy.
    """
    moments = np.linspace(events.time[0], until, TIMED_POINTS)
    last = np.searchsorted(events.time, moments, side="right") - 1
    return _curve(moments, events, lambda values: values[last])


def event_curve(events: Timeline) -> Curve:
    """Return the curve over arrivals, for workloads without GPU demand: percent of the pods that have arrived."""
    last = np.round(np.linspace(0, len(events.time) - 1, min(TIMED_POINTS, len(events.time)))).astype(np.int64)
    return _curve(100.0 * (last + 1) / len(events.time), events, lambda values: values[last])


def _curve(x: Floats, events: Timeline, take: Callable[[Floats], Floats]) -> Curve:
    return Curve(
        x=x,
        gpu_allocation_percent=np.round(take(events.gpu), 2),
        cpu_allocation_percent=np.round(take(events.cpu), 2),
        memory_allocation_percent=np.round(take(events.memory), 2),
        gpu_fragmented_of_idle_percent=np.round(take(events.fragmentation), 2),
        fragmentation_by_cause_percent=take(events.causes),
        gpu_balance_percent=take(events.gpu_balance),
        cpu_balance_percent=take(events.cpu_balance),
        nodes_used=take(events.nodes_used),
        pods_waiting=take(events.waiting),
        rewards={name: take(values) for name, values in events.rewards.items()},
    )


def final_metrics(record: EventRecord, events: Timeline, curve: Curve | None, until: float) -> list[Metric]:
    """Return the state after the last event up to `until`, and the numbers of pods by outcome.

    With a curve (`inflation`) allocation and fragmentation are those of its last point, as published results are.
    """
    outcomes = np.bincount(record.numbers[:, OUTCOME], minlength=4)
    # The last event up to `until`: what departs later says nothing of the policy.
    at = int(np.searchsorted(events.time, until, side="right")) - 1

    def end(of_events: Floats, name: str) -> float:
        if curve is None:
            return float(of_events[at])
        known = getattr(curve, name)
        # The last point that has a value: demand may not reach the last percent.
        known = known[~np.isnan(known)]
        return float(known[-1]) if len(known) else float("nan")

    return [
        Metric("gpu_allocation_percent", "percent", end(events.gpu, "gpu_allocation_percent")),
        Metric("cpu_allocation_percent", "percent", end(events.cpu, "cpu_allocation_percent")),
        Metric("memory_allocation_percent", "percent", end(events.memory, "memory_allocation_percent")),
        Metric("gpu_fragmented_percent", "percent", float(events.causes[at].sum())),
        *(
            Metric(f"gpu_fragmented_{cause}_percent", "percent", float(value))
            for cause, value in zip(CAUSES, events.causes[at], strict=True)
        ),
        Metric("gpu_balance_percent", "percent", float(events.gpu_balance[at])),
        Metric("cpu_balance_percent", "percent", float(events.cpu_balance[at])),
        Metric("nodes_used", "nodes", float(events.nodes_used[at])),
        Metric("pods_bound", "pods", float(outcomes[BOUND])),
        Metric("pods_failed", "pods", float(outcomes[FAILED])),
    ]


def kind_metrics(failed: Sequence[int], arrived: Sequence[int]) -> list[Metric]:
    """Return the pods by kind that fitted nowhere and all that arrived, [4] each."""
    return [
        *(Metric(failed_metric(kind), "pods", float(count)) for kind, count in zip(KINDS, failed, strict=True)),
        *(Metric(arrived_metric(kind), "pods", float(count)) for kind, count in zip(KINDS, arrived, strict=True)),
    ]


def reward_metric(objective: str) -> str:
    """Return the name of the metric of an objective's mean reward over the decisions of a run."""
    return f"reward_mean_{objective}"


def reward_metrics(
    states: DecisionStates, objectives: Sequence[WeightedObjectives]
) -> tuple[list[Metric], dict[str, Floats]]:
    """Return the mean reward of each objective over a run's decisions, and [E] its reward over the events."""
    values = {objective.name: states.rewards(objective) for objective in objectives}
    means = [
        Metric(reward_metric(name), "", float(of.mean()) if len(of) else float("nan")) for name, of in values.items()
    ]
    return means, {name: states.over_events(of) for name, of in values.items()}


def timed_metrics(
    record: EventRecord, events: Timeline, waits: Waits, standing: int, warm: int, until: float
) -> list[Metric]:
    """Return the metrics of `timed`: waiting times over the pods that were bound, and means over time.

    The first `standing` arrivals stay where the workload recorded them and never wait. The next `warm` are the pods
    that run when generated arrivals begin: all come at once, before what a user would call an arrival, so waiting times
    are those of the pods after them; with these they have other names. Means over time end at `until`.
    """
    outcome = record.numbers[:, OUTCOME]
    coming, every = waits.after(standing + warm), waits.after(standing).bound
    with_warm_start = [
        Metric(
            "waiting_time_mean_with_warm_start_seconds", "seconds", float(every.mean()) if len(every) else float("nan")
        ),
        Metric("waiting_time_p95_with_warm_start_seconds", "seconds", percentile(every, 95)),
    ]
    return [
        *waiting_metrics(coming),
        *(with_warm_start if warm else []),
        Metric("pods_delayed", "pods", float((every > 0).sum())),
        Metric("pods_finished", "pods", float((outcome == FINISHED).sum())),
        Metric("pods_waiting", "pods", float(events.waiting[-1])),
        *(Metric(name, unit, _over_time(events, values, until)) for name, unit, values in _courses(events)),
        Metric("makespan_seconds", "seconds", float(events.time[-1] - events.time[0])),
    ]


def parts_of_trace(events: Timeline, waits: Waits, until: float) -> dict[str, Floats]:
    """Return what each part of a trace contributes to the metrics of `timed` that are means, see `RunResult.parts`.

    Empty for a trace with too few arrivals or busy periods to be divided.
    """
    if len(waits.seconds) < LEAST_ARRIVALS or not until > events.time[0]:
        return {}
    if busy_periods(events.waiting[events.time <= until]) < LEAST_BUSY_PERIODS:
        return {}
    over_time = {
        name: parts_of_time(events.time, until, values)
        for name, _, values in _courses(events)
        if not np.isnan(values).any()
    }
    return parts_of_arrivals(waits) | over_time


def busy_periods(waiting: Floats) -> int:
    """Return the number of periods from when a pod begins to wait to when none waits; `waiting` [E] pods that wait."""
    waits = waiting > 0
    return int(waits[0]) + int(np.count_nonzero(waits[1:] & ~waits[:-1]))


def _courses(events: Timeline) -> list[tuple[str, str, Floats]]:
    """Return the metrics that are means over time: name, unit and the value after each event."""
    return [
        ("gpu_allocation_over_time_percent", "percent", events.gpu),
        ("cpu_allocation_over_time_percent", "percent", events.cpu),
        ("gpu_fragmented_over_time_percent", "percent", events.causes.sum(axis=1)),
        ("cpu_balance_over_time_percent", "percent", events.cpu_balance),
        ("nodes_used_over_time", "nodes", events.nodes_used),
    ]


def _over_time(events: Timeline, values: Floats, until: float) -> float:
    """Return the mean over time of a value after each event, from the first event to `until`."""
    # Intervals beyond `until` get the length 0.
    length = np.diff(np.minimum(events.time, until))
    whole = float(length.sum())
    return float((values[:-1] * length).sum() / whole) if whole > 0 else float("nan")
