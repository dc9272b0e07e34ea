"""The labels of namespaces, watched from when some pod selects namespaces by them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set

import msgspec
import structlog

from steersman.kube.client import ApiError, Client
from steersman.kube.objects import named_head
from steersman.kube.reflector import EventType, Reflector

NAMESPACES_PATH = "/api/v1/namespaces"
REFUSALS = (403, 404)
SETTLE_SECONDS = 0.5
"""Changes within this time are followed together: each may mean that pods are decoded anew."""

log = structlog.get_logger("namespaces")


class Namespaces(Reflector):
    """Follows namespaces once they are needed.

    Args:
        client: the connection.
        changed: called when labels are others than before, some time after.

    Attributes:
        labels: by name; None: they are not known (yet), or may not be looked at.
    """

    def __init__(self, client: Client, changed: Callable[[], None]) -> None:
        super().__init__(client, NAMESPACES_PATH, self)
        self.labels: dict[str, dict[str, str]] | None = None
        self._known: dict[str, dict[str, str]] = {}
        self._tell, self._needed, self._dirty = changed, asyncio.Event(), asyncio.Event()
        self._refused = False
        self.synced.set()  # nothing is missing until somebody needs it

    @property
    def age(self) -> float:
        """See `Reflector`."""
        return super().age if self._needed.is_set() and not self._refused else 0.0

    def need(self) -> None:
        """Follow them from now on."""
        if not self._needed.is_set():
            self._needed.set()
            self.synced.clear()

    async def run(self) -> None:
        """See `Reflector`; does nothing before they are needed, and nothing more if we may not look at them."""
        await self._needed.wait()
        settling = asyncio.create_task(self._settle())
        try:
            await super().run()
        except ApiError as error:
            if error.status not in REFUSALS:
                raise
            self._refused = True
            self.synced.set()
            log.warning(
                "pods that select namespaces by labels are not understood: no permission to list namespaces",
                allow='rules: [{apiGroups: [""], resources: [namespaces], verbs: [list, watch]}] of a ClusterRole',
            )
        finally:
            settling.cancel()

    async def relist(self) -> None:
        """See `Reflector`."""
        if self._needed.is_set() and not self._refused:
            await super().relist()

    def keep(self, keys: Set[str]) -> None:
        """See `reflector.Handler`."""
        for name in self._known.keys() - keys:
            del self._known[name]
        self.labels = self._known
        self._dirty.clear()
        self._tell()

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """See `reflector.Handler`."""
        head = named_head(obj).metadata
        if kind == "DELETED":
            self._known.pop(head.name, None)
        elif self._known.get(head.name) == (head.labels or {}):
            return
        else:
            self._known[head.name] = head.labels or {}
        self._dirty.set()

    async def _settle(self) -> None:
        while True:
            await self._dirty.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            self._dirty.clear()
            if self.labels is not None:
                self._tell()
