"""Scenarios in which a change makes a pending pod schedulable, one for each event and plugin of kube-scheduler.

Source: Kubernetes 1.36, `EventsToRegister` of pkg/scheduler/framework/plugins, and test/integration/scheduler/queueing.
All objects of a scenario belong to a lane, so that several schedulers can play it on one cluster.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

Object = dict[str, Any]
Verb = Literal["create", "patch", "delete"]
ZONE, HOST, LANE = "example.com/zone", "kubernetes.io/hostname", "example.com/lane"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
WAIT_CLASS, CSI_CLASS = "waits", "csi"


@dataclass(frozen=True)
class WakingScenario:
    """A pod that fits nowhere, and the change after which it fits.

    Attributes:
        plugin: that rejects the pod.
        event: what happens.
        before: objects that exist before the pod.
        pod: the pod.
        verb: what is done to the last object; a patch is a merge patch.
        changed: the object, or the patch of it with its kind and name.
        needs_driver: whether only a CSI driver's provisioner could complete its claims.
    """

    plugin: str
    event: str
    before: tuple[Object, ...]
    pod: Object
    verb: Verb
    changed: Object
    needs_driver: bool = False

    @property
    def name(self) -> str:
        """Plugin and event."""
        return f"{self.plugin}: {self.event}"


class Lane:
    """Objects with the names and labels of one lane."""

    def __init__(self, name: str, scheduler: str) -> None:
        self.name, self.scheduler = name, scheduler

    def node(self, name: str = "a", cpu: str = "4", pods: str = "10", zone: str = "", **spec: Any) -> Object:
        """Return a Node."""
        name = f"{self.name}-{name}"
        labels = {LANE: self.name, HOST: name, **({ZONE: zone} if zone else {}), **spec.pop("labels", {})}
        amounts = {"cpu": cpu, "memory": "16Gi", "pods": pods, **spec.pop("more", {})}
        meta = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}
        status = {"allocatable": amounts, "capacity": amounts}
        return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": status}

    def pod(self, name: str = "waits", cpu: str = "1", on: str = "", app: str = "", **spec: Any) -> Object:
        """Return a Pod; `on` a node it is bound."""
        requests = {"cpu": cpu, **spec.pop("more", {})}
        container = {"name": "main", "image": "pause", "resources": {"requests": requests}}
        if ports := spec.pop("ports", None):
            container["ports"] = ports
        if "example.com/board" in requests:
            container["resources"]["limits"] = {"example.com/board": requests["example.com/board"]}  # type: ignore[index]
        meta = {"name": f"{self.name}-{name}", "namespace": "default", "labels": {"app": f"{self.name}-{app or name}"}}
        where = {"nodeName": f"{self.name}-{on}"} if on else {"nodeSelector": {LANE: self.name}}
        whole = {"schedulerName": self.scheduler, "containers": [container], **where, **spec}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": whole}

    def patch(self, kind: str, name: str, **change: Any) -> Object:
        """Return a merge patch."""
        meta = {**change.pop("metadata", {}), "name": f"{self.name}-{name}"}
        if kind in ("Pod", "PersistentVolumeClaim"):
            meta["namespace"] = "default"
        return {"kind": kind, "metadata": meta, **change}

    def term(self, app: str, key: str = ZONE, **more: Any) -> Object:
        """Return a term that selects an app."""
        return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": f"{self.name}-{app}"}}, **more}

    def claim(self, name: str = "data", cls: str = WAIT_CLASS, **spec: Any) -> Object:
        """Return a PersistentVolumeClaim."""
        body = {"accessModes": ["ReadWriteOnce"], "storageClassName": f"{self.name}-{cls}", **spec}
        body["resources"] = {"requests": {"storage": "1Gi"}}
        meta = {"name": f"{self.name}-{name}", "namespace": "default"}
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": body}

    def volume(self, name: str = "disk", zone: str = "", size: str = "1Gi", **spec: Any) -> Object:
        """Return a PersistentVolume, of a zone."""
        body: Object = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": f"{self.name}-{WAIT_CLASS}",
            "hostPath": {"path": "/tmp"},
            **spec,
        }
        if zone:
            match = {"key": ZONE, "operator": "In", "values": [zone]}
            body["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [match]}]}}
        labels = {"lane": self.name}
        meta = {"name": f"{self.name}-{name}", "labels": labels}
        status = {"phase": "Available"}  # as the volume controller says
        return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": body, "status": status}

    def storage_class(self, cls: str = WAIT_CLASS, provisioner: str = "kubernetes.io/no-provisioner") -> Object:
        """Return a StorageClass whose volumes are bound with the first pod."""
        return {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": f"{self.name}-{cls}"},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }

    def using(self, claim: str = "data", **more: Any) -> Object:
        """Return the pod with a claim."""
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": f"{self.name}-{claim}"}}
        return self.pod(volumes=[volume], **more)

    def affine(self, app: str, key: str = ZONE, *, anti: bool = False, **more: Any) -> Object:
        """Return the pod that must be near, or apart from, an app."""
        return self.pod(
            affinity={"podAntiAffinity" if anti else "podAffinity": {REQUIRED: [self.term(app, key)]}}, **more
        )

    def spread(self) -> Object:
        """Return the pod of an app that is spread over zones."""
        return self.pod(
            app="s",
            topologySpreadConstraints=[self.term("s", maxSkew=1, whenUnsatisfiable="DoNotSchedule")],
        )


def scenarios(lane: str, scheduler: str) -> list[WakingScenario]:
    """Return all scenarios, with the names of a lane and pods of a scheduler."""
    return [
        scenario
        for group in (_resources, _nodes, _ports, _affinity, _topology_spread, _gates, _volumes, _volume_drivers)
        for scenario in group(Lane(lane, scheduler))
    ]


def _resources(lane: Lane) -> Iterator[WakingScenario]:
    plugin = "NodeResourcesFit"
    full = (lane.node(), lane.pod("full", "4", on="a"))
    yield WakingScenario(plugin, "a pod is deleted", full, lane.pod(), "delete", full[1])
    yield WakingScenario(plugin, "a node is added", full, lane.pod(), "create", lane.node("b"))
    more = {"allocatable": {"cpu": "8"}, "capacity": {"cpu": "8"}}
    yield WakingScenario(
        plugin, "a node's allocatable grows", full, lane.pod(), "patch", lane.patch("Node", "a", status=more)
    )
    crowded = (lane.node(pods="1"), lane.pod("first", on="a"))
    more = {"allocatable": {"pods": "5"}, "capacity": {"pods": "5"}}
    yield WakingScenario(
        plugin, "a node allows more pods", crowded, lane.pod(), "patch", lane.patch("Node", "a", status=more)
    )
    board = {"example.com/board": "1"}
    offers = lane.patch("Node", "a", status={"allocatable": board, "capacity": board})
    yield WakingScenario(
        plugin, "a node offers an extended resource", (lane.node(),), lane.pod(more=board), "patch", offers
    )


def _nodes(lane: Lane) -> Iterator[WakingScenario]:
    plain = (lane.node(),)
    picky = lane.pod(nodeSelector={LANE: lane.name, "disk": "ssd"})
    yield WakingScenario(
        "NodeAffinity", "a node's label is updated", plain, picky, "patch",
        lane.patch("Node", "a", metadata={"labels": {"disk": "ssd"}}),
    )  # fmt: skip
    yield WakingScenario(
        "NodeAffinity", "a node is added", plain, picky, "create", lane.node("b", labels={"disk": "ssd"})
    )
    name = {"key": "metadata.name", "operator": "In", "values": [f"{lane.name}-b"]}
    named = {"nodeSelectorTerms": [{"matchFields": [name]}]}
    yield WakingScenario(
        "NodeAffinity", "the node of that name is added", plain,
        lane.pod(affinity={"nodeAffinity": {REQUIRED: named}}), "create", lane.node("b"),
    )  # fmt: skip
    cordoned = (lane.node(unschedulable=True),)
    yield WakingScenario(
        "NodeUnschedulable", "a node is uncordoned", cordoned, lane.pod(), "patch",
        lane.patch("Node", "a", spec={"unschedulable": None}),
    )  # fmt: skip
    yield WakingScenario("NodeUnschedulable", "a node is added", cordoned, lane.pod(), "create", lane.node("b"))
    taint = {"key": "example.com/t", "value": "x", "effect": "NoSchedule"}
    tainted = (lane.node(taints=[taint]),)
    yield WakingScenario(
        "TaintToleration", "a taint is removed", tainted, lane.pod(), "patch",
        lane.patch("Node", "a", spec={"taints": None}),
    )  # fmt: skip
    yield WakingScenario("TaintToleration", "a node is added", tainted, lane.pod(), "create", lane.node("b"))
    tolerations = [{"key": "example.com/t", "operator": "Exists"}]
    yield WakingScenario(
        "TaintToleration", "the pod gets a toleration", tainted, lane.pod(), "patch",
        lane.patch("Pod", "waits", spec={"tolerations": tolerations}),
    )  # fmt: skip


def _ports(lane: Lane) -> Iterator[WakingScenario]:
    port = [{"containerPort": 80, "hostPort": 8080}]
    taken = (lane.node(), lane.pod("first", on="a", ports=port))
    waits = lane.pod(ports=port)
    yield WakingScenario("NodePorts", "the pod with the port is deleted", taken, waits, "delete", taken[1])
    yield WakingScenario("NodePorts", "a node is added", taken, waits, "create", lane.node("b"))


def _affinity(lane: Lane) -> Iterator[WakingScenario]:
    plugin = "InterPodAffinity"
    zones = (lane.node(zone="1"), lane.node("b", zone="2"))
    other = lane.pod("other", on="a")
    yield WakingScenario(
        plugin, "the pod to be near is bound", zones, lane.affine("db"), "create", lane.pod("db", on="a")
    )
    yield WakingScenario(
        plugin, "a pod's label makes it the one to be near", (*zones, other), lane.affine("db"), "patch",
        lane.patch("Pod", "other", metadata={"labels": {"app": f"{lane.name}-db"}}),
    )  # fmt: skip
    one = (lane.node(zone="1"),)
    db = lane.pod("db", on="a")
    yield WakingScenario(
        plugin, "the pod to be apart from is deleted", (*one, db), lane.affine("db", anti=True), "delete", db
    )
    yield WakingScenario(
        plugin, "the pod to be apart from gets another label", (*one, db), lane.affine("db", anti=True), "patch",
        lane.patch("Pod", "db", metadata={"labels": {"app": "else"}}),
    )  # fmt: skip
    apart = {"podAntiAffinity": {REQUIRED: [lane.term("waits")]}}
    shy = lane.pod("shy", on="a", affinity=apart)
    yield WakingScenario(plugin, "a pod that keeps it away is deleted", (*one, shy), lane.pod(), "delete", shy)
    yield WakingScenario(
        plugin, "a node with the topology is added", (*one, db), lane.affine("db", anti=True), "create",
        lane.node("b", zone="2"),
    )  # fmt: skip
    full = (lane.node(zone="1"), lane.pod("db", "4", on="a"), lane.node("b", zone="2"))
    yield WakingScenario(
        plugin, "a node's topology is updated", full, lane.affine("db"), "patch",
        lane.patch("Node", "b", metadata={"labels": {ZONE: "1"}}),
    )  # fmt: skip


def _topology_spread(lane: Lane) -> Iterator[WakingScenario]:
    plugin = "PodTopologySpread"
    spread = lane.spread()
    # Zone 1 has room and a pod of the app; zone 2 is full and has none.
    uneven = (
        lane.node(zone="1"),
        lane.node("b", cpu="2", zone="2"),
        lane.pod("s1", on="a", app="s"),
        lane.pod("full", "1500m", on="b"),
    )
    yield WakingScenario(
        plugin, "a pod of the app is bound", uneven, spread, "create", lane.pod("s2", "100m", on="b", app="s")
    )
    yield WakingScenario(plugin, "a pod of the app is deleted", uneven, spread, "delete", uneven[2])
    yield WakingScenario(
        plugin, "a pod's label makes it one of the app", uneven, spread, "patch",
        lane.patch("Pod", "full", metadata={"labels": {"app": f"{lane.name}-s"}}),
    )  # fmt: skip
    yield WakingScenario(plugin, "a node of the zone is added", uneven, spread, "create", lane.node("c", zone="2"))
    yield WakingScenario(
        plugin, "a node gets the topology label", (lane.node(),), spread, "patch",
        lane.patch("Node", "a", metadata={"labels": {ZONE: "1"}}),
    )  # fmt: skip
    yield WakingScenario(plugin, "the node of the empty zone is deleted", uneven, spread, "delete", uneven[1])


def _gates(lane: Lane) -> Iterator[WakingScenario]:
    gated = lane.pod(schedulingGates=[{"name": "example.com/wait"}])
    yield WakingScenario(
        "SchedulingGates", "the gates are removed", (lane.node(),), gated, "patch",
        lane.patch("Pod", "waits", spec={"schedulingGates": None}),
    )  # fmt: skip


def _volumes(lane: Lane) -> Iterator[WakingScenario]:
    zones = (lane.node(zone="1"), lane.storage_class())
    disk, data = lane.volume(zone="1"), lane.claim()
    yield WakingScenario("VolumeBinding", "the claim is created", (*zones, disk), lane.using(), "create", data)
    yield WakingScenario("VolumeBinding", "the volume is created", (*zones, data), lane.using(), "create", disk)
    yield WakingScenario(
        "VolumeBinding", "the storage class is created", (zones[0], disk, data), lane.using(), "create", zones[1]
    )
    elsewhere = lane.volume(zone="2")
    yield WakingScenario(
        "VolumeBinding", "a node of the volume's zone is added", (*zones, elsewhere, data), lane.using(), "create",
        lane.node("b", zone="2"),
    )  # fmt: skip
    yield WakingScenario(
        "VolumeBinding", "a node's label is updated", (*zones, elsewhere, data), lane.using(), "patch",
        lane.patch("Node", "a", metadata={"labels": {ZONE: "2"}}),
    )  # fmt: skip
    yield WakingScenario(
        "NodeResourcesFit", "a pod is deleted, and the waiting one has a claim",
        (*zones, disk, data, lane.pod("full", "4", on="a")), lane.using(), "delete", lane.pod("full", "4", on="a"),
    )  # fmt: skip
    once = ["ReadWriteOncePod"]
    single, disk = lane.claim(accessModes=once), lane.volume(zone="1", accessModes=once)
    user = lane.using(name="user", on="a")
    yield WakingScenario(
        "VolumeRestrictions", "the pod that uses the claim is deleted",
        (*zones, disk, _bound(single, disk), user), lane.using(), "delete", user, needs_driver=True,
    )  # fmt: skip


def _volume_drivers(lane: Lane) -> Iterator[WakingScenario]:
    driver = f"{lane.name}.csi.example.com"
    node, cls, data = lane.node(zone="1"), lane.storage_class(CSI_CLASS, driver), lane.claim(cls=CSI_CLASS)
    scenario = _needing_driver
    narrow = {**cls, "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["2"]}]}]}
    wide = [{"matchLabelExpressions": [{"key": ZONE, "values": ["1", "2"]}]}]
    yield scenario(
        "VolumeBinding", "the storage class allows more topologies", (node, narrow, data), lane.using(), "patch",
        lane.patch("StorageClass", CSI_CLASS, allowedTopologies=wide),
    )  # fmt: skip
    csi = {"kind": "CSIDriver", "metadata": {"name": driver}, "spec": {"storageCapacity": True}}
    yield scenario(
        "VolumeBinding", "the driver's storage capacity is disabled", (node, cls, data, csi), lane.using(), "patch",
        {**csi, "spec": {"storageCapacity": False}},
    )  # fmt: skip
    selector = {"matchLabels": {ZONE: "1"}}
    room = {
        "kind": "CSIStorageCapacity",
        "metadata": {"name": f"{lane.name}-room", "namespace": "default"},
        "storageClassName": f"{lane.name}-{CSI_CLASS}",
        "nodeTopology": selector,
        "capacity": "10Gi",
    }
    yield scenario(
        "VolumeBinding", "a storage capacity is created", (node, cls, data, csi), lane.using(), "create", room
    )
    yield scenario(
        "VolumeBinding", "a storage capacity grows", (node, cls, data, csi, {**room, "capacity": "1Mi"}),
        lane.using(), "patch", room,
    )  # fmt: skip
    limit: Object = {
        "kind": "CSINode",
        "metadata": {"name": f"{lane.name}-a"},
        "spec": {"drivers": [{"name": driver, "nodeID": "a", "allocatable": {"count": 1}}]},
    }
    attached = {"driver": driver, "volumeHandle": "one"}
    first = lane.volume("one", csi=attached, hostPath=None)
    used = _bound(lane.claim("one", cls=CSI_CLASS), first)
    user = lane.using("one", name="user", on="a")
    before = (node, cls, limit, first, used, user, data)
    yield scenario("NodeVolumeLimits", "a pod with a volume is deleted", before, lane.using(), "delete", user)
    raised = copy.deepcopy(limit)
    raised["spec"]["drivers"][0]["allocatable"]["count"] = 2
    yield scenario("NodeVolumeLimits", "the node's limit grows", before, lane.using(), "patch", raised)
    zoned = lane.volume("disk")
    zoned["metadata"]["labels"] = {"topology.kubernetes.io/zone": "2"}
    labelled = lane.node(labels={"topology.kubernetes.io/zone": "1"})
    yield scenario(
        "VolumeZone", "the volume's zone is updated", (labelled, zoned, _bound(lane.claim(), zoned)), lane.using(),
        "patch", lane.patch("PersistentVolume", "disk", metadata={"labels": {"topology.kubernetes.io/zone": "1"}}),
    )  # fmt: skip
    unbound = lane.claim(storageClassName="", volumeName="")
    yield scenario(
        "VolumeBinding", "the claim is bound", (node, lane.volume(), unbound), lane.using(), "patch",
        _bound(unbound, lane.volume()),
    )  # fmt: skip


def _needing_driver(*arguments: Any) -> WakingScenario:
    return replace(WakingScenario(*arguments), needs_driver=True)


def _bound(claim: Object, volume: Object) -> Object:
    """Return a claim as the volume controller binds it."""
    claim = copy.deepcopy(claim)
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    claim["spec"]["volumeName"] = volume["metadata"]["name"]
    claim["status"] = {"phase": "Bound"}
    return claim
