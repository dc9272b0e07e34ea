"""Workloads of so many kinds of pods that simulating them is slow, with pods of about the same requests made equal.

Simulations are quick because pods with equal requests and constraints share all that is known of a node. Where
thousands of pods ask for a CPU and memory of their own (a vertical autoscaler does so), a decision looks at every
node anew. Short simulations that only have to tell which policy is better (`simulation.selection`) play a coarse
workload then; what is measured is always the workload itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from steersman.cluster.model import GPU_MILLI, PodClass, Requests
from steersman.workloads.mix import geometric_class
from steersman.workloads.workload import Workload

MOST_CLASSES = 512
ROUNDINGS = ((1.1, 5), (1.3, 10), (1.7, 25), (2.5, 50), (4.0, 100))
"""How requests are made equal until classes are no more than that: the ratio of CPU and memory, the GPU milli step."""


def coarse(workload: Workload) -> Workload:
    """Return the workload with at most some `MOST_CLASSES` classes of pods, itself where it has no more.

    Pods that stand on a node or may go to one alone stay as they are, and so do constraints: pods that differ by these
    cannot be made equal.
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
    """Return each class with the mean CPU and memory of those like it, so that it fits where the largest of them do."""
    groups: dict[PodClass, list[int]] = defaultdict(list)
    for i, pod_class in enumerate(classes):
        r = pod_class.requests
        rounded = replace(
            r,
            cpu_milli=geometric_class(r.cpu_milli, ratio),
            memory_bytes=geometric_class(r.memory_bytes, ratio),
            ephemeral_bytes=geometric_class(r.ephemeral_bytes, ratio),
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
