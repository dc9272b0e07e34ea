"""A workload in few numbers: kinds of pods, types of nodes, which kind fits where, and which is harder to place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, EPHEMERAL, EXTENDED, MEMORY, PODS, NodeArrays, fit_mask
from steersman.cluster.model import Constraints, Node, PodClass
from steersman.cluster.state import ClusterState, device_indices
from steersman.workloads.workload import Workload

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MAX_KINDS = 500
MAX_PAIRS = 12_000  # most kinds by types; with more, similar ones are pooled. HiGHS solves such an LP in seconds.


@dataclass(frozen=True, slots=True)
class Kinds:
    """G kinds of pods, T types of nodes, R resources (the columns of `ClusterState`)."""

    of_pod: Ints  # [P] the kind of each pod of the workload
    request: Ints  # [G, R] a pod's requests
    gpu_count: Ints  # [G] devices
    gpu_milli: Ints  # [G] milli of each device
    demand: Ints  # [G] total milli, of the pods themselves
    fits: Mask  # [G, T] whether a pod of the kind fits on an empty node of the type
    # [G] whether the feasibility of a pod depends on nothing but what is left on the nodes, so that a kind that once
    # fits nowhere never fits again (as long as nothing leaves)
    ordered: Mask
    # [H, 2] (easy, hard): where a pod of the hard kind fits, one of the easy kind does, both ordered. Implied pairs
    # are left out.
    harder: Ints
    nodes: Ints  # [T] number of nodes
    capacity: npt.NDArray[np.float64]  # [T, R] of all of them, as floats: unlimited resources would overflow
    largest: Ints  # [T, R] of the largest of them
    devices: Ints  # [T] GPUs of all of them
    largest_devices: Ints  # [T] GPUs of the largest of them


def nodes_with_room(workload: Workload) -> tuple[Node, ...]:
    """Return the eligible nodes, enlarged where pods that stay take more than there is.

    On the enlarged nodes these pods fit, and of what they exceed nothing is left, as on the nodes that there are. Each
    pod on a device of which too much is in use gets devices of its own, which can only make more pods fit.
    """
    state = ClusterState(workload.eligible_nodes)
    holders: Counter[tuple[int, int]] = Counter()
    further: Counter[int] = Counter()
    for i in workload.standing():
        where, requests = workload.recorded[i], workload.pods[i].requests
        if where is None or where.node not in state.slots:
            continue
        slot, c = state.slots[where.node], state.class_id(PodClass(requests))
        placed = state.place(str(i), c, slot, where.devices or None, force=True)
        holders.update((slot, device) for device in device_indices(placed.devices))
        if state.milli_without_device(c, slot, placed.devices):
            further[slot] += requests.gpu_count - placed.devices.bit_count()
    for (slot, device), pods in holders.items():
        # One of the holders keeps the device.
        further[slot] += pods - 1 if state.arrays.gpu_free[slot, device] < 0 else 0
    return tuple(
        _enlarged(node, state, slot, further[slot]) for slot, node in enumerate(state.nodes) if node is not None
    )


def _enlarged(node: Node, state: ClusterState, slot: int, devices: int) -> Node:
    missing = np.maximum(-state.arrays.free[slot], 0)
    if not devices and not missing.any():
        return node
    extended = dict(node.extended)
    for column, name in enumerate(state.resources, EXTENDED):
        if missing[column]:
            extended[name] = extended.get(name, 0) + int(missing[column])
    return replace(
        node,
        cpu_milli=node.cpu_milli + int(missing[CPU]),
        memory_bytes=node.memory_bytes + int(missing[MEMORY]),
        pods=node.pods + int(missing[PODS]),
        ephemeral_bytes=node.ephemeral_bytes + int(missing[EPHEMERAL]),
        gpu_count=node.gpu_count + devices,
        extended=tuple(sorted(extended.items())),
    )


def find_kinds(workload: Workload, max_kinds: int = MAX_KINDS, max_pairs: int = MAX_PAIRS) -> Kinds:
    """Return the kinds and types of a workload.

    Pods of one kind have the same requests and fit on the same empty nodes. Beyond `max_kinds` the rarest are pooled
    with others of the same GPU request: a pooled kind requests the least of them, fits where any of them does, and is
    not ordered. Beyond `max_pairs` node types are pooled likewise. Both can only make more pods fit.
    """
    state = ClusterState(nodes_with_room(workload))
    class_of = state.class_ids(workload.pods)
    nodes, classes = state.arrays, state.class_arrays
    # Packed bits make a mask of classes comparable as bytes.
    told_apart = (nodes.allocatable, nodes.gpu_count, nodes.gpu_model, np.packbits(classes.allowed, axis=0).T)
    unlike, like = _distinct(np.column_stack(told_apart))
    nodes = NodeArrays(*(column[unlike] for column in nodes))
    classes = classes._replace(allowed=classes.allowed[:, unlike])
    where = np.zeros((len(state.classes), len(unlike)), dtype=np.bool_)
    for c in range(len(where)):
        where[c] = fit_mask(nodes, classes, c)
    ordered = _ordered([each.constraints for each in state.classes])
    gpu = np.stack([classes.gpu_count, np.where(classes.gpu_count > 0, classes.gpu_milli, 0)], axis=1)
    first, kind_of = _distinct(np.column_stack([classes.request, gpu, ordered, np.packbits(where, axis=1)]))
    of_pod = kind_of[class_of]
    request, gpu, where, ordered = classes.request[first], gpu[first], where[first], ordered[first]
    if len(first) > max_kinds:
        place = _pool(np.bincount(of_pod, minlength=len(first)), gpu, max_kinds)
        of_pod = place[of_pod]
        request, gpu, where = _least(place, request), _least(place, gpu), _any(place, where)
        # A pooled kind is not ordered: its pods differ in where they fit.
        ordered = _least(place, ordered) & (np.bincount(place) == 1)

    columns = np.packbits(where, axis=0).T
    # From the finest types to one per number of GPUs, until there are few enough pairs.
    for key in ((columns, nodes.allocatable, nodes.gpu_count), (columns, nodes.gpu_count), (nodes.gpu_count,)):
        first, type_of = _distinct(np.column_stack(key))
        if len(first) * len(request) <= max_pairs:
            break
    fits, of_node, nodes = _any(type_of, where.T).T, type_of[like], state.arrays
    return Kinds(
        of_pod=of_pod,
        request=request,
        gpu_count=gpu[:, 0],
        gpu_milli=gpu[:, 1],
        demand=gpu[:, 0] * gpu[:, 1],
        fits=fits,
        ordered=ordered,
        harder=_harder(request, gpu, where, ordered),
        nodes=np.bincount(of_node),
        capacity=np.asarray(_reduce(np.add, of_node, nodes.allocatable.astype(np.float64)), dtype=np.float64),
        largest=_reduce(np.maximum, of_node, nodes.allocatable),
        devices=_reduce(np.add, of_node, nodes.gpu_count),
        largest_devices=_reduce(np.maximum, of_node, nodes.gpu_count),
    )


def _ordered(constraints: Sequence[Constraints]) -> Mask:
    """Return [C] which classes are ordered: those that depend on no other pod and that no other's terms concern."""
    if any(each.anti_affinity for each in constraints):
        return np.zeros(len(constraints), dtype=np.bool_)
    looks = [
        bool(each.affinity or each.host_ports or each.exclusive_volumes or [t for t in each.spread if t.hard])
        for each in constraints
    ]
    return ~np.array(looks, dtype=np.bool_)


