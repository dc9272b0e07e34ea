"""Compile the simulator's kernels before they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.policies.base import Policy
from steersman.policies.user_policy import PolicyProtocol
from steersman.simulation.run import Simulator
from steersman.workloads.workload import Recorded, Workload


def compile_kernels(policies: Sequence[str | Policy | PolicyProtocol], workloads: Iterable[Workload] = ()) -> None:
    """Compile all kernels into the cache, from which worker processes load them; once per machine, half a minute.

    One pod on one node exercises what a run of any size does; recorded placements need one kernel more.

    Args:
        policies: policies to compile for; a user's own policies are not called.
    """
    tiny = Workload(
        "tiny",
        (Node("node", 1000, 1 << 30, gpu_count=1),),
        (Pod("pod", PodClass(Requests(cpu_milli=100, memory_bytes=1 << 20, gpu_count=1, gpu_milli=500))),),
    )
    if any(workload.recorded for workload in workloads):
        Simulator(replace(tiny, recorded=(Recorded("node", devices=1),))).as_it_is()
    simulator = Simulator(tiny)
    for policy in ("fgd", *(name for name in policies if isinstance(name, str) and ":" not in name)):
        simulator.run(policy, protocol="arrivals")
