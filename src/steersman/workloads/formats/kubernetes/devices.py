"""Devices of Dynamic Resource Allocation in files: extended resources that nodes offer by it, and claims of pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from steersman.cluster.model import Node, Pod
from steersman.cluster.objects.api.devices import IMPLICIT
from steersman.cluster.objects.api.pods import PodObject
from steersman.cluster.objects.device_offers import DeviceOffers, device_offers
from steersman.cluster.objects.partial import mapping_or_empty
from steersman.core.counting import first_names
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject

KINDS = ("DeviceClass", "ResourceSlice", "ResourceClaim", "ResourceClaimTemplate")
_MODELLED = {"name", "exactly", "deviceClassName", "count", "allocationMode"}
"""Fields of a request for devices; others choose among them."""


class PodClaims:
    """Devices that pods request by claims: so many of a DeviceClass count as of its extended resource.

    Claims that several pods share, that choose among devices, or whose template is missing are not modelled.

    Args:
        objects: of all inputs.
    """

    def __init__(self, objects: Iterable[KubernetesObject]) -> None:
        self._classes: set[str] = set()
        self._requests: dict[tuple[str, str, str], Mapping[str, Any]] = {}
        self._users: Counter[tuple[str, str]] = Counter()
        for obj in objects:
            spec = obj.content.get("spec")
            if obj.kind == "DeviceClass":
                self._classes.add(obj.name)
            elif obj.kind == "ResourceClaimTemplate" and isinstance(spec, dict):
                self._requests[obj.kind, obj.namespace, obj.name] = spec.get("spec") or {}
            elif obj.kind == "ResourceClaim" and isinstance(spec, dict):
                self._requests[obj.kind, obj.namespace, obj.name] = spec
            elif obj.kind == "Pod":
                for each in obj.pod.spec.resource_claims or ():
                    self._users[obj.namespace, str(mapping_or_empty(each).get("resourceClaimName") or "")] += 1

    def amounts(self, pod: PodObject, namespace: str) -> Counter[str] | None:
        """Return how many devices of each extended resource the claims of a pod request; None: not modelled."""
        total: Counter[str] = Counter()
        for claim in map(mapping_or_empty, pod.spec.resource_claims or ()):
            name, template = str(claim.get("resourceClaimName") or ""), claim.get("resourceClaimTemplateName")
            key = ("ResourceClaim", namespace, name) if name else ("ResourceClaimTemplate", namespace, str(template))
            devices = mapping_or_empty(self._requests.get(key, {}).get("devices"))
            if not self._classes or not devices.get("requests") or devices.get("constraints"):
                return None
            if name and self._users[namespace, name] > 1:
                return None
            for request in devices["requests"]:
                stated = {**mapping_or_empty(request), **mapping_or_empty(mapping_or_empty(request).get("exactly"))}
                count = stated.get("count", 1)
                mode, device_class = stated.get("allocationMode", "ExactCount"), stated.get("deviceClassName")
                if stated.keys() - _MODELLED or mode != "ExactCount" or type(count) is not int or not device_class:
                    return None
                total[f"{IMPLICIT}{device_class}"] += count
        return total

    def requesting(self, pod: Pod, stated: PodObject) -> Pod:
        """Return a pod that also requests the devices of its claims as extended resources."""
        amounts = self.amounts(stated, pod.namespace) if stated.spec.resource_claims else None
        if not amounts:
            return pod
        extended = tuple(sorted((Counter(dict(pod.requests.extended)) + amounts).items()))
        return replace(pod, pod_class=replace(pod.pod_class, requests=replace(pod.requests, extended=extended)))


def offers_of(objects: Iterable[KubernetesObject], nodes: Sequence[Node], pods: Iterable[Pod]) -> DeviceOffers:
    """Return what the nodes offer by objects of the `KINDS`. Devices that `pods` request are not allocated already."""
    by_kind: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for obj in objects:
        by_kind[obj.kind].append(obj.typed)
    names = {node.name for node in nodes}
    requesting = (pod for pod in pods if any(name.startswith(IMPLICIT) for name, _ in pod.requests.extended))
    counted = {(pod.namespace, pod.name) for pod in requesting}
    claims = (
        claim
        for claim in by_kind["ResourceClaim"]
        if not any(
            (claim.metadata.namespace or "default", user.name) in counted for user in claim.status.reserved_for or ()
        )
    )
    return device_offers(by_kind["DeviceClass"], by_kind["ResourceSlice"], claims, names)


def offer_warnings(offers: DeviceOffers, pods: Iterable[Pod]) -> Iterator[str]:
    """Yield a warning for each resource that pods request of a DeviceClass that is not modelled."""
    using: dict[str, list[str]] = {}
    for pod in pods:
        for what in offers.unmodelled(pod):
            using.setdefault(what, []).append(pod.name)
    for what, names in sorted(using.items()):
        yield f"no node offers {what} ({len(names)} pods: {first_names(names)})"
