"""What the nodes of a live cluster offer by Dynamic Resource Allocation, listed once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from steersman.cluster.objects.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from steersman.cluster.objects.device_offers import DeviceOffers, device_offers
from steersman.kubernetes.cache.device_claims import CLAIMS_PATH, CLASSES_PATH, SLICES_PATH
from steersman.kubernetes.client import ApiError, Client
from steersman.kubernetes.watch import REFUSALS

_COLLECTIONS: tuple[tuple[str, type[msgspec.Struct]], ...] = (
    (CLASSES_PATH, DeviceClass),
    (SLICES_PATH, ResourceSlice),
    (CLAIMS_PATH, ResourceClaim),
)


async def list_device_offers(client: Client, nodes: Collection[str] | None = None) -> DeviceOffers:
    """Return what nodes offer by DRA: nothing where there is no DeviceClass, or a collection may not be listed.

    Args:
        client: connection to the cluster.
        nodes: names of the nodes; None: any.

    Raises:
        SteersmanError: the API server does not answer, or not as it should.
    """
    found: list[list[Any]] = []
    for path, kind in _COLLECTIONS:
        try:
            listed = await client.list(path)
        except ApiError as error:
            if error.status not in REFUSALS:
                raise
            return DeviceOffers()
        found.append([msgspec.json.decode(raw, type=kind) for raw in listed.items])
        # Most clusters have no DeviceClass, and are spared the two large lists.
        if not found[0]:
            return DeviceOffers()
    return device_offers(found[0], found[1], found[2], nodes)
