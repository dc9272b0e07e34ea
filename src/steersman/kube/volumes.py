"""Claims, volumes, classes and CSI objects, watched from when some pod has a claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from typing import Any, NamedTuple

import msgspec
import structlog

from steersman.kube.client import ApiError, Client
from steersman.kube.namespaces import REFUSALS
from steersman.kube.reflector import EventType, Reflector, object_key
from steersman.kube.volume_objects import Claim, CsiDriver, CsiNode, StorageCapacity, StorageClass, Volume
from steersman.kube.volume_rules import VolumeObjects

log = structlog.get_logger("volumes")


class Collection(NamedTuple):
    """A collection that is watched: its path, what is kept of its objects, and the attribute of VolumeObjects."""

    path: str
    kind: type[msgspec.Struct]
    attribute: str


COLLECTIONS = (
    Collection("/api/v1/persistentvolumeclaims", Claim, "claims"),
    Collection("/api/v1/persistentvolumes", Volume, "volumes"),
    Collection("/apis/storage.k8s.io/v1/storageclasses", StorageClass, "classes"),
    Collection("/apis/storage.k8s.io/v1/csinodes", CsiNode, "nodes"),
    Collection("/apis/storage.k8s.io/v1/csidrivers", CsiDriver, "drivers"),
    Collection("/apis/storage.k8s.io/v1/csistoragecapacities", StorageCapacity, "capacities"),
)


class Volumes:
    """Follows what claims depend on, once they are needed.

    Args:
        client: the connection.
        changed: called when an object is another than before.

    Attributes:
        objects: as they are known.
        reflectors: one a collection.
    """

    def __init__(self, client: Client, changed: Callable[[], None]) -> None:
        self.objects, self.changed = VolumeObjects(), changed
        self.needed = asyncio.Event()
        self.reflectors = tuple(VolumeReflector(client, self, collection) for collection in COLLECTIONS)

    def need(self) -> None:
        """Follow them from now on."""
        if not self.needed.is_set():
            self.needed.set()
            for reflector in self.reflectors:
                reflector.synced.clear()

    @property
    def problem(self) -> str:
        """Return why nothing can be said about claims, or ""."""
        refused = [reflector.resource for reflector in self.reflectors if reflector.refused]
        return f"steersman may not list and watch {', '.join(refused)}, which pods with volumes need" if refused else ""

    @property
    def synced(self) -> bool:
        """Whether everything was listed, or may not be."""
        return self.needed.is_set() and all(reflector.synced.is_set() for reflector in self.reflectors)


class VolumeReflector(Reflector):
    """Follows one collection once it is needed; nothing more if we may not look at it.

    Args:
        client: the connection.
        volumes: whose objects are kept up to date.
        collection: which.
    """

    def __init__(self, client: Client, volumes: Volumes, collection: Collection) -> None:
        super().__init__(client, collection.path, self)
        self._volumes = volumes
        self._objects: dict[str, Any] = getattr(volumes.objects, collection.attribute)
        self._decode = msgspec.json.Decoder(collection.kind).decode
        self.refused = False
        self.synced.set()  # nothing is missing until somebody needs it

    @property
    def age(self) -> float:
        """See `Reflector`."""
        return super().age if self._volumes.needed.is_set() and not self.refused else 0.0

    async def run(self) -> None:
        """See `Reflector`; does nothing before it is needed."""
        await self._volumes.needed.wait()
        try:
            await super().run()
        except ApiError as error:
            if error.status not in REFUSALS:
                raise
            self.refused = True
            self.synced.set()
            self._volumes.changed()
            log.warning("pods with persistent volume claims wait: no permission to list", resource=self.resource)

    async def relist(self) -> None:
        """See `Reflector`."""
        if self._volumes.needed.is_set() and not self.refused:
            await super().relist()

    def keep(self, keys: Set[str]) -> None:
        """See `reflector.Handler`."""
        for key in self._objects.keys() - keys:
            del self._objects[key]
        self._volumes.changed()

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """See `reflector.Handler`."""
        key = object_key(obj)
        if kind == "DELETED":
            self._objects.pop(key, None)
        else:
            self._objects[key] = self._decode(obj)
        self._volumes.changed()
