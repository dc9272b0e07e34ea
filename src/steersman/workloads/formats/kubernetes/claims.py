"""Claims of pods in files: devices by DRA, and volumes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from steersman.cluster.constraints.node import NodeTable
from steersman.cluster.model import Node, Pod
from steersman.cluster.objects.api.claims import BIND_COMPLETED, IMPLICIT, VolumeClaim
from steersman.cluster.objects.api.pods import PodObject
from steersman.cluster.objects.decoding import REFUSALS_KEY
from steersman.cluster.objects.device_offers import DeviceOffers, device_offers
from steersman.cluster.objects.fields import FieldError
from steersman.cluster.objects.replicas import mapping_or_empty
from steersman.cluster.volumes import PodClaim, VolumeObjects, fit, pod_claims, waits_for_consumer
from steersman.core.counting import first_names
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject

DEVICE_KINDS = ("DeviceClass", "ResourceSlice", "ResourceClaim", "ResourceClaimTemplate")
_MODELLED = {"name", "exactly", "deviceClassName", "count", "allocationMode"}
"""Fields of a request for devices; others choose among them."""


class PodClaims:
    """Devices that pods request by claims: so many of a DeviceClass count as of its extended resource.

    Claims that several pods share, that choose among devices, or whose template is missing are not modelled.
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
    """Return what the nodes offer by objects of `DEVICE_KINDS`. Devices that `pods` request are not allocated."""
    by_kind: dict[str, list[Any]] = {kind: [] for kind in DEVICE_KINDS}
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


# Claims of pods in files: the nodes that their volumes refuse, by the rules of a live cluster (`cluster.volumes`).
# What other pods use is not counted: a volume that waits for its first consumer may be matched by several pods.

VOLUME_KINDS = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")
Refusals = tuple[tuple[str, tuple[str, ...]], ...]  # reasons, and the nodes that each applies to, see `Constraints`


class PodVolumes:
    """Nodes that claims of pods refuse. Claims are not modelled where the input holds none, or not their volumes."""

    def __init__(self, objects: Iterable[KubernetesObject], nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._objects = VolumeObjects()
        self._refusals: dict[tuple[PodClaim, ...], Refusals] = {}
        for obj in objects:
            if obj.kind == "PersistentVolumeClaim":
                claim = _completed(obj.typed, obj.namespace)
                self._objects.claims[claim.key] = claim
            elif obj.kind == "PersistentVolume":
                self._objects.volumes[obj.name] = obj.typed
            else:
                self._objects.classes[obj.name] = obj.typed

    def is_modelled(self, pod: PodObject, obj: KubernetesObject) -> bool:
        """Return whether the claims that an object states for its pods are all modelled."""
        stated = structs.replace(pod, metadata=structs.replace(pod.metadata, namespace=obj.namespace))
        claims = [each for each in pod_claims(stated) if each.attachment is None]
        return bool(claims) and len(claims) == len(list(self._modelled(stated, obj)))

    def restricted(self, pod: Pod, stated: PodObject, obj: KubernetesObject) -> Pod:
        """Return a pod of an object that cannot go to the nodes that its claims refuse."""
        claims = tuple(self._modelled(stated, obj)) if stated.spec.volumes and self._objects.claims else ()
        text = (stated.metadata.annotations or {}).get(REFUSALS_KEY)
        if claims and claims not in self._refusals:
            self._refusals[claims] = tuple(self._refused(claims))
        refusals = self._refusals[claims] if claims else () if text is None else _written_refusals(text)
        if not refusals:
            return pod
        constraints = replace(pod.constraints, volume_refusals=refusals)
        return replace(pod, pod_class=replace(pod.pod_class, constraints=constraints))

    def _modelled(self, stated: PodObject, obj: KubernetesObject) -> Iterator[PodClaim]:
        """Yield the claims of an object's pod whose refusals are known."""
        objects = self._objects
        made = _made_claims(obj)
        for each in pod_claims(stated) if objects.claims else ():
            claim = objects.claims.get(each.key)
            if each.attachment is not None or each.key in made:
                continue
            if claim is None:
                # A pod that runs has its claims, and an ephemeral one is made together with its pod.
                if not (each.is_ephemeral or stated.spec.node_name):
                    yield each
            elif claim.is_bound:
                if objects.volumes:
                    yield PodClaim(each.key)
            # Any other class provisions the volume at once, wherever the pod is to run.
            elif waits_for_consumer(objects, claim):
                yield PodClaim(each.key)

    def _refused(self, claims: Sequence[PodClaim]) -> Iterator[tuple[str, tuple[str, ...]]]:
        result = fit(self._objects, claims, "", self._table, {})
        names = [node.name for node in self._nodes]
        if result.problem:
            yield result.problem, ()
        for group in result.refusals:
            for reason, refused in group:
                if refused.any():
                    yield reason, tuple(names[slot] for slot in np.flatnonzero(refused).tolist())

    @cached_property
    def _table(self) -> NodeTable:
        return NodeTable(self._nodes)


@lru_cache(maxsize=1024)
def _written_refusals(text: object) -> Refusals:
    """Return refusals as `manifests` writes them. Raises FieldError: they are none."""
    try:
        return msgspec.json.decode(str(text), type=Refusals)
    except msgspec.DecodeError:
        problem = 'is not a list such as [["node(s) had no available volume zone", ["node-1"]]]'
        raise FieldError(f"metadata.annotations.{REFUSALS_KEY}", problem) from None


def _completed(claim: VolumeClaim, namespace: str) -> VolumeClaim:
    """Return a claim as the volume controller leaves it: one that names its volume is bound."""
    notes = {**(claim.metadata.annotations or {}), **({BIND_COMPLETED: "yes"} if claim.spec.volume_name else {})}
    return structs.replace(claim, metadata=structs.replace(claim.metadata, namespace=namespace, annotations=notes))


def _made_claims(obj: KubernetesObject) -> set[str]:
    """Return the keys of claims that a StatefulSet makes together with its pods, see `replicas`."""
    if obj.kind != "StatefulSet":
        return set()
    templates: Iterable[Any] = obj.typed.spec.volume_claim_templates or ()
    return {f"{obj.namespace}/{each.metadata.name}-{obj.name}-0" for each in templates}
