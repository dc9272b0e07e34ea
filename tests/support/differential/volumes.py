"""Random claims, volumes, storage classes and CSI objects, and the volumes of a pod that use them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.differential.draws import Draws
from tests.support.differential.nodes import BETA_ZONE, HOSTNAME, REGION, ZONE, ZONES, Object
from tests.support.differential.selectors import NAMESPACES, node_term
from tests.support.kubernetes import is_since

BOUND = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
CLASSES = ("waits", "immediate", "local", "zonal", "counted", "in-tree")
EBS, GCE = "ebs.csi.aws.com", "pd.csi.storage.gke.io"
DRIVERS = ("csi.example.com", "other.example.com")
AZURE_DISKS = "/subscriptions/s/resourcegroups/g/providers/microsoft.compute/disks"
IN_TREE_DRIVERS = (EBS, GCE, "disk.csi.azure.com", "cinder.csi.openstack.org", "pxd.portworx.com", "file.csi.azure.com")
NO_PROVISIONER = "kubernetes.io/no-provisioner"
MODES = ("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")
SIZES = ("1Gi", "5Gi", "10Gi")


def storage(draws: Draws, nodes: Sequence[str], claims: int) -> list[Object]:
    """Return classes, drivers, and for each claim the claim and perhaps its volume, and volumes that are free."""
    objects = [*classes(draws), *_drivers(draws, nodes)]
    for i in range(claims):
        objects += _claim(draws, i, nodes)
    for i in range(draws.number(0, 2)):
        objects.append(_volume(draws, f"free{i}", nodes, draws.choice(CLASSES)))
    return objects


def free_storage(draws: Draws, nodes: Sequence[str], claims: int) -> list[Object]:
    """Return claims that wait for a node, and what there is for them: little stands in the way of scores."""
    objects = [
        _class("counted", DRIVERS[1], "WaitForFirstConsumer"),
        _class("waits", DRIVERS[1], "WaitForFirstConsumer"),
        _class("local", NO_PROVISIONER, "WaitForFirstConsumer"),
        {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVERS[1]}},
    ]
    objects[-1]["spec"] = {"storageCapacity": True}
    for node in nodes:
        driver = {"name": DRIVERS[1], "nodeID": node, "topologyKeys": []}
        objects.append(_storage_object("CSINode", {"name": node}, spec={"drivers": [driver]}))
        for name in ("counted", "waits"):
            if draws.chance(80):
                capacity: Object = {"storageClassName": name, "nodeTopology": {"matchLabels": {HOSTNAME: node}}}
                capacity["capacity"] = draws.choice(("12Gi", "20Gi", "33Gi", "100Gi", "5Gi"))
                metadata = {"name": f"{name}-{node}", "namespace": NAMESPACES[0]}
                objects.append(_storage_object("CSIStorageCapacity", metadata, **capacity))
    for i in range(claims):
        spec: Object = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": draws.choice((*SIZES, "3Gi"))}},
            "storageClassName": draws.choice(("counted", "counted", "waits", "local")),
        }
        metadata = {"name": claim_name(i), "namespace": NAMESPACES[0], "uid": f"uid-{claim_name(i)}"}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
        objects.append({**claim, "status": {"phase": "Pending"}})
    for i in range(draws.number(0, 5)):
        volume = _volume(draws, f"free{i}", nodes, draws.choice(("counted", "waits", "local", "local")))
        volume["spec"] |= {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": draws.choice((*SIZES, "7Gi"))}}
        volume["metadata"]["labels"] = {}
        objects.append(volume)
    return objects


def claim_name(number: int) -> str:
    """Return the name of a claim."""
    return f"claim{number}"


def classes(draws: Draws) -> list[Object]:
    """Return the storage classes."""
    topology = {"matchLabelExpressions": [{"key": ZONE, "values": draws.some(ZONES, 2)}]}
    return [
        _class("waits", DRIVERS[0], "WaitForFirstConsumer"),
        _class("immediate", DRIVERS[0], "Immediate"),
        _class("local", NO_PROVISIONER, "WaitForFirstConsumer"),
        {**_class("zonal", DRIVERS[0], "WaitForFirstConsumer"), "allowedTopologies": [topology]},
        _class("counted", DRIVERS[1], "WaitForFirstConsumer"),
        _class("in-tree", draws.choice(("kubernetes.io/aws-ebs", "kubernetes.io/azure-file")), "WaitForFirstConsumer"),
    ]


def _class(name: str, provisioner: str, mode: str) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }


def _drivers(draws: Draws, nodes: Sequence[str]) -> list[Object]:
    objects: list[Object] = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": DRIVERS[1]},
            "spec": {
                "storageCapacity": True,
                # Older API servers refuse a field that they do not know.
                **({"preventPodSchedulingIfMissing": draws.chance(30)} if is_since("1.37") else {}),
            },
        }
    ]
    for node in nodes:
        drivers: list[Object] = []
        for driver in (*DRIVERS, draws.choice(IN_TREE_DRIVERS), EBS) if draws.chance(60) else ():
            if any(known["name"] == driver for known in drivers):
                continue
            each: Object = {"name": driver, "nodeID": node, "topologyKeys": []}
            if draws.chance(60):
                each["allocatable"] = {"count": draws.number(0, 2)}
            drivers.append(each)
        if drivers:
            objects.append(_storage_object("CSINode", {"name": node}, spec={"drivers": drivers}))
    for i, zone in enumerate(ZONES):
        if draws.chance(40):
            capacity = {
                "storageClassName": "counted",
                "capacity": draws.choice(("4Gi", "12Gi", "100Gi")),
                "nodeTopology": {"matchLabels": {ZONE: zone}},
            }
            if draws.chance(20):
                capacity["maximumVolumeSize"] = "2Gi"
            metadata = {"name": f"capacity{i}", "namespace": NAMESPACES[0]}
            objects.append(_storage_object("CSIStorageCapacity", metadata, **capacity))
    return objects


def _storage_object(kind: str, metadata: Object, **fields: object) -> Object:
    return {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": metadata, **fields}


def _claim(draws: Draws, number: int, nodes: Sequence[str]) -> list[Object]:
    """Return a claim in the first namespace and, if it is bound, its volume."""
    name, volume = claim_name(number), f"volume{number}"
    storage_class = draws.choice(CLASSES)
    spec: Object = {
        "accessModes": [draws.choice(MODES)],
        "resources": {"requests": {"storage": draws.choice(SIZES)}},
        "storageClassName": storage_class,
    }
    metadata: Object = {"name": name, "namespace": NAMESPACES[0], "uid": f"uid-{name}"}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
    if draws.chance(4):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        metadata["finalizers"] = ["kubernetes.io/pvc-protection"]
    if not draws.chance(55):
        claim["status"] = {"phase": draws.choice(("Pending", "Pending", "Pending", "Lost"))}
        if draws.chance(8):
            metadata["annotations"] = {"volume.kubernetes.io/selected-node": draws.choice(nodes)}
        if draws.chance(10):
            spec["selector"] = {"matchLabels": {ZONE: draws.choice(ZONES)}}
        if draws.chance(15):
            prebound = _volume(draws, volume, nodes, storage_class)
            prebound["spec"]["claimRef"] = {"name": name, "namespace": NAMESPACES[0]}
            return [claim, prebound]
        return [claim]
    spec["volumeName"] = volume
    metadata["annotations"] = BOUND
    claim["status"] = {"phase": "Bound"}
    if draws.chance(5):
        return [claim]
    bound = _volume(draws, volume, nodes, storage_class)
    bound["spec"]["claimRef"] = {"name": name, "namespace": NAMESPACES[0], "uid": metadata["uid"]}
    bound["spec"]["accessModes"], bound["status"] = spec["accessModes"], {"phase": "Bound"}
    return [claim, bound]


def _volume(draws: Draws, name: str, nodes: Sequence[str], storage_class: str) -> Object:
    labels = {}
    if draws.chance(25):
        labels[draws.choice((ZONE, BETA_ZONE))] = draws.choice((*ZONES, "z0__z1"))
    if draws.chance(8):
        labels[REGION] = draws.choice(("west", "east"))
    spec: Object = {
        "capacity": {"storage": draws.choice(SIZES)},
        "accessModes": [draws.choice(MODES)],
        "storageClassName": storage_class,
    }
    if draws.chance(60):
        spec["csi"] = {"driver": draws.choice(DRIVERS), "volumeHandle": draws.choice(("shared", name))}
    elif draws.chance(50):
        spec |= in_tree_volume(draws)
    else:
        spec["nfs"] = {"server": "nfs.example", "path": "/"}
    if draws.chance(40):
        term = node_term(draws, nodes)
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Available"},
    }


def in_tree_volume(draws: Draws) -> Object:
    """Return the source of a volume of an in-tree plugin; several may be the same.

    Left out: sources that cannot be translated, for which kube-scheduler's filter fails.
    """
    volume = draws.choice(("vol-1", "vol-2", "aws://z0/vol-1"))
    return draws.choice(
        (
            {"awsElasticBlockStore": {"volumeID": volume}},
            {"awsElasticBlockStore": {"volumeID": "vol-1"}},
            {"gcePersistentDisk": {"pdName": draws.choice(("a", "b"))}},
            {"azureDisk": {"diskName": "d", "diskURI": f"{AZURE_DISKS}/{draws.choice(('a', 'b'))}", "kind": "Managed"}},
            {"azureFile": {"secretName": "s", "shareName": "a"}},
            {"cinder": {"volumeID": draws.choice(("a", "b"))}},
            {"portworxVolume": {"volumeID": draws.choice(("a", "b"))}},
            {"vsphereVolume": {"volumePath": "[a] b"}},
        )
    )


def use_claims(draws: Draws, pod: Object, claims: int, *, running: bool = False) -> list[Object]:
    """Give a pod volumes with claims, some of which do not exist; return claims that were made for the pod.

    A running pod owns its ephemeral claims: kube-scheduler ends every attempt where one does not
    (docs/explanation/limits.md).
    """
    metadata = pod["metadata"]
    if metadata["namespace"] != NAMESPACES[0] or not draws.chance(60):
        return []
    names = [claim_name(i) for i in range(claims)]
    if draws.chance(4):
        names.append("absent")
    volumes: list[Object] = [
        {"name": f"v{i}", "persistentVolumeClaim": {"claimName": name}} for i, name in enumerate(draws.some(names, 2))
    ]
    volumes += pod["spec"].get("volumes", [])
    if draws.chance(30):
        volumes.append({"name": "in-tree", **in_tree_volume(draws)})
    pod["spec"]["volumes"] = volumes
    if not draws.chance(15):
        return []
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": draws.choice(SIZES)}},
        "storageClassName": draws.choice(CLASSES),
    }
    volumes.append({"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}})
    if draws.chance(10):
        return []
    name = metadata["name"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "controller": True}
    own_uid = f"{metadata['namespace']}/{name}"
    owner["uid"] = own_uid if running else draws.choice((own_uid, own_uid, "other"))
    own = {"name": f"{name}-own", "namespace": NAMESPACES[0], "uid": f"uid-{name}", "ownerReferences": [owner]}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": own, "spec": spec}
    return [{**claim, "status": {"phase": "Pending"}}]
