"""Formats of workload files by name. An installed package adds one by an entry point of the group `steersman.formats`.

Which format a file is in is told by its suffix and, where several formats share that, by its content.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.errors import InputError, SteersmanError, UsageError
from steersman.extensions import import_object, load_extensions

if TYPE_CHECKING:
    from steersman.workloads.formats.base import WorkloadFormat

ENTRY_POINTS = "steersman.formats"
BUILT_IN = {
    "openb": "steersman.workloads.formats.openb_csv:OpenbCsv",
    "deployments": "steersman.workloads.formats.deployments_csv:DeploymentsCsv",
    "yaml": "steersman.workloads.formats.kubernetes_yaml:KubernetesYaml",
}
"""Where the class of a format is, in the order in which contents of several are put together."""


@cache
def _installed() -> dict[str, WorkloadFormat | SteersmanError]:
    from steersman.workloads.formats.base import (
        WorkloadFormat,  # slow to import, and the names alone are asked for, too
    )

    return load_extensions("format", ENTRY_POINTS, WorkloadFormat)


def format_names() -> tuple[str, ...]:
    """Return the names of all formats: the built-in ones, then those of installed packages."""
    return (*BUILT_IN, *(name for name in sorted(_installed()) if name not in BUILT_IN))


@cache
def find_format(name: str) -> WorkloadFormat:
    """Return the format of a name.

    Raises:
        UsageError: there is none, or what is registered is no format.
        SteersmanError: it cannot be imported.
    """
    if name in BUILT_IN:
        made: WorkloadFormat = import_object("format", BUILT_IN[name])()
        return made
    found = _installed().get(name)
    if isinstance(found, SteersmanError):
        raise found
    if found is None:
        raise UsageError(f"unknown format {name!r}; known are {', '.join(format_names())}")
    return found


@cache
def formats() -> tuple[WorkloadFormat, ...]:
    """Return all formats that can be used; one that cannot be imported is of no matter to who does not ask for it."""
    installed = (each for name, each in sorted(_installed().items()) if name not in BUILT_IN)
    usable = (each for each in installed if not isinstance(each, SteersmanError))
    return (*map(find_format, BUILT_IN), *usable)


def format_of(file: Path) -> WorkloadFormat:
    """Return the format of a file. Raises InputError: no format has its suffix, or none of those that have knows it."""
    named = [each for each in formats() if file.name.endswith(each.suffixes)]
    if not named:
        known = sorted({suffix for each in formats() for suffix in each.suffixes})
        raise InputError(file, "", "", f"has an unknown suffix; {', '.join(known[:-1])} and {known[-1]} are known")
    for each in named:
        if each.recognises(file):
            return each
    headers = ", ".join(each.header for each in named if each.header)
    raise InputError(file, "line 1", "", f"is no known header; {headers} are")
