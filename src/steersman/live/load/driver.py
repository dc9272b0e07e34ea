"""AAML's load generator on a live cluster: create Deployments up to a load, clear the cluster, and fill it again.

Its steps are rows (`workloads.generators.deployments`), drawn as for the simulator: the same seed on nodes of the same
capacity gives the same Deployments. The next one is created when the interval has passed and no pod waits.
"""

from __future__ import annotations

import asyncio
import csv
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import count
from pathlib import Path

import msgspec
import numpy as np

from steersman.cluster.model import Node
from steersman.cluster.objects.decoding import is_finished, pod_from_object
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.kubernetes.client import Client
from steersman.live.load.run_state import (
    DELETION_SECONDS,
    DEPLOYMENTS,
    IMAGE,
    RUN,
    RunPodTracker,
    RunState,
    StateStore,
    create_own,
    delete_pods,
    deployment_object,
    new_id,
    selector,
)
from steersman.live.runtime.listing import ALL_PODS, documents, read_nodes, warn_ignored
from steersman.live.runtime.tasks import BackgroundTasks, delete_if_exists, run_concurrently
from steersman.workloads.generators.deployments import (
    ADD,
    COLUMNS,
    DELETE,
    INTERVAL_SECONDS,
    WAIT_SECONDS,
    DeploymentSettings,
    Row,
    generate,
)

PATIENCE_SECONDS = 60.0
RESOURCES = ("cpu", "memory", "pods")
LOADS = ("cpu_load", "memory_load", "pod_load")


@dataclass(frozen=True, slots=True)
class ClusterCapacity:
    """Capacity of the nodes that take pods without tolerations."""

    # `cpu_milli`, `memory_bytes`, `pods`: sums over these nodes
    cpu_milli: int
    memory_bytes: int
    pods: int
    # `largest_cpu_milli`, `largest_memory_bytes`: maximum of a single node
    largest_cpu_milli: int
    largest_memory_bytes: int
    used: tuple[float, float, float]  # shares of CPU, memory and pods that others' pods hold, 0 to 1


async def read_capacity(client: Client) -> ClusterCapacity:
    """Read the capacity for pods. Raises SteersmanError: no node takes pods without tolerations."""
    usable = {node.name: node for node in await read_nodes(client) if node.takes_any_pod}
    if not usable:
        raise SteersmanError("the cluster has no node that takes pods without tolerations")
    cpu, memory, places = zip(*map(_amounts, usable.values()), strict=True)
    total = sum(cpu), sum(memory), sum(places)
    held, problems = [0, 0, 0], list[InputError]()
    for document in documents(await client.list(ALL_PODS), "Pod"):
        content = document.content
        labels = content["metadata"].get("labels") or {}
        if content.get("spec", {}).get("nodeName") in usable and RUN not in labels and not is_finished(content):
            held[2] += 1
            try:
                where = f"Pod {content['metadata'].get('namespace', '')}/{content['metadata'].get('name', '')}"
                requests = pod_from_object(content, file=document.file, where=where).requests
            except InputError as problem:
                problems.append(problem)
                continue
            held[0] += requests.cpu_milli
            held[1] += requests.memory_bytes
    warn_ignored("requests of pods ignored", problems)
    # Allocatable may be stated as 0.
    shares = [amount / max(of, 1) for amount, of in zip(held, total, strict=True)]
    return ClusterCapacity(*total, max(cpu), max(memory), (shares[0], shares[1], shares[2]))


def _amounts(node: Node) -> tuple[int, int, int]:
    return node.cpu_milli, node.memory_bytes, node.pods


@dataclass(frozen=True, slots=True)
class FillOptions:
    """How rows are played."""

    scheduler_name: str  # `schedulerName` of the pods
    image: str = IMAGE  # image of their containers, which sleep
    interval: float = INTERVAL_SECONDS  # minimum seconds between Deployments
    wait: float = WAIT_SECONDS  # seconds from the last Deployment to clearing, and from clearing to the next Deployment
    patience: float = PATIENCE_SECONDS  # seconds after which pods without a node no longer delay the next Deployment
    annotations: dict[str, str] = field(default_factory=dict)  # annotations of the pods


