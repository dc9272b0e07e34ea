"""The search for a configuration of kube-scheduler."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.support.errors import raises

from steersman.cli.main import main
from steersman.core.errors import UsageError
from steersman.policies.kube_scheduler.configuration import profiles_of
from steersman.policies.kube_scheduler.policy import STOCK_TUNED
from steersman.policies.kube_scheduler.profile import (
    BALANCED,
    DEFAULT_PROFILE,
    FIT,
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY,
    KubeProfile,
    ScoringStrategy,
)
from steersman.policies.kube_scheduler.written import configuration_of, managed_configurations
from steersman.policies.portfolio_policy import KindLimit
from steersman.policies.registry import resolve
from steersman.simulation.kind_losses import kind_losses
from steersman.simulation.result import RunResult
from steersman.simulation.run import Simulator
from steersman.simulation.selection import stock_search
from steersman.simulation.selection.stock_search import ProfileSpace, StockSearchOptions, gpu_name
from steersman.training.search.policies import SchedulerFit, search_scheduler
from steersman.workloads.generators.clusters import Distribution, random_cluster
from steersman.workloads.loading import load_workload

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    "profile",
    [
        DEFAULT_PROFILE,
        KubeProfile(weights=(3, 2, 0, 2, 2, 17, 0), percentage=40),
        KubeProfile(fit=ScoringStrategy(MOST_ALLOCATED, (("cpu", 2), (GPU, 9))), balanced=("cpu", GPU)),
        KubeProfile(fit=ScoringStrategy(REQUESTED_TO_CAPACITY, ((GPU, 1),), ((0, 0), (70, 20), (100, 100)))),
    ],
)
def test_a_written_configuration_is_read_as_the_same_profile(profile: KubeProfile) -> None:
    assert profiles_of(configuration_of(profile, "gpu")) == {"gpu": profile}
    aks = managed_configurations(profile, configuration_of(profile, "gpu"))["aks"]
    assert profiles_of(yaml.safe_load(aks["spec"]["rawConfig"])) == {"gpu": profile}


BASE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 8
leaderElection: {leaderElect: true, resourceName: mine}
profiles:
- schedulerName: web
- schedulerName: batch
  plugins:
    postFilter: {disabled: [{name: DefaultPreemption}]}
    score:
      disabled: [{name: "*"}]
      enabled: [{name: NodeResourcesFit, weight: 5}, {name: ImageLocality}]
  pluginConfig:
  - name: NodeResourcesFit
    args: {ignoredResources: [example.com/foo]}
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 70}
  - name: VolumeBinding
    args: {bindTimeoutSeconds: 60}
"""


def test_a_written_configuration_keeps_all_else_of_its_base() -> None:
    base = yaml.safe_load(BASE)
    before = profiles_of(base)["batch"]
    # NodeResourcesBalancedAllocation scores now, ImageLocality no more.
    found = replace(before, weights=(0, 0, 0, 0, 0, 9, 2), fit=ScoringStrategy(MOST_ALLOCATED, ((GPU, 3),)))
    found = replace(found, balanced=("cpu", GPU), percentage=50)
    written = configuration_of(found, "batch", base)
    assert profiles_of(written) == {"web": DEFAULT_PROFILE, "batch": found}
    assert base == yaml.safe_load(BASE)
    assert written["parallelism"] == 8
    assert written["leaderElection"] == base["leaderElection"]
    batch = written["profiles"][1]
    assert batch["plugins"]["postFilter"] == {"disabled": [{"name": "DefaultPreemption"}]}
    arguments = {each["name"]: each["args"] for each in batch["pluginConfig"]}
    assert arguments["NodeResourcesFit"]["ignoredResources"] == ["example.com/foo"]
    assert arguments["VolumeBinding"] == {"bindTimeoutSeconds": 60}
    raw = managed_configurations(found, written)["aks"]["spec"]["rawConfig"]
    assert yaml.safe_load(raw) == written


def test_eks_takes_strategies_and_weights_of_resources_alone() -> None:
    most = KubeProfile(fit=ScoringStrategy(MOST_ALLOCATED, ((GPU, 3),)))
    scoring = {"type": "MostAllocated", "resources": [{"name": GPU, "weight": 3}]}
    assert managed_configurations(most, {})["eks"] == {"nodeResourcesFit": {"scoringStrategy": scoring}}
    assert "eks" not in managed_configurations(replace(most, weights=(3, 2, 1, 2, 2, 9, 1)), {})
    with pytest.raises(ValueError, match="only weights"):
        configuration_of(KubeProfile(ignores_existing=True))


@pytest.fixture(autouse=True)
def few_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock_search, "GENERATIONS", (5, 5))


@pytest.mark.parametrize("gpu", [GPU, ""])
def test_every_point_is_a_profile_that_can_be_written(gpu: str) -> None:
    today, random = KubeProfile(percentage=30), np.random.default_rng(3)
    for simple in (False, True):
        space = ProfileSpace(today if not simple else DEFAULT_PROFILE, gpu, simple=simple)
        points = random.normal(0, 3, (300, space.dimensions))
        profiles = [*space.plain(), *(space.profile(point) for point in points)]
        assert len(set(profiles)) > 200
        for profile in profiles:
            assert profiles_of(configuration_of(profile, "gpu")) == {"gpu": profile}
            assert profile.percentage == space.today.percentage
            assert {name for name, _ in profile.fit.resources} <= {"cpu", "memory", *filter(None, [gpu])}
            if simple:
                assert "eks" in managed_configurations(profile, {})
        kinds = {profile.fit.kind for profile in profiles}
        assert kinds == {LEAST_ALLOCATED, MOST_ALLOCATED} | (set() if simple else {REQUESTED_TO_CAPACITY})


