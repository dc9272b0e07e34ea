"""Protocols that generate clusters and pods: what a seed decides, who may decide, and what is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.errors import raises
from tests.support.networks import network_file
from tests.support.nightly import examples

import steersman
from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.core.errors import UsageError
from steersman.envs.deployments import MIXED_SHAPES, DeploymentsOptions
from steersman.envs.latency import LatencyOptions
from steersman.evaluation.criteria import parse_objectives
from steersman.evaluation.generated import (
    check_generated,
    deployments_workload,
    nominal_workload,
    play_all,
    run_generated,
)
from steersman.evaluation.report.figures import WINDOW, family_of, success_rate
from steersman.evaluation.summary import SEEDS
from steersman.policies.features import CLUSTER, TELEMETRY
from steersman.policies.most_even import NAME as MOST_EVEN
from steersman.policies.registry import resolve
from steersman.simulation.metrics import reward_metric
from steersman.simulation.run import Simulator
from steersman.workloads.generators.deployments import DeploymentSettings
from steersman.workloads.generators.latency_settings import LatencySettings
from steersman.workloads.workload import Workload

SMALL = LatencyOptions(settings=LatencySettings(nodes=5, pods=60, warmup=0.0))
FILLING = DeploymentsOptions(nodes=4, settings=DeploymentSettings(cpu_load=0.3))
BALANCE = parse_objectives(["balance"])


@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 1 << 40), nodes=st.integers(1, 12), mixed=st.booleans())
def test_seed_determines_cluster_and_deployments(seed: int, nodes: int, mixed: bool) -> None:
    options = DeploymentsOptions(nodes=(1, nodes), shapes=MIXED_SHAPES if mixed else (), equal_share=0.5)
    made = deployments_workload(options, seed)
    assert made == deployments_workload(options, seed)
    assert 1 <= len(made.eligible_nodes) <= nodes
    assert not made.eligible[0]  # the control plane
    cpu = sum(node.cpu_milli for node in made.eligible_nodes)
    requested = [pod.requests.cpu_milli for pod in made.pods]
    memory = sum(pod.requests.memory_bytes for pod in made.pods) / sum(n.memory_bytes for n in made.eligible_nodes)
    pods = len(made.pods) / sum(node.pods for node in made.eligible_nodes)
    assert max(sum(requested) / cpu, memory, pods) >= 0.5
    assert all(pod.deletion_time is None for pod in made.pods)


def test_deployments_are_compared_by_the_workers_deviation() -> None:
    run = run_generated(FILLING, "least-allocated", 7, BALANCE)
    made = deployments_workload(FILLING, 7)
    assert run.protocol == "deployments"
    assert run.workload == nominal_workload(FILLING).name == "4 nodes"
    assert len(run.final_nodes.names) == 4
    metrics = {metric.name: metric.value for metric in run.metrics}
    assert metrics["cpu_balance_percent"] == pytest.approx(100 * np.std(run.final_nodes.cpu_used_share))
    assert metrics["pods_bound"] == len(made.pods)
    deviation = run.curve.cpu_balance_percent / 100
    np.testing.assert_allclose(run.curve.rewards["balance"], 1 - 2 * deviation / (deviation + 1), atol=1e-9)
    assert reward_metric("balance") in metrics


def test_the_greedy_rule_takes_the_node_that_leaves_the_smallest_deviation() -> None:
    rng = np.random.default_rng(3)
    nodes = tuple(Node(f"n{i}", int(rng.integers(4, 64)) * 1000, 1 << 40, pods=110) for i in range(6))
    pods = tuple(Pod(f"p{i}", PodClass(Requests(int(rng.integers(1, 40)) * 100, 1))) for i in range(40))
    run = Simulator(Workload("w", nodes, pods)).run(MOST_EVEN, protocol="arrivals", record=True)
    assert run.placements is not None
    used, whole = np.zeros(6), np.array([node.cpu_milli for node in nodes], dtype=float)
    names = [node.name for node in nodes]
    for pod, where in zip(pods, run.placements.node, strict=True):
        ends = []
        for i in range(6):
            after = used.copy()
            after[i] += pod.requests.cpu_milli
            ends.append(np.std(after / whole) if after[i] <= whole[i] else np.inf)
        chosen = names.index(where)
        assert ends[chosen] == pytest.approx(min(ends), abs=1e-12)
        used[chosen] += pod.requests.cpu_milli


def test_networks_of_both_views_decide_in_their_protocol(tmp_path: Path) -> None:
    for name in ("mlp", "gnn"):
        evaluation = steersman.evaluate(FILLING, ["kube-default", network_file(tmp_path, CLUSTER, name)], seeds=2)
        assert evaluation.comparisons[0].headline.criterion.name == "cpu_balance_percent"
    learned = network_file(tmp_path, TELEMETRY)
    evaluation = steersman.evaluate(SMALL, ["kube-default", "p0", learned], seeds=2)
    headline = evaluation.comparisons[0].headline
    names = ["soft_limits_kept_percent", "empty_nodes", "cpu_use_deviation_percent", "connections_maximum_mean"]
    assert [each.name for each in headline.criteria] == names
    evaluation.write(tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Pods per node" in page


def test_run_has_the_metrics_of_the_environment_and_live_page() -> None:
    expected = play_all({"p0": "latency-aware"}, [5], SMALL)["p0"]
    run = run_generated(SMALL, "p0", 5, parse_objectives(["latency-aware"]))
    metrics = {metric.name: metric.value for metric in run.metrics}
    for name, values in expected.items():
        if name != "return":
            assert metrics[name] == pytest.approx(values[0], nan_ok=True)
    episode = run.latency
    assert episode is not None
    assert episode.pods.shape == (len(run.curve.x), 5)
    assert (np.diff(run.curve.x) >= 0).all()
    assert sum(run.curve.rewards["latency-aware"]) == pytest.approx(expected["return"][0])
    limited = np.isfinite(episode.kept)
    assert (episode.latency[limited] > 0).all()
    assert metrics["soft_limits_kept_percent"] == pytest.approx(100 * episode.kept[limited].mean())


def test_a_mix_is_measured_by_its_mean_reward_in_both() -> None:
    mixed = parse_objectives(["balance=1,most-allocated=2"])
    for options, policy in ((SMALL, "ma"), (FILLING, "most-allocated")):
        run = run_generated(options, policy, 3, mixed)
        assert np.isfinite({m.name: m.value for m in run.metrics}[reward_metric("balance=1,most-allocated=2")])


@pytest.mark.parametrize(
    ("options", "objective", "policy", "named"),
    [
        (SMALL, "balance", "fgd", ("fgd", "kube-default", "p0")),
        (SMALL, "allocation", "p0", ("allocation", "latency", "least-connections")),
        (SMALL, "tests.support.extensions.made_up_objective:EVEN", "p0", ("even-cpu", "latency")),
        (FILLING, "latency-aware", "fgd", ("latency-aware", "--protocol latency")),
        (FILLING, "fragmentation", "fgd", ("fragmentation", "no GPU")),
        (FILLING, "waiting-time", "fgd", ("waiting-time", "timed")),
    ],
)
def test_undefined_combination_is_rejected(
    options: DeploymentsOptions | LatencyOptions, objective: str, policy: str, named: tuple[str, ...]
) -> None:
    with raises(UsageError, *named):
        check_generated(options, parse_objectives([objective]), (policy,))


VARYING = replace(FILLING, nodes=(2, 5))


@pytest.mark.parametrize(("options", "rule"), [(FILLING, MOST_EVEN), (VARYING, "best-fit"), (SMALL, "p0")])
def test_intervals_are_over_seeds(options: DeploymentsOptions | LatencyOptions, rule: str) -> None:
    comparison = steersman.evaluate(options, ["kube-default", rule], seeds=3).comparisons[0]
    other = [row for row in comparison.summary if row.baseline and row.metric == comparison.headline.primary]
    assert other
    assert all(row.interval_over == SEEDS and np.isfinite(row.difference_interval).all() for row in other)
    assert "3 paired seeds" in comparison.headline.sentence()


def test_policy_with_another_view_is_rejected(tmp_path: Path) -> None:
    with raises(UsageError, "mlp-cluster", "latency"):
        check_generated(SMALL, (), (resolve(network_file(tmp_path, CLUSTER)),))


@given(st.lists(st.sampled_from([0.0, 1.0, np.nan]), max_size=120))
def test_the_success_rate_is_that_of_the_last_decisions_with_limits(kept: list[float]) -> None:
    rates = success_rate(np.array(kept))
    known: list[float] = []
    for value, rate in zip(kept, rates, strict=True):
        known += [] if np.isnan(value) else [value]
        expected = 100 * np.mean(known[-WINDOW:]) if known else np.nan
        assert rate == pytest.approx(expected, nan_ok=True)


def test_families_are_those_of_openb() -> None:
    names = ("default", "cpu050", "gpushare100", "gpuspec25", "multigpu50", "default-small", "monday", "gpus", "")
    assert family_of("openb_pod_list_gpushare40") == "gpushare"
    assert [family_of(name) for name in names] == ["default", "cpu", "gpushare", "gpuspec", "multigpu", "", "", "", ""]
