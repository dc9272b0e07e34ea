"""Hard constraints that do not depend on what else runs: which nodes a pod's constraints allow, and why others not.

What constraints look at is kept in a NodeTable: a column of interned values for each label key that was asked for, so
that a requirement is a comparison of integers over all nodes. The rules are kube-scheduler 1.36's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from steersman.cluster.gpu_resources import is_offered
from steersman.cluster.model import Constraints, Node, NodeSelectorTerm, Requirement, Taint, Toleration

Mask = npt.NDArray[np.bool_]

MISSING = -1  # the value number of a node that has no such label, and of a free slot

UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
HARD_EFFECTS = ("NoSchedule", "NoExecute")
NAME_FIELD = "metadata.name"

UNSCHEDULABLE = "node(s) were unschedulable"
NODE_NAME = "node(s) didn't match the requested node name"
TAINT = "node(s) had untolerated taint(s)"
AFFINITY = "node(s) didn't match Pod's node affinity/selector"
AFFINITY_NAMES = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
AFFINITY_CONFLICT = "pod affinity terms conflict"
GPU_MODEL = "node(s) didn't have the requested GPU model"

_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_INTEGER = re.compile(r"[+-]?[0-9]+")


class Column:
    """One attribute of all nodes.

    Attributes:
        numbers: value -> its number, in the order of first appearance. Only added to, so copies of a table share it.
        ids: [N] int32 the number of each slot's value, `MISSING` where it has none.
    """

    __slots__ = ("ids", "numbers", "read")

    def __init__(self, read: Callable[[Node], object], numbers: dict[object, int], ids: npt.NDArray[np.int32]) -> None:
        self.read = read
        self.numbers = numbers
        self.ids = ids

    def number(self, node: Node | None) -> int:
        """The number of a node's value."""
        value = None if node is None else self.read(node)
        return MISSING if value is None else self.numbers.setdefault(value, len(self.numbers))

    def any_of(self, values: Sequence[object]) -> Mask:
        """[N] whether the value is one of these."""
        known = [self.numbers[value] for value in values if value in self.numbers]
        if len(known) > 8:
            return np.isin(self.ids, known)
        found = np.zeros(len(self.ids), dtype=np.bool_)
        for number in known:
            found |= self.ids == number
        return found

    def where(self, test: Callable[[object], bool]) -> Mask:
        """[N] whether the value passes a test; False where there is none. The test runs once for each value."""
        if len(self.numbers) > len(self.ids):  # few nodes asked about: not for values that none of them has
            values = list(self.numbers)
            return np.array([number != MISSING and test(values[number]) for number in self.ids], dtype=np.bool_)
        passes = np.array([*map(test, self.numbers), False], dtype=np.bool_)
        return passes[self.ids]  # MISSING is the last


class NodeTable:
    """What constraints look at, for all node slots, in columns that are read from the nodes when first asked for.

    Args:
        nodes: [N] the node in each slot, None in a free one.
    """

    def __init__(self, nodes: Sequence[Node | None]) -> None:
        self._nodes = list(nodes)
        self._columns: dict[tuple[str, str], Column] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def label(self, key: str) -> Column:
        """The values of a label."""
        return self._column(("label", key), lambda node: node.labels.get(key))

    @property
    def names(self) -> Column:
        """The nodes' names."""
        return self._column(("name", ""), lambda node: node.name)

    def gpu_models(self, resource: str = "") -> Column:
        """The models of the GPUs that pods get on the nodes that ask for `resource`."""
        return self._column(("gpu_model", resource), lambda node: node.gpu_model_for(resource) or None)

    @property
    def gpu_offers(self) -> Column:
        """The nodes' (names of the devices that are looked at, names of those that are counted); none without GPUs."""
        return self._column(("gpu_offer", ""), _gpu_offer)

    @property
    def restrictions(self) -> Column:
        """The nodes' (unschedulable, taints that keep pods away)."""
        return self._column(("restrictions", ""), _restrictions)

    @property
    def occupied(self) -> Mask:
        """[N] whether there is a node in the slot."""
        occupied: Mask = self.restrictions.ids != MISSING
        return occupied

    def set(self, slot: int, node: Node | None) -> None:
        """A node came to a slot, changed, or left it (None)."""
        self._nodes[slot] = node
        for column in self._columns.values():
            column.ids[slot] = column.number(node)

    def grow(self, size: int) -> None:
        """Append free slots up to `size`."""
        more = size - len(self._nodes)
        self._nodes += [None] * more
        for column in self._columns.values():
            column.ids = np.append(column.ids, np.full(more, MISSING, dtype=np.int32))

    def permuted(self, order: npt.NDArray[np.int64] | Sequence[int]) -> NodeTable:
        """A table of the slots in `order` (indices of slots); it shares nothing that changes."""
        chosen = NodeTable([self._nodes[slot] for slot in order])
        for name, column in self._columns.items():
            chosen._columns[name] = Column(column.read, column.numbers, column.ids[order])
        return chosen

    def _column(self, name: tuple[str, str], read: Callable[[Node], object]) -> Column:
        column = self._columns.get(name)
        if column is None:
            column = Column(read, {}, np.empty(0, dtype=np.int32))
            column.ids = np.fromiter(map(column.number, self._nodes), dtype=np.int32, count=len(self._nodes))
            self._columns[name] = column
        return column


