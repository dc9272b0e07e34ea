"""RLScheduler's two traces, and the sequences of their jobs that are played."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from steersman.agents.evolution.orders import SEEDS
from steersman.cluster.model import Pod
from steersman.simulation.arrivals import Schedule, window
from steersman.workloads.loading import load_workload
from steersman.workloads.workload import Workload
from studies.queues.lublin_model import other_trace
from studies.queues.pool import Jobs
from studies.queues.traces import arrivals_of, trace_file

TRACES = {"Lublin-1": "lublin_256.swf", "Lublin-2": "lublin_256_new2.swf"}
"""Of the project DIR-LAB/deep-batch-scheduler."""
JOBS = 1024
"""Jobs of a sequence."""
SEQUENCES = 10
TABLE_SEED = 1
FRESH_SEED, FRESH = 7, 40
"""Sequences that begin elsewhere than those of the table. Trainings draw from the same traces, and may begin there."""
CHOICE = 60
"""Sequences of each trace of a training, equally far apart, by which one of several trainings is chosen."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def run_times_of(pods: Sequence[Pod]) -> Floats:
    """Return the run times of pods, seconds."""
    return np.array([(pod.deletion_time or 0.0) - (pod.creation_time or 0.0) for pod in pods])


@cache
def trace(name: str) -> Workload:
    """Return a trace without its jobs of run time 0, or a generated one. Raises InputError: its file is missing."""
    if name not in TRACES:
        _, parts, seed = name.split("-")
        return other_trace(name, int(seed), int(parts), JOBS)
    workload = load_workload(None, trace_file(TRACES[name]))
    ran = tuple(pod for pod in workload.pods if (pod.deletion_time or 0.0) > (pod.creation_time or 0.0))
    return replace(workload, name=name, pods=ran, recorded=())


def pool_jobs(traces: Sequence[Workload]) -> Jobs:
    """Return the jobs of traces in a row."""
    pods = [pod for each in traces for pod in each.pods]
    time = np.array([pod.creation_time or 0.0 for pod in pods])
    return Jobs(time, run_times_of(pods), np.array([pod.requests.cpu_milli / 1000 for pod in pods]))


def first_jobs(jobs: int, seed: int, count: int) -> list[int]:
    """Return the first jobs of sequences of a trace, by the seeding of old versions of Gym."""
    digest = hashlib.sha512(str(seed).encode()).digest()[:8]
    random = np.random.RandomState()
    random.seed(list(struct.unpack("<II", digest)))
    return [int(random.randint(JOBS, jobs - JOBS - 1)) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class WindowDraw:
    """Draw consecutive jobs; the seed says from where. None begins where a sequence of the table does."""

    jobs: int = JOBS

    def __call__(self, workload: Workload, seed: int) -> Schedule:
        """Return the arrivals of a seed, see `agents.evolution.orders.Draw`."""
        return window(arrivals_of(workload), self.first(len(workload.pods), seed), self.jobs)

    def first(self, jobs: int, seed: int) -> int:
        """Return the first job of a seed's window, of so many."""
        begins = first_jobs(jobs, TABLE_SEED, SEQUENCES)
        first = seed * (jobs - self.jobs) // SEEDS
        while first in begins:
            first += 1
        return first


def fresh_first_jobs(jobs: int) -> list[int]:
    """Return the first jobs of the other sequences."""
    return [int(first) for first in np.random.default_rng(FRESH_SEED).integers(0, jobs - JOBS, FRESH)]


def choice_first_jobs(jobs: int, count: int) -> list[int]:
    """Return first jobs at equal distances, of which none is that of a sequence of the table or a fresh one."""
    taken = {*first_jobs(jobs, TABLE_SEED, SEQUENCES), *fresh_first_jobs(jobs)}
    places = [(2 * k + 1) * (jobs - JOBS) // (2 * count) for k in range(count)]
    return [next(first for first in range(place, jobs) if first not in taken) for place in places]


@dataclass(frozen=True, slots=True)
class PooledTraces:
    """The jobs of both traces in a row.

    Attributes:
        jobs: the jobs.
        lengths: number of jobs of each trace.
        offsets: the first job of each trace.
    """

    jobs: Jobs
    lengths: tuple[int, ...]
    offsets: tuple[int, ...]

    def first(self, which: int, seed: int) -> int:
        """Return the first job of a seed's window of a trace."""
        return self.offsets[which] + WindowDraw().first(self.lengths[which], seed)

    def places(self, choice: int, count: int | None = None) -> dict[str, list[Ints]]:
        """Return by kind and trace the first jobs of windows: so many of the choice, and at most `count` of others."""
        kinds = {
            "table": [first_jobs(jobs, TABLE_SEED, SEQUENCES)[:count] for jobs in self.lengths],
            "fresh": [fresh_first_jobs(jobs)[:count] for jobs in self.lengths],
            "choice": [choice_first_jobs(jobs, choice) for jobs in self.lengths],
        }
        return {
            kind: [offset + np.array(firsts) for offset, firsts in zip(self.offsets, by_trace, strict=True)]
            for kind, by_trace in kinds.items()
        }


def pooled_traces() -> PooledTraces:
    """Return the jobs of both traces."""
    lengths = [len(trace(name).pods) for name in TRACES]
    offsets = tuple(sum(lengths[:k]) for k in range(len(lengths)))
    return PooledTraces(pool_jobs([trace(name) for name in TRACES]), tuple(lengths), offsets)
