"""Traces of the studies of orders: their files, and their arrivals."""

from __future__ import annotations

import os
from pathlib import Path

from steersman.core.errors import InputError
from steersman.simulation.arrivals import Schedule, schedule
from steersman.workloads.workload import Workload

_known: dict[str, Schedule] = {}


def trace_file(name: str) -> Path:
    """Return a file of the folder `STEERSMAN_TRACES`. Raises InputError: it is missing."""
    file = Path(os.environ.get("STEERSMAN_TRACES", "traces")) / name
    if not file.exists():
        raise InputError(file, "", "", "no such file; STEERSMAN_TRACES names the folder of the traces")
    return file


def arrivals_of(workload: Workload) -> Schedule:
    """Return all pods of a trace by the time of submission, computed once by the trace's name."""
    if workload.name not in _known:
        _known[workload.name] = schedule(workload, "timed", seed=1, ratio=1.0, load=None)
    return _known[workload.name]
