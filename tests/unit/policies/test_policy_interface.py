"""Every kind of policy is one interface: nobody outside `policies` asks which kind it is."""

import ast
from pathlib import Path

import numpy as np
import pytest

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.core.errors import SteersmanError
from steersman.envs.workload import ExternalAgent
from steersman.policies.base import Policy, default_member, renamed
from steersman.policies.decision import selection
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.kube_scheduler.policy import STOCK_TUNED
from steersman.policies.policy_file import network_of
from steersman.policies.registry import as_policy, names, policy_path, resolve
from steersman.simulation.run import Simulator
from steersman.workloads.workload import Workload

SOURCE = Path(selection.__file__).parents[2]


def test_no_isinstance_checks_of_policies_outside_their_package() -> None:
    asked = []
    for file in SOURCE.rglob("*.py"):
        if "policies" in file.relative_to(SOURCE).parts:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                asked += [f"{file}:{node.lineno}"] * ("Policy" in ast.unparse(node.args[1]))
            if isinstance(node, ast.MatchClass):
                asked += [f"{file}:{node.cls.lineno}"] * ("Policy" in ast.unparse(node.cls))
    assert not asked


def cluster() -> ClusterState:
    return ClusterState([Node(f"n{i}", 8000 * (1 + i % 2), 1 << 34, gpu_count=4) for i in range(5)])


class Last:
    """A user's own policy."""

    name = "last"

    def prepare(self, state, profile, seed):
        self.nodes = len(state.nodes)

    def scores(self, state, class_id, feasible):
        return np.arange(self.nodes, dtype=np.float64)


def every_policy() -> list[Policy]:
    """Every policy that decides; `stock-tuned` has nothing to decide by before a search."""
    return [*(resolve(name) for name in names() if name != STOCK_TUNED), as_policy(Last()), resolve("fgd=2,best-fit=1")]


@pytest.mark.parametrize("policy", every_policy(), ids=lambda each: each.name)
def test_a_decider_takes_every_policy(policy: Policy) -> None:
    state = cluster()
    c = state.class_id(PodClass(Requests(1000, 1 << 30, gpu_count=1, gpu_milli=500)))
    decider = Decider(ClusterView(state), policy)
    choice, scores = decider.choose(PodQuery(c)), decider.scores(PodQuery(c))
    assert choice is not None
    assert np.isfinite(scores).all()
    if policy.name != "random":
        assert scores[choice.slot] == scores.max()
    other = next(slot for slot in range(5) if slot != choice.slot)
    parts = decider.contributions(PodQuery(c), choice.slot, other)
    sizes = [abs(each.contribution) for each in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert renamed(policy, "another").name == "another"
    assert default_member(policy).name == policy.name


def test_external_agent_cannot_run_in_a_simulation() -> None:
    nodes = tuple(Node(f"n{i}", 8000, 1 << 34) for i in range(3))
    workload = Workload("w", nodes, (Pod("p", PodClass(Requests(3000, 1 << 30))),))
    with pytest.raises(SteersmanError, match="stepped, not run"):
        Simulator(workload).run(ExternalAgent(), protocol="arrivals")


def test_saved_policy_opens_unchanged() -> None:
    for name in ("steersman", "greedy-forecast"):
        with policy_path(name) as file:
            assert file.exists()
    assert network_of(resolve("greedy-forecast")) == "linear"
    assert set(resolve("greedy-forecast").tensors()) == {"weights"}
    assert network_of(resolve("steersman")) == "portfolio"
    assert network_of(resolve("fgd")) == "rule"
    assert network_of(resolve("kube-default")) == ""
