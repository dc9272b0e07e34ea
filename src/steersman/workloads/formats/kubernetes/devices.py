"""Extended resources of files that nodes offer by Dynamic Resource Allocation, see `cluster.objects.device_offers`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from steersman.cluster.model import Node, Pod
from steersman.cluster.objects.device_offers import DeviceOffers, device_offers
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject

KINDS = ("DeviceClass", "ResourceSlice", "ResourceClaim")


def offers_of(objects: Iterable[KubernetesObject], nodes: Sequence[Node]) -> DeviceOffers:
    """Return what the nodes offer by objects of the `KINDS`."""
    known: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for obj in objects:
        known[obj.kind].append(obj.typed)
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
