"""Decode selectors of v1 objects (labels, node affinity, pod affinity, topology spread), in one canonical order.

Requirements and their values are sorted and deduplicated, which changes no meaning, so that pods with the same ones in
another order are one class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from steersman.cluster.constraints.node import holds
from steersman.cluster.model import (
    NodeSelectorTerm,
    PodAffinityTerm,
    PodSelector,
    PreferredNodeTerm,
    PreferredPodTerm,
    Requirement,
    TopologySpread,
)
from steersman.cluster.objects.fields import (
    FieldError,
    Object,
    choice,
    integer,
    items,
    join,
    mapping,
    required_text,
    text_map,
    texts,
)

LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
NODE_OPERATORS = (*LABEL_OPERATORS, "Gt", "Lt")
MAX_WEIGHT = 100
INT32_MAX = (1 << 31) - 1

Namespaces = Mapping[str, Mapping[str, str]]
"""Labels of all namespaces, by name."""

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def label_selector(selector: Object, path: str) -> tuple[Requirement, ...]:
    """Return a metav1.LabelSelector that is not nil: `()` selects everything. Raises FieldError."""
    result = [Requirement(key, "In", (value,)) for key, value in text_map(selector, "matchLabels", path).items()]
    result += [_requirement(e, where, LABEL_OPERATORS) for e, where in items(selector, "matchExpressions", path)]
    return _canonical(result)


def node_term(term: Object, path: str) -> NodeSelectorTerm:
    """Return a core/v1 NodeSelectorTerm. Raises FieldError."""
    expressions = [_requirement(e, where, NODE_OPERATORS) for e, where in items(term, "matchExpressions", path)]
    fields = []
    for entry, where in items(term, "matchFields", path):
        requirement = _requirement(entry, where, ("In", "NotIn"))
        if requirement.key != "metadata.name":
            raise FieldError(join(where, "key"), f"{requirement.key!r} is no field to select by; only metadata.name is")
        if len(requirement.values) != 1:
            raise FieldError(join(where, "values"), f"has {len(requirement.values)} values; a field selector takes one")
        fields.append(requirement)
    return NodeSelectorTerm(_canonical(expressions), _canonical(fields))


def required_nodes(node_affinity: Object, path: str) -> tuple[NodeSelectorTerm, ...] | None:
    """Return the required terms of a node affinity, any of which must hold; None without any. Raises FieldError."""
    if node_affinity.get(REQUIRED) is None:
        return None
    selector, where = mapping(node_affinity, REQUIRED, path), join(path, REQUIRED)
    terms = tuple(node_term(term, at) for term, at in items(selector, "nodeSelectorTerms", where))
    if not terms:
        raise FieldError(join(where, "nodeSelectorTerms"), "is empty; a node selector needs one term or more")
    return terms


def preferred_nodes(node_affinity: Object, path: str) -> tuple[PreferredNodeTerm, ...]:
    """Return the preferred terms of a node affinity; an empty term is left out. Raises FieldError."""
    result = []
    for entry, where in items(node_affinity, PREFERRED, path):
        weight = _weight(entry, where)
        term = node_term(mapping(entry, "preference", where), join(where, "preference"))
        if term.expressions or term.fields:
            result.append(PreferredNodeTerm(weight, term))
    return tuple(result)


def selects_namespaces(spec: Object) -> bool:
    """Return whether a valid pod spec selects namespaces by their labels."""
    affinity = spec.get("affinity") or {}
    for side in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(side) or {}
        weighted = (entry.get("podAffinityTerm") or {} for entry in terms.get(PREFERRED) or ())
        for term in (*(terms.get(REQUIRED) or ()), *weighted):
            if any((term.get("namespaceSelector") or {}).values()):
                return True
    return False


def required_pods(
    affinity: Object, path: str, namespace: str, labels: Mapping[str, str], namespaces: Namespaces | None
) -> tuple[PodAffinityTerm, ...]:
    """Return the required terms of a pod (anti-)affinity.

    Args:
        affinity: a PodAffinity or PodAntiAffinity.
        path: its path, for errors.
        namespace: of the pod.
        labels: of the pod.
        namespaces: all namespaces; None: unknown.

    Raises:
        FieldError: a term is invalid, or selects namespaces by labels that are unknown.
    """
    terms = items(affinity, REQUIRED, path)
    return tuple(_pod_term(term, where, namespace, labels, namespaces) for term, where in terms)


def preferred_pods(
    affinity: Object, path: str, namespace: str, labels: Mapping[str, str], namespaces: Namespaces | None
) -> tuple[PreferredPodTerm, ...]:
    """Return the preferred terms of a pod (anti-)affinity; arguments as of `required_pods`."""
    result = []
    for entry, where in items(affinity, PREFERRED, path):
        stated, at = mapping(entry, "podAffinityTerm", where), join(where, "podAffinityTerm")
        term = _pod_term(stated, at, namespace, labels, namespaces)
        result.append(PreferredPodTerm(_weight(entry, where), term))
    return tuple(result)


def spread_constraints(
    spec: Object, path: str, namespace: str, labels: Mapping[str, str]
) -> tuple[TopologySpread, ...]:
    """Return a pod spec's topologySpreadConstraints, with matchLabelKeys merged in. Raises FieldError."""
    result = []
    for entry, where in items(spec, "topologySpreadConstraints", path):
        when = ("DoNotSchedule", "ScheduleAnyway")
        policies = ("Honor", "Ignore")
        spread = TopologySpread(
            max_skew=integer(entry, "maxSkew", where, 1, INT32_MAX, 0),
            topology_key=required_text(entry, "topologyKey", where),
            hard=choice(entry, "whenUnsatisfiable", where, when) == "DoNotSchedule",
            selector=PodSelector(_merged_selector(entry, where, labels), frozenset((namespace,))),
            min_domains=integer(entry, "minDomains", where, 1, INT32_MAX, 1),
            honor_node_affinity=choice(entry, "nodeAffinityPolicy", where, policies, "Honor") == "Honor",
            honor_node_taints=choice(entry, "nodeTaintsPolicy", where, policies, "Ignore") == "Honor",
        )
        if not spread.max_skew:
            raise FieldError(join(where, "maxSkew"), "is missing; it must be 1 or more")
        result.append(spread)
    return tuple(result)


