"""The accounting of Slurm: what `sacct --parsable2` prints, columns separated by vertical bars.

A job of several nodes is a gang. Resources are those of AllocTRES, else of ReqTRES, else of columns of their own.
Source: the manual pages of sacct and of sbatch (arrays of jobs) of Slurm 24.05.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal

from steersman.core.quantities import MAX_MEMORY_BYTES, MAX_POD_GPUS
from steersman.workloads.formats.jobs import MAX_PRIORITY
from steersman.workloads.formats.tables import TableRow, clock_seconds
from steersman.workloads.formats.traces import MAX_CORES, MAX_PODS, TraceJob, TraceTable, namespace_of, pod_name

GPU = "gres/gpu"
STEP = "steps of jobs"
CANCELLED = "cancelled before they started"
NOT_STARTED = "never started"
UNSIZED = "no resources stated"
SIZES = {"alloctres", "reqtres", "alloccpus", "ncpus", "reqcpus", "reqmem"}
ABBREVIATION = "..."
ABBREVIATED = "tasks of an array that sacct abbreviates; SLURM_BITSTR_LEN=0 prints them"
WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED", "RESIZING", "CONFIGURING")
"""States of jobs that are to run."""
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
    marks = frozenset(("jobid", "submit", "elapsed"))
    any_case = True
    unused = "wait times, steps and limits of tasks that run at once are not used"

    def jobs(self, row: TableRow) -> Iterator[TraceJob | str]:
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

    def _job(self, row: TableRow, name: str, submitted: float, run: float | None) -> TraceJob:
        requested, resources = _tres(row, "reqtres"), _tres(row, "alloctres") or _tres(row, "reqtres")
        nodes = int(_first(row, ("nnodes", "allocnodes", "reqnodes"), MAX_PODS)) or 1
        cores = resources.get("cpu") or _first(row, ("alloccpus", "ncpus", "reqcpus"), MAX_CORES * nodes)
        types = [key for key in requested if key.startswith(f"{GPU}:")]
        gpus = resources.get(GPU) or sum(count for key, count in resources.items() if key.startswith(f"{GPU}:"))
        memory = resources.get("mem") or _memory(row, row.text("reqmem"), nodes, cores)
        for each, most in ((cores, MAX_CORES), (gpus, MAX_POD_GPUS), (memory, MAX_MEMORY_BYTES)):
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
            estimate=clock_seconds(row.text("timelimit")) or None,
            place=(row.file, row.line),
        )


def _tasks(row: TableRow, text: str) -> Iterator[str]:
    """Yield the indices of array tasks such as 2-9%2, 1,3,5-7 or 0-8:4. Raises InputError."""
    for part in text.partition("%")[0].split(","):
        if part == ABBREVIATION:
            yield part
            continue
        match = _TASKS.fullmatch(part)
        if match is None or int(match[2] or match[1]) - int(match[1]) > MAX_PODS:
            raise row.error("jobid", f"{part!r} is not tasks of an array; expected such as 3 or 0-9 or 0-9:3")
        yield from map(str, range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1) or 1))


def _tres(row: TableRow, column: str) -> dict[str, Decimal]:
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


def _first(row: TableRow, columns: tuple[str, ...], limit: int) -> Decimal:
    """Return the first number above 0 of some columns, 0 if there is none. Raises InputError."""
    return next(filter(None, (row.amount(column, limit) for column in columns)), Decimal(0))


def _memory(row: TableRow, text: str, nodes: int, cores: Decimal) -> Decimal:
    """Return ReqMem in bytes: of all nodes, of each (64Gn) or of each core (4Gc). Raises InputError."""
    if not text:
        return Decimal(0)
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise row.error("reqmem", f"{text!r} is not an amount of memory; expected one such as 64G, 64Gn or 4Gc")
    per = {"": Decimal(1), "n": Decimal(nodes), "c": cores}
    return Decimal(match[1]) * _UNITS[match[2]] * per[match[3]]
