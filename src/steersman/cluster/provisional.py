"""Give classes, labels and selectors numbers in a state for the duration of one request.

A live cluster's state gives a number to every class, label set, selector and topology key, and its arrays grow with
them. A request about a pod that is not in the cluster must leave nothing behind, or clients could make the state as
large as they like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np

from steersman.cluster.constraints.inter_pod import labels_key
from steersman.cluster.constraints.label_index import LabelSet
from steersman.cluster.model import Constraints, Pod, PodClass, PodSelector, Requirement
from steersman.cluster.state import ClusterState


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
