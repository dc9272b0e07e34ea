"""Selectors of v1 objects to the model (labels, node affinity, pod affinity, topology spread), in one canonical order.

Requirements and their values are sorted and deduplicated, which changes no meaning, so that pods with the same ones in
another order are one class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from steersman.cluster import model
from steersman.cluster.constraints.node import holds
from steersman.cluster.objects.api import metadata, pods
from steersman.cluster.objects.fields import FieldError, indexed, one_of, required

LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
NODE_OPERATORS = (*LABEL_OPERATORS, "Gt", "Lt")
_POLICIES = ("Honor", "Ignore")

Namespaces = Mapping[str, Mapping[str, str]]  # labels of all namespaces, by name


def label_selector(selector: metadata.LabelSelector, path: str) -> tuple[model.Requirement, ...]:
    """Return the requirements of a selector that is not nil: `()` selects everything. Raises FieldError."""
    result = [model.Requirement(key, "In", (value,)) for key, value in (selector.match_labels or {}).items()]
    result += _requirements(selector.match_expressions, f"{path}.matchExpressions", LABEL_OPERATORS)
    return _canonical(result)


def node_term(term: metadata.NodeTerm, path: str) -> model.NodeSelectorTerm:
    fields = list(_requirements(term.match_fields, f"{path}.matchFields", ("In", "NotIn")))
    for i, field in enumerate(fields):
        where = f"{path}.matchFields[{i}]"
        if field.key != "metadata.name":
            raise FieldError(f"{where}.key", f"{field.key!r} is no field to select by; only metadata.name is")
        if len(field.values) != 1:
            raise FieldError(f"{where}.values", f"has {len(field.values)} values; a field selector takes one")
    expressions = _requirements(term.match_expressions, f"{path}.matchExpressions", NODE_OPERATORS)
    return model.NodeSelectorTerm(_canonical(expressions), _canonical(fields))


def required_nodes(affinity: pods.NodeAffinity, path: str) -> tuple[model.NodeSelectorTerm, ...] | None:
    """Return the required terms of a node affinity, any of which must hold; None without any. Raises FieldError."""
    if affinity.required is None:
        return None
    where = f"{path}.{pods.REQUIRED}.nodeSelectorTerms"
    terms = tuple(node_term(term, at) for term, at in indexed(affinity.required.node_selector_terms, where))
    if not terms:
        raise FieldError(where, "is empty; a node selector needs one term or more")
    return terms


def preferred_nodes(affinity: pods.NodeAffinity, path: str) -> tuple[model.PreferredNodeTerm, ...]:
    """Return the preferred terms of a node affinity; an empty term is left out. Raises FieldError."""
    where = f"{path}.{pods.PREFERRED}"
    terms = (
        model.PreferredNodeTerm(_weight(each.weight, at), node_term(each.preference or _ANY_NODE, f"{at}.preference"))
        for each, at in indexed(affinity.preferred, where)
    )
    return tuple(each for each in terms if each.term.expressions or each.term.fields)


def selects_namespaces(spec: pods.PodSpec) -> bool:
    affinity = spec.affinity
    sides = () if affinity is None else (affinity.pod_affinity, affinity.pod_anti_affinity)
    for side in sides:
        if side is not None:
            preferred = (each.pod_affinity_term or _ANY_PODS for each in side.preferred or ())
            for term in (*(side.required or ()), *preferred):
                selector = term.namespace_selector
                if selector is not None and (selector.match_labels or selector.match_expressions):
                    return True
    return False


class PodScope(NamedTuple):
    """A pod, whose terms select others: its namespace, its labels, and labels of all namespaces (None: unknown)."""

    namespace: str
    labels: Mapping[str, str]
    namespaces: Namespaces | None

    def required(self, affinity: pods.PodAffinity, path: str) -> tuple[model.PodAffinityTerm, ...]:
        terms = indexed(affinity.required, f"{path}.{pods.REQUIRED}")
        return tuple(self._term(term, where) for term, where in terms)

    def preferred(self, affinity: pods.PodAffinity, path: str) -> tuple[model.PreferredPodTerm, ...]:
        """Return the preferred terms of a pod (anti-)affinity. Raises FieldError as `required` does."""
        entries = indexed(affinity.preferred, f"{path}.{pods.PREFERRED}")
        return tuple(
            model.PreferredPodTerm(
                _weight(entry.weight, where),
                self._term(entry.pod_affinity_term or _ANY_PODS, f"{where}.podAffinityTerm"),
            )
            for entry, where in entries
        )

    def spread(
        self, constraints: Sequence[pods.SpreadConstraint] | None, path: str
    ) -> tuple[model.TopologySpread, ...]:
        """Return topologySpreadConstraints, with matchLabelKeys merged in. Raises FieldError."""
        return tuple(self._spread(each, where) for each, where in indexed(constraints, path))

    def _spread(self, stated: pods.SpreadConstraint, path: str) -> model.TopologySpread:
        topology_key = required(stated.topology_key, f"{path}.topologyKey")
        when = one_of(stated.when_unsatisfiable, ("DoNotSchedule", "ScheduleAnyway"), f"{path}.whenUnsatisfiable")
        if stated.max_skew is None:
            raise FieldError(f"{path}.maxSkew", "is missing; it must be 1 or more")
        affinity_policy = one_of(stated.node_affinity_policy, _POLICIES, f"{path}.nodeAffinityPolicy", "Honor")
        taints_policy = one_of(stated.node_taints_policy, _POLICIES, f"{path}.nodeTaintsPolicy", "Ignore")
        return model.TopologySpread(
            max_skew=stated.max_skew,
            topology_key=topology_key,
            hard=when == "DoNotSchedule",
            selector=model.PodSelector(self._merged(stated, path, ()), frozenset((self.namespace,))),
            min_domains=stated.min_domains or 1,
            honor_node_affinity=affinity_policy == "Honor",
            honor_node_taints=taints_policy == "Honor",
        )

    def _term(self, term: pods.PodTerm, path: str) -> model.PodAffinityTerm:
        merged = self._merged(term, path, term.mismatch_label_keys or ())
        selector = model.PodSelector(merged, self._among(term, path), self._excludes(term, path))
        return model.PodAffinityTerm(selector, required(term.topology_key, f"{path}.topologyKey"))

    def _excludes(self, term: pods.PodTerm, path: str) -> bool:
        """Return whether a term's namespaceSelector, not an empty one, holds for a namespace without labels."""
        if term.namespace_selector is None:
            return False
        requirements = label_selector(term.namespace_selector, f"{path}.namespaceSelector")
        return bool(requirements) and all(holds(each, {}) for each in requirements)

    def _among(self, term: pods.PodTerm, path: str) -> frozenset[str] | None:
        """Return the namespaces of the pods that a term selects, None for all."""
        named = frozenset(term.namespaces or ())
        if term.namespace_selector is None:
            return named or frozenset((self.namespace,))
        where = f"{path}.namespaceSelector"
        requirements = label_selector(term.namespace_selector, where)
        if not requirements:
            return None
        if self.namespaces is None:
            problem = (
                "selects namespaces by labels, which are not known here; give the Namespace objects, too, list "
                "them in namespaces, or use {} for all"
            )
            raise FieldError(where, problem)
        return named.union(
            name for name, own in self.namespaces.items() if all(holds(each, own) for each in requirements)
        )

    def _merged(
        self, term: pods.PodTerm | pods.SpreadConstraint, path: str, mismatched: Iterable[str]
    ) -> tuple[model.Requirement, ...] | None:
        """Return a labelSelector with matchLabelKeys and mismatched keys; keys that the pod lacks are ignored."""
        if term.label_selector is None:
            return None
        result = list(label_selector(term.label_selector, f"{path}.labelSelector"))
        for keys, operator in ((term.match_label_keys or (), "In"), (mismatched, "NotIn")):
            result += [model.Requirement(key, operator, (self.labels[key],)) for key in keys if key in self.labels]
        return _canonical(result)


