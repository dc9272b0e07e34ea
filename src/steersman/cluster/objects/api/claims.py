"""Claims: volumes, their classes and CSI objects; devices by resource.k8s.io/v1, as far as placement needs them."""

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


IMPLICIT = "deviceclass.resource.kubernetes.io/"  # precedes the DeviceClass in the name of its extended resource
FOR_REQUESTS = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of claims that a scheduler creates for resource requests, which count already."""


# DeviceClass


class CelSelector(msgspec.Struct, frozen=True):
    """`cel` of a selector."""

    expression: str = ""


class DeviceSelector(msgspec.Struct, frozen=True):
    """An entry of `spec.selectors`."""

    cel: CelSelector | None = None


class DeviceClassSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a DeviceClass."""

    selectors: list[DeviceSelector] | None = None
    config: list[dict[str, Any]] | None = None
    extended_resource_name: str | None = None


class DeviceClass(NamedObject, frozen=True):
    """A DeviceClass."""

    spec: DeviceClassSpec = DeviceClassSpec()


# ResourceSlice


class DevicePool(msgspec.Struct, frozen=True, rename="camel"):
    """`spec.pool`."""

    name: str
    generation: int = 0
    resource_slice_count: int = 1


class DeviceTaint(msgspec.Struct, frozen=True):
    """A taint of a device."""

    effect: str = ""


class SliceDevice(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `spec.devices`."""

    name: str
    attributes: dict[str, dict[str, Any]] | None = None
    capacity: dict[str, dict[str, Any]] | None = None
    node_name: str | None = None
    taints: list[DeviceTaint] | None = None
    consumes_counters: list[Any] | None = None
    allow_multiple_allocations: bool | None = None
    binding_conditions: list[str] | None = None
    node_allocatable_resource_mappings: dict[str, Any] | None = None


class SliceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a ResourceSlice."""

    driver: str
    pool: DevicePool
    node_name: str | None = None
    per_device_node_selection: bool | None = None
    devices: list[SliceDevice] | None = None


class ResourceSlice(NamedObject, frozen=True, kw_only=True):
    """A ResourceSlice."""

    spec: SliceSpec


# ResourceClaim


class DeviceRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Class of devices of a request or subrequest."""

    device_class_name: str = ""


class SubRequest(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `firstAvailable`."""

    name: str = ""
    device_class_name: str = ""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `spec.devices.requests`."""

    name: str = ""
    exactly: DeviceRequest | None = None
    first_available: list[SubRequest] | None = None


class Requested(msgspec.Struct, frozen=True):
    """`spec.devices`."""

    requests: list[Request] | None = None


class DeviceClaimSpec(msgspec.Struct, frozen=True):
    """`spec` of a claim."""

    devices: Requested = Requested()


class Device(msgspec.Struct, frozen=True, rename="camel"):
    """An allocated device."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None


class Allocated(msgspec.Struct, frozen=True):
    """`status.allocation.devices`."""

    results: list[Device] | None = None


class Allocation(msgspec.Struct, frozen=True):
    """`status.allocation`."""

    devices: Allocated = Allocated()


class Consumer(msgspec.Struct, frozen=True):
    """An entry of `status.reservedFor`."""

    resource: str = ""
    name: str = ""
    uid: str = ""


class ClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of a claim."""

    allocation: Allocation | None = None
    reserved_for: list[Consumer] | None = None


class ResourceClaim(NamedObject, frozen=True):
    """A ResourceClaim."""

    spec: DeviceClaimSpec = DeviceClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def is_for_requests(self) -> bool:
        """Whether a scheduler created it for resource requests of its pod."""
        return FOR_REQUESTS in (self.metadata.annotations or {})

    @property
    def devices(self) -> list[Device]:
        """Devices that are exclusive to the claim, each once."""
        if self.status.allocation is None:
            return []
        exclusive = [each for each in self.status.allocation.devices.results or () if not each.admin_access]
        return list({(each.driver, each.pool, each.device): each for each in exclusive}.values())
