"""Formats of workload files by name. An installed package adds one by an entry point of the group `steersman.formats`.

The format of a file is found by its suffix and, where several formats share it or none has it, by its content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.core.atomic_files import new_folder
from steersman.core.errors import InputError
from steersman.core.extensions import Registry

if TYPE_CHECKING:
    from steersman.workloads.formats.base import WorkloadFormat
    from steersman.workloads.workload import Workload

BUILT_IN = {
    "openb": "steersman.workloads.formats.lists:OpenbCsv",
    "deployments": "steersman.workloads.formats.lists:DeploymentsCsv",
    "gpu-v2025": "steersman.workloads.formats.gpu_v2025:GpuV2025Csv",
    "philly": "steersman.workloads.formats.published:PhillyTrace",
    "sacct": "steersman.workloads.formats.jobs:SacctTable",
    "helios": "steersman.workloads.formats.published:HeliosCsv",
    "gpu-v2020": "steersman.workloads.formats.published:PaiCsv",
    "alibaba-v2018": "steersman.workloads.formats.published:BatchTaskCsv",
    "azure": "steersman.workloads.formats.published:AzureCsv",
    "google-v3": "steersman.workloads.formats.published:GoogleJson",
    "jobs": "steersman.workloads.formats.jobs:JobsCsv",
    "swf": "steersman.workloads.formats.swf:Swf",
    "yaml": "steersman.workloads.formats.kubernetes.objects:KubernetesYaml",
}
"""Where the class of a format is, in the order in which contents of several are put together."""
SHOWN, COMPARED, SIMILAR = 60, 100, 0.6
"""Characters of an unknown header that its error shows, columns that are compared, and how alike names are at least."""
WRITTEN = ("openb", "deployments", "jobs", "yaml")  # built-in formats that can be written; the others are only read


@cache
def registry() -> Registry[WorkloadFormat]:
    """Return the registry of formats, whose interface need not be imported to complete their names."""
    from steersman.workloads.formats.base import WorkloadFormat

    return Registry("format", "steersman.formats", WorkloadFormat, BUILT_IN)


def find_format(name: str) -> WorkloadFormat:
    """Return the format of a name. Raises SteersmanError: there is none, or it cannot be imported."""
    return registry().find(name)


def formats() -> tuple[WorkloadFormat, ...]:
    """Return all formats that can be used, in the order in which contents of several are put together."""
    return registry().usable()


def format_of(file: Path) -> WorkloadFormat:
    """Return the format of a file. Raises InputError: none recognises it."""
    named = [each for each in formats() if file.name.endswith(each.suffixes)]
    for each in named or formats():
        if each.recognises(file):
            return each
    if not named:
        suffixes = sorted({suffix for each in formats() for suffix in each.suffixes})
        problem = f"no format has its content, nor its suffix; expected {', '.join(suffixes[:-1])} or {suffixes[-1]}"
        raise InputError(file, "", "", problem)
    raise _unknown_header(file, dict(header for each in named for header in each.headers))


def _unknown_header(file: Path, headers: Mapping[str, Sequence[str]]) -> InputError:
    """Return the error of a table that no format recognises, with the one that it resembles most."""
    from steersman.workloads.formats.tables import PLAIN, PLAIN_TABLE, header_of, needs

    columns = header_of(file)
    lower = [column.lower() for column in columns[:COMPARED]]

    def resemblance(what: str) -> tuple[float, bool]:
        found = [column for column in headers[what] if get_close_matches(column, lower, n=1, cutoff=SIMILAR)]
        return len(found) / len(headers[what]), what == PLAIN_TABLE

    nearest = max(headers, key=resemblance, default=PLAIN_TABLE)
    names = ",".join(columns)
    shown = names if len(names) <= SHOWN else f"{names[:SHOWN]}..."
    problem = f"no known table has the columns {shown if shown.isprintable() else ascii(shown)}"
    return InputError(file, "line 1", "", f"{problem}; nearest is {needs(nearest, headers.get(nearest, PLAIN))}")


def convert(
    workload: Workload,
    target: str,
    output: Path,
    *,
    lossy: bool = False,
    nodes_file: str | Path = "",
    pods_file: str | Path = "",
) -> tuple[str, ...]:
    """Write a workload of nodes, pods or both into a new folder in a format of this name, and return warnings.

    What the format cannot represent is an error (LossError) that names the pod or node, its file and the field; with
    `lossy` it is left out and counted.
    """
    from steersman.workloads.formats.base import Losses

    chosen = find_format(target)
    sources = {"node": str(nodes_file), "pod": str(pods_file), "services": str(pods_file)}
    losses = Losses(chosen.title, sources, lossy=lossy)
    with new_folder(output) as folder:
        chosen.write(workload, folder, losses)
    return losses.warnings()
