"""Formats of workload files by name. An installed package adds one by an entry point of the group `steersman.formats`.

Which format a file is in is told by its suffix and, where several formats share that, by its content.
"""

from __future__ import annotations

from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.errors import InputError, SteersmanError, UsageError
from steersman.extensions import attribute_errors, import_object

if TYPE_CHECKING:
    from steersman.workloads.formats.base import WorkloadFormat

ENTRY_POINTS = "steersman.formats"
BUILT_IN = {
    "openb": "steersman.workloads.formats.openb_csv:OpenbCsv",
    "deployments": "steersman.workloads.formats.deployments_csv:DeploymentsCsv",
    "yaml": "steersman.workloads.formats.kubernetes_yaml:KubernetesYaml",
}
"""Where the class of a format is, in the order in which contents of several are put together."""


def format_names() -> tuple[str, ...]:
    """Return the names of all formats: the built-in ones, then those of installed packages."""
    installed = sorted(point.name for point in metadata.entry_points(group=ENTRY_POINTS))
    return (*BUILT_IN, *(name for name in installed if name not in BUILT_IN))


@cache
def find_format(name: str) -> WorkloadFormat:
    """Return the format of a name.

    Raises:
        UsageError: there is none, or what is registered is no format.
        SteersmanError: it cannot be imported.
    """
    if name in BUILT_IN:
        return _instance(name, import_object("format", BUILT_IN[name]))
    for point in metadata.entry_points(group=ENTRY_POINTS):
        if point.name == name:
            with attribute_errors(f"format {name!r}"):
                return _instance(name, point.load())
    raise UsageError(f"unknown format {name!r}; known are {', '.join(format_names())}")


def _instance(name: str, factory: object) -> WorkloadFormat:
    from steersman.workloads.formats.base import (
        WorkloadFormat,  # slow to import, and the names alone are asked for, too
    )

    made = factory() if isinstance(factory, type) else factory
    if not isinstance(made, WorkloadFormat) or made.name != name:
        raise UsageError(f"format {name!r}: a {WorkloadFormat.__name__} of that name is right, not {made!r}")
    return made


def formats() -> tuple[WorkloadFormat, ...]:
    """Return all formats that can be used; one that cannot be imported is of no matter to who does not ask for it."""
    usable = []
    for name in format_names():
        try:
            usable.append(find_format(name))
        except SteersmanError:
            if name in BUILT_IN:
                raise
    return tuple(usable)


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
