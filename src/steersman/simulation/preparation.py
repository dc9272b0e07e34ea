"""What is prepared before runs: compiled kernels, and policy files with the member that is chosen for a workload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.core.errors import SteersmanError
from steersman.policies.base import Policy
from steersman.policies.files.policy_file import Arrays, Card, network_of, prepare_policy
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


def prepare_chosen(path: Path, policy: Policy, workload: Workload) -> tuple[Card, Arrays, str]:
    """Return a file's card and arrays for a workload, and the evidence for the member of a portfolio, else "".

    Args:
        policy: the policy of the file, with what limits the choice of its member.
        workload: nodes, and pods like the expected ones.

    Raises:
        InputError: see `prepare_policy`.
        SteersmanError: the chosen member is kube-scheduler's default.
    """
    choice = Simulator(workload).member(policy)
    if policy.members and not network_of(choice.policy):
        raise SteersmanError(f"{choice.evidence}; expected no policy file: leave kube-scheduler as it is")
    return *prepare_policy(path, workload, choice.policy), choice.evidence
