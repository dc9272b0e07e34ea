"""Bind a pod's claims before the pod: volumes to claims, and claims to the node that they are provisioned for.

Like kube-scheduler's VolumeBinding (AssumePodVolumes, BindPodVolumes): the decision is assumed at once, the API objects
are patched, and the pod waits until the volume controller has bound every claim.
"""

from __future__ import annotations

import asyncio
import time

from steersman.cluster.objects.api.claims import SELECTED_NODE, VolumeClaim
from steersman.cluster.volumes import VolumeObjects, VolumePlan
from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import Client

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
TIMEOUT_SECONDS = 600.0  # kube-scheduler's bindTimeoutSeconds
POLL_SECONDS = 0.1


class VolumesNotBoundError(SteersmanError):
    """A pod's claims were not bound; another decision is needed."""


class VolumeBinder:
    """Client that binds claims. `objects`: claims and volumes; decisions are assumed there."""

    def __init__(self, client: Client, objects: VolumeObjects) -> None:
        # `timeout`: seconds within which claims must be bound
        self.client, self.objects, self.timeout = client, objects, TIMEOUT_SECONDS

    def assume(self, plan: VolumePlan, node: str) -> None:
        """Assume a plan before the API knows it."""
        self.objects.assumed_volumes.update(plan.bindings)
        self.objects.assumed_nodes.update(dict.fromkeys(plan.provisions, node))

    def forget(self, plan: VolumePlan) -> None:
        """Take an assumed plan back."""
        for volume, _ in plan.bindings:
            self.objects.assumed_volumes.pop(volume, None)
        for key in plan.provisions:
            self.objects.assumed_nodes.pop(key, None)

    async def bind(self, plan: VolumePlan, node: str) -> None:
        """Carry out an assumed plan, and wait until every claim in it is bound.

        Raises:
            VolumesNotBoundError: it took too long, or the provisioner or another client decided otherwise.
            SteersmanError: the API refused, or could not be reached.
        """
        uids = {key: self._claim(key, "").metadata.uid for key in (*plan.provisions, *(c for _, c in plan.bindings))}
        for volume, key in plan.bindings:
            await self._bind_volume(volume, key)
        # The watch may still show the claim without our annotation; its version tells that from a removed one.
        versions = {key: await self._select_node(key, node) for key in plan.provisions}
        ends = time.monotonic() + self.timeout
        while not all(self._is_bound(key, uid, node, versions.get(key)) for key, uid in uids.items()):
            if time.monotonic() >= ends:
                raise VolumesNotBoundError(f"binding volumes: timed out after {self.timeout:g} s")
            await asyncio.sleep(POLL_SECONDS)

    async def _bind_volume(self, name: str, key: str) -> None:
        """Write the claim into the volume; the version makes this fail if the volume changed since the decision."""
        volume, claim = self.objects.volumes.get(name), self._claim(key, "")
        if volume is None:
            raise VolumesNotBoundError(f'binding volumes: persistentvolume "{name}" not found')
        ref = volume.spec.claim_ref
        # An earlier attempt wrote it.
        if ref is not None and ref.uid == claim.metadata.uid:
            return
        metadata: dict[str, object] = {"resourceVersion": volume.metadata.resource_version}
        if ref is None:
            # Without it the volume controller takes the reference for a user's, and keeps it when the claim is gone.
            metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
        claim_reference = {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "namespace": claim.metadata.namespace,
            "name": claim.metadata.name,
            "uid": claim.metadata.uid,
        }
        path = f"/api/v1/persistentvolumes/{name}"
        await self.client.patch(path, {"metadata": metadata, "spec": {"claimRef": claim_reference}})

    async def _select_node(self, key: str, node: str) -> int:
        claim = self._claim(key, "")
        path = f"/api/v1/namespaces/{claim.metadata.namespace}/persistentvolumeclaims/{claim.metadata.name}"
        metadata = {"resourceVersion": claim.metadata.resource_version, "annotations": {SELECTED_NODE: node}}
        return int((await self.client.patch(path, {"metadata": metadata}))["metadata"]["resourceVersion"])

    def _is_bound(self, key: str, uid: str, node: str, version: int | None) -> bool:
        claim = self._claim(key, uid)
        if version is not None:
            if int(claim.metadata.resource_version) < version:
                return False  # the watch lags behind
            if claim.selected_node != node:
                raise VolumesNotBoundError(
                    f'provisioning failed for PVC "{claim.metadata.name}": its annotation {SELECTED_NODE} is no longer '
                    f'"{node}"'
                )
        return claim.is_bound

    def _claim(self, key: str, uid: str) -> VolumeClaim:
        claim = self.objects.claims.get(key)
        if claim is None or (uid and claim.metadata.uid != uid):
            raise VolumesNotBoundError(f'binding volumes: persistentvolumeclaim "{key}" was deleted')
        return claim
