"""Formats of workload files by name. An installed package adds one by an entry point of the group `steersman.formats`.

The format of a file is found by its suffix and, where several formats share it, by its content.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.core.extensions import import_object, load_extensions

if TYPE_CHECKING:
    from steersman.workloads.formats.base import WorkloadFormat

ENTRY_POINTS = "steersman.formats"
BUILT_IN = {
    "openb": "steersman.workloads.formats.openb.format:OpenbCsv",
    "deployments": "steersman.workloads.formats.deployments:DeploymentsCsv",
    "gpu-v2025": "steersman.workloads.formats.gpu_v2025:GpuV2025Csv",
    "yaml": "steersman.workloads.formats.kubernetes.format:KubernetesYaml",
}
"""Where the class of a format is, in the order in which contents of several are put together."""
WRITTEN = ("openb", "deployments", "yaml")
"""Built-in formats that can be written; the others are only read."""


def _installed() -> dict[str, WorkloadFormat | SteersmanError]:
    from steersman.workloads.formats.base import WorkloadFormat

    return load_extensions("format", ENTRY_POINTS, WorkloadFormat)


@cache
def _built_in(name: str) -> WorkloadFormat:
    workload_format: WorkloadFormat = import_object("format", BUILT_IN[name])()
    return workload_format


def format_names() -> tuple[str, ...]:
    """Return the names of all formats: the built-in ones, then those of installed packages."""
    return (*BUILT_IN, *(name for name in sorted(_installed()) if name not in BUILT_IN))


def find_format(name: str) -> WorkloadFormat:
    """Return the format of a name.

    Raises:
        UsageError: there is none, or what is registered is not a format.
        SteersmanError: it cannot be imported.
    """
    if name in BUILT_IN:
        return _built_in(name)
    value = _installed().get(name)
    if isinstance(value, SteersmanError):
        raise value
    if value is None:
        raise UsageError(f"unknown format {name!r}; known are {', '.join(format_names())}")
    return value


def formats() -> tuple[WorkloadFormat, ...]:
    """Return all formats that can be used; one that cannot be imported only matters to those who ask for it."""
    installed = (each for name, each in sorted(_installed().items()) if name not in BUILT_IN)
    usable = (each for each in installed if not isinstance(each, SteersmanError))
    return (*map(find_format, BUILT_IN), *usable)


def format_of(file: Path) -> WorkloadFormat:
    """Return the format of a file. Raises InputError: no format has its suffix, or none of those recognises it."""
    named = [each for each in formats() if file.name.endswith(each.suffixes)]
    if not named:
        known = sorted({suffix for each in formats() for suffix in each.suffixes})
        raise InputError(file, "", "", f"has an unknown suffix; {', '.join(known[:-1])} and {known[-1]} are known")
    for each in named:
        if each.recognises(file):
            return each
    headers = ", ".join(each.header for each in named if each.header)
    raise InputError(file, "line 1", "", f"is no known header; {headers} are")
