"""The labels of namespaces, watched from when some pod selects namespaces by them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set

import msgspec
import structlog

from steersman.kube.client import Client
from steersman.kube.needed import OptionalReflector
from steersman.kube.objects import named_head
from steersman.kube.reflector import EventType

NAMESPACES_PATH = "/api/v1/namespaces"
SETTLE_SECONDS = 0.5
"""Changes within this time are followed together: each may mean that pods are decoded anew."""

log = structlog.get_logger("namespaces")


class Namespaces(OptionalReflector):
    """Follows namespaces once they are needed.

    Args:
        client: the connection.
        changed: called when labels are others than before, some time after.

    Attributes:
        labels: by name; None: they are not known (yet), or may not be looked at.
    """

    def __init__(self, client: Client, changed: Callable[[], None]) -> None:
        super().__init__(client, NAMESPACES_PATH, self, _say_refused)
        self.labels: dict[str, dict[str, str]] | None = None
        self._known: dict[str, dict[str, str]] = {}
        self._tell, self._dirty = changed, asyncio.Event()

    async def run(self) -> None:
        """See `OptionalReflector`."""
        settling = asyncio.create_task(self._settle())
        try:
            await super().run()
        finally:
            settling.cancel()

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


def _say_refused(_: str) -> None:
    log.warning(
        "pods that select namespaces by labels are not understood: no permission to list namespaces",
        allow='rules: [{apiGroups: [""], resources: [namespaces], verbs: [list, watch]}] of a ClusterRole',
    )
