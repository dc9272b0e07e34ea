"""Published traces of jobs, tasks and virtual machines: Alibaba's, Azure's, Google's, Helios and Acme, Philly."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec

from steersman.core.errors import InputError
from steersman.core.quantities import MAX_CPU_MILLI, MAX_POD_GPUS
from steersman.workloads.files import CSV_SUFFIXES
from steersman.workloads.formats import traces
from steersman.workloads.formats.base import WorkloadFormat
from steersman.workloads.formats.tables import TableRow, read_text

# Alibaba's tables of tasks without a header: `pai_task_table` of cluster-trace-gpu-v2020, `batch_task` of v2018. CPU is
# in hundredths of a core, GPUs are in hundredths of one. Both are those of one instance of a task. Memory is in GiB
# (v2020), or in hundredths of the largest machine's (v2018). Sources: README of cluster-trace-gpu-v2020 and
# alibaba/clusterdata#129, schema of cluster-trace-v2018; Weng et al., "MLaaS in the Wild", NSDI 2022.

MISCELLANEOUS = "MISC"  # GPUs of several older models
PAI_COLUMNS = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
BATCH_COLUMNS = (
    *("task_name", "instance_num", "job_name", "task_type", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem"),
)


class _TaskTable(traces.TraceTable):
    """A table of tasks, whose instances start independently of each other; attributes name columns."""

    owners = "job"
    what = "task"
    instances: ClassVar[str]
    memory_gib: ClassVar[str] = ""
    memory_percent: ClassVar[str] = ""

    def jobs(self, row: TableRow) -> Iterator[traces.TraceJob | str]:
        started, ended = row.time("start_time"), row.time("end_time")
        # The end of a task that has not ended is empty or 0.
        if not started or (ended and ended < started):
            yield traces.NEVER_RAN
            return
        job, task, model = row.name("job_name"), row.name("task_name"), row.text("gpu_type")
        yield traces.TraceJob(
            traces.pod_name(job, task),
            started,
            ended - started if ended else None,
            cpu_milli=math.ceil(row.amount("plan_cpu", MAX_CPU_MILLI // 10) * 10),
            memory_bytes=row.gib(self.memory_gib),
            memory_share=float(row.amount(self.memory_percent, 100)) / 100,
            gpus=row.amount("plan_gpu", MAX_POD_GPUS * 100) / 100,
            models=(model,) if model and model != MISCELLANEOUS else (),
            count=math.ceil(row.amount(self.instances, traces.MAX_PODS)) or 1,
            owner=f"Job/{job}",
            place=(row.file, row.line),
        )


class PaiCsv(_TaskTable):
    """The format of PAI's tasks; machines are in other tables."""

    name = "gpu-v2020"
    title = "gpu-v2020 CSV"
    headers = (("a table of gpu-v2020's tasks", PAI_COLUMNS),)
    marks = frozenset(("job_name", "inst_num", "plan_gpu"))
    values = (3, frozenset(("Running", "Terminated", "Failed", "Waiting")))
    instances, memory_gib = "inst_num", "plan_mem"
    unused = "tasks arrive when they started, and their status is not used"


class BatchTaskCsv(_TaskTable):
    """The format of the batch tasks of v2018; machines are in another table."""

    name = "alibaba-v2018"
    title = "batch_task CSV"
    headers = (("a table of cluster-trace-v2018's batch tasks", BATCH_COLUMNS),)
    marks = frozenset(("task_name", "instance_num", "plan_cpu"))
    values = (4, frozenset(("Ready", "Waiting", "Running", "Terminated", "Failed", "Cancelled", "Interrupted")))
    instances, memory_percent = "instance_num", "plan_mem"
    unused = (
        "memory is a part of the largest node's, tasks arrive when they started, and their status and the dependencies "
        "in their names are not used"
    )


# Microsoft Azure's traces of virtual machines of 2017 and 2019: `vmtable`, a table without a header. Times are in
# seconds from the start of the trace, memory is in GiB. The trace of 2019 has buckets of cores and memory; the open
# ones, `>24` and `>64`, stand for 30 cores and 70 GiB, as in Microsoft's analysis. Source: AzurePublicDataset; Cortez
# et al., "Resource Central", SOSP 2017.

