"""Constraints that do not depend on other pods: which nodes a pod's constraints allow, and why not others.

A NodeTable has a column of interned values for each label key in use, so that a requirement is a comparison of integers
over all nodes. The rules are kube-scheduler 1.37's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Constraints, Node, NodeSelectorTerm, Requirement, Taint, Toleration, is_offered
from steersman.cluster.objects.api.claims import IMPLICIT

Mask = npt.NDArray[np.bool_]

MISSING = -1  # the value number of a node that has no such label, and of a free slot

UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
HARD_EFFECTS = ("NoSchedule", "NoExecute")
NAME_FIELD = "metadata.name"

UNSCHEDULABLE = "node(s) were unschedulable"
NODE_NAME = "node(s) didn't match the requested node name"
TAINT = "node(s) had untolerated taint(s)"
AFFINITY = "node(s) didn't match Pod's node affinity/selector"
ADDED_AFFINITY = "node(s) didn't match scheduler-enforced node affinity"
AFFINITY_NAMES = "node(s) didn't satisfy plugin(s) [NodeAffinity]"


class PreFilterReason(str):
    """A reason that kube-scheduler finds before it looks at any node."""

    __slots__ = ()


AFFINITY_CONFLICT = PreFilterReason("pod affinity terms conflict")
GPU_MODEL = "node(s) didn't have the requested GPU model"
FEATURES = "node(s) didn't match Pod's required features"

CORDON_FILTER, NODE_NAME_FILTER, TAINT_FILTER, NODE_AFFINITY_FILTER, NODE_AFFINITY_PREFILTER, FEATURES_FILTER = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodeAffinity in preFilter",
    "NodeDeclaredFeatures",
)
"""Filter plugins that a profile may disable (`ProfileRules.disabled_filters`); `inter_pod` has the others."""

_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_INTEGER = re.compile(r"[+-]?[0-9]+")


class NodeTableColumn:
    """One attribute of all nodes."""

    __slots__ = ("ids", "numbers", "read")

    def __init__(self, read: Callable[[Node], object], numbers: dict[object, int], ids: npt.NDArray[np.int32]) -> None:
        self.read = read
        # Value -> its number, in order of first appearance; append-only, so copies of a table share it
        self.numbers = numbers
        self.ids = ids  # [N] int32 number of each slot's value, `MISSING` where it has none

    def number(self, node: Node | None) -> int:
        value = None if node is None else self.read(node)
        return MISSING if value is None else self.numbers.setdefault(value, len(self.numbers))

    def any_of(self, values: Sequence[object]) -> Mask:
        """Return whether the value is one of these, [N]."""
        known = [self.numbers[value] for value in values if value in self.numbers]
        if len(known) > 8:
            return np.isin(self.ids, known)
        result = np.zeros(len(self.ids), dtype=np.bool_)
        for number in known:
            result |= self.ids == number
        return result

    def where(self, test: Callable[[object], bool]) -> Mask:
        """Return whether the value passes a test, [N]; False where there is none. The test runs once for each value."""
        if len(self.numbers) > len(self.ids):  # with few nodes, not for values that none of them has
            values = list(self.numbers)
            return np.array([number != MISSING and test(values[number]) for number in self.ids], dtype=np.bool_)
        passes = np.array([*map(test, self.numbers), False], dtype=np.bool_)
        return passes[self.ids]  # MISSING is the last


class NodeTable:
    """Attributes of node slots (None: free) that constraints read, in columns that are built when first needed."""

    def __init__(self, nodes: Sequence[Node | None]) -> None:
        self._nodes = list(nodes)
        self._columns: dict[tuple[str, str], NodeTableColumn] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def label(self, key: str) -> NodeTableColumn:
        return self._column(("label", key), lambda node: node.labels.get(key))

    @property
    def names(self) -> NodeTableColumn:
        return self._column(("name", ""), lambda node: node.name)

    def gpu_models(self, resource: str = "") -> NodeTableColumn:
        """Return the models of the GPUs that pods requesting `resource` get on the nodes."""
        return self._column(("gpu_model", resource), lambda node: node.gpu_model_for(resource) or None)

    @property
    def gpu_offers(self) -> NodeTableColumn:
        """(Names of the devices in the mask, names of counted ones) of the nodes; none without GPUs."""
        return self._column(("gpu_offer", ""), _gpu_offer)

    @property
    def features(self) -> NodeTableColumn:
        return self._column(("features", ""), lambda node: node.features)

    @property
    def restrictions(self) -> NodeTableColumn:
        """(Unschedulable, taints that keep pods away) of the nodes."""
        return self._column(
            ("restrictions", ""),
            lambda node: (node.unschedulable, tuple(taint for taint in node.taints if taint.effect in HARD_EFFECTS)),
        )

    @property
    def occupied(self) -> Mask:
        """Return whether the slot has a node, [N]."""
        occupied: Mask = self.restrictions.ids != MISSING
        return occupied

    def set(self, slot: int, node: Node | None) -> None:
        """Set the node of a slot (None: free it)."""
        self._nodes[slot] = node
        for column in self._columns.values():
            column.ids[slot] = column.number(node)

    def grow(self, size: int) -> None:
        more = size - len(self._nodes)
        self._nodes += [None] * more
        for column in self._columns.values():
            column.ids = np.append(column.ids, np.full(more, MISSING, dtype=np.int32))

    def permuted(self, order: npt.NDArray[np.int64] | Sequence[int]) -> NodeTable:
        """Return a table of the slots in `order` (indices of slots) that shares nothing mutable."""
        chosen = NodeTable([self._nodes[slot] for slot in order])
        for name, column in self._columns.items():
            chosen._columns[name] = NodeTableColumn(column.read, column.numbers, column.ids[order])
        return chosen

    def _column(self, name: tuple[str, str], read: Callable[[Node], object]) -> NodeTableColumn:
        column = self._columns.get(name)
        if column is None:
            column = NodeTableColumn(read, {}, np.empty(0, dtype=np.int32))
            column.ids = np.fromiter(map(column.number, self._nodes), dtype=np.int32, count=len(self._nodes))
            self._columns[name] = column
        return column


def allowed_nodes(nodes: NodeTable | Sequence[Node | None], constraints: Constraints, gpu_resource: str = "") -> Mask:
    """Return whether each slot's node satisfies the constraints and does not offer only GPUs of other names, [N].

    False in a free slot. `gpu_resource` is as in `Requests`.
    """
    table = nodes if isinstance(nodes, NodeTable) else NodeTable(nodes)
    allowed = table.occupied
    for _, passes in _filters(table, constraints, gpu_resource):
        allowed &= passes
    return allowed & offering_nodes(table, gpu_resource) & declaring_nodes(table, needed_features(constraints))


def eligible_nodes(nodes: NodeTable | Sequence[Node | None], pods: Iterable[Constraints]) -> Mask:
    """Return which nodes are eligible, [N]: some of the pods may enter them. Figures of the whole cluster are of these.

    Taints, cordons, names, selectors and affinity of nodes decide; resources, GPU models and other pods do not. An
    empty control plane, for example, makes no cluster unbalanced. Without pods, those are eligible that
    a pod without constraints may enter.
    """
    table = nodes if isinstance(nodes, NodeTable) else NodeTable(nodes)
    known = set(pods) or {Constraints()}
    eligible, occupied = np.zeros(len(table), dtype=np.bool_), table.occupied
    for constraints in known:
        if constraints.gpu_models or constraints.volume_refusals:
            constraints = replace(constraints, gpu_models=(), volume_refusals=())
        eligible |= allowed_nodes(table, constraints)
        if (eligible == occupied).all():
            break
    return eligible


def offering_nodes(table: NodeTable, gpu_resource: str) -> Mask:
    """Return whether GPUs of each node, if any, may go to pods that request `gpu_resource` ("": of any name), [N]."""
    if not gpu_resource:
        return np.ones(len(table), dtype=np.bool_)
    offers = table.gpu_offers
    foreign = offers.where(lambda value: not _serves(value, gpu_resource))  # type: ignore[arg-type]
    return ~foreign


def needed_features(constraints: Constraints) -> tuple[str, ...]:
    """Return what a pod needs a node to declare: features, if that is checked, and resources of DeviceClasses."""
    features = constraints.node_features
    if FEATURES_FILTER in constraints.profile.disabled_filters:
        return tuple(each for each in features if each.startswith(IMPLICIT))
    return features


def declaring_nodes(table: NodeTable, features: Sequence[str]) -> Mask:
    """Return whether each node declares all of these features, [N]."""
    if not features:
        return np.ones(len(table), dtype=np.bool_)
    return table.features.where(set(features).issubset)  # type: ignore[arg-type]


def constraint_refusals(
    nodes: NodeTable | Sequence[Node | None], constraints: Constraints, gpu_resource: str = ""
) -> Iterator[tuple[str, Mask]]:
    """Yield why nodes do not satisfy the constraints, in kube-scheduler's words and order, and those nodes, [N].

    A node has the first reason that applies. Names of GPUs are not checked: they are a matter of resources. Nor are
    features, by which kube-scheduler filters last (`declaring_nodes`).
    """
    table = nodes if isinstance(nodes, NodeTable) else NodeTable(nodes)
    names = restricted_names(constraints)
    left = table.occupied
    if names is not None and not names:
        yield AFFINITY_CONFLICT, left
        return
    filters = _filters(table, constraints, gpu_resource)
    filters.sort(key=lambda each: not isinstance(each[0], PreFilterReason))
    if names is not None:
        filters.insert(0, (AFFINITY_NAMES, table.names.any_of(sorted(names))))
    for reason, passes in filters:
        yield reason, left & ~passes
        left &= passes


def restricted_names(constraints: Constraints) -> frozenset[str] | None:
    """Return the only nodes that kube-scheduler reads for a pod whose affinity terms all name nodes; None: all nodes.

    An empty set is what it reports as conflicting terms.
    """
    result: set[str] = set()
    if NODE_AFFINITY_PREFILTER in constraints.profile.disabled_filters:
        return None
    for term in constraints.node_affinity or ():
        lists = [set(field.values) for field in term.fields if field.key == NAME_FIELD and field.operator == "In"]
        if not lists:
            return None
        result |= set.intersection(*lists)
    return frozenset(result) if constraints.node_affinity else None


def tolerated_nodes(table: NodeTable, tolerations: Sequence[Toleration]) -> Mask:
    """Return whether every NoSchedule and NoExecute taint of the node is tolerated, [N], ignoring cordons."""
    return table.restrictions.where(lambda value: _tolerates_all(tolerations, value[1]))  # type: ignore[index]


def affinity_nodes(
    table: NodeTable, selector: Sequence[tuple[str, str]], terms: Sequence[NodeSelectorTerm] | None
) -> Mask:
    """Return whether the node satisfies a nodeSelector and required node affinity terms (None: there are none), [N]."""
    matched = table.occupied
    for key, value in selector:
        matched &= table.label(key).any_of((value,))
    if terms is not None:
        any_term = np.zeros(len(table), dtype=np.bool_)
        for term in terms:
            any_term |= nodes_matching_term(table, term)
        matched &= any_term
    return matched


def nodes_matching_term(table: NodeTable, term: NodeSelectorTerm, *, match_fields: bool = True) -> Mask:
    """Return whether all requirements of a node selector term hold, [N]; an empty or invalid one matches nothing.

    Without `match_fields`, requirements of fields do not count, but must still be valid.
    """
    sound = all(_parses(r) for r in term.expressions)
    sound &= all(f.operator in ("In", "NotIn") and len(f.values) == 1 for f in term.fields)
    if not sound or not (term.expressions or term.fields):
        return np.zeros(len(table), dtype=np.bool_)
    matched = table.occupied
    for requirement in term.expressions:
        matched &= _requirement_nodes(table.label(requirement.key), requirement)
    for field in term.fields if match_fields else ():
        if field.key == NAME_FIELD:
            matched &= _requirement_nodes(table.names, field)
        else:  # kube-scheduler reads any other field as ""
            matched &= holds(field, {field.key: ""})
    return matched


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Return whether a requirement of a label selector holds for one object's labels."""
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
    """Return whether a toleration covers a taint. The operators Gt and Lt never do: their gate is off up to 1.37."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def _filters(table: NodeTable, constraints: Constraints, gpu_resource: str) -> list[tuple[str, Mask]]:
    """Return the filters of the constraints in kube-scheduler's order: (reason of a refusal, [N] who passes)."""
    result = []
    profile = constraints.profile
    disabled = profile.disabled_filters
    # Most clusters have neither cordons nor taints. Values that no node has any more cost a filter, but no error.
    restricted = any(value != (False, ()) for value in table.restrictions.numbers)
    checks_cordons = restricted and CORDON_FILTER not in disabled
    if checks_cordons and not _tolerates_all(constraints.tolerations, (UNSCHEDULABLE_TAINT,)):
        result.append((UNSCHEDULABLE, ~table.restrictions.where(lambda value: value[0])))  # type: ignore[index]
    if constraints.node_name and NODE_NAME_FILTER not in disabled:
        result.append((NODE_NAME, table.names.any_of((constraints.node_name,))))
    if restricted and TAINT_FILTER not in disabled:
        result.append((TAINT, tolerated_nodes(table, constraints.tolerations)))
    if NODE_AFFINITY_FILTER not in disabled:
        if profile.required_nodes is not None:
            result.append((ADDED_AFFINITY, affinity_nodes(table, (), profile.required_nodes)))
        if constraints.node_selector or constraints.node_affinity is not None:
            result.append((AFFINITY, affinity_nodes(table, constraints.node_selector, constraints.node_affinity)))
    elif (names := restricted_names(constraints)) is not None:
        result.append((AFFINITY_NAMES, table.names.any_of(sorted(names))))
    if constraints.gpu_models:
        result.append((GPU_MODEL, table.gpu_models(gpu_resource).any_of(constraints.gpu_models)))
    for reason, refused in constraints.volume_refusals:
        by_name = (reason, ~table.names.any_of(refused))
        result.append(by_name if refused else (PreFilterReason(reason), ~table.occupied))
    return result


GpuOffer = tuple[tuple[str, ...] | None, tuple[str, ...]]


def _gpu_offer(node: Node) -> GpuOffer | None:
    if not node.gpu_total:
        return None
    return node.gpu_resources if node.gpu_count else None, tuple(node.counted_gpus)


def _serves(offer: GpuOffer, resource: str) -> bool:
    devices, counted = offer
    return resource in counted or (devices is not None and is_offered(resource, devices))


def _tolerates_all(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> bool:
    return all(any(tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def _requirement_nodes(column: NodeTableColumn, requirement: Requirement) -> Mask:
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
    """Return whether kube-scheduler can parse a requirement on labels; "-1" is not a label value."""
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
