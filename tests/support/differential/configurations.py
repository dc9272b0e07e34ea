"""Configurations of kube-scheduler: named ones of each kind, and random ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from tests.support.differential.draws import Draws
from tests.support.differential.nodes import BATCH, FPGA, GPU, HOSTNAME, HUGE, RACK, ZONE, Object
from tests.support.kubernetes import is_since

from steersman.policies.kube_scheduler.plugins import POINTS

CONFIGURATION: Object = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
RESOURCES = ("cpu", "memory", "ephemeral-storage", GPU, FPGA, HUGE, BATCH, "example.com/absent", "pods")
SCORING = (
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
)
DISABLED = (*SCORING, "NodeName", "NodeUnschedulable", "NodePorts", "VolumeRestrictions")
NEEDED = ("NodeResourcesFit",)
"""A plugin whose filter cannot be disabled; its score can."""
LISTED = (
    "SchedulingGates",
    "PrioritySort",
    "TaintToleration",
    "NodeResourcesFit",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "DynamicResources",
    "NodeDeclaredFeatures",
    "DefaultBinder",
)
IGNORED: tuple[Object, ...] = ({"ignoredResources": [FPGA]}, {"ignoredResourceGroups": ["a.b", "example.com"]})
KEYS = (ZONE, HOSTNAME, RACK, "example.com/absent")


def configuration(*args: Object, plugins: Object | None = None, **more: object) -> Object:
    """Return a configuration with these arguments of plugins."""
    profile: Object = {"pluginConfig": list(args)}
    if plugins is not None:
        profile["plugins"] = plugins
    return {**CONFIGURATION, "profiles": [profile], **more}


def arguments(plugin: str, **args: object) -> Object:
    """Return an entry of `pluginConfig`."""
    return {"name": plugin, "args": args}


def strategy(kind: str, shape: list[tuple[int, int]] | None = None, **resources: int) -> Object:
    """Return arguments of NodeResourcesFit; `_` of a resource's name stands for `/`, `__` for a dot."""
    specs = [
        {"name": name.replace("__", ".").replace("_", "/"), "weight": weight} for name, weight in resources.items()
    ]
    scoring: Object = {"type": kind, "resources": specs}
    if shape is not None:
        points = [{"utilization": utilization, "score": score} for utilization, score in shape]
        scoring["requestedToCapacityRatio"] = {"shape": points}
    return arguments("NodeResourcesFit", scoringStrategy=scoring)


def _weights(**weights: int) -> Object:
    return {"score": {"enabled": [{"name": name, "weight": weight} for name, weight in weights.items()]}}


def _without(point: str, *names: str) -> Object:
    return {point: {"disabled": [{"name": name} for name in names]}}


