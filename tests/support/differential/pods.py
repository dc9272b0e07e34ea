"""Random Pods that use every field that placement reads."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.differential.draws import Draws
from tests.support.differential.nodes import (
    BATCH,
    FPGA,
    GPU,
    HUGE,
    IMAGES,
    TAINT_KEYS,
    TAINT_VALUES,
    UNSCHEDULABLE,
    Object,
)
from tests.support.differential.selectors import (
    NAMESPACES,
    NODE_VALUES,
    PREFERRED,
    REQUIRED,
    labels,
    node_term,
    pod_term,
    spread,
)
from tests.support.kubernetes import is_since

CPU = ("100m", "500m", "1", "1500m", "50m", "250m", "0", "3600m", "1m", "0.1", "1e-1", "2E0")
MEMORY = ("64Mi", "300Mi", "1Gi", "500Mi", "5Gi", "0", "2500k", "100M", "1e9", "0.5Gi", "123456789", "1.5Gi")
RESTART_ALL = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}
EFFECTS = ("", "NoSchedule", "NoExecute", "PreferNoSchedule")


def pod(draws: Draws, name: str, nodes: Sequence[str], *, rich: int) -> Object:
    """Return a Pod without a node; `rich` is the percentage of constraints that it has of each kind."""
    metadata: Object = {"name": name, "namespace": draws.choice(NAMESPACES), "labels": labels(draws)}
    spec: Object = {"containers": [_container(draws, f"c{i}") for i in range(draws.choice((1, 1, 2)))]}
    if draws.chance(20):
        spec["initContainers"] = [_init(draws, f"i{i}") for i in range(draws.number(1, 3))]
    if draws.chance(8):
        spec["overhead"] = {"cpu": draws.choice(CPU), "memory": draws.choice(MEMORY)}
    if draws.chance(6):
        spec["resources"] = {draws.choice(("requests", "limits")): _pod_level(spec)}
    if draws.chance(5):
        spec["hostNetwork"] = True  # then every port is one of the host
    if draws.chance(3):
        spec["resourceClaims"] = [{"name": "device", "resourceClaimName": "claim"}]
    if draws.chance(15):
        spec["priority"] = draws.choice((10, 1000, -5))
    if draws.chance(10):
        spec["volumes"] = [_inline_volume(draws, f"i{i}") for i in range(draws.number(1, 2))]
    if is_since("1.36") and draws.chance(2):  # which not every kubelet can do
        spec["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [RESTART_ALL]}
    _constrain(draws, spec, nodes, rich)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _constrain(draws: Draws, spec: Object, nodes: Sequence[str], rich: int) -> None:
    if draws.chance(rich):
        spec["tolerations"] = [_toleration(draws) for _ in range(draws.number(1, 2))]
    if draws.chance(rich // 2):
        key = draws.choice(tuple(NODE_VALUES))
        spec["nodeSelector"] = {key: draws.choice(NODE_VALUES[key])}
    if draws.chance(rich):
        spec["topologySpreadConstraints"] = spread(draws)
    affinity = {
        "nodeAffinity": _node_affinity(draws, nodes, rich),
        "podAffinity": _pod_affinity(draws, rich),
        "podAntiAffinity": _pod_affinity(draws, rich),
    }
    if affinity := {kind: terms for kind, terms in affinity.items() if terms}:
        spec["affinity"] = affinity
    if draws.chance(rich):
        spec["containers"][0]["ports"] = [_port(draws, i) for i in range(draws.number(1, 2))]


def _container(draws: Draws, name: str) -> Object:
    requests: Object = {}
    limits: Object = {}
    if draws.chance(65):
        requests["cpu"] = draws.choice(CPU)
    if draws.chance(60):
        requests["memory"] = draws.choice(MEMORY)
    if draws.chance(12):
        requests["ephemeral-storage"] = draws.choice(("1Gi", "15Gi", "0"))
    if draws.chance(14):
        resource = draws.choice((GPU, FPGA, BATCH))
        limits[resource] = requests[resource] = draws.choice(("1", "2", "0", "4"))
    if draws.chance(6) and (requests.get("cpu") or requests.get("memory")):  # the API wants one of these beside them
        limits[HUGE] = requests[HUGE] = draws.choice(("32Mi", "2Mi", "0", "512Mi"))
    if draws.chance(12):  # a request is taken from its limit
        for resource in ("cpu", "memory"):
            if resource in requests:
                limits[resource] = requests.pop(resource)
    resources = {key: amounts for key, amounts in (("requests", requests), ("limits", limits)) if amounts}
    image = draws.choice((*IMAGES, "tool", "registry.example/base", "pause"))
    return {"name": name, "image": image, **({"resources": resources} if resources else {})}


def _init(draws: Draws, name: str) -> Object:
    container = _container(draws, name)
    if draws.chance(10):
        container["ports"] = [_port(draws, 2)]
    return {**container, "restartPolicy": "Always"} if draws.chance(50) else container


def resized(draws: Draws, pod: Object) -> Object:
    """Return the status of a running pod whose resources are not, or not yet, those of its spec."""
    statuses = []
    for container in pod["spec"]["containers"]:
        requests = {"cpu": draws.choice(CPU), "memory": draws.choice(MEMORY)}
        status: Object = {"name": container["name"], "image": "", "imageID": "", "ready": True, "restartCount": 0}
        status["resources"] = {"requests": requests}
        if draws.chance(60):
            status["allocatedResources"] = {**requests, "cpu": draws.choice(CPU)}
        statuses.append(status)
    found: Object = {"containerStatuses": statuses}
    if draws.chance(50):
        why = draws.choice(("Deferred", "Infeasible"))
        found["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": why}]
    return found


def _pod_level(spec: Object) -> Object:
    """Return resources of all containers together, at least as much as these request."""
    del spec["containers"][1:]
    spec.pop("initContainers", None)
    spec["containers"][0].pop("resources", None)
    spec["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    return {"cpu": "1200m", "memory": "700Mi"}


def _inline_volume(draws: Draws, name: str) -> Object:
    """Return a volume that is not a claim; of some kinds one node or one cluster may have each only once."""
    read_only = {"readOnly": True} if draws.chance(30) else {}
    which = draws.choice(("one", "other"))
    image = {"image": {"reference": draws.choice(tuple(IMAGES))}}
    source = draws.choice(
        (
            image if is_since("1.35") else {"emptyDir": {}},
            {"gcePersistentDisk": {"pdName": which, **read_only}},
            {"awsElasticBlockStore": {"volumeID": which, **read_only}},
            {
                "iscsi": {
                    "targetPortal": "10.0.0.9",
                    "iqn": f"iqn.2026-01.example:{which}",
                    "lun": draws.number(0, 1),
                    **read_only,
                }
            },
            {"rbd": {"monitors": draws.some(("a", "b", "c"), 2), "image": which, "pool": "p", **read_only}},
            {"emptyDir": {}},
        )
    )
    return {"name": name, **source}


def _toleration(draws: Draws) -> Object:
    effect = draws.choice(EFFECTS)
    found: Object = {"effect": effect} if effect else {}
    if draws.chance(12):
        return {**found, "operator": "Exists"}
    found["key"] = draws.choice((*TAINT_KEYS, UNSCHEDULABLE))
    if draws.chance(40):
        return {**found, "operator": "Exists"}
    if value := draws.choice(TAINT_VALUES):
        found["value"] = value
    return {**found, "operator": "Equal"} if draws.chance(50) else found


def _node_affinity(draws: Draws, nodes: Sequence[str], rich: int) -> Object:
    affinity: Object = {}
    if draws.chance(rich):
        affinity[REQUIRED] = {"nodeSelectorTerms": [node_term(draws, nodes) for _ in range(draws.number(1, 2))]}
    if draws.chance(rich):
        affinity[PREFERRED] = [
            {"weight": draws.number(1, 100), "preference": node_term(draws, nodes)} for _ in range(draws.number(1, 2))
        ]
    return affinity


def _pod_affinity(draws: Draws, rich: int) -> Object:
    affinity: Object = {}
    if draws.chance(rich // 2):
        affinity[REQUIRED] = [pod_term(draws) for _ in range(draws.choice((1, 1, 2)))]
    if draws.chance(rich // 2):
        affinity[PREFERRED] = [
            {"weight": draws.number(1, 100), "podAffinityTerm": pod_term(draws)} for _ in range(draws.choice((1, 1, 2)))
        ]
    return affinity


def _port(draws: Draws, number: int) -> Object:
    port = draws.choice((8000, 8001)) + 2 * number
    found: Object = {"containerPort": port}
    if not draws.chance(15):
        found["hostPort"] = port
    if draws.chance(40):
        found["protocol"] = draws.choice(("TCP", "UDP", "SCTP"))
    if draws.chance(30):
        found["hostIP"] = draws.choice(("127.0.0.1", "10.0.0.1", "0.0.0.0"))
    return found
