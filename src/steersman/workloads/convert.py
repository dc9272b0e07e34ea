"""Write a workload in another format, see `formats.registry`.

What the target format cannot represent is an error that names the pod or node and the field; with `lossy` it is
dropped and counted.
"""

from __future__ import annotations

from pathlib import Path

from steersman.core.atomic_files import new_folder
from steersman.workloads.formats.base import Losses
from steersman.workloads.formats.registry import find_format
from steersman.workloads.workload import Workload


def convert(
    workload: Workload,
    target: str,
    output: Path,
    *,
    lossy: bool = False,
    nodes_file: str | Path = "",
    pods_file: str | Path = "",
) -> tuple[str, ...]:
    """Write a workload into a new folder and return warnings. A workload may consist of nodes or of pods alone.

    Args:
        workload: what to write.
        target: name of a format.
        output: the folder.
        lossy: whether to leave out what the format cannot represent.
        nodes_file: the file that the nodes were read from, for errors.
        pods_file: the file that the pods were read from, for errors.

    Raises:
        UsageError: there is no such format, or it can only be read.
        LossError: the format cannot represent something and `lossy` is false.
        InputError: `output` exists or cannot be written.
    """
    chosen = find_format(target)
    sources = {"node": str(nodes_file), "pod": str(pods_file), "services": str(pods_file)}
    losses = Losses(chosen.title, sources, lossy=lossy)
    with new_folder(output) as folder:
        chosen.write(workload, folder, losses)
    return losses.warnings()
