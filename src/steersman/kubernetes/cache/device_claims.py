"""GPUs that ResourceClaims hold, and devices that nodes offer, watched from when a pod first may need them.

A device that a driver of Dynamic Resource Allocation allocated may be one that a node offers by other means, too. So a
bound pod holds, beside its requests, the GPUs of its claims. Which devices are GPUs follows from their DeviceClass
(`extendedResourceName`), or else from their driver's name.

Source: Kubernetes 1.37, resource.k8s.io/v1 (ResourceClaim, DeviceClass).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog

from steersman.cluster.model import PLUGIN_GPUS
from steersman.cluster.objects.api.claims import Device, DeviceClass, ResourceClaim, ResourceSlice
from steersman.cluster.objects.device_offers import DeviceId, DeviceOffers, device_offers
from steersman.kubernetes.client import Client
from steersman.kubernetes.watch import NeededReflector

CLAIMS_PATH = "/apis/resource.k8s.io/v1/resourceclaims"
CLASSES_PATH = "/apis/resource.k8s.io/v1/deviceclasses"
SLICES_PATH = "/apis/resource.k8s.io/v1/resourceslices"
DRIVERS: Mapping[str, str] = {
    "gpu.nvidia.com": "nvidia.com/gpu",
    "gpu.amd.com": "amd.com/gpu",
    "gpu.intel.com": "gpu.intel.com/xe",
    "gaudi.intel.com": "habana.ai/gaudi",
}
"""The resource whose devices a driver gives away where no DeviceClass says so."""

log = structlog.get_logger("device claims")


class HeldDevices(NamedTuple):
    """The pod that a claim's devices count for, and the number of GPUs by resource name."""

    pod: str
    uid: str
    gpus: Counter[str]


class DeviceClaims:
    """GPUs of ResourceClaims, and devices that nodes offer by ResourceSlices, kept by watches once they are needed.

    Args:
        changed: called with the key of a pod whose GPUs may have changed.
        offers_changed: called with the last offers after `offers` changed.
    """

    def __init__(
        self, client: Client, changed: Callable[[str], None], offers_changed: Callable[[DeviceOffers], None]
    ) -> None:
        self._tell, self._tell_offers = changed, offers_changed
        self.offers = DeviceOffers()  # extended resources that nodes offer by DRA
        self._slices: dict[str, ResourceSlice] = {}
        self._claims: dict[str, ResourceClaim] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._held: dict[str, HeldDevices] = {}
        self._of_pod: dict[str, set[str]] = {}
        # One per collection
        self.reflectors = (
            NeededReflector(client, CLASSES_PATH, DeviceClass, self._classes, self._class_changed, self._say_refused),
            NeededReflector(client, SLICES_PATH, ResourceSlice, self._slices, self._slice_changed, self._say_refused),
            NeededReflector(client, CLAIMS_PATH, ResourceClaim, self._claims, self._claim_changed, self._say_refused),
        )
        self._are_claims_needed = False

    def need(self) -> None:
        """Start the watches, since a pod has a claim."""
        self._are_claims_needed = True
        for reflector in self.reflectors:
            reflector.need()

    def need_classes(self) -> None:
        """Watch which resources nodes may offer by DRA, since a pod requests one."""
        self.reflectors[0].need()

    def for_requests_of(self, uid: str) -> list[str]:
        """Return the names of allocated claims for requests of the pod with this uid."""
        return [
            claim.metadata.name
            for claim in self._claims.values()
            if claim.is_for_requests and any(each.uid == uid for each in claim.status.reserved_for or ())
        ]

    @property
    def allocated(self) -> frozenset[DeviceId]:
        devices = (device for claim in self._claims.values() for device in claim.devices)
        return frozenset(DeviceId(each.driver, each.pool, each.device) for each in devices)

    def gpus(self, pod: str, uid: str) -> tuple[str, int]:
        """Return the resource name and number of the GPUs that a pod's claims hold; ("", 0) if none.

        Of several names the one with most devices counts.
        """
        total = Counter[str]()
        for key in self._of_pod.get(pod, ()):
            held = self._held[key]
            if held.uid == uid:
                total += held.gpus
        # The name breaks ties, so that the choice does not depend on the order of events.
        return max(total.items(), key=lambda item: (item[1], item[0]), default=("", 0))

    def _class_changed(self, key: str) -> None:
        if self._classes:
            for reflector in self.reflectors:
                reflector.need()
        self._claim_changed("")
        self._slice_changed(key)

    def _slice_changed(self, key: str) -> None:
        """Compute the offers again, but not for each object of a list."""
        if key and not all(reflector.synced.is_set() for reflector in self.reflectors):
            return
        last = self.offers
        self.offers = device_offers(
            self._classes.values(), self._slices.values(), self._claims.values(), counted=PLUGIN_GPUS
        )
        if self.offers != last:
            self._tell_offers(last)

    def _say_refused(self, resource: str) -> None:
        if self._are_claims_needed or self._classes:
            log.warning("devices of DRA are not counted: they cannot be listed", resource=resource)

    def _claim_changed(self, key: str) -> None:
        pods = set[str]()
        for each in [key] if key else sorted(self._claims.keys() | self._held.keys()):
            pods |= self._follow(each)
        for pod in sorted(pods):
            self._tell(pod)
        # Allocated devices lessen only offers of other resources, see `counted` of `device_offers`.
        if any(name not in PLUGIN_GPUS for name in self.offers.names.values()):
            self._slice_changed(key)

    def _follow(self, key: str) -> set[str]:
        claim = self._claims.get(key)
        before, now = self._held.get(key), None if claim is None else self._held_by(claim)
        if before == now:
            return set()
        if before is not None:
            del self._held[key]
            self._of_pod[before.pod].discard(key)
            if not self._of_pod[before.pod]:
                del self._of_pod[before.pod]
        if now is not None:
            self._held[key] = now
            self._of_pod.setdefault(now.pod, set()).add(key)
        return {each.pod for each in (before, now) if each is not None}

    def _held_by(self, claim: ResourceClaim) -> HeldDevices | None:
        """Return the devices of a claim and the pod they count for: of several the first by name."""
        pods = [each for each in claim.status.reserved_for or () if each.resource == "pods"]
        # The pod's requests already count devices of a claim for requests.
        devices = () if claim.is_for_requests else claim.devices
        gpus = Counter(name for device in devices if (name := self._resource(device, claim)))
        if not pods or not gpus:
            return None
        first = min(pods, key=lambda each: each.name)
        return HeldDevices(f"{claim.metadata.namespace}/{first.name}", first.uid, gpus)

    def _resource(self, device: Device, claim: ResourceClaim) -> str:
        """Return the name under which device plugins offer such GPUs, "" if the device is no GPU."""
        value = self._classes.get(_class_name(claim, device.request))
        stated = value.spec.extended_resource_name if value is not None else None
        name = stated or DRIVERS.get(device.driver, "")
        return name if name in PLUGIN_GPUS else ""


def _class_name(claim: ResourceClaim, request: str) -> str:
    """Return the DeviceClass of a request, `name` or `name/subrequest`."""
    name, _, sub = request.partition("/")
    for each in claim.spec.devices.requests or ():
        if each.name != name:
            continue
        if each.exactly is not None:
            return each.exactly.device_class_name
        return next((one.device_class_name for one in each.first_available or () if one.name == sub), "")
    return ""
