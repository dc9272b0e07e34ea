"""Pods with claims on a real control plane, whose volume controller completes what steersman and kube-scheduler decide.

No CSI driver runs: a provisioner here makes a volume for each claim that has a selected node. Both schedulers place the
same pods, a rule each, one after the other, and must agree on who is bound, on the zone, and on why a pod waits.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import NODES, LocalCluster, until
from tests.e2e.test_schedule import bound, create, events, pod, pods, scheduling

pytestmark = pytest.mark.e2e

ZONE = "topology.kubernetes.io/zone"
SELECTED = "volume.kubernetes.io/selected-node"
DRIVER = "csi.example.com"
NOBODY = "kubernetes.io/no-provisioner"
KINDS = "pods,persistentvolumeclaims,persistentvolumes,storageclasses,csinodes,csidrivers,csistoragecapacities"


def of(kind: str, name: str, group: str = "v1", **body: Any) -> dict[str, Any]:
    namespace = {} if kind in ("PersistentVolume", "StorageClass") else {"namespace": "default"}
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name, **namespace}, **body}


def storage_class(
    name: str, provisioner: str = DRIVER, mode: str = "WaitForFirstConsumer", **more: Any
) -> dict[str, Any]:
    return of("StorageClass", name, "storage.k8s.io/v1", provisioner=provisioner, volumeBindingMode=mode, **more)


def claim(name: str, cls: str, mode: str = "ReadWriteOnce", size: str = "1Gi") -> dict[str, Any]:
    resources = {"requests": {"storage": size}}
    spec = {"storageClassName": cls, "accessModes": [mode], "resources": resources}
    return of("PersistentVolumeClaim", name, spec=spec)


def volume(name: str, cls: str, zone: str, **more: Any) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    spec = {
        "storageClassName": cls,
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": DRIVER, "volumeHandle": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        **more,
    }
    return of("PersistentVolume", name, spec=spec)


def with_claim(name: str, scheduler: str, claim_name: str, **spec: Any) -> dict[str, Any]:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}]
    return pod(name, volumes=volumes, **{"schedulerName": scheduler, **spec})


def listed(cluster: LocalCluster, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cluster.kubectl("get", kind, "-o", "json"))["items"]
    return found


def provision(cluster: LocalCluster) -> None:
    """Make a volume in the zone of the selected node for each claim that has one, as a CSI provisioner does."""
    zones = {each["metadata"]["name"]: each["metadata"]["labels"][ZONE] for each in listed(cluster, "nodes")}
    there = {each["metadata"]["name"] for each in listed(cluster, "persistentvolumes")}
    for each in listed(cluster, "persistentvolumeclaims"):
        meta = each["metadata"]
        node = meta.get("annotations", {}).get(SELECTED)
        if node and f"for-{meta['name']}" not in there:
            ref = {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                **{k: meta[k] for k in ("name", "namespace", "uid")},
            }
            create(cluster, volume(f"for-{meta['name']}", each["spec"]["storageClassName"], zones[node], claimRef=ref))


@pytest.fixture
def zones(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The nodes in three zones."""
    names = [each["metadata"]["name"] for each in listed(cluster, "nodes")]
    for i, name in enumerate(names):
        cluster.kubectl("label", "node", name, f"{ZONE}={'abc'[i % 3]}", "--overwrite")
    yield cluster
    cluster.kubectl("label", "nodes", "--all", f"{ZONE}-")


def scene(cluster: LocalCluster, scheduler: str) -> tuple[dict[str, str], dict[str, str]]:
    """Have pods placed, a rule each; their zones, and why the others wait."""
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["c"]}]}]
    create(
        cluster,
        storage_class("static", NOBODY),
        storage_class("anywhere"),
        storage_class("in-c", allowedTopologies=topologies),
        storage_class("at-once", NOBODY, "Immediate"),
        *(volume(f"static-{zone}", "static", zone) for zone in "ab"),
        volume("now-b", "at-once", "b", accessModes=["ReadWriteOncePod"]),
        *(claim(f"static-{i}", "static") for i in range(3)),
        *(claim(f"new-{i}", "anywhere") for i in range(6)),
        *(claim(f"c-{i}", "in-c") for i in range(4)),
        claim("elsewhere", "in-c"),
        claim("now", "at-once", "ReadWriteOncePod"),
        claim("never", "at-once", size="9Gi"),
    )
    phases = {"now": "Bound"}
    until(
        lambda: (
            phases.items() <= {e["metadata"]["name"]: e["status"].get("phase") for e in listed(cluster, "pvc")}.items()
        )
    )
    names = [*(f"static-{i}" for i in range(3)), *(f"new-{i}" for i in range(6)), *(f"c-{i}" for i in range(4))]
    create(
        cluster,
        *(with_claim(name, scheduler, name) for name in [*names, "now", "never", "missing"]),
        with_claim("elsewhere", scheduler, "elsewhere", nodeSelector={ZONE: "a"}),
    )
    waiting = {"never", "missing", "elsewhere"}

    def settled() -> bool:
        provision(cluster)
        told = events(cluster, "FailedScheduling").keys() - bound(cluster).keys()
        return len(bound(cluster)) == len(names) and waiting <= told

    until(settled, 60)
    create(cluster, with_claim("second", scheduler, "now"))
    until(lambda: "second" in events(cluster, "FailedScheduling"))
    labels = {each["metadata"]["name"]: each["metadata"]["labels"][ZONE] for each in listed(cluster, "nodes")}
    where = {name: labels[node] for name, node in bound(cluster).items()}
    by_name = {each["metadata"]["name"]: each for each in listed(cluster, "pv")}
    for each in listed(cluster, "pvc"):
        if each["metadata"]["name"] in where and each["metadata"]["name"] in pods(cluster):
            (term,) = by_name[each["spec"]["volumeName"]]["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
            assert where[each["metadata"]["name"]] in term["matchExpressions"][0]["values"], each
    told = events(cluster, "FailedScheduling")
    return where, {name: told[name] for name in told.keys() - where.keys()}


def reason(note: str) -> str:
    """A note's first sentence: kube-scheduler adds what it thinks of preemption and resource claims."""
    return note.rstrip(".").partition(". ")[0]


def test_both_schedulers_bind_the_same_claims(zones: LocalCluster, tmp_path: Path) -> None:
    with scheduling(zones, tmp_path, "--policy", "fgd"):
        where, why = scene(zones, "steersman")
    zones.must("cluster", "clean", "--name", zones.name)
    for kind in ("pvc", "pv", "storageclass"):
        zones.kubectl("delete", kind, "--all", "--wait=true")
    try:
        theirs, their_why = scene(zones, "default-scheduler")
    finally:
        zones.must("cluster", "clean", "--name", zones.name)
        for kind in ("pvc", "pv", "storageclass"):
            zones.kubectl("delete", kind, "--all", "--wait=true")
    assert where["now"] == theirs["now"] == "b"
    assert {where[f"c-{i}"] for i in range(4)} == {theirs[f"c-{i}"] for i in range(4)} == {"c"}
    static = [sorted(zone for name, zone in each.items() if name.startswith("static")) for each in (where, theirs)]
    assert static[0] == static[1] == ["a", "b"]
    new = [name for name in why if not name.startswith("static")]
    assert {name: reason(why[name]) for name in new} == {name: reason(their_why[name]) for name in new}
    assert sum(name.startswith("static") for name in why) == 1
    assert f"0/{NODES} nodes are available" in why["elsewhere"]
