"""Reasons why a pod may not run on nodes, in kube-scheduler's words and in the order of its filters.

Source: Kubernetes 1.37.2, pkg/scheduler/framework/types.go (FitError) and the filter plugins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import EXTENDED, PODS
from steersman.cluster.constraints import inter_pod, node
from steersman.cluster.model import GPU_MILLI, shown_name
from steersman.cluster.objects.api.claims import IMPLICIT
from steersman.cluster.state import ClusterState

NO_PORTS = "node(s) didn't have free ports for the requested pod ports"
NO_DISK = "node(s) had no available disk"
NO_SPREAD = "node(s) didn't match pod topology spread constraints"
NO_SPREAD_LABEL = f"{NO_SPREAD} (missing required label)"
NO_AFFINITY = "node(s) didn't match pod affinity rules"
NO_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
NO_DEVICES = "cannot allocate all claims"
NO_EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"
TOO_MANY, INSUFFICIENT = "Too many pods", "Insufficient "
RESOLVABLE = frozenset({NO_PORTS, NO_DISK, NO_SPREAD, NO_ANTI_AFFINITY, NO_EXISTING})
"""Reasons, other than resources, that removing pods may resolve: kube-scheduler's code `Unschedulable`."""

Mask = npt.NDArray[np.bool_]

Refusing = Generator[tuple[str, Mask], None, Mask]  # yields reasons and their nodes; returns the nodes that pass


FurtherRefusals = Sequence[Sequence[tuple[str, npt.NDArray[np.bool_]]]]
"""For each filter outside the state, in order: reasons, and the nodes that each applies to."""


def refusals(
    state: ClusterState, class_id: int, labels_id: int = 0, further: FurtherRefusals = ()
) -> Iterator[tuple[str, Mask]]:
    """Yield reasons and the nodes that each applies to, [N]: those that passed all filters before it.

    A node that lacks several resources has as many reasons. `further` is what other filters refuse, after those of
    resources.
    """
    constraints = state.classes[class_id].constraints
    # The order of Filter in kube-scheduler: node plugins, NodePorts, NodeResourcesFit, VolumeRestrictions, other
    # volumes, ...
    left = state.table.occupied
    left = yield from _by_constraints(state, class_id, left)
    if constraints.host_ports:
        ports = _rules(state, class_id).get(inter_pod.PORT, [])
        left = yield from _by_rules(state, class_id, labels_id, ports, left)
    left = yield from _by_resources(state, class_id, left)
    if not left.any():  # rules about other pods would have to be read
        return
    rules = _rules(state, class_id)
    left = yield from _by_rules(state, class_id, labels_id, rules.get(inter_pod.VOLUME, []), left)
    for group in further:
        for why, refused in group:
            yield why, left & refused
        left = left & ~np.any([refused for _, refused in group], axis=0)
    for kind in (inter_pod.SPREAD, inter_pod.AFFINITY, inter_pod.ANTI_AFFINITY):
        left = yield from _by_rules(state, class_id, labels_id, rules.get(kind, []), left)
    # InterPodAffinity.Filter looks at the anti-affinity of existing pods last.
    passes = inter_pod.existing_mask(state.term_arrays, labels_id)
    yield NO_EXISTING, left & ~passes
    left = left & passes
    features = node.needed_features(constraints)
    by_class = tuple(each for each in features if each.startswith(IMPLICIT))
    without = left & ~node.declaring_nodes(state.table, by_class)
    yield NO_DEVICES, without
    yield node.FEATURES, left & ~without & ~node.declaring_nodes(state.table, features)


def resolvable(state: ClusterState, class_id: int, labels_id: int = 0) -> tuple[Mask, Mask]:
    """Return [N] which nodes refuse a pod, and which of these may not do so once pods are removed from them."""
    refused, may_fit = np.zeros((2, len(state.nodes)), dtype=np.bool_)
    small = _too_small(state, class_id)
    for why, where in refusals(state, class_id, labels_id):
        refused |= where
        if why == TOO_MANY or why.startswith(INSUFFICIENT):  # a node may have several of these reasons
            may_fit |= where & ~small
        elif why in RESOLVABLE:
            may_fit |= where
    return refused, may_fit


def reasons_by_node(state: ClusterState, class_id: int, labels_id: int = 0) -> dict[str, tuple[str, ...]]:
    """Return node name -> why a pod of the class with these labels may not run there, for refused nodes alone."""
    result: dict[str, tuple[str, ...]] = {}
    for why, where in refusals(state, class_id, labels_id):
        for slot in np.flatnonzero(where).tolist():
            refusing = state.nodes[slot]
            assert refusing is not None
            result[refusing.name] = (*result.get(refusing.name, ()), why)
    return result


def unschedulable_message(state: ClusterState, class_id: int, labels_id: int = 0, further: FurtherRefusals = ()) -> str:
    """Return why a pod fits nowhere, such as `0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient memory.`."""
    if not state.slots:
        return "no nodes available to schedule pods"
    return format_unschedulable(len(state.slots), counted(state, class_id, labels_id, further))


def counted(state: ClusterState, class_id: int, labels_id: int = 0, further: FurtherRefusals = ()) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for why, where in refusals(state, class_id, labels_id, further):
        counts[why] += int(where.sum())
    return {why: count for why, count in counts.items() if count}


