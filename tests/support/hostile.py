"""Pods that fit nowhere and are expensive to look at, each in its own way."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
TERMS, VALUES = 10, 20
NAMESPACE = "full"


def _selector(i: int, j: int) -> Object:
    """Select all pods but those with one of twenty values that no other selector has."""
    values = [f"{i}-{j}-{value}" for value in range(VALUES)]
    return {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": values}]}


def _terms(i: int, key: str = HOSTNAME) -> list[Object]:
    return [{"labelSelector": _selector(i, j), "topologyKey": key} for j in range(TERMS)]


def _anti_affinity(pod: Object, i: int) -> None:
    pod["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: _terms(i)}}


def _affinity(pod: Object, i: int) -> None:
    pod["spec"]["affinity"] = {"podAffinity": {REQUIRED: _terms(i)}}


def _preferences(pod: Object, i: int) -> None:
    weighed = [{"weight": 1 + j, "podAffinityTerm": term} for j, term in enumerate(_terms(i, ZONE))]
    pod["spec"]["affinity"] = {"podAffinity": {PREFERRED: weighed}}


def _spread(pod: Object, i: int) -> None:
    # The API server wants each key once.
    keys = (ZONE, HOSTNAME, *(f"example.com/level-{j}" for j in range(2, TERMS)))
    pod["spec"]["topologySpreadConstraints"] = [
        {"maxSkew": 1 + j, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": _selector(i, j)}
        for j, key in enumerate(keys)
    ]


def _node_selector(pod: Object, i: int) -> None:
    pod["spec"]["nodeSelector"] = {f"pool-{i}": str(i)}


def _node_affinity(pod: Object, i: int) -> None:
    terms = [
        {"matchExpressions": [{"key": f"key-{i}-{j}", "operator": "In", "values": [str(value)]}]}
        for j, value in enumerate(range(VALUES))
    ]
    pod["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def _tolerations(pod: Object, i: int) -> None:
    pod["spec"]["tolerations"] = [
        {"key": f"taint-{i}-{j}", "operator": "Exists", "effect": "NoSchedule"} for j in range(5 * TERMS)
    ]


def _labels(pod: Object, i: int) -> None:
    pod["metadata"]["labels"] |= {f"label-{i}-{j}": str(j) for j in range(10 * VALUES)}


def _annotations(pod: Object, i: int) -> None:
    pod["metadata"]["annotations"] = {"note": str(i % 10) * 100_000}


def _ports(pod: Object, i: int) -> None:
    pod["spec"]["containers"][0]["ports"] = [
        {"containerPort": 1 + j, "hostPort": 1 + (TERMS * i + j) % 60_000} for j in range(TERMS)
    ]


def _volumes(pod: Object, i: int) -> None:
    pod["spec"]["volumes"] = [
        {"name": f"volume-{j}", "persistentVolumeClaim": {"claimName": f"claim-{i}-{j}"}} for j in range(TERMS)
    ]


def _gated(pod: Object, i: int) -> None:
    _anti_affinity(pod, i)
    pod["spec"]["schedulingGates"] = [{"name": "example.com/gate"}]


_MAKERS = {
    "anti-affinity": _anti_affinity,
    "affinity": _affinity,
    "preferences": _preferences,
    "spread": _spread,
    "node selector": _node_selector,
    "node affinity": _node_affinity,
    "tolerations": _tolerations,
    "labels": _labels,
    "annotations": _annotations,
    "ports": _ports,
    "volumes": _volumes,
    "gated": _gated,
}
KINDS = tuple(_MAKERS)


def hostile_pod(kind: str, i: int, *, has_room: bool, scheduler: str) -> Object:
    """Return pod `i` of a kind.

    Args:
        kind: one of `KINDS`.
        i: number of the pod; no other has the same requirements.
        has_room: whether nodes have the CPU that it requests; then other constraints must refuse it.
        scheduler: its `schedulerName`.
    """
    name = f"{kind.replace(' ', '-')}-{i}"
    container = {"name": "c", "image": "c", "resources": {"requests": {"cpu": "1m" if has_room else "10000"}}}
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }
    _MAKERS[kind](pod, i)
    return pod
