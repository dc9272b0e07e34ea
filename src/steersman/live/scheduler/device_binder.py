"""Claim devices for a pod's extended resources before the pod is bound, where its node offers them by DRA.

Like kube-scheduler's DynamicResources: one ResourceClaim per pod holds the devices of all such requests, and the pod's
status says which of its containers gets which of them; the kubelet reads both.

Source: Kubernetes 1.37.2, pkg/scheduler/framework/plugins/dynamicresources (bindClaim, createRequestsAndMappings).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import structlog

from steersman.cluster.objects.api.claims import FOR_REQUESTS
from steersman.cluster.objects.device_offers import DeviceId
from steersman.core.errors import SteersmanError
from steersman.core.quantities import whole
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.cache.device_claims import DeviceClaims
from steersman.kubernetes.client import ApiError, Client

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
CONFLICT = 409
FINALIZER = "resource.kubernetes.io/delete-protection"

log = structlog.get_logger("devices")


class DevicesTakenError(SteersmanError):
    """Too few devices of a node are free; another decision is needed."""


@dataclass(slots=True)
class DevicePlan:
    """Devices that a pod gets on its node."""

    requests: list[dict[str, Any]] = field(default_factory=list)  # entries of the claim's `spec.devices.requests`
    # Which container gets which request, for the pod's status
    mappings: list[dict[str, str]] = field(default_factory=list)
    # Entries of the claim's `status.allocation.devices.results`
    results: list[dict[str, str]] = field(default_factory=list)
    devices: set[DeviceId] = field(default_factory=set)  # the devices, which are not free until the claim shows them


class DeviceBinder:
    """Client that claims devices. `claims`: what is known of devices and claims."""

    def __init__(self, client: Client, claims: DeviceClaims) -> None:
        self.client, self.claims = client, claims
        # By uid of the pod, until the watch shows its claim.
        self._in_flight: dict[str, set[DeviceId]] = {}

    async def bind(self, pod: CachedPod, node: str, resources: Sequence[str]) -> str:
        """Create and allocate the claim of an assumed pod, note it in the pod's status, and return the claim's path.

        Args:
            resources: resources that the node offers by DRA, under their names in `DeviceOffers`.

        Raises:
            DevicesTakenError: too few of the node's devices are free.
            SteersmanError: the API refused, or could not be reached.
        """
        path = f"/api/v1/namespaces/{pod.pod.namespace}/pods/{pod.pod.name}"
        # The cached model has the pod's sums only; a claim needs the requests of each container.
        spec = (await self.client.get(path)).get("spec") or {}
        # A claim of an earlier attempt would keep its devices from this one.
        for left_over in self.claims.for_requests_of(pod.uid):
            await self.release(pod, f"{CLAIMS.format(pod.pod.namespace)}/{left_over}")
        plan = self._plan(spec, node, resources)
        # Devices are chosen and recorded without an await in between, so two bindings never choose the same.
        self._in_flight[pod.uid] = plan.devices
        claim = _claim(pod, plan)
        name = claim["metadata"]["name"]
        claim_path = f"{CLAIMS.format(pod.pod.namespace)}/{name}"
        created: Mapping[str, Any] | None = None
        try:
            created = await self._create(claim_path, claim)
            await self.client.replace(f"{claim_path}/status", {**created, "status": _status(pod, node, plan)})
            status = {"extendedResourceClaimStatus": {"resourceClaimName": name, "requestMappings": plan.mappings}}
            # The uid refuses another pod of the same name.
            await self.client.patch(f"{path}/status", {"metadata": {"uid": pod.uid}, "status": status})
        # Also when cancelled: an allocated claim keeps its devices until the pod is deleted.
        except BaseException:
            if created is not None:
                await self.release(pod, claim_path)
            self._in_flight.pop(pod.uid, None)
            raise
        return claim_path

    async def _create(self, path: str, claim: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return cast(Mapping[str, Any], await self.client.create(path.rpartition("/")[0], claim))
        except ApiError as error:
            if error.status != CONFLICT:
                raise
        existing = await self.client.get(path)
        asked = [(each["name"], each["exactly"]["count"]) for each in claim["spec"]["devices"]["requests"]]
        known = [
            (each["name"], (each.get("exactly") or {}).get("count"))
            for each in existing["spec"].get("devices", {}).get("requests", ())
        ]
        # The claim may be from an attempt that chose another node.
        if asked != known:
            raise DevicesTakenError(f"claim {claim['metadata']['name']} of the pod is for other devices")
        return cast(Mapping[str, Any], existing)

    def _plan(self, spec: Mapping[str, Any], node: str, resources: Sequence[str]) -> DevicePlan:
        """Return the requests of a pod and free devices for them. Raises DevicesTakenError."""
        offers = self.claims.offers
        # The watch shows these claims, so `allocated` has their devices.
        for uid in [uid for uid in self._in_flight if self.claims.for_requests_of(uid)]:
            del self._in_flight[uid]
        taken = self.claims.allocated.union(*self._in_flight.values())
        plan = DevicePlan()
        # Sorted, so that the claim's requests are the same in every attempt (see `_create`).
        for resource in sorted(resources):
            free = [each for each in offers.devices.get(node, {}).get(resource, ()) if each not in taken]
            for name in sorted(name for name, each in offers.classes.items() if offers.names[each] == resource):
                requests, mappings = requests_of(spec, name, offers.classes[name])
                plan.mappings += mappings
                for request in requests:
                    count = request["exactly"]["count"]
                    if len(free) < count:
                        raise DevicesTakenError(f"node {node} has too few free devices of {resource}")
                    chosen, free = free[:count], free[count:]
                    plan.requests.append(request)
                    plan.devices |= set(chosen)
                    plan.results += [
                        {"request": request["name"], "driver": each.driver, "pool": each.pool, "device": each.device}
                        for each in chosen
                    ]
        return plan

    async def release(self, pod: CachedPod, path: str) -> None:
        """Free the devices of a pod that is not bound. The claim itself goes with the pod, which owns it."""
        self._in_flight.pop(pod.uid, None)
        try:
            await self.client.replace(f"{path}/status", {**await self.client.get(path), "status": {}})
        except SteersmanError as error:
            log.warning("claim of a pod that was not bound keeps its devices", claim=path, error=str(error))


def _claim(pod: CachedPod, plan: DevicePlan) -> dict[str, Any]:
    name, namespace = pod.pod.name, pod.pod.namespace
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod.uid, "controller": True}
    metadata = {
        # A fixed name, so that a claim whose creation got no answer is found; 228 characters at most, of 253.
        "name": f"{name[:200].rstrip('.-')}-extended-resources-{pod.uid[:8]}",
        "namespace": namespace,
        "annotations": {FOR_REQUESTS: "true"},
        # Present before the allocation, as with kube-scheduler: a claim in use must not disappear.
        "finalizers": [FINALIZER],
        "ownerReferences": [owner],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": plan.requests}},
    }


def _status(pod: CachedPod, node: str, plan: DevicePlan) -> dict[str, Any]:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {
        "allocation": {
            "devices": {"results": plan.results},
            "nodeSelector": {"nodeSelectorTerms": [term]},
        },
        "reservedFor": [{"resource": "pods", "name": pod.pod.name, "uid": pod.uid}],
    }


def requests_of(
    spec: Mapping[str, Any], resource: str, device_class: str
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Return a claim's requests for one resource of a pod's containers, and which container gets which.

    A container that ends before others start uses their devices; of several such containers that need more, one request
    is for the largest.
    """
    inits = spec.get("initContainers") or []
    containers = [*inits, *(spec.get("containers") or [])]
    # Init containers with restartPolicy Always are sidecars, which run as long as the pod.
    is_brief = [i < len(inits) and each.get("restartPolicy") != "Always" for i, each in enumerate(containers)]
    lasting: list[dict[str, Any] | None] = [None] * len(containers)
    mappings: list[dict[str, str]] = []
    for i, container in enumerate(containers):
        if not is_brief[i]:
            lasting[i] = _request(i, container, resource, device_class, ())
            mappings += _mappings(container, resource, (lasting[i],))
    brief: list[dict[str, Any]] = []
    users = []
    for i, container in enumerate(containers):
        if is_brief[i]:
            # Only of containers that start later: sidecars before this one run beside it.
            reused = list(_enough(lasting[i:], _count(container, resource)))
            own = _request(i, container, resource, device_class, reused)
            mappings += _mappings(container, resource, reused)
            if own is not None:
                brief.append(own)
                users.append(container)
    largest = max(brief, key=lambda each: each["exactly"]["count"], default=None)
    for container in users:
        mappings += _mappings(container, resource, (largest,))
    return [each for each in (largest, *lasting) if each is not None], mappings


def _request(
    index: int, container: Mapping[str, Any], resource: str, device_class: str, reused: Sequence[dict[str, Any]]
) -> dict[str, Any] | None:
    count = _count(container, resource) - sum(each["exactly"]["count"] for each in reused)
    if count <= 0:
        return None
    number = sorted(_requests(container)).index(resource)
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    return {"name": f"container-{index}-request-{number}", "exactly": exactly}


def _enough(requests: Sequence[dict[str, Any] | None], wanted: int) -> Iterator[dict[str, Any]]:
    """Yield the first requests that together have so many devices, or all."""
    for each in requests:
        if each is not None and wanted > 0:
            wanted -= each["exactly"]["count"]
            yield each


def _mappings(
    container: Mapping[str, Any], resource: str, requests: Sequence[dict[str, Any] | None]
) -> list[dict[str, str]]:
    return [
        {"containerName": container["name"], "resourceName": resource, "requestName": each["name"]}
        for each in requests
        if each is not None
    ]


def _requests(container: Mapping[str, Any]) -> Mapping[str, Any]:
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _count(container: Mapping[str, Any], resource: str) -> int:
    return whole(_requests(container).get(resource, 0))
