"""Alibaba's tables of tasks without a header: `pai_task_table` of cluster-trace-gpu-v2020, `batch_task` of v2018.

CPU is in hundredths of a core, GPUs are in hundredths of one. Both are those of one instance of a task. Memory is in
GiB (v2020), or in hundredths of the largest machine's (v2018). Sources: README of cluster-trace-gpu-v2020 and
alibaba/clusterdata#129, schema of cluster-trace-v2018; Weng et al., "MLaaS in the Wild", NSDI 2022.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from steersman.core.quantities import MAX_CPU_MILLI, MAX_POD_GPUS
from steersman.workloads.formats.tables import TableRow
from steersman.workloads.formats.traces import MAX_PODS, NEVER_RAN, TraceJob, TraceTable, pod_name

MISCELLANEOUS = "MISC"
"""GPUs of several older models."""
PAI_COLUMNS = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
BATCH_COLUMNS = (
    *("task_name", "instance_num", "job_name", "task_type", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem"),
)


class _TaskTable(TraceTable):
    """A table of tasks, each of which has instances that start independently of each other.

    Attributes:
        instances: column with the number of instances.
        memory_gib, memory_percent: column with the memory in GiB, or in percent of the largest machine's.
    """

    owners = "job"
    what = "task"
    instances: ClassVar[str]
    memory_gib: ClassVar[str] = ""
    memory_percent: ClassVar[str] = ""

    def jobs(self, row: TableRow) -> Iterator[TraceJob | str]:
        """Yield the task of a row, see `TraceTable`."""
        started, ended = row.time("start_time"), row.time("end_time")
        # The end of a task that has not ended is empty or 0.
        if not started or (ended and ended < started):
            yield NEVER_RAN
            return
        job, task, model = row.name("job_name"), row.name("task_name"), row.text("gpu_type")
        yield TraceJob(
            pod_name(job, task),
            started,
            ended - started if ended else None,
            cpu_milli=math.ceil(row.amount("plan_cpu", MAX_CPU_MILLI // 10) * 10),
            memory_bytes=row.gib(self.memory_gib),
            memory_share=float(row.amount(self.memory_percent, 100)) / 100,
            gpus=row.amount("plan_gpu", MAX_POD_GPUS * 100) / 100,
            models=(model,) if model and model != MISCELLANEOUS else (),
            count=math.ceil(row.amount(self.instances, MAX_PODS)) or 1,
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
