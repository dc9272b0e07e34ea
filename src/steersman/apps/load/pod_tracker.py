"""Track the pods of a run by a watch: how many exist, how many are bound, and wait for either."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass

import msgspec

from steersman.apps.load.objects import APP, selector
from steersman.cluster.objects.api.decoding import pod_from_json
from steersman.cluster.objects.api.pods import LivePod
from steersman.kubernetes.client import Client
from steersman.kubernetes.watch import EventType, Reflector

ALL_PODS = "/api/v1/pods"


@dataclass(frozen=True, slots=True)
class RunPodStatus:
    """Status of a pod: its Deployment ("" if none), and whether it has a node."""

    app: str
    bound: bool


class RunPodTracker:
    """Pods of a run, kept by a watch.

    Args:
        client: connection to the cluster.
        run: id of the run.
        on_came: called with the key of a new pod.
        on_bound: called with the key of a pod that was bound.
        on_gone: called with the key of a deleted pod.

    Attributes:
        pods: existing pods by namespace and name.
        bound: number of bound pods.
        by_app: number of pods by Deployment.
    """

    def __init__(
        self,
        client: Client,
        run: str,
        on_came: Callable[[str], None] = lambda _: None,
        on_bound: Callable[[str], None] = lambda _: None,
        on_gone: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.pods: dict[str, RunPodStatus] = {}
        self.bound = 0
        self.by_app: Counter[str] = Counter()
        self.reflector = Reflector(client, ALL_PODS, self, {"labelSelector": selector(run)})
        self._on_came, self._on_bound, self._on_gone = on_came, on_bound, on_gone
        self._changed = asyncio.Event()

    def unbound_pods_warning(self, expected: int, seconds: float, schedulers: Collection[str]) -> str:
        """Return the warning that some of the expected pods have no node after so many seconds."""
        plural = "s" if len(schedulers) > 1 else ""
        return (
            f"{expected - self.bound} of {expected} pods have no node after {seconds:g} s; do{'' if plural else 'es'} "
            f"scheduler{plural} {', '.join(map(repr, schedulers))} run, and have the nodes room? The run goes on"
        )

    @property
    def waiting(self) -> int:
        """Return the number of pods without a node."""
        return len(self.pods) - self.bound

    async def until(self, holds: Callable[[], bool], seconds: float | None) -> bool:
        """Wait at most `seconds` (None: forever) until a condition on the pods holds, and return whether it does."""
        try:
            async with asyncio.timeout(seconds):
                # Before the first list a condition such as "no pod waits" would hold of no pods.
                await self.reflector.synced.wait()
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def notify(self) -> None:
        """Wake those that wait for a condition."""
        self._changed.set()

    def keep(self, keys: Set[str]) -> None:
        """Keep these pods alone, after a list."""
        for key in self.pods.keys() - keys:
            self._lose(key)
        self._changed.set()

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """Apply a watch event."""
        head = pod_from_json(obj)
        if kind == "DELETED":
            self._lose(head.key)
        else:
            self._see(head)
        self._changed.set()

    def _see(self, head: LivePod) -> None:
        bound = bool(head.node)
        known = self.pods.get(head.key)
        if known is None:
            app = (head.metadata.labels or {}).get(APP, "")
            self.by_app[app] += 1
            self._on_came(head.key)
        else:
            app = known.app
        self.pods[head.key] = RunPodStatus(app, bound)
        if bound and (known is None or not known.bound):
            self.bound += 1
            self._on_bound(head.key)

    def _lose(self, key: str) -> None:
        known = self.pods.pop(key, None)
        if known is not None:
            self.bound -= known.bound
            self.by_app[known.app] -= 1
            self._on_gone(key)
