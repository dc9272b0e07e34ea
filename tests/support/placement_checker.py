"""Check from the objects of the API alone that every pod may be where it is bound.

Written apart from the schedulers that it judges: it shares no code with them and knows Kubernetes' documentation only.
Constraints that it does not know make it refuse a pod (UnsupportedError) instead of passing it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Object = Mapping[str, Any]

SUFFIXES = {"": Fraction(1), "m": Fraction(1, 1000)}
SUFFIXES |= {f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGT", 1)}
SUFFIXES |= {letter: Fraction(1000**power) for power, letter in enumerate("kMGT", 1)}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
REORDERED = 64
"""Bindings that may be under way at a time. They reach the API in another order than they were decided in, so of two
that are further apart the earlier one was decided first, and of others that is not known. 64 is what `steersman
schedule` allows; in three recorded runs on busy cores it needed 8 at most, and kube-scheduler 1."""


class UnsupportedError(Exception):
    """A pod has a constraint that is not checked here."""


@dataclass(frozen=True)
class Violation:
    """A pod that should not be where it is.

    Attributes:
        kind: of the constraint, such as `resources` or `anti-affinity`.
        pod: namespace and name.
        node: that it is bound to.
        detail: what is wrong, in words.
    """

    kind: str
    pod: str
    node: str
    detail: str


def check(nodes: Iterable[Object], pods: Iterable[Object], order: Sequence[str]) -> list[Violation]:
    """Find every violation of the constraints of bound pods, none of which was deleted since the first binding.

    Resources, node constraints and anti-affinity are judged by the final state: nothing left, so what does not hold
    there did not hold when the last pod concerned was bound. Topology spread is judged at each binding.

    Args:
        nodes: v1 Node objects, the same since the first binding.
        pods: v1 Pod objects; those without a node are not looked at.
        order: uids in the order in which pods were bound; must have all that are bound.

    Raises:
        UnsupportedError: a pod has a constraint that is not checked.
        ValueError: a bound pod is not in the order.
    """
    there = {node["metadata"]["name"]: node for node in nodes}
    places = {uid: place for place, uid in enumerate(order)}
    bound = [pod for pod in pods if pod["spec"].get("nodeName")]
    if missing := [_name(pod) for pod in bound if pod["metadata"]["uid"] not in places]:
        raise ValueError(f"when {missing[0]} was bound is not known")
    bound.sort(key=lambda pod: places[pod["metadata"]["uid"]])
    for pod in bound:
        _refuse_unknown(pod)
    found = [Violation("node", _name(pod), _node(pod), "no such node") for pod in bound if _node(pod) not in there]
    bound = [pod for pod in bound if _node(pod) in there]
    found += _resources(there, bound)
    for pod in bound:
        found += _node_constraints(there[_node(pod)], pod)
    found += _anti_affinity(there, bound)
    return found + _spread(there, bound, places)


def quantity(text: str) -> Fraction:
    """Return the value of a Kubernetes quantity."""
    number = text.rstrip("mkMGTi")
    return Fraction(number) * SUFFIXES[text[len(number) :]]


def requests_of(pod: Object) -> dict[str, Fraction]:
    """Return what a pod requests by resource, itself as one of `pods`."""
    found = {"pods": Fraction(1)}
    for container in pod["spec"]["containers"]:
        for name, amount in container.get("resources", {}).get("requests", {}).items():
            found[name] = found.get(name, Fraction(0)) + quantity(amount)
    return found


def selects(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects labels; none selects nothing, an empty one everything."""
    if selector is None:
        return False
    same = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return same and all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def node_matches(node: Object, spec: Object) -> bool:
    """Return whether a node has what a pod's node selector and required node affinity ask for."""
    labels = node["metadata"].get("labels", {})
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
    return required is None or any(_term_holds(term, labels) for term in required["nodeSelectorTerms"])


def tolerates(tolerations: Iterable[Object], taint: Object) -> bool:
    """Return whether one of the tolerations is of a taint."""
    return any(
        each.get("effect", taint["effect"]) == taint["effect"]
        and each.get("key", taint["key"]) == taint["key"]
        and (each.get("operator", "Equal") == "Exists" or each.get("value", "") == taint.get("value", ""))
        for each in tolerations
    )


def _name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _node(pod: Object) -> str:
    return str(pod["spec"]["nodeName"])


