"""Feed the dashboard's model: watches of nodes and pods, or one snapshot, and the leases of our schedulers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any

import msgspec

from steersman.apps.runtime.device_lists import list_device_offers
from steersman.apps.top.model import ClusterUse
from steersman.cluster.objects.api.decoding import node_from_json, pod_from_json
from steersman.kubernetes.client import ApiError, Client, UnreachableError
from steersman.kubernetes.lease import ALL_LEASES, APP_LABEL, POLICY_KEY
from steersman.kubernetes.watch import EventType, object_key


class ObjectHandler:
    """Handler of the events of nodes or pods.

    Args:
        known: the objects of the view, by key.
        put: adds or replaces one.
        drop: removes one by its key.
    """

    def __init__(
        self, known: Mapping[str, object], put: Callable[[msgspec.Raw], None], drop: Callable[[str], None]
    ) -> None:
        self._known, self._put, self._drop = known, put, drop

    def keep(self, keys: Set[str]) -> None:
        """Keep these objects alone, after a list."""
        for key in self._known.keys() - keys:
            self._drop(key)

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """Apply an event."""
        if kind == "DELETED":
            self._drop(object_key(obj))
        else:
            self._put(obj)


def handlers(view: ClusterUse) -> dict[str, ObjectHandler]:
    """Return the handlers that keep a view up to date, by the path of their collection."""
    return {
        "/api/v1/nodes": ObjectHandler(view.nodes, lambda raw: view.put_node(node_from_json(raw)), view.drop_node),
        "/api/v1/pods": ObjectHandler(view.pods, lambda raw: view.put_pod(pod_from_json(raw)), view.drop_pod),
    }


async def fetch_snapshot(client: Client) -> ClusterUse:
    """Return a view of the cluster as it is now.

    Raises:
        ApiError: nodes or pods may not be listed.
        UnreachableError: the API server does not answer.
    """
    view = ClusterUse(await list_device_offers(client))
    for path, handler in handlers(view).items():
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
