"""List and watch a collection, and pass every change to a handler; resume, and list again where that fails.

Some collections are watched once they are needed, and only where the API server allows it.

Source of the protocol: Kubernetes API concepts, "Efficient detection of changes".
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncGenerator, Callable, Set
from contextlib import aclosing
from typing import Any, Literal, Protocol

import aiohttp
import msgspec
import structlog

from steersman.cluster.objects.fields import FieldError
from steersman.core.errors import SteersmanError
from steersman.core.event_loop import Backoff, TimeSlices
from steersman.kubernetes.client import ApiError, Client, Query, Status

WATCH_SECONDS = (240, 480)  # range of a watch's duration; random, so that watches do not end together
SILENCE_SECONDS = 75.0  # read timeout of a watch; the server sends a bookmark about every minute
BACKOFF_SECONDS = (0.2, 10.0)
GONE = 410

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
log = structlog.get_logger("reflector")


class WatchEvent(msgspec.Struct, frozen=True):
    """A line of a watch."""

    type: EventType
    object: msgspec.Raw


class _Meta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Name(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Name


_named = msgspec.json.Decoder(_Named).decode


def object_key(raw: msgspec.Raw) -> str:
    """Return the namespace and name of an object, or the name of a cluster-scoped one. Raises DecodeError."""
    result = _named(raw).metadata
    return f"{result.namespace}/{result.name}" if result.namespace else result.name


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class GoneError(SteersmanError):
    """The server no longer has the resource version; the collection must be listed again."""


class Handler(Protocol):
    """Receiver of changes."""

    def keep(self, keys: Set[str]) -> None:
        """Handle the end of a list, in which each object was passed as ADDED: those without one of these keys are gone.

        Keys are `object_key`'s: namespace and name, or the name of a cluster-scoped object.
        """

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """Handle an object that was ADDED, MODIFIED or DELETED (then in its last form)."""


class TeeHandler:
    """Handler that forwards to others, in this order."""

    def __init__(self, *handlers: Handler) -> None:
        self.handlers = handlers

    def keep(self, keys: Set[str]) -> None:
        for handler in self.handlers:
            handler.keep(keys)

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        for handler in self.handlers:
            handler.change(kind, obj)


class Reflector:
    """List and watch of one collection while `run` runs.

    Args:
        path: path of the collection, such as `/api/v1/pods`.
        handler: called in the event loop; must not block.
        query: field or label selectors.
    """

    def __init__(self, client: Client, path: str, handler: Handler, query: Query | None = None) -> None:
        self.client, self.path, self.handler, self.query = client, path, handler, dict(query or {})
        self.synced = asyncio.Event()  # set when the handler has the collection; stays set while a watch is resumed
        # `lists`, `watches`: numbers of lists and watches begun
        self.lists = self.watches = 0
        self._version = ""
        self._listed = self._wanted = 0
        self._current = asyncio.Event()
        self._response: aiohttp.ClientResponse | None = None
        self._heard = -math.inf
        self._events = msgspec.json.Decoder(WatchEvent)
        self._versions = msgspec.json.Decoder(_Versioned)
        self._statuses = msgspec.json.Decoder(Status)

    @property
    def resource(self) -> str:
        """Name of the collection in RBAC rules and metrics, such as `pods`."""
        return self.path.rpartition("/")[2]

    @property
    def age(self) -> float:
        """Seconds since the server was last heard: 0 while a watch is open, infinite before the first list.

        A server that hangs is silent on an open watch, which takes `SILENCE_SECONDS` to be told from a quiet cluster.
        """
        return 0.0 if self._response is not None else time.monotonic() - self._heard

    async def run(self) -> None:
        """Follow until cancelled. Failures are logged and retried, except those that retries cannot mend."""
        backoff, slices = Backoff(*BACKOFF_SECONDS), TimeSlices()
        while True:
            began, is_reported, pause, listing = time.monotonic(), False, 0.0, self._must_list
            try:
                if listing:
                    await self._list()
                    listing = False
                async with aclosing(self._watch()) as events:
                    async for event in events:
                        is_reported = True
                        self._handle(event)
                        await slices.give_way()  # a chunk has many events
            # Expected after a long pause; listed again without a warning.
            except GoneError:
                self._version = ""
            except ApiError as error:
                # After a first list these may pass: an API server restarts, or a role is being replaced.
                if error.status in (401, 403, 404) and not self.synced.is_set():
                    raise
                if error.status == GONE:
                    self._version = ""
                else:
                    pause = error.retry_after
                    self._warn(error, max(backoff.seconds, pause))
            except (msgspec.MsgspecError, FieldError) as error:
                self._version = ""  # some changes may have been applied
                self._warn(error, backoff.seconds)
            except SteersmanError as error:
                if not listing and self._must_list:
                    continue  # ended by `relist`
                self._warn(error, backoff.seconds)
            # A watch that reported something, or lasted, was a success.
            if is_reported or time.monotonic() - began > BACKOFF_SECONDS[1]:
                backoff.reset()
            # Also after a watch that the server ended, so that one that always ends at once does not spin.
            await backoff.wait(pause)
            # Again, since the wait has doubled the next one.
            if is_reported:
                backoff.reset()

    async def relist(self) -> None:
        """List again while `run` runs; return when the handler has all that was true when this was called."""
        self._wanted = self.lists + 1  # a list under way may be older
        self._current.clear()
        if self._response is not None:
            self._response.close()
        await self._current.wait()

    def _warn(self, error: Exception, wait: float) -> None:
        log.warning("watch failed", path=self.path, error=str(error), again_in=round(wait, 1))

    @property
    def _must_list(self) -> bool:
        return not self._version or self._listed < self._wanted

    async def _list(self) -> None:
        self.lists += 1
        number = self.lists
        keys, slices = set[str](), TimeSlices()
        # Page by page: a large cluster would fill memory.
        async for page in self.client.pages(self.path, self.query):
            for raw in page.items:
                keys.add(object_key(raw))
                self.handler.change("ADDED", raw)
                await slices.give_way()
        self.handler.keep(keys)
        self._version, self._listed = page.resource_version, number
        self._heard = time.monotonic()
        self.synced.set()
        if number >= self._wanted:
            self._current.set()

    async def _watch(self) -> AsyncGenerator[WatchEvent]:
        self.watches += 1
        query = {
            **self.query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=SILENCE_SECONDS)
        async with self.client.open("GET", self.path, query=query, timeout=timeout) as response:
            # `relist` was called while this was opened, when there was no response to close yet.
            if self._must_list:
                return
            self._response, self._heard, rest = response, time.monotonic(), b""
            is_silent = False
            try:
                async for chunk in response.content.iter_any():
                    self._heard = time.monotonic()
                    # Chunks end anywhere in a line.
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        if line:
                            yield self._events.decode(line)
            except TimeoutError:
                is_silent = True
                raise
            finally:
                self._response = None
                if not is_silent:  # closed or reset by the server, which had nothing to say until then
                    self._heard = time.monotonic()

    def _handle(self, event: WatchEvent) -> None:
        if event.type == "ERROR":
            status = self._statuses.decode(event.object)
            if status.reason in ("Expired", "Gone"):
                raise GoneError(f"{self.path}: {status.message}")
            raise SteersmanError(f"{self.path}: {status.message or status.reason}")
        if event.type != "BOOKMARK":
            self.handler.change(event.type, event.object)
        self._version = self._versions.decode(event.object).metadata.resource_version


REFUSALS = (403, 404)  # HTTP statuses of a collection that may not be listed or does not exist


class OptionalReflector(Reflector):
    """Reflector of one collection that starts when it is needed, and ends if listing is refused."""

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
    """Objects of one collection, kept by a watch once they are needed."""

    def __init__(
        self,
        client: Client,
        path: str,
        kind: type[msgspec.Struct],  # type that its objects are decoded to
        objects: dict[str, Any],  # key -> object, kept up to date
        changed: Callable[[str], None],  # called with the key of a changed object, "" for any number of them
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