def _pod_term(
    term: Object, path: str, namespace: str, labels: Mapping[str, str], namespaces: Namespaces | None
) -> PodAffinityTerm:
    among: frozenset[str] | None = frozenset(texts(term, "namespaces", path))
    if term.get("namespaceSelector") is not None:
        where = join(path, "namespaceSelector")
        namespace_selector = label_selector(mapping(term, "namespaceSelector", path), where)
        if not namespace_selector:
            among = None
        elif namespaces is None:
            problem = (
                "selects namespaces by labels, which are not known here; give the Namespace objects, too, list "
                "them in namespaces, or use {} for all"
            )
            raise FieldError(where, problem)
        else:
            by_labels = (
                name for name, own in namespaces.items() if all(holds(each, own) for each in namespace_selector)
            )
            among = (among or frozenset()).union(by_labels)
    elif not among:
        among = frozenset((namespace,))
    selector = PodSelector(_merged_selector(term, path, labels), among)
    return PodAffinityTerm(selector, required_text(term, "topologyKey", path))


def _merged_selector(term: Object, path: str, labels: Mapping[str, str]) -> tuple[Requirement, ...] | None:
    """Return a term's labelSelector with matchLabelKeys and mismatchLabelKeys; keys that the pod lacks are ignored."""
    if term.get("labelSelector") is None:
        return None
    result = list(label_selector(mapping(term, "labelSelector", path), join(path, "labelSelector")))
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        keys = texts(term, field, path)
        result += [Requirement(key, operator, (labels[key],)) for key in keys if key in labels]
    return _canonical(result)


def _requirement(entry: Object, path: str, operators: tuple[str, ...]) -> Requirement:
    key = required_text(entry, "key", path)
    operator = choice(entry, "operator", path, operators)
    values = tuple(sorted(set(texts(entry, "values", path))))
    where = join(path, "values")
    if operator in ("In", "NotIn") and not values:
        raise FieldError(where, f"is empty; {operator} needs one value or more")
    if operator in ("Exists", "DoesNotExist") and values:
        raise FieldError(where, f"must be empty with {operator}")
    if operator in ("Gt", "Lt") and (len(values) != 1 or not _is_int64(values[0])):
        raise FieldError(where, f"{operator} needs exactly one whole number in quotes")
    return Requirement(key, operator, values)


def _is_int64(value: str) -> bool:
    digits = value.removeprefix("-").removeprefix("+")
    return digits.isascii() and digits.isdigit() and len(digits) < 20


def _weight(entry: Object, path: str) -> int:
    weight = integer(entry, "weight", path, 1, MAX_WEIGHT, 0)
    if not weight:
        raise FieldError(join(path, "weight"), f"is missing; it must be 1 to {MAX_WEIGHT}")
    return weight


def _canonical(requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    return tuple(sorted(set(requirements), key=lambda r: (r.key, r.operator, r.values)))
