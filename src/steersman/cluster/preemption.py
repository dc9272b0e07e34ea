"""What kube-scheduler does for pods of higher priority, and no decision here: it preempts others, and keeps room.

Source: Kubernetes 1.37, pkg/scheduler/framework/preemption and RunFilterPluginsWithNominatedPods.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster import arrays as node_arrays
from steersman.cluster.arrays import EXTENDED
from steersman.cluster.constraints import inter_pod
from steersman.cluster.model import Pod
from steersman.cluster.state import ClusterState, RunningPod

Ints = npt.NDArray[np.int64]


class RunningPodArrays(NamedTuple):
    """The pods that run in a cluster, [R] each, see `cluster.state.Placement`."""

    class_id: Ints
    labels_id: Ints
    slot: Ints
    devices: Ints
    priority: Ints

    @classmethod
    def of(cls, state: ClusterState, pods: Iterable[Pod]) -> RunningPodArrays:
        placed = [(state.placements.get(f"{pod.namespace}/{pod.name}"), pod.priority) for pod in pods]
        rows = [(p.class_id, p.labels_id, p.slot, p.devices, priority) for p, priority in placed if p is not None]
        return cls(*np.array(rows, dtype=np.int64).reshape(-1, len(cls._fields)).T)


def preemption(state: ClusterState, running: RunningPodArrays, pod: Pod) -> str:
    """Return a sentence if kube-scheduler may preempt pods of lower priority for a pod that fits nowhere, else ""."""
    if not pod.preempts or pod.nominated in state.slots:
        return ""
    slot = next(_candidates(state, running, pod), None)
    node = None if slot is None else state.nodes[slot]
    if node is None:
        return ""
    return (
        f"kube-scheduler may preempt pods of lower priority on {node.name} for {pod.namespace}/{pod.name}, "
        "which steersman does not do."
    )


def _candidates(state: ClusterState, running: RunningPodArrays, pod: Pod) -> Iterator[int]:
    """Yield the slots where a pod fits once all pods of lower priority there are gone."""
    lower = np.flatnonzero(running.priority < pod.priority)
    if not len(lower):
        return
    c, labels = state.class_id(pod.pod_class), state.labels_id(pod)
    arrays, classes, terms = state.arrays, state.class_arrays, state.term_arrays
    left = arrays.free.copy()
    np.add.at(left, running.slot[lower], classes.request[running.class_id[lower]])
    enough = (left >= classes.request[c])[:, :EXTENDED].all(axis=1) & classes.allowed[classes.constraint[c]]
    for slot in np.unique(running.slot[lower]).tolist():
        if not enough[slot]:
            continue
        victims = lower[running.slot[lower] == slot]
        for i in victims:
            node_arrays.remove(arrays, classes, running.class_id[i], slot, running.devices[i])
            inter_pod.terms_remove(terms, running.class_id[i], running.labels_id[i], slot)
        fits = bool(state.mask(c, labels)[slot])
        for i in victims[::-1]:
            node_arrays.place(arrays, classes, running.class_id[i], slot, running.devices[i])
            inter_pod.terms_place(terms, running.class_id[i], running.labels_id[i], slot)
        if fits:
            yield slot


@contextmanager
def with_nominated(state: ClusterState, waiting: Iterable[Pod], pod: Pod) -> Generator[list[Pod]]:
    """Count pods that wait on their nominated nodes inside the block: others of at least the priority of a pod.

    Yield these pods.
    """
    nominated = [
        each
        for each in waiting
        if each.nominated in state.slots and each.priority >= pod.priority and _name(each) != _name(pod)
    ]
    state.place_running(
        RunningPod(_name(each), state.class_id(each.pod_class), state.slots[each.nominated], 0, state.labels_id(each))
        for each in nominated
    )
    try:
        yield nominated
    finally:
        for each in nominated:
            state.remove(_name(each))


def _name(pod: Pod) -> str:
    return f"nominated {pod.namespace}/{pod.name}"
