"""Labels of namespaces, watched from when a pod first selects namespaces by labels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set

import msgspec
import structlog

from steersman.cluster.objects.api.metadata import named_object
from steersman.kubernetes.client import Client
from steersman.kubernetes.optional_watch import OptionalReflector
from steersman.kubernetes.watch import EventType

NAMESPACES_PATH = "/api/v1/namespaces"
SETTLE_SECONDS = 0.5
"""Changes within this time are applied together, since each may require decoding pods again."""

log = structlog.get_logger("namespaces")


class Namespaces(OptionalReflector):
    """Labels of namespaces, kept by a watch once they are needed.

    Args:
        client: connection to the API server.
        changed: called some time after labels changed.

    Attributes:
        labels: by name; None: not known yet, or forbidden.
    """

    def __init__(self, client: Client, changed: Callable[[], None]) -> None:
        super().__init__(client, NAMESPACES_PATH, self, _say_refused)
        self.labels: dict[str, dict[str, str]] | None = None
        self._known: dict[str, dict[str, str]] = {}
        self._tell, self._dirty = changed, asyncio.Event()

    async def run(self) -> None:
        settling = asyncio.create_task(self._settle())
        try:
            await super().run()
        finally:
            settling.cancel()

    def keep(self, keys: Set[str]) -> None:
        for name in self._known.keys() - keys:
            del self._known[name]
        self.labels = self._known
        # Changes of the list itself are told right here.
        self._dirty.clear()
        self._tell()

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        head = named_object(obj).metadata
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
            # None during the first list, when labels are incomplete.
            if self.labels is not None:
                self._tell()


def _say_refused(_: str) -> None:
    log.warning(
        "pods that select namespaces by labels are not understood: no permission to list namespaces",
        allow='rules: [{apiGroups: [""], resources: [namespaces], verbs: [list, watch]}] of a ClusterRole',
    )
