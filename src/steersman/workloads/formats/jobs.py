"""Tables of jobs: one that people write by hand, and sacct's."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any

from steersman.cluster.gpu_units import GIB
from steersman.cluster.model import GPU_MILLI, SHARED_GPUS, Node, Pod
from steersman.cluster.objects.manifests import format_seconds
from steersman.core import quantities
from steersman.core.counting import counted
from steersman.core.errors import InputError
from steersman.workloads.formats import tables
from steersman.workloads.formats.base import Losses, TableFormat, differences
from steersman.workloads.formats.kubernetes.expansion import Expanded
from steersman.workloads.formats.kubernetes.objects import write_nodes
from steersman.workloads.formats.traces import (
    MAX_CORES,
    MAX_PODS,
    TraceContent,
    TraceJob,
    TraceTable,
    namespace_of,
    pod_name,
)
from steersman.workloads.workload import Workload

# A table of jobs that people write by hand: when each arrives, how long it runs, and what it requests.
# `submit,duration` are needed; `name,cpu,memory,gpus,gpu_model,owner,namespace,priority,nodes,estimate` may be there.

REPEATED = ("cpu", "memory", "gpus", "gpu_model", "owner", "namespace", "priority", "nodes")
COLUMNS = ("name", *tables.PLAIN, *REPEATED, "estimate")  # columns that are read; others are ignored
MAX_NODES = 100_000  # most pods of a job
MAX_PRIORITY = (1 << 31) - 1
_PLAIN = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", re.ASCII)
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


class JobsContent(TraceContent):
    """Tables of jobs."""

    field, advice = "name", "number them, or leave out the column name"

    def __init__(self, files: Sequence[Path]) -> None:
        self.has_dates: bool | None = None
        # What many rows have in common.
        kinds: dict[tuple[str, ...], dict[str, Any]] = {}
        super().__init__(files, (job for file in files for job in self._read(file, kinds)), "", "", "job")
        # Dates are counted from the first one.
        self._from_first = bool(self.has_dates)

    def pods(self, nodes: Sequence[Node]) -> tuple[Sequence[Pod], Expanded | None]:
        """Return the pods of each job in the order of the rows, whatever nodes there are; see `FormatContent`."""
        return self.pods_of(self.jobs, ()), None

    def understood(self) -> str:
        endless = sum(job.run is None for job in self.jobs)
        estimated = sum(job.estimate is not None for job in self.jobs)
        parts = (
            counted(len(self.jobs), "job"),
            f"{endless} without an end" if endless else "",
            f"{estimated} with an estimate" if estimated else "",
        )
        return ", ".join(filter(None, parts))

    def _read(self, file: Path, kinds: dict[tuple[str, ...], dict[str, Any]]) -> Iterator[TraceJob]:
        """Yield the jobs of a table. Raises InputError: a row is invalid, or there is none."""
        row = None
        for row in tables.rows(str(file), tables.read_text(file), tables.PLAIN, tables.PLAIN_TABLE, any_case=True):
            submit, is_date = _submit(row)
            if self.has_dates not in (None, is_date):
                problem = (
                    "is a date, earlier rows have seconds" if is_date else "is in seconds, earlier rows have dates"
                )
                raise row.error("submit", f"{problem}; expected the same in all rows")
            self.has_dates = is_date
            key = tuple(row.cells.get(column, "") for column in REPEATED)
            kind = kinds.get(key)
            if kind is None:
                kind = kinds[key] = _kind(row)
            name, run, estimate = row.text("name"), row.seconds("duration"), row.seconds("estimate", positive=True)
            yield TraceJob(name, submit, run, **kind, estimate=estimate, place=(row.file, row.line))
        if row is None:
            raise InputError(file, "", "", "has no jobs, only a header")


class JobsCsv(TableFormat):
    """The format of hand-written tables of jobs; nodes beside them are written as YAML."""

    name = "jobs"
    title = "a table of jobs"
    headers = ((tables.PLAIN_TABLE, tables.PLAIN),)

    def has_header(self, columns: Set[str]) -> bool:
        return tables.is_plain(columns)

    def open(self, files: Sequence[Path]) -> JobsContent:
        return JobsContent(files)

    def write(self, workload: Workload, folder: Path, losses: Losses) -> None:
        losses.note_services(workload)
        if workload.nodes:
            write_nodes(workload.nodes, folder / "nodes.yaml")
        if not workload.pods:
            return
        path = folder / "jobs.csv"
        tables.write_table(path, COLUMNS, map(_cells, _jobs_of(workload.pods)))
        again, _ = losses.read_again("pod", path, lambda file: JobsContent([file]).pods(()))
        for pod, other in zip(workload.pods, again, strict=True):
            losses.note("pod", pod.name, differences(pod, _as_meant(other, pod)))


# Reading


def _submit(row: tables.TableRow) -> tuple[float, bool]:
    """Return when a job arrives, and whether that is a date. Raises InputError."""
    text = row.text("submit")
    if not text:
        raise row.error("submit", "is empty; every job needs a time in seconds or a date")
    try:
        float(text)
    except ValueError:
        try:
            return row.date("submit"), True
        except InputError:
            problem = f"{text!r} is not a time; expected seconds, 0 or more, or a date such as 2024-05-01 12:00:00"
            raise row.error("submit", problem) from None
    return row.seconds("submit") or 0.0, False


def _kind(row: tables.TableRow) -> dict[str, Any]:
    """Return what a job may share with others, by the fields of `TraceJob`. Raises InputError."""
    namespace, owner = row.text("namespace") or "default", row.text("owner")
    if not _NAMESPACE.fullmatch(namespace):
        problem = f"{namespace!r} is not a namespace; expected up to 63 lower-case letters, digits and '-'"
        raise row.error("namespace", problem)
    gpus = row.number("gpus", quantities.MAX_POD_GPUS) if row.text("gpus") else Decimal(0)
    if gpus > 1 and gpus % 1:
        raise row.error("gpus", f"{gpus} is neither a whole number of GPUs nor a share of one below 1")
    models = tuple(row.text("gpu_model").split("|")) if gpus and row.text("gpu_model") else ()
    if any(not model.strip() for model in models):
        raise row.error("gpu_model", f"{row.text('gpu_model')!r} has an empty model; write models as A|B")
    cpu, memory = _quantity(row, "cpu"), _quantity(row, "memory")
    priority, count = _priority(row), _node_count(row)
    return {
        "cpu_milli": cpu,
        "memory_bytes": memory,
        "gpus": gpus,
        "models": models,
        "count": count,
        "is_gang": count > 1,
        "owner": owner if "/" in owner or not owner else f"User/{owner}",
        "namespace": namespace,
        "priority": priority,
    }


def _quantity(row: tables.TableRow, column: str) -> int:
    """Return CPU in milli or memory in bytes, 0 of an empty cell; a plain number of memory is in GiB."""
    text = row.text(column)
    if not text:
        return 0
    try:
        if column == "cpu":
            return quantities.plausible(quantities.cpu_milli(text), quantities.MAX_CPU_MILLI, text)
        amount = math.ceil(Decimal(text) * GIB) if _PLAIN.fullmatch(text) else quantities.bytes_(text)
        return quantities.plausible(amount, quantities.MAX_MEMORY_BYTES, text)
    except ValueError as error:
        raise row.error(column, str(error)) from None


def _priority(row: tables.TableRow) -> int:
    text = row.text("priority")
    digits = text.removeprefix("-")
    if not text:
        return 0
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) <= MAX_PRIORITY):
        raise row.error("priority", f"{text!r} is not a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}")
    return int(text)


def _node_count(row: tables.TableRow) -> int:
    if not row.text("nodes"):
        return 1
    count = row.integer("nodes", MAX_NODES)
    if not count:
        raise row.error("nodes", "0 nodes; a job needs at least 1")
    return count


# Writing


def _jobs_of(pods: Sequence[Pod]) -> Iterator[Sequence[Pod]]:
    """Yield the pods of each row: those of a gang if they are equal, one after the other and named as they are read."""
    for gang, group in groupby(pods, key=lambda pod: (pod.namespace, pod.gang)):
        members = list(group)
        first = members[0]
        equal = all(
            replace(pod, name=f"{gang[1]}-{i}") == pod == replace(first, name=pod.name) for i, pod in enumerate(members)
        )
        if gang[1] and len(members) > 1 and equal:
            yield members
        else:
            yield from ([pod] for pod in members)


def _cells(pods: Sequence[Pod]) -> Sequence[object]:
    pod, requests = pods[0], pods[0].requests
    created = pod.creation_time or 0.0
    share = requests.gpu_milli / GPU_MILLI if requests.gpu_count == 1 else 1
    return (
        pod.gang if len(pods) > 1 else pod.name,
        format_seconds(created),
        "" if pod.deletion_time is None else format_seconds(pod.deletion_time - created),
        format_seconds(requests.cpu_milli / 1000),
        _memory(requests.memory_bytes),
        format_seconds(requests.gpu_count * share),
        "|".join(pod.constraints.gpu_models),
        pod.owner,
        pod.namespace,
        pod.priority,
        len(pods),
        "" if pod.estimated_seconds is None else format_seconds(pod.estimated_seconds),
    )


def _memory(amount: int) -> str:
    text = quantities.format_bytes(amount)
    # A plain number would be in GiB.
    return f"{text}e0" if text.isdigit() and amount else text


def _as_meant(pod: Pod, original: Pod) -> Pod:
    """Return a pod as it was read again, without differences to the original that have no effect.

    These are the rounding of a sum in its end, and the name of shared GPUs, which GPUs without a name stand for.
    """
    end, other = original.deletion_time, pod.deletion_time
    if end is not None and other is not None and math.isclose(end, other, abs_tol=1e-6):
        pod = replace(pod, deletion_time=end)
    if original.requests.gpu_resource == SHARED_GPUS:
        requests = replace(pod.requests, gpu_resource=SHARED_GPUS)
        pod = replace(pod, pod_class=replace(pod.pod_class, requests=requests))
    return pod


# The accounting of Slurm: what `sacct --parsable2` prints, columns separated by vertical bars.
# A job of several nodes is a gang. Resources are those of AllocTRES, else of ReqTRES, else of columns of their own.
# Source: the manual pages of sacct and of sbatch (arrays of jobs) of Slurm 24.05.

GPU = "gres/gpu"
STEP = "steps of jobs"
CANCELLED = "cancelled before they started"
NOT_STARTED = "never started"
UNSIZED = "no resources stated"
SIZES = {"alloctres", "reqtres", "alloccpus", "ncpus", "reqcpus", "reqmem"}
ABBREVIATION = "..."
ABBREVIATED = "tasks of an array that sacct abbreviates; SLURM_BITSTR_LEN=0 prints them"
WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED", "RESIZING", "CONFIGURING")  # states of jobs to be run
_UNITS = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_COUNTS = {"K": 1000, "M": 1_000_000}
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]*)?)([KMGTP]?)([nc]?)", re.ASCII)
_JOB = re.compile(r"([0-9]+)(?:_(?:([0-9]+)|\[([^\]]*)\]))?(?:\+[0-9]+)?", re.ASCII)
_TASKS = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?", re.ASCII)


class SacctTable(TraceTable):
    """The format of sacct; nodes come from another file."""

    name = "sacct"
    title = "sacct --parsable2"
    headers = (("a table of sacct", ("jobid", "submit", "start", "end", "elapsed", "state")),)
    marks = frozenset(("jobid", "submit", "state"))
    any_case = True
    unused = "wait times, steps and limits of tasks that run at once are not used"

    def jobs(self, row: tables.TableRow) -> Iterator[TraceJob | str]:
        """Yield the job of a row, or the tasks of an array that wait; see `TraceTable`."""
        job_id, state = row.name("jobid"), row.name("state").split()[0].upper()
        if "." in job_id.partition("[")[0]:
            yield STEP
            return
        match = _JOB.fullmatch(job_id)
        if match is None:
            raise row.error("jobid", f"{job_id!r} is not a job; expected one such as 12, 12_3, 12_[4-9%2] or 12.batch")
        submitted, started, ended = (row.moment(column) for column in ("submit", "start", "end"))
        if submitted is None:
            raise row.error("submit", "is not stated; every job needs a date such as 2024-05-01T12:00:00")
        if started is None and state not in WAITING:
            yield CANCELLED if state == "CANCELLED" else NOT_STARTED
            return
        # No difference of dates: they are local times, which daylight saving shifts.
        run = None if started is None or ended is None else row.seconds("elapsed")
        tasks = (match[2] or "",) if match[3] is None else _tasks(row, match[3])
        for task in tasks:
            name = f"{match[1]}-{task}" if task else pod_name(job_id)
            if task == ABBREVIATION:
                yield ABBREVIATED
                continue
            job = self._job(row, name, submitted, run)
            has_size = job.cpu_milli or job.memory_bytes or job.gpus
            yield job if has_size or not row.cells.keys() & SIZES else UNSIZED

    def _job(self, row: tables.TableRow, name: str, submitted: float, run: float | None) -> TraceJob:
        requested, resources = _tres(row, "reqtres"), _tres(row, "alloctres") or _tres(row, "reqtres")
        nodes = int(_first(row, ("nnodes", "allocnodes", "reqnodes"), MAX_PODS)) or 1
        cores = resources.get("cpu") or _first(row, ("alloccpus", "ncpus", "reqcpus"), MAX_CORES * nodes)
        types = [key for key in requested if key.startswith(f"{GPU}:")]
        gpus = resources.get(GPU) or sum(count for key, count in resources.items() if key.startswith(f"{GPU}:"))
        memory = resources.get("mem") or _requested_memory(row, row.text("reqmem"), nodes, cores)
        for each, most in ((cores, MAX_CORES), (gpus, quantities.MAX_POD_GPUS), (memory, quantities.MAX_MEMORY_BYTES)):
            if each > most * nodes:
                raise row.error("alloctres", f"{each} is beyond any real machine (at most {most})")
        user, partition = row.text("user"), row.text("partition")
        return TraceJob(
            name,
            submitted,
            run,
            cpu_milli=math.ceil(cores * 1000 / nodes),
            memory_bytes=math.ceil(memory / nodes),
            gpus=Decimal(math.ceil(gpus / nodes)),
            models=(types[0].partition(":")[2],) if len(types) == 1 else (),
            count=nodes,
            is_gang=nodes > 1,
            owner=f"User/{user}" if user else "",
            namespace=namespace_of(row.text("account")),
            labels=(("partition", partition),) if partition else (),
            priority=min(int(row.amount("priority", 1 << 63)), MAX_PRIORITY),
            # UNLIMITED, or the limit of the partition, is no estimate.
            estimate=tables.clock_seconds(row.text("timelimit")) or None,
            place=(row.file, row.line),
        )


def _tasks(row: tables.TableRow, text: str) -> Iterator[str]:
    """Yield the indices of array tasks such as 2-9%2, 1,3,5-7 or 0-8:4. Raises InputError."""
    for part in text.partition("%")[0].split(","):
        if part == ABBREVIATION:
            yield part
            continue
        match = _TASKS.fullmatch(part)
        if match is None or int(match[2] or match[1]) - int(match[1]) > MAX_PODS:
            raise row.error("jobid", f"{part!r} is not tasks of an array; expected such as 3 or 0-9 or 0-9:3")
        yield from map(str, range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1) or 1))


def _tres(row: tables.TableRow, column: str) -> dict[str, Decimal]:
    """Return the resources of a cell such as `cpu=8,gres/gpu=2,mem=64G`, memory in bytes. Raises InputError."""
    result = {}
    for part in filter(None, row.text(column).split(",")):
        name, _, text = part.partition("=")
        if name in ("cpu", "mem") or name.startswith(GPU):
            match = _AMOUNT.fullmatch(text)
            if match is None or match[3]:
                raise row.error(column, f"{part!r} is not an amount; expected one such as cpu=8 or mem=64G")
            result[name] = Decimal(match[1]) * (_UNITS[match[2]] if name == "mem" else _COUNTS.get(match[2], 1))
    return result


def _first(row: tables.TableRow, columns: tuple[str, ...], limit: int) -> Decimal:
    """Return the first number above 0 of some columns, 0 if there is none. Raises InputError."""
    return next(filter(None, (row.amount(column, limit) for column in columns)), Decimal(0))


def _requested_memory(row: tables.TableRow, text: str, nodes: int, cores: Decimal) -> Decimal:
    """Return ReqMem in bytes: of all nodes, of each (64Gn) or of each core (4Gc). Raises InputError."""
    if not text:
        return Decimal(0)
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise row.error("reqmem", f"{text!r} is not an amount of memory; expected one such as 64G, 64Gn or 4Gc")
    per = {"": Decimal(1), "n": Decimal(nodes), "c": cores}
    return Decimal(match[1]) * _UNITS[match[2]] * per[match[3]]
