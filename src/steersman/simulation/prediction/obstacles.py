"""What a pod requests, and why it could not start even if the cluster were empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from steersman.cluster.constraints.reasons import unschedulable_message
from steersman.cluster.gpu_units import RENAMED
from steersman.cluster.model import GPU_MILLI, Pod
from steersman.cluster.state import ClusterState
from steersman.simulation.arrivals import least_of
from steersman.simulation.prepared_workload import infeasible_together

GIB = 1 << 30
CPU_MILLI = 1000


def impossible(empty: ClusterState, pod: Pod) -> str:
    """Return why a pod would fit on no node of an empty cluster, "" if it fits on one.

    Its rules about other pods do not count: those that it needs may run, or come.
    """
    c, labels = empty.class_id(pod.pod_class), empty.labels_id(pod)
    return "" if empty.fits_when_empty(c) else unschedulable_message(empty, c, labels)


def impossible_pods(empty: ClusterState, pods: Sequence[Pod], running: Mapping[tuple[str, str], int]) -> list[str]:
    """Return why each of the pods that wait can never start on an empty cluster, alone or with its gang, "": it can.

    `running` has the numbers of pods of gangs that run.
    """
    reasons = [impossible(empty, pod) for pod in pods]
    for members in gangs_of(pods).values():
        some = [pods[i] for i in members]
        why = _impossible_gang(empty, some, [reasons[i] for i in members], least_of(some, running))
        for i in members:
            reasons[i] = reasons[i] or why
    return reasons


def gangs_of(pods: Sequence[Pod]) -> dict[tuple[str, str], list[int]]:
    """Return the indices of the pods of each gang, by its namespace and name."""
    gangs: dict[tuple[str, str], list[int]] = {}
    for i, pod in enumerate(pods):
        if pod.gang:
            gangs.setdefault((pod.namespace, pod.gang), []).append(i)
    return gangs


def _impossible_gang(empty: ClusterState, pods: Sequence[Pod], reasons: Sequence[str], least: int) -> str:
    """Return why a gang, `least` of whose pods must start at once, never can, "": it can; `reasons`: of pods alone."""
    if least == 1:
        return ""
    what = f"gang {pods[0].gang} of {len(pods)} pods"
    if least > len(pods):
        return f"{what} lacks {least - len(pods)} of the {pods[0].gang_minimum} pods that must run at once"
    able = [pod for pod, reason in zip(pods, reasons, strict=True) if not reason]
    if len(able) < least:
        pod, reason = next((pod, reason) for pod, reason in zip(pods, reasons, strict=True) if reason)
        together = "as one" if least == len(pods) else f"with {least} pods at once"
        return f"{what} starts {together}, and {pod.namespace}/{pod.name} never can: {reason}"
    # Of a class there are as many among any pods that start at once, at least.
    counts = {each: least - len(able) + count for each, count in Counter(pod.pod_class for pod in able).items()}
    counts = {each: count for each, count in counts.items() if count > 0}
    classes = np.array([empty.class_id(each) for each in counts], dtype=np.int64)
    if not infeasible_together(empty, classes, np.array([*counts.values()], dtype=np.int64)).any():
        return ""
    gpus = sum(pod.requests.gpu_total_milli for pod in able[:least]) / GPU_MILLI
    total = [f"{gpus:g} GPU{'' if gpus == 1 else 's'}"] if gpus else []
    every = [pod.requests for pod in able[:least]]
    total += _cpu_and_memory(sum(each.cpu_milli for each in every), sum(each.memory_bytes for each in every))
    return f"{what} does not fit on the empty cluster: it needs {', '.join(total) or 'room for all'} at once"


def needs_of(pod: Pod) -> str:
    """Return what a pod requests, such as `8 GPUs of A100, 32 CPUs, 64 GiB`."""
    requests, parts = pod.requests, []
    if requests.gpu_count:
        share = "" if requests.gpu_milli == GPU_MILLI else f"{requests.gpu_milli / GPU_MILLI:g} of "
        # Replicas are parts of a GPU, so their resource is named.
        is_part = requests.gpu_resource.endswith(RENAMED)
        unit = requests.gpu_resource if is_part else f"GPU{'s' if requests.gpu_count > 1 else ''}"
        gpus = f"{share}{requests.gpu_count} {unit}"
        models = " or ".join(pod.constraints.gpu_models)
        parts.append(f"{gpus} of {models}" if models else gpus)
    parts += _cpu_and_memory(requests.cpu_milli, requests.memory_bytes)
    parts += [f"{amount} {name}" for name, amount in requests.extended]
    return ", ".join(parts) or "room for one more pod"


def _cpu_and_memory(cpu_milli: int, memory_bytes: int) -> list[str]:
    cpu = f"{cpu_milli / CPU_MILLI:g} CPU{'' if cpu_milli == CPU_MILLI else 's'}"
    return [*([cpu] if cpu_milli else []), *([f"{memory_bytes / GIB:.3g} GiB"] if memory_bytes else [])]