def _pool(count: Ints, gpu: Ints, most: int) -> Ints:
    """Return [G] the new number of each kind: the most frequent keep their own, others share one per GPU request."""
    rare = np.argsort(-count, kind="stable")[most:]
    number = np.arange(len(count))
    _, pool_of = _distinct(gpu[rare])
    number[rare] = len(count) + pool_of
    return np.unique(number, return_inverse=True)[1].reshape(-1)


def _harder(request: Ints, gpu: Ints, where: Mask, ordered: Mask) -> Ints:
    """Return [H, 2] `Kinds.harder`."""
    easier = ordered[:, np.newaxis] & ordered[np.newaxis]
    for column in (*request.T, *gpu.T):
        easier &= column[:, np.newaxis] <= column[np.newaxis]
    different = np.unique(where, axis=1).astype(np.float32)  # equivalent nodes count once
    # easy is easier than hard if no node fits hard alone: (not easy) and hard is empty.
    easier &= (1 - different) @ different.T == 0
    np.fill_diagonal(easier, False)
    steps = easier.astype(np.float32)
    # Pairs that follow from two others (transitive reduction) are left out.
    return np.argwhere(easier & (steps @ steps == 0))


def _distinct(rows: Ints) -> tuple[Ints, Ints]:
    """Return the first index of each distinct row, and the number of each row among them."""
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, inverse.reshape(-1)


def _reduce(operation: np.ufunc, group: Ints, values: npt.NDArray[np.generic]) -> Ints:
    """Reduce the values of each group (0, 1, ... without gaps) along the first axis."""
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(group.max() + 1))
    return np.asarray(operation.reduceat(values[order], starts, axis=0))


def _least(group: Ints, values: npt.NDArray[np.generic]) -> Ints:
    return _reduce(np.minimum, group, values)


def _any(group: Ints, values: Mask) -> Mask:
    return np.asarray(_reduce(np.logical_or, group, values), dtype=np.bool_)
