"""Microsoft Azure's traces of virtual machines of 2017 and 2019: `vmtable`, a table without a header.

Times are in seconds from the start of the trace, memory is in GiB. The trace of 2019 has buckets of cores and memory;
the open ones, `>24` and `>64`, stand for 30 cores and 70 GiB, as in Microsoft's analysis. Source: AzurePublicDataset;
Cortez et al., "Resource Central", SOSP 2017.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from steersman.workloads.formats.tables import TableRow
from steersman.workloads.formats.traces import MAX_CORES, NEVER_RAN, TraceJob, TraceTable, pod_name

OPEN_BUCKETS: Mapping[str, str] = MappingProxyType({">24": "30", ">64": "70"})
"""What the buckets without an upper bound stand for."""


COLUMNS = (
    *("vmid", "subscriptionid", "deploymentid", "vmcreated", "vmdeleted", "maxcpu", "avgcpu", "p95maxcpu"),
    *("vmcategory", "vmcorecount", "vmmemory"),
)


class AzureCsv(TraceTable):
    """The format of both traces, which have no nodes."""

    name = "azure"
    title = "Azure's vmtable CSV"
    headers = (("a table of Azure's virtual machines", COLUMNS),)
    marks = frozenset(("vmid", "vmcreated", "vmcorecount"))
    values = (8, frozenset(("Delay-insensitive", "Interactive", "Unknown")))
    owners = "subscription"
    what = "virtual machine"
    unused = "use of CPU is not used"

    def jobs(self, row: TableRow) -> Iterator[TraceJob | str]:
        """Yield the virtual machine of a row, see `TraceTable`."""
        created, deleted = row.time("vmcreated"), row.time("vmdeleted")
        if created is None or (deleted is not None and deleted < created):
            yield NEVER_RAN
            return
        sizes = {column: OPEN_BUCKETS.get(row.text(column), row.text(column)) for column in ("vmcorecount", "vmmemory")}
        size = TableRow(row.file, row.line, sizes)
        yield TraceJob(
            pod_name(row.name("vmid")),
            created,
            None if deleted is None else deleted - created,
            cpu_milli=math.ceil(size.amount("vmcorecount", MAX_CORES) * 1000),
            memory_bytes=size.gib("vmmemory"),
            owner=f"Subscription/{row.name('subscriptionid')}",
            labels=(("category", row.name("vmcategory").lower()),),
            place=(row.file, row.line),
        )
