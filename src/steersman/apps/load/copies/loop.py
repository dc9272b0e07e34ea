"""The loop of Matranga's thesis: create copies of a manifest one after the other, wait, delete them all, again.

Nothing is kept in the cluster but what is created, which the end of the loop deletes, however it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from steersman.apps.load.cleaning import delete_pods
from steersman.apps.load.copies.manifest import DeploymentTemplate
from steersman.apps.load.driver import RowLog
from steersman.apps.load.objects import DEPLOYMENTS, RUN, selector
from steersman.apps.load.pod_tracker import RunPodTracker
from steersman.apps.load.run_state import NO_NAMESPACE, new_id
from steersman.apps.runtime.tasks import BackgroundTasks, retry_transient
from steersman.core.errors import SteersmanError, UsageError
from steersman.kubernetes.client import CONFLICT, MISSING, ApiError, Client
from steersman.workloads.generators.deployments import DELETE

SYNC_SECONDS = 60.0
DEFAULT_COPIES, DEFAULT_PAUSE = 30, 10.0


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """How copies are created and deleted.

    Attributes:
        copies: copies at a time, of each Deployment.
        interval: seconds from one copy to the next.
        patience: longest time until all pods have nodes, after the last copy, in seconds.
        pause: seconds from then to the deletion.
        cycles: times that this is done; None: until it is stopped.
        scheduler_name: scheduler of the pods; "": the one that the manifest names.
        annotations: further annotations of the pods.
    """

    copies: int = DEFAULT_COPIES
    interval: float = 2.0
    patience: float = 60.0
    pause: float = DEFAULT_PAUSE
    cycles: int | None = None
    scheduler_name: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the values. Raises UsageError."""
        if self.copies < 1:
            raise UsageError(f"--copies must be at least 1, not {self.copies}")
        if self.cycles is not None and self.cycles < 1:
            raise UsageError(f"--cycles must be at least 1, not {self.cycles}")
        for name in ("interval", "patience", "pause"):
            value = getattr(self, name)
            if not 0 <= value < 1e6:
                raise UsageError(f"--{name} {value:g}: expected 0 or more seconds")


class CopyStats(NamedTuple):
    """Finished cycles, Deployments and pods created, cycles whose pods were not all bound within `patience`."""

    cycles: int = 0
    deployments: int = 0
    pods: int = 0
    timed_out_cycles: int = 0


class CopyLoop:
    """Creator and deleter of copies.

    Args:
        client: connection to the cluster.
        namespace: namespace of the copies.
        deployments: what is copied.
        options: how.
        log: CSV of what was done.
        report: called with the number of steps done in this cycle, and of all its steps.
        say: called with what is worth knowing during the run.

    Attributes:
        tracker: pods of the copies, while `following`.
        stats: what was done.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        deployments: Sequence[DeploymentTemplate],
        options: CopyOptions,
        log: RowLog,
        report: Callable[[int, int], None] = lambda _, __: None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.run_id, self.options, self.stats = new_id(), options, CopyStats()
        self.tracker = RunPodTracker(client, self.run_id)
        self._client, self._namespace, self._deployments = client, namespace, deployments
        self._path, self._log, self._report = DEPLOYMENTS.format(namespace), log, report
        self._say = say
        self._steps = 2 * options.copies
        self._created: list[tuple[DeploymentTemplate, int]] = []

    async def run(self) -> CopyStats:
        """Do all cycles; when it is cancelled or fails, delete what was created.

        Raises:
            SteersmanError: the API refuses something, or pods do not go away.
        """
        try:
            async with self.following():
                while self.options.cycles is None or self.stats.cycles < self.options.cycles:
                    await self.create()
                    await self.settle()
                    await asyncio.sleep(self.options.pause)
                    await self.delete()
                    self.stats = self.stats._replace(cycles=self.stats.cycles + 1)
        finally:
            if self._created:
                await self.delete()
        return self.stats

    def following(self) -> BackgroundTasks:
        """Return a context in which the pods of the copies are tracked, as `create` and `settle` need it."""
        return BackgroundTasks(self.tracker.reflector.run())

    async def create(self) -> None:
        """Create all copies, an interval apart. Raises SteersmanError: the API refuses one."""
        await self.tracker.until(lambda: True, SYNC_SECONDS)
        for index in range(1, self.options.copies + 1):
            if index > 1:
                await asyncio.sleep(self.options.interval)
            for deployment in self._deployments:
                await self._create(deployment, index)
            self._log.add([each.row(index) for each in self._deployments])
            self._report(index, self._steps)

    async def settle(self) -> bool:
        """Wait until all pods have nodes, for `patience` seconds at most; return whether they have."""
        expected = sum(each.replicas for each, _ in self._created)
        bound = await self.tracker.until(lambda: self.tracker.bound >= expected, self.options.patience)
        if not bound:
            if not self.stats.timed_out_cycles:
                names = dict.fromkeys(
                    self.options.scheduler_name or each.pod.scheduler_name for each, _ in self._created
                )
                self._say(self.tracker.unbound_pods_warning(expected, self.options.patience, names))
            self.stats = self.stats._replace(timed_out_cycles=self.stats.timed_out_cycles + 1)
        return bound

    async def delete(self) -> None:
        """Delete all copies and wait until their pods are gone. Raises SteersmanError: they do not go away."""
        done = self.options.copies

        def gone(count: int, total: int) -> None:
            self._report(done + (self._steps - done) * count // max(total, 1), self._steps)

        await delete_pods(self._client, self._namespace, selector(self.run_id), gone)
        self._log.add([deployment.row(index, DELETE) for deployment, index in self._created])
        self._created.clear()
        self._report(self._steps, self._steps)

    async def _create(self, deployment: DeploymentTemplate, index: int) -> None:
        manifest = deployment.render(index, self.run_id, self.options.scheduler_name, self.options.annotations)
        name = manifest["metadata"]["name"]
        self._created.append((deployment, index))  # before the request, whose answer may be lost
        try:
            await retry_transient(lambda: self._client.create(self._path, manifest))
        except ApiError as error:
            # Of a conflict, the existing Deployment may be our own.
            if error.status != 409 or not await self._is_ours(name):
                self._created.pop()
                raise self._refused(name, error) from None
        self.stats = self.stats._replace(
            deployments=self.stats.deployments + 1, pods=self.stats.pods + deployment.replicas
        )

    async def _is_ours(self, name: str) -> bool:
        """Return whether a Deployment is of this run: its creation may have succeeded without an answer."""
        result = await retry_transient(lambda: self._client.get(f"{self._path}/{name}"))
        return bool((result["metadata"].get("labels") or {}).get(RUN) == self.run_id)

    def _refused(self, name: str, error: ApiError) -> SteersmanError:
        if error.status == CONFLICT:
            return SteersmanError(
                f"Deployment {self._namespace}/{name} exists already and is not of this run; --namespace names another "
                "place, --clean removes what earlier runs made"
            )
        if error.status == MISSING:
            return SteersmanError(NO_NAMESPACE.format(self._namespace))
        return SteersmanError(f"Deployment {name}: {error.message}")
