"""Objectives: each formula on states that a person can work out, names and mixes, and what they need."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.core.errors import SteersmanError, UsageError
from steersman.envs.deployments import DeploymentsCore, DeploymentsOptions
from steersman.envs.workload import WorkloadCore, WorkloadOptions
from steersman.objectives import summary
from steersman.objectives.registry import OBJECTIVES, check, resolve
from steersman.objectives.summary import reward
from steersman.workloads.topology import Hierarchy, label_nodes
from steersman.workloads.workload import Workload

GIB = 1 << 30

NODES = tuple(
    Node(f"n{i}", 1000, 64 * GIB, gpu_count=2, gpu_model="T4", labels={"rack": f"rack-{i // 2}"}) for i in range(4)
)


def workload(*owners: str) -> Workload:
    """Pods of 250 mCPU and 600 milli of a GPU."""
    share = PodClass(Requests(250, GIB, gpu_count=1, gpu_milli=600))
    return Workload("w", NODES, tuple(Pod(f"p{i}", share, owner=owner) for i, owner in enumerate(owners)))


def rewards(objective: str, slots: list[int], *owners: str) -> list[float]:
    """What placing pods on these slots earns, one after another."""
    core = WorkloadCore(1, "inflation", WorkloadOptions(workload=workload(*owners), objective=objective, ratio=0.6))
    core.start(0, np.random.default_rng(0), {})
    found = []
    for slot in slots:
        core.step(np.array([slot]))
        found.append(core.rewards[0])
    return found


POD = ("Job/a",) * 8


def test_allocation_reward_is_the_allocated_gpus():
    assert rewards("allocation", [0, 0, 3], *POD) == pytest.approx([0.6, 0.6, 0.6])


def test_fragmentation_reward_is_newly_unusable_idle_gpu():
    # The only typical pod wants 600 milli: 400 left of a device are of no use to it. Two devices taken leave no
    # device for another, so that all 800 are useless; that was said of the first 400 before.
    assert rewards("fragmentation", [0, 0, 1], *POD) == pytest.approx([-0.4, -0.4, -0.4])


def test_balance_is_the_aaml_formula_on_the_state_after_the_action():
    def expected(*used: float) -> float:
        s = float(np.std(used))
        return 1 - 2 * s / (s + 1)

    assert rewards("balance", [2, 0, 1, 3], *POD) == pytest.approx(
        [
            expected(0, 0, 0.25, 0),
            expected(0.25, 0, 0.25, 0),
            expected(0.25, 0.25, 0.25, 0),
            1.0,
        ]
    )


def test_most_allocated_is_the_share_of_nodes_that_are_empty_afterwards():
    assert rewards("most-allocated", [1, 1, 2], *POD) == pytest.approx([0.75, 0.75, 0.5])


def test_least_allocated_prefers_the_less_used_node():
    packed, spread = rewards("least-allocated", [0, 0], *POD), rewards("least-allocated", [0, 1], *POD)
    assert packed == pytest.approx([1 - math.sqrt(0.0625 / 4), 1 - math.sqrt(0.25 / 4)])
    assert spread[1] == pytest.approx(1 - math.sqrt(2 * 0.0625 / 4))
    assert spread[1] > packed[1]


def test_locality_is_the_share_of_the_owners_pods_in_the_rack():
    nodes = {f"n{i}": i for i in range(4)}
    core = WorkloadCore(1, "inflation", WorkloadOptions(workload=workload(*POD), objective="locality", ratio=0.6))
    core.start(0, np.random.default_rng(0), {})
    slot = {nodes[name]: slot for slot, name in enumerate(core.names(0))}
    found = []
    for node in (0, 1, 2, 3):
        core.step(np.array([slot[node]]))
        found.append(core.rewards[0])
    assert found == pytest.approx([1, 1, 1 / 3, 2 / 4])


def test_pod_without_owner_has_full_locality():
    some = ("Job/a", *[""] * 7)
    core = WorkloadCore(1, "inflation", WorkloadOptions(workload=workload(*some), objective="locality", ratio=0.6))
    core.start(0, np.random.default_rng(0), {})
    for slot in (0, 2, 1, 3):
        core.step(np.array([slot]))
        assert core.rewards[0] == 1


def test_a_mix_is_the_weighted_sum():
    slots = [0, 0, 2, 1]
    parts = [rewards(name, slots, *POD) for name in ("allocation", "fragmentation", "balance")]
    mixed = rewards("allocation=1,fragmentation=0.5,balance=2", slots, *POD)
    assert mixed == pytest.approx([a + 0.5 * f + 2 * b for a, f, b in zip(*parts, strict=True)])


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60))
def test_level_rewards_stay_in_range(slots):
    for objective in ("balance", "most-allocated", "least-allocated", "locality"):
        core = DeploymentsCore(1, DeploymentsOptions(objective=objective))
        core.start(0, np.random.default_rng(1), {"seed": 5})
        for slot in slots:
            core.step(np.array([slot]))
            assert 0 <= core.rewards[0] <= 1


def test_every_objective_has_a_formula_and_a_source_and_can_be_named():
    expected = {
        "allocation",
        "fragmentation",
        "balance",
        "most-allocated",
        "least-allocated",
        "waiting-time",
        "locality",
        "least-connections",
        "latency-aware",
    }
    assert set(OBJECTIVES) == expected
    for name, objective in OBJECTIVES.items():
        assert objective.formula
        assert objective.source
        assert resolve(name).objectives == (objective,)
        assert resolve(f"{name}=2.5").weights == (2.5,)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("reward", "unknown objective 'reward'; known are allocation, fragmentation"),
        ("balance=1,reward=2", "unknown objective 'reward'"),
        ("balance=1,balance=2", "'balance' is there twice"),
        ("balance=0", "the weight of 'balance' must be a number above 0, not '0'"),
        ("balance=nan", "must be a number above 0, not 'nan'"),
        ("balance=1,", "unknown objective ''"),
        ("", "unknown objective ''"),
    ],
)
def test_a_wrong_name_or_weight_fails_in_one_line(spec, problem):
    with pytest.raises(UsageError) as caught:
        resolve(spec)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_workload_lacking_required_data_fails_in_one_line():
    whole = workload(*POD)
    without_gpus = tuple(replace(node, gpu_count=0) for node in NODES)
    without_racks = tuple(replace(node, labels={}) for node in NODES)
    cpu_pods = tuple(Pod(f"p{i}", PodClass(Requests(10))) for i in range(3))
    for objective, nodes, pods, problem in (
        ("allocation", without_gpus, whole.pods, "its nodes have no GPU"),
        ("fragmentation=1,balance=1", NODES, cpu_pods, "its pods request no GPU"),
        ("locality", NODES, cpu_pods, "its pods have no owner"),
        ("locality", without_racks, whole.pods, "its nodes have no label 'rack'"),
        ("latency-aware", NODES, whole.pods, "it has no telemetry; --protocol latency, steersman/Latency-v0, has"),
    ):
        with pytest.raises(UsageError, match=problem):
            check(resolve(objective), "w", nodes, pods)
        assert check(resolve("balance"), "w", nodes, pods) is None
    check(resolve("locality=1,allocation=1"), "w", label_nodes(without_racks, Hierarchy(2)), whole.pods)


OWN = "tests.support.extensions.made_up_objective"


def test_custom_objective_is_rewarded_like_a_built_in_one():
    slots = [0, 0, 1, 3, 2]
    assert rewards(f"{OWN}:EVEN", slots, *POD) == pytest.approx(rewards("balance", slots, *POD), abs=1e-12)
    mixed = [rewards(f"{name}=2,allocation=0.5", slots, *POD) for name in (f"{OWN}:EVEN", "balance")]
    assert mixed[0] == pytest.approx(mixed[1], abs=1e-12)
    core = DeploymentsCore(3, DeploymentsOptions(objective=f"{OWN}:EVEN"))
    same = DeploymentsCore(3, DeploymentsOptions(objective="balance"))
    for each in (core, same):
        for e in range(3):
            each.start(e, np.random.default_rng(e), {})
    for _ in range(20):
        actions = core.rule_actions("most-allocated")
        core.step(actions)
        same.step(actions)
        assert core.rewards == pytest.approx(same.rewards, abs=1e-12)


def test_illegal_action_earns_nothing_from_a_custom_objective():
    core = WorkloadCore(1, "inflation", WorkloadOptions(workload=workload(*POD), objective=f"{OWN}:EVEN", penalty=7.0))
    core.start(0, np.random.default_rng(0), {})
    for _ in range(20):
        core.step(np.array([0]))
        if core.infos()["illegal"][0]:
            break
    assert core.rewards[0] == -7.0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("FAILS", ("'fails'", "ZeroDivisionError", "made_up_objective.py")),
        ("NOT_FINITE", ("'not-finite'",)),
        ("TOO_FEW", ("'too-few'", "(2,)")),
        ("NUMBERED", ("NUMBERED",)),
        ("NOTHING", ("NOTHING", "no objective")),
        ("MISSING", ("MISSING",)),
    ],
)
def test_faulty_custom_objective_fails_in_one_line(name, said):
    with pytest.raises(SteersmanError) as caught:
        rewards(f"{OWN}:{name}", [0], *POD)
    assert all(part in str(caught.value) for part in said)
    assert "\n" not in str(caught.value)


def test_recorded_and_simulated_rewards_agree():
    before, after = np.zeros(summary.COLUMNS), np.zeros(summary.COLUMNS)
    after[[summary.CPU_NODES, summary.CPU_SHARE, summary.CPU_SQUARE]] = 4, 1.0, 0.5
    own, built_in = (reward(resolve(name), before, after) for name in (f"{OWN}:EVEN=3,balance=1", "balance=4"))
    assert own == pytest.approx(built_in, abs=1e-12)
