"""Watch a live cluster in a thread, for callers without an event loop."""

from __future__ import annotations

import asyncio
import threading
import time

from steersman.apps.recorder.event_log import EventLog, LoggedEvent
from steersman.apps.runtime.tasks import BackgroundTasks
from steersman.core.errors import SteersmanError
from steersman.kubernetes.cache.cluster_cache import ClusterCache
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeConfig

POLL_SECONDS = 0.2


class WatcherThread:
    """Event log of a cluster, written by a thread.

    Args:
        config: configuration of the cluster.
        scheduler_name: scheduler whose decisions count.

    Raises:
        SteersmanError: the cluster cannot be watched.
    """

    def __init__(self, config: KubeConfig, scheduler_name: str) -> None:
        self.config, self.scheduler_name = config, scheduler_name
        self._journal = EventLog(scheduler_name)
        self._taken = 0
        self._loop = asyncio.new_event_loop()
        self._failure: SteersmanError | None = None
        self._synced = threading.Event()
        self._cache: ClusterCache | None = None
        threading.Thread(target=self._run, daemon=True).start()
        self._synced.wait()
        self._check()

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        assert self._cache is not None
        return len(self._cache.state.slots)

    def take(self, enough: int, seconds: float) -> list[LoggedEvent]:
        """Return what happened since the last call, as soon as there are `enough` decisions, or some after a while."""
        began = time.monotonic()
        while True:
            self._check()
            count = self._journal.decisions - self._taken
            if count >= enough or (count and time.monotonic() - began > seconds):
                break
            time.sleep(POLL_SECONDS)
        return asyncio.run_coroutine_threadsafe(self._hand_over(), self._loop).result()

    async def _hand_over(self) -> list[LoggedEvent]:
        journal = self._journal
        entries, journal.entries = journal.entries, []
        self._taken = journal.decisions
        return entries

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._watch())
        except SteersmanError as error:
            self._failure = error
        finally:
            self._synced.set()

    async def _watch(self) -> None:
        async with Client(self.config) as client:
            cache = self._cache = ClusterCache(client, self._journal)
            self._journal.state = lambda: cache.state
            async with BackgroundTasks(*(reflector.run() for reflector in cache.reflectors)):
                for reflector in cache.reflectors:
                    await reflector.synced.wait()
                self._synced.set()
                await asyncio.Event().wait()
