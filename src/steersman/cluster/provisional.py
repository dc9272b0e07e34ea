"""Changes of a state for the duration of one question, taken back after it: numbers, nominated pods, preempted pods.

A live cluster's state gives a number to every class, label set, selector and topology key, and its arrays grow with
them. A request about a pod that is not in the cluster must leave nothing behind, or clients could make the state as
large as they like.

kube-scheduler preempts pods for others of higher priority and keeps room for those; no decision here does.
Source: Kubernetes 1.37, pkg/scheduler/framework/preemption and RunFilterPluginsWithNominatedPods.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster import arrays as node_arrays
from steersman.cluster.arrays import EXTENDED
from steersman.cluster.constraints import inter_pod
from steersman.cluster.constraints.inter_pod import labels_key
from steersman.cluster.constraints.label_index import LabelSet
from steersman.cluster.model import Constraints, Pod, PodClass, PodSelector, Requirement
from steersman.cluster.state import ClusterState, RunningPod


def known_numbers(
    state: ClusterState, pod_class: PodClass, namespace: str, labels: Mapping[str, str]
) -> tuple[int, int] | None:
    """Return the numbers of a class and of a label set, or None if the state lacks one of them."""
    class_id = state._class_ids.get(pod_class)
    labels_id = state.terms._labels.get(labels_key(namespace, labels))
    return None if class_id is None or labels_id is None else (class_id, labels_id)


@contextmanager
def provisional_numbers(state: ClusterState) -> Iterator[None]:
    """Take back every number that the state gives inside the block.

    Inside, nodes and placements must not change, so the block must not await. Arrays handed out before stay valid.
    """
    class_arrays, term_arrays = state.class_arrays, state.term_arrays
    terms, table = state.terms, state.table
    counted: tuple[dict[Any, Any], ...] = (
        *(state._class_ids, state._rows, table._columns),
        *(terms._labels, terms._selectors, terms._owned, terms._exclusive, terms._keys, terms._filters),
    )
    lists: tuple[list[Any], ...] = (state.classes, terms._label_sets, terms._rules, terms._rule_start)
    lengths, sizes = [len(each) for each in lists], [len(each) for each in counted]
    matches = terms._match_buffer
    terms._match_buffer = term_arrays.matches  # without spare rows, so that new entries go to a copy
    terms.index()
    outer, terms.is_provisional = terms.is_provisional, True
    try:
        yield
    finally:
        for each, size in zip(counted, sizes, strict=True):
            # Dictionaries keep the order of insertion, so new keys are the last.
            for key in list(islice(reversed(each), len(each) - size)):
                del each[key]
        for each_list, length in zip(lists, lengths, strict=True):
            del each_list[length:]
        state._class_arrays, terms._arrays, terms._match_buffer = class_arrays, term_arrays, matches
        terms.is_provisional = outer


def count_selected(state: ClusterState, known: int, kept: Iterable[str], pod_of: Callable[[str], Pod]) -> None:
    """Count placed pods for selectors, from number `known` on, by labels that the state does not store.

    `kept`: keys of the stored labels. `pod_of` returns a pod, with all its labels, by the name of its placement.
    """
    kept, matched = set(kept), state.term_arrays.matched
    for row, counted in enumerate(islice(state.terms._selectors, known, None), known):
        if all(key in kept for selector in counted.selectors for key in selector_keys(selector)):
            continue
        matched[row] = 0
        is_counted = counted.matcher()
        slots = [placed.slot for name, placed in state.placements.items() if is_counted(_labels_of(pod_of(name)))]
        # `+= 1` would count a node once, however many of its pods are listed.
        np.add.at(matched[row], slots, 1)


def pod_selectors(constraints: Constraints) -> Iterator[PodSelector]:
    for term in (*constraints.affinity, *constraints.anti_affinity):
        yield term.selector
    for preferred in (*constraints.preferred_affinity, *constraints.preferred_anti_affinity):
        yield preferred.term.selector
    for spread in constraints.spread:
        yield spread.selector


def selector_keys(selector: PodSelector) -> Iterator[str]:
    return (requirement.key for requirement in selector.requirements or ())


def complexity(constraints: Constraints) -> int:
    """Return the number of requirements in constraints; each is checked on every node."""
    terms = (*(constraints.node_affinity or ()), *(each.term for each in constraints.preferred_nodes))
    of_nodes = sum(1 + _size(term.expressions) + _size(term.fields) for term in terms)
    of_pods = sum(1 + _size(selector.requirements or ()) for selector in pod_selectors(constraints))
    lists: tuple[Sized, ...] = (
        *(constraints.node_selector, constraints.tolerations, constraints.gpu_models, constraints.node_features),
        constraints.volume_refusals,
        *(constraints.host_ports, constraints.exclusive_volumes, constraints.images, constraints.image_volumes),
    )
    return of_nodes + of_pods + sum(len(each) for each in lists)


def _size(requirements: Iterable[Requirement]) -> int:
    return sum(1 + len(requirement.values) for requirement in requirements)


def _labels_of(pod: Pod) -> LabelSet:
    return LabelSet(pod.namespace, pod.labels, pod.terminating)


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
