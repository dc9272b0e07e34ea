"""What happens in a live cluster, for whoever is no coroutine: a thread watches, and hands over what it wrote down."""

from __future__ import annotations

import asyncio
import threading
import time

from steersman.errors import SteersmanError
from steersman.kube.cache import ClusterCache
from steersman.kube.client import Client
from steersman.kube.config import KubeConfig
from steersman.live.journal import Entry, Journal
from steersman.live.running import Background

POLL_SECONDS = 0.2


class Feed:
    """What happens in a cluster, written down by a thread.

    Args:
        config: of the cluster.
        scheduler_name: whose decisions count.

    Raises:
        SteersmanError: the cluster cannot be watched.
    """

    def __init__(self, config: KubeConfig, scheduler_name: str) -> None:
        self.config, self.scheduler_name = config, scheduler_name
        self._journal = Journal(scheduler_name)
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
        """How many there are."""
        assert self._cache is not None
        return len(self._cache.state.slots)

    def take(self, enough: int, seconds: float) -> list[Entry]:
        """What happened since the last call, as soon as there are `enough` decisions, or some after a while."""
        began = time.monotonic()
        while True:
            self._check()
            count = self._journal.decisions - self._taken
            if count >= enough or (count and time.monotonic() - began > seconds):
                break
            time.sleep(POLL_SECONDS)
        return asyncio.run_coroutine_threadsafe(self._hand_over(), self._loop).result()

    async def _hand_over(self) -> list[Entry]:
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
            async with Background(*(reflector.run() for reflector in cache.reflectors)):
                for reflector in cache.reflectors:
                    await reflector.synced.wait()
                self._synced.set()
                await asyncio.Event().wait()
