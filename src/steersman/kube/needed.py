"""Collections that are watched from when somebody needs them, and only where we may look at them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from typing import Any

import msgspec

from steersman.kube.client import ApiError, Client
from steersman.kube.reflector import EventType, Handler, Reflector, object_key

REFUSALS = (403, 404)
"""Statuses of a collection that we may not list, or that the server does not have."""


class OptionalReflector(Reflector):
    """Follows one collection once it is needed; nothing more if we may not look at it.

    Args:
        client: the connection.
        path: of the collection.
        handler: see `Reflector`.
        refused: called with the resource's name where we may not list it, or the server does not know it.

    Attributes:
        is_refused: it cannot be listed.
    """

    def __init__(self, client: Client, path: str, handler: Handler, refused: Callable[[str], None]) -> None:
        super().__init__(client, path, handler)
        self._refused, self._needed, self.is_refused = refused, asyncio.Event(), False
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
        """See `Reflector`; does nothing before it is needed, and returns if we may not look at it."""
        await self._needed.wait()
        try:
            await super().run()
        except ApiError as error:
            if error.status not in REFUSALS:
                raise
            self.is_refused = True
            self.synced.set()
            self._refused(self.resource)

    async def relist(self) -> None:
        """See `Reflector`."""
        if self.is_needed and not self.is_refused:
            await super().relist()


class NeededReflector(OptionalReflector):
    """Keeps the objects of one collection once they are needed.

    Args:
        client: the connection.
        path: of the collection.
        kind: what its objects are decoded to.
        objects: key -> object, kept up to date.
        changed: called with the key of an object that is another, "" for any number of them.
        refused: see `OptionalReflector`.
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
        super().__init__(client, path, self, refused)
        self._objects, self._changed = objects, changed
        self._decode = msgspec.json.Decoder(kind).decode

    async def run(self) -> None:
        """See `OptionalReflector`."""
        await super().run()
        self._changed("")  # it was refused

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
