"""Random clusters: nodes, pods that run there, what they refer to, and pods to schedule.

Left out: values in preferred node affinity that the API server takes and for which kube-scheduler's PreScore fails.

Left out before 1.37: pods that are being resized, whose containers counted each by itself.

Left out before 1.36: devices that are requested as extended resources, which were off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from tests.support.differential.devices import devices, requestable, use_devices, without_gpus
from tests.support.differential.draws import Draws
from tests.support.differential.nodes import Object, node
from tests.support.differential.pods import pod, resized
from tests.support.differential.selectors import LABELS, NAMESPACES
from tests.support.differential.volumes import free_storage, storage, use_claims
from tests.support.kubernetes import is_since

NODES, RUNNING, PENDING = (1, 2, 3, 4, 5, 6), (0, 2, 4, 8), (1, 4, 8, 12, 12)
MAX_CLAIMS = 4


@dataclass(frozen=True)
class Cluster:
    """Objects of a cluster, in the order in which a scheduler learns of them, and pods to schedule there."""

    objects: list[Object]
    pods: list[Object]

    def of_kind(self, *kinds: str) -> list[Object]:
        """Return the objects of these kinds."""
        return [each for each in self.objects if each["kind"] in kinds]


@st.composite
def clusters(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Cluster:
    """Draw a cluster."""
    draws = Draws(draw)
    names = [f"n{i}" for i in range(draws.choice(NODES))]
    objects = [node(draws, name) for name in names]
    objects += namespaces(draws)
    selecting = [selecting_object(draws, i) for i in range(draws.number(0, 2))]
    objects += selecting
    has_devices = is_since("1.36") and draws.chance(20)
    objects += devices(draws, names) if has_devices else []
    device_names = requestable(objects)
    claims = draws.number(1, MAX_CLAIMS) if draws.chance(40) else 0
    has_room = claims > 0 and draws.chance(50)
    if claims:
        objects += (free_storage if has_room else storage)(draws, names, claims)
    for i in range(draws.choice(RUNNING)):
        running = owned(draws, pod(draws, f"r{i}", names, rich=15), selecting)
        if claims:
            objects += use_claims(draws, running, claims, running=True)
        if has_devices:
            without_gpus(running)
        running["spec"]["nodeName"] = draws.choice(names)
        running["status"] = {"phase": "Running"}
        if is_since("1.37") and draws.chance(8):
            running["status"] |= resized(draws, running)
        if draws.chance(12):
            running["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if draws.chance(2):
            _nominate(running)
        objects.append(running)
    pods = []
    for i in range(draws.choice(PENDING)):
        new = owned(draws, pod(draws, f"p{i}", names, rich=5 if has_room else draws.choice((5, 25, 50))), selecting)
        if claims:
            objects += use_claims(draws, new, claims)
        if has_devices and draws.chance(60):
            without_gpus(new)
            use_devices(draws, new, device_names)
        if i and draws.chance(3):  # a workload needs one that arrives
            new["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        pods.append(new)
    return Cluster(objects, pods)


def _nominate(pod: Object) -> None:
    """Make of a running pod one for which another one is being evicted from its node."""
    pod["status"] = {"phase": "Pending", "nominatedNodeName": pod["spec"].pop("nodeName")}
    pod["metadata"].pop("deletionTimestamp", None)


def namespaces(draws: Draws) -> list[Object]:
    found = []
    for name in NAMESPACES:
        labels = {"kubernetes.io/metadata.name": name}
        if draws.chance(70):
            labels["team"] = draws.choice(("red", "blue"))
        found.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    return found


def selecting_object(draws: Draws, number: int) -> Object:
    """Return an object whose selector spreads pods by default."""
    kind = draws.choice(("Service", "ReplicaSet", "StatefulSet", "ReplicationController"))
    name = f"set{number}"
    metadata = {"name": name, "namespace": draws.choice(NAMESPACES), "uid": f"uid-{name}"}
    if kind == "Service":
        key = draws.choice(tuple(LABELS))
        spec: Object = {"selector": {key: draws.choice(LABELS[key])}}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
    selector: Object = {"matchLabels": {"set": name}}
    if draws.chance(30):
        selector = {"matchExpressions": [{"key": "set", "operator": "In", "values": [name, "other"]}]}
    if kind == "ReplicationController":
        selector = {"set": name}
    template = {"metadata": {"labels": {"set": name}}, "spec": {"containers": [{"name": "c", "image": "pause"}]}}
    return {
        "apiVersion": "v1" if kind == "ReplicationController" else "apps/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"replicas": 0, "selector": selector, "template": template},
    }


def owned(draws: Draws, new: Object, selecting: list[Object]) -> Object:
    """Return a pod, perhaps made by one of the controllers of its namespace."""
    metadata = new["metadata"]
    controllers = [
        each
        for each in selecting
        if each["kind"] != "Service" and each["metadata"]["namespace"] == metadata["namespace"]
    ]
    if controllers and draws.chance(50):
        owner = draws.choice(controllers)
        name = owner["metadata"]["name"]
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": name}
        metadata["labels"]["set"] = name
        metadata["ownerReferences"] = [{**reference, "uid": owner["metadata"]["uid"], "controller": True}]
    return new