def format_unschedulable(nodes: int, counts: Mapping[str, int]) -> str:
    """Return the sentence that none of so many nodes is available, with the number of nodes by reason."""
    for why in counts:
        if isinstance(why, node.PreFilterReason):
            return f"0/{nodes} nodes are available: {why}."
    parts = sorted(f"{count} {why}" for why, count in counts.items() if count)
    return f"0/{nodes} nodes are available: {', '.join(parts)}."


def other_gpus(state: ClusterState, class_id: int) -> str:
    """Return a sentence about nodes that offer GPUs under other names than a class requests; "" if there are none."""
    wanted = state.classes[class_id].requests.gpu_resource
    foreign = np.flatnonzero(state.table.occupied & ~node.offering_nodes(state.table, wanted))
    offering = filter(None, (state.nodes[slot] for slot in foreign.tolist()))
    names = {name for each in offering for name in (*each.gpu_resources, *each.counted_gpus)}
    if not names:
        return ""
    verb = "node offers" if len(foreign) == 1 else "nodes offer"
    return f"{len(foreign)} {verb} {' and '.join(sorted(names))}, not {wanted}."


def _rules(state: ClusterState, class_id: int) -> dict[int, list[npt.NDArray[np.int64]]]:
    """Return the class's rules about other pods, by kind."""
    result: dict[int, list[npt.NDArray[np.int64]]] = {}
    for rule in inter_pod.rules_of(state.term_arrays, class_id):
        result.setdefault(int(rule[inter_pod.KIND]), []).append(rule)
    return result


def _by_constraints(state: ClusterState, class_id: int, left: Mask) -> Refusing:
    pod_class = state.classes[class_id]
    for why, refused in node.constraint_refusals(state.table, pod_class.constraints, pod_class.requests.gpu_resource):
        yield why, left & refused
        left = left & ~refused
    return left


def _by_resources(state: ClusterState, class_id: int, left: Mask) -> Refusing:
    arrays, request = state.arrays, state.class_arrays.request[class_id]
    requests = state.classes[class_id].requests
    names = ["cpu", "memory", "", "ephemeral-storage", *state.resources]
    refused = np.zeros_like(left)
    # NodeResourcesFit checks the number of pods first.
    for r in [PODS, *(r for r in range(len(request)) if r != PODS)]:
        if request[r] <= 0:
            continue
        short = left & (request[r] > arrays.free[:, r])
        refused |= short
        if r == PODS:
            yield TOO_MANY, short
        elif r < len(names):
            yield f"{INSUFFICIENT}{names[r]}", short
        else:  # the column that no node offers
            # All unknown names share this column, so it does not say which one is lacking.
            for name, _ in requests.extended:
                if name not in state.resources:
                    yield f"{INSUFFICIENT}{name}", short
    if requests.gpu_count:
        devices = np.arange(arrays.gpu_free.shape[1]) < arrays.gpu_count[:, None]
        enough = ((arrays.gpu_free >= requests.gpu_milli) & devices).sum(axis=1)
        if requests.gpu_resource in state.resources:
            column = EXTENDED + state.resources.index(requests.gpu_resource)
            free = arrays.free[:, column] if requests.gpu_milli == GPU_MILLI else 0
            enough = np.where(arrays.allocatable[:, column] > 0, free, enough)
        offered = node.offering_nodes(state.table, requests.gpu_resource)
        short = left & ((enough < requests.gpu_count) | ~offered)
        refused |= short
        yield f"{INSUFFICIENT}{shown_name(requests.gpu_resource)}", short
    return left & ~refused


def _too_small(state: ClusterState, class_id: int) -> Mask:
    """Return [N] which nodes lack a resource or devices even without any pod."""
    arrays, request, requests = state.arrays, state.class_arrays.request[class_id], state.classes[class_id].requests
    compared = [r for r in range(len(request)) if r != PODS]
    small: Mask = (request > arrays.allocatable)[:, compared].any(axis=1)
    if requests.gpu_count:
        counted = arrays.allocatable[:, state.class_arrays.gpu_column[class_id]]
        there = np.where(counted > 0, counted, arrays.gpu_count)
        small |= (there < requests.gpu_count) | ~node.offering_nodes(state.table, requests.gpu_resource)
    return small


def _by_rules(
    state: ClusterState, class_id: int, labels_id: int, rules: list[npt.NDArray[np.int64]], left: Mask
) -> Refusing:
    """Refuse by rules about other pods."""
    terms = state.term_arrays
    for rule in rules:
        passes = inter_pod.rule_mask(terms, class_id, labels_id, rule)
        refused, kind = left & ~passes, int(rule[inter_pod.KIND])
        if kind == inter_pod.SPREAD:
            unlabelled = refused & (terms.domain[rule[inter_pod.KEY]] < 0)
            yield NO_SPREAD_LABEL, unlabelled
            yield NO_SPREAD, refused & ~unlabelled
        else:
            yield _RULE_REASONS[kind], refused
        left = left & passes
    return left


_RULE_REASONS = {
    inter_pod.PORT: NO_PORTS,
    inter_pod.VOLUME: NO_DISK,
    inter_pod.AFFINITY: NO_AFFINITY,
    inter_pod.ANTI_AFFINITY: NO_ANTI_AFFINITY,
}