_HARD = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
_SOFT = {"maxSkew": 2, "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway"}
_IN_ZONE = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z0", "z1"]}]}
_IN_RACK = {"matchExpressions": [{"key": RACK, "operator": "Exists"}]}
_ADDED = {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_IN_ZONE]},
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": _IN_RACK}],
}
NAMED: dict[str, Object] = {
    "default": configuration(),
    "most": configuration(strategy("MostAllocated", cpu=1, nvidia__com_gpu=5)),
    "least-gpu": configuration(strategy("LeastAllocated", cpu=1, memory=3, nvidia__com_gpu=10, example__com_fpga=2)),
    "ratio": configuration(
        strategy("RequestedToCapacityRatio", [(0, 10), (40, 2), (100, 7)], cpu=3, nvidia__com_gpu=2)
    ),
    "weights": configuration(
        plugins=_weights(NodeResourcesFit=9, ImageLocality=40, NodeAffinity=0, NodeResourcesBalancedAllocation=3)
    ),
    "scores-disabled": configuration(
        strategy("MostAllocated", cpu=1, memory=1),
        plugins=_without("score", "NodeResourcesBalancedAllocation", "ImageLocality", "PodTopologySpread"),
    ),
    "filters-disabled": configuration(
        plugins=_without("multiPoint", "TaintToleration", "PodTopologySpread", "NodeUnschedulable")
    ),
    "affinity-disabled": configuration(plugins=_without("filter", "InterPodAffinity", "NodeAffinity", "NodePorts")),
    "spread": configuration(arguments("PodTopologySpread", defaultingType="List", defaultConstraints=[_HARD, _SOFT])),
    "spread-policies": configuration(
        arguments(
            "PodTopologySpread",
            defaultingType="List",
            defaultConstraints=[
                {**_HARD, "minDomains": 2, "nodeTaintsPolicy": "Honor"},
                {**_SOFT, "nodeAffinityPolicy": "Ignore", "matchLabelKeys": ["app"]},
            ],
        )
    ),
    "no-spread": configuration(arguments("PodTopologySpread", defaultingType="List")),
    "affinity": configuration(
        arguments("InterPodAffinity", hardPodAffinityWeight=30, ignorePreferredTermsOfExistingPods=True),
        arguments("NodeAffinity", addedAffinity=_ADDED),
    ),
    "balanced": configuration(
        arguments(
            "NodeResourcesBalancedAllocation",
            resources=[{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}, {"name": GPU, "weight": 1}],
        ),
        strategy("MostAllocated", nvidia__com_gpu=1),
    ),
    "two-profiles": {
        **CONFIGURATION,
        "profiles": [
            {"schedulerName": "other", "pluginConfig": [strategy("LeastAllocated", memory=1)]},
            {"schedulerName": "default-scheduler", "pluginConfig": [strategy("MostAllocated", memory=2, cpu=1)]},
        ],
    },
    "ignored": configuration(
        arguments("NodeResourcesFit", ignoredResources=[FPGA], ignoredResourceGroups=["a.b"]),
    ),
    "percentage": configuration(strategy("MostAllocated", cpu=1), percentageOfNodesToScore=40),
    "nothing-scores": configuration(plugins=_without("score", "*")),
    "listed": configuration(
        plugins={
            "multiPoint": {
                "disabled": [{"name": "*"}],
                "enabled": [{"name": name} for name in LISTED],
            }
        }
    ),
}
"""A configuration of each kind."""


def ends_kube_scheduler(configuration: Object, objects: list[Object]) -> bool:
    """Return whether kube-scheduler 1.37.2 panics: it balances an extended resource of a DeviceClass.

    NodeResourcesBalancedAllocation has no cache of device selectors (`resourceAllocationScorer.celCache`), which
    NodeResourcesFit alone creates.
    """
    classes = {each["spec"].get("extendedResourceName") for each in objects if each["kind"] == "DeviceClass"}
    profiles = configuration["profiles"]
    every = [entry for profile in profiles for entry in profile["pluginConfig"]]
    balanced = [entry["args"] for entry in every if entry["name"] == "NodeResourcesBalancedAllocation"]
    return any(each["name"] in classes for args in balanced for each in args["resources"])


