"""Arrival times and durations of pods: the three protocols."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import PodClass
from steersman.core.errors import SteersmanError, UsageError
from steersman.simulation.result import Protocol
from steersman.workloads.generators.inflation import MAX_DRAWS, inflate
from steersman.workloads.workload import Workload

DEFAULT_DURATION = 3600.0
"""Mean duration in seconds of generated arrivals if neither the data nor the user states durations."""

LARGEST_BURST = 50


@dataclass(frozen=True, slots=True)
class Schedule:
    """The arrivals of a run.

    Attributes:
        pods: [A] index into `workload.pods`, in order of arrival.
        time: [A] seconds (the index of the arrival if the protocol has no time).
        duration: [A] seconds that a bound pod runs, inf: to the end.
        nodes: [N] index into `workload.nodes` in order of rank: among equal scores the first one wins.
        waits: whether a pod that fits nowhere waits for departures instead of being dropped.
        standing: number of first arrivals that stay where the workload recorded them; no policy decides about them.
        warm: number of arrivals after those that are the pods running when generated arrivals begin.
        is_given: whether the workload gives order and times of the arrivals; else the seed draws them.
        members: [A] number of consecutive arrivals, from this one on, that start together; 0 for all but the first.
    """

    pods: npt.NDArray[np.int64]
    time: npt.NDArray[np.float64]
    duration: npt.NDArray[np.float64]
    nodes: npt.NDArray[np.int64]
    waits: bool
    standing: int = 0
    warm: int = 0
    is_given: bool = False
    members: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        """Let every pod start alone unless `members` is given."""
        if len(self.members) != len(self.pods):
            object.__setattr__(self, "members", np.ones(len(self.pods), dtype=np.int64))


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
    """Return the arrivals of one run, preceded by the pods that run from the start.

    Args:
        workload: nodes and pods.
        protocol: `inflation` (pods drawn to `ratio` times the GPU capacity), `timed` (creation and deletion times of
            the trace, or Poisson arrivals at an offered `load`), `arrivals` (the given order, nothing leaves).
        seed: seed of all randomness; in every protocol also of the rank of nodes, which breaks ties.
        ratio: arrived GPU demand over capacity (`inflation`).
        shuffle: whether the trace's pods are shuffled before others are drawn (`inflation`).
        load: demand over capacity (GPU, or CPU if pods request no GPU); None takes the trace's times (`timed`).
        mean_duration: mean seconds of the exponential durations of pods whose source states no end; None: such pods
            run to the end, or with `load` for `DEFAULT_DURATION` on average (`timed`).
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
    # Ranks of nodes are drawn first, so that they depend on the seed alone.
    random = np.random.default_rng(seed)
    nodes = workload.shuffled_nodes(random)
    first = np.array(workload.standing(), dtype=np.int64)
    if protocol == "arrivals":
        count = len(workload.pods)
        order = np.concatenate([first, np.setdiff1d(np.arange(count), first)])
        times, stays = np.arange(count, dtype=np.float64), np.full(count, np.inf)
        return Schedule(order, times, stays, nodes, False, len(first), is_given=True)
    if protocol == "timed":
        if mean_duration is not None and not (math.isfinite(mean_duration) and mean_duration > 0):
            raise UsageError(f"mean duration {mean_duration:g} must be above 0 seconds")
        if workload.from_now:
            raise UsageError(
                f"{workload.name}: --from-now and --pinned belong to --protocol inflation and arrivals, not to timed: "
                f"the remaining time of running pods is unknown"
            )
        warm = 0
        if load is None:
            pods, time, duration = _trace_times(workload, mean_duration, random)
        else:
            pods, time, duration, warm = _poisson(workload, load, mean_duration or DEFAULT_DURATION, random)
        pods, stays = np.concatenate([first, pods]), np.full(len(first), np.inf)
        # Not before the first arrival's time: times must ascend.
        time = np.concatenate([np.full(len(first), time[0] if len(time) else 0.0), time])
        duration = np.concatenate([stays, duration])
        return Schedule(pods, time, duration, nodes, True, len(first), warm, is_given=load is None)
    raise UsageError(f"unknown protocol {protocol!r}; known are inflation, timed, arrivals")


