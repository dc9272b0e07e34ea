"""Alibaba's tables of tasks without a header: `pai_task_table` of cluster-trace-gpu-v2020, `batch_task` of v2018.

CPU is in hundredths of a core, GPUs are in hundredths of one. Both are those of one instance of a task. Memory is in
GiB (v2020), or in hundredths of the largest machine's (v2018). Sources: README of cluster-trace-gpu-v2020 and
alibaba/clusterdata#129, schema of cluster-trace-v2018; Weng et al., "MLaaS in the Wild", NSDI 2022.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace

from steersman.cluster.node_labels import GIB
from steersman.core.quantities import MAX_CPU_MILLI, MAX_POD_GPUS
from steersman.workloads.formats.tables import TableRow
from steersman.workloads.formats.traces import (
    MAX_GIB,
    MAX_PODS,
    NEVER_RAN,
    TraceJob,
    TraceTable,
    amount,
    pod_name,
    seconds,
)

MISCELLANEOUS = "MISC"
"""GPUs of several older models."""


class _TaskTable(TraceTable):
    """A table of tasks, each of which has instances that start independently of each other."""

    owners = "job"
    instances: str
    """Name of the column with the number of instances."""

    def jobs(self, row: TableRow) -> Iterator[TraceJob | str]:
        """Yield the task of a row, see `TraceTable`."""
        started, ended = seconds(row, "start_time"), seconds(row, "end_time")
        # The end of a task that has not ended is empty or 0.
        if not started or (ended and ended < started):
            yield NEVER_RAN
            return
        job, task = row.name("job_name"), row.name("task_name")
        yield self.task(
            row,
            TraceJob(
                pod_name(job, task),
                started,
                ended - started if ended else None,
                cpu_milli=math.ceil(amount(row, "plan_cpu", MAX_CPU_MILLI // 10) * 10),
                count=math.ceil(amount(row, self.instances, MAX_PODS)) or 1,
                owner=f"Job/{job}",
                file=row.file,
                line=row.line,
            ),
        )

    @abstractmethod
    def task(self, row: TableRow, job: TraceJob) -> TraceJob:
        """Return a task with the requests that the table alone has. Raises InputError: a cell is invalid."""


class PaiCsv(_TaskTable):
    """The format of PAI's tasks; machines are in other tables."""

    name = "gpu-v2020"
    title = "gpu-v2020 CSV"
    headers = (
        (
            "a table of gpu-v2020's tasks",
            (
                *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
                *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
            ),
        ),
    )
    marks = frozenset(("job_name", "inst_num", "plan_gpu"))
    values = (3, frozenset(("Running", "Terminated", "Failed", "Waiting")))
    instances = "inst_num"
    unused = "tasks arrive when they started, and their status is not used"

    def task(self, row: TableRow, job: TraceJob) -> TraceJob:
        """Return a task with GPUs and memory, see `_TaskTable`."""
        model = row.text("gpu_type")
        return replace(
            job,
            memory_bytes=math.ceil(amount(row, "plan_mem", MAX_GIB) * GIB),
            gpus=amount(row, "plan_gpu", MAX_POD_GPUS * 100) / 100,
            models=(model,) if model and model != MISCELLANEOUS else (),
        )


class BatchTaskCsv(_TaskTable):
    """The format of the batch tasks of v2018; machines are in another table."""

    name = "alibaba-v2018"
    title = "batch_task CSV"
    headers = (
        (
            "a table of cluster-trace-v2018's batch tasks",
            (
                *("task_name", "instance_num", "job_name", "task_type", "status", "start_time", "end_time"),
                *("plan_cpu", "plan_mem"),
            ),
        ),
    )
    marks = frozenset(("task_name", "instance_num", "plan_cpu"))
    values = (4, frozenset(("Ready", "Waiting", "Running", "Terminated", "Failed", "Cancelled", "Interrupted")))
    instances = "instance_num"
    unused = (
        "memory is a part of the largest node's, tasks arrive when they started, and their status and the dependencies "
        "in their names are not used"
    )

    def task(self, row: TableRow, job: TraceJob) -> TraceJob:
        """Return a task with memory, see `_TaskTable`."""
        return replace(job, memory_share=float(amount(row, "plan_mem", 100)) / 100)