OPEN_BUCKETS: Mapping[str, str] = MappingProxyType({">24": "30", ">64": "70"})
"""What the buckets without an upper bound stand for."""


COLUMNS = (
    *("vmid", "subscriptionid", "deploymentid", "vmcreated", "vmdeleted", "maxcpu", "avgcpu", "p95maxcpu"),
    *("vmcategory", "vmcorecount", "vmmemory"),
)


class AzureCsv(traces.TraceTable):
    """The format of both traces, which have no nodes."""

    name = "azure"
    title = "Azure's vmtable CSV"
    headers = (("a table of Azure's virtual machines", COLUMNS),)
    marks = frozenset(("vmid", "vmcreated", "vmcorecount"))
    values = (8, frozenset(("Delay-insensitive", "Interactive", "Unknown")))
    owners = "subscription"
    what = "virtual machine"
    unused = "use of CPU is not used"

    def jobs(self, row: TableRow) -> Iterator[traces.TraceJob | str]:
        created, deleted = row.time("vmcreated"), row.time("vmdeleted")
        if created is None or (deleted is not None and deleted < created):
            yield traces.NEVER_RAN
            return
        sizes = {column: OPEN_BUCKETS.get(row.text(column), row.text(column)) for column in ("vmcorecount", "vmmemory")}
        size = TableRow(row.file, row.line, sizes)
        yield traces.TraceJob(
            traces.pod_name(row.name("vmid")),
            created,
            None if deleted is None else deleted - created,
            cpu_milli=math.ceil(size.amount("vmcorecount", traces.MAX_CORES) * 1000),
            memory_bytes=size.gib("vmmemory"),
            owner=f"Subscription/{row.name('subscriptionid')}",
            labels=(("category", row.name("vmcategory").lower()),),
            place=(row.file, row.line),
        )


# Google's cluster trace of 2019: instance_events, one JSON object a line, as BigQuery exports them. A time is in
# microseconds, CPU and memory are parts of the largest machine's. Instances of alloc sets count as pods; those that run
# in an alloc set of the same file use its resources. Source: clusterdata_trace_format_v3.proto; Tirmazi et al., "Borg:
# the Next Generation", EuroSys 2020.

SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST = 0, 3, 4, 5, 6, 7, 8
ENDS = (EVICT, FAIL, FINISH, KILL, LOST)
ALLOC_SET = 1
NEVER = (1 << 63) - 1  # time of what happened after the end of the trace
IN_ALLOC_SET = "run in an alloc set that counts"
_FIRST_LINE = re.compile(r'\s*\{[^\n]*"collection_id"')


class RequestedShares(msgspec.Struct, frozen=True):
    """Parts of the largest machine's resources."""

    cpus: float | None = None
    memory: float | None = None


class InstanceEvent(msgspec.Struct, frozen=True):
    """A line. Numbers may be written as texts."""

    time: int
    collection_id: int
    type: int = SUBMIT
    instance_index: int | None = None
    collection_type: int | None = None
    priority: int | None = None
    alloc_collection_id: int | None = None
    machine_id: int | None = None
    resource_request: RequestedShares | None = None


class GoogleJson(WorkloadFormat):
    """The format of instance_events, which has no nodes."""

    name = "google-v3"
    title = "instance_events JSON"
    suffixes = (".json", ".json.gz", ".jsonl", ".jsonl.gz")

    def recognises(self, file: Path) -> bool:
        return bool(_FIRST_LINE.match(read_text(file, head=True)))

    def open(self, files: Sequence[Path]) -> traces.TraceContent:
        unused = "CPU and memory are parts of the largest node's, constraints and updates of requests are not used"
        events = [each for file in files for each in _read(file)]
        return traces.TraceContent(files, _instances(events), "collection", unused, "instance")


def _read(file: Path) -> Iterator[tuple[InstanceEvent, str, int]]:
    """Yield the events of a file with its name and their lines. Raises InputError: a line is no event."""
    decoder = msgspec.json.Decoder(InstanceEvent, strict=False)
    for number, line in enumerate(read_text(file).split("\n"), start=1):
        if line.strip():
            try:
                yield decoder.decode(line), str(file), number
            except msgspec.DecodeError as error:
                raise InputError(file, f"line {number}", "", f"is not an instance event: {error}") from None


