"""The training workloads: packaged ones by name, or files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from steersman.cli.options.common import path
from steersman.cli.output.display import Warnings
from steersman.cli.reading import holds_nodes, read_workload
from steersman.core.errors import unknown_name
from steersman.workloads.files import input_path

if TYPE_CHECKING:
    from steersman.workloads.workload import RunningPods, Workload


def full_name(name: str) -> str:
    """Return the name of a workload in results."""
    from steersman.workloads.formats.openb import POD_FILE, embedded_names

    return f"{POD_FILE}{name}" if name in embedded_names() else name


def read_workloads(names: list[str], nodes: Path | None, running: RunningPods, warn: Warnings) -> tuple[Workload, ...]:
    """Return packaged workloads by name, or those in files, which hold nodes or are used with `nodes`."""
    from steersman.workloads.formats.openb import embedded, known_names

    result = []
    for name in names:
        file = input_path(name)
        is_file = nodes is not None or (name not in known_names() and file.exists() and holds_nodes(file))
        if is_file:
            result.append(read_workload(nodes, path(name), running, warn))
        elif name in known_names():
            result.append(embedded(name))
            warn(result[-1].warnings)
        else:
            raise unknown_name("--workload", name, known_names(), "with --nodes a file of pods")
    return tuple(result)
