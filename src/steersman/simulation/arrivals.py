"""When pods come and how long they stay: the three protocols."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI, PodClass
from steersman.errors import SteersmanError, UsageError
from steersman.simulation.result import Protocol
from steersman.workloads.inflation import MAX_DRAWS, inflate
from steersman.workloads.workload import Workload

DEFAULT_DURATION = 3600.0
"""Mean seconds of the durations that generated arrivals have where neither the data nor the user states any."""

LARGEST_BURST = 50


@dataclass(frozen=True, slots=True)
class Schedule:
    """What arrives when.

    Attributes:
        pods: [A] index into `workload.pods`, in the order of arrival.
        time: [A] seconds (the arrival's number where the protocol knows no time).
        duration: [A] seconds that a bound pod runs, inf: to the end.
        nodes: [N] index into `workload.nodes` in the order of their rank: among equal scores the first one wins.
        waits: whether a pod that fits nowhere waits for departures, instead of being dropped.
        standing: how many of the first arrivals stand where the workload recorded them; nobody decides about these.
        warm: how many arrivals after those are no arrivals but the pods that run when generated ones begin.
    """

    pods: npt.NDArray[np.int64]
    time: npt.NDArray[np.float64]
    duration: npt.NDArray[np.float64]
    nodes: npt.NDArray[np.int64]
    waits: bool
    standing: int = 0
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
    """The arrivals of one run; before them the pods that stand from the beginning.

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
        standing = len(workload.standing())
        return Schedule(
            inflation.pods, np.arange(count, dtype=np.float64), np.full(count, np.inf), inflation.nodes, False, standing
        )
    random = np.random.default_rng(seed)
    nodes = random.permutation(len(workload.nodes))
    first = np.array(workload.standing(), dtype=np.int64)
    if protocol == "arrivals":
        count = len(workload.pods)
        order = np.concatenate([first, np.setdiff1d(np.arange(count), first)])
        return Schedule(order, np.arange(count, dtype=np.float64), np.full(count, np.inf), nodes, False, len(first))
    if protocol == "timed":
        if mean_duration is not None and not (math.isfinite(mean_duration) and mean_duration > 0):
            raise UsageError(f"mean duration {mean_duration:g} must be above 0 seconds")
        if workload.from_now:
            raise UsageError(
                f"{workload.name}: --from-now belongs to --protocol inflation and arrivals, not to timed: nobody knows "
                "how long pods that run go on running"
            )
        warm = 0
        if load is None:
            pods, time, duration = _trace_times(workload, mean_duration, random)
        else:
            pods, time, duration, warm = _poisson(workload, load, mean_duration or DEFAULT_DURATION, random)
        pods, stays = np.concatenate([first, pods]), np.full(len(first), np.inf)
        time = np.concatenate([np.full(len(first), time[0] if len(time) else 0.0), time])
        return Schedule(pods, time, np.concatenate([stays, duration]), nodes, True, len(first), warm)
    raise UsageError(f"unknown protocol {protocol!r}; known are inflation, timed, arrivals")


def resample(workload: Workload, *, ratio: float, seed: int) -> Schedule:
    """Arrivals like those of `inflation`, of the same distribution but by other, quicker random numbers: for training.

    No seed of it is a seed of `schedule`, so what is measured by `inflation` was never trained on.
    """
    random = np.random.default_rng(seed)
    demand = np.array([pod.requests.gpu_total_milli for pod in workload.pods], dtype=np.float64)
    first, drawable = (np.array(some, dtype=np.int64) for some in (workload.standing(), workload.demand()))
    target = ratio * GPU_MILLI * sum(node.gpu_total for node in workload.nodes)
    if not (target and demand[drawable].any()):
        raise SteersmanError(f"{workload.name}: its nodes or pods have no GPU, so there is no GPU demand to reach")
    target -= demand[first].sum()
    pods = random.permutation(np.setdiff1d(drawable, first))
    missing = int(1.2 * max(0.0, target - demand[pods].sum()) / demand[drawable].mean()) + 100
    if missing > MAX_DRAWS:
        raise SteersmanError(f"{workload.name}: its pods ask for so little GPU that {missing} would have to be drawn")
    pods = np.concatenate([pods, drawable[random.integers(0, len(drawable), missing)]])
    pods = pods[: int(np.searchsorted(np.cumsum(demand[pods]), target, side="right"))]
    pods = np.concatenate([first, pods])
    count = len(pods)
    nodes = random.permutation(len(workload.nodes))
    return Schedule(pods, np.arange(count, dtype=np.float64), np.full(count, np.inf), nodes, False, len(first))


def draw(
    workload: Workload,
    protocol: Protocol,
    seed: int,
    ratio: float,
    load: float | None,
    mean_duration: float | None = None,
    bursts: bool = False,
) -> Schedule:
    """Arrivals that are like those of a protocol's runs, for trying policies before a run.

    `inflation`: as a run with this seed. `arrivals`: the workload's pods in a random order. `timed`: Poisson arrivals
    at `load`; without one at the load that the trace's times amount to, with `mean_duration` as in `schedule`.

    Controllers make pods by the dozen. With `bursts` in `inflation`, and always in `arrivals`, the pods of an owner (or
    equal ones, where they have none) come together in every other draw, those of odd seeds.
    """
    random = np.random.default_rng(seed)
    if protocol == "inflation":
        plan = schedule(workload, protocol, seed=seed, ratio=ratio, load=None)
        if not (bursts and seed % 2):
            return plan
        together = _together(workload, plan.pods[plan.standing :], random)
        return replace(plan, pods=np.concatenate([plan.pods[: plan.standing], together]))
    count = len(workload.pods)
    if protocol == "timed":
        load = trace_load(workload, mean_duration) if load is None else load
        if load > 0:
            return schedule(workload, protocol, seed=seed, ratio=ratio, load=load, mean_duration=mean_duration)
    first = np.array(workload.standing(), dtype=np.int64)
    coming = random.permutation(np.setdiff1d(np.arange(count), first))
    if protocol == "arrivals" and seed % 2:
        coming = _together(workload, coming, random)
    pods, nodes = np.concatenate([first, coming]), random.permutation(len(workload.nodes))
    times, stays = np.arange(count, dtype=np.float64), np.full(count, np.inf)
    return Schedule(pods, times, stays, nodes, protocol == "timed", len(first))


def _together(workload: Workload, pods: npt.NDArray[np.int64], random: np.random.Generator) -> npt.NDArray[np.int64]:
    """[A] the same arrivals in another order: those of an owner come in bursts of 1 to `LARGEST_BURST`."""
    arrived: dict[tuple[str, str] | PodClass, list[int]] = defaultdict(list)
    for i in pods.tolist():
        pod = workload.pods[i]
        arrived[(pod.namespace, pod.owner) if pod.owner else pod.pod_class].append(i)
    bursts = []
    for some in arrived.values():
        while some:
            size = int(random.integers(1, LARGEST_BURST + 1))
            bursts.append(some[:size])
            some = some[size:]
    order = random.permutation(len(bursts))
    return np.array([i for k in order for i in bursts[k]], dtype=np.int64)


def trace_load(workload: Workload, mean_duration: float | None = None) -> float:
    """Return the demand over capacity that a trace offers in the mean; 0 where that is not known or all come at once.

    Pods without an end run for `mean_duration` seconds; without that the load is not known.
    """
    standing = set(workload.standing())
    pods = [pod for i, pod in enumerate(workload.pods) if i not in standing]
    starts = [pod.creation_time or 0.0 for pod in pods]
    span = max(starts, default=0.0) - min(starts, default=0.0)
    capacity = float(sum(node.gpu_total for node in workload.nodes) * GPU_MILLI)
    work = 0.0
    for pod, start in zip(pods, starts, strict=True):
        seconds = mean_duration if pod.deletion_time is None else pod.deletion_time - start
        if seconds is None:
            return 0.0
        work += pod.requests.gpu_total_milli * seconds
    return min(100.0, work / (capacity * span)) if span > 0 and capacity else 0.0


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
    coming = np.setdiff1d(np.arange(len(workload.pods)), workload.standing())
    for pod in (workload.pods[i] for i in coming):
        if pod.creation_time is None:
            raise SteersmanError(
                f"{workload.name}: pod {pod.name!r} has no creation time, which --protocol timed needs; "
                "give --load to generate arrivals, or use --protocol arrivals"
            )
    created = np.array([workload.pods[i].creation_time for i in coming], dtype=np.float64)
    if mean_duration is not None:
        duration = _durations(workload, mean_duration, random)[coming]
    else:
        deleted = [workload.pods[i].deletion_time for i in coming]
        duration = np.array([np.inf if end is None else end for end in deleted]) - created
    order = np.argsort(created, kind="stable")
    return coming[order], created[order], duration[order]


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
    capacity = float(sum(node.gpu_total for node in workload.nodes) * GPU_MILLI)
    demand = np.array([pod.requests.gpu_total_milli for pod in workload.pods], dtype=np.float64)
    if not (capacity and demand.any()):
        capacity = float(sum(node.cpu_milli for node in workload.nodes))
        demand = np.array([pod.requests.cpu_milli for pod in workload.pods], dtype=np.float64)
    drawable = np.array(workload.demand(), dtype=np.int64)
    demand, duration = demand[drawable], duration[drawable]
    work, count = float((demand * duration).mean()) if len(drawable) else 0.0, len(drawable)
    if not (capacity and work):
        raise SteersmanError(f"{workload.name}: pods ask for no GPU and no CPU over time, so there is no load to offer")
    rate = load * capacity / work
    running = random.permutation(np.repeat(np.arange(count), random.poisson(rate * duration / count)))
    drawn = random.integers(0, count, count)
    return (
        drawable[np.concatenate([running, drawn])],
        np.concatenate([np.zeros(len(running)), np.cumsum(random.exponential(1 / rate, count))]),
        np.concatenate([duration[running] * random.uniform(size=len(running)), duration[drawn]]),
        len(running),
    )
