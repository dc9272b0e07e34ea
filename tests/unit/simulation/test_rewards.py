"""The rewards of a finished run are those that an environment gives for the same decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from steersman.envs.workload import WorkloadCore, WorkloadOptions
from steersman.objectives import summary
from steersman.objectives.objective import Floats, Objective
from steersman.objectives.registry import WeightedObjectives, resolve
from steersman.simulation.metrics import reward_metric
from steersman.simulation.run import Simulator
from steersman.workloads.generators.clusters import random_cluster
from steersman.workloads.topology import Hierarchy, label_nodes
from steersman.workloads.workload import Recorded, Workload

SEED = 11
ALWAYS = "allocation=1,fragmentation=2,balance=3,most-allocated=4,least-allocated=5,locality=6"


def used_memory(before: Floats, after: Floats) -> Floats:
    return (after[:, summary.MEMORY_TAKEN] - before[:, summary.MEMORY_TAKEN]) / after[:, summary.MEMORY_TOTAL]


OWN = WeightedObjectives("memory", (Objective("memory", function=used_memory),), (2.0,))


def workload_with_racks(seed: int) -> Workload:
    made = random_cluster(seed, nodes=(6, 12))
    pods = tuple(replace(pod, owner=f"Job/{i % 7}" if i % 3 else "") for i, pod in enumerate(made.pods))
    return replace(made, nodes=label_nodes(made.nodes, Hierarchy(3)), pods=pods)


def rewards_of_environment(workload: Workload, protocol: Any, objective: str, load: float | None) -> list[float]:
    core = WorkloadCore(1, protocol, WorkloadOptions(workload, objective, load=load))
    core.start(0, np.random.default_rng(0), {"seed": SEED})
    rewards = []
    while not core.terminated[0]:
        core.step(core.rule_actions("best-fit"))
        rewards.append(float(core.rewards[0]))
    return rewards


@pytest.mark.parametrize(
    ("protocol", "objective", "load"),
    [
        ("inflation", ALWAYS, None),
        ("arrivals", ALWAYS, None),
        ("timed", ALWAYS + ",waiting-time=1", 1.1),
        ("timed", "waiting-time", 1.3),
    ],
)
@pytest.mark.parametrize("seed", [3, 8])
def test_run_rewards_match_the_environment(protocol: Any, objective: str, load: float | None, seed: int) -> None:
    workload = workload_with_racks(seed)
    expected = rewards_of_environment(workload, protocol, objective, load)
    run = Simulator(workload).run("best-fit", protocol=protocol, seed=SEED, load=load, objectives=[resolve(objective)])
    metrics = {metric.name: metric.value for metric in run.metrics}
    assert metrics[reward_metric(objective)] == pytest.approx(np.mean(expected), rel=1e-9, abs=1e-9)
    assert len(run.curve.rewards[objective]) == len(run.curve.x)


def test_custom_objective_is_measured() -> None:
    workload = random_cluster(5, nodes=(3, 6))
    run = Simulator(workload).run("best-fit", protocol="arrivals", objectives=[OWN])
    metrics = {metric.name: metric.value for metric in run.metrics}
    total = metrics["pods_bound"] * metrics[reward_metric("memory")]
    assert 100 * total / 2 == pytest.approx(metrics["memory_allocation_percent"], abs=0.01)


def test_initial_pods_are_no_decisions() -> None:
    made = random_cluster(5, nodes=(3, 6))
    node = made.nodes[0].name
    standing = replace(made, pods=made.pods[:2], recorded=(Recorded(node, stays=True), Recorded(node, stays=True)))
    run = Simulator(standing).run("best-fit", protocol="arrivals", objectives=[resolve("balance")])
    metrics = {metric.name: metric.value for metric in run.metrics}
    assert metrics["pods_bound"] == 2
    assert np.isnan(metrics[reward_metric("balance")])
    assert np.isnan(run.curve.rewards["balance"]).all()
