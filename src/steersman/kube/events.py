"""Events about pods and nodes, as `kubectl describe` shows them: written in the background, behind everything else.

Equal events become one with a count (`series`), as in client-go's `tools/events`.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import structlog

from steersman.errors import SteersmanError
from steersman.kube.client import ApiError, Client, UnreachableError
from steersman.kube.lease import micro_time, own_identity

EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"
CONTROLLER = "steersman"
MAX_NOTE_BYTES = 1024
MAX_NAME = 253
SERIES_SECONDS = 360.0
"""An event that comes again within this time (or a sweep more) is counted, not written anew."""
SWEEP_SECONDS = 30.0
"""How often the server learns the counts of events that came more than twice."""
KNOWN = 4096
"""So many events are remembered, should they come again."""
ROOM = 10_000
SENDING = 8
SENDING_WHEN_BUSY = 1
BUSY_POLL_SECONDS = 0.05
FLUSH_SECONDS = 5.0
RETRY_SECONDS = (1.0, 2.0)
TRANSIENT = (429, 500, 502, 503, 504)
WARN_SECONDS = 60.0

Kind = Literal["Normal", "Warning"]
log = structlog.get_logger("events")


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """Which pod, or which object of another kind; `namespace` is "" of a node."""

    namespace: str
    name: str
    uid: str
    kind: str = "Pod"


@dataclass(frozen=True, slots=True)
class _Key:
    """What equal events have in common."""

    about: ObjectReference
    reason: str
    note: str
    kind: Kind
    action: str


@dataclass(slots=True)
class _Event:
    """An event and how often it came. Times are of the world's clock, but for `seen_at`.

    Attributes:
        told: the count that the server knows; 0: it does not know the event.
        pending: whether it waits to be sent, or is being sent.
    """

    key: _Key
    name: str
    first: float
    last: float
    seen_at: float
    count: int = 1
    told: int = 0
    pending: bool = False


class EventRecorder:
    """Writes events; an asynchronous context manager, at whose end those that are left have five seconds.

    Args:
        client: the connection.
        instance: who reports (`reportingInstance`); by default a name that no other process has.
        busy: while it says so, one event is sent at a time, for binds come first.
        room: so many events may wait; then the oldest is dropped.
        clock: seconds that never go back.

    Attributes:
        sent, dropped, failed: how many requests went well, events were never sent, and requests were given up.
    """

    def __init__(
        self,
        client: Client,
        *,
        instance: str = "",
        busy: Callable[[], bool] = lambda: False,
        room: int = ROOM,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client, self.instance = client, instance or own_identity()
        self.sent = self.dropped = self.failed = 0
        self._busy, self._clock = busy, clock
        self._queue: asyncio.Queue[_Event] = asyncio.Queue(room)
        self._known: OrderedDict[_Key, _Event] = OrderedDict()
        self._background: list[asyncio.Task[None]] = []
        self._sending: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._stamp = self._pending = 0
        self._warned_at, self._unsaid = -WARN_SECONDS, 0

    async def __aenter__(self) -> Self:
        self._background = [asyncio.create_task(self._dispatch()), asyncio.create_task(self._sweep_often())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        self._sweep()
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._queue.join()
        except TimeoutError:
            self.dropped += self._pending
            log.warning("events not written", count=self._pending)
        finally:
            tasks = [*self._background, *self._sending]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def record(
        self, about: ObjectReference, reason: str, note: str, kind: Kind = "Normal", action: str = "Scheduling"
    ) -> None:
        """Note an event; it is written later. Does not block.

        Args:
            about: which object.
            reason: one word, such as `Scheduled` or `FailedScheduling`.
            note: a sentence; what is beyond 1,024 bytes is cut off.
            kind: how bad it is.
            action: what was done or tried, one word: `Binding` where kube-scheduler has bound, else `Scheduling`.
        """
        now, wall = self._clock(), time.time()
        key = _Key(about, reason, shortened(note), kind, action)
        event = self._known.get(key)
        if event is None:
            event = self._known[key] = _Event(key, self._name(about), wall, wall, now)
            if len(self._known) > KNOWN:
                self._known.popitem(last=False)
        else:
            event.count, event.last, event.seen_at = event.count + 1, wall, now
        self._known.move_to_end(key)
        if event.told < 2:
            self._put(event)

    def _name(self, about: ObjectReference) -> str:
        self._stamp = max(time.time_ns(), self._stamp + 1)
        suffix = f".{self._stamp:x}"
        return about.name[: MAX_NAME - len(suffix)].rstrip("-.") + suffix

    def _put(self, event: _Event) -> None:
        if event.pending:
            return
        if self._queue.full():
            oldest = self._queue.get_nowait()
            self._queue.task_done()
            oldest.pending = False
            self._pending -= 1
            self.dropped += 1
        event.pending = True
        self._pending += 1
        self._queue.put_nowait(event)

    async def _dispatch(self) -> None:
        while True:
            event = await self._queue.get()
            while len(self._sending) >= self._allowed():
                await asyncio.wait(self._sending, timeout=BUSY_POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(self._send(event))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    def _allowed(self) -> int:
        return SENDING_WHEN_BUSY if self._busy() and not self._stopping else SENDING

    async def _send(self, event: _Event) -> None:
        try:
            for wait in (*RETRY_SECONDS, None):
                try:
                    await self._write(event)
                    self.sent += 1
                    break
                except SteersmanError as error:
                    transient = isinstance(error, UnreachableError) or getattr(error, "status", 0) in TRANSIENT
                    if wait is None or not transient or self._stopping:
                        self._give_up(error)
                        break
                await asyncio.sleep(wait)
        finally:
            event.pending = False
            self._pending -= 1
            if event.told == 1 < event.count:
                self._put(event)
            self._queue.task_done()

    async def _write(self, event: _Event) -> None:
        count = event.count
        path = EVENTS.format(_namespace(event.key.about))
        if event.told:
            try:
                await self.client.patch(f"{path}/{event.name}", {"series": _series(event)})
            except ApiError as error:
                if error.status != 404:
                    raise
                event.name = self._name(event.key.about)  # the server forgets events after an hour
                event.told = 0
        if not event.told:
            try:
                await self.client.create(path, self._object(event))
            except ApiError as error:
                if error.status != 409:  # else an attempt went well whose answer got lost
                    raise
        event.told = count

    def _object(self, event: _Event) -> dict[str, Any]:
        key = event.key
        found = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": _namespace(key.about)},
            "eventTime": micro_time(event.first),
            "reportingController": CONTROLLER,
            "reportingInstance": self.instance[:128],
            "action": key.action,
            "reason": key.reason,
            "regarding": {
                "apiVersion": "v1",
                "kind": key.about.kind,
                "name": key.about.name,
                "uid": key.about.uid,
                **({"namespace": key.about.namespace} if key.about.namespace else {}),
            },
            "note": key.note,
            "type": key.kind,
        }
        return {**found, "series": _series(event)} if event.count > 1 else found

    async def _sweep_often(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._sweep()

    def _sweep(self) -> None:
        """Send counts that the server does not know, and forget what came long ago."""
        now = self._clock()
        for key, event in list(self._known.items()):
            if 0 < event.told < event.count:
                self._put(event)
            if now - event.seen_at > SERIES_SECONDS:
                del self._known[key]

    def _give_up(self, error: SteersmanError) -> None:
        self.failed += 1
        self._unsaid += 1
        now = self._clock()
        if now - self._warned_at >= WARN_SECONDS:
            log.warning("event not written", error=str(error), failed=self._unsaid)
            self._warned_at, self._unsaid = now, 0


def _namespace(about: ObjectReference) -> str:
    """Return where events about an object are: those of nodes are in `default`, as the API server demands."""
    return about.namespace or "default"


def shortened(note: str) -> str:
    """The note in at most 1,024 bytes of UTF-8, with an ellipsis where something is missing."""
    if len(note) * 4 <= MAX_NOTE_BYTES or len(encoded := note.encode()) <= MAX_NOTE_BYTES:
        return note
    return encoded[: MAX_NOTE_BYTES - 3].decode(errors="ignore") + "..."


def _series(event: _Event) -> dict[str, Any]:
    return {"count": event.count, "lastObservedTime": micro_time(event.last)}
