"""Collections that are watched from when somebody needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from typing import Any

import msgspec

from steersman.kube.client import ApiError, Client
from steersman.kube.namespaces import REFUSALS
from steersman.kube.reflector import EventType, Reflector, object_key


class NeededReflector(Reflector):
    """Follows one collection once it is needed; nothing more if we may not look at it.

    Args:
        client: the connection.
        path: of the collection.
        kind: what its objects are decoded to.
        objects: key -> object, kept up to date.
        changed: called with the key of an object that is another, "" for any number of them.
        refused: called with the resource's name where we may not list it, or the server does not know it.

    Attributes:
        is_refused: it cannot be listed.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        kind: type[msgspec.Struct],
        objects: dict[str, Any],
        changed: Callable[[str], None],
        refused: Callable[[str], None],
    ) -> None:
        super().__init__(client, path, self)
        self._objects, self._changed, self._refused = objects, changed, refused
        self._decode = msgspec.json.Decoder(kind).decode
        self._needed = asyncio.Event()
        self.is_refused = False
        self.synced.set()  # nothing is missing until somebody needs it

    @property
    def is_needed(self) -> bool:
        """Whether it is followed, or would be if it could be."""
        return self._needed.is_set()

    def need(self) -> None:
        """Follow it from now on."""
        if not self._needed.is_set():
            self._needed.set()
            self.synced.clear()

    @property
    def age(self) -> float:
        """See `Reflector`."""
        return super().age if self.is_needed and not self.is_refused else 0.0

    async def run(self) -> None:
        """See `Reflector`; does nothing before it is needed."""
        await self._needed.wait()
        try:
            await super().run()
        except ApiError as error:
            if error.status not in REFUSALS:
                raise
            self.is_refused = True
            self.synced.set()
            self._changed("")
            self._refused(self.resource)

    async def relist(self) -> None:
        """See `Reflector`."""
        if self.is_needed and not self.is_refused:
            await super().relist()

    def keep(self, keys: Set[str]) -> None:
        """See `reflector.Handler`."""
        for key in self._objects.keys() - keys:
            del self._objects[key]
        self._changed("")

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """See `reflector.Handler`."""
        key = object_key(obj)
        if kind == "DELETED":
            self._objects.pop(key, None)
        else:
            self._objects[key] = self._decode(obj)
        self._changed(key)
