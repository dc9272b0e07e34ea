"""Workloads with so many classes of pods that simulating them is slow, with similar requests made equal.

A simulation is fast because pods with equal requests and constraints share what is known of a node. Where
thousands of pods have requests of their own (a vertical autoscaler does that), every decision evaluates every node
again. Short simulations that only have to rank policies (`simulation.selection.choice`) run on a coarse workload
then; published measures always come from the workload itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from steersman.cluster.model import GPU_MILLI, PodClass, Requests
from steersman.workloads.profile import geometric_class
from steersman.workloads.workload import Workload

MOST_CLASSES = 512
ROUNDINGS = ((1.1, 5), (1.3, 10), (1.7, 25), (2.5, 50), (4.0, 100))
"""Steps of rounding, tried in order until there are few enough classes: ratio of CPU and memory, GPU milli step."""


def coarse(workload: Workload) -> Workload:
    """Return the workload with at most about `MOST_CLASSES` classes of pods, or the workload itself if it has no more.

    Running pods and pods tied to one node stay as they are, and so do constraints: pods that differ in them cannot be
    made equal.
    """
    fixed = set(workload.standing())
    free = [i for i, pod in enumerate(workload.pods) if i not in fixed and not pod.constraints.node_name]
    classes = [workload.pods[i].pod_class for i in free]
    if len(set(classes)) <= MOST_CLASSES:
        return workload
    for ratio, step in ROUNDINGS:
        merged = _merged(classes, ratio, step)
        if len(set(merged)) <= MOST_CLASSES:
            break
    pods = list(workload.pods)
    for i, pod_class in zip(free, merged, strict=True):
        pods[i] = replace(pods[i], pod_class=pod_class)
    return replace(workload, pods=tuple(pods))


def _merged(classes: Sequence[PodClass], ratio: float, step: int) -> list[PodClass]:
    """Return each class with the mean CPU and memory of similar ones, so that it fits where the largest of them do."""
    groups: dict[PodClass, list[int]] = defaultdict(list)
    for i, pod_class in enumerate(classes):
        r = pod_class.requests
        rounded = replace(
            r,
            # The number of the class stands for the request: this is a key, and no pod requests it.
            cpu_milli=geometric_class(r.cpu_milli, ratio),
            memory_bytes=geometric_class(r.memory_bytes, ratio),
            ephemeral_bytes=geometric_class(r.ephemeral_bytes, ratio),
            # Up, so that merged pods are not placed where the larger of them would not fit.
            gpu_milli=min(GPU_MILLI, step * math.ceil(r.gpu_milli / step)),
            cpu_nonzero_milli=0,
            memory_nonzero_bytes=0,
        )
        groups[replace(pod_class, requests=rounded)].append(i)
    merged = list(classes)
    for key, members in groups.items():
        requests = _mean([classes[i].requests for i in members], key.requests)
        for i in members:
            merged[i] = replace(key, requests=requests)
    return merged


def _mean(requests: Sequence[Requests], like: Requests) -> Requests:
    def mean(values: Iterable[int]) -> int:
        return sum(values) // len(requests)

    return replace(
        like,
        cpu_milli=mean(r.cpu_milli for r in requests),
        memory_bytes=mean(r.memory_bytes for r in requests),
        ephemeral_bytes=mean(r.ephemeral_bytes for r in requests),
        cpu_nonzero_milli=mean(r.cpu_nonzero_milli for r in requests),
        memory_nonzero_bytes=mean(r.memory_nonzero_bytes for r in requests),
    )
