"""Claims, volumes, classes and CSI objects."""

from __future__ import annotations

from typing import Any

import msgspec

from steersman.cluster.objects.api.metadata import LabelSelector, NamedObject, NodeSelector
from steersman.cluster.objects.api.pods import InTreeSources

BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"


class ClaimReference(msgspec.Struct, frozen=True):
    """`spec.claimRef` of a volume."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class CsiSource(msgspec.Struct, frozen=True, rename="camel"):
    """`spec.csi` of a volume."""

    driver: str = ""
    volume_handle: str = ""


class PhaseStatus(msgspec.Struct, frozen=True):
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
    selector: LabelSelector | None = None
    resources: Resources = Resources()
    volume_attributes_class_name: str | None = None


class VolumeClaim(NamedObject, frozen=True):
    """A PersistentVolumeClaim."""

    spec: VolumeClaimSpec = VolumeClaimSpec()
    status: PhaseStatus = PhaseStatus()

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
        return str((self.metadata.annotations or {}).get(SELECTED_NODE, ""))


class VolumeNodeAffinity(msgspec.Struct, frozen=True):
    """`spec.nodeAffinity` of a volume."""

    required: NodeSelector | None = None


class VolumeSpec(InTreeSources, frozen=True, rename="camel"):
    """`spec` of a volume."""

    capacity: dict[str, Any] | None = None
    access_modes: list[str] | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    claim_ref: ClaimReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None
    volume_attributes_class_name: str | None = None


class Volume(NamedObject, frozen=True):
    """A PersistentVolume."""

    spec: VolumeSpec = VolumeSpec()
    status: PhaseStatus = PhaseStatus()

    @property
    def class_name(self) -> str:
        """Storage class, "" for none."""
        return (self.metadata.annotations or {}).get(BETA_CLASS) or self.spec.storage_class_name


class TopologyExpression(msgspec.Struct, frozen=True):
    """An entry of `matchLabelExpressions`."""

    key: str
    values: list[str]


class TopologyTerm(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `allowedTopologies`."""

    match_label_expressions: list[TopologyExpression] | None = None


class StorageClass(NamedObject, frozen=True, rename="camel"):
    """A StorageClass."""

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologyTerm] | None = None


class VolumeNodeResources(msgspec.Struct, frozen=True):
    """`allocatable` of a driver on a node."""

    count: int | None = None


class CsiNodeDriver(msgspec.Struct, frozen=True):
    """An entry of a CSINode's `spec.drivers`."""

    name: str
    allocatable: VolumeNodeResources | None = None


class CsiNodeSpec(msgspec.Struct, frozen=True):
    """`spec` of a CSINode."""

    drivers: list[CsiNodeDriver] | None = None


class CsiNode(NamedObject, frozen=True):
    """A CSINode."""

    spec: CsiNodeSpec = CsiNodeSpec()


class CsiDriverSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a CSIDriver."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CsiDriver(NamedObject, frozen=True):
    """A CSIDriver."""

    spec: CsiDriverSpec = CsiDriverSpec()


class StorageCapacity(NamedObject, frozen=True, rename="camel"):
    """A CSIStorageCapacity."""

    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Any = None
    maximum_volume_size: Any = None
