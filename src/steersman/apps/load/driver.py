"""AAML's load generator on a live cluster: create Deployments up to a load, clear the cluster, and fill it again.

Its steps are rows (`workloads.generators.deployments`), drawn as for the simulator: the same seed on nodes of the same
capacity gives the same Deployments. The next one is created when the interval has passed and no pod waits.
"""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from steersman.apps.load import cleaning
from steersman.apps.load.objects import DEPLOYMENTS, IMAGE, RUN, deployment_object, selector
from steersman.apps.load.pod_tracker import RunPodTracker
from steersman.apps.load.run_state import RunState, StateStore
from steersman.apps.runtime.tasks import BackgroundTasks, retry_transient, run_concurrently
from steersman.core.errors import InputError, SteersmanError
from steersman.kubernetes.client import ApiError, Client
from steersman.workloads.generators.deployments import ADD, COLUMNS, INTERVAL_SECONDS, WAIT_SECONDS, Row

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class FillOptions:
    """How rows are played.

    Attributes:
        scheduler_name: `schedulerName` of the pods.
        image: image of their containers, which sleep.
        interval: minimum seconds between Deployments.
        wait: seconds from the last Deployment to clearing, and from clearing to the next Deployment.
        patience: seconds after which pods without a node no longer delay the next Deployment.
        annotations: annotations of the pods.
    """

    scheduler_name: str
    image: str = IMAGE
    interval: float = INTERVAL_SECONDS
    wait: float = WAIT_SECONDS
    patience: float = PATIENCE_SECONDS
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class FillStats:
    """Statistics of a run.

    Attributes:
        deployments, pods: created so far.
        timed_out: Deployments that were followed by the next one although pods had no node.
    """

    deployments: int = 0
    pods: int = 0
    timed_out: int = 0


def planned_seconds(rows: Sequence[Row], fill_options: FillOptions, done: int = 0) -> float:
    """Return the minimum duration of the rows after `done`: their pauses, without waiting for pods."""
    seconds, previous = 0.0, rows[done - 1].action if done else ""
    for row in rows[done:]:
        if previous == ADD:
            seconds += fill_options.interval if row.action == ADD else fill_options.wait
        elif previous and row.action == ADD:
            seconds += fill_options.wait
        previous = row.action
    return seconds


