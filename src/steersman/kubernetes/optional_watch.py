"""Watch collections once they are needed, and only where the API server allows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from typing import Any

import msgspec

from steersman.kubernetes.client import ApiError, Client
from steersman.kubernetes.watch import EventType, Handler, Reflector, object_key

REFUSALS = (403, 404)
"""HTTP statuses of a collection that may not be listed or does not exist."""


class OptionalReflector(Reflector):
    """Reflector of one collection that starts when it is needed, and ends if listing is refused.

    Args:
        client: connection to the API server.
        path: path of the collection.
        handler: see `Reflector`.
        refused: called with the resource's name if it may not be listed or does not exist.

    Attributes:
        is_refused: whether it cannot be listed.
    """

    def __init__(self, client: Client, path: str, handler: Handler, refused: Callable[[str], None]) -> None:
        super().__init__(client, path, handler)
        self._refused, self._needed, self.is_refused = refused, asyncio.Event(), False
        self.synced.set()  # nothing is missing before it is needed

    @property
    def is_needed(self) -> bool:
        """Whether it was started, whatever came of that."""
        return self._needed.is_set()

    def need(self) -> None:
        if not self._needed.is_set():
            self._needed.set()
            # From now on something is missing; readiness and decisions about such pods wait for the list.
            self.synced.clear()

    @property
    def age(self) -> float:
        return super().age if self.is_needed and not self.is_refused else 0.0

    async def run(self) -> None:
        """See `Reflector`; waits until it is needed, and returns if listing is refused."""
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
        if self.is_needed and not self.is_refused:
            await super().relist()


class NeededReflector(OptionalReflector):
    """Objects of one collection, kept by a watch once they are needed.

    Args:
        client: connection to the API server.
        path: path of the collection.
        kind: type that its objects are decoded to.
        objects: key -> object, kept up to date.
        changed: called with the key of a changed object, "" for any number of them.
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
        await super().run()
        self._changed("")  # it was refused

    def keep(self, keys: Set[str]) -> None:
        for key in self._objects.keys() - keys:
            del self._objects[key]
        self._changed("")

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        key = object_key(obj)
        if kind == "DELETED":
            self._objects.pop(key, None)
        else:
            self._objects[key] = self._decode(obj)
        self._changed(key)