def test_the_origin_is_no_preference_and_points_move_what_they_name() -> None:
    space = ProfileSpace(DEFAULT_PROFILE, GPU, simple=False)
    point = np.zeros(space.dimensions)
    origin = space.profile(point)
    assert origin.fit.shape == ((0, 50), (25, 50), (50, 50), (75, 50), (100, 50))
    assert origin.fit.resources == (("cpu", 10), ("memory", 10), (GPU, 10))
    assert (origin.weights[FIT], origin.weights[BALANCED], origin.balanced) == (1, 1, ("cpu", "memory"))
    point[4], point[7], point[8], point[9] = 1.0, -9.0, -1.0, 0.5
    moved = space.profile(point)
    assert moved.fit.shape[-1] == (100, 100)
    assert moved.fit.resources == (("cpu", 10), ("memory", 10)), "a weight that rounds to 0 is left out"
    assert (moved.weights[FIT], moved.weights[BALANCED], moved.balanced) == (1, 7, ("cpu", "memory", GPU))


def small() -> SchedulerFit:
    workload = random_cluster(7, nodes=(30, 30))
    return search_scheduler(workload, StockSearchOptions(simple=True), today=resolve("kube-default"))


def test_the_search_is_reproducible_and_validated_on_other_draws() -> None:
    first, second = small(), small()
    assert first.profile == second.profile
    assert np.array_equal(first.costs[STOCK_TUNED], second.costs[STOCK_TUNED])
    assert first.costs.keys() == {"kube-default", STOCK_TUNED}
    mean, interval = first.gain(STOCK_TUNED)
    assert first.is_better == (interval.low > 0)
    assert interval.low <= mean <= interval.high
    assert (first.paid[STOCK_TUNED][0] <= first.paid[STOCK_TUNED][1]).all()
    assert np.nansum(first.by_kind(STOCK_TUNED)) == pytest.approx(first.paid[STOCK_TUNED][0].sum() / len(first.savings))


def allocated(run: RunResult) -> float:
    return next(metric.value for metric in run.metrics if metric.name == "gpu_allocation_percent")


def test_stock_tuned_is_searched_for_each_workload_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock_search, "GENERATIONS", (30, 30))
    workload = random_cluster(5, distribution=Distribution.VALIDATION, nodes=(15, 25))
    simulator = Simulator(workload)
    policy = resolve(STOCK_TUNED)
    choice = simulator.member(policy, protocol="inflation")
    assert simulator.member(policy, protocol="inflation") is choice
    assert choice.policy.name == STOCK_TUNED
    assert "NodeResourcesBalancedAllocation of" in choice.evidence
    assert "points more than kube-default (95 % interval" in choice.evidence
    run = simulator.run(STOCK_TUNED, seed=42)
    assert run.policy == STOCK_TUNED
    assert run.choice == choice.evidence
    tuned, default = (
        [allocated(simulator.run(name, seed=seed)) for seed in range(4)] for name in (STOCK_TUNED, "kube-default")
    )
    assert sum(tuned) > sum(default)


def test_a_limit_holds_for_what_is_found() -> None:
    """What any kind of pod loses against today is in the search, the choice and the validation."""
    workload = random_cluster(12, distribution=Distribution.VALIDATION, nodes=(40, 60))
    today = resolve("kube-default")
    free = search_scheduler(workload, StockSearchOptions(), today=today)
    limited = search_scheduler(workload, StockSearchOptions(limit=KindLimit(0.5, today)), today=today)
    losses = [
        kind_losses(each.paid[STOCK_TUNED], each.paid["kube-default"], "inflation").max() for each in (free, limited)
    ]
    assert losses[1] < losses[0]
    assert limited.breaks_limit == (losses[1] > 0.5)
    assert not free.breaks_limit


def test_stock_tuned_decides_nowhere_else() -> None:
    with raises(UsageError, "stock-tuned", "fit scheduler"):
        _ = resolve(STOCK_TUNED).selection


def test_what_runs_today_must_be_a_configuration() -> None:
    with pytest.raises(UsageError, match="--baseline fgd is no configuration of kube-scheduler"):
        search_scheduler(random_cluster(7, nodes=(5, 5)), StockSearchOptions(), today=resolve("fgd"))


def test_command_writes_only_what_is_better(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cluster"
    assert main(["workload", "random", "--nodes", "60-80", "--seed", "901", "--output", str(folder)]) == 0
    nodes, pods = folder / "nodes.yaml", folder / "pods.yaml"
    output = tmp_path / "scheduler.yaml"
    command = ["fit", "scheduler", "--nodes", str(nodes), "--pods", str(pods), "--output", str(output)]
    capsys.readouterr()
    assert main([*command, "--simple", "--format", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert gpu_name(load_workload(nodes, pods)) == "alibabacloud.com/gpu-count"
    assert [each["policy"] for each in record["policies"]] == ["kube-default", STOCK_TUNED, "steersman"]
    assert record["is_better"] == output.exists() == (record["policies"][1]["gain"]["low"] > 0)
    if output.exists():
        tuned = resolve(str(output)).selection.kube
        assert tuned == profiles_of(record["configuration"])["default-scheduler"]
        assert resolve(str(output.with_suffix(".eks.json"))).selection.kube == tuned
        assert resolve(str(output.with_suffix(".aks.yaml"))).selection.kube == tuned
    assert main([*command[:-1], str(nodes)]) == 2
    assert "exists and is not a configuration of kube-scheduler; name another file" in capsys.readouterr().err
    assert main([*command[:-1], "x.safetensors"]) == 2
    assert "expected a name that ends with .yaml or .yml" in capsys.readouterr().err