def allowed_nodes(nodes: NodeTable | Sequence[Node | None], constraints: Constraints, gpu_resource: str = "") -> Mask:
    """[N] whether each slot's node satisfies the constraints, and does not offer GPUs of other names alone.

    False in a free slot. `gpu_resource` is as in `Requests`.
    """
    table = nodes if isinstance(nodes, NodeTable) else NodeTable(nodes)
    allowed = table.occupied
    for _, passes in _filters(table, constraints, gpu_resource):
        allowed &= passes
    return allowed & offering_nodes(table, gpu_resource)


def offering_nodes(table: NodeTable, gpu_resource: str) -> Mask:
    """[N] whether GPUs of each node, if it has any, may go to pods that ask for `gpu_resource` ("": of any name)."""
    if not gpu_resource:
        return np.ones(len(table), dtype=np.bool_)
    offers = table.gpu_offers
    foreign = offers.where(lambda value: not _serves(value, gpu_resource))  # type: ignore[arg-type]
    return ~foreign


def reasons(nodes: NodeTable | Sequence[Node | None], constraints: Constraints, gpu_resource: str = "") -> list[str]:
    """[N] why each slot's node does not satisfy the constraints, in kube-scheduler's words.

    "" where it does, and in a free slot. Which GPUs it offers is not looked at: that is a matter of resources.
    """
    table = nodes if isinstance(nodes, NodeTable) else NodeTable(nodes)
    names = restricted_names(constraints)
    if names is not None and not names:
        return [AFFINITY_CONFLICT if here else "" for here in table.occupied]
    found = [""] * len(table)
    undecided = table.occupied
    filters = _filters(table, constraints, gpu_resource)
    if names is not None:
        filters.insert(0, (AFFINITY_NAMES, table.names.any_of(sorted(names))))
    for reason, passes in filters:
        for slot in np.flatnonzero(undecided & ~passes):
            found[slot] = reason
        undecided &= passes
    return found


def restricted_names(constraints: Constraints) -> frozenset[str] | None:
    """The only nodes that kube-scheduler looks at for a pod whose node affinity terms all name nodes; None: all nodes.

    An empty set is what it reports as conflicting terms.
    """
    found: set[str] = set()
    for term in constraints.node_affinity or ():
        lists = [set(field.values) for field in term.fields if field.key == NAME_FIELD and field.operator == "In"]
        if not lists:
            return None
        found |= set.intersection(*lists)
    return frozenset(found) if constraints.node_affinity else None


def tolerated_nodes(table: NodeTable, tolerations: Sequence[Toleration]) -> Mask:
    """[N] whether every NoSchedule and NoExecute taint of the node is tolerated; cordons are not looked at."""
    return table.restrictions.where(lambda value: _tolerates_all(tolerations, value[1]))  # type: ignore[index]


def affinity_nodes(
    table: NodeTable, selector: Sequence[tuple[str, str]], terms: Sequence[NodeSelectorTerm] | None
) -> Mask:
    """[N] whether the node satisfies a nodeSelector and required node affinity terms (None: there are none)."""
    matched = table.occupied
    for key, value in selector:
        matched &= table.label(key).any_of((value,))
    if terms is not None:
        any_term = np.zeros(len(table), dtype=np.bool_)
        for term in terms:
            any_term |= term_nodes(table, term)
        matched &= any_term
    return matched