def _labels(obj: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return labels


def _refuse_unknown(pod: Object) -> None:
    """Raise UnsupportedError if something keeps the pod from nodes that is not checked here."""
    spec = pod["spec"]
    affinity = spec.get("affinity", {})
    anti = affinity.get("podAntiAffinity", {}).get(REQUIRED, [])
    spread = spec.get("topologySpreadConstraints", [])
    volumes = ("persistentVolumeClaim", "ephemeral", "csi")
    operators = {"In", "NotIn", "Exists", "DoesNotExist"}
    terms = affinity.get("nodeAffinity", {}).get(REQUIRED, {}).get("nodeSelectorTerms", [])
    unknown = {
        "initContainers": bool(spec.get("initContainers")),
        "overhead": bool(spec.get("overhead")),
        "resources of the pod": bool(spec.get("resources")),
        "resourceClaims": bool(spec.get("resourceClaims")),
        "hostPort": any(port.get("hostPort") for each in spec["containers"] for port in each.get("ports", ())),
        "volumes": any(key in volume for volume in spec.get("volumes", ()) for key in volumes),
        "podAffinity": bool(affinity.get("podAffinity", {}).get(REQUIRED)),
        "selectors of namespaces": any(each.get("namespaceSelector") is not None for each in anti),
        "keys of labels": any(each.get(key) for each in (*anti, *spread) for key in _LABEL_KEYS),
        "fields of nodes": any(term.get("matchFields") for term in terms),
        "operators": any(e["operator"] not in operators for term in terms for e in term.get("matchExpressions", ())),
    }
    if found := [name for name, is_there in unknown.items() if is_there]:
        raise UnsupportedError(f"{_name(pod)}: {', '.join(found)}")


_LABEL_KEYS = ("matchLabelKeys", "mismatchLabelKeys")


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    key, operator = expression["key"], expression["operator"]
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    is_in = labels.get(key) in expression["values"]
    return is_in if operator == "In" else not is_in


def _term_holds(term: Object, labels: Mapping[str, str]) -> bool:
    expressions = term.get("matchExpressions") or ()
    return bool(expressions) and all(_holds(each, labels) for each in expressions)


def _resources(nodes: Mapping[str, Object], bound: Sequence[Object]) -> list[Violation]:
    """Find pods that came to a node when it had too little left."""
    used: dict[str, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    found = []
    for pod in bound:
        node = _node(pod)
        allocatable = nodes[node]["status"]["allocatable"]
        for name, amount in requests_of(pod).items():
            used[node][name] += amount
            offered = quantity(allocatable.get(name, "0"))
            if amount and used[node][name] > offered:
                detail = f"{name}: {float(used[node][name]):g} of {float(offered):g}"
                found.append(Violation("resources", _name(pod), node, detail))
    return found


def _node_constraints(node: Object, pod: Object) -> list[Violation]:
    """Find what a node itself has against a pod."""
    spec, name = pod["spec"], node["metadata"]["name"]
    tolerations = spec.get("tolerations", ())
    found = []
    if not node_matches(node, spec):
        found.append(Violation("node affinity", _name(pod), name, "lacks what selector or affinity ask for"))
    for taint in node["spec"].get("taints", ()):
        is_cordon = taint["key"] == CORDONED["key"]
        if taint["effect"] != "PreferNoSchedule" and not is_cordon and not tolerates(tolerations, taint):
            found.append(Violation("taint", _name(pod), name, f"{taint['key']}={taint.get('value', '')}"))
    if node["spec"].get("unschedulable") and not tolerates(tolerations, CORDONED):
        found.append(Violation("unschedulable", _name(pod), name, "is cordoned"))
    return found


def _anti_affinity(nodes: Mapping[str, Object], bound: Sequence[Object]) -> list[Violation]:
    """Find pairs of pods of which one does not want the other in its domain, whichever came first."""
    found = []
    for pod in bound:
        own = _labels(nodes[_node(pod)])
        for term in pod["spec"].get("affinity", {}).get("podAntiAffinity", {}).get(REQUIRED, ()):
            key = term["topologyKey"]
            namespaces = term.get("namespaces") or [pod["metadata"]["namespace"]]
            for other in bound if key in own else ():
                if (
                    other is not pod
                    and other["metadata"]["namespace"] in namespaces
                    and selects(term.get("labelSelector"), _labels(other))
                    and _labels(nodes[_node(other)]).get(key) == own[key]
                ):
                    detail = f"{_name(other)} is in the same {key}"
                    found.append(Violation("anti-affinity", _name(pod), _node(pod), detail))
    return found


def _spread(nodes: Mapping[str, Object], bound: Sequence[Object], places: Mapping[str, int]) -> list[Violation]:
    """Find bindings that made the pods of a domain too many, as they were counted when the pod was bound."""
    groups: dict[str, tuple[Object, Object]] = {}
    for pod in bound:
        for constraint in _hard(pod["spec"]):
            # Pods with the same constraint on the same nodes are judged together.
            spec = pod["spec"]
            affinity = spec.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
            nodes_of = spec.get("nodeSelector"), affinity, spec.get("tolerations")
            parts = pod["metadata"]["namespace"], constraint, _hard(spec), nodes_of
            groups.setdefault(json.dumps(parts, sort_keys=True), (pod, constraint))
    found = []
    for pod, constraint in groups.values():
        found += _spread_of(nodes, bound, places, pod, constraint)
    return found


def _spread_of(
    nodes: Mapping[str, Object], bound: Sequence[Object], places: Mapping[str, int], like: Object, constraint: Object
) -> list[Violation]:
    """Replay the bindings that one constraint looks at; `like` is a pod that has it."""
    key, spec, namespace = constraint["topologyKey"], like["spec"], like["metadata"]["namespace"]
    domains = {name: _labels(node)[key] for name, node in nodes.items() if _counts(node, spec, constraint)}
    counts = dict.fromkeys(domains.values(), 0)
    found, waiting = [], []
    for pod in bound:
        is_alike = pod["metadata"]["namespace"] == namespace
        is_counted = is_alike and selects(constraint.get("labelSelector"), _labels(pod))
        is_bound_by_it = is_alike and _same_constraint(pod["spec"], spec, constraint)
        if _node(pod) in domains and (is_counted or is_bound_by_it):
            waiting.append((places[pod["metadata"]["uid"]], pod, is_counted, is_bound_by_it))
        elif is_bound_by_it and key not in _labels(nodes[_node(pod)]):
            found.append(Violation("spread", _name(pod), _node(pod), f"has no {key}"))
    while waiting:
        # What was decided first is not known of bindings that were under way together. If any order of them was
        # right, the one that fills the emptiest domain first is: it never makes a later binding worse.
        least = 0 if len(counts) < constraint.get("minDomains", 1) else min(counts.values())
        together = [i for i, each in enumerate(waiting) if each[0] <= waiting[0][0] + REORDERED]
        right = [i for i in together if _skew(waiting[i], domains, counts, least) <= constraint["maxSkew"]]
        chosen = min(right, key=lambda i: counts[domains[_node(waiting[i][1])]], default=0)
        _, pod, is_counted, _ = waiting[chosen]
        domain = domains[_node(pod)]
        if not right:
            detail = f"{counts[domain]} pods in {key} {domain} before it, least {least}"
            found.append(Violation("spread", _name(pod), _node(pod), detail))
        counts[domain] += is_counted
        del waiting[chosen]
    return found


def _hard(spec: Object) -> list[Object]:
    return [each for each in spec.get("topologySpreadConstraints", ()) if each["whenUnsatisfiable"] == "DoNotSchedule"]


def _same_constraint(spec: Object, other: Object, constraint: Object) -> bool:
    """Return whether a pod has the constraint of another one, and counts the same nodes for it."""
    same = all(spec.get(part) == other.get(part) for part in ("nodeSelector", "tolerations"))
    affinity = [each.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED) for each in (spec, other)]
    return same and affinity[0] == affinity[1] and constraint in _hard(spec) and _hard(spec) == _hard(other)


def _counts(node: Object, spec: Object, constraint: Object) -> bool:
    """Return whether a pod's constraint looks at a node."""
    if any(each["topologyKey"] not in _labels(node) for each in _hard(spec)):
        return False
    if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not node_matches(node, spec):
        return False
    if constraint.get("nodeTaintsPolicy", "Ignore") == "Ignore":
        return True
    taints = [taint for taint in node["spec"].get("taints", ()) if taint["effect"] != "PreferNoSchedule"]
    return all(tolerates(spec.get("tolerations", ()), taint) for taint in taints)


def _skew(
    binding: tuple[int, Object, bool, bool], domains: Mapping[str, str], counts: Mapping[str, int], least: int
) -> int:
    """Return by how many pods the domain of a binding would be above the least one; 0 if nothing forbids that."""
    _, pod, is_counted, is_bound_by_it = binding
    return counts[domains[_node(pod)]] + is_counted - least if is_bound_by_it else 0
