"""Run times of the cluster's pods: they teach the history, measure the error of estimates, and are kept in a file."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import structlog

from steersman.cluster.model import Pod
from steersman.cluster.objects.fields import valid_pod
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.cache.cluster_cache import PODS_PATH, ClusterCache
from steersman.kubernetes.client import Client
from steersman.orders.run_time_history import HistoryCopy, RunTimeHistory, read_run_times, write_run_times
from steersman.workloads.files import check_writable
from steersman.workloads.formats.kubernetes.lives import RunStatus

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
    """What is known of a running pod whose binding was seen."""

    bound_at: float  # when the watch first showed it on its node, seconds since 1970
    estimate: float  # that of the history at its binding


class RunTimeObserver:
    """Observer of the run times of all pods.

    Args:
        history: it learns.
        measured: told of the error of each estimate once the pod has ended: |log2(actual / estimated)|, by source.
        clock: seconds since 1970.
        learns_from_ended: whether `learn_from_ended` will be called.
    """

    def __init__(
        self,
        history: RunTimeHistory,
        measured: Callable[[EstimateSource, float], None],
        clock: Callable[[], float] = time.time,
        *,
        learns_from_ended: bool = False,
    ) -> None:
        self.history = history
        self._measured, self._clock = measured, clock
        self._running: dict[str, RunningSince] = {}
        # UIDs of pods that ended while we watched, until it is known which ended before.
        self._ended: set[str] | None = set() if learns_from_ended else None

    def bound(self, pod: CachedPod) -> None:
        """Note a pod on its node."""
        # One that its kubelet knows already was bound before we watched, maybe long ago.
        if pod.started is None and pod.uid not in self._running:
            self._running[pod.uid] = RunningSince(self._clock(), self.history.estimate(pod.pod))

    def ended(self, pod: CachedPod) -> bool:
        """Learn from a deleted or finished pod; return whether it is the first one of its owner that ended."""
        if self._ended is not None:
            self._ended.add(pod.uid)
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
        self, client: Client, cache: ClusterCache, after: float, on_first_end: Callable[[Pod], None]
    ) -> None:
        """Learn from pods that ended before we watched and are still listed. If they cannot be listed, that is logged.

        Args:
            client: connection to the API server.
            cache: of the pods that are watched.
            after: seconds since 1970; of pods that ended before nothing is learned.
            on_first_end: told of the first pod of each owner.
        """
        watched = {pod.uid for pod in cache.pods.values()}
        found: list[tuple[str, float, float, Pod]] = []
        try:
            async for page in client.pages(PODS_PATH, {"fieldSelector": FINISHED}):
                for raw in page.items:
                    run, uid = _run_of(raw), valid_pod(raw).metadata.uid
                    if run is not None and run[1] > after and uid not in watched:
                        found.append((uid, *run, cache.decode_model(raw)))
        except SteersmanError as error:
            log.warning("run times of pods that ended before are unknown", error=str(error))
            self._ended = None
            return
        seen, self._ended = self._ended or set(), None
        found = [each for each in found if each[0] not in seen]
        # What ended last is forgotten last.
        for _, began, ended, pod in sorted(found, key=lambda each: each[2]):
            if self.history.note(pod, max(ended - began, SHORTEST_SECONDS)):
                on_first_end(pod)
        log.info("run times learned", pods=len(found))


class _PodRun(msgspec.Struct, frozen=True):
    status: RunStatus = RunStatus()


def _run_of(raw: msgspec.Raw) -> tuple[float, float] | None:
    try:
        return msgspec.json.decode(raw, type=_PodRun).status.run(())
    except msgspec.MsgspecError:
        return None


def open_run_times(file: Path) -> RunTimeHistory:
    """Return the history in a file, an empty one if it is missing.

    Raises:
        UsageError: it is damaged, is something else, or cannot be written.
    """
    check_writable("--run-times", file)
    try:
        return read_run_times(file) if file.exists() else RunTimeHistory()
    except InputError as error:
        raise UsageError(f"--run-times {error}; expected a file that steersman schedule wrote, or a new name") from None


class RunTimeFile:
    """The file that keeps a history over restarts.

    Args:
        file: the file.
        history: what it keeps; so far it is that of the file.
    """

    def __init__(self, file: Path, history: RunTimeHistory) -> None:
        self._file, self._history = file, history
        self._version = history.version
        self._failed = False

    async def keep(self) -> None:
        """Write the file now and at most once a minute if something ended, until cancelled, and then once more."""
        if not self._file.exists() or self._history.version != self._version:
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
        try:
            write_run_times(self._file, copy)
        except SteersmanError as error:
            if not self._failed:
                log.error("run times not written", error=str(error))
            self._failed = True
        else:
            self._version, self._failed = version, False
