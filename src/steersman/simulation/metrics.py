"""Curves and summary metrics from the record of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI
from steersman.core.handles import EVICTIONS, LOST, SERVED
from steersman.objectives.registry import WeightedObjectives
from steersman.simulation.event_arrays import (
    BOUND,
    CAUSE,
    CPU_SHARE,
    CPU_SQUARE,
    CPU_TAKEN,
    EVICTED,
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
from steersman.simulation.measures import BY_CAUSE, COURSE, INSTALLED, Measure
from steersman.simulation.pod_kinds import KINDS, arrived_metric, failed_metric
from steersman.simulation.result import Curve, Floats, Metric
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

TIMED_POINTS = 200
HOUR = 3600.0
OVER_TIME = tuple(each for each in COURSE.values() if each.over_time)


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity of the cluster: GPU milli, milli-CPU, bytes; numbers of nodes with GPUs and with CPUs."""

    gpu: int
    cpu: int
    memory: int
    gpu_nodes: int
    cpu_nodes: int


def _percent(used: npt.NDArray[np.int64], capacity: int) -> Floats:
    return np.full(len(used), np.nan) if capacity == 0 else 100.0 * used / capacity


def _deviation(total: Floats, squares: Floats, count: int) -> Floats:
    if count == 0:
        return np.full(len(total), np.nan)
    mean = total / count
    variance = squares / count - mean * mean
    # The sums are updated by adding and subtracting, so a balanced cluster may show a rounding residue.
    return 100.0 * np.sqrt(np.where(variance < 1e-12, 0.0, variance))


def events_of(record: EventRecord, arrived_gpu: npt.NDArray[np.int64], capacity: Capacity) -> Curve:
    """Return the state after each event; `arrived_gpu` [E] is the GPU milli that has arrived by each event."""
    numbers, sums = record.numbers, record.sums
    # GPU_EXCEEDING: what is taken beyond existing GPUs leaves none of them less idle.
    idle = (capacity.gpu - numbers[:, GPU_TAKEN] + numbers[:, GPU_EXCEEDING]).astype(np.float64)
    ratio = np.full(len(idle), np.nan)
    np.divide(100.0 * sums[:, CAUSE:].sum(axis=1), idle, out=ratio, where=idle > 0)
    causes = 100.0 * sums[:, CAUSE:] / (float(capacity.gpu) or np.nan)
    measured = {
        "arrived_percent": _percent(arrived_gpu, capacity.gpu),
        "gpu_allocation_percent": _percent(numbers[:, GPU_TAKEN], capacity.gpu),
        "cpu_allocation_percent": _percent(numbers[:, CPU_TAKEN], capacity.cpu),
        "memory_allocation_percent": _percent(numbers[:, MEMORY_TAKEN], capacity.memory),
        "gpu_fragmented_percent": causes.sum(axis=1),
        **dict(zip(BY_CAUSE, causes.T, strict=True)),
        "gpu_balance_percent": _deviation(sums[:, GPU_SHARE], sums[:, GPU_SQUARE], capacity.gpu_nodes),
        "cpu_balance_percent": _deviation(sums[:, CPU_SHARE], sums[:, CPU_SQUARE], capacity.cpu_nodes),
        "nodes_used": numbers[:, NODES_IN_USE].astype(np.float64),
        "pods_waiting": numbers[:, NOW_WAITING].astype(np.float64),
        "gpu_fragmented_of_idle_percent": ratio,
    }
    measured |= {each.name: each.of_events(record) for each in INSTALLED}
    return Curve(record.time, _rounded(measured))


def arrival_curve(events: Curve, last: int) -> Curve:
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
        return np.array([values[g].sum() / len(g) if len(g) else np.nan for g in groups])

    return _taken(np.arange(last + 1, dtype=np.float64), events, mean)


def time_curve(events: Curve, until: float) -> Curve:
    """Return the curve over time: the state after the last event up to each of `TIMED_POINTS` evenly spaced moments.

    `until` is its end, usually the last arrival: how long the last pods run says nothing about a policy.
    """
    moments = np.linspace(events.x[0], until, TIMED_POINTS)
    last = np.searchsorted(events.x, moments, side="right") - 1
    return _taken(moments, events, lambda values: values[last])


def event_curve(events: Curve) -> Curve:
    """Return the curve over arrivals, for workloads without GPU demand: percent of the pods that have arrived."""
    count = len(events.x)
    last = np.round(np.linspace(0, count - 1, min(TIMED_POINTS, count))).astype(np.int64)
    return _taken(100.0 * (last + 1) / count, events, lambda values: values[last])


