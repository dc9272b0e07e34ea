"""The first run on a machine compiles the simulator: done once, before worker processes start, and said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from steersman.cli.display import said_if_slow
from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.simulation.run import Simulator
from steersman.workloads.workload import Recorded, Workload

MESSAGE = "compiling the simulator for this machine (once, about half a minute)"


def compile_kernels(policies: Sequence[str], workloads: Iterable[Workload] = ()) -> None:
    """Make sure that all kernels are compiled and in the cache, from which worker processes load them.

    A pod on a node goes through all that a run of any size does; one of `workloads` that records where pods run needs
    a kernel more. The user's own policies are not called.
    """
    recorded = any(workload.recorded for workload in workloads)
    with said_if_slow(MESSAGE):
        tiny = Workload(
            "tiny",
            (Node("node", 1000, 1 << 30, gpu_count=1),),
            (Pod("pod", PodClass(Requests(cpu_milli=100, memory_bytes=1 << 20, gpu_count=1, gpu_milli=500))),),
        )
        if recorded:
            Simulator(replace(tiny, recorded=(Recorded("node", devices=1),))).as_it_is()
        simulator = Simulator(tiny)
        for policy in ("fgd", *(name for name in policies if ":" not in name)):
            simulator.run(policy, protocol="arrivals")
