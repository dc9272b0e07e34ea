"""Arrival times and durations of pods: the three protocols."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Pod, PodClass
from steersman.core.errors import SteersmanError, UsageError
from steersman.simulation.result import Protocol
from steersman.workloads.generators.inflation import MAX_DRAWS, inflate
from steersman.workloads.workload import Workload

DEFAULT_DURATION = 3600.0  # mean seconds of generated arrivals if neither data nor user states durations

LARGEST_BURST = 50


@dataclass(frozen=True, slots=True)
class Schedule:
    """The arrivals of a run."""

    pods: npt.NDArray[np.int64]  # [A] index into `workload.pods`, in order of arrival
    time: npt.NDArray[np.float64]  # [A] seconds (the index of the arrival if the protocol has no time)
    duration: npt.NDArray[np.float64]  # [A] seconds that a bound pod runs, inf: to the end
    # [N] index into `workload.nodes` in order of rank: among equal scores the first one wins
    nodes: npt.NDArray[np.int64]
    waits: bool  # whether a pod that fits nowhere waits for departures instead of being dropped
    # Number of first arrivals that stay where the workload recorded them; no policy decides about them
    standing: int = 0
    warm: int = 0  # number of arrivals after those that are the pods running when generated arrivals begin
    is_given: bool = False  # whether the workload gives order and times of the arrivals; else the seed draws them
    # [A] number of consecutive arrivals, from this one on, that start together; 0 for all but the first
    members: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    # [A] how many of them must start at once; the others may follow
    least: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    # [A] number of the controller, if it has a limited number of pods at a time, else -1
    controller: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    # [K] how many pods controllers may make beside those that stand
    room: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    # Number of arrivals after the standing ones that wait at time 0, when the run begins; their times say since when.
    # Standing pods whose duration is finite began at their times, and leave.
    queued: int = 0

    def __post_init__(self) -> None:
        """Let every pod start alone unless `members` is given, and make times floats."""
        for name in ("time", "duration"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        if len(self.members) != len(self.pods):
            object.__setattr__(self, "members", np.ones(len(self.pods), dtype=np.int64))
        if len(self.least) != len(self.pods):
            object.__setattr__(self, "least", np.maximum(self.members, 1))
        if len(self.controller) != len(self.pods):
            object.__setattr__(self, "controller", np.full(len(self.pods), -1, dtype=np.int64))


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
    # A single run also shows a cluster as it is.
    if protocol == "inflation" or not workload.standing():
        check_arrivals(workload, protocol)
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
        # Nothing ends, so that pods which come after others of their controller never do.
        units = Units.of(workload, np.setdiff1d(np.flatnonzero(~workload.later), first))
        order, alone = np.concatenate([first, units.pods]), np.ones(len(first), dtype=np.int64)
        times, stays = np.arange(len(order), dtype=np.float64), np.full(len(order), np.inf)
        members, least = np.concatenate([alone, units.members]), np.concatenate([alone, units.least])
        return Schedule(order, times, stays, nodes, False, len(first), is_given=True, members=members, least=least)
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
            units, time, duration = _trace_times(workload, mean_duration, random)
        else:
            mean = mean_duration or DEFAULT_DURATION
            units, time, duration, warm = _poisson(workload, load, mean, random)
        pods, stays = np.concatenate([first, units.pods]), np.full(len(first), np.inf)
        alone = np.ones(len(first), dtype=np.int64)
        members, least = np.concatenate([alone, units.members]), np.concatenate([alone, units.least])
        # Not before the first arrival's time: times must ascend.
        time = np.concatenate([np.full(len(first), time[0] if len(time) else 0.0), time])
        duration = np.concatenate([stays, duration])
        plan = Schedule(pods, time, duration, nodes, True, len(first), warm, load is None, members, least)
        return with_controllers(plan, workload, len(pods)) if load is None else plan
    raise UsageError(f"unknown protocol {protocol!r}; known are inflation, timed, arrivals")


def check_arrivals(workload: Workload, protocol: Protocol) -> None:
    """Raise SteersmanError if no pod of a workload arrives in a protocol, so that policies have nothing to decide."""
    later, standing = int(workload.later.sum()), len(workload.standing())
    if not (workload.drawable() if protocol == "inflation" else len(workload.pods) > later + standing):
        which = "every pod runs already and stays where it is" if standing else "there are no pods"
        again = "; without --from-now and --pinned they are placed again" if workload.from_now else ""
        raise SteersmanError(f"{workload.name}: no pod arrives: {which}{again}")


def window(plan: Schedule, first: int, count: int) -> Schedule:
    """Return `count` consecutive arrivals of a schedule, whole gangs, as if nothing had come before.

    Raises:
        UsageError: the schedule has fewer arrivals.
    """
    if not 0 <= first <= first + count <= len(plan.pods):
        raise UsageError(f"arrivals {first} to {first + count} are not among the {len(plan.pods)} of the schedule")
    # A gang that an edge falls into is moved behind it.
    edges = [*np.flatnonzero(plan.members).tolist(), len(plan.pods)]
    begin, end = (edges[bisect_left(edges, edge)] for edge in (first, first + count))
    part = slice(begin, end)
    return replace(
        plan,
        pods=plan.pods[part],
        time=plan.time[part],
        duration=plan.duration[part],
        members=plan.members[part],
        least=plan.least[part],
        controller=np.full(end - begin, -1, dtype=np.int64),
        standing=0,
        warm=0,
    )


@dataclass(frozen=True, slots=True)
class Units:
    """What starts as one: single pods, and gangs."""

    pods: npt.NDArray[np.int64]  # [A] index into `workload.pods`; pods of a gang follow each other
    # `members`, `least`: [A] see `Schedule`
    members: npt.NDArray[np.int64]
    least: npt.NDArray[np.int64]

    @classmethod
    def of(cls, workload: Workload, pods: npt.NDArray[np.int64]) -> Self:
        """Return the units of some pods, in order of their first pods.

        Pods of a gang start one by one if as many as it needs run from the start, or once others of it have ended.
        """
        if not any(workload.pods[i].gang for i in pods.tolist()):
            return cls(pods, np.ones(len(pods), dtype=np.int64), np.ones(len(pods), dtype=np.int64))
        later = workload.later
        gangs: dict[tuple[str, str] | int, list[int]] = {}
        for i in pods.tolist():
            pod = workload.pods[i]
            gangs.setdefault((pod.namespace, pod.gang) if pod.gang and not later[i] else i, []).append(i)
        units: list[tuple[list[int], int]] = []
        for key, gang in gangs.items():
            is_gang = isinstance(key, tuple)
            together = least_of([workload.pods[i] for i in gang], workload.running_gangs) if is_gang else 1
            units += [(gang, together)] if together > 1 else [([i], 1) for i in gang]
        sizes, indices = [len(gang) for gang, _ in units], [i for gang, _ in units for i in gang]
        least = np.repeat(np.array([each for _, each in units], dtype=np.int64), sizes)
        return cls(np.array(indices, dtype=np.int64), _members(sizes), least)

    @property
    def leaders(self) -> npt.NDArray[np.int64]:
        """Return [U] the positions of the first pods of units."""
        return np.flatnonzero(self.members)


def least_of(pods: Sequence[Pod], running: Mapping[tuple[str, str], int]) -> int:
    """Return how many pods of a gang that wait must start at once; `running`: how many run, by namespace and gang."""
    gang, minimum = (pods[0].namespace, pods[0].gang), pods[0].gang_minimum
    return max(minimum - running.get(gang, 0), 1) if minimum else len(pods)


def _members(sizes: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    members = np.zeros(int(np.sum(sizes)), dtype=np.int64)
    members[np.cumsum([0, *sizes])[:-1]] = sizes
    return members


def with_controllers(plan: Schedule, workload: Workload, count: int) -> Schedule:
    """Return a schedule in which controllers make no more pods than they may have at a time.

    Args:
        count: number of first arrivals that are the pods of controllers; others are merely like them.
    """
    numbers: dict[tuple[str, str], int] = {}
    room: list[int] = []
    controller = np.full(len(plan.pods), -1, dtype=np.int64)
    if not workload.has_limited_controllers:
        return plan
    for a, i in enumerate(plan.pods[:count].tolist()):
        pod = workload.pods[i]
        if pod.at_once is not None:
            controller[a] = numbers.setdefault(pod.limited_by, len(room))
            room += [pod.at_once] if controller[a] == len(room) else []
            room[controller[a]] -= a < plan.standing
    return replace(plan, controller=controller, room=np.array(room, dtype=np.int64))


def resample(workload: Workload, *, ratio: float, seed: int) -> Schedule:
    """Return arrivals of the same distribution as `inflation`, from other, faster random numbers, for training.

    Its seeds never give the arrivals of `schedule`, so policies are never trained on what `inflation` measures.
    """
    random = np.random.default_rng(seed)
    fits = np.array(workload.fits, dtype=np.bool_)
    demand = np.array(workload.counted_demand, dtype=np.float64)
    first, drawable = (np.array(some, dtype=np.int64) for some in (workload.standing(), workload.drawable()))
    target = ratio * workload.gpu_capacity
    if not (target and demand[drawable].any()):
        raise SteersmanError(f"{workload.name}: its nodes or pods have no GPU, so there is no GPU demand to reach")
    target -= sum(workload.recorded_demand[i] for i in workload.standing())
    pods, drawn = random.permutation(np.setdiff1d(drawable, first)), drawable[fits[drawable]]
    least = len(pods) if workload.from_now else 0  # all that wait arrive
    # 20 % and 100 more than the mean demand suggests; draws beyond the target are cut off below.
    missing = int(1.2 * max(0.0, target - demand[pods].sum()) / demand[drawn].mean()) + 100
    if missing > MAX_DRAWS:
        raise SteersmanError(f"{workload.name}: its pods request so little GPU that {missing} would have to be drawn")
    pods = np.concatenate([pods, drawn[random.integers(0, len(drawn), missing)]])
    # The longest prefix whose demand does not exceed the target.
    pods = pods[: max(least, int(np.searchsorted(np.cumsum(demand[pods]), target, side="right")))]
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
) -> Schedule:
    """Return arrivals like those of a protocol's runs, for comparing policies before a run.

    `inflation`: as a run with this seed, or `arrivals` where such a run has none. `arrivals`: the workload's pods in
    random order. `timed`: Poisson arrivals at `load`, or at the load of the trace's times, with `mean_duration` as in
    `schedule`.

    Controllers create pods by the dozen. In draws of odd seeds of `inflation` and `arrivals` the pods of an owner (or
    equal ones, if they have none) arrive together.
    """
    random = np.random.default_rng(seed)
    if protocol == "inflation":
        try:
            plan = schedule(workload, protocol, seed=seed, ratio=ratio, load=None)
        except SteersmanError:
            # Running pods may leave nothing to a small cluster's target: then the pods come in random order, below.
            if not workload.drawable():
                raise
            protocol = "arrivals"
        else:
            if seed % 2 == 0:
                return plan
            together = _together(workload, plan.pods[plan.standing :], random)
            return replace(plan, pods=np.concatenate([plan.pods[: plan.standing], together]))
    if protocol == "timed":
        # 0 (unknown, or all arrive at once): then the pods come in random order, below.
        load = trace_load(workload, mean_duration) if load is None else load
        if load > 0:
            return schedule(workload, protocol, seed=seed, ratio=ratio, load=load, mean_duration=mean_duration)
    first = np.array(workload.standing(), dtype=np.int64)
    coming = random.permutation(np.setdiff1d(np.flatnonzero(~workload.later), first))
    if protocol == "arrivals" and seed % 2:
        coming = _together(workload, coming, random)
    pods, nodes = np.concatenate([first, coming]), workload.shuffled_nodes(random)
    times, stays = np.arange(len(pods), dtype=np.float64), np.full(len(pods), np.inf)
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


def check_times(workload: Workload) -> None:
    """Check that the time is known at which each pod arrives. Raises SteersmanError: it is not."""
    standing = set(workload.standing())
    for i, pod in enumerate(workload.pods):
        if pod.creation_time is None and i not in standing:
            raise SteersmanError(
                f"{workload.name}: pod {pod.name!r} has no creation time, which --protocol timed needs; "
                "give --load to generate arrivals, or use --protocol arrivals"
            )


def _trace_times(
    workload: Workload, mean_duration: float | None, random: np.random.Generator
) -> tuple[Units, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return units, and times and durations as in `Schedule`. A gang arrives with its last pod.

    Of those that arrive at the same time the ones of higher priority come first.
    """
    coming = np.setdiff1d(np.arange(len(workload.pods)), workload.standing())
    check_times(workload)
    units = Units.of(workload, coming)
    coming, leaders = units.pods, units.leaders
    created = np.array([workload.pods[i].creation_time for i in coming], dtype=np.float64)
    if mean_duration is not None:
        duration = _durations(workload, mean_duration, random)[coming]
    else:
        deleted = [workload.pods[i].deletion_time for i in coming]
        duration = np.array([np.inf if end is None else end for end in deleted]) - created
    if not len(coming):
        return units, created, duration
    sizes = units.members[leaders]
    arrives = np.repeat(np.maximum.reduceat(created, leaders), sizes)
    priority = np.repeat([workload.pods[i].priority for i in coming[leaders]], sizes)
    order = np.lexsort((-priority, arrives))
    ordered = Units(coming[order], units.members[order], units.least[order])
    return ordered, arrives[order], duration[order]


