"""The screen of files of `workload run` and of recordings: their list, and the document of each, read as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
from aiohttp import web

from steersman.core.errors import SteersmanError
from steersman.core.quantities import bytes_, cpu_milli
from steersman.live.dashboard.runs import FoundRun, parse_growing
from steersman.live.dashboard.server import Screen, json_response, refused
from steersman.workloads.experiments import RecordedBinding, clearings, has_free_shares, parse_bindings, recorded_nodes
from steersman.workloads.generators.deployments import ADD, Row, parse_rows

MOST_ROWS = 2000
MOST_COLUMNS = 400  # moments that a page shows
MOST_CELLS = 200_000  # nodes times moments; of more nodes fewer moments are shown
LEAST_COLUMNS = 40
Floats = npt.NDArray[np.float64]
MOST_LISTED = 500  # Deployments that are listed, and fillings
GIB = 1 << 30
KEPT_FILES = 8  # files whose documents are kept in memory


def chosen_rows(count: int, most: int = MOST_ROWS, keep: Iterable[int] = ()) -> list[int]:
    """Return the positions of at most `most` of `count` rows at equal distances, the last of them, and those to keep.

    Of those to keep, too, there are `most` at most.
    """
    stride = max(1, -(-count // most))
    kept = list(keep)
    # Counted from the end, so that the last row is among them.
    return sorted({*range(count - 1, -1, -stride), *kept[:: max(1, -(-len(kept) // most))]})


class NodeQuantity(msgspec.Struct, kw_only=True, rename="camel"):
    """A quantity of nodes."""

    title: str  # what it is
    unit: str  # "%" of the node, or ""
    counted: bool = False  # whether it was counted from the rows; else the file has it
    values: list[list[float]]  # [N][T]


class BindingsDocument(msgspec.Struct, kw_only=True, rename="camel"):
    """A recording of a scheduler, N nodes at T moments."""

    pods: int  # number of pods in the file
    nodes: list[str]  # names
    bound: list[int]  # [T] number of pods that had been bound
    quantities: list[NodeQuantity]  # of nodes
    # `mean`, `deviation`: [T] mean and standard deviation over the nodes of the share of their CPU in use, percent.
    mean: list[float]
    deviation: list[float]
    resets: list[int]  # numbers of pods after which the cluster was cleared


def bindings_document(rows: Sequence[RecordedBinding]) -> BindingsDocument:
    """Return the document of a recording, which has no times: its pods are in the order in which they were bound."""
    nodes, resets = len(rows[0].usage), clearings(rows)
    most = max(LEAST_COLUMNS, min(MOST_COLUMNS, MOST_CELLS // nodes))
    # The cluster is fullest right before it is cleared.
    shown = chosen_rows(len(rows), most, keep=[i - 1 for i in resets])
    is_free = has_free_shares(rows)
    cpu = _used(np.array([rows[i].usage for i in shown]), is_free)
    quantities = [NodeQuantity(title="CPU in use", unit="%", values=_columns(cpu))]
    if rows[0].memory_usage:
        memory = _used(np.array([rows[i].memory_usage for i in shown]), is_free)
        quantities.append(NodeQuantity(title="Memory in use", unit="%", values=_columns(memory)))
    recorded = bool(rows[0].pods)
    pods = np.array([rows[i].pods for i in shown]) if recorded else _counted(rows, shown, set(resets))
    quantities.append(NodeQuantity(title="Pods", unit="", counted=not recorded, values=_columns(pods)))
    return BindingsDocument(
        pods=len(rows),
        nodes=[node.name for node in recorded_nodes(rows)],
        bound=[i + 1 for i in shown],
        quantities=quantities,
        mean=_rounded(cpu.mean(axis=1)),
        deviation=_rounded(cpu.std(axis=1)),
        resets=resets,
    )


def _used(shares: Floats, is_free: bool) -> Floats:
    return 100.0 * (1.0 - shares if is_free else shares)


def _counted(rows: Sequence[RecordedBinding], shown: Sequence[int], resets: set[int]) -> Floats:
    pods_on_node, counted, wanted = np.zeros(len(rows[0].usage)), [], set(shown)
    for i, row in enumerate(rows):
        if i in resets:
            pods_on_node[:] = 0
        pods_on_node[row.node] += 1
        if i in wanted:
            counted.append(pods_on_node.copy())
    return np.array(counted)


def _columns(values: Floats) -> list[list[float]]:
    return [_rounded(column) for column in values.T]


def _rounded(values: Floats) -> list[float]:
    rounded: list[float] = np.round(values, 2).tolist()
    return rounded


class Filling(msgspec.Struct, kw_only=True):
    """The time between two clearings: its steps, the most Deployments, and what these requested: cores, GiB."""

    steps: tuple[int, int]
    deployments: int
    pods: int
    cpu: float
    memory: float


class DeploymentRow(msgspec.Struct, kw_only=True):
    """A Deployment: its requests for each pod, and the steps that created and deleted it (None: it stayed)."""

    name: str
    pods: int
    cpu: float
    memory: float
    created: int
    deleted: int | None = None


class DeploymentsDocument(msgspec.Struct, kw_only=True, rename="camel"):
    """A file of `workload run`."""

    step: list[int]  # [T] numbers of steps, the first is 1
    # `deployments`, `pods`, `cpu`, `memory`: [T] what is there after the step: cores and GiB are requested.
    deployments: list[int]
    pods: list[int]
    cpu: list[float]
    memory: list[float]
    resets: list[int]  # steps after which nothing was there any more
    fillings: list[Filling]  # the time before each reset, and after the last
    list: list[DeploymentRow]  # Deployments in the order of their creation
    left_out: int  # number of Deployments that are not listed


def deployments_document(rows: Sequence[Row]) -> DeploymentsDocument:
    """Return the document of rows, which have no times and no nodes.

    They say which Deployments were created and deleted, in order; those that follow each other in being deleted are
    deleted together.
    """
    running: dict[str, tuple[Row, int]] = {}
    listed: list[DeploymentRow] = []
    sums: list[_Sum] = []
    resets: list[int] = []
    for i, row in enumerate(rows):
        if row.action == ADD or not sums or rows[i - 1].action == ADD:
            sums.append(sums[-1] if sums else _Sum())
        if row.action == ADD:
            running[row.name] = row, len(listed)
            cpu, memory = cpu_milli(row.cpu_request) / 1000, bytes_(row.mem_request) / GIB
            listed.append(DeploymentRow(name=row.name, pods=row.pod_count, cpu=cpu, memory=memory, created=len(sums)))
            sums[-1] = sums[-1].plus(row, 1)
        elif row.name in running:  # else it was created before the file began
            created, at = running.pop(row.name)
            listed[at].deleted = len(sums)
            sums[-1] = sums[-1].plus(created, -1)
            if not running:
                resets.append(len(sums))
    parts = _parts(len(sums), resets)
    peaks = [max(range(first - 1, last), key=lambda i: sums[i].pods) for first, last in parts]
    shown = chosen_rows(len(sums), keep=[*peaks, *(step - 1 for step in resets)])
    return DeploymentsDocument(
        step=[i + 1 for i in shown],
        deployments=[sums[i].deployments for i in shown],
        pods=[sums[i].pods for i in shown],
        cpu=[sums[i].cores for i in shown],
        memory=[sums[i].gib for i in shown],
        resets=resets,
        fillings=[
            Filling(
                steps=part, deployments=sums[i].deployments, pods=sums[i].pods, cpu=sums[i].cores, memory=sums[i].gib
            )
            for part, i in zip(parts, peaks, strict=True)
        ][:MOST_LISTED],
        list=listed[:MOST_LISTED],
        left_out=max(0, len(listed) - MOST_LISTED),
    )


@dataclass(frozen=True, slots=True)
class _Sum:
    """What is there after a step; `cpu` in milli-CPU, `memory` in bytes."""

    deployments: int = 0
    pods: int = 0
    cpu: int = 0
    memory: int = 0

    def plus(self, row: Row, sign: int) -> _Sum:
        pods = sign * row.pod_count
        cpu, memory = self.cpu + pods * cpu_milli(row.cpu_request), self.memory + pods * bytes_(row.mem_request)
        return _Sum(self.deployments + sign, self.pods + pods, cpu, memory)

    @property
    def cores(self) -> float:
        return self.cpu / 1000

    @property
    def gib(self) -> float:
        return round(self.memory / GIB, 3)


def _parts(count: int, resets: Sequence[int]) -> list[tuple[int, int]]:
    ends = [*resets, *([count] if not resets or resets[-1] < count else [])]
    # Not strict: there is one beginning more than ends.
    return list(zip([1, *(end + 1 for end in ends)], ends, strict=False))


class FileEntry(msgspec.Struct, kw_only=True):
    """A file in the list; `version` changes when the file does, and `problem` says why it cannot be shown."""

    id: str
    name: str
    kind: str
    version: str = ""
    problem: str = ""


class WorkloadScreen(Screen):
    """Files of `workload run`, and recordings of a scheduler."""

    name = "workload"
    title = "Workload"

    def __init__(self, runs: Sequence[FoundRun]) -> None:
        self._runs = {run.id: run for run in runs}
        self._read: dict[str, tuple[str, DeploymentsDocument | BindingsDocument | SteersmanError]] = {}
        self._lock = asyncio.Lock()  # files are read for one request at a time

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes of the list and of a file."""
        return (web.get("/api/workload/files", self._get_files), web.get("/api/workload/file", self._get_file))

    async def _get_files(self, _: web.Request) -> web.Response:
        async with self._lock:
            return json_response(await asyncio.to_thread(lambda: [self._entry(run) for run in self._runs.values()]))

    def _entry(self, run: FoundRun) -> FileEntry:
        entry = FileEntry(id=run.id, name=run.name, kind=run.kind)
        try:
            entry.version = run.version(run.table)
        except SteersmanError as error:
            entry.problem = str(error)
        else:
            cached = self._read.get(run.id)
            if cached is not None and cached[0] == entry.version and isinstance(cached[1], SteersmanError):
                entry.problem = str(cached[1])
        return entry

    async def _get_file(self, request: web.Request) -> web.Response:
        if (run := self._runs.get(request.query.get("file", ""))) is None:
            return refused(404, "there is no such file among those that this dashboard was started with")
        async with self._lock:
            return json_response(await asyncio.to_thread(self._document, run))

    def _document(self, run: FoundRun) -> DeploymentsDocument | BindingsDocument:
        version = run.version(run.table)
        cached = self._read.pop(run.id, None)
        if cached is None or cached[0] != version:
            cached = version, _load(run)
        self._read[run.id] = cached  # the newest last
        while len(self._read) > KEPT_FILES:
            del self._read[next(iter(self._read))]
        if isinstance(cached[1], SteersmanError):
            raise cached[1]
        return cached[1]


def _load(run: FoundRun) -> DeploymentsDocument | BindingsDocument | SteersmanError:
    try:
        with run.wrapped_read_errors():
            if run.kind == "deployments":
                return deployments_document(parse_growing(run, run.table, parse_rows))
            return bindings_document(parse_growing(run, run.table, parse_bindings))
    except SteersmanError as error:
        return error
