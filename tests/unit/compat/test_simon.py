"""simon's pair of files, and scheduler configurations of a kube-scheduler of today."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.errors import raises
from tests.support.invalid_values import STRANGE, places, replaced

from steersman.compat.simon.config import read_cluster_config, read_pair
from steersman.compat.simon.scheduler_config import SchedulerConfig, read_scheduler_config
from steersman.core.errors import InputError, UsageError
from steersman.policies.kube_scheduler.profile import MOST_ALLOCATED, PLUGINS
from steersman.policies.registry import resolve

EXAMPLE = Path(__file__).parents[2] / "data" / "simon-example"
KUBE_V1BETA1 = [
    "ImageLocality",
    "NodeAffinity",
    "PodTopologySpread",
    "TaintToleration",
    "NodeResourcesBalancedAllocation",
]
KUBE_V1BETA1 += ["InterPodAffinity", "NodeResourcesLeastAllocated", "NodePreferAvoidPods"]


def scheduler(tmp_path: Path, profile: dict[str, Any] | None, version: str = "v1", **more: Any) -> SchedulerConfig:
    content = {"apiVersion": f"kubescheduler.config.k8s.io/{version}", "kind": "KubeSchedulerConfiguration", **more}
    if profile is not None:
        content["profiles"] = [profile]
    file = tmp_path / "scheduler.yaml"
    file.write_text(yaml.safe_dump(content))
    return read_scheduler_config(file)


def b_profile(weights: dict[str, int], args: dict[str, Any] | None = None, **plugin_args: Any) -> dict[str, Any]:
    score = {
        "disabled": [{"name": name} for name in KUBE_V1BETA1],
        "enabled": [{"name": name, "weight": weight} for name, weight in weights.items()],
    }
    config = [{"name": name, "args": found} for name, found in plugin_args.items()]
    config.append({"name": "Open-Gpu-Share", "args": args or {}})
    return {"schedulerName": "simon-scheduler", "plugins": {"score": score}, "pluginConfig": config}


def cluster(tmp_path: Path, spec: dict[str, Any]) -> Path:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        yaml.safe_dump({"apiVersion": "simon/v1alpha1", "kind": "Config", "metadata": {"name": "c"}, "spec": spec})
    )
    return file


def test_example_configuration_pair_runs() -> None:
    config, scheduler_config = read_pair(EXAMPLE / "cluster-config.yaml", EXAMPLE / "scheduler-config.yaml")
    assert scheduler_config is not None
    assert (config.name, config.ratio, config.seed, config.shuffle_pods) == ("simon-example", 0.9, 233, False)
    assert (config.cpu_pods_typical, config.popularity_percent) == (True, 95)
    assert config.warnings == scheduler_config.warnings == ()
    assert scheduler_config.policy() == "fgd"
    assert scheduler_config.scheduler_name == "simon-scheduler"
    assert scheduler_config.percentage_of_nodes_to_score == 100
    workload = config.load()
    assert (len(workload.nodes), len(workload.pods), workload.name) == (6, 13, "cluster")
    assert sum(node.gpu_count for node in workload.nodes) == 24


APP = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec: {template: {spec: {priorityClassName: high, containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}
"""
CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: n}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 7
"""


def test_cluster_of_nodes_with_apps_runs(tmp_path: Path) -> None:
    """Classes of the cluster count for pods of apps; what is left out of either is named."""
    for folder in ("nodes", "apps"):
        (tmp_path / folder).mkdir()
    (tmp_path / "nodes" / "n.yaml").write_text(CLUSTER)
    file = cluster(tmp_path, {"cluster": {"customConfig": "nodes"}, "appList": [{"name": "a", "path": "apps"}]})
    (tmp_path / "apps" / "a.yaml").write_text(APP + "---\n{apiVersion: v1, kind: Pod, metadata: {name: bad}}\n")
    config, without = read_pair(file, None)
    assert without is None
    workload = config.load()
    assert [(pod.name, pod.priority) for pod in workload.pods] == [("agent-0001", 7)]
    assert "Pod bad, spec.containers: is missing or empty" in workload.warnings[0]
    with raises(InputError, "has no pods"):
        read_cluster_config(cluster(tmp_path, {"cluster": {"customConfig": "nodes"}})).load()


def test_learned_plugin_uses_the_given_policy() -> None:
    config = read_scheduler_config(EXAMPLE / "scheduler-config-learned.yaml")
    assert config.policy("mine.safetensors") == "mine.safetensors"
    with raises(UsageError, "--policy"):
        read_scheduler_config(EXAMPLE / "scheduler-config.yaml").policy("mine.safetensors")


def test_server_plugin_uses_the_endpoint_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RL_SCHEDULER_ENDPOINT", raising=False)
    config = read_scheduler_config(EXAMPLE / "scheduler-config-learned.yaml")
    assert config.policy() == "http://localhost:5000/score"
    monkeypatch.setenv("RL_SCHEDULER_ENDPOINT", "")
    assert config.policy() == "http://localhost:5000/score"
    monkeypatch.setenv("RL_SCHEDULER_ENDPOINT", "https://scores.example.com/v2")
    assert config.policy() == "https://scores.example.com/v2"
    assert config.policy("fgd") == "fgd", "what is given counts"
    several = scheduler(
        tmp_path, b_profile({"FGDScore": 1, "RLSchedulerScore": 2}, {"gpuSelMethod": "RLSchedulerScore"}), "v1beta1"
    )
    with raises(UsageError, "fgd", "https://scores.example.com/v2", "RLSchedulerScore"):
        several.policy()
    with raises(UsageError, "fgd", "http://other/score", "RLSchedulerScore"):
        several.policy("http://other/score")
    monkeypatch.setenv("RL_SCHEDULER_ENDPOINT", "localhost")
    with raises(UsageError, "RL_SCHEDULER_ENDPOINT", "localhost"):
        config.policy()
    other = scheduler(tmp_path, b_profile({"RLScore": 1}), "v1beta1")
    with raises(UsageError, "RLScore", "--policy"):
        other.policy()


@pytest.mark.parametrize(
    ("plugin", "policy", "selection"),
    [
        ("RandomScore", "random", "random"),
        ("DotProductScore", "dot-product", "best"),
        ("GpuClusteringScore", "gpu-clustering", "best"),
        ("GpuPackingScore", "gpu-packing", "best"),
        ("BestFitScore", "best-fit", "best"),
        ("FGDScore", "fgd", "FGDScore"),
    ],
)
def test_every_simon_plugin_is_supported(tmp_path: Path, plugin: str, policy: str, selection: str) -> None:
    dimension = "merge" if plugin == "DotProductScore" else "share"
    args = {"gpuSelMethod": selection, "dimExtMethod": dimension, "normMethod": "max"}
    config = scheduler(tmp_path, b_profile({plugin: 1000}, args), "v1beta1")
    assert config.policy() == policy
    assert config.warnings == ()


def test_a_mix_keeps_weights_and_order(tmp_path: Path) -> None:
    weights = {"FGDScore": 1000, "GpuPackingScore": 500, "RLSchedulerScore": 2}
    config = scheduler(tmp_path, b_profile(weights, {"gpuSelMethod": "FGDScore"}), "v1beta1")
    assert config.policy("p") == "fgd=1000,gpu-packing=500,p=2"


@pytest.mark.parametrize(
    ("weights", "args", "plugin_args", "message"),
    [
        (
            {"FGDScore": 1},
            {"gpuSelMethod": "best"},
            {},
            "pluginConfig[1].args.gpuSelMethod: 'best' is not how FGDScore",
        ),
        ({"FGDScore": 1}, {"gpuSelMethod": "nearest"}, {}, "'nearest' is unknown; expected FGDScore"),
        (
            {"BestFitScore": 1},
            {"gpuSelMethod": "worst"},
            {},
            "'worst' is not how BestFitScore chooses GPUs here; expected best",
        ),
        ({"FGDScore": 1}, {"dimExtMethod": "merge"}, {}, "dimExtMethod: 'merge' is a variant of FGDScore"),
        (
            {"DotProductScore": 1},
            {},
            {"DotProductScore": {"dimExtMethod": "share"}},
            "pluginConfig[0].args.dimExtMethod",
        ),
        ({"DotProductScore": 1}, {"normMethod": "pod"}, {}, "'pod' is a variant of DotProductScore"),
        ({"BestFitScore": 1}, {"normMethod": "most"}, {}, "'most' is unknown; expected one of"),
        ({"FGDScore": 1, "MyScore": 1}, {}, {}, "score.enabled[1].name: 'MyScore' has no policy"),
        ({"Simon": 1}, {}, {}, "'Simon' has no policy"),
        ({"RLScore": 1, "RLSchedulerScore": 1}, {}, {}, "only one policy of your own"),
        ({}, {}, {}, "enables no score plugin"),
        ({"FGDScore": -1}, {}, {}, "score.enabled[0].weight: -1"),
    ],
)
def test_settings_that_are_not_honoured_are_errors(
    tmp_path: Path, weights: dict[str, int], args: dict[str, str], plugin_args: dict[str, Any], message: str
) -> None:
    profile = b_profile(weights, args, **(plugin_args or {"X": {}}))
    with pytest.raises(InputError) as caught:
        scheduler(tmp_path, profile, "v1beta1")
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path}/scheduler.yaml, document 1, line 1, ")


def test_current_kube_scheduler_configuration_is_read(tmp_path: Path) -> None:
    def policy(plugins: dict[str, Any] | None = None, **more: Any) -> str:
        profile = {"schedulerName": "default-scheduler", **more} | ({"plugins": plugins} if plugins else {})
        return scheduler(tmp_path, profile).policy()

    def on(name: str, weight: int = 0) -> dict[str, Any]:
        return {"enabled": [{"name": name, "weight": weight}], "disabled": [{"name": "*"}]}

    assert scheduler(tmp_path, None).policy() == "kube-default"
    assert policy() == "kube-default"
    assert policy({"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 1}]}}) == "kube-default"
    assert policy({"multiPoint": {"enabled": [{"name": "VolumeBinding"}]}}) == "kube-default"
    # Any other configuration of kube-scheduler is a policy of its own, which its file names.
    file = str(tmp_path / "scheduler.yaml")
    most = [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}]
    assert policy(pluginConfig=most) == file
    assert resolve(file).selection.kube.fit.kind == MOST_ALLOCATED
    assert policy({"score": on("NodeResourcesFit", 5)}) == file
    assert [*resolve(file).selection.kube.weights] == [5 * (name == "NodeResourcesFit") for name in PLUGINS]
    assert policy({"score": {"disabled": [{"name": "TaintToleration"}]}}) == file
    with raises(InputError, "scoringStrategy.type", "'Most'"):
        policy(pluginConfig=[{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "Most"}}}])


def test_default_plugins_left_enabled_count_or_are_reported(tmp_path: Path) -> None:
    config = scheduler(tmp_path, {"plugins": {"score": {"enabled": [{"name": "FGDScore", "weight": 9}]}}})
    assert config.policy() == "fgd=9,least-allocated=1,balanced-allocation=1"
    assert len(config.warnings) == 5
    assert all("is left on and has no effect here; disable it" in warning for warning in config.warnings)


def test_profiles_are_chosen_by_name(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    profiles = [{"schedulerName": "a"}, {"schedulerName": "b", **{"plugins": b_profile({"FGDScore": 1})["plugins"]}}]
    profiles[1]["plugins"]["score"]["disabled"] = [{"name": "*"}]
    content = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": profiles,
    }
    file.write_text(yaml.safe_dump(content))
    first = read_scheduler_config(file)
    assert (first.scheduler_name, first.policy()) == ("a", "kube-default")
    assert first.warnings == (f"{file}: only the first profile counts, a; there are also b",)
    assert read_scheduler_config(file, "b").policy() == "fgd"
    with raises(InputError, "'c'"):
        read_scheduler_config(file, "c")


def test_folders_are_found_beside_the_file_or_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "nodes").mkdir(parents=True)
    file = cluster(tmp_path / "here", {"cluster": {"customConfig": "nodes"}})
    assert read_cluster_config(file).folder == tmp_path / "here" / "nodes"
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "else").mkdir()
    assert read_cluster_config(cluster(tmp_path / "else", {"cluster": {"customConfig": "nodes"}})).folder == Path(
        "nodes"
    )
    monkeypatch.chdir(tmp_path)
    with raises(InputError, "spec.cluster.customConfig", "'nodes'", "else/nodes"):
        read_cluster_config(tmp_path / "else" / "cluster.yaml")


def test_simon_defaults_apply_and_ineffective_settings_are_reported(tmp_path: Path) -> None:
    custom = {
        "exportConfig": {"podSnapshotYamlFilePrefix": "x"},
        "workloadInflationConfig": {"ratio": 1, "seed": 2},
        "descheduleConfig": {"ratio": 0.1, "policy": "cosSim"},
        "newWorkloadConfig": None,
        "workloadTuningConfig": {"ratio": -1},
    }
    config = read_cluster_config(
        cluster(tmp_path, {"cluster": {"customConfig": "."}, "customConfig": custom, "appList": None})
    )
    assert (config.ratio, config.seed, config.cpu_pods_typical, config.popularity_percent) == (0, 0, False, 60)
    assert [warning.rpartition("customConfig.")[2] for warning in config.warnings] == [
        "exportConfig has no effect here",
        "descheduleConfig has no effect here",
    ]


def test_pods_follow_the_simon_order_unless_shuffled(tmp_path: Path) -> None:
    def pod(name: str, created: str) -> dict[str, Any]:
        notes = {"alibabacloud.com/creation-time": created} if created else {}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": notes},
            "spec": {"containers": [{}]},
        }

    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": 1, "memory": 1}},
    }
    (tmp_path / "w").mkdir()
    pods = [pod("d", ""), pod("c", ""), pod("b", "9"), pod("a", "10")]
    (tmp_path / "w" / "all.yaml").write_text(yaml.safe_dump_all([node, *pods]))
    spec: dict[str, Any] = {"cluster": {"customConfig": "w"}}
    assert [p.name for p in read_cluster_config(cluster(tmp_path, spec)).load().pods] == ["b", "a", "c", "d"]
    spec["customConfig"] = {"shufflePod": True}
    assert [p.name for p in read_cluster_config(cluster(tmp_path, spec)).load().pods] == ["d", "c", "b", "a"]


def test_apps_add_pods(tmp_path: Path) -> None:
    app = tmp_path / "app.yaml"
    app.write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "extra"}, "spec": {"containers": [{}]}})
    )
    spec = {"cluster": {"customConfig": str(EXAMPLE / "cluster")}, "appList": [{"name": "a", "path": "app.yaml"}]}
    workload = read_cluster_config(cluster(tmp_path, spec)).load()
    assert [pod.name for pod in workload.pods[12:]] == ["example-pod-0012", "extra"]
    spec["appList"] = [{"path": "app.yaml"}, {"path": "app.yaml"}]
    with raises(InputError, "spec.appList", "default/extra"):
        read_cluster_config(cluster(tmp_path, spec)).load()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "spec.cluster.customConfig: is missing"),
        ({"cluster": {"kubeConfig": "k"}}, "spec.cluster.kubeConfig: a live cluster is not read here"),
        (
            {"cluster": {"customConfig": "."}, "customConfig": {"workloadTuningConfig": {"ratio": "lots"}}},
            "ratio: 'lots'",
        ),
        (
            {"cluster": {"customConfig": "."}, "customConfig": {"shufflePod": 1}},
            "spec.customConfig.shufflePod: 1 is not true",
        ),
        ({"cluster": {"customConfig": "."}, "appList": [{"path": ".", "chart": True}]}, "spec.appList[0].chart: Helm"),
    ],
)
def test_bad_cluster_configs_are_named(tmp_path: Path, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_cluster_config(cluster(tmp_path, spec))
    assert message in str(caught.value)


def test_swapped_configuration_file_is_reported(tmp_path: Path) -> None:
    with raises(InputError, "scheduler-config.yaml", "simon/v1alpha1"):
        read_cluster_config(EXAMPLE / "scheduler-config.yaml")
    with raises(InputError, "cluster-config.yaml", "KubeSchedulerConfiguration"):
        read_scheduler_config(EXAMPLE / "cluster-config.yaml")
    with raises(InputError):
        read_cluster_config(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("new", STRANGE, ids=repr)
def test_strange_values_anywhere_never_crash(tmp_path: Path, new: object) -> None:
    for name, read in (("cluster", read_cluster_config), ("scheduler", read_scheduler_config)):
        original = yaml.safe_load((EXAMPLE / f"{name}-config.yaml").read_text())
        if name == "cluster":
            original["spec"]["cluster"]["customConfig"] = str(EXAMPLE)
            original["spec"]["appList"] = [{"name": "a", "path": str(EXAMPLE)}]
            original["spec"]["customConfig"] |= {"exportConfig": {"a": "b"}, "descheduleConfig": {"policy": "a"}}
        else:
            score = {"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 1}]}}
            original["profiles"][0]["pluginConfig"].append({"name": "NodeResourcesFit", "args": score})
        for place in places(original)[1:]:
            file = tmp_path / f"{name}.yaml"
            file.write_text(yaml.safe_dump(replaced(original, place, new)))
            refused = None
            try:
                read(file)
            except InputError as error:
                refused = error
            assert refused is None or str(refused).startswith(str(file)), place
