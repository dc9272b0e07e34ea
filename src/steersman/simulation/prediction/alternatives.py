"""What might let a pod start sooner: the same pod with a smaller request, without a constraint, or with a run time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from steersman.cluster.model import GPU_MILLI, Pod, Requests
from steersman.orders.order import Order

STATED_SECONDS = {"10 min": 600.0, "1 h": 3600.0, "6 h": 21_600.0}
"""Run times that are tried; whoever states one must mean it."""


class Change(NamedTuple):
    """A change of a pod."""

    text: str  # what is changed, as in "with 4 GPUs"
    pod: Pod  # the changed pod


def changes(pod: Pod, order: Order, *, shares_gpus: bool, estimate: float, priority: int | None) -> Iterator[Change]:
    """Yield changes of a pod that may let it start sooner.

    Args:
        pod: the pod.
        order: who goes next.
        shares_gpus: whether a pod may ask for a share of a GPU here.
        estimate: the pod's estimated run time in seconds.
        priority: a priority to try; None: the pod's own, since a higher one costs others.
    """
    for text, requests in _smaller(pod.requests, shares_gpus=shares_gpus):
        yield Change(text, replace(pod, pod_class=replace(pod.pod_class, requests=requests)))
    has = pod.constraints
    for text, without in (
        ("without the GPU model", replace(has, gpu_models=())),
        ("without the node selector", replace(has, node_selector=())),
        ("without the node affinity", replace(has, node_affinity=None)),
        ("without the pod affinity", replace(has, affinity=())),
        ("without the pod anti-affinity", replace(has, anti_affinity=())),
        ("without the topology spread", replace(has, spread=tuple(each for each in has.spread if not each.hard))),
        ("without the host ports", replace(has, host_ports=())),
    ):
        if without != has:
            yield Change(text, replace(pod, pod_class=replace(pod.pod_class, constraints=without)))
    if order.uses_estimates and order.estimates.source in ("auto", "stated") and pod.estimated_seconds is None:
        for text, seconds in STATED_SECONDS.items():
            if seconds < estimate:
                yield Change(f"stating a run time of {text}", replace(pod, estimated_seconds=seconds))
    if priority is not None and priority > pod.priority:
        yield Change(f"with priority {priority}", replace(pod, priority=priority))


def _smaller(requests: Requests, *, shares_gpus: bool) -> Iterator[tuple[str, Requests]]:
    count = requests.gpu_count
    for fewer in sorted({count // 2, 1} - {0, count}, reverse=True):
        yield f"with {fewer} GPU{'s' if fewer > 1 else ''}", replace(requests, gpu_count=fewer)
    if count == 1 and requests.gpu_milli == GPU_MILLI and shares_gpus:
        yield "with half a GPU", replace(requests, gpu_milli=GPU_MILLI // 2)
    if requests.cpu_milli > 1:
        half = requests.cpu_milli // 2
        yield "with half the CPU", replace(requests, cpu_milli=half, cpu_nonzero_milli=half)
    if requests.memory_bytes > 1:
        half = requests.memory_bytes // 2
        yield "with half the memory", replace(requests, memory_bytes=half, memory_nonzero_bytes=half)