def _taken(x: Floats, events: Curve, take: Callable[[Floats], Floats]) -> Curve:
    rewards = {name: take(values) for name, values in events.rewards.items()}
    return Curve(x, _rounded({name: take(values) for name, values in events.measured.items()}), rewards)


def _rounded(measured: dict[str, Floats]) -> dict[str, Floats]:
    return {name: np.round(of, 2) if COURSE[name].is_published else of for name, of in measured.items()}


def final_metrics(record: EventRecord, events: Curve, curve: Curve | None, until: float) -> list[Metric]:
    """Return the state after the last event up to `until`, and the numbers of pods by outcome.

    With a curve (`inflation`) allocation is that of its last point, as published results are.
    """
    outcomes = np.bincount(record.numbers[:, OUTCOME], minlength=5)
    # The last event up to `until`: what departs later says nothing of the policy.
    at = int(np.searchsorted(events.x, until, side="right")) - 1

    def end(measure: Measure) -> float:
        if curve is None or not measure.is_published:
            return float(events.measured[measure.name][at])
        known = curve.measured[measure.name]
        # The last point that has a value: demand may not reach the last percent.
        known = known[~np.isnan(known)]
        return float(known[-1]) if len(known) else float("nan")

    return [
        *(Metric(each.name, each.unit, end(each)) for each in COURSE.values() if each.is_final),
        Metric("pods_bound", "pods", float(outcomes[BOUND] - outcomes[EVICTED])),
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
    record: EventRecord, events: Curve, waits: Waits, standing: int, warm: int, until: float
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
        Metric("pods_waiting", "pods", float(events.pods_waiting[-1])),
        *(
            Metric(each.over_time, each.unit, _over_time(events, events.measured[each.name], until))
            for each in OVER_TIME
        ),
        Metric("makespan_seconds", "seconds", float(events.x[-1] - events.x[0])),
    ]


def eviction_metrics(waits: Waits, accounts: Floats, resumable: npt.NDArray[np.bool_], first: int) -> list[Metric]:
    """Return how many pods were evicted, what was lost by that, and the mean waits of those that can resume and others.

    Args:
        waits: [A] of all arrivals.
        accounts: [A, 4] see `CoreEngine.accounts`.
        resumable: [A] whether a pod can resume.
        first: the first arrival whose wait counts.
    """
    gpus = waits.demand / GPU_MILLI
    lost = float(gpus @ accounts[:, LOST]) / HOUR
    used = float(gpus @ accounts[:, SERVED]) / HOUR
    evicted = accounts[:, EVICTIONS] > 0
    shown = np.zeros(len(evicted), dtype=np.bool_)
    shown[first:] = ~np.isnan(waits.seconds[first:])

    def mean(which: npt.NDArray[np.bool_]) -> float:
        return float(waits.seconds[shown & which].mean()) if (shown & which).any() else float("nan")

    return [
        Metric("evictions", "pods", float(accounts[:, EVICTIONS].sum())),
        Metric("pods_evicted", "pods", float(evicted.sum())),
        Metric("gpu_hours_lost", "GPU h", lost),
        Metric("gpu_time_lost_percent", "percent", 100.0 * lost / used if used > 0 else 0.0),
        Metric("waiting_time_mean_resumable_seconds", "seconds", mean(resumable)),
        Metric("waiting_time_mean_not_resumable_seconds", "seconds", mean(~resumable)),
        Metric("waiting_time_mean_evicted_seconds", "seconds", mean(evicted)),
    ]


def parts_of_trace(events: Curve, waits: Waits, until: float) -> dict[str, Floats]:
    """Return what each part of a trace contributes to the metrics of `timed` that are means, see `RunResult.parts`.

    Empty for a trace with too few arrivals or busy periods to be divided.
    """
    if len(waits.seconds) < LEAST_ARRIVALS or not until > events.x[0]:
        return {}
    if busy_periods(events.pods_waiting[events.x <= until]) < LEAST_BUSY_PERIODS:
        return {}
    over_time = {
        each.over_time: parts_of_time(events.x, until, values)
        for each in OVER_TIME
        if not np.isnan(values := events.measured[each.name]).any()
    }
    return parts_of_arrivals(waits) | over_time


def busy_periods(waiting: Floats) -> int:
    """Return the number of periods from when a pod begins to wait to when none waits; `waiting` [E] pods that wait."""
    waits = waiting > 0
    return int(waits[0]) + int(np.count_nonzero(waits[1:] & ~waits[:-1]))


def _over_time(events: Curve, values: Floats, until: float) -> float:
    """Return the mean over time of a value after each event, from the first event to `until`."""
    # Intervals beyond `until` get the length 0.
    length = np.diff(np.minimum(events.x, until))
    whole = float(length.sum())
    return float((values[:-1] * length).sum() / whole) if whole > 0 else float("nan")
