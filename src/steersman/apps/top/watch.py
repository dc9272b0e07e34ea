"""Feed the dashboard's model: watches of nodes and pods, or one snapshot, and the leases of our schedulers."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import msgspec

from steersman.apps.runtime.device_lists import list_device_offers
from steersman.apps.top.model import ClusterUse
from steersman.cluster.objects.api.decoding import node_from_json, pod_from_json
from steersman.kubernetes.client import ApiError, Client, UnreachableError
from steersman.kubernetes.lease import ALL_LEASES, APP_LABEL, POLICY_KEY
from steersman.kubernetes.watch import EventType, Reflector

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"


class NodeHandler:
    """Handler of node events."""

    def __init__(self, view: ClusterUse) -> None:
        self.view = view

    def keep(self, keys: Set[str]) -> None:
        """Keep these nodes alone, after a list."""
        for name in self.view.nodes_known() - keys:
            self.view.drop_node(name)

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """Apply an event."""
        node = node_from_json(obj)
        if kind == "DELETED":
            self.view.drop_node(node.metadata.name)
        else:
            self.view.put_node(node)


class PodHandler:
    """Handler of pod events."""

    def __init__(self, view: ClusterUse) -> None:
        self.view = view

    def keep(self, keys: Set[str]) -> None:
        """Keep these pods alone, after a list."""
        for key in self.view.pods_known() - keys:
            self.view.drop_pod(key)

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """Apply an event."""
        pod = pod_from_json(obj)
        if kind == "DELETED":
            self.view.drop_pod(pod.key)
        else:
            self.view.put_pod(pod)


def reflectors(client: Client, view: ClusterUse) -> tuple[Reflector, Reflector]:
    """Return the reflectors of nodes and pods that keep a view up to date."""
    return Reflector(client, NODES, NodeHandler(view)), Reflector(client, PODS, PodHandler(view))


async def fetch_snapshot(client: Client) -> ClusterUse:
    """Return a view of the cluster as it is now.

    Raises:
        ApiError: nodes or pods may not be listed.
        UnreachableError: the API server does not answer.
    """
    view = ClusterUse(await list_device_offers(client))
    for path, handler in ((NODES, NodeHandler(view)), (PODS, PodHandler(view))):
        async for page in client.pages(path):
            for raw in page.items:
                handler.change("ADDED", raw)
    return view


@dataclass(frozen=True, slots=True)
class Leader:
    """A scheduler of ours by its lease: holder ("" for none), and the policy in use."""

    lease: str
    holder: str
    policy: str


async def leaders(client: Client) -> list[Leader]:
    """Return our schedulers with leader election; empty if leases may not be listed or nobody answers."""
    try:
        result = await client.list(ALL_LEASES, {"labelSelector": "=".join(APP_LABEL)})
    except (ApiError, UnreachableError):
        return []
    return [_leader(msgspec.json.decode(obj)) for obj in result.items]


def _leader(lease: Mapping[str, Any]) -> Leader:
    metadata, spec = lease["metadata"], lease.get("spec") or {}
    name = f"{metadata.get('namespace', '')}/{metadata['name']}"
    policy = (metadata.get("annotations") or {}).get(POLICY_KEY, "")
    return Leader(name, spec.get("holderIdentity") or "", policy)
