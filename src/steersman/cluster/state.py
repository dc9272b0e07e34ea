"""ClusterState: a cluster as arrays, with names at its interface.

Nodes live in slots. A slot keeps its number for as long as its node exists, so an action always means a node; slots of
deleted nodes are reused. Pods are represented by their class (requests and constraints) and their labels, which are
numbered on first use. Decisions of the simulator and of live clusters read the same arrays.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster import arrays as node_arrays
from steersman.cluster.arrays import CPU, EPHEMERAL, EXTENDED, MEMORY, PODS, ClassArrays, NodeArrays
from steersman.cluster.constraints import inter_pod
from steersman.cluster.constraints import node as static
from steersman.cluster.constraints.inter_pod import InterPodArrays, InterPodConstraints
from steersman.cluster.gpu_units import counted_milli, device_milli
from steersman.cluster.model import ANY_GPU, GPU_MILLI, Constraints, Node, Pod, PodClass, gpu_types, is_offered
from steersman.core.errors import SteersmanError

MAX_DEVICES = 62  # devices of a node are a bit mask in a signed 64-bit integer


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement of a pod: its class, node slot, bit mask of GPU devices, and labels."""

    class_id: int
    slot: int
    devices: int
    labels_id: int = 0


class RunningPod(NamedTuple):
    """A pod that runs on a node: name, class, node slot, bit mask of the devices it is known to hold, and labels."""

    name: str
    class_id: int
    slot: int
    devices: int = 0
    labels_id: int = 0


def device_indices(devices: int) -> tuple[int, ...]:
    return tuple(d for d in range(devices.bit_length()) if devices >> d & 1)


