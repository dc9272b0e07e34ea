"""When pods come and how long they stay: the three protocols."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI
from steersman.errors import SteersmanError, UsageError
from steersman.simulation.result import Protocol
from steersman.workloads.inflation import MAX_DRAWS, inflate
from steersman.workloads.workload import Workload

DEFAULT_DURATION = 3600.0
"""Mean seconds of the durations that generated arrivals have where neither the data nor the user states any."""

Source = Literal["trace", "generated"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """What arrives when.

    Attributes:
        pods: [A] index into `workload.pods`, in the order of arrival.
        time: [A] seconds (the arrival's number where the protocol knows no time).
        duration: [A] seconds that a bound pod runs, inf: to the end.
        nodes: [N] index into `workload.nodes` in the order of their rank: among equal scores the first one wins.
        waits: whether a pod that fits nowhere waits for departures, instead of being dropped.
        warm: how many of the first arrivals are no arrivals but the pods that run when generated ones begin.
    """

    pods: npt.NDArray[np.int64]
    time: npt.NDArray[np.float64]
    duration: npt.NDArray[np.float64]
    nodes: npt.NDArray[np.int64]
    waits: bool
    warm: int = 0


def schedule(
    workload: Workload,
    protocol: Protocol,
    *,
    seed: int,
    ratio: float,
    load: float | None,
    mean_duration: float | None = None,
    shuffle: bool = True,
) -> Schedule:
    """The arrivals of one run.

    Args:
        workload: nodes and pods.
        protocol: `inflation` (pods drawn to `ratio` times the GPU capacity), `timed` (creation and deletion times of
            the trace, or Poisson arrivals at an offered `load`), `arrivals` (the given order, nothing leaves).
        seed: what is random; in every protocol also the rank of nodes, which breaks ties.
        ratio: of `inflation`, arrived GPU demand as a share of the capacity.
        shuffle: of `inflation`, whether the trace's pods are shuffled before others are drawn.
        load: of `timed`, demand over capacity (GPU, or CPU where pods want no GPU); None takes the trace's times.
        mean_duration: of `timed`, mean seconds of the exponential durations of pods whose source states no end; None:
            such pods run to the end, or with `load` for `DEFAULT_DURATION` in the mean.
    """
    if protocol == "inflation":
        if not 0 < ratio <= 100:
            raise UsageError(f"ratio {ratio:g} must be above 0 and at most 100 times the capacity")
        inflation = inflate(workload, ratio=ratio, seed=seed, shuffle=shuffle)
        count = len(inflation.pods)
        return Schedule(
            inflation.pods, np.arange(count, dtype=np.float64), np.full(count, np.inf), inflation.nodes, False
        )
    random = np.random.default_rng(seed)
    nodes = random.permutation(len(workload.nodes))
    if protocol == "arrivals":
        count = len(workload.pods)
        return Schedule(np.arange(count), np.arange(count, dtype=np.float64), np.full(count, np.inf), nodes, False)
    if protocol == "timed":
        if mean_duration is not None and not (math.isfinite(mean_duration) and mean_duration > 0):
            raise UsageError(f"mean duration {mean_duration:g} must be above 0 seconds")
        if load is None:
            pods, time, duration = _trace_times(workload, mean_duration, random)
            return Schedule(pods, time, duration, nodes, True)
        pods, time, duration, warm = _poisson(workload, load, mean_duration or DEFAULT_DURATION, random)
        return Schedule(pods, time, duration, nodes, True, warm)
    raise UsageError(f"unknown protocol {protocol!r}; known are inflation, timed, arrivals")


def resample(workload: Workload, *, ratio: float, seed: int) -> Schedule:
    """Arrivals like those of `inflation`, of the same distribution but by other, quicker random numbers: for training.

    No seed of it is a seed of `schedule`, so what is measured by `inflation` was never trained on.
    """
    random = np.random.default_rng(seed)
    demand = np.array([pod.requests.gpu_total_milli for pod in workload.pods], dtype=np.float64)
    target = ratio * GPU_MILLI * sum(node.gpu_count for node in workload.nodes)
    if not (target and demand.any()):
        raise SteersmanError(f"{workload.name}: its nodes or pods have no GPU, so there is no GPU demand to reach")
    pods = random.permutation(len(demand))
    missing = int(1.2 * max(0.0, target - demand.sum()) / demand.mean()) + 100
    if missing > MAX_DRAWS:
        raise SteersmanError(f"{workload.name}: its pods ask for so little GPU that {missing} would have to be drawn")
    pods = np.concatenate([pods, random.integers(0, len(demand), missing)])
    pods = pods[: int(np.searchsorted(np.cumsum(demand[pods]), target, side="right"))]
    count = len(pods)
    nodes = random.permutation(len(workload.nodes))
    return Schedule(pods, np.arange(count, dtype=np.float64), np.full(count, np.inf), nodes, False)


def _durations(workload: Workload, mean: float, random: np.random.Generator) -> npt.NDArray[np.float64]:
    """[P] the trace's durations; exponential ones of that mean, in seconds, where a pod has none."""
    generated = random.exponential(mean, len(workload.pods))
    return np.array(
        [
            pod.deletion_time - (pod.creation_time or 0.0) if pod.deletion_time is not None else generated[i]
            for i, pod in enumerate(workload.pods)
        ]
    )


def _trace_times(
    workload: Workload, mean_duration: float | None, random: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    for pod in workload.pods:
        if pod.creation_time is None:
            raise SteersmanError(
                f"{workload.name}: pod {pod.name!r} has no creation time, which --protocol timed needs; "
                "give --load to generate arrivals, or use --protocol arrivals"
            )
    created = np.array([pod.creation_time for pod in workload.pods], dtype=np.float64)
    if mean_duration is not None:
        duration = _durations(workload, mean_duration, random)
    else:
        duration = np.array(
            [
                pod.deletion_time - created[i] if pod.deletion_time is not None else np.inf
                for i, pod in enumerate(workload.pods)
            ]
        )
    order = np.argsort(created, kind="stable")
    return order, created[order], duration[order]


def _poisson(
    workload: Workload, load: float, mean_duration: float, random: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64], int]:
    """Poisson arrivals of pods drawn from the trace, as many as it has, into a cluster that is at work already.

    At the rate `load * capacity / mean(demand * duration)` demand over capacity is `load` in the mean. Durations of
    real traces are so unequal that an empty cluster would not get there for months; so at time 0 arrive the pods that
    an unlimited cluster would be running by then: of each pod of the trace Poisson(rate * duration / pods), each with a
    uniform share of its duration left (the stationary M/G/infinity queue, e.g. Takacs 1962).

    Returns:
        Pods, times and durations as in `Schedule`, and how many of the first are those that run at time 0.
    """
    if not (math.isfinite(load) and 0 < load <= 100):
        raise UsageError(f"load {load:g} must be above 0 and at most 100 times the capacity")
    duration = _durations(workload, mean_duration, random)
    capacity = float(sum(node.gpu_count for node in workload.nodes) * GPU_MILLI)
    demand = np.array([pod.requests.gpu_total_milli for pod in workload.pods], dtype=np.float64)
    if not (capacity and demand.any()):
        capacity = float(sum(node.cpu_milli for node in workload.nodes))
        demand = np.array([pod.requests.cpu_milli for pod in workload.pods], dtype=np.float64)
    work, count = float((demand * duration).mean()), len(workload.pods)
    if not (capacity and work):
        raise SteersmanError(f"{workload.name}: pods ask for no GPU and no CPU over time, so there is no load to offer")
    rate = load * capacity / work
    running = random.permutation(np.repeat(np.arange(count), random.poisson(rate * duration / count)))
    drawn = random.integers(0, count, count)
    return (
        np.concatenate([running, drawn]),
        np.concatenate([np.zeros(len(running)), np.cumsum(random.exponential(1 / rate, count))]),
        np.concatenate([duration[running] * random.uniform(size=len(running)), duration[drawn]]),
        len(running),
    )
