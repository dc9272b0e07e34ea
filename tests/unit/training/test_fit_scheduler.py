"""The search for a configuration of kube-scheduler."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from steersman.cli.main import main
from steersman.core.errors import UsageError
from steersman.policies.files.kube_configuration import configuration_of, managed_configurations, profiles_of
from steersman.policies.node_scores.kube_profile import (
    DEFAULT_PROFILE,
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY,
    KubeProfile,
    ScoringStrategy,
)
from steersman.policies.registry import resolve
from steersman.training.search.fit_scheduler import (
    TUNED,
    SchedulerFit,
    SchedulerFitOptions,
    candidates,
    fit_scheduler,
    gpu_name,
)
from steersman.workloads.generators.clusters import random_cluster
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
    aks = managed_configurations(profile)["aks"]
    assert profiles_of(yaml.safe_load(aks["spec"]["rawConfig"])) == {"default-scheduler": profile}


def test_eks_takes_strategies_and_weights_of_resources_alone() -> None:
    most = KubeProfile(fit=ScoringStrategy(MOST_ALLOCATED, ((GPU, 3),)))
    scoring = {"type": "MostAllocated", "resources": [{"name": GPU, "weight": 3}]}
    assert managed_configurations(most)["eks"] == {"nodeResourcesFit": {"scoringStrategy": scoring}}
    assert "eks" not in managed_configurations(replace(most, weights=(3, 2, 1, 2, 2, 9, 1)))
    with pytest.raises(ValueError, match="only weights"):
        configuration_of(KubeProfile(ignores_existing=True))


def test_candidates_begin_with_what_runs_today_and_simple_ones_are_of_eks() -> None:
    today = KubeProfile(percentage=30)
    found = candidates(today, GPU, simple=False)
    assert found[0] == today
    assert len(found) == len(set(found)) > 50
    assert all(each.percentage == 30 for each in found)
    simple = candidates(DEFAULT_PROFILE, GPU, simple=True)
    assert all("eks" in managed_configurations(each) for each in simple)
    assert {each.fit.kind for each in simple} == {LEAST_ALLOCATED, MOST_ALLOCATED}
    assert all(name != GPU for each in candidates(today, "", simple=False) for name, _ in each.fit.resources)


def small() -> SchedulerFit:
    workload = random_cluster(7, nodes=(30, 30))
    return fit_scheduler(workload, SchedulerFitOptions(simple=True), today=resolve("kube-default"))


def test_the_search_is_reproducible_and_validated_on_other_draws() -> None:
    first, second = small(), small()
    assert first.profile == second.profile
    assert np.array_equal(first.costs[TUNED], second.costs[TUNED])
    assert first.costs.keys() == {"kube-default", TUNED}
    mean, interval = first.gain(TUNED)
    assert first.is_better == (interval.low > 0)
    assert interval.low <= mean <= interval.high
    assert (first.failed[TUNED] <= first.arrived).all()


def test_what_runs_today_must_be_a_configuration() -> None:
    with pytest.raises(UsageError, match="--baseline fgd is no configuration of kube-scheduler"):
        fit_scheduler(random_cluster(7, nodes=(5, 5)), SchedulerFitOptions(), today=resolve("fgd"))


def test_command_writes_only_what_is_better(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cluster"
    assert main(["workload", "random", "--nodes", "60-80", "--seed", "901", "--output", str(folder)]) == 0
    nodes, pods = folder / "nodes.yaml", folder / "pods.yaml"
    output = tmp_path / "scheduler.yaml"
    command = ["policy", "fit-scheduler", "--nodes", str(nodes), "--pods", str(pods), "--output", str(output)]
    capsys.readouterr()
    assert main([*command, "--simple", "--format", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert gpu_name(load_workload(nodes, pods)) == "alibabacloud.com/gpu-count"
    assert [each["policy"] for each in record["policies"]] == ["kube-default", TUNED, "steersman"]
    assert record["is_better"] == output.exists() == (record["policies"][1]["gain"]["low"] > 0)
    if output.exists():
        tuned = resolve(str(output)).selection.kube
        assert tuned == profiles_of(record["configuration"])["default-scheduler"]
        assert resolve(str(output.with_suffix(".eks.json"))).selection.kube == tuned
        assert resolve(str(output.with_suffix(".aks.yaml"))).selection.kube == tuned
    assert main([*command[:-1], str(nodes)]) == 2
    assert "exists and is not a KubeSchedulerConfiguration; name another file" in capsys.readouterr().err
    assert main([*command[:-1], "x.safetensors"]) == 2
    assert "expected a name that ends with .yaml or .yml" in capsys.readouterr().err
