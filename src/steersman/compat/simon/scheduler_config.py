"""KubeSchedulerConfiguration to a policy: the enabled score plugins, their weights, and the policies they map to.

Two kinds of files are read: simon's (`plugins.score.enabled` of one of its plugins, kube's own disabled by name) and
one for a current kube-scheduler (`multiPoint`, defaults that need not be named). A setting that would change scores
and is not what our policies implement is an error, never a guess.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.cluster.objects.fields import (
    FieldError,
    Object,
    choice,
    integer,
    items,
    join,
    mapping,
    required_text,
    text,
)
from steersman.core.errors import InputError, UsageError
from steersman.policies.kube_scheduler.arguments import API_VERSION
from steersman.policies.kube_scheduler.configuration import KIND, is_configuration, profiles_of
from steersman.policies.kube_scheduler.plugins import IN_TREE_PLUGINS
from steersman.policies.kube_scheduler.policy import KUBE_DEFAULT
from steersman.policies.kube_scheduler.profile import DEFAULT_PROFILE
from steersman.workloads.experiments import ExperimentScheduler
from steersman.workloads.formats.yaml_documents import Document, read_documents

GROUP = "kubescheduler.config.k8s.io"
MAX_WEIGHT = 1_000_000

POLICY_OF_PLUGIN = {
    "RandomScore": "random",
    "DotProductScore": "dot-product",
    "GpuClusteringScore": "gpu-clustering",
    "GpuPackingScore": "gpu-packing",
    "BestFitScore": "best-fit",
    "FGDScore": "fgd",
    "NodeResourcesLeastAllocated": "least-allocated",
    "NodeResourcesMostAllocated": "most-allocated",
    "NodeResourcesBalancedAllocation": "balanced-allocation",
}
STRATEGIES = {"LeastAllocated": "least-allocated", "MostAllocated": "most-allocated"}
HTTP_PLUGIN = "RLSchedulerScore"
LEARNED = (HTTP_PLUGIN, "RLScore", "Steersman")
"""Plugins that ask a policy of the user's; `HTTP_PLUGIN` asks a server where no policy is named."""
ENDPOINT_KEY, DEFAULT_ENDPOINT = "RL_SCHEDULER_ENDPOINT", "http://localhost:5000/score"
"""Environment variable with that server's URL, and where it is without."""

