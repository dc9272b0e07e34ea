"""Random selectors of nodes, pods and namespaces."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.differential.draws import Draws
from tests.support.differential.nodes import (
    RACK,
    RACKS,
    RANK,
    REGION,
    TOPOLOGY_KEYS,
    ZONE,
    ZONES,
    Object,
)

NAMESPACES = ("one", "two", "three")
LABELS = {"app": ("a", "b", "c"), "tier": ("x", "y"), "revision": ("1", "2")}
NODE_VALUES: dict[str, Sequence[str]] = {ZONE: ZONES, RACK: RACKS, REGION: ("west", "east"), RANK: ("1", "5", "007")}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def labels(draws: Draws) -> dict[str, str]:
    """Return labels of a pod."""
    return {key: draws.choice(values) for key, values in LABELS.items() if draws.chance(70)}


def pod_selector(draws: Draws) -> Object:
    """Return a label selector of pods."""
    if draws.chance(8):
        return {}
    key = draws.choice(tuple(LABELS))
    if draws.chance(60):
        return {"matchLabels": {key: draws.choice(LABELS[key])}}
    return {"matchExpressions": [_expression(draws, key, LABELS[key])]}


def _expression(draws: Draws, key: str, values: Sequence[str]) -> Object:
    operator = draws.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    found: Object = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        found["values"] = draws.some(values, 2)
    return found


def node_term(draws: Draws, nodes: Sequence[str]) -> Object:
    """Return a term of a node selector."""
    if draws.chance(4):
        return {}
    term: Object = {}
    if draws.chance(80):
        term["matchExpressions"] = [_node_expression(draws) for _ in range(draws.number(1, 2))]
    if not term or draws.chance(10):
        names = [draws.choice((*nodes, "absent"))]
        term["matchFields"] = [{"key": "metadata.name", "operator": draws.choice(("In", "NotIn")), "values": names}]
    return term


def _node_expression(draws: Draws) -> Object:
    if draws.chance(25):
        bound = draws.choice(("0", "4", "5", "9223372036854775807"))
        return {"key": RANK, "operator": draws.choice(("Gt", "Lt")), "values": [bound]}
    key = draws.choice(tuple(NODE_VALUES))
    return _expression(draws, key, NODE_VALUES[key])


def pod_term(draws: Draws) -> Object:
    """Return a term of inter-pod affinity."""
    term: Object = {"topologyKey": draws.choice(TOPOLOGY_KEYS)}
    if not draws.chance(6):
        term["labelSelector"] = pod_selector(draws)
    if draws.chance(25):
        term["namespaces"] = draws.some(NAMESPACES, 2)
    if draws.chance(20):
        term["namespaceSelector"] = namespace_selector(draws)
    free = _free_keys(term.get("labelSelector"))
    if free and draws.chance(20):
        term[draws.choice(("matchLabelKeys", "mismatchLabelKeys"))] = [draws.choice(free)]
    return term


def namespace_selector(draws: Draws) -> Object:
    """Return a label selector of namespaces."""
    if draws.chance(30):
        return {}
    if draws.chance(30):
        return {"matchExpressions": [_expression(draws, "team", ("red", "blue"))]}
    return {"matchLabels": {"team": draws.choice(("red", "blue"))}}


def spread(draws: Draws) -> list[Object]:
    """Return topology spread constraints."""
    constraints = {}
    for _ in range(draws.number(1, 2)):
        hard = draws.chance(50)
        each: Object = {
            "maxSkew": draws.number(1, 3),
            "topologyKey": draws.choice(TOPOLOGY_KEYS),
            "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        }
        if not draws.chance(6):
            each["labelSelector"] = pod_selector(draws)
            free = _free_keys(each["labelSelector"])
            if free and draws.chance(20):
                each["matchLabelKeys"] = [draws.choice(free)]
        if hard and draws.chance(30):
            each["minDomains"] = draws.number(1, 4)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if draws.chance(30):
                each[policy] = draws.choice(("Honor", "Ignore"))
        constraints[each["topologyKey"], hard] = each
    return list(constraints.values())


def _free_keys(selector: Object | None) -> list[str]:
    """Return label keys that the API server allows in matchLabelKeys beside a selector."""
    if selector is None:
        return []
    used = {*selector.get("matchLabels", {}), *(each["key"] for each in selector.get("matchExpressions", ()))}
    return sorted(set(LABELS) - used)
