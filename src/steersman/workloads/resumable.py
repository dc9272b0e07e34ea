"""Which jobs of a workload can resume after an eviction, where the data do not say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steersman.cluster.model import Pod
from steersman.workloads.workload import Workload

SEED = 5_005


def with_resumable(workload: Workload, share: float, restart_seconds: float, seed: int = SEED) -> Workload:
    """Return a workload in which a share of the jobs, drawn by a seed, save their work when they are evicted.

    Pods of a gang, or of an owner that is a Job of some kind, are one job; any other pod is one of its own. Pods that
    state themselves that they can resume still do.
    """
    jobs: dict[object, int] = {}
    job = np.array([jobs.setdefault(_job(pod, i), len(jobs)) for i, pod in enumerate(workload.pods)], dtype=np.int64)
    is_chosen = np.zeros(len(jobs), dtype=np.bool_)
    is_chosen[np.random.default_rng(seed).permutation(len(jobs))[: round(share * len(jobs))]] = True
    pods = tuple(
        replace(pod, resumable=0.0, restart_seconds=restart_seconds) if chosen and pod.resumable is None else pod
        for pod, chosen in zip(workload.pods, is_chosen[job].tolist(), strict=True)
    )
    return replace(workload, pods=pods)


def _job(pod: Pod, number: int) -> object:
    if pod.gang:
        return pod.namespace, pod.gang, True
    is_job = pod.owner.partition("/")[0].endswith("Job")
    return (pod.namespace, pod.owner, False) if is_job else number
