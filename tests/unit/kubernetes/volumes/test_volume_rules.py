"""Which nodes a pod's claims allow, by kube-scheduler's rules."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
from hypothesis import given

from steersman.cluster import volumes as rules
from steersman.cluster.constraints.node import NodeTable
from steersman.cluster.model import Node
from steersman.cluster.objects.api.claims import (
    BIND_COMPLETED,
    CsiDriver,
    CsiNode,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeClaim,
)
from steersman.cluster.objects.api.pods import PodObject
from steersman.cluster.volumes import (
    PodClaim,
    VolumeFit,
    VolumeObjects,
    VolumePlan,
    pod_claims,
    volume_attachment,
)

ZONE = "topology.kubernetes.io/zone"
NODES = ["n0", "n1", "n2"]
LABELS = [{ZONE: "a"}, {ZONE: "b"}, {ZONE: "c"}]
TABLE = NodeTable(
    [Node(name, 1000, 1 << 30, labels=labels) for name, labels in zip(NODES, LABELS, strict=True)] + [None]
)


def claim(name: str = "c", size: str = "1Gi", bound: str = "", cls: str = "wait", **spec: Any) -> VolumeClaim:
    notes = {BIND_COMPLETED: "yes"} if bound else {}
    notes.update(spec.pop("annotations", {}))
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": notes, **spec.pop("meta", {})}
    body = {"accessModes": ["ReadWriteOnce"], "storageClassName": cls, "volumeName": bound, **spec}
    body["resources"] = {"requests": {"storage": size}}
    return msgspec.convert({"metadata": meta, "spec": body, "status": {"phase": "Bound" if bound else ""}}, VolumeClaim)


def affinity(*zones: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": list(zones)}]}
    return {"required": {"nodeSelectorTerms": [term]}}


def volume(name: str, *zones: str, size: str = "1Gi", labels: dict[str, str] | None = None, **spec: Any) -> Volume:
    phase = spec.pop("phase", "Available")
    body = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "wait", **spec}
    if zones:
        body["nodeAffinity"] = affinity(*zones)
    meta = {"name": name, "labels": labels or {}}
    return msgspec.convert({"metadata": meta, "spec": body, "status": {"phase": phase}}, Volume)


def storage_class(name: str = "wait", provisioner: str = "csi.example.com", **other: Any) -> StorageClass:
    body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    return msgspec.convert({**body, **other}, StorageClass)


def known(*objects: Any) -> VolumeObjects:
    found = VolumeObjects(classes={"wait": storage_class()})
    kinds = {
        VolumeClaim: found.claims,
        Volume: found.volumes,
        StorageClass: found.classes,
        CsiNode: found.nodes,
        CsiDriver: found.drivers,
        StorageCapacity: found.capacities,
    }
    for each in objects:
        kinds[type(each)][each.key if isinstance(each, VolumeClaim) else each.metadata.name] = each
    return found


def claims_of(pod: dict[str, Any]) -> tuple[PodClaim, ...]:
    return pod_claims(msgspec.convert(pod, PodObject))


def fitted(objects: VolumeObjects, *names: str, in_use: dict[str, list[str]] | None = None) -> VolumeFit:
    wanted = [PodClaim(f"default/{name}") for name in names or ("c",)]
    return rules.fit(objects, wanted, "uid-pod", TABLE, in_use or {})


def nodes(fit: VolumeFit) -> list[str]:
    return [NODES[slot] for slot in np.flatnonzero(fit.allowed(TABLE))]


def why(fit: VolumeFit, slot: int) -> list[str]:
    return [reason for group in fit.refusals for reason, refused in group if refused[slot]]


def test_a_bound_claim_allows_the_nodes_of_its_volume() -> None:
    fit = fitted(known(claim(bound="v"), volume("v", "b", "c")))
    assert nodes(fit) == ["n1", "n2"]
    assert why(fit, 0) == ["node(s) didn't match PersistentVolume's node affinity"]
    assert not fit.plan(1), "nothing is left to bind"
    assert nodes(fitted(known(claim(bound="v"), volume("v")))) == NODES


def test_claim_bound_to_a_missing_volume_is_unschedulable() -> None:
    assert fitted(known(claim(bound="v"))).problem == 'persistentvolume "v" not found'
    # kube-scheduler does not look at the zones of ephemeral claims, which is where it misses a volume first.
    owned = {"ownerReferences": [{"uid": "u", "controller": True}]}
    lost = known(claim("p-v", bound="gone", meta=owned))
    fit = rules.fit(lost, (PodClaim("default/p-v", made_for="default/p"),), "u", TABLE, {})
    assert (fit.problem, why(fit, 1)) == ("", [rules.NO_VOLUME])


@pytest.mark.parametrize("operator", ["In", "NotIn"])
def test_match_fields_on_node_names_do_not_restrict_a_volume(operator: str) -> None:
    term: dict[str, Any] = {"matchFields": [{"key": "metadata.name", "operator": operator, "values": ["n1"]}]}
    bound = volume("v", nodeAffinity={"required": {"nodeSelectorTerms": [term]}})
    assert nodes(fitted(known(claim(bound="v"), bound))) == NODES
    term["matchExpressions"] = [{"key": ZONE, "operator": "In", "values": ["a"]}]
    bound = volume("v", nodeAffinity={"required": {"nodeSelectorTerms": [term]}})
    assert nodes(fitted(known(claim(bound="v"), bound))) == ["n0"]


@pytest.mark.parametrize("key", [ZONE, "failure-domain.beta.kubernetes.io/zone"])
def test_zone_labels_of_a_bound_volume_count(key: str) -> None:
    fit = fitted(known(claim(bound="v"), volume("v", labels={key: "a__c"})))
    assert nodes(fit) == ["n0", "n2"]
    assert why(fit, 1) == ["node(s) had no available volume zone"]


def test_a_pod_waits_for_claims() -> None:
    assert fitted(known()).problem == 'persistentvolumeclaim "c" not found'
    deleted = claim(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert fitted(known(deleted)).problem == 'persistentvolumeclaim "c" is being deleted'
    assert fitted(known(deleted), "c", "d").problem == 'persistentvolumeclaim "d" not found', "looked at first"
    immediate = storage_class("now", volumeBindingMode="Immediate")
    unbound = "pod has unbound immediate PersistentVolumeClaims"
    assert fitted(known(claim(cls="now"), immediate)).problem == unbound
    assert fitted(known(claim(cls=""))).problem == unbound
    assert fitted(known(claim(volumeName="v"))).problem == unbound, "pre-bound, and not completed"
    assert fitted(known(claim(cls="now"))).problem == unbound, "its class is not there"


def test_ephemeral_claim_must_belong_to_the_pod() -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]}}
    wanted = claims_of(pod)
    assert wanted == (PodClaim("default/p-v", made_for="default/p"),)
    assert "waiting for ephemeral volume controller" in rules.fit(known(), wanted, "u", TABLE, {}).problem
    problem = rules.fit(known(claim("p-v")), wanted, "u", TABLE, {}).problem
    assert problem == "PVC default/p-v was not created for pod default/p (pod is not owner)"
    owned = known(claim("p-v", meta={"ownerReferences": [{"uid": "u", "controller": True}]}))
    assert not rules.fit(owned, wanted, "u", TABLE, {}).problem


def test_volumes_without_claims_are_ignored() -> None:
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "csi": {"driver": "d"}}, {"name": "c", "hostPath": {}}]
    assert claims_of({"metadata": {"name": "p"}, "spec": {"volumes": volumes}}) == ()


def test_provisioning_follows_allowed_topologies() -> None:
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    fit = fitted(known(claim(), storage_class(allowedTopologies=topologies)))
    assert nodes(fit) == ["n1"]
    assert why(fit, 0) == ["node(s) didn't find available persistent volumes to bind"]
    assert fit.plan(1) == VolumePlan(provisions=("default/c",))
    assert nodes(fitted(known(claim()))) == NODES
    assert nodes(fitted(known(claim(), storage_class(provisioner=rules.NO_PROVISIONER)))) == []


def test_a_selected_node_is_kept() -> None:
    chosen = claim(annotations={"volume.kubernetes.io/selected-node": "n2"})
    assert nodes(fitted(known(chosen, volume("v", "a")))) == ["n2"]
    objects = known(claim())
    objects.assumed_nodes["default/c"] = "n0"
    assert nodes(fitted(objects)) == ["n0"], "decided upon, though the API does not say so yet"


def test_existing_volumes_come_first() -> None:
    objects = known(
        claim(), volume("big", "a", size="9Gi"), volume("small", "a", size="2Gi"), volume("tiny", size="1Mi")
    )
    fit = fitted(objects)
    assert fit.plan(0) == VolumePlan(bindings=(("small", "default/c"),))
    assert fit.plan(1) == VolumePlan(provisions=("default/c",))
    objects.assumed_volumes["small"] = "default/other"
    assert fitted(objects).plan(0) == VolumePlan(bindings=(("big", "default/c"),)), "another pod has the small one"


@pytest.mark.parametrize(
    "unfit",
    [
        {"phase": "Released"},
        {"accessModes": ["ReadOnlyMany"]},
        {"storageClassName": "other"},
        {"volumeMode": "Block"},
        {"size": "512Mi"},
        {"labels": {"disk": "slow"}},
        {"claimRef": {"name": "other", "namespace": "default"}},
        {"claimRef": {"name": "c", "namespace": "default", "uid": "an earlier one's"}},
    ],
)
def test_static_volume_must_match_the_claim(unfit: dict[str, Any]) -> None:
    static = storage_class(provisioner=rules.NO_PROVISIONER)
    wanted = claim(selector={"matchLabels": {"disk": "fast"}})
    good = {"labels": {"disk": "fast"}}
    assert nodes(fitted(known(static, wanted, volume("v", "a", **good)))) == ["n0"]
    assert nodes(fitted(known(static, wanted, volume("v", "a", **{**good, **unfit})))) == []


def test_pre_bound_claim_uses_only_its_volume() -> None:
    own = volume("own", "b", claimRef={"name": "c", "namespace": "default"})
    static = storage_class(provisioner=rules.NO_PROVISIONER)
    fit = fitted(known(static, claim(), own, volume("other", "a")))
    assert nodes(fit) == ["n1"]
    assert fit.plan(1).bindings == (("own", "default/c"),)


def test_claims_of_a_pod_do_not_share_a_volume() -> None:
    static = storage_class(provisioner=rules.NO_PROVISIONER)
    two = [claim("large", "5Gi"), claim("small", "1Gi")]
    alone = known(static, *two, volume("v", "a", size="5Gi"), volume("w", "b", size="5Gi"))
    assert nodes(fitted(alone, "large", "small")) == []
    fit = fitted(known(static, *two, volume("v", "a", size="5Gi"), volume("w", "a", size="1Gi")), "large", "small")
    assert dict(fit.plan(0).bindings) == {"v": "default/large", "w": "default/small"}


def test_read_write_once_pod_claim_serves_one_pod() -> None:
    objects = known(claim(bound="v", accessModes=["ReadWriteOncePod"]), volume("v"))
    assert nodes(fitted(objects)) == NODES
    fit = fitted(objects, in_use={"n1": ["default/c"]})
    assert nodes(fit) == []
    assert why(fit, 0) == [rules.IN_USE]


def csi_node(name: str, count: int | None) -> CsiNode:
    driver = {"name": "csi.example.com", "allocatable": None if count is None else {"count": count}}
    return msgspec.convert({"metadata": {"name": name}, "spec": {"drivers": [driver]}}, CsiNode)


def test_node_enforces_the_attach_limit_of_a_driver() -> None:
    csi = {"driver": "csi.example.com", "volumeHandle": "h"}
    others = [claim("x", bound="vx"), claim("y"), volume("vx", csi={**csi, "volumeHandle": "x"})]
    objects = known(claim(), *others, csi_node("n0", 2), csi_node("n1", 3), csi_node("n2", None))
    use = {name: ["default/x", "default/y"] for name in NODES}
    fit = fitted(objects, in_use=use)
    assert nodes(fit) == ["n1", "n2"]
    assert why(fit, 0) == ["node(s) exceed max volume count"]
    assert nodes(fitted(objects, "x", in_use=use)) == NODES, "it is attached there already"


@pytest.mark.parametrize(("prevents", "allowed"), [(True, ["n0"]), (False, ["n0", "n1", "n2"]), (None, NODES)])
def test_driver_may_refuse_nodes_that_lack_it(prevents: bool | None, allowed: list[str]) -> None:
    driver = {"metadata": {"name": "csi.example.com"}, "spec": {"preventPodSchedulingIfMissing": prevents}}
    other = {"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "other.example.com"}]}}
    nodes_of_drivers = csi_node("n0", None), msgspec.convert(other, CsiNode)
    fit = fitted(known(claim(), *nodes_of_drivers, msgspec.convert(driver, CsiDriver)))
    assert nodes(fit) == allowed
    refused = ["csi.example.com CSI driver is not installed on the node"]
    assert [why(fit, slot) for slot in (1, 2)] == ([refused, refused] if prevents else [[], []])


def capacity(zone: str, amount: str, most: str | None = None) -> StorageCapacity:
    topology = {"matchLabels": {ZONE: zone}}
    body = {"storageClassName": "wait", "nodeTopology": topology, "capacity": amount, "maximumVolumeSize": most}
    return msgspec.convert({"metadata": {"name": f"in-{zone}"}, **body}, StorageCapacity)


def test_storage_capacity_counts_if_the_driver_reports_it() -> None:
    amounts = [capacity("a", "10Gi"), capacity("b", "10Gi", "1Gi"), capacity("c", "4Gi")]
    driver = {"metadata": {"name": "csi.example.com"}, "spec": {"storageCapacity": True}}
    objects = known(claim(size="5Gi"), *amounts, msgspec.convert(driver, CsiDriver))
    fit = fitted(objects)
    assert nodes(fit) == ["n0"]
    assert why(fit, 1) == ["node(s) did not have enough free storage"]
    objects.drivers.clear()
    assert nodes(fitted(objects)) == NODES


def test_the_first_claim_that_a_node_cannot_serve_is_the_reason() -> None:
    driver = {"metadata": {"name": "csi.example.com"}, "spec": {"storageCapacity": True}}
    local = storage_class("local", "kubernetes.io/no-provisioner")
    large = claim("large", "5Gi")
    objects = known(large, claim("small", "1Gi", cls="local"), local, msgspec.convert(driver, CsiDriver))
    assert why(fitted(objects, "large", "small"), 0) == ["node(s) didn't find available persistent volumes to bind"]
    small, other = claim("small", "1Gi"), claim("large", "5Gi", cls="local")
    objects = known(small, other, local, msgspec.convert(driver, CsiDriver))
    assert why(fitted(objects, "large", "small"), 0) == ["node(s) did not have enough free storage"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 6)), max_size=6),
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_plan_assigns_distinct_volumes(volumes: list[tuple[str, int]], sizes: list[int]) -> None:
    claims = [claim(f"c{i}", f"{size}Gi") for i, size in enumerate(sizes)]
    there = {f"v{i}": volume(f"v{i}", zone, size=f"{size}Gi") for i, (zone, size) in enumerate(volumes)}
    fit = fitted(known(*claims, *there.values()), *(each.metadata.name for each in claims))
    assert nodes(fit) == NODES, "what finds no volume is provisioned"
    for slot, labels in enumerate(LABELS):
        plan = fit.plan(slot)
        got = dict(plan.bindings)
        assert len(got) == len(plan.bindings)
        assert sorted([*got.values(), *plan.provisions]) == [each.key for each in claims]
        for name, key in got.items():
            index = int(key.rpartition("c")[2])
            zone, size = volumes[int(name[1:])]
            assert zone == labels[ZONE]
            assert size >= sizes[index]


def limited_node(name: str, driver: str, count: int) -> CsiNode:
    drivers = [{"name": driver, "allocatable": {"count": count}}]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"drivers": drivers}}, CsiNode)


def pod_with(*volumes: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"volumes": [{"name": f"v{i}", **v} for i, v in enumerate(volumes)]}}


IN_TREE = [
    ({"awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}}, "ebs.csi.aws.com", "vol-1"),
    ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, "ebs.csi.aws.com", "vol-1"),
    (
        {"gcePersistentDisk": {"pdName": "d"}},
        "pd.csi.storage.gke.io",
        "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
    ),
    ({"azureDisk": {"diskName": "d", "diskURI": "/d", "kind": "Managed"}}, "disk.csi.azure.com", "/d"),
    ({"cinder": {"volumeID": "d"}}, "cinder.csi.openstack.org", "d"),
    ({"portworxVolume": {"volumeID": "d"}}, "pxd.portworx.com", "d"),
]


@pytest.mark.parametrize(("source", "driver", "handle"), IN_TREE)
def test_in_tree_volumes_count_towards_the_limits_of_their_csi_driver(
    source: dict[str, Any], driver: str, handle: str
) -> None:
    (wanted,) = claims_of(pod_with(source))
    assert wanted.attachment == (driver, handle)
    other = f"{driver}:other"
    objects = known(limited_node("n0", driver, 1), limited_node("n1", driver, 2), limited_node("n2", "another", 0))
    in_use = {"n0": [other], "n1": [other]}
    fit = rules.fit(objects, (wanted,), "u", TABLE, in_use)
    assert nodes(fit) == ["n1", "n2"]
    assert why(fit, 0) == [rules.LIMIT]
    shared = rules.fit(objects, (wanted,), "u", TABLE, {"n0": [wanted.key]})
    assert nodes(shared) == NODES, "one volume of several pods counts once"
    assert volume_attachment(volume("v", **source)) == (driver, handle)


@pytest.mark.parametrize(
    "source",
    [
        {"azureFile": {"secretName": "s", "shareName": "a"}},
        {"vsphereVolume": {"volumePath": "[a] b"}},
        {"awsElasticBlockStore": {"volumeID": "aws://zone/disk"}},
        {"azureDisk": {"diskName": "d", "diskURI": "/d", "kind": "Dedicated"}},
        {"emptyDir": {}},
    ],
)
def test_other_volumes_inside_pods_do_not_count(source: dict[str, Any]) -> None:
    assert claims_of(pod_with(source)) == ()


@pytest.mark.parametrize(
    ("zones", "handle"),
    [
        ("a-1", "projects/UNSPECIFIED/zones/a-1/disks/d"),
        ("a-1__a-2", "projects/UNSPECIFIED/regions/a/disks/d"),
        ("a-1__b-2", None),
    ],
)
def test_handles_of_disks_name_their_zone_or_region(zones: str, handle: str | None) -> None:
    found = volume_attachment(volume("v", labels={ZONE: zones}, gcePersistentDisk={"pdName": "d"}))
    assert found == (None if handle is None else ("pd.csi.storage.gke.io", handle))


@pytest.mark.parametrize(
    ("provisioner", "allowed"),
    [("kubernetes.io/aws-ebs", ["n1", "n2"]), ("kubernetes.io/azure-file", NODES), ("ebs.csi.aws.com", ["n1", "n2"])],
)
def test_claims_of_in_tree_classes_count_before_they_are_bound(provisioner: str, allowed: list[str]) -> None:
    full = limited_node("n0", "ebs.csi.aws.com", 0)
    assert nodes(fitted(known(claim(), storage_class(provisioner=provisioner), full))) == allowed
