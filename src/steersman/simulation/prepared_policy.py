"""Policy files prepared for a workload, with the member that is chosen there."""

from __future__ import annotations

from pathlib import Path

from steersman.core.errors import SteersmanError
from steersman.policies.base import Policy
from steersman.policies.policy_file import Arrays, Card, network_of, prepare_policy
from steersman.simulation.run import Simulator
from steersman.workloads.workload import Workload


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
