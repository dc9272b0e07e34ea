"""Claims, volumes, classes and CSI objects as far as scheduling needs them, and the claims of a pod."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from steersman.cluster.objects.fields import Object
from steersman.kubernetes.objects import NamedHead, ObjectMeta
from steersman.kubernetes.volumes.translation import Attachment, attachment

BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim that a pod uses, or a volume of an in-tree plugin inside the pod.

    Attributes:
        key: namespace and name of the claim; of a volume inside the pod its driver and handle.
        made_for: the pod for which a controller creates an ephemeral claim, else "".
        attachment: driver and handle of a volume inside the pod; None: it is a claim.
    """

    key: str
    made_for: str = ""
    attachment: Attachment | None = None

    @property
    def is_ephemeral(self) -> bool:
        """Whether the claim belongs to the pod."""
        return bool(self.made_for)

    @property
    def name(self) -> str:
        """Name of the claim without its namespace."""
        return self.key.rpartition("/")[2]


class OwnerReference(msgspec.Struct, frozen=True):
    """An entry of `metadata.ownerReferences`."""

    uid: str = ""
    controller: bool = False


class Metadata(ObjectMeta, frozen=True, rename="camel"):
    """`metadata` with the owners."""

    owner_references: list[OwnerReference] | None = None


class ClaimReference(msgspec.Struct, frozen=True):
    """`spec.claimRef` of a volume."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class CsiSource(msgspec.Struct, frozen=True, rename="camel"):
    """`spec.csi` of a volume."""

    driver: str = ""
    volume_handle: str = ""


class Phase(msgspec.Struct, frozen=True):
    """`status`."""

    phase: str = ""


class Resources(msgspec.Struct, frozen=True):
    """`spec.resources` of a claim."""

    requests: dict[str, Any] | None = None


class VolumeClaimSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a claim."""

    access_modes: list[str] | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_name: str = ""
    selector: dict[str, Any] | None = None
    resources: Resources = Resources()
    volume_attributes_class_name: str | None = None


class VolumeClaim(NamedHead, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: Metadata
    spec: VolumeClaimSpec = VolumeClaimSpec()
    status: Phase = Phase()

    @property
    def is_bound(self) -> bool:
        """Whether the volume controller has completed the binding."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in (self.metadata.annotations or {})

    @property
    def class_name(self) -> str:
        """Storage class, "" for none."""
        return (self.metadata.annotations or {}).get(BETA_CLASS) or self.spec.storage_class_name or ""

    @property
    def selected_node(self) -> str:
        """Node that its volume is to be provisioned for, "" if none was selected."""
        return (self.metadata.annotations or {}).get(SELECTED_NODE, "")


class VolumeSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a volume."""

    capacity: dict[str, Any] | None = None
    access_modes: list[str] | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    claim_ref: ClaimReference | None = None
    node_affinity: dict[str, Any] | None = None
    csi: CsiSource | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None
    volume_attributes_class_name: str | None = None


class Volume(msgspec.Struct, frozen=True):
    """A PersistentVolume."""

    metadata: ObjectMeta
    spec: VolumeSpec = VolumeSpec()
    status: Phase = Phase()

    @property
    def class_name(self) -> str:
        """Storage class, "" for none."""
        return (self.metadata.annotations or {}).get(BETA_CLASS) or self.spec.storage_class_name

    @property
    def attachment(self) -> Attachment | None:
        """CSI driver and handle, also of an in-tree volume that a driver has taken over; None: it has no driver."""
        csi = self.spec.csi
        if csi is not None:
            return (csi.driver, csi.volume_handle) if csi.driver and csi.volume_handle else None
        spec = self.spec
        in_tree = {
            "awsElasticBlockStore": spec.aws_elastic_block_store,
            "gcePersistentDisk": spec.gce_persistent_disk,
            "azureDisk": spec.azure_disk,
            "cinder": spec.cinder,
            "portworxVolume": spec.portworx_volume,
        }
        return attachment(in_tree, self.metadata.labels or {})


class StorageClass(msgspec.Struct, frozen=True, rename="camel"):
    """A StorageClass."""

    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[dict[str, Any]] | None = None


class Allocatable(msgspec.Struct, frozen=True):
    """`allocatable` of a driver on a node."""

    count: int | None = None


class NodeDriver(msgspec.Struct, frozen=True):
    """An entry of a CSINode's `spec.drivers`."""

    name: str
    allocatable: Allocatable | None = None


class CsiNodeSpec(msgspec.Struct, frozen=True):
    """`spec` of a CSINode."""

    drivers: list[NodeDriver] | None = None


class CsiNode(msgspec.Struct, frozen=True):
    """A CSINode."""

    metadata: ObjectMeta
    spec: CsiNodeSpec = CsiNodeSpec()


class CsiDriverSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a CSIDriver."""

    storage_capacity: bool | None = None


class CsiDriver(msgspec.Struct, frozen=True):
    """A CSIDriver."""

    metadata: ObjectMeta
    spec: CsiDriverSpec = CsiDriverSpec()


class StorageCapacity(msgspec.Struct, frozen=True, rename="camel"):
    """A CSIStorageCapacity."""

    metadata: ObjectMeta
    storage_class_name: str = ""
    node_topology: dict[str, Any] | None = None
    capacity: Any = None
    maximum_volume_size: Any = None


def pod_claims(obj: Object) -> tuple[PodClaim, ...]:
    """Return the claims of a v1 Pod, and its in-tree volumes, each once. Invalid ones are left out."""
    metadata, spec = obj.get("metadata"), obj.get("spec")
    if not isinstance(metadata, dict) or not isinstance(spec, dict) or not isinstance(spec.get("volumes"), list):
        return ()
    namespace = metadata.get("namespace") or "default"
    return tuple(dict.fromkeys(_claims(spec["volumes"], f"{namespace}/", str(metadata.get("name", "")))))


def _claims(volumes: list[Any], namespace: str, pod: str) -> Iterator[PodClaim]:
    for volume in volumes:
        if not isinstance(volume, dict):
            continue
        source = volume.get("persistentVolumeClaim")
        if isinstance(source, dict):
            yield PodClaim(f"{namespace}{source.get('claimName', '')}")
        elif volume.get("ephemeral"):
            yield PodClaim(f"{namespace}{pod}-{volume.get('name', '')}", made_for=f"{namespace}{pod}")
        elif found := attachment(volume):
            yield PodClaim(f"{found[0]}:{found[1]}", attachment=found)
