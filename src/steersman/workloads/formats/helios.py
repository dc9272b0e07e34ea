"""SenseTime's Helios trace and Shanghai AI Lab's Acme trace: tables of the jobs of Slurm clusters.

GPUs and CPUs are those of all nodes of a job. Sources: READMEs of HeliosData and AcmeTrace; Hu et al.,
"Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters", SC 2021, and
"Characterization of Large Language Model Development in the Datacenter", NSDI 2024.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal

from steersman.core.quantities import MAX_POD_GPUS
from steersman.workloads.formats.tables import TableRow
from steersman.workloads.formats.traces import (
    MAX_CORES,
    MAX_PODS,
    NEVER_RAN,
    TraceJob,
    TraceTable,
    namespace_of,
    pod_name,
)


class HeliosCsv(TraceTable):
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

    def jobs(self, row: TableRow) -> Iterator[TraceJob | str]:
        """Yield the job of a row, see `TraceTable`."""
        submitted, started, ended = (row.moment(f"{which}_time") for which in ("submit", "start", "end"))
        # In Acme's Kalos the column `duration` includes the wait.
        run = row.time("duration") if started is None or ended is None else ended - started
        if started is None or submitted is None or (run is not None and run < 0):
            yield NEVER_RAN
            return
        nodes = int(row.amount("node_num", MAX_PODS)) or 1
        cores, gpus = row.amount("cpu_num", MAX_CORES * nodes), row.amount("gpu_num", MAX_POD_GPUS)
        yield TraceJob(
            pod_name(row.name("job_id")),
            submitted,
            run,
            cpu_milli=math.ceil(cores * 1000 / nodes),
            memory_bytes=row.gib("mem_per_pod_gb"),
            gpus=Decimal(math.ceil(gpus / nodes)),
            count=nodes,
            is_gang=nodes > 1,
            owner=f"User/{row.name('user')}",
            namespace=namespace_of(row.text("vc")),
            place=(row.file, row.line),
        )
