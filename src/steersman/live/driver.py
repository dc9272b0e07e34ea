"""Reference A's driver on a live cluster: Deployments until it is as full as asked, cleared, and filled anew.

What it does is a list of rows (`workloads.deployments`), drawn as for the simulator: the same seed on nodes with the
same room gives the same Deployments. The next one is added when the interval is over and no pod waits any more.
"""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from steersman.errors import InputError, SteersmanError
from steersman.kube.client import ApiError, Client
from steersman.live import cleaning
from steersman.live.fleet import Fleet
from steersman.live.objects import DEPLOYMENTS, IMAGE, RUN, deployment_object, selector
from steersman.live.running import Background, at_once, insist
from steersman.live.state import RunState, StateStore
from steersman.workloads.deployments import ADD, COLUMNS, INTERVAL_SECONDS, WAIT_SECONDS, Row

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Manner:
    """How rows are played.

    Attributes:
        scheduler_name: of the pods.
        image: of their containers, which sleep.
        interval: seconds from one Deployment to the next, at least.
        wait: seconds from the last Deployment to clearing, and from clearing to the next Deployment.
        patience: seconds after which a Deployment no longer waits for pods that have no node.
    """

    scheduler_name: str
    image: str = IMAGE
    interval: float = INTERVAL_SECONDS
    wait: float = WAIT_SECONDS
    patience: float = PATIENCE_SECONDS


@dataclass(slots=True)
class Tally:
    """What a run has done.

    Attributes:
        deployments, pods: that were made.
        waited: Deployments that were followed by the next one although pods had no node.
    """

    deployments: int = 0
    pods: int = 0
    waited: int = 0


def planned_seconds(rows: Sequence[Row], manner: Manner, done: int = 0) -> float:
    """Return how long the rows after `done` take at least: the pauses before them, without waiting for pods."""
    seconds, former = 0.0, rows[done - 1].action if done else ""
    for row in rows[done:]:
        if former == ADD:
            seconds += manner.interval if row.action == ADD else manner.wait
        elif former and row.action == ADD:
            seconds += manner.wait
        former = row.action
    return seconds


class RowLog:
    """Reference A's CSV of what has been done, a line as soon as it is.

    Args:
        path: the file; None: there is none.
        rows: what was done before.
    """

    def __init__(self, path: Path | None, rows: Sequence[Row]) -> None:
        self.path = path
        self._write("w", COLUMNS, rows)

    def add(self, rows: Sequence[Row]) -> None:
        """These were done. Raises InputError: the file cannot be written."""
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


class Driver:
    """Plays rows.

    Args:
        client: of the cluster.
        store: where the state is kept; its namespace is that of the Deployments.
        state: how far the run is.
        rows: all of them.
        manner: how.
        log: the CSV.
        report: told how many rows of how many are done.
    """

    def __init__(
        self,
        client: Client,
        store: StateStore,
        state: RunState,
        rows: Sequence[Row],
        manner: Manner,
        log: RowLog,
        report: Callable[[int, int], None] = lambda _, __: None,
    ) -> None:
        self.client, self.store, self.state, self.rows, self.manner = client, store, state, rows, manner
        self.log, self.report = log, report
        self.fleet = Fleet(client, state.id)
        self.tally = Tally()
        self._path = DEPLOYMENTS.format(store.namespace)
        self._there: dict[str, Row] = {}

    async def run(self) -> Tally:
        """Play all rows that are not done yet.

        Raises:
            SteersmanError: the API refuses something, or the pods of a clearing do not go.
        """
        async with Background(self.fleet.reflector.run()):
            await self.fleet.until(lambda: True, PATIENCE_SECONDS)
            await self._restore()
            while self.state.done < len(self.rows):
                await self._step()
        await self.store.end()
        return self.tally

    async def _restore(self) -> None:
        """Make what should be there at this point and is not, unless it is to be cleared."""
        for row in self.rows[: self.state.done]:
            if row.action == ADD:
                self._there[row.name] = row
            else:
                self._there.pop(row.name, None)
        if self.state.done < len(self.rows) and self.rows[self.state.done].action == ADD:
            await at_once(partial(self._create, row) for row in self._there.values())
        self.report(self.state.done, len(self.rows))

    async def _step(self) -> None:
        """The next row, or all rows that delete together."""
        done = self.state.done
        row, after_add = self.rows[done], done > 0 and self.rows[done - 1].action == ADD
        if row.action == ADD:
            if done:
                await asyncio.sleep(self.manner.interval if after_add else self.manner.wait)
                await self._settle()
            await self._create_next(row)
            self._there[row.name] = row
            self.tally.deployments += 1
            self.tally.pods += row.pod_count
            rows: Sequence[Row] = (row,)
        else:
            last = next((i for i in range(done, len(self.rows)) if self.rows[i].action == ADD), len(self.rows))
            rows = self.rows[done:last]
            if after_add:
                await asyncio.sleep(self.manner.wait)
                await self._settle()
            await self._delete([row.name for row in rows])
        self.state.done += len(rows)
        await self.store.save(self.state)
        self.log.add(rows)
        self.report(self.state.done, len(self.rows))

    async def _settle(self) -> None:
        """Wait until every Deployment has its pods, and these have nodes; for so long as patience lasts."""
        wanted = sum(row.pod_count for row in self._there.values())
        if not await self.fleet.until(lambda: self.fleet.bound >= wanted, self.manner.patience):
            self.tally.waited += 1

    async def _create_next(self, row: Row) -> None:
        try:
            await self._create(row)
        except SteersmanError:
            if not self.state.done:  # nothing to go on with
                await self.store.end()
            raise

    async def _create(self, row: Row) -> None:
        """Create a Deployment; one of this run that is there already is the same. Raises SteersmanError."""
        made = deployment_object(row, self.state.id, self.manner.scheduler_name, self.manner.image)
        try:
            await insist(lambda: self.client.create(self._path, made))
        except ApiError as error:
            if error.status != 409:
                raise SteersmanError(f"Deployment {row.name}: {error.message}") from None
            found = await insist(lambda: self.client.get(f"{self._path}/{row.name}"))
            if (found["metadata"].get("labels") or {}).get(RUN) != self.state.id:
                raise SteersmanError(
                    f"Deployment {self.store.namespace}/{row.name} is there already and not of this run; "
                    "--namespace names another place"
                ) from None

    async def _delete(self, names: Sequence[str]) -> None:
        """Delete Deployments, and wait until their pods are gone."""
        if set(names) >= self._there.keys():
            # All at once: deleting thousands of pods one by one takes minutes.
            await cleaning.delete_pods(self.client, self.store.namespace, selector(self.state.id), lambda _, __: None)
        else:
            await at_once(partial(self._delete_one, name) for name in names)
        for name in names:
            self._there.pop(name, None)
        gone = await self.fleet.until(
            lambda: not any(self.fleet.by_app[name] for name in names), cleaning.PATIENCE_SECONDS
        )
        if not gone:
            raise SteersmanError(f"pods of deleted Deployments are still there after {cleaning.PATIENCE_SECONDS:.0f} s")

    async def _delete_one(self, name: str) -> None:
        try:
            await insist(lambda: self.client.delete(f"{self._path}/{name}", {"propagationPolicy": "Background"}))
        except ApiError as error:
            if error.status != 404:
                raise
