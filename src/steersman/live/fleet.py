"""The pods of a run as a watch shows them: how many there are, how many have a node, and waiting until it is so."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Set
from dataclasses import dataclass

import msgspec

from steersman.kube.client import Client
from steersman.kube.objects import PodHead, pod_head
from steersman.kube.reflector import EventType, Reflector
from steersman.live.objects import APP, selector

ALL_PODS = "/api/v1/pods"


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a pod: its Deployment ("" if none), and whether it has a node."""

    app: str
    bound: bool


class Fleet:
    """Follows the pods of a run.

    Args:
        client: of the cluster.
        run: the id of the run.
        on_came: told the key of a pod that is new.
        on_bound: told the key of a pod that has got a node.
        on_gone: told the key of a pod that is gone.

    Attributes:
        pods: those that are there, by namespace and name.
        bound: how many of them have a node.
        by_app: how many there are of each Deployment.
    """

    def __init__(
        self,
        client: Client,
        run: str,
        on_came: Callable[[str], None] = lambda _: None,
        on_bound: Callable[[str], None] = lambda _: None,
        on_gone: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.pods: dict[str, Standing] = {}
        self.bound = 0
        self.by_app: Counter[str] = Counter()
        self.reflector = Reflector(client, ALL_PODS, self, {"labelSelector": selector(run)})
        self._on_came, self._on_bound, self._on_gone = on_came, on_bound, on_gone
        self._changed = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many pods have no node."""
        return len(self.pods) - self.bound

    async def until(self, holds: Callable[[], bool], seconds: float | None) -> bool:
        """Wait until something holds of the pods, for so many seconds at most (None: for ever); whether it does."""
        try:
            async with asyncio.timeout(seconds):
                await self.reflector.synced.wait()
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def notify(self) -> None:
        """Something else has changed that somebody may wait for."""
        self._changed.set()

    def keep(self, keys: Set[str]) -> None:
        """The pods are these alone."""
        for key in self.pods.keys() - keys:
            self._lose(key)
        self._changed.set()

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """A pod came, changed or went."""
        head = pod_head(obj)
        if kind == "DELETED":
            self._lose(head.key)
        else:
            self._see(head)
        self._changed.set()

    def _see(self, head: PodHead) -> None:
        bound = bool(head.spec.node_name)
        known = self.pods.get(head.key)
        if known is None:
            app = (head.metadata.labels or {}).get(APP, "")
            self.by_app[app] += 1
            self._on_came(head.key)
        else:
            app = known.app
        self.pods[head.key] = Standing(app, bound)
        if bound and (known is None or not known.bound):
            self.bound += 1
            self._on_bound(head.key)

    def _lose(self, key: str) -> None:
        known = self.pods.pop(key, None)
        if known is not None:
            self.bound -= known.bound
            self.by_app[known.app] -= 1
            self._on_gone(key)
