"""What a pod requests, and why no node could hold it even if it were empty."""

from __future__ import annotations

from steersman.cluster.constraints.reasons import unschedulable_message
from steersman.cluster.model import GPU_MILLI, Pod
from steersman.cluster.state import ClusterState

GIB = 1 << 30
CPU_MILLI = 1000


def impossible(empty: ClusterState, pod: Pod) -> str:
    """Return why a pod would fit on no node of an empty cluster, "" if it fits on one.

    Its rules about other pods do not count: those that it needs may run, or come.
    """
    c, labels = empty.class_id(pod.pod_class), empty.labels_id(pod)
    return "" if empty.fits_when_empty(c) else unschedulable_message(empty, c, labels)


def needs_of(pod: Pod) -> str:
    """Return what a pod requests, such as `8 GPUs of A100, 32 CPUs, 64 GiB`."""
    requests, parts = pod.requests, []
    if requests.gpu_count:
        share = "" if requests.gpu_milli == GPU_MILLI else f"{requests.gpu_milli / GPU_MILLI:g} of "
        gpus = f"{share}{requests.gpu_count} GPU{'s' if requests.gpu_count > 1 else ''}"
        models = " or ".join(pod.constraints.gpu_models)
        parts.append(f"{gpus} of {models}" if models else gpus)
    if requests.cpu_milli:
        parts.append(f"{requests.cpu_milli / CPU_MILLI:g} CPU{'' if requests.cpu_milli == CPU_MILLI else 's'}")
    if requests.memory_bytes:
        parts.append(f"{requests.memory_bytes / GIB:.3g} GiB")
    parts += [f"{amount} {name}" for name, amount in requests.extended]
    return ", ".join(parts) or "room for one more pod"