@st.composite
def configurations(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Object:
    """Draw a configuration."""
    return configuration_of(Draws(draw))


def configuration_of(draws: Draws) -> Object:
    """Return a configuration of these choices, valid for kube-scheduler."""
    args: list[Object] = []
    if draws.chance(80):
        args.append(_fit(draws))
    if draws.chance(30):
        names = _some(draws, RESOURCES, 1)
        args.append(arguments("NodeResourcesBalancedAllocation", resources=[{"name": each} for each in names]))
    if draws.chance(30):
        constraints = [_default_constraint(draws, key) for key in _some(draws, KEYS, 0)]
        args.append(arguments("PodTopologySpread", defaultingType="List", defaultConstraints=constraints))
    if draws.chance(30):
        ignore = draws.chance(50)
        weight = draws.number(0, 100)
        args.append(
            arguments("InterPodAffinity", hardPodAffinityWeight=weight, ignorePreferredTermsOfExistingPods=ignore)
        )
    if draws.chance(20):
        keys = [key for key in _ADDED if draws.chance(60)]
        args.append(arguments("NodeAffinity", addedAffinity={key: _ADDED[key] for key in keys}))
    if draws.chance(25):
        storage: Object = {"bindTimeoutSeconds": draws.number(1, 900)}
        # Older minors score no storage, and refuse a shape.
        if draws.chance(70) and is_since("1.37"):
            low, high = draws.number(0, 49), draws.number(50, 100)
            storage["shape"] = [{"utilization": each, "score": draws.number(0, 10)} for each in (low, high)]
        args.append(arguments("VolumeBinding", **storage))
    if draws.chance(20) and "example.com/" not in str(args):  # what is ignored cannot be scored here
        ignored: Object = draws.choice(
            ({"ignoredResources": [FPGA]}, {"ignoredResourceGroups": ["a.b", "example.com"]})
        )
        args = [each for each in args if each["name"] != "NodeResourcesFit"] + [
            arguments("NodeResourcesFit", **ignored)
        ]
    made = configuration(*args, plugins=_plugins(draws))
    if draws.chance(30):
        where = made if draws.chance(50) else made["profiles"][0]
        where["percentageOfNodesToScore"] = draws.number(0, 100)
    return made


def _default_constraint(draws: Draws, key: str) -> Object:
    when = draws.choice(("DoNotSchedule", "ScheduleAnyway"))
    made: Object = {"maxSkew": draws.number(1, 3), "topologyKey": key, "whenUnsatisfiable": when}
    for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if draws.chance(20):
            made[field] = draws.choice(("Honor", "Ignore"))
    if draws.chance(20):
        made["minDomains"] = draws.number(1, 4)
    if draws.chance(10):
        made["matchLabelKeys"] = ["app"]
    return made


def _plugins(draws: Draws) -> Object:
    if draws.chance(25):
        return _listed_plugins(draws)
    plugins: Object = {}
    if draws.chance(50):
        weights = {name: draws.number(0, 30) for name in _some(draws, SCORING, 1)}
        plugins |= _weights(**weights)
    if draws.chance(30):
        weighted = {each["name"] for each in plugins.get("score", {}).get("enabled", ())}
        names = [name for name in _some(draws, SCORING, 0) if name not in weighted]
        plugins.setdefault("score", {})["disabled"] = [{"name": name} for name in names]
    if draws.chance(30):
        plugins["filter"] = {"disabled": [{"name": name} for name in _some(draws, DISABLED, 0) if name not in NEEDED]}
    weighted = [each["name"] for each in plugins.get("score", {}).get("enabled", ())]
    if "PodTopologySpread" not in weighted and draws.chance(15):  # it would score without being prepared
        plugins |= {"multiPoint": {"disabled": [{"name": "PodTopologySpread"}, {"name": "ImageLocality"}]}}
    return plugins


def _listed_plugins(draws: Draws) -> Object:
    """Return plugins of a profile that takes none, or none that scores, from the defaults."""
    chosen = {*LISTED, *(draws.choice(DISABLED) for _ in range(draws.number(0, 8)))}
    listed: list[Object] = []
    for name in (name for name in POINTS if name in chosen):  # another order has other reasons, and no other decisions
        entry: Object = {"name": name}
        if draws.chance(30):
            entry["weight"] = draws.number(0, 40)
        listed.append(entry)
    every = [{"name": "*"}]
    if draws.chance(60):
        plugins: Object = {"multiPoint": {"disabled": every, "enabled": listed}}
        if draws.chance(30):
            plugins["score"] = {"disabled": every}
        return plugins
    scoring = [each for each in listed if each["name"] in SCORING]
    return {"score": {"disabled": every, "enabled": scoring}, "multiPoint": {"enabled": listed}}


def _fit(draws: Draws) -> Object:
    kind = draws.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"))
    specs = [{"name": name, "weight": draws.number(1, 100)} for name in _some(draws, RESOURCES, 1)]
    scoring: Object = {"type": kind, "resources": specs}
    if kind == "RequestedToCapacityRatio":
        utilizations = sorted({draws.number(0, 100) for _ in range(draws.number(1, 4))})
        points = [{"utilization": each, "score": draws.number(0, 10)} for each in utilizations]
        scoring["requestedToCapacityRatio"] = {"shape": points}
    return arguments("NodeResourcesFit", scoringStrategy=scoring)


def _some(draws: Draws, of: tuple[str, ...], least: int) -> list[str]:
    """Return some of the names, at least so many, each once and in any order."""
    chosen = list(dict.fromkeys(draws.choice(of) for _ in range(draws.number(max(least, 1), 4))))
    return chosen if least or draws.chance(80) else []