def _instances(events: Sequence[tuple[InstanceEvent, str, int]]) -> Iterator[traces.TraceJob | str]:
    alloc_sets = {event.collection_id for event, _, _ in events if event.collection_type == ALLOC_SET}
    by_instance: dict[tuple[int, int], list[tuple[InstanceEvent, str, int]]] = {}
    for each in sorted(events, key=lambda each: each[0].time):
        by_instance.setdefault((each[0].collection_id, each[0].instance_index or 0), []).append(each)
    for (collection, index), group in by_instance.items():
        _, file, line = group[0]
        of_instance = [event for event, _, _ in group if event.time < NEVER]
        if not of_instance:
            yield traces.NEVER_RAN
        elif any(event.alloc_collection_id in alloc_sets for event in of_instance):
            yield IN_ALLOC_SET
        else:
            yield _instance(f"{collection}-{index}", of_instance, (file, line))


def _instance(name: str, events: Sequence[InstanceEvent], place: tuple[str, int]) -> traces.TraceJob | str:
    created, ran, since, has_ended = events[0].time, 0, None, False
    for event in events:
        if event.type == SCHEDULE:
            since, has_ended = event.time, False
        elif event.type in ENDS:
            ran += 0 if since is None else event.time - since
            since, has_ended = None, True
        elif event.type == SUBMIT:
            has_ended = False
    if has_ended and not any(event.type == SCHEDULE for event in events):
        # Its beginning is not in the file, unless it was killed while it waited.
        if not any(event.machine_id or event.type in (FAIL, FINISH) for event in events):
            return traces.NEVER_RAN
        ran = events[-1].time - created
    request = next((event.resource_request for event in events if event.resource_request), RequestedShares())
    return traces.TraceJob(
        name,
        created / 1e6,
        ran / 1e6 if has_ended else None,
        cpu_share=request.cpus or 0.0,
        memory_share=request.memory or 0.0,
        owner=f"Collection/{events[0].collection_id}",
        priority=max(event.priority or 0 for event in events),
        place=place,
    )


# SenseTime's Helios trace and Shanghai AI Lab's Acme trace: tables of the jobs of Slurm clusters. GPUs and CPUs are
# those of all nodes of a job. Sources: READMEs of HeliosData and AcmeTrace; Hu et al., "Characterization and Prediction
# of Deep Learning Workloads in Large-Scale GPU Datacenters", SC 2021, and "Characterization of Large Language Model
# Development in the Datacenter", NSDI 2024.


class HeliosCsv(traces.TraceTable):
    """The format of both traces, which have no nodes."""

    name = "helios"
    title = "Helios or Acme CSV"
    headers = (
        (
            "a table of Helios' or Acme's jobs",
            ("job_id", "user", "gpu_num", "cpu_num", "node_num", "submit_time", "start_time", "end_time"),
        ),
    )
    marks = frozenset(("job_id", "gpu_num", "submit_time"))
    any_case = True
    unused = "states, waits and types of jobs are not used"

    def jobs(self, row: TableRow) -> Iterator[traces.TraceJob | str]:
        submitted, started, ended = (row.moment(f"{which}_time") for which in ("submit", "start", "end"))
        # In Acme's Kalos the column `duration` includes the wait.
        run = row.time("duration") if started is None or ended is None else ended - started
        if started is None or submitted is None or (run is not None and run < 0):
            yield traces.NEVER_RAN
            return
        nodes = int(row.amount("node_num", traces.MAX_PODS)) or 1
        cores, gpus = row.amount("cpu_num", traces.MAX_CORES * nodes), row.amount("gpu_num", MAX_POD_GPUS)
        yield traces.TraceJob(
            traces.pod_name(row.name("job_id")),
            submitted,
            run,
            cpu_milli=math.ceil(cores * 1000 / nodes),
            memory_bytes=row.gib("mem_per_pod_gb"),
            gpus=Decimal(math.ceil(gpus / nodes)),
            count=nodes,
            is_gang=nodes > 1,
            owner=f"User/{row.name('user')}",
            namespace=traces.namespace_of(row.text("vc")),
            place=(row.file, row.line),
        )


