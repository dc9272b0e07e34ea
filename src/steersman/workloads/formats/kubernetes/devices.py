"""Extended resources of files that nodes offer by Dynamic Resource Allocation, see `cluster.objects.device_offers`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from steersman.cluster.model import Node, Pod
from steersman.cluster.objects.api.decoding import converted
from steersman.cluster.objects.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from steersman.cluster.objects.api.metadata import NamedObject
from steersman.cluster.objects.device_offers import DeviceOffers, device_offers
from steersman.cluster.objects.fields import FieldError
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject

KINDS: Mapping[str, type[NamedObject]] = MappingProxyType(
    {"DeviceClass": DeviceClass, "ResourceSlice": ResourceSlice, "ResourceClaim": ResourceClaim}
)


def read_device_object(obj: KubernetesObject) -> Any:
    """Return an object of one of the `KINDS`. Raises FieldError: it is invalid."""
    if not obj.name:
        raise FieldError("metadata.name", "is missing")
    return converted(obj.content, KINDS[obj.kind])


def offers_of(objects: Iterable[KubernetesObject], nodes: Sequence[Node]) -> DeviceOffers:
    """Return what the nodes offer by objects of the `KINDS`."""
    known: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for obj in objects:
        known[obj.kind].append(read_device_object(obj))
    names = {node.name for node in nodes}
    return device_offers(known["DeviceClass"], known["ResourceSlice"], known["ResourceClaim"], names)


def offer_warnings(offers: DeviceOffers, pods: Iterable[Pod]) -> Iterator[str]:
    """Yield a warning for each resource that pods request of a DeviceClass that is not modelled."""
    using: dict[str, list[str]] = {}
    for pod in pods:
        for what in offers.unmodelled(pod):
            using.setdefault(what, []).append(pod.name)
    for what, names in sorted(using.items()):
        first = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        yield f"no node offers {what} ({len(names)} pods: {first})"