# Score plugins that a kube-scheduler has on unless they are disabled, with their weights.
_DEFAULTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
_DEFAULTS_V1BETA1 = {
    "TaintToleration": 1,
    "NodeAffinity": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 1,
    "NodeResourcesLeastAllocated": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "NodePreferAvoidPods": 10000,
}
# Only part of kube-default: they have no policy of their own.
_PART_OF_DEFAULT = ("TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity", "ImageLocality")
# Plugins that do not score, or give every node the same score.
_SILENT = frozenset(
    {
        "Open-Gpu-Share",
        "DefaultBinder",
        "PrioritySort",
        "DefaultPreemption",
        "NodeName",
        "NodePorts",
        "NodeUnschedulable",
        "SchedulingGates",
        "VolumeBinding",
        "VolumeRestrictions",
        "VolumeZone",
        "NodeVolumeLimits",
        "EBSLimits",
        "GCEPDLimits",
        "AzureDiskLimits",
        "DynamicResources",
        "NodePreferAvoidPods",
        "Simon",
        "QueueSort",
    }
)
_GPU_SHARE = "Open-Gpu-Share"
_SELECTIONS = ("best", "worst", "random")
_DIMENSIONS = ("merge", "share", "divide", "extend")
_NORMS = ("node", "pod", "max")
# The variants of the published experiments; only they are implemented.
_DIMENSION_OF = {"DotProductScore": "merge", "FGDScore": "share"}
_NORM_OF = {"DotProductScore": "max"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig(ExperimentScheduler):
    """What a scheduler configuration decides."""

    # (policy, weight) of every enabled score plugin; the policy is "" for a plugin that asks the user's
    scores: tuple[tuple[str, int], ...]
    learned: str  # name of the plugin that asks the user's policy, "" if there is none
    scheduler_name: str  # name of the profile; pods with this `schedulerName` are its pods
    percentage_of_nodes_to_score: int | None  # None if the file leaves it to the scheduler

    def policy(self, own: str | None = None) -> str:
        """Return the policy as `--policy` takes it: a name, or a weighted sum such as `fgd=1000,gpu-packing=500`.

        Args:
            own: the user's policy, for a plugin that asks one; RLSchedulerScore has its server's URL without one.
        """
        if self.learned == HTTP_PLUGIN and not own:
            own = os.environ.get(ENDPOINT_KEY) or DEFAULT_ENDPOINT
            if "://" not in own:
                raise UsageError(f"{ENDPOINT_KEY} is {own!r}; expected a URL such as {DEFAULT_ENDPOINT}")
        if self.learned and own and "://" in own and len(self.scores) > 1:
            others = ", ".join(name for name, _ in self.scores if name)
            raise UsageError(
                f"{self.file}: {self.learned} asks {own}, whose scores cannot be added to those of {others}; disable "
                "the other plugins, or name a policy with --policy"
            )
        if self.learned and not own:
            raise UsageError(f"{self.file}: {self.learned} asks a policy of your own; name it with --policy")
        if own and not self.learned:
            raise UsageError(f"{self.file} chooses the policy {self.policy()} already; leave out --policy")
        scores = [(name or str(own), weight) for name, weight in self.scores]
        if len(scores) == 1:
            return scores[0][0]
        return ",".join(f"{name}={weight}" for name, weight in scores)


def read_scheduler_config(path: str | Path, scheduler_name: str | None = None) -> SchedulerConfig:
    """Read a KubeSchedulerConfiguration.

    Args:
        path: a YAML or JSON file with one such document.
        scheduler_name: the profile to read; None: the first.
    """
    path = Path(path)
    document = _document(path)
    try:
        return _decode(document, scheduler_name)
    except FieldError as error:
        raise document.error(error.field, error.problem) from None


def _document(path: Path) -> Document:
    for document in read_documents(path):
        content = document.content
        if isinstance(content, dict) and content.get("kind") == KIND:
            if str(content.get("apiVersion", "")).partition("/")[0] != GROUP:
                raise document.error("apiVersion", f"{content.get('apiVersion')!r} is unknown; expected {GROUP}/v1")
            return document
    raise InputError(path, "", "kind", f"holds no {KIND}")


def _decode(document: Document, scheduler_name: str | None) -> SchedulerConfig:
    content = document.content
    profile, path, warnings = _profile(content, scheduler_name)
    if _is_stock(document, profile, path):
        return _stock(document, profile, path, warnings)
    weights = _weights(content, profile, path)
    args = dict(_plugin_args(profile, path))
    strategy = _strategy(args)
    scores, learned, ignored = _scores(weights, strategy, content)
    _check_gpu_methods(args, weights)
    percentage = content.get("percentageOfNodesToScore")
    return SchedulerConfig(
        file=document.file,
        scores=scores,
        learned=learned,
        scheduler_name=text(profile, "schedulerName", path) or DEFAULT_SCHEDULER,
        percentage_of_nodes_to_score=(
            None if percentage is None else integer(content, "percentageOfNodesToScore", "", 0, 100, 0)
        ),
        warnings=tuple(f"{document.file}: {line}" for line in (*warnings, *ignored)),
    )


def _is_stock(document: Document, profile: Object, path: str) -> bool:
    """Return whether a profile of a current kube-scheduler enables none but its own plugins."""
    plugins, where = mapping(profile, "plugins", path), join(path, "plugins")
    names = {
        required_text(entry, "name", entry_path)
        for point in plugins
        for entry, entry_path in items(mapping(plugins, point, where), "enabled", join(where, point))
    }
    current = document.content.get("apiVersion") == API_VERSION and is_configuration(document.file)
    return current and names <= IN_TREE_PLUGINS


def _stock(document: Document, profile: Object, path: str, warnings: tuple[str, ...]) -> SchedulerConfig:
    """Return the profile as a policy of its file. Raises FieldError: it cannot be computed."""
    name = text(profile, "schedulerName", path) or DEFAULT_SCHEDULER
    count = len(list(items(document.content, "profiles", "")))
    profiles = profiles_of({**document.content, "profiles": [profile]})
    policy = f"{document.file}:{name}" if count > 1 else document.file
    return SchedulerConfig(
        file=document.file,
        scores=((KUBE_DEFAULT if profiles[name] == DEFAULT_PROFILE else policy, 1),),
        learned="",
        scheduler_name=name,
        percentage_of_nodes_to_score=profiles[name].percentage or None,
        warnings=tuple(f"{document.file}: {line}" for line in warnings),
    )


def _profile(content: Object, scheduler_name: str | None) -> tuple[Object, str, tuple[str, ...]]:
    """Return the chosen profile, its path, and a warning if there are more."""
    profiles = list(items(content, "profiles", ""))
    names = [text(profile, "schedulerName", path) or "default-scheduler" for profile, path in profiles]
    if scheduler_name is not None:
        if scheduler_name not in names:
            raise FieldError("profiles", f"has no profile {scheduler_name!r}; there are {', '.join(names) or 'none'}")
        return *profiles[names.index(scheduler_name)], ()
    if not profiles:
        return {}, "profiles[0]", ()
    others = f"only the first profile counts, {names[0]}; there are also {', '.join(names[1:])}"
    return *profiles[0], ((others,) if len(names) > 1 else ())


def _weights(content: Object, profile: Object, path: str) -> dict[str, int]:
    """Return the enabled score plugins with their weights: defaults, then multiPoint, then score."""
    old = str(content.get("apiVersion", "")).endswith("/v1beta1")
    weights = dict(_DEFAULTS_V1BETA1 if old else _DEFAULTS)
    plugins, where = mapping(profile, "plugins", path), join(path, "plugins")
    for point in ("multiPoint", "score"):
        plugin_set, at = mapping(plugins, point, where), join(where, point)
        for entry, entry_path in items(plugin_set, "disabled", at):
            name = required_text(entry, "name", entry_path)
            if name == "*":
                weights.clear()
            weights.pop(name, None)
        for entry, entry_path in items(plugin_set, "enabled", at):
            name = required_text(entry, "name", entry_path)
            weight = integer(entry, "weight", entry_path, 0, MAX_WEIGHT, 0)
            if name in _SILENT and not (point == "score" and name == "Simon"):
                continue
            if name not in (*POLICY_OF_PLUGIN, *LEARNED, *_DEFAULTS):
                known = ", ".join(sorted((*POLICY_OF_PLUGIN, *LEARNED, *_DEFAULTS)))
                raise FieldError(
                    join(entry_path, "name"), f"{name!r} has no policy that stands for it; these have: {known}"
                )
            weights[name] = weight or weights.get(name, 1)
    return {name: weight for name, weight in weights.items() if name not in _SILENT}


def _scores(
    weights: Mapping[str, int], strategy: str, content: Object
) -> tuple[tuple[tuple[str, int], ...], str, list[str]]:
    """Return (policy, weight) of the plugins, the plugin that asks the user's policy, and what has no effect."""
    chosen = [name for name in weights if name not in (*_DEFAULTS, *_DEFAULTS_V1BETA1)]
    old = str(content.get("apiVersion", "")).endswith("/v1beta1")
    default = {name: w for name, w in (_DEFAULTS_V1BETA1 if old else _DEFAULTS).items() if name not in _SILENT}
    if weights == default:
        if strategy != "LeastAllocated":
            problem = f"{strategy} beside kube's other score plugins is not implemented; disable those to have it alone"
            raise FieldError("profiles", problem)
        note = ["kube-default has the weights of kube-scheduler 1.37, which differ from v1beta1's"] if old else []
        return (("kube-default", 1),), "", note
    if not chosen and set(weights) & set(_PART_OF_DEFAULT):
        names = ", ".join(name for name in weights if name in _PART_OF_DEFAULT)
        problem = (
            f"{names} count only as part of all defaults with their weights (kube-default); disable them or keep all"
        )
        raise FieldError("profiles", problem)
    learned = [name for name in weights if name in LEARNED]
    if len(learned) > 1:
        raise FieldError("profiles", f"enables {' and '.join(learned)}; only one policy of your own can be asked")
    scores = []
    for name, weight in weights.items():
        if name in LEARNED:
            scores.append(("", weight))
        elif name not in _PART_OF_DEFAULT:
            scores.append((STRATEGIES[strategy] if name == "NodeResourcesFit" else POLICY_OF_PLUGIN[name], weight))
    if not scores:
        raise FieldError("profiles", f"enables no score plugin; one of {', '.join(POLICY_OF_PLUGIN)} is needed")
    # The chosen plugins first, as the user wrote them, then kube's that were left on.
    scores.sort(key=lambda score: score[0] in ("least-allocated", "most-allocated", "balanced-allocation"))
    ignored = [f"{name} is left on and has no effect here; disable it" for name in weights if name in _PART_OF_DEFAULT]
    return tuple(scores), learned[0] if learned else "", ignored


def _plugin_args(profile: Object, path: str) -> Iterator[tuple[str, tuple[Object, str]]]:
    for entry, where in items(profile, "pluginConfig", path):
        yield required_text(entry, "name", where), (mapping(entry, "args", where), join(where, "args"))


def _strategy(args: Mapping[str, tuple[Object, str]]) -> str:
    """Return NodeResourcesFit's scoring strategy, over CPU and memory with equal weights."""
    fit, path = args.get("NodeResourcesFit", ({}, ""))
    strategy, where = mapping(fit, "scoringStrategy", path), join(path, "scoringStrategy")
    name = choice(strategy, "type", where, (*STRATEGIES, "RequestedToCapacityRatio"), "LeastAllocated")
    if name not in STRATEGIES:
        raise FieldError(join(where, "type"), f"{name} is not implemented; {' and '.join(STRATEGIES)} are")
    resources = {}
    for entry, at in items(strategy, "resources", where):
        resources[required_text(entry, "name", at)] = integer(entry, "weight", at, 1, 100, 1)
    if resources and resources not in ({"cpu": 1, "memory": 1}, {"cpu": 100, "memory": 100}):
        raise FieldError(join(where, "resources"), "only cpu and memory with equal weights are implemented")
    return name


def _check_gpu_methods(args: Mapping[str, tuple[Object, str]], weights: Mapping[str, int]) -> None:
    """Check simon's GPU settings against what the policies do: each chooses devices in its own way."""
    for plugin, (settings, path) in args.items():
        if plugin != _GPU_SHARE and plugin not in POLICY_OF_PLUGIN and plugin not in LEARNED:
            continue
        affected = [plugin] if plugin != _GPU_SHARE else list(weights)
        _check_variant(settings, path, "dimExtMethod", _DIMENSIONS, _DIMENSION_OF, affected)
        _check_variant(settings, path, "normMethod", _NORMS, _NORM_OF, affected)
    settings, path = args.get(_GPU_SHARE, ({}, ""))
    stated = text(settings, "gpuSelMethod", path)
    if not stated or not weights:
        return
    deciding = max(weights, key=lambda name: weights[name])
    methods = _selection(deciding)
    if stated not in methods:
        known = (*_SELECTIONS, *POLICY_OF_PLUGIN, *LEARNED)
        what = f"is not how {deciding} chooses GPUs here" if stated in known else "is unknown"
        raise FieldError(join(path, "gpuSelMethod"), f"{stated!r} {what}; expected {' or '.join(methods)}")


def _selection(plugin: str) -> tuple[str, ...]:
    if plugin == "RandomScore":
        return ("random",)
    if plugin == "FGDScore":
        return (plugin,)
    return (plugin, "best") if plugin in LEARNED else ("best",)


def _check_variant(
    settings: Object, path: str, key: str, allowed: tuple[str, ...], right: Mapping[str, str], plugins: list[str]
) -> None:
    stated = choice(settings, key, path, ("", *allowed))
    for plugin in plugins:
        if stated and plugin in right and stated != right[plugin]:
            problem = f"{stated!r} is a variant of {plugin} that is not implemented; {right[plugin]!r} is"
            raise FieldError(join(path, key), problem)
