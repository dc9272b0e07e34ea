"""The schedulers of steersman that decide in a cluster, by their leases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from steersman.kubernetes.client import ApiError, Client, UnreachableError
from steersman.kubernetes.lease import ALL_LEASES, APP_LABEL, POLICY_KEY


@dataclass(frozen=True, slots=True)
class Leader:
    """A scheduler of ours by its lease: holder ("" for none), and the policy in use."""

    lease: str
    holder: str
    policy: str


async def leaders(client: Client) -> list[Leader]:
    """Return our schedulers with leader election; empty if leases may not be listed or the server does not answer."""
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