@dataclass(slots=True)
class FillStats:
    """Numbers of a run; `timed_out` Deployments were followed by the next one although pods had no node."""

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
    """CSV of finished rows in AAML's format, written row by row."""

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
    """Player of rows on a cluster."""

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
        """Play all rows that are not done yet."""
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
        taken = (
            f"{self.store.namespace}/{row.name} exists already and is not of this run; --namespace names another place"
        )
        what = f"Deployment {row.name}"
        await create_own(self.client, self._path, manifest, self.state.id, what, f"Deployment {taken}")

    async def _delete(self, names: Sequence[str]) -> None:
        if set(names) >= self._created.keys():
            # as a collection: deleting thousands of pods one by one takes minutes
            await delete_pods(self.client, self.store.namespace, selector(self.state.id), lambda _, __: None)
        else:
            await run_concurrently(
                partial(delete_if_exists, self.client, f"{self._path}/{name}", {"propagationPolicy": "Background"})
                for name in names
            )
        for name in names:
            self._created.pop(name, None)
        # The watch lags behind the deletion; the next Deployments are counted by it.
        gone = await self.fleet.until(lambda: not any(self.fleet.by_app[name] for name in names), DELETION_SECONDS)
        if not gone:
            raise SteersmanError(f"pods of deleted Deployments are still there after {DELETION_SECONDS:.0f} s")


@dataclass(frozen=True, slots=True)
class FillPlan:
    """How a cluster is filled and cleared."""

    # Which Deployments are drawn, up to which load of the whole cluster, and how often it is filled
    settings: DeploymentSettings
    seeds: tuple[int, ...]  # seeds of the Deployments; with each of them the cluster is filled `settings.resets` times
    room: ClusterCapacity  # capacity of the cluster when the run began, so that a resumed run does the same
    fill_options: FillOptions  # how the Deployments are created
    # The cluster is filled with further seeds until so many pods were created, and then cleared; 0: no more than above
    pods: int = 0

    def rows(self) -> tuple[Row, ...]:
        """Return the Deployments that `generate` draws for this capacity and the load that other pods leave."""
        loads = {}
        for name, resource, used in zip(LOADS, RESOURCES, self.room.used, strict=True):
            target = getattr(self.settings, name)
            if used >= target:
                raise SteersmanError(
                    f"pods use {100 * used:.0f} % of the cluster's {resource} already, and --{name.replace('_', '-')} "
                    f"is {100 * target:.0f} %"
                )
            loads[name] = target - used
        settings = replace(self.settings, **loads)
        nodes = _nodes(self.room)
        seeds = count(self.seeds[0]) if self.pods else self.seeds
        rows = (row for seed in seeds for row in generate(settings, nodes, np.random.default_rng(seed)))
        return tuple(_cut(rows, self.pods) if self.pods else rows)

    def state(self, rows: Sequence[Row]) -> RunState:
        return RunState("run", new_id(), digest(rows), msgspec.to_builtins(self), len(rows))

    @classmethod
    def of(cls, state: RunState) -> FillPlan:
        """Return the plan of a stopped run. Raises SteersmanError: it is of another version of steersman."""
        try:
            return msgspec.convert(state.options, cls)
        except (msgspec.ValidationError, UsageError):
            raise SteersmanError(OTHER_VERSION) from None


OTHER_VERSION = "this run was begun by another version of steersman; --clean removes what it made"


def digest(rows: Sequence[Row]) -> str:
    sha256 = hashlib.sha256()
    for row in rows:
        sha256.update("\0".join(str(getattr(row, field.name)) for field in fields(row)).encode() + b"\n")
    return sha256.hexdigest()[:16]


def check_digest(state: RunState, result: str, problem: str) -> None:
    """Raise SteersmanError with this problem if a resumed run would do something else than it began."""
    if state.digest != result:
        raise SteersmanError(problem)


def _cut(rows: Iterable[Row], pods: int) -> Iterator[Row]:
    """Yield rows until they have created so many pods, and then the deletion of those that are left."""
    left: dict[str, Row] = {}
    for row in rows:
        if row.action == ADD:
            row = left[row.name] = replace(row, pod_count=min(row.pod_count, pods))
            pods -= row.pod_count
        else:
            del left[row.name]
        yield row
        if not pods:
            break
    yield from (replace(row, action=DELETE) for row in left.values())


def _nodes(room: ClusterCapacity) -> list[Node]:
    """Return nodes of this capacity: only their sum and the largest node matter."""
    nodes, cpu, memory, pods = list[Node](), room.cpu_milli, room.memory_bytes, room.pods
    while cpu or memory:
        part, share = min(cpu, room.largest_cpu_milli), min(memory, room.largest_memory_bytes)
        # All places for pods are on the first node, since only their sum matters.
        nodes.append(Node(f"node-{len(nodes)}", part, share, pods))
        cpu, memory, pods = cpu - part, memory - share, 0
    return nodes
