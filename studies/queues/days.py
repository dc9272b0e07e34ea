"""Days of the Philly trace on 100 unequal nodes: who runs and who waits at midnight, who comes, and what to expect.

A day begins with what kube-scheduler's rules had running and waiting after the days before it, in a simulation. Of the
jobs of up to 8 GPUs that come in a day some are left out at random, so that the demand of what would run in a cluster
without limit is the cluster's capacity in the mean of that day.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI, Node, Pod, PodClass, Requests
from steersman.core.handles import NOWHERE
from steersman.orders.registry import find_order
from steersman.policies.base import Policy, with_order
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import Schedule
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.workload import Recorded, Workload
from studies.queues.traces import trace_file

TRACE = "philly_first.csv"
SIZES = ((8, 8), (12, 2), (80, 1))
"""Nodes, and GPUs of each."""
NODE_CPU, NODE_MEMORY = 12_000, 96 << 30
"""Milli-CPU and bytes of a node for each of its GPUs."""
POD_CPU, POD_MEMORY = 8_000, 64 << 30
"""Milli-CPU and bytes that a pod requests for each of its GPUs."""
DAY = 24 * 3600.0
PAST = 4
"""Days before a day that are simulated."""
LOAD = 1.0
FULL = 0.9
"""Largest share of the GPUs that jobs take which run when those days begin."""
HORIZON = 1.25 * DAY
"""Seconds after midnight until which the jobs of a day are followed."""
ERROR = 3.0
"""Factor within which 90 % of the stated run times are (log-normal)."""
NORMAL_90 = 1.6448536269514722

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Day:
    """The jobs of a day: those that run at midnight, those that wait, in order of age, and those that come.

    Attributes:
        name: the date.
        running: where the first jobs run at midnight.
        queued: number of jobs after those that wait at midnight.
        arrival: [J] seconds after midnight, 0 for those that are there.
        duration: [J] seconds that a job runs, of the running ones: has left.
        gpus: [J] GPUs.
        stated: [J] run time in seconds that whoever submitted a job stated, of the running ones: what is left of it.
    """

    name: str
    running: tuple[Recorded, ...]
    queued: int
    arrival: Floats
    duration: Floats
    gpus: npt.NDArray[np.int64]
    stated: Floats

    @property
    def standing(self) -> int:
        """Return the number of jobs that run at midnight."""
        return len(self.running)

    def __len__(self) -> int:
        """Return the number of jobs."""
        return len(self.arrival)

    def pod(self, j: int) -> Pod:
        """Return the pod of a job, with its stated run time."""
        end = float(self.arrival[j] + self.duration[j])
        return Pod(
            f"job-{j}",
            PodClass(_requests(int(self.gpus[j]))),
            creation_time=float(self.arrival[j]),
            deletion_time=end,
            estimated_seconds=float(self.stated[j]),
        )


def _requests(gpus: int) -> Requests:
    return Requests(
        POD_CPU * gpus, POD_MEMORY * gpus, gpu_count=gpus, gpu_milli=GPU_MILLI, gpu_resource="nvidia.com/gpu"
    )


def cluster_nodes() -> tuple[Node, ...]:
    """Return the 100 nodes."""
    sizes = [gpus for count, gpus in SIZES for _ in range(count)]
    return tuple(
        Node(
            f"node-{i:03}",
            NODE_CPU * gpus,
            NODE_MEMORY * gpus,
            gpu_count=gpus,
            gpu_resources=("nvidia.com/gpu",),
            pods=110,
        )
        for i, gpus in enumerate(sizes)
    )


class Jobs(NamedTuple):
    """Jobs of a trace.

    Attributes:
        arrival: [J] seconds, below 0 for those that run at the beginning.
        duration: [J] seconds.
        gpus: [J] GPUs.
    """

    arrival: Floats
    duration: Floats
    gpus: npt.NDArray[np.int64]

    def select(self, which: npt.NDArray[np.int64]) -> Jobs:
        """Return some of the jobs."""
        return Jobs(self.arrival[which], self.duration[which], self.gpus[which])

    def work(self, begin: float, end: float) -> Floats:
        """Return [J] the GPU seconds of each job between two times, in a cluster without limit."""
        begins = np.maximum(self.arrival, begin)
        work: Floats = self.gpus * np.maximum(np.minimum(self.arrival + self.duration, end) - begins, 0.0)
        return work


def day_of(date: str) -> Day:
    """Return the jobs of a date such as `2017-10-13`. Raises InputError: the trace is missing."""
    begin = datetime.fromisoformat(date) - timedelta(days=PAST)
    random = np.random.default_rng(int(begin.timestamp()))
    jobs = _thinned(_jobs_from(begin, PAST + 1), random)
    error = np.exp(math.log(ERROR) / NORMAL_90 * random.standard_normal(len(jobs.arrival)))
    midnight = PAST * DAY
    before = jobs.arrival < midnight
    begins = np.maximum(jobs.arrival, 0.0)
    left = jobs.duration + np.minimum(jobs.arrival, 0.0)
    past = Day("", (), 0, begins[before], left[before], jobs.gpus[before], (left * error)[before])
    rules = with_order(resolve("kube-default"), find_order("age"))
    history = _execution_of(past, rules, 0, past.arrival, past.duration)
    started = np.full(len(begins), np.inf)
    standing = history.standing
    started[before] = np.where(standing.node == NOWHERE, np.inf, standing.started)
    running = np.flatnonzero((started < midnight) & (started + left > midnight))
    waiting = np.flatnonzero(before & (started >= midnight))
    left[running] += started[running] - midnight
    there = np.concatenate([running, waiting])
    order = np.concatenate([there, np.flatnonzero(~before)])
    nodes = cluster_nodes()
    return Day(
        date,
        tuple(Recorded(nodes[history.plan.nodes[standing.node[j]]].name, int(standing.devices[j])) for j in running),
        len(waiting),
        np.maximum(begins - midnight, 0.0)[order],
        left[order],
        jobs.gpus[order],
        np.maximum(1.0, (left * error)[order]),
    )


def _jobs_from(begin: datetime, count: int) -> Jobs:
    """Return the jobs of up to 8 GPUs that run at the beginning of some days or come within them, by arrival."""
    largest = max(gpus for _, gpus in SIZES)
    rows = []
    with trace_file(TRACE).open(newline="") as file:
        for row in csv.DictReader(line for line in file if line.strip()):
            arrival = (datetime.fromisoformat(row["timestamp"]) - begin) / timedelta(seconds=1)
            duration, gpus = float(row["duration"]), int(row["num_gpus"])
            if arrival < count * DAY and arrival + duration > 0 and gpus <= largest:
                rows.append((arrival, duration, gpus))
    rows.sort()
    arrival, duration, gpus = np.array(rows).T
    return Jobs(arrival, duration, gpus.astype(np.int64))


def _thinned(jobs: Jobs, random: np.random.Generator) -> Jobs:
    """Return the jobs without those that are too many, by arrival.

    In random order: who runs at the beginning until the cluster is nearly full, and of each day as many as make up the
    load.
    """
    capacity = sum(count * size for count, size in SIZES)
    order = random.permutation(len(jobs.arrival))
    running = order[jobs.arrival[order] < 0]
    kept = running[np.cumsum(jobs.gpus[running]) <= FULL * capacity]
    for day in range(PAST + 1):
        begin, end = day * DAY, (day + 1) * DAY
        coming = order[(jobs.arrival[order] >= begin) & (jobs.arrival[order] < end)]
        there = jobs.select(kept).work(begin, end).sum()
        fits = there + np.cumsum(jobs.select(coming).work(begin, end)) <= LOAD * capacity * DAY
        kept = np.concatenate([kept, coming[fits]])
    return jobs.select(np.sort(kept))


def waits_to_horizon(day: Day, started: Floats) -> Floats:
    """Return [J - standing] seconds after midnight that jobs waited up to the horizon, of those that did not run then.

    Args:
        day: the jobs.
        started: [J] seconds after midnight of their starts, NaN: not within the horizon.
    """
    waited = np.minimum(np.nan_to_num(started, nan=np.inf), HORIZON) - day.arrival
    return np.maximum(waited, 0.0)[day.standing :]


def simulated_starts(day: Day, policy: Policy, seed: int, latency: Floats, overhead: Floats, speed: float) -> Floats:
    """Return [J] seconds after midnight at which a simulation starts the jobs, 0 for those that run.

    Args:
        day: the jobs.
        policy: who schedules, with its order.
        seed: of ties between nodes.
        latency: [J] seconds after its arrival at which the scheduler sees a job.
        overhead: [J] seconds by which a job takes its GPUs for longer than it runs.
        speed: seconds of the day in a second of the schedulers, whose orders may look at absolute times.
    """
    sped = replace(day, stated=day.stated / speed)
    seen, duration = (day.arrival + latency) / speed, (day.duration + overhead) / speed
    execution = _execution_of(sped, policy, seed, seen, duration)
    started = np.zeros(len(day))
    standing = execution.standing
    started[execution.plan.pods] = np.where(standing.node == NOWHERE, np.nan, standing.started)
    return started * speed


def _execution_of(day: Day, policy: Policy, seed: int, seen: Floats, duration: Floats) -> Execution:
    """Return the run of a day, whose arrivals are its jobs in the order in which they are seen, running ones first."""
    pods = tuple(map(day.pod, range(len(day))))
    recorded = (*day.running, *(None,) * (len(day) - day.standing))
    workload = Workload(day.name, cluster_nodes(), pods, recorded=recorded, from_now=True)
    standing = np.arange(day.standing)
    order = np.concatenate([standing, day.standing + np.argsort(seen[day.standing :], kind="stable")])
    plan = Schedule(
        order,
        seen[order],
        duration[order],
        workload.shuffled_nodes(np.random.default_rng(seed)),
        waits=True,
        standing=day.standing,
        is_given=True,
        queued=day.queued,
    )
    return Simulator(workload).play(policy, plan, seed)