def term_nodes(table: NodeTable, term: NodeSelectorTerm) -> Mask:
    """[N] whether all requirements of a node selector term hold; an empty or unparsable one matches nothing."""
    sound = all(_parses(r) for r in term.expressions) and all(_field_parses(f) for f in term.fields)
    if not sound or not (term.expressions or term.fields):
        return np.zeros(len(table), dtype=np.bool_)
    matched = table.occupied
    for requirement in term.expressions:
        matched &= _requirement_nodes(table.label(requirement.key), requirement)
    for field in term.fields:
        if field.key == NAME_FIELD:
            matched &= _requirement_nodes(table.names, field)
        else:  # kube-scheduler reads any other field as ""
            matched &= holds(field, {field.key: ""})
    return matched


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether a requirement of a label selector holds for one object's labels."""
    present = requirement.key in labels
    match requirement.operator:
        case "In":
            return present and labels[requirement.key] in requirement.values
        case "NotIn":
            return not present or labels[requirement.key] not in requirement.values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case "Gt" | "Lt":
            return present and _compares(requirement, labels[requirement.key])
        case _:
            return False


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint. The operators Gt and Lt are behind a gate that is off in 1.36: never."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def _filters(table: NodeTable, constraints: Constraints, gpu_resource: str) -> list[tuple[str, Mask]]:
    """The filters that the constraints ask for, in kube-scheduler's order: (reason of a refusal, [N] who passes)."""
    found = []
    restricted = any(value != (False, ()) for value in table.restrictions.numbers)
    if restricted and not _tolerates_all(constraints.tolerations, (UNSCHEDULABLE_TAINT,)):
        found.append((UNSCHEDULABLE, ~table.restrictions.where(lambda value: value[0])))  # type: ignore[index]
    if constraints.node_name:
        found.append((NODE_NAME, table.names.any_of((constraints.node_name,))))
    if restricted:
        found.append((TAINT, tolerated_nodes(table, constraints.tolerations)))
    if constraints.node_selector or constraints.node_affinity is not None:
        found.append((AFFINITY, affinity_nodes(table, constraints.node_selector, constraints.node_affinity)))
    if constraints.gpu_models:
        found.append((GPU_MODEL, table.gpu_models(gpu_resource).any_of(constraints.gpu_models)))
    return found


GpuOffer = tuple[tuple[str, ...] | None, tuple[str, ...]]


def _gpu_offer(node: Node) -> GpuOffer | None:
    if not node.gpu_total:
        return None
    return node.gpu_resources if node.gpu_count else None, tuple(node.counted_gpus)


def _serves(offer: GpuOffer, resource: str) -> bool:
    devices, counted = offer
    return resource in counted or (devices is not None and is_offered(resource, devices))


def _restrictions(node: Node) -> tuple[bool, tuple[Taint, ...]]:
    if not node.taints:
        return node.unschedulable, ()
    return node.unschedulable, tuple(taint for taint in node.taints if taint.effect in HARD_EFFECTS)


def _tolerates_all(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> bool:
    return all(any(tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def _requirement_nodes(column: Column, requirement: Requirement) -> Mask:
    matched: Mask
    match requirement.operator:
        case "In":
            matched = column.any_of(requirement.values)
        case "NotIn":
            matched = ~column.any_of(requirement.values)
        case "Exists":
            matched = column.ids != MISSING
        case "DoesNotExist":
            matched = column.ids == MISSING
        case _:
            matched = column.where(lambda value: _compares(requirement, str(value)))
    return matched


def _compares(requirement: Requirement, label: str) -> bool:
    value, bound = _int64(label), _int64(requirement.values[0])
    if value is None or bound is None:
        return False
    return value > bound if requirement.operator == "Gt" else value < bound


def _int64(value: str) -> int | None:
    if not _INTEGER.fullmatch(value):
        return None
    number = int(value)
    return number if -(1 << 63) <= number < 1 << 63 else None


def _parses(requirement: Requirement) -> bool:
    """Whether kube-scheduler can parse a requirement on labels; its values must be label values, so "-1" is none."""
    values = requirement.values
    if not all(_LABEL_VALUE.fullmatch(value) for value in values):
        return False
    match requirement.operator:
        case "In" | "NotIn":
            return bool(values)
        case "Exists" | "DoesNotExist":
            return not values
        case "Gt" | "Lt":
            return len(values) == 1 and _int64(values[0]) is not None
        case _:
            return False


def _field_parses(field: Requirement) -> bool:
    return field.operator in ("In", "NotIn") and len(field.values) == 1
