"""What a pod waits for: nodes that could hold it, why none does now, and the pods that go before it."""

from __future__ import annotations

import numpy as np

from steersman.cluster.constraints.reasons import unschedulable_message
from steersman.cluster.model import GPU_MILLI, Pod
from steersman.cluster.state import ClusterState
from steersman.orders.group_scores import WaitingGroups
from steersman.orders.live_order import LiveOrder, cluster_size
from steersman.orders.order import Order
from steersman.simulation.prediction.moment import ClusterMoment

GIB = 1 << 30
CPU_MILLI = 1000


class Obstacles:
    """What stands in the way of pods, whatever runs.

    Args:
        moment: the cluster now.
    """

    def __init__(self, moment: ClusterMoment) -> None:
        self._moment = moment
        self._empty = ClusterState(moment.workload.nodes)

    def impossible(self, pod: Pod) -> str:
        """Return why a pod would fit on no node of the empty cluster, "" if it fits on one."""
        c, labels = self._empty.class_id(pod.pod_class), self._empty.labels_id(pod)
        return "" if self._empty.mask(c, labels).any() else unschedulable_message(self._empty, c, labels)

    def ahead(self, pod: Pod, began: float, order: Order) -> int:
        """Return how many waiting pods go before a pod.

        Args:
            pod: the pod.
            began: when it began to wait, seconds: at most 0.
            order: who goes next.
        """
        moment = self._moment
        live = LiveOrder(order, moment.history, clock=lambda: 0.0)
        live.resize(cluster_size(self._empty, live.size))
        others = [i for i, each in enumerate(moment.workload.pods) if not moment.runs(i) and each is not pod]
        two = WaitingGroups(np.zeros(2, dtype=np.int64), np.zeros(2), np.array([0, 1]), np.zeros(2))
        two.group[1], two.since[1] = live.join(pod)[0], began
        count = 0
        for i in others:
            # Of two equal ones the first goes first, since waiting pods are listed in the order of their age.
            two.group[0], two.since[0] = live.join(moment.workload.pods[i])[0], moment.began[i]
            count += live.first(two, 2, 0.0, len(others) + 1) == 0
        return count


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
