"""The workloads that a policy is trained on: embedded ones by name, or files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from steersman.cli.display import Warnings
from steersman.cli.options import path
from steersman.cli.reading import read_workload
from steersman.errors import UsageError

if TYPE_CHECKING:
    from steersman.workloads.workload import Running, Workload


def full_name(name: str) -> str:
    """The name that results give a workload."""
    from steersman.workloads.openb import POD_FILE, embedded_names

    return f"{POD_FILE}{name}" if name in embedded_names() else name


def read_workloads(names: list[str], nodes: Path | None, running: Running, warn: Warnings) -> tuple[Workload, ...]:
    """Embedded workloads by name, or with `nodes` those in files. Raises UsageError: there is no such workload."""
    from steersman.workloads.openb import embedded, known_names

    found = []
    for name in names:
        if nodes is None:
            if name not in known_names():
                raise UsageError(
                    f"--workload {name}: give --nodes for a file of pods; embedded are {', '.join(known_names())}"
                )
            found.append(embedded(name))
            warn(found[-1].warnings)
        else:
            found.append(read_workload(nodes, path(name), running, warn))
    return tuple(found)
