"""Run times of the cluster's pods: they teach the history, measure the error of estimates, and are kept in a file."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog

from steersman.apps.runtime.decoding import ALL_PODS, documents
from steersman.cluster.model import Node, Pod
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.client import ApiError, Client
from steersman.orders.live_history import HistoryCopy, LiveHistory, read_run_times, write_run_times
from steersman.workloads.files import check_writable
from steersman.workloads.formats.kubernetes.lives import lives_of
from steersman.workloads.formats.kubernetes.objects import Objects

WRITE_SECONDS = 60.0
"""Shortest interval between two writes of the file."""
SHORTEST_SECONDS = 1.0
"""Shorter run times count as so many seconds: of a pod's start the API knows the second alone."""

FINISHED = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"
"""Field selector of pods that have ended."""

EstimateSource = Literal["stated", "history"]

log = structlog.get_logger("scheduler")


@dataclass(frozen=True, slots=True)
class RunningSince:
    """What is known of a running pod whose binding was seen.

    Attributes:
        bound_at: when the watch first showed it on its node, seconds since 1970.
        estimate: that of the history at its binding.
    """

    bound_at: float
    estimate: float


class RunTimeObserver:
    """Observer of the run times of all pods.

    Args:
        history: it learns.
        measured: told of the error of each estimate once the pod has ended: |log2(actual / estimated)|, by source.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        history: LiveHistory,
        measured: Callable[[EstimateSource, float], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.history = history
        self._measured, self._clock = measured, clock
        self._running: dict[str, RunningSince] = {}

    def bound(self, pod: CachedPod) -> None:
        """Note a pod on its node."""
        # One that its kubelet knows already was bound before we watched, maybe long ago.
        if pod.started is None and pod.uid not in self._running:
            self._running[pod.uid] = RunningSince(self._clock(), self.history.estimate(pod.pod))

    def ended(self, pod: CachedPod) -> bool:
        """Learn from a deleted or finished pod; return whether it is the first one of its owner that ended."""
        known = self._running.pop(pod.uid, None)
        began = pod.started
        if began is None:
            if known is None:  # it never ran
                return False
            began = known.bound_at
        seconds = max(self._clock() - began, SHORTEST_SECONDS)
        stated = pod.pod.estimated_seconds
        if stated is not None and stated > 0:
            self._measured("stated", abs(math.log2(seconds / stated)))
        if known is not None:
            self._measured("history", abs(math.log2(seconds / known.estimate)))
        return self.history.note(pod.pod, seconds)


async def learn_from_ended(
    client: Client,
    history: LiveHistory,
    nodes: Sequence[Node],
    between: tuple[float, float],
    on_first_end: Callable[[Pod], None],
) -> None:
    """Learn from the pods that ended before and are still listed. A failure is logged, and nothing is learned.

    Args:
        client: connection to the API server.
        history: it learns.
        nodes: they say which resources are GPUs.
        between: seconds since 1970 after which, and before which, a pod ended.
        on_first_end: told of the first pods of their owners.
    """
    after, before = between
    ended = []
    try:
        async for page in client.pages(ALL_PODS, {"fieldSelector": FINISHED}):
            lives = lives_of([Objects(documents(page, "Pod", "v1"))], nodes)
            ended += [each for each in lives.ended if after < each.ended < before]
    except ApiError as error:
        log.warning("run times of pods that ended before are unknown", error=str(error))
        return
    # What ended last is forgotten last.
    for each in sorted(ended, key=lambda each: each.ended):
        if history.note(each.pod, max(each.ended - each.started, SHORTEST_SECONDS)):
            on_first_end(each.pod)
    log.info("run times learned", pods_ended_before=len(ended))


def open_run_times(file: Path) -> LiveHistory:
    """Return the history in a file, an empty one if it is missing.

    Raises:
        UsageError: it is damaged, is something else, or cannot be written.
    """
    check_writable("--run-times", file)
    try:
        return read_run_times(file) if file.exists() else LiveHistory()
    except InputError as error:
        raise UsageError(f"--run-times {error}; expected a file that steersman schedule wrote, or a new name") from None


class RunTimeFile:
    """The file that keeps a history over restarts.

    Args:
        file: the file.
        history: what it keeps.
    """

    def __init__(self, file: Path, history: LiveHistory) -> None:
        self._file, self._history = file, history
        self._version = history.version
        self._failed = False

    async def keep(self) -> None:
        """Write the file at most once a minute if something ended, until cancelled, and then once more."""
        if not self._file.exists():
            self._write(self._history.copy(), self._history.version)
        try:
            while True:
                await asyncio.sleep(WRITE_SECONDS)
                if self._history.version != self._version:
                    await self._write_in_thread()
        finally:
            if self._history.version != self._version:
                self._write(self._history.copy(), self._history.version)

    async def _write_in_thread(self) -> None:
        """Write the file while pods are decided; a cancellation waits for the end."""
        copy, version = self._history.copy(), self._history.version
        writing = asyncio.create_task(asyncio.to_thread(self._write, copy, version))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            # Else it might replace what is written last.
            await writing
            raise

    def _write(self, copy: HistoryCopy, version: int) -> None:
        """Write the file; a failure is logged once and tried again."""
        try:
            write_run_times(self._file, copy)
        except SteersmanError as error:
            if not self._failed:
                log.error("run times not written", error=str(error))
            self._failed = True
        else:
            self._version, self._failed = version, False