class ClusterState:
    """Nodes, pod classes and placements.

    Args:
        nodes: names must be unique. Of equal scores the first one wins.
        received: names of the nodes in the order in which a scheduler got to know them; None: the order of `nodes`.
    """

    def __init__(self, nodes: Sequence[Node], received: Iterable[str] | None = None) -> None:
        self.nodes: list[Node | None] = list(nodes)  # [N] the node in each slot, None in a free one
        slots = {node.name: slot for slot, node in enumerate(nodes)}
        # Node name -> slot, in the order in which a scheduler got to know the nodes
        self.slots: dict[str, int] = slots if received is None else {name: slots[name] for name in received}
        if len(self.slots) != len(nodes):
            raise SteersmanError("node names are not unique")
        # Types of devices, in the order of their numbers in the arrays; without `ANY_GPU`
        self.gpu_types = gpu_types(nodes)
        # Extended resource names, in the order of the columns from `EXTENDED` on
        self.resources = tuple(sorted({name for node in nodes for name, _ in node.extended}))
        self.placements: dict[str, Placement] = {}  # pod name -> placement
        self.classes: list[PodClass] = []  # pod classes by number
        self.table = static.NodeTable(nodes)  # attributes that static constraints read
        self.terms = InterPodConstraints(self.table)  # numbers of labels, selectors and topology keys
        self._class_ids: dict[PodClass, int] = {}
        self._rows: dict[tuple[Constraints, str], int] = {}
        self._class_arrays: ClassArrays | None = None
        self._free_slots: list[int] = []
        self._pods: dict[int, dict[str, Placement]] = {}
        self._gpu_weights: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None
        self._without_devices: dict[str, Placement] = {}
        self._labels_and_slots: npt.NDArray[np.int64] | None = None
        # The nodes' arrays, updated in place; replaced where `add_node` or `update_node` needs larger ones
        self.arrays = self._node_arrays(nodes)

    # Nodes -----------------------------------------------------------------------------------------------------------

    def _node_arrays(self, nodes: Sequence[Node]) -> NodeArrays:
        count = len(nodes)
        devices = max(1, max((node.gpu_count for node in nodes), default=0))
        _check_devices(devices)
        type_id = {gpu_type: i for i, gpu_type in enumerate(self.gpu_types)}
        # No node offers the last column: a class that requests such a resource fits nowhere.
        allocatable = np.zeros((count, EXTENDED + len(self.resources) + 1), dtype=np.int64)
        for column, name in _COLUMNS:
            allocatable[:, column] = np.fromiter(map(attrgetter(name), nodes), dtype=np.int64, count=count)
        columns = {name: column for column, name in enumerate(self.resources, EXTENDED)}
        for slot, node in enumerate(nodes):
            for name, amount in node.extended:
                allocatable[slot, columns[name]] = amount
        gpu_count = np.fromiter((node.gpu_count for node in nodes), dtype=np.int64, count=count)
        types = (type_id.get(node.gpu_type, len(type_id)) for node in nodes)
        return NodeArrays(
            allocatable=allocatable,
            free=allocatable.copy(),
            nonzero=np.zeros((count, 2), dtype=np.int64),
            gpu_count=gpu_count,
            gpu_free=np.where(np.arange(devices) < gpu_count[:, None], GPU_MILLI, 0).astype(np.int64),
            gpu_model=np.fromiter(types, dtype=np.int64, count=count),
            gpu_kinds=np.zeros((count, devices + 1), dtype=np.int64),
        )

    def add_node(self, node: Node) -> int:
        """Add a node and return its slot: the lowest free one, or the first of as many new ones as exist."""
        if node.name in self.slots:
            raise SteersmanError(f"node {node.name!r} exists already")
        self._ensure_capacity(node)
        if not self._free_slots:
            self._grow()
        slot = heapq.heappop(self._free_slots)
        self.slots[node.name] = slot
        self._write(slot, node)
        return slot

    def update_node(self, node: Node) -> int:
        """Replace the node of the same name, whose pods stay, and return its slot.

        What is free may fall below zero if less is allocatable than is in use. Raises SteersmanError if there is no
        such node.
        """
        slot = self.slot(node.name)
        self._ensure_capacity(node)
        self._write(slot, node)
        return slot

    def remove_node(self, name: str) -> dict[str, Placement]:
        """Remove a node and its pods, and return these: pod name -> placement."""
        slot = self.slot(name)
        pods = dict(self.pods_on(slot))
        for pod in pods:
            self.remove(pod)
        del self.slots[name]
        self._write(slot, None)
        heapq.heappush(self._free_slots, slot)
        return pods

    def slot(self, name: str) -> int:
        """Return the slot of a node. Raises SteersmanError if there is no such node."""
        try:
            return self.slots[name]
        except KeyError:
            raise SteersmanError(f"there is no node {name!r}") from None

    def pods_on(self, slot: int) -> Mapping[str, Placement]:
        """Return the pods on a node: pod name -> placement."""
        return self._pods.get(slot, {})

    def _write(self, slot: int, node: Node | None) -> None:
        arrays = self.arrays
        self._gpu_weights = None
        arrays.allocatable[slot] = 0
        if node is not None:
            for column, name in _COLUMNS:
                arrays.allocatable[slot, column] = getattr(node, name)
            for name, amount in node.extended:
                arrays.allocatable[slot, EXTENDED + self.resources.index(name)] = amount
        arrays.gpu_count[slot] = 0 if node is None else node.gpu_count
        # Nodes without GPUs, and free slots, have the number above the last type's.
        arrays.gpu_model[slot] = (*self.gpu_types, ANY_GPU).index(ANY_GPU if node is None else node.gpu_type)
        previous, self.nodes[slot] = self.nodes[slot], node
        self.table.set(slot, node)
        self.terms.node_changed(slot)
        if self._class_arrays is not None:
            here = self.table.permuted([slot])
            for (constraints, gpu_resource), row in self._rows.items():
                self._class_arrays.allowed[row, slot] = static.allowed_nodes(here, constraints, gpu_resource)[0]
        # Last: it counts the pods by what is allocatable and allowed now.
        self._recount(slot)
        if previous is not None and node is not None and _gpus(previous) != _gpus(node):
            self._give_devices(slot)

    def _give_devices(self, slot: int) -> None:
        """Give devices to pods of a node that have fewer than they request: there were fewer, or they were counted."""
        for pod, placed in list(self.pods_on(slot).items()):
            count = self.classes[placed.class_id].requests.gpu_count
            here = placed.devices & ((1 << int(self.arrays.gpu_count[slot])) - 1)
            if here.bit_count() < count and not self._counts_gpus(placed.class_id, slot):
                node_arrays.remove(self.arrays, self.class_arrays, placed.class_id, slot, placed.devices)
                devices = self._devices_for(placed.class_id, slot, here)
                node_arrays.place(self.arrays, self.class_arrays, placed.class_id, slot, devices)
                self._note(pod, replace(placed, devices=devices))

    def _recount(self, slot: int) -> None:
        arrays, devices = self.arrays, self.arrays.gpu_free.shape[1]
        arrays.free[slot] = arrays.allocatable[slot]
        arrays.nonzero[slot] = 0
        arrays.gpu_free[slot] = np.where(np.arange(devices) < arrays.gpu_count[slot], GPU_MILLI, 0)
        arrays.gpu_kinds[slot] = 0
        for placed in self.pods_on(slot).values():
            node_arrays.place(arrays, self.class_arrays, placed.class_id, slot, placed.devices)

    def _ensure_capacity(self, node: Node) -> None:
        """Add columns for GPU types, resources and devices that no node had so far."""
        if node.gpu_type not in (ANY_GPU, *self.gpu_types):
            # The number that stands for no type is one above the last type's.
            self.arrays.gpu_model[self.arrays.gpu_model == len(self.gpu_types)] += 1
            self.gpu_types = (*self.gpu_types, node.gpu_type)
        new = sorted({name for name, _ in node.extended} - set(self.resources))
        if new:
            self._add_resources(new)
        self._widen_devices(node.gpu_count)

    def _add_resources(self, names: Sequence[str]) -> None:
        old = self.arrays
        last = EXTENDED + len(self.resources)
        self.resources = (*self.resources, *names)
        columns = [last] * len(names)
        self.arrays = old._replace(
            allocatable=np.insert(old.allocatable, columns, 0, axis=1), free=np.insert(old.free, columns, 0, axis=1)
        )
        # Requests have as many columns as nodes; they are made again at the next use.
        self._class_arrays = None
        # Pods placed by force may request what was in the last column, "not offered", and has its own column now.
        for slot in np.flatnonzero(old.free[:, last]):
            self._recount(int(slot))

    def _widen_devices(self, devices: int) -> None:
        more = devices - self.arrays.gpu_free.shape[1]
        if more > 0:
            _check_devices(devices)
            self.arrays = self.arrays._replace(
                gpu_free=np.pad(self.arrays.gpu_free, ((0, 0), (0, more))),
                gpu_kinds=np.pad(self.arrays.gpu_kinds, ((0, 0), (0, more))),
            )
            # Pods that request more devices than any node had were counted with those that request that many.
            for slot in np.flatnonzero(self.arrays.gpu_kinds[:, -1 - more]):
                self._recount(int(slot))

    def _grow(self) -> None:
        size = len(self.nodes)
        more = max(size, 1)
        self.arrays = NodeArrays(*(np.pad(a, ((0, more),) + ((0, 0),) * (a.ndim - 1)) for a in self.arrays))
        self.arrays.gpu_model[size:] = len(self.gpu_types)
        self.nodes += [None] * more
        # Called without free slots only. A sorted list is a heap.
        self._free_slots = list(range(size, size + more))
        self.table.grow(size + more)
        self.terms.grow()
        if self._class_arrays is not None:
            allowed = np.pad(self._class_arrays.allowed, ((0, 0), (0, more)))
            self._class_arrays = self._class_arrays._replace(allowed=allowed)

    # Copies ----------------------------------------------------------------------------------------------------------

    def copy(self) -> ClusterState:
        return self.permuted(np.arange(len(self.nodes)))

    def permuted(self, order: npt.NDArray[np.int64] | Sequence[int]) -> ClusterState:
        """Return a copy with the slots in another order: slot i is slot `order[i]` of this state.

        Numbers of classes, labels and the like stay the same; immutable parts are shared.
        """
        order = np.asarray(order, dtype=np.int64)
        slots = np.arange(len(self.nodes))
        if not np.array_equal(np.sort(order), slots):
            raise SteersmanError(f"the order of nodes must be a permutation of 0 to {len(slots) - 1}")
        place = np.empty_like(order)
        place[order] = slots
        chosen = ClusterState.__new__(ClusterState)
        chosen.nodes = [self.nodes[slot] for slot in order.tolist()]
        chosen.slots = {node.name: slot for slot, node in enumerate(chosen.nodes) if node is not None}
        chosen.gpu_types, chosen.resources = self.gpu_types, self.resources
        chosen.classes, chosen._class_ids = self.classes.copy(), self._class_ids.copy()
        chosen._rows = self._rows.copy()
        chosen.arrays = NodeArrays(*(a.take(order, axis=0) for a in self.arrays))
        chosen.table = self.table.permuted(order)
        chosen.terms = self.terms.permuted(chosen.table, order)
        chosen._class_arrays = self._class_arrays
        weights = self._gpu_weights
        chosen._gpu_weights = None if weights is None else (weights[0].take(order), weights[1].take(order, axis=0))
        if self._class_arrays is not None:
            chosen._class_arrays = self._class_arrays._replace(allowed=self._class_arrays.allowed.take(order, axis=1))
        chosen._free_slots = sorted(int(place[slot]) for slot in self._free_slots)
        chosen.placements, chosen._pods, chosen._without_devices, chosen._labels_and_slots = {}, {}, {}, None
        for pod, old in self.placements.items():
            chosen._note(pod, Placement(old.class_id, int(place[old.slot]), old.devices, old.labels_id))
        return chosen

    # Classes and labels ----------------------------------------------------------------------------------------------

    def class_id(self, pod_class: PodClass) -> int:
        known = self._class_ids.get(pod_class)
        if known is None:
            known = self._class_ids[pod_class] = len(self.classes)
            self.classes.append(pod_class)
            self.terms.add_class(pod_class.constraints)
        return known

    @property
    def numbers(self) -> int:
        """How many numbers classes, their rules about other pods, and label sets have."""
        return len(self.classes) + self.terms.numbers

    def class_ids(self, pods: Iterable[Pod]) -> npt.NDArray[np.int64]:
        return np.array([self.class_id(pod.pod_class) for pod in pods], dtype=np.int64)

    def labels_id(self, pod: Pod) -> int:
        """Return the number of a pod's namespace and labels, assigned on first use."""
        return self.terms.labels_id(pod.namespace, pod.labels, terminating=pod.terminating)

    def labels_ids(self, pods: Iterable[Pod]) -> npt.NDArray[np.int64]:
        return np.array([self.labels_id(pod) for pod in pods], dtype=np.int64)

    @property
    def class_arrays(self) -> ClassArrays:
        """Arrays of the classes; replaced when a class is added, or a node that needs larger ones."""
        known = self._class_arrays
        if known is None:
            # Rows of `allowed` are numbered from the first class again.
            self._rows = {}
            self._class_arrays = self._make_class_arrays(0)
        elif len(known.gpu_count) < len(self.classes):
            new = self._make_class_arrays(len(known.gpu_count))
            self._class_arrays = ClassArrays(*(np.concatenate(both) for both in zip(known, new, strict=True)))
        return self._class_arrays  # type: ignore[return-value]

    def _make_class_arrays(self, first: int) -> ClassArrays:
        """Return the arrays of the classes from `first` on, and the rows of `allowed` that they add."""
        classes, known_rows = self.classes[first:], len(self._rows)
        keys = [(each.constraints, each.requests.gpu_resource) for each in classes]
        constraint = [self._rows.setdefault(key, len(self._rows)) for key in keys]
        rows = [static.allowed_nodes(self.table, *key) for key in list(self._rows)[known_rows:]]
        column = {name: i for i, name in enumerate(self.resources, EXTENDED)}
        request = np.zeros((len(classes), self.arrays.allocatable.shape[1]), dtype=np.int64)
        every = [each.requests for each in classes]
        for c, r in enumerate(every):
            request[c, CPU], request[c, MEMORY] = r.cpu_milli, r.memory_bytes
            request[c, PODS], request[c, EPHEMERAL] = 1, r.ephemeral_bytes
            for name, amount in r.extended:
                # -1 is the column that no node offers.
                request[c, column.get(name, -1)] += amount
        nonzero = np.array([(r.cpu_nonzero_milli, r.memory_nonzero_bytes) for r in every], dtype=np.int64)
        return ClassArrays(
            request=request,
            nonzero=nonzero.reshape(-1, 2),
            gpu_count=np.array([r.gpu_count for r in every], dtype=np.int64),
            gpu_milli=np.array([r.gpu_milli for r in every], dtype=np.int64),
            gpu_column=np.array([column.get(r.gpu_resource, request.shape[1] - 1) for r in every], dtype=np.int64),
            constraint=np.array(constraint, dtype=np.int64),
            allowed=np.array(rows, dtype=np.bool_).reshape(len(rows), len(self.nodes)),
        )

    @property
    def term_arrays(self) -> InterPodArrays:
        """Arrays of inter-pod constraints; replaced when a class, labels or a selector gets a number.

        A new selector counts the pods in `placements`. A run in the core places pods that are not there, so
        everything that it may read must have a number before it starts.
        """
        return self.terms.arrays(self._placed_labels)

    def _placed_labels(self) -> npt.NDArray[np.int64]:
        """Return labels and slots of the pods, [P, 2]."""
        if self._labels_and_slots is None:
            pairs = [(placed.labels_id, placed.slot) for placed in self.placements.values()]
            self._labels_and_slots = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return self._labels_and_slots

    # Decisions -------------------------------------------------------------------------------------------------------

    def gpu_use_by_node(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the GPU milli that pods request on each node, [N], and all there are, [N].

        More may be requested than there are, since pods that run count whatever is left of their node. Counted GPUs are
        included; a slice or a replica is as much of a GPU as it is, see `gpu_units`.
        """
        arrays = self.arrays
        device, counted = self.gpu_weights()
        total = arrays.gpu_count * device + (arrays.allocatable * counted).sum(axis=1)
        left = arrays.gpu_free.sum(axis=1) * device / GPU_MILLI + (arrays.free * counted).sum(axis=1)
        used = total - left
        for placed in self._without_devices.values():
            milli = self.milli_without_device(placed.class_id, placed.slot, placed.devices)
            used[placed.slot] += milli * device[placed.slot] / GPU_MILLI
        return np.rint(used).astype(np.int64), np.rint(total).astype(np.int64)

    def gpu_weights(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the milli of a GPU of each device of the nodes, [N], and of a unit of each resource, [N, R]."""
        if self._gpu_weights is not None:
            return self._gpu_weights
        device = np.full(len(self.nodes), float(GPU_MILLI))
        counted = np.zeros(self.arrays.allocatable.shape)
        columns = {name: column for column, name in enumerate(self.resources, EXTENDED)}
        for slot, node in enumerate(self.nodes):
            if node is not None:
                device[slot] = device_milli(node)
                for name, milli in counted_milli(node).items():
                    counted[slot, columns[name]] = milli
        self._gpu_weights = device, counted
        return self._gpu_weights

    def milli_without_device(self, class_id: int, slot: int, devices: int) -> int:
        """Return the GPU milli that a running pod requests beyond the devices that its node could give it."""
        requests = self.classes[class_id].requests
        if self._counts_gpus(class_id, slot):
            return 0
        return (requests.gpu_count - devices.bit_count()) * requests.gpu_milli

    def mask(self, class_id: int, labels_id: int = 0) -> npt.NDArray[np.bool_]:
        """Return where a pod of the class with these labels may run now, [N]: constraints, resources and devices."""
        feasible = self.room(class_id)
        if feasible.any() and self.has_inter_pod_constraints(class_id, labels_id):
            feasible &= inter_pod.inter_pod_mask(self.term_arrays, class_id, labels_id)
        return feasible

    def room(self, class_id: int) -> npt.NDArray[np.bool_]:
        """Return where a pod of the class may run now, [N], if what it wants of other pods did not matter."""
        return node_arrays.fit_mask(self.arrays, self.class_arrays, class_id)

    def fits_when_empty(self, class_id: int) -> bool:
        """Return whether a class would fit on some node if no other pod were there."""
        arrays = self.arrays
        devices = np.arange(arrays.gpu_free.shape[1]) < arrays.gpu_count[:, None]
        empty = arrays._replace(free=arrays.allocatable, gpu_free=np.where(devices, GPU_MILLI, 0).astype(np.int64))
        return bool(node_arrays.fit_mask(empty, self.class_arrays, class_id).any())

    def has_inter_pod_constraints(self, class_id: int, labels_id: int) -> bool:
        """Return whether other pods could keep a pod of the class with these labels from a node."""
        return not self.terms.idle and inter_pod.has_inter_pod_rules(self.term_arrays, class_id, labels_id)

    def place(
        self, pod: str, class_id: int, slot: int, devices: int | None = None, labels_id: int = 0, *, force: bool = False
    ) -> Placement:
        """Place a pod on a node; `devices` None takes the default ones.

        `force` is for pods that run there already, whatever the constraints say: nothing is checked, and what is free
        may fall below zero. A pod that requests more devices than are free, or than exist, takes those there are, and
        devices that the node does not have are as unknown.
        """
        if pod in self.placements:
            raise SteersmanError(f"pod {pod!r} is placed already")
        if not 0 <= slot < len(self.nodes) or self.nodes[slot] is None:
            raise SteersmanError(f"there is no node in slot {slot}")
        fits = node_arrays.fits(self.arrays, self.class_arrays, class_id, slot)
        if not force:
            self._check(pod, class_id, slot, devices, labels_id, fits)
        elif devices is not None and devices >> int(self.arrays.gpu_count[slot]):
            devices = None
        if self._counts_gpus(class_id, slot):
            devices = 0
        elif devices is None and not fits:
            devices = self._devices_for(class_id, slot)
        elif devices is None:
            devices = node_arrays.best_devices(self.arrays, self.class_arrays, class_id, slot)
        node_arrays.place(self.arrays, self.class_arrays, class_id, slot, devices)
        if not self.terms.idle:
            inter_pod.terms_place(self.term_arrays, class_id, labels_id, slot)
        return self._note(pod, Placement(class_id, slot, devices, labels_id))

    def place_running(self, pods: Iterable[RunningPod]) -> dict[str, Placement]:
        """Place pods where they run, see `place`, those with known devices first, and return their placements by name.

        This is the account of a cluster, whether a watch, a file or a request says what runs: the order is part of it.
        """
        return {
            pod.name: self.place(pod.name, pod.class_id, pod.slot, pod.devices or None, pod.labels_id, force=True)
            for pod in sorted(pods, key=lambda pod: (not pod.devices, pod.name))
        }

    def _devices_for(self, class_id: int, slot: int, held: int = 0) -> int:
        """Return a running pod's devices: first those it holds, then the best fitting, then those with most left."""
        requests, node, free = self.classes[class_id].requests, self.nodes[slot], self.arrays.gpu_free[slot]
        if node is None or not is_offered(requests.gpu_resource, node.gpu_resources):
            return held
        devices = held or node_arrays.best_devices(self.arrays, self.class_arrays, class_id, slot)
        others = [d for d in range(int(self.arrays.gpu_count[slot])) if not devices >> d & 1]
        others.sort(key=lambda d: -free[d])
        for d in others[: max(0, requests.gpu_count - devices.bit_count())]:
            devices |= 1 << d
        return devices

    def _counts_gpus(self, class_id: int, slot: int) -> bool:
        """Return whether the node counts the GPUs that the class requests, see `arrays.counts_gpus`."""
        requests, node = self.classes[class_id].requests, self.nodes[slot]
        return bool(requests.gpu_count and node is not None and node.counted_gpus.get(requests.gpu_resource))

    def _check(self, pod: str, class_id: int, slot: int, devices: int | None, labels_id: int, fits: bool) -> None:
        if not fits:
            raise SteersmanError(f"pod {pod!r} does not fit on the node in slot {slot}")
        if devices is not None:
            requests = self.classes[class_id].requests
            free = self.arrays.gpu_free[slot, : self.arrays.gpu_count[slot]]
            count = 0 if self._counts_gpus(class_id, slot) else requests.gpu_count
            chosen = device_indices(devices)
            if len(chosen) != count or any(d >= len(free) or free[d] < requests.gpu_milli for d in chosen):
                raise SteersmanError(f"pod {pod!r} cannot have the devices {chosen} of the node in slot {slot}")
        if not self.has_inter_pod_constraints(class_id, labels_id):
            return
        if not inter_pod.inter_pod_mask(self.term_arrays, class_id, labels_id)[slot]:
            raise SteersmanError(f"pod {pod!r} may not run with the pods that are near the node in slot {slot}")

    def _note(self, pod: str, placement: Placement) -> Placement:
        self._labels_and_slots = None
        self.placements[pod] = self._pods.setdefault(placement.slot, {})[pod] = placement
        if self.milli_without_device(placement.class_id, placement.slot, placement.devices):
            self._without_devices[pod] = placement
        else:
            self._without_devices.pop(pod, None)
        return placement

    def remove(self, pod: str) -> Placement:
        """Remove a pod from its node. Raises SteersmanError if it is not placed."""
        placement = self.placements.get(pod)
        if placement is None:
            raise SteersmanError(f"pod {pod!r} is not placed")
        c, slot = placement.class_id, placement.slot
        node_arrays.remove(self.arrays, self.class_arrays, c, slot, placement.devices)
        if not self.terms.idle:
            inter_pod.terms_remove(self.term_arrays, c, placement.labels_id, slot)
        self._labels_and_slots = None
        del self.placements[pod], self._pods[slot][pod]
        self._without_devices.pop(pod, None)
        return placement


def _gpus(node: Node) -> tuple[int, dict[str, int]]:
    return node.gpu_count, node.counted_gpus


_COLUMNS = ((CPU, "cpu_milli"), (MEMORY, "memory_bytes"), (PODS, "pods"), (EPHEMERAL, "ephemeral_bytes"))


def _check_devices(devices: int) -> None:
    if devices > MAX_DEVICES:
        raise SteersmanError(f"a node has {devices} GPUs; at most {MAX_DEVICES} are supported")
