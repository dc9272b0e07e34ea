"""Days of the Philly trace on 100 unequal nodes: who runs at midnight, who comes, and what simulations expect.

A day's jobs are those of up to 8 GPUs that run at its midnight, with the time that they have left, and those that come
within it. Some are left out at random, so that the demand of what would run in a cluster without limit is the
cluster's capacity in the mean of the day.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI, Node, Pod, PodClass, Requests
from steersman.orders.registry import find_order
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import Schedule
from steersman.simulation.run import Simulator
from steersman.workloads.workload import Workload
from studies.queues.traces import trace_file

TRACE = "philly_first.csv"
SIZES = ((8, 8), (12, 2), (80, 1))
"""Nodes, and GPUs of each."""
NODE_CPU, NODE_MEMORY = 12_000, 96 << 30
"""Milli-CPU and bytes of a node for each of its GPUs."""
POD_CPU, POD_MEMORY = 8_000, 64 << 30
"""Milli-CPU and bytes that a pod requests for each of its GPUs."""
DAY = 24 * 3600.0
LOAD = 1.0
FULL = 0.9
"""Largest share of the GPUs that jobs take which run at midnight."""
HORIZON = 1.25 * DAY
"""Seconds after midnight until which the jobs of a day are followed."""
ERROR = 3.0
"""Factor within which 90 % of the stated run times are (log-normal)."""
NORMAL_90 = 1.6448536269514722

Floats = npt.NDArray[np.float64]


class Arm(NamedTuple):
    """Who schedules.

    Attributes:
        title: what the results call it.
        policy: of `steersman schedule`, "" for kube-scheduler.
        order: name of the order.
        simulated: policy that stands for it in simulations.
    """

    title: str
    policy: str
    order: str
    simulated: str


ARMS = {
    "stock": Arm("kube-scheduler", "", "age", "kube-default"),
    "order": Arm("`kube-default`, `wfp3:easy`", "kube-default", "wfp3:easy", "kube-default"),
    "place": Arm("`fgd`, by age", "fgd", "age", "fgd"),
    "both": Arm("`fgd`, `wfp3:easy`", "fgd", "wfp3:easy", "fgd"),
}


@dataclass(frozen=True, slots=True)
class Day:
    """The jobs of a day.

    Attributes:
        name: the date.
        standing: number of first jobs that run at midnight.
        arrival: [J] seconds after midnight, 0 for the standing ones.
        duration: [J] seconds that a job runs, of the standing ones: has left.
        gpus: [J] GPUs.
        stated: [J] run time in seconds that whoever submitted a job stated.
    """

    name: str
    standing: int
    arrival: Floats
    duration: Floats
    gpus: npt.NDArray[np.int64]
    stated: Floats

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


def day_of(date: str) -> Day:
    """Return the jobs of a date such as `2017-10-13`. Raises InputError: the trace is missing."""
    midnight = datetime.fromisoformat(date)
    largest = max(gpus for _, gpus in SIZES)
    rows = []
    with trace_file(TRACE).open(newline="") as file:
        for row in csv.DictReader(line for line in file if line.strip()):
            submit = (datetime.fromisoformat(row["timestamp"]) - midnight) / timedelta(seconds=1)
            duration, gpus = float(row["duration"]), int(row["num_gpus"])
            if submit < DAY and submit + duration > 0 and gpus <= largest:
                rows.append((submit, duration, gpus))
    rows.sort()
    submit, duration, gpus = np.array(rows).T
    random = np.random.default_rng(int(midnight.timestamp()))
    left = duration + np.minimum(submit, 0.0)
    arrival = np.maximum(submit, 0.0)
    work = gpus * (np.minimum(arrival + left, DAY) - arrival)
    capacity = sum(count * size for count, size in SIZES)
    # In random order: who runs at midnight until the cluster is nearly full, and then as many as make up the load.
    order = random.permutation(len(rows))
    runs = submit[order] < 0
    running, coming = order[runs], order[~runs]
    running = running[np.cumsum(gpus[running]) <= FULL * capacity]
    coming = coming[work[running].sum() + np.cumsum(work[coming]) <= LOAD * capacity * DAY]
    kept = np.sort(np.concatenate([running, coming]))
    error = np.exp(math.log(ERROR) / NORMAL_90 * random.standard_normal(len(rows)))
    return Day(
        date,
        int(np.sum(submit[kept] < 0)),
        arrival[kept],
        left[kept],
        gpus[kept].astype(np.int64),
        np.maximum(1.0, (left * error)[kept]),
    )


def offered_load(day: Day) -> float:
    """Return the demand of a day over the capacity."""
    work = day.gpus * (np.minimum(day.arrival + day.duration, DAY) - day.arrival)
    return float(work.sum() / DAY / sum(count * size for count, size in SIZES))


def waits_to_horizon(day: Day, started: Floats) -> Floats:
    """Return [J - standing] seconds that the jobs which came within the day waited up to the horizon.

    Args:
        day: the jobs.
        started: [J] seconds after midnight of their starts, NaN: not within the horizon.
    """
    waited = np.minimum(np.nan_to_num(started, nan=np.inf), HORIZON) - day.arrival
    return np.maximum(waited, 0.0)[day.standing :]


def simulated_starts(day: Day, arm: Arm, seed: int, latency: Floats, overhead: Floats) -> Floats:
    """Return [J] seconds after midnight at which a simulation starts the jobs.

    Args:
        day: the jobs.
        arm: who schedules.
        seed: of ties between nodes.
        latency: [J] seconds after its arrival at which the scheduler sees a job.
        overhead: [J] seconds by which a job takes its GPUs for longer than it runs.
    """
    workload = Workload(day.name, cluster_nodes(), tuple(map(day.pod, range(len(day)))))
    seen = day.arrival + latency
    order = np.argsort(seen, kind="stable")
    plan = Schedule(
        order,
        seen[order],
        (day.duration + overhead)[order],
        workload.shuffled_nodes(np.random.default_rng(seed)),
        waits=True,
        is_given=True,
    )
    policy = with_order(resolve(arm.simulated), find_order(arm.order))
    started = np.empty(len(day))
    started[order] = seen[order] + Simulator(workload).play(policy, plan, seed).coming_waits.seconds
    return started
