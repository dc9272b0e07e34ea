"""The recorded placement of workloads beside the runs of policies: one value per metric, the same for every seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from steersman.evaluation.summary import ALL, SummaryRow
from steersman.simulation.result import Metric, Protocol
from steersman.simulation.run import AS_IT_IS, Simulator
from steersman.workloads.workload import Workload

Recordings = Mapping[str, tuple[Metric, ...]]
"""By workload the metrics of its recorded placement; without those that record none."""


def find_recordings(workloads: Sequence[Workload], protocol: Protocol) -> Recordings:
    """Return the metrics of the recorded placements.

    Empty for `timed`, in which pods come and go. In `inflation` other pods arrive than those that wait in the
    recording, so the numbers of pods are left out.
    """
    result = {}
    for workload in workloads:
        run = Simulator(workload).as_it_is() if workload.recorded and protocol != "timed" else None
        if run is not None:
            incomparable = () if protocol == "arrivals" else ("pods_failed", "pods_arrived")
            result[workload.name] = tuple(each for each in run.metrics if not each.name.startswith(incomparable))
    return result


def recorded_summary(recordings: Recordings, workloads: Sequence[str], protocol: Protocol) -> list[SummaryRow]:
    """Return the rows of `summary.csv` for recorded placements; `all` is the mean if every workload has one."""
    result = dict(recordings)
    if len(workloads) > 1 and set(workloads) <= set(result):
        every = zip(*(result[workload] for workload in workloads), strict=True)
        result[ALL] = tuple(
            Metric(some[0].name, some[0].unit, float(np.mean([each.value for each in some]))) for some in every
        )
    return [
        SummaryRow(
            workload=workload,
            policy=AS_IT_IS,
            protocol=protocol,
            metric=metric.name,
            unit=metric.unit,
            runs=1 if workload in recordings else len(workloads),
            mean=metric.value,
            interquartile_mean=metric.value,
            interval_over="",
        )
        for workload, metrics in result.items()
        for metric in metrics
    ]