class RowLog:
    """CSV of finished rows in AAML's format, written row by row.

    Args:
        path: file; None: there is none.
        rows: rows that were finished before.
    """

    def __init__(self, path: Path | None, rows: Sequence[Row]) -> None:
        self.path = path
        self._write("w", COLUMNS, rows)

    def add(self, rows: Sequence[Row]) -> None:
        """Append finished rows. Raises InputError: the file cannot be written."""
        self._write("a", None, rows)

    def _write(self, mode: str, header: Sequence[str] | None, rows: Sequence[Row]) -> None:
        if self.path is None:
            return
        try:
            with self.path.open(mode, encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                if header is not None:
                    writer.writerow(header)
                writer.writerows([getattr(row, column) for column in COLUMNS] for row in rows)
        except OSError as error:
            raise InputError(self.path, "", "", f"cannot be written: {error.strerror}") from None


class DeploymentLoadGenerator:
    """Player of rows on a cluster.

    Args:
        client: connection to the cluster.
        store: store of the state; its namespace is that of the Deployments.
        state: state of the run.
        rows: all rows.
        fill_options: options.
        log: CSV of finished rows.
        report: called with the number of finished rows and of all.
        say: called with what is worth knowing during the run.
    """

    def __init__(
        self,
        client: Client,
        store: StateStore,
        state: RunState,
        rows: Sequence[Row],
        fill_options: FillOptions,
        log: RowLog,
        report: Callable[[int, int], None] = lambda _, __: None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.client, self.store, self.state, self.rows, self.fill_options = client, store, state, rows, fill_options
        self.log, self.report, self._say = log, report, say
        self.fleet = RunPodTracker(client, state.id)
        self.tally = FillStats()
        self._path = DEPLOYMENTS.format(store.namespace)
        self._created: dict[str, Row] = {}

    async def run(self) -> FillStats:
        """Play all rows that are not done yet.

        Raises:
            SteersmanError: the API refuses something, or the pods of a clearing do not terminate.
        """
        async with BackgroundTasks(self.fleet.reflector.run()):
            await self.fleet.until(lambda: True, PATIENCE_SECONDS)
            await self._restore()
            while self.state.done < len(self.rows):
                await self._step()
        await self.store.end()
        return self.tally

    async def _restore(self) -> None:
        """Create missing Deployments that should exist at this point, unless they are to be cleared next."""
        for row in self.rows[: self.state.done]:
            if row.action == ADD:
                self._created[row.name] = row
            else:
                self._created.pop(row.name, None)
        if self.state.done < len(self.rows) and self.rows[self.state.done].action == ADD:
            await run_concurrently(partial(self._create, row) for row in self._created.values())
        self.report(self.state.done, len(self.rows))

    async def _step(self) -> None:
        done = self.state.done
        row, after_add = self.rows[done], done > 0 and self.rows[done - 1].action == ADD
        if row.action == ADD:
            if done:
                await asyncio.sleep(self.fill_options.interval if after_add else self.fill_options.wait)
                await self._settle()
            await self._create_next(row)
            self._created[row.name] = row
            self.tally.deployments += 1
            self.tally.pods += row.pod_count
            rows: Sequence[Row] = (row,)
        else:
            # Deletions up to the next creation are one step, since AAML clears the cluster at once.
            last = next((i for i in range(done, len(self.rows)) if self.rows[i].action == ADD), len(self.rows))
            rows = self.rows[done:last]
            if after_add:
                await asyncio.sleep(self.fill_options.wait)
                await self._settle()
            await self._delete([row.name for row in rows])
        self.state.done += len(rows)
        # After the step: a row that is repeated on resumption finds its own Deployment and accepts it.
        await self.store.save(self.state)
        self.log.add(rows)
        self.report(self.state.done, len(self.rows))

    async def _settle(self) -> None:
        expected = sum(row.pod_count for row in self._created.values())
        if not await self.fleet.until(lambda: self.fleet.bound >= expected, self.fill_options.patience):
            if not self.tally.timed_out:
                self._say(
                    self.fleet.unbound_pods_warning(
                        expected, self.fill_options.patience, [self.fill_options.scheduler_name]
                    )
                )
            self.tally.timed_out += 1

    async def _create_next(self, row: Row) -> None:
        try:
            await self._create(row)
        except SteersmanError:
            if not self.state.done:  # nothing to resume
                await self.store.end()
            raise

    async def _create(self, row: Row) -> None:
        fill_options = self.fill_options
        manifest = deployment_object(
            row, self.state.id, fill_options.scheduler_name, fill_options.image, fill_options.annotations
        )
        try:
            await retry_transient(lambda: self.client.create(self._path, manifest))
        except ApiError as error:
            if error.status != 409:
                raise SteersmanError(f"Deployment {row.name}: {error.message}") from None
            existing = await retry_transient(lambda: self.client.get(f"{self._path}/{row.name}"))
            if (existing["metadata"].get("labels") or {}).get(RUN) != self.state.id:
                raise SteersmanError(
                    f"Deployment {self.store.namespace}/{row.name} exists already and is not of this run; "
                    "--namespace names another place"
                ) from None

    async def _delete(self, names: Sequence[str]) -> None:
        if set(names) >= self._created.keys():
            # as a collection: deleting thousands of pods one by one takes minutes
            await cleaning.delete_pods(self.client, self.store.namespace, selector(self.state.id), lambda _, __: None)
        else:
            await run_concurrently(partial(self._delete_one, name) for name in names)
        for name in names:
            self._created.pop(name, None)
        # The watch lags behind the deletion; the next Deployments are counted by it.
        gone = await self.fleet.until(
            lambda: not any(self.fleet.by_app[name] for name in names), cleaning.PATIENCE_SECONDS
        )
        if not gone:
            raise SteersmanError(f"pods of deleted Deployments are still there after {cleaning.PATIENCE_SECONDS:.0f} s")

    async def _delete_one(self, name: str) -> None:
        try:
            await retry_transient(
                lambda: self.client.delete(f"{self._path}/{name}", {"propagationPolicy": "Background"})
            )
        except ApiError as error:
            if error.status != 404:
                raise
