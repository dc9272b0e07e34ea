"""Where a view learns of its cluster: watches of nodes and pods, or one look, and the leases of our schedulers."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import msgspec

from steersman.kube.client import ApiError, Client, UnreachableError
from steersman.kube.lease import APP_LABEL, POLICY_KEY
from steersman.kube.reflector import EventType, Reflector
from steersman.live_view.model import ClusterView
from steersman.live_view.objects import decode_node, decode_pod, pod_key

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
LEASES = "/apis/coordination.k8s.io/v1/leases"


class NodeHandler:
    """Tells a view about nodes."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view

    def keep(self, keys: Set[str]) -> None:
        """The nodes are these alone."""
        for name in self.view.nodes_known() - keys:
            self.view.drop_node(name)

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """A node."""
        found = decode_node(obj)
        if kind == "DELETED":
            self.view.drop_node(found["metadata"]["name"])
        else:
            self.view.put_node(found)


class PodHandler:
    """Tells a view about pods."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view

    def keep(self, keys: Set[str]) -> None:
        """The pods are these alone."""
        for key in self.view.pods_known() - keys:
            self.view.drop_pod(key)

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """A pod."""
        found = decode_pod(obj)
        if kind == "DELETED":
            self.view.drop_pod(pod_key(found))
        else:
            self.view.put_pod(found)


def reflectors(client: Client, view: ClusterView) -> tuple[Reflector, Reflector]:
    """What keeps a view in step with a cluster."""
    return Reflector(client, NODES, NodeHandler(view)), Reflector(client, PODS, PodHandler(view))


async def look_once(client: Client) -> ClusterView:
    """A view of a cluster as it is now.

    Raises:
        ApiError: we may not list nodes or pods.
        UnreachableError: nobody answers.
    """
    view = ClusterView()
    for path, handler in ((NODES, NodeHandler(view)), (PODS, PodHandler(view))):
        async for page in client.pages(path):
            for raw in page.items:
                handler.change("ADDED", raw)
    return view


@dataclass(frozen=True, slots=True)
class Leader:
    """A scheduler of ours as its lease tells: who holds it ("" for nobody), and the policy that decides."""

    lease: str
    holder: str
    policy: str


async def leaders(client: Client) -> list[Leader]:
    """Our schedulers that elect a leader; none where we may not see leases or the server does not answer."""
    try:
        found = await client.list(LEASES, {"labelSelector": "=".join(APP_LABEL)})
    except (ApiError, UnreachableError):
        return []
    return [_leader(msgspec.json.decode(obj)) for obj in found.items]


def _leader(lease: Mapping[str, Any]) -> Leader:
    metadata, spec = lease["metadata"], lease.get("spec") or {}
    name = f"{metadata.get('namespace', '')}/{metadata['name']}"
    policy = (metadata.get("annotations") or {}).get(POLICY_KEY, "")
    return Leader(name, spec.get("holderIdentity") or "", policy)