_ANY_NODE, _ANY_PODS = metadata.NodeTerm(), pods.PodTerm()


def _requirements(
    stated: Sequence[metadata.LabelSelectorRequirement] | None, path: str, operators: tuple[str, ...]
) -> Iterator[model.Requirement]:
    return (_requirement(each, where, operators) for each, where in indexed(stated, path))


def _requirement(stated: metadata.LabelSelectorRequirement, path: str, operators: tuple[str, ...]) -> model.Requirement:
    key = required(stated.key, f"{path}.key")
    operator = one_of(stated.operator, operators, f"{path}.operator")
    values = tuple(sorted(set(stated.values or ())))
    where = f"{path}.values"
    if operator in ("In", "NotIn") and not values:
        raise FieldError(where, f"is empty; {operator} needs one value or more")
    if operator in ("Exists", "DoesNotExist") and values:
        raise FieldError(where, f"must be empty with {operator}")
    if operator in ("Gt", "Lt") and (len(values) != 1 or not _is_int64(values[0])):
        raise FieldError(where, f"{operator} needs exactly one whole number in quotes")
    return model.Requirement(key, operator, values)


def _weight(stated: int | None, path: str) -> int:
    if stated is None:
        raise FieldError(f"{path}.weight", f"is missing; it must be 1 to {pods.MAX_WEIGHT}")
    return stated


def _is_int64(value: str) -> bool:
    digits = value.removeprefix("-").removeprefix("+")
    return digits.isascii() and digits.isdigit() and len(digits) < 20


def _canonical(requirements: Iterable[model.Requirement]) -> tuple[model.Requirement, ...]:
    stated = tuple(requirements)
    if len(stated) < 2:
        return stated
    return tuple(sorted(set(stated), key=lambda each: (each.key, each.operator, each.values)))
