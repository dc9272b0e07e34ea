"""Compile the simulator's kernels for a command, with a message if it takes long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from steersman.cli.output.display import status_if_slow
from steersman.workloads.workload import Workload

MESSAGE = "compiling the simulator for this machine (once, about half a minute)"


def compile_for(policies: Sequence[str], workloads: Iterable[Workload] = ()) -> None:
    """Compile all kernels that a command needs, with a message if it takes long."""
    from steersman.simulation.compilation import compile_kernels

    with status_if_slow(MESSAGE):
        compile_kernels(policies, workloads)