def _poisson(
    workload: Workload, load: float, mean_duration: float, random: np.random.Generator
) -> tuple[Units, npt.NDArray[np.float64], npt.NDArray[np.float64], int]:
    """Return Poisson arrivals of pods and gangs drawn from the trace, as many as it has, at a cluster in use.

    At the rate `load * capacity / mean(demand * duration)` demand over capacity is `load` on average. Durations of real
    traces are so unequal that an empty cluster would take months to get there. So the pods that an unlimited cluster
    would be running by then arrive at time 0: of each pod of the trace Poisson(rate * duration / pods), each with a
    uniform share of its duration left (the stationary M/G/infinity queue, e.g. Takacs 1962).

    Returns:
        Units, times and durations as in `Schedule`, and the number of first pods that run at time 0.
    """
    if not (math.isfinite(load) and 0 < load <= 100):
        raise UsageError(f"load {load:g} must be above 0 and at most 100 times the capacity")
    duration = _durations(workload, mean_duration, random)
    capacity = float(workload.gpu_capacity)
    demand = np.array(workload.gpu_demand, dtype=np.float64)
    if not (capacity and demand.any()):
        capacity = float(sum(node.cpu_milli for node in workload.eligible_nodes))
        demand = np.array([pod.requests.cpu_milli for pod in workload.pods], dtype=np.float64)
    units = Units.of(workload, np.array(workload.demand(), dtype=np.int64))
    leaders, count = units.leaders, len(units.leaders)
    work = float(np.add.reduceat((demand * duration)[units.pods], leaders).mean()) if count else 0.0
    if not (capacity and work):
        raise SteersmanError(f"{workload.name}: pods request no GPU and no CPU over time, so there is no load to offer")
    rate = load * capacity / work
    of_unit = duration[units.pods[leaders]]
    running = random.permutation(np.repeat(np.arange(count), random.poisson(rate * of_unit / count)))
    drawn = random.integers(0, count, count)
    time = np.concatenate([np.zeros(len(running)), np.cumsum(random.exponential(1 / rate, count))])
    left = np.concatenate([random.uniform(size=len(running)), np.ones(count)])
    sizes = units.members[leaders][np.concatenate([running, drawn])]
    # The positions of all pods of the units: from each first one on as many as the unit has.
    first = np.repeat(leaders[np.concatenate([running, drawn])], sizes)
    nth = np.arange(len(first)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    of_units = Units(units.pods[first + nth], _members(sizes), units.least[first])
    warm = int(sizes[: len(running)].sum())
    return of_units, np.repeat(time, sizes), duration[of_units.pods] * np.repeat(left, sizes), warm
