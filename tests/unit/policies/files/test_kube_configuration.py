"""A kube-scheduler's configuration is a policy: what is read, what is refused, and what decides."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from steersman.cluster.model import Constraints, NodeSelectorTerm, Requests, Requirement
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.policies.kube_scheduler.arguments import API_VERSION
from steersman.policies.kube_scheduler.configuration import KIND
from steersman.policies.kube_scheduler.minors import ADDED, COUNTED, UNCOUNTED, nearest_minor
from steersman.policies.kube_scheduler.profile import (
    DEFAULT_PROFILE,
    MOST_ALLOCATED,
    PLUGINS,
    REQUESTED_TO_CAPACITY,
    DefaultSpread,
    KubeProfile,
)
from steersman.policies.registry import of_minor, resolve

FIT = "NodeResourcesFit"
OF_GROUP = {"type": "LeastAllocated", "resources": [{"name": "a.b/c"}]}
DURING = "requiredDuringSchedulingIgnoredDuringExecution"


def content(*profiles: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, "profiles": list(profiles), **more}


def written(folder: Path, value: object, name: str = "scheduler.yaml") -> str:
    file = folder / name
    file.write_text(yaml.safe_dump(value))
    return str(file)


def profile(folder: Path, **fields: Any) -> KubeProfile:
    return resolve(written(folder, content(fields))).selection.kube


def args(plugin: str, **values: Any) -> dict[str, Any]:
    return {"pluginConfig": [{"name": plugin, "args": values}]}


def strategy(kind: str, **more: Any) -> dict[str, Any]:
    return args(FIT, scoringStrategy={"type": kind, **more})


def aks(raw: str) -> dict[str, Any]:
    return {"apiVersion": "aks.azure.com/v1alpha1", "kind": "SchedulerConfiguration", "spec": {"rawConfig": raw}}


def weights(given: KubeProfile) -> dict[str, int]:
    return {name: weight for name, weight in zip(PLUGINS, given.weights, strict=True) if weight}


def enabled(*names: str, weight: int = 0) -> dict[str, Any]:
    return {"enabled": [{"name": name, "weight": weight} for name in names]}


def disabled(*names: str) -> dict[str, Any]:
    return {"disabled": [{"name": name} for name in names]}


def test_a_configuration_without_settings_is_kube_default(tmp_path: Path) -> None:
    assert profile(tmp_path) == DEFAULT_PROFILE
    assert resolve(written(tmp_path, {"apiVersion": API_VERSION, "kind": KIND})).selection.kube == DEFAULT_PROFILE
    assert resolve("kube-default").selection.kube == DEFAULT_PROFILE
    assert resolve(written(tmp_path, content())).name == "scheduler"


def test_scoring_strategy(tmp_path: Path) -> None:
    resources = [{"name": "cpu"}, {"name": "nvidia.com/gpu", "weight": 5}]
    most = profile(tmp_path, **strategy("MostAllocated", resources=resources)).fit
    assert (most.kind, most.resources) == (MOST_ALLOCATED, (("cpu", 1), ("nvidia.com/gpu", 5)))
    assert profile(tmp_path, **strategy("MostAllocated")).fit.resources == (("cpu", 1), ("memory", 1))
    shape = [{"utilization": 0, "score": 10}, {"utilization": 70, "score": 1}]
    ratio = profile(tmp_path, **strategy("RequestedToCapacityRatio", requestedToCapacityRatio={"shape": shape})).fit
    assert (ratio.kind, ratio.shape) == (REQUESTED_TO_CAPACITY, ((0, 100), (70, 10)))


def test_other_arguments(tmp_path: Path) -> None:
    assert profile(tmp_path, percentageOfNodesToScore=30).percentage == 30
    whole = written(tmp_path, content({}, percentageOfNodesToScore=40))
    assert resolve(whole).selection.kube.percentage == 40
    balanced = args("NodeResourcesBalancedAllocation", resources=[{"name": "cpu"}, {"name": "nvidia.com/gpu"}])
    assert profile(tmp_path, **balanced).balanced == ("cpu", "nvidia.com/gpu")
    zone = {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    spread = args("PodTopologySpread", defaultingType="List", defaultConstraints=[zone])
    assert profile(tmp_path, **spread).default_spread == (DefaultSpread(2, "zone", hard=True),)
    assert profile(tmp_path, **args("PodTopologySpread", defaultingType="List")).default_spread == ()
    policies = {"minDomains": 3, "nodeTaintsPolicy": "Honor", "nodeAffinityPolicy": "Ignore", "matchLabelKeys": ["a"]}
    spread = args("PodTopologySpread", defaultingType="List", defaultConstraints=[zone | policies])
    expected = DefaultSpread(2, "zone", hard=True, min_domains=3, honor_node_affinity=False, honor_node_taints=True)
    assert profile(tmp_path, **spread).default_spread == (expected,)
    affinity = args("InterPodAffinity", hardPodAffinityWeight=7, ignorePreferredTermsOfExistingPods=True)
    read = profile(tmp_path, **affinity)
    assert (read.rules.hard_affinity_weight, read.ignores_existing) == (7, True)
    term = {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": term}]}
    added = profile(tmp_path, **args("NodeAffinity", addedAffinity=required | preferred))
    pool = NodeSelectorTerm((Requirement("pool", "Exists", ()),), ())
    assert added.rules.required_nodes == (pool,)
    constraints = added.constraints_of(Constraints())
    assert [(each.weight, each.term) for each in constraints.preferred_nodes] == [(3, pool)]


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        ({"score": enabled(FIT, weight=9)}, {FIT: 9, "TaintToleration": 3}),
        # At the point itself a plugin without a weight has 1, whatever its default is.
        ({"score": enabled("NodeAffinity")}, {"NodeAffinity": 1, "InterPodAffinity": 2}),
        ({"multiPoint": enabled("NodeAffinity", weight=5)}, {"NodeAffinity": 5}),
        ({"score": disabled("ImageLocality")}, {"ImageLocality": 0, FIT: 1}),
        ({"multiPoint": disabled("ImageLocality"), "score": enabled("ImageLocality", weight=2)}, {"ImageLocality": 2}),
        ({"score": disabled("*") | enabled(FIT, weight=2)}, {FIT: 2, "TaintToleration": 0, "ImageLocality": 0}),
        ({"multiPoint": enabled(FIT, weight=4), "score": enabled(FIT, weight=6)}, {FIT: 6}),
    ],
)
def test_weights(tmp_path: Path, plugins: dict[str, Any], expected: dict[str, int]) -> None:
    found = weights(profile(tmp_path, plugins=plugins))
    assert {name: found.get(name, 0) for name in expected} == expected


def test_filters_are_disabled_where_they_filter(tmp_path: Path) -> None:
    assert not profile(tmp_path, plugins={"score": disabled("TaintToleration")}).changes_pods
    off = profile(tmp_path, plugins={"filter": disabled("TaintToleration")})
    assert off.rules.disabled_filters == {"TaintToleration"}
    assert weights(off)["TaintToleration"] == 3
    both = profile(tmp_path, plugins={"multiPoint": disabled("TaintToleration")})
    assert both.rules.disabled_filters == {"TaintToleration"}
    assert "TaintToleration" not in weights(both)


def test_profiles_by_name(tmp_path: Path) -> None:
    file = written(tmp_path, content({"schedulerName": "a"}, {"schedulerName": "b", **strategy("MostAllocated")}))
    assert resolve(f"{file}:b").selection.kube.fit.kind == MOST_ALLOCATED
    assert resolve(f"{file}:b").name == "scheduler:b"
    assert resolve(f"{file}:b+shortest").order.name == "shortest"
    with pytest.raises(UsageError, match=f"has the profiles a, b; choose one: {file}:a"):
        resolve(file)
    with pytest.raises(UsageError, match="has no profile 'c'; there are: a, b"):
        resolve(f"{file}:c")


def test_objects_of_managed_kubernetes(tmp_path: Path) -> None:
    scoring = {"type": "MostAllocated", "resources": [{"name": "nvidia.com/gpu", "weight": 3}]}
    eks = {"nodeResourcesFit": {"scoringStrategy": scoring}}
    for wrapped in (eks, {"kubeSchedulerConfig": eks}, {"cluster": {"name": "c", "kubeSchedulerConfig": eks}}):
        file = tmp_path / "eks.json"
        file.write_text(json.dumps(wrapped))
        read = resolve(str(file)).selection.kube
        assert (read.fit.kind, read.fit.resources) == (MOST_ALLOCATED, (("nvidia.com/gpu", 3),))
        assert read.weights == DEFAULT_PROFILE.weights
    raw = yaml.safe_dump(content({"schedulerName": "gpu", **strategy("MostAllocated")}))
    assert resolve(written(tmp_path, aks(raw), "aks.yaml")).selection.kube.fit.kind == MOST_ALLOCATED


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"kind": "Pod"}, "kind: holds no KubeSchedulerConfiguration"),
        (content() | {"apiVersion": "kubescheduler.config.k8s.io/v1beta3"}, "apiVersion: 'kubescheduler"),
        (content(extenders=[{"urlPrefix": "http://x"}]), "extenders: are other programs"),
        (content(bogus=1), "bogus: is an unknown field"),
        (content({"plugins": {"scoring": {}}}), "profiles[0].plugins.scoring: is an unknown field"),
        (content({}, {}), "profiles[0].schedulerName: is missing"),
        (content({"schedulerName": "a"}, {"schedulerName": "a"}), "profiles[1].schedulerName: 'a' is the name"),
        (content({"percentageOfNodesToScore": 101}), "profiles[0].percentageOfNodesToScore: 101 is not"),
        (content({"plugins": {"score": enabled("Coscheduling")}}), "score.enabled[0].name: 'Coscheduling' is no"),
        (content(args("Coscheduling")), "profiles[0].pluginConfig[0].name: 'Coscheduling' is no plugin"),
        (content(args(FIT, scoringStrategy={})), "scoringStrategy.type: is missing"),
        (content(strategy("Most")), "scoringStrategy.type: 'Most' is unknown; expected one of LeastAllocated"),
        (content(strategy("MostAllocated", resources=[{"name": "cpu", "weight": 101}])), "weight: 101 is not"),
        (content(strategy("MostAllocated", requestedToCapacityRatio={})), "requestedToCapacityRatio: has no meaning"),
        (content(strategy("RequestedToCapacityRatio")), "requestedToCapacityRatio.shape: is missing"),
        (content(args(FIT, ignoredResources=["nvidia.com/gpu"])), "ignoredResources[0]: nvidia.com/gpu is a"),
        (content(args(FIT, ignoredResourceGroups=["a.b", "amd.com"])), "ignoredResourceGroups[1]: amd.com is a"),
        (content(args(FIT, ignoredResourceGroups=["a.b/c"])), "ignoredResourceGroups[0]: 'a.b/c' is wrong; expected a"),
        (
            content(args(FIT, ignoredResourceGroups=["a.b"], scoringStrategy=OF_GROUP)),
            "profiles[0].pluginConfig: a.b/c is ignored by NodeResourcesFit, and cannot be scored",
        ),
        (
            content(args("NodeAffinity", addedAffinity={DURING: {"nodeSelectorTerms": [{"matchLabels": {}}]}})),
            "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchLabels: is an",
        ),
        (content({"plugins": {"bind": enabled(FIT)}}), "bind.enabled[0].name: NodeResourcesFit has no bind"),
        (content(args("VolumeBinding", shapes=[])), "profiles[0].pluginConfig[0].args.shapes: is an unknown field"),
        (content({"plugins": {"score": enabled("NodePorts")}}), "score.enabled[0].name: NodePorts has no score"),
        (content({"plugins": {"filter": disabled(FIT)}}), "filter: lacks NodeResourcesFit, which cannot be disabled"),
        (content({"plugins": {"preEnqueue": disabled("SchedulingGates")}}), "SchedulingGates cannot be disabled here"),
        (content({"plugins": {"multiPoint": disabled("*")}}), "lacks PrioritySort; kube-scheduler does not start"),
        (content({"plugins": {"preScore": disabled("InterPodAffinity")}}), "preScore: lacks InterPodAffinity"),
        (content({"plugins": {"score": enabled(FIT, FIT)}}), "score.enabled: has NodeResourcesFit twice"),
        (content(args("NodeResourcesBalancedAllocation", resources=[{"name": "cpu", "weight": 2}])), "must be 1"),
        (
            content(args("PodTopologySpread", defaultConstraints=[{"maxSkew": 1}])),
            "defaultingType: must be List where defaultConstraints are given",
        ),
        ({"nodeResourcesFit": {"scoring": {}}}, "nodeResourcesFit.scoring: is an unknown field"),
        (aks("a: ["), "spec.rawConfig: is not YAML"),
        (
            aks("kind: KubeSchedulerConfiguration\nkind: b"),
            "spec.rawConfig: is not YAML: key 'kind' appears twice in one mapping (document 1, line 1)",
        ),
        ({"nodeResourcesFit": {"scoringStrategy": {}}}, "scoringStrategy.type: is missing"),
        (content() | {"parallelism": 0}, "parallelism: 0 is not a whole number of at least 1"),
        (content() | {"metadata": {"name": "a"}}, "metadata: is an unknown field"),
        (content() | {"leaderElection": {"elect": True}}, "leaderElection.elect: is an unknown field"),
        (content() | {"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds: 0 is not a whole number of at least"),
        (content({"schedulerName": ""}), "profiles[0].schedulerName: is empty"),
        (content(args(FIT, apiVersion="foo/v1")), "args.apiVersion: 'foo/v1' cannot be read; expected"),
        (content({"plugins": {"score": {"enabled": [{"name": FIT, "weight": 2**31}]}}}), "weight: 2147483648 is not"),
    ],
)
def test_what_cannot_be_computed_is_one_line(tmp_path: Path, value: object, problem: str) -> None:
    file = written(tmp_path, value)
    with pytest.raises(SteersmanError) as caught:
        resolve(file)
    assert problem in str(caught.value)
    assert str(caught.value).startswith(file)
    assert "\n" not in str(caught.value)


def test_the_configuration_in_a_config_map_is_read(tmp_path: Path) -> None:
    held = yaml.safe_dump(content(strategy("MostAllocated")))
    data = {"readme": "of people", "scheduler-config.yaml": held}
    file = written(tmp_path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
    alone = tmp_path / "alone.yaml"
    alone.write_text(held)
    assert resolve(file).selection.kube == resolve(str(alone)).selection.kube
    data["scheduler-config.yaml"] = held.replace("MostAllocated", "Most")
    file = written(tmp_path, {"apiVersion": "v1", "kind": "ConfigMap", "data": data})
    with pytest.raises(InputError, match=r"data\[scheduler-config\.yaml\]\.profiles\[0\].*type: 'Most' is unknown"):
        resolve(file)


def test_what_kube_scheduler_takes_is_read(tmp_path: Path) -> None:
    whole = content({"percentageOfNodesToScore": 50.0})
    assert resolve(written(tmp_path, whole)).selection.kube.percentage == 50
    assert resolve(written(tmp_path, content() | {"profiles": [None]})).selection.kube == DEFAULT_PROFILE


@pytest.mark.parametrize(("point", "minor"), [("podGroupPostFilter", "1.36"), ("placementScore", "1.35")])
def test_extension_points_of_later_minors_are_unknown(tmp_path: Path, point: str, minor: str) -> None:
    file = written(tmp_path, content({"plugins": {point: {"disabled": []}}}))
    assert resolve(file).selection.kube == DEFAULT_PROFILE
    with pytest.raises(InputError, match=f"plugins.{point}: is unknown to kube-scheduler {minor}"):
        resolve(f"{file}@{minor}")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.yaml"):
        resolve(str(tmp_path / "absent.yaml"))


MINOR_RULES = {"1.34": (False, UNCOUNTED), "1.35": (False, UNCOUNTED), "1.36": (True, ADDED), "1.37": (True, COUNTED)}


@pytest.mark.parametrize("minor", MINOR_RULES)
def test_a_minor_has_its_own_rules(tmp_path: Path, minor: str) -> None:
    file = written(tmp_path, content(strategy("MostAllocated")))
    for spec, name in ((file, "scheduler"), ("kube-default", "kube-default")):
        policy = resolve(f"{spec}@{minor}")
        rules = policy.selection.kube.minor
        assert policy.name == f"{name}@{minor}"
        assert (rules.balances_change, rules.image_volumes) == MINOR_RULES[minor]
    assert resolve(f"{file}@{minor}").selection.kube.fit.kind == MOST_ALLOCATED
    assert resolve(f"{file}@{minor}+shortest").order.name == "shortest"
    assert resolve(f"stock-tuned@{minor}").today == resolve(f"kube-default@{minor}")
    assert resolve("kube-default@1.37").selection.kube == DEFAULT_PROFILE


def test_a_minor_applies_to_policies_of_kube_scheduler_that_state_none(tmp_path: Path) -> None:
    file = str(tmp_path / "scheduler.yaml")
    given = ("kube-default", "kube-default@1.34", "stock-tuned+shortest", f"{file}:gpu", "fgd", "steersman")
    expected = ["kube-default@1.36", "kube-default@1.34", "stock-tuned@1.36+shortest", f"{file}:gpu@1.36"]
    assert [of_minor(each, "1.36") for each in given] == [*expected, "fgd", "steersman"]
    assert [of_minor(each, None) for each in given] == list(given)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("kube-default@1.30", "Kubernetes '1.30' is not computed; there are 1.34, 1.35, 1.36, 1.37"),
        ("fgd@1.36", "policy fgd@1.36: expected kube-default, stock-tuned or a file of kube-scheduler"),
    ],
)
def test_another_minor_or_policy_is_an_error(spec: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(spec)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("version", "minor"),
    [("v1.36.3", "1.36"), ("v1.35.4-eks-abc", "1.35"), ("v1.36+", "1.36"), ("v1.30.1", "1.34"), ("v1.40.0", "1.37")],
)
def test_the_nearest_minor_of_a_version(version: str, minor: str) -> None:
    assert nearest_minor(version) == minor


def test_what_a_minor_does_not_know_is_an_error(tmp_path: Path) -> None:
    file = written(tmp_path, content({"plugins": {"multiPoint": enabled("GangScheduling")}}))
    assert resolve(f"{file}@1.35").selection.kube.weights == DEFAULT_PROFILE.weights
    with pytest.raises(InputError, match=r"'GangScheduling' is no plugin of kube-scheduler 1\.34"):
        resolve(f"{file}@1.34")
    shape = [{"utilization": 0, "score": 1}]
    file = written(tmp_path, content(args("VolumeBinding", shape=shape)))
    assert resolve(file).selection.kube == replace(DEFAULT_PROFILE, storage_shape=((0, 10),))
    with pytest.raises(InputError, match=r"shape: is unknown to kube-scheduler 1\.36"):
        resolve(f"{file}@1.36")
    file = written(tmp_path, content(strategy("MostAllocated", requestedToCapacityRatio={"shape": shape})))
    assert resolve(f"{file}@1.35").selection.kube.fit.kind == MOST_ALLOCATED
    with pytest.raises(InputError, match="requestedToCapacityRatio: has no meaning"):
        resolve(f"{file}@1.36")


def test_resources_that_are_ignored_are_not_requested(tmp_path: Path) -> None:
    ignored = profile(tmp_path, **args(FIT, ignoredResources=["a.com/x"], ignoredResourceGroups=["b.com"]))
    assert ignored.changes_pods
    names = ("a.com/x", "a.com/y", "b.com/z", "hugepages-2Mi", "b.com.kubernetes.io/q")
    left = ignored.requests_of(Requests(1, 1, extended=tuple((name, 1) for name in names)))
    assert [name for name, _ in left.extended] == ["a.com/y", "hugepages-2Mi", "b.com.kubernetes.io/q"]


def test_a_plugin_that_is_not_listed_does_not_filter(tmp_path: Path) -> None:
    off = profile(tmp_path, plugins={"multiPoint": disabled("NodeDeclaredFeatures")})
    assert off.rules.disabled_filters == {"NodeDeclaredFeatures"}
