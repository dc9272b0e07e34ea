"""Record events about pods and nodes, as `kubectl describe` shows them, in the background and after bindings.

Equal events become one with a count (`series`), as in client-go's `tools/events`.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

import structlog

from steersman.core.errors import SteersmanError
from steersman.core.event_loop import Backoff
from steersman.kubernetes.client import ApiError, Client, is_transient
from steersman.kubernetes.lease import micro_time, own_identity

EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"
CONTROLLER = "steersman"
MAX_NOTE_BYTES = 1024
MAX_NAME = 253
SERIES_SECONDS = 360.0  # time within which (plus one sweep) an equal event is counted instead of written
SWEEP_SECONDS = 30.0  # interval at which the server gets the counts of events that occurred more than twice
KNOWN = 4096  # number of events that are remembered for counting
ROOM = 10_000
SENDING = 8
SENDING_WHEN_BUSY = 1
BUSY_POLL_SECONDS = 0.05
FLUSH_SECONDS = 5.0
TRIES, RETRY_SECONDS = 3, (1.5, 3.0)
WARN_SECONDS = 60.0

Kind = Literal["Normal", "Warning"]
log = structlog.get_logger("events")


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """Reference to a pod or another object; `namespace` is "" of a node."""

    namespace: str
    name: str
    uid: str
    kind: str = "Pod"


@dataclass(frozen=True, slots=True)
class _Key:
    """Fields in which equal events agree."""

    about: ObjectReference
    reason: str
    note: str
    kind: Kind
    action: str


@dataclass(slots=True)
class _Event:
    """An event and its count. Times are wall-clock times, except `seen_at`."""

    key: _Key
    name: str
    first: float
    last: float
    seen_at: float
    count: int = 1
    told: int = 0  # count that the server has; 0: it does not have the event
    pending: bool = False  # whether it waits to be sent, or is being sent


class EventRecorder:
    """Recorder of events; an asynchronous context manager that gives unsent events five seconds at its end."""

    def __init__(
        self,
        client: Client,
        *,
        instance: str = "",  # `reportingInstance`; by default a name that no other process has
        # While it returns True one event is sent at a time, since bindings come first
        busy: Callable[[], bool] = lambda: False,
        room: int = ROOM,  # number of events that may wait; beyond it the oldest is dropped
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client, self.instance = client, instance or own_identity()
        # `sent`, `dropped`, `failed`: successful requests, events never sent, requests given up
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

    async def __aexit__(self, *_: object) -> None:
        self._stopping = True
        self._sweep()
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._queue.join()
        except TimeoutError:
            # Those being sent count, too: their tasks are cancelled below.
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
        """Queue an event, without blocking.

        Args:
            reason: one word, such as `Scheduled` or `FailedScheduling`.
            note: a sentence, truncated to 1,024 bytes.
            kind: `Normal` or `Warning`.
            action: what was done or tried: `Binding` where kube-scheduler has bound, else `Scheduling`.
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
        # The first is created and the second begins the series at once; further counts are left to the sweep.
        if event.told < 2:
            self._put(event)

    def _name(self, about: ObjectReference) -> str:
        # Names are unique even if the clock is coarse or was set back.
        self._stamp = max(time.time_ns(), self._stamp + 1)
        suffix = f".{self._stamp:x}"
        # What is left after truncation must be a DNS name, so it may not end in a hyphen or a dot.
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
                # With a timeout, since the end of the busy time is no event that wakes this.
                await asyncio.wait(self._sending, timeout=BUSY_POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(self._send(event))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    def _allowed(self) -> int:
        return SENDING_WHEN_BUSY if self._busy() and not self._stopping else SENDING

    async def _send(self, event: _Event) -> None:
        try:
            backoff = Backoff(*RETRY_SECONDS)
            for attempt in range(TRIES):
                try:
                    await self._write(event)
                    self.sent += 1
                    break
                except SteersmanError as error:
                    if attempt == TRIES - 1 or not is_transient(error) or self._stopping:
                        self._give_up(error)
                        break
                await backoff.wait()
        finally:
            event.pending = False
            self._pending -= 1
            # It occurred again while it was sent.
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
                if error.status != 409:  # else an earlier attempt succeeded and its answer was lost
                    raise
        event.told = count

    def _object(self, event: _Event) -> dict[str, Any]:
        key = event.key
        result = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": _namespace(key.about)},
            "eventTime": micro_time(event.first),
            "reportingController": CONTROLLER,
            # The API refuses longer ones.
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
        return {**result, "series": _series(event)} if event.count > 1 else result

    async def _sweep_often(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._sweep()

    def _sweep(self) -> None:
        """Send counts that the server does not have, and forget old events."""
        now = self._clock()
        for key, event in list(self._known.items()):
            # Events that were never written are sent by `_put` when they occur, not from here.
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
    """Return the namespace of events about an object: those of nodes are in `default`, as the API server demands."""
    return about.namespace or "default"


def shortened(note: str) -> str:
    """Return the note in at most 1,024 bytes of UTF-8, with an ellipsis if it was truncated."""
    # A character has at most four bytes in UTF-8, so short notes need not be encoded to be measured.
    if len(note) * 4 <= MAX_NOTE_BYTES or len(encoded := note.encode()) <= MAX_NOTE_BYTES:
        return note
    return encoded[: MAX_NOTE_BYTES - 3].decode(errors="ignore") + "..."


def _series(event: _Event) -> dict[str, Any]:
    return {"count": event.count, "lastObservedTime": micro_time(event.last)}