# Microsoft's Philly trace of deep-learning jobs: its own JSON, and a table of jobs as the artifact of Sia has it.
# `cluster_job_log` is an array of jobs with their attempts. The columns of the table are
# `timestamp,duration,num_gpus,gpu_time,cluster`: a date with a time of day, seconds, whole GPUs. Sources: README of
# philly-traces; Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC
# 2019; Jayaram Subramanya et al., "Sia", SOSP 2023.

_LOG = re.compile(r'\s*\[\s*\{[^{]*"(attempts|jobid)"')


class ServerGpus(msgspec.Struct, frozen=True):
    """The GPUs of an attempt on one server."""

    gpus: list[Any]


class Attempt(msgspec.Struct, frozen=True):
    """A part of a job's run."""

    start_time: str | None = None
    end_time: str | None = None
    detail: list[ServerGpus] = msgspec.field(default_factory=list)

    def row(self, job: TableRow) -> TableRow:
        return TableRow(job.file, job.line, {"start_time": self.start_time or "", "end_time": self.end_time or ""})


class LoggedJob(msgspec.Struct, frozen=True):
    """A job of `cluster_job_log`."""

    jobid: str
    vc: str
    submitted_time: str
    attempts: list[Attempt]


class PhillyTrace(traces.TraceTable):
    """The format of the Philly trace, which has no nodes."""

    name = "philly"
    title = "Philly CSV or JSON"
    suffixes = (*CSV_SUFFIXES, ".json", ".json.gz")
    headers = (("a table of Philly's jobs", ("timestamp", "duration", "num_gpus", "cluster")),)
    marks = frozenset(("timestamp", "num_gpus"))
    owners = "virtual cluster"
    unused = "CPU and memory are not stated and count as 0"

    def recognises(self, file: Path) -> bool:
        return _is_log(file) or super().recognises(file)

    def jobs(self, row: TableRow) -> Iterator[traces.TraceJob]:
        duration = row.seconds("duration")
        if duration is None:
            raise row.error("duration", "is empty; expected seconds, 0 or more")
        gpus = row.integer("num_gpus", MAX_POD_GPUS)
        if not gpus:
            raise row.error("num_gpus", "0 GPUs; a job needs at least 1")
        yield _job("", row.date("timestamp"), duration, gpus, row.name("cluster"), row)

    def _read(self, file: Path) -> Iterator[traces.TraceJob | str]:
        return _logged_jobs(file) if _is_log(file) else super()._read(file)


def _job(name: str, submitted: float, run: float | None, gpus: int, cluster: str, row: TableRow) -> traces.TraceJob:
    return traces.TraceJob(
        name,
        submitted,
        run,
        gpus=Decimal(gpus),
        owner=f"VirtualCluster/{cluster}",
        namespace=traces.namespace_of(cluster),
        place=(row.file, row.line),
    )


def _is_log(file: Path) -> bool:
    return bool(_LOG.match(read_text(file, head=True)))


def _logged_jobs(file: Path) -> Iterator[traces.TraceJob | str]:
    """Yield the jobs of a log, or why one is left out. Raises InputError: it is not a log, or a date is invalid."""
    try:
        jobs = msgspec.json.decode(read_text(file), type=list[LoggedJob])
    except msgspec.DecodeError as error:
        raise InputError(file, "", "", f"is not a cluster_job_log: {error}") from None
    for number, job in enumerate(jobs, start=1):
        row = TableRow(str(file), number, {"submitted_time": job.submitted_time})
        submitted = row.moment("submitted_time")
        starts = [start for each in job.attempts if (start := each.row(row).moment("start_time")) is not None]
        gpus = max((sum(len(place.gpus) for place in each.detail) for each in job.attempts), default=0)
        if submitted is None or not starts or not gpus:
            yield traces.NEVER_RAN
            continue
        ended = job.attempts[-1].row(row).moment("end_time")
        run = None if ended is None else max(ended - min(starts), 0.0)
        yield _job(traces.pod_name(job.jobid), submitted, run, gpus, job.vc, row)
