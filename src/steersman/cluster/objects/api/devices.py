"""Objects of resource.k8s.io/v1 as far as placement needs them: DeviceClass, ResourceSlice, ResourceClaim."""

from __future__ import annotations

from typing import Any

import msgspec

from steersman.cluster.objects.api.metadata import NamedObject

IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""What precedes the name of a DeviceClass in the name of its extended resource."""
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