def resample(workload: Workload, *, ratio: float, seed: int) -> Schedule:
    """Return arrivals of the same distribution as `inflation`, from other, faster random numbers, for training.

    Its seeds never give the arrivals of `schedule`, so policies are never trained on what `inflation` measures.
    """
    random = np.random.default_rng(seed)
    demand = np.array(workload.gpu_demand, dtype=np.float64)
    first, drawable = (np.array(some, dtype=np.int64) for some in (workload.standing(), workload.demand()))
    target = ratio * workload.gpu_capacity
    if not (target and demand[drawable].any()):
        raise SteersmanError(f"{workload.name}: its nodes or pods have no GPU, so there is no GPU demand to reach")
    target -= demand[first].sum()
    pods = random.permutation(np.setdiff1d(drawable, first))
    # 20 % and 100 more than the mean demand suggests; draws beyond the target are cut off below.
    missing = int(1.2 * max(0.0, target - demand[pods].sum()) / demand[drawable].mean()) + 100
    if missing > MAX_DRAWS:
        raise SteersmanError(f"{workload.name}: its pods request so little GPU that {missing} would have to be drawn")
    pods = np.concatenate([pods, drawable[random.integers(0, len(drawable), missing)]])
    # The longest prefix whose demand does not exceed the target.
    pods = pods[: int(np.searchsorted(np.cumsum(demand[pods]), target, side="right"))]
    pods = np.concatenate([first, pods])
    count = len(pods)
    nodes = workload.shuffled_nodes(random)
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
    """Return arrivals like those of a protocol's runs, for comparing policies before a run.

    `inflation`: as a run with this seed. `arrivals`: the workload's pods in random order. `timed`: Poisson arrivals at
    `load`, or at the load of the trace's times, with `mean_duration` as in `schedule`.

    Controllers create pods by the dozen. With `bursts` in `inflation`, and always in `arrivals`, the pods of an owner
    (or equal ones, if they have none) arrive together in every other draw, those of odd seeds.
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
        # 0 (unknown, or all arrive at once): then the pods come in random order, below.
        load = trace_load(workload, mean_duration) if load is None else load
        if load > 0:
            return schedule(workload, protocol, seed=seed, ratio=ratio, load=load, mean_duration=mean_duration)
    first = np.array(workload.standing(), dtype=np.int64)
    coming = random.permutation(np.setdiff1d(np.arange(count), first))
    if protocol == "arrivals" and seed % 2:
        coming = _together(workload, coming, random)
    pods, nodes = np.concatenate([first, coming]), workload.shuffled_nodes(random)
    times, stays = np.arange(count, dtype=np.float64), np.full(count, np.inf)
    return Schedule(pods, times, stays, nodes, protocol == "timed", len(first))


def _together(workload: Workload, pods: npt.NDArray[np.int64], random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return [A] the same arrivals in another order: those of an owner come in bursts of 1 to `LARGEST_BURST`."""
    arrived: dict[tuple[str, str] | PodClass, list[int]] = defaultdict(list)
    # Pods without an owner: equal ones, as those of a controller are.
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
    """Return the mean demand over capacity of a trace; 0 if it is unknown or all pods arrive at once.

    Pods without an end run for `mean_duration` seconds; without it the load is unknown.
    """
    standing = set(workload.standing())
    pods = [pod for i, pod in enumerate(workload.pods) if i not in standing]
    demand = [milli for i, milli in enumerate(workload.gpu_demand) if i not in standing]
    starts = [pod.creation_time or 0.0 for pod in pods]
    span = max(starts, default=0.0) - min(starts, default=0.0)
    capacity = float(workload.gpu_capacity)
    work = 0.0
    for pod, start, milli in zip(pods, starts, demand, strict=True):
        seconds = mean_duration if pod.deletion_time is None else pod.deletion_time - start
        if seconds is None:
            return 0.0
        work += milli * seconds
    # `schedule` refuses a load above 100.
    return min(100.0, work / (capacity * span)) if span > 0 and capacity else 0.0


def _durations(workload: Workload, mean: float, random: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return [P] the trace's durations in seconds; exponential ones of that mean where a pod has none."""
    # One for every pod, needed or not, so that a stated duration changes no other pod's.
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
    """Return Poisson arrivals of pods drawn from the trace, as many as it has, at a cluster that is already in use.

    At the rate `load * capacity / mean(demand * duration)` demand over capacity is `load` on average. Durations of real
    traces are so unequal that an empty cluster would take months to get there. So the pods that an unlimited cluster
    would be running by then arrive at time 0: of each pod of the trace Poisson(rate * duration / pods), each with a
    uniform share of its duration left (the stationary M/G/infinity queue, e.g. Takacs 1962).

    Returns:
        Pods, times and durations as in `Schedule`, and the number of first ones that run at time 0.
    """
    if not (math.isfinite(load) and 0 < load <= 100):
        raise UsageError(f"load {load:g} must be above 0 and at most 100 times the capacity")
    duration = _durations(workload, mean_duration, random)
    capacity = float(workload.gpu_capacity)
    demand = np.array(workload.gpu_demand, dtype=np.float64)
    if not (capacity and demand.any()):
        capacity = float(sum(node.cpu_milli for node in workload.eligible_nodes))
        demand = np.array([pod.requests.cpu_milli for pod in workload.pods], dtype=np.float64)
    drawable = np.array(workload.demand(), dtype=np.int64)
    demand, duration = demand[drawable], duration[drawable]
    work, count = float((demand * duration).mean()) if len(drawable) else 0.0, len(drawable)
    if not (capacity and work):
        raise SteersmanError(f"{workload.name}: pods request no GPU and no CPU over time, so there is no load to offer")
    rate = load * capacity / work
    running = random.permutation(np.repeat(np.arange(count), random.poisson(rate * duration / count)))
    drawn = random.integers(0, count, count)
    return (
        drawable[np.concatenate([running, drawn])],
        np.concatenate([np.zeros(len(running)), np.cumsum(random.exponential(1 / rate, count))]),
        np.concatenate([duration[running] * random.uniform(size=len(running)), duration[drawn]]),
        len(running),
    )
