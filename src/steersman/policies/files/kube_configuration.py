"""Read a kube-scheduler's configuration as a policy: KubeSchedulerConfiguration, and what EKS and AKS have for it.

What would change decisions and cannot be computed is an error that names the plugin or the field. Source: Kubernetes
1.37.2, pkg/scheduler/apis/config (defaults and validation) and pkg/scheduler/framework/runtime (extension points).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import yaml

from steersman.cluster.constraints.node import NODE_AFFINITY_FILTER, NODE_AFFINITY_PREFILTER
from steersman.cluster.model import ProfileRules
from steersman.cluster.objects import selectors
from steersman.cluster.objects.api import scheduling as api
from steersman.cluster.objects.api.decoding import converted
from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.cluster.objects.fields import FieldError, indexed, kind_of, mapping, one_of, required, text
from steersman.core.errors import InputError, UsageError
from steersman.policies.kube_scheduler import KubeSchedulerPolicy
from steersman.policies.node_scores.kube_profile import (
    DEFAULT_PROFILE,
    PLUGINS,
    REQUESTED_TO_CAPACITY,
    STRATEGIES,
    DefaultSpread,
    KubeProfile,
    ScoringStrategy,
)
from steersman.workloads.formats.yaml_documents import Document, read_documents

T = TypeVar("T")
Args = TypeVar("Args", bound=api.PluginArgs)

API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"
AKS_KIND = "SchedulerConfiguration"
AKS_GROUP = "aks.azure.com"
EKS_FIELD, EKS_WRAPPER = "nodeResourcesFit", "kubeSchedulerConfig"
SUFFIXES = (".yaml", ".yml", ".json")

FILTER, SCORE = "filter", "score"
_POINTS = {
    "SchedulingGates": (),
    "PrioritySort": (),
    "NodeName": (FILTER,),
    "NodeUnschedulable": (FILTER,),
    "TaintToleration": (FILTER, SCORE),
    "NodeAffinity": (FILTER, SCORE),
    "NodePorts": (FILTER,),
    "NodeResourcesFit": (FILTER, SCORE),
    "VolumeRestrictions": (FILTER,),
    "NodeVolumeLimits": (FILTER,),
    "VolumeBinding": (FILTER,),
    "VolumeZone": (FILTER,),
    "PodTopologySpread": (FILTER, SCORE),
    "InterPodAffinity": (FILTER, SCORE),
    "DynamicResources": (FILTER,),
    "DefaultPreemption": (),
    "NodeResourcesBalancedAllocation": (SCORE,),
    "ImageLocality": (SCORE,),
    "DefaultBinder": (),
    "NodeDeclaredFeatures": (FILTER,),
    "DeferredPodScheduling": (),
    "GangScheduling": (),
    "TopologyPlacementGenerator": (),
    "PodGroupPodsCount": (),
}
"""Plugins of kube-scheduler in the order in which they are on by default: where they filter and score."""
IN_TREE_PLUGINS = frozenset(_POINTS)
_WEIGHTS = dict(zip(PLUGINS, DEFAULT_PROFILE.weights, strict=True))
_ALWAYS_FILTER = {
    "NodeResourcesFit": "a kubelet rejects pods that do not fit",
    **dict.fromkeys(("VolumeBinding", "VolumeZone", "NodeVolumeLimits"), "volumes are always checked here"),
}
"""Filters that cannot be disabled here, and why."""
_PREPARES = {FILTER: "preFilter", SCORE: "preScore"}
_NEED_PREPARATION = {
    FILTER: (
        "NodePorts",
        "NodeResourcesFit",
        "PodTopologySpread",
        "InterPodAffinity",
        "VolumeRestrictions",
        "VolumeBinding",
    ),
    SCORE: ("TaintToleration", "PodTopologySpread", "InterPodAffinity"),
}
"""Plugins that fail at a point where they are off at the one before it."""
_GATED = frozenset(("DynamicResources", "NodeDeclaredFeatures"))
"""Filters that a list of plugins of an earlier minor lacks; without them nothing but claims and features differs."""
_GATES = "SchedulingGates"
_NEEDED = {"queueSort": "PrioritySort", "bind": "DefaultBinder"}
_EVERY = "*"
_SPREAD_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")


def is_configuration(spec: str) -> bool:
    """Return whether a policy is named like a file of a configuration, `FILE` or `FILE:PROFILE`."""
    file, _ = _file_and_profile(spec)
    return file.endswith(SUFFIXES)


def configured_policy(spec: str) -> KubeSchedulerPolicy:
    """Return the policy of a file, `FILE` or `FILE:PROFILE`.

    Raises:
        InputError: the file is no such configuration, or has what cannot be computed.
        UsageError: there is no such profile, or there are several and none is named.
    """
    file, name = _file_and_profile(spec)
    profiles = read_configuration(Path(file))
    if not name and len(profiles) > 1:
        raise UsageError(f"{file} has the profiles {', '.join(profiles)}; choose one: {file}:{next(iter(profiles))}")
    name = name or next(iter(profiles))
    if name not in profiles:
        raise UsageError(f"{file} has no profile {name!r}; there are: {', '.join(profiles)}")
    stem = Path(file).name.removesuffix(Path(file).suffix)
    return KubeSchedulerPolicy(f"{stem}:{name}" if len(profiles) > 1 else stem, profiles[name], name)


def read_configuration(path: Path) -> dict[str, KubeProfile]:
    """Return the profiles of a file of YAML or JSON by `schedulerName`, alone or in an object of EKS or AKS.

    Raises:
        InputError: the file has none, or has what cannot be computed.
    """
    for document in read_documents(path):
        found = _configuration_in(document)
        if found is not None:
            content, prefix = found
            try:
                return profiles_of(content)
            except FieldError as error:
                raise document.error(f"{prefix}{error.field}", error.problem) from None
    raise InputError(path, "", "kind", f"holds no {KIND} ({API_VERSION})")


def profiles_of(content: Mapping[str, Any]) -> dict[str, KubeProfile]:
    """Return the profiles of a parsed KubeSchedulerConfiguration, by `schedulerName`. Raises FieldError."""
    if content.get("apiVersion") != API_VERSION:
        raise FieldError("apiVersion", f"{content.get('apiVersion')!r} cannot be read; expected {API_VERSION}")
    configuration = converted(content, api.SchedulerConfiguration)
    if configuration.extenders:
        raise FieldError("extenders", "are other programs, whose decisions cannot be computed")
    profiles = configuration.profiles or [api.Profile()]
    result: dict[str, KubeProfile] = {}
    for profile, path in indexed(profiles, "profiles"):
        if profile.scheduler_name is None and len(profiles) > 1:
            raise FieldError(f"{path}.schedulerName", "is missing; each of several profiles needs a name")
        name = profile.scheduler_name or DEFAULT_SCHEDULER
        if name in result:
            raise FieldError(f"{path}.schedulerName", f"{name!r} is the name of an earlier profile")
        percentage = profile.percentage_of_nodes_to_score
        if percentage is None:
            percentage = configuration.percentage_of_nodes_to_score
        result[name] = _profile(profile, path, percentage or 0)
    return result


def configuration_of(profile: KubeProfile, scheduler_name: str = DEFAULT_SCHEDULER) -> dict[str, Any]:
    """Return a KubeSchedulerConfiguration with the weights, strategy and resources of a profile.

    Raises:
        ValueError: the profile has further settings.
    """
    known = replace(DEFAULT_PROFILE, weights=profile.weights, fit=profile.fit, balanced=profile.balanced)
    if replace(known, percentage=profile.percentage) != profile:
        raise ValueError("only weights, the scoring strategy and resources can be written")
    weights = {name: weight for name, weight in zip(PLUGINS, profile.weights, strict=True) if weight != _WEIGHTS[name]}
    result: dict[str, Any] = {"schedulerName": scheduler_name}
    if profile.percentage:
        result["percentageOfNodesToScore"] = profile.percentage
    score: dict[str, Any] = {}
    if on := [{"name": name, "weight": weight} for name, weight in weights.items() if weight]:
        score["enabled"] = on
    if off := [{"name": name} for name, weight in weights.items() if not weight]:
        score["disabled"] = off
    if score:
        result["plugins"] = {"score": score}
    args = []
    if profile.fit != DEFAULT_PROFILE.fit:
        args.append({"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy_of(profile.fit)}})
    if profile.balanced != DEFAULT_PROFILE.balanced:
        resources = [{"name": name, "weight": 1} for name in profile.balanced]
        args.append({"name": "NodeResourcesBalancedAllocation", "args": {"resources": resources}})
    if args:
        result["pluginConfig"] = args
    return {"apiVersion": API_VERSION, "kind": KIND, "profiles": [result]}


def strategy_of(fit: ScoringStrategy) -> dict[str, Any]:
    """Return `scoringStrategy` of NodeResourcesFit; EKS takes the same."""
    resources = [{"name": name, "weight": weight} for name, weight in fit.resources]
    strategy: dict[str, Any] = {"type": STRATEGIES[fit.kind], "resources": resources}
    if fit.kind == REQUESTED_TO_CAPACITY:
        shape = [{"utilization": utilization, "score": score // 10} for utilization, score in fit.shape]
        strategy["requestedToCapacityRatio"] = {"shape": shape}
    return strategy


def managed_configurations(profile: KubeProfile) -> dict[str, dict[str, Any]]:
    """Return the objects of AKS, and of EKS where it takes the profile, for a profile; by provider."""
    raw = yaml.safe_dump(configuration_of(profile), sort_keys=False)
    aks = {
        "apiVersion": f"{AKS_GROUP}/v1alpha1",
        "kind": AKS_KIND,
        "metadata": {"name": "upstream"},
        "spec": {"rawConfig": raw},
    }
    result = {"aks": aks}
    if profile == replace(DEFAULT_PROFILE, fit=profile.fit) and profile.fit.kind != REQUESTED_TO_CAPACITY:
        result["eks"] = {EKS_FIELD: {"scoringStrategy": strategy_of(profile.fit)}}
    return result


def _file_and_profile(spec: str) -> tuple[str, str]:
    file, colon, name = spec.rpartition(":")
    return (file, name) if colon and file.endswith(SUFFIXES) else (spec, "")


def _configuration_in(document: Document) -> tuple[Mapping[str, Any], str] | None:
    """Return the configuration of a document, and the path to its fields; None if there is none. Raises InputError."""
    content = document.content
    if not isinstance(content, dict):
        return None
    if content.get("kind") == KIND:
        return content, ""
    try:
        if content.get("kind") == AKS_KIND and str(content.get("apiVersion", "")).startswith(f"{AKS_GROUP}/"):
            return _parsed(text(mapping(content, "spec", ""), "rawConfig", "spec"), "spec.rawConfig"), "spec.rawConfig."
        for wrapper in ("cluster", EKS_WRAPPER):
            content = content[wrapper] if isinstance(content.get(wrapper), dict) else content
        if EKS_FIELD in content:
            fit = converted(content, api.ManagedConfiguration).node_resources_fit
            strategy = content[EKS_FIELD].get("scoringStrategy") if fit is not None else None
            args = {"scoringStrategy": strategy} if strategy else {}
            profile = {"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}
            return {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}, ""
    except FieldError as error:
        raise document.error(error.field, error.problem) from None
    return None


def _parsed(raw: str, path: str) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(raw)
    except yaml.YAMLError as error:
        raise FieldError(path, f"is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise FieldError(path, f"is not a {KIND}, but {kind_of(content)}")
    return content


def _profile(profile: api.Profile, path: str, percentage: int) -> KubeProfile:
    plugins = profile.plugins or api.Plugins()
    weights, filters = _enabled(plugins, f"{path}.plugins")
    arguments = _Arguments(profile.plugin_config, f"{path}.pluginConfig")
    spread = arguments.of("PodTopologySpread", api.SpreadArgs, _default_spread)
    affinity = arguments.of("InterPodAffinity", api.InterPodAffinityArgs, lambda args, _: args)
    added = arguments.of("NodeAffinity", api.NodeAffinityArgs, _added_affinity)
    fit = arguments.of("NodeResourcesFit", api.FitArgs, _fit)
    balanced = arguments.of("NodeResourcesBalancedAllocation", api.BalancedArgs, _balanced)
    arguments.check_others()
    hard_weight = 1 if affinity is None else affinity.hard_pod_affinity_weight
    every = {name for name, points in _POINTS.items() if FILTER in points} | {NODE_AFFINITY_PREFILTER}
    required_nodes, preferred_nodes = added or (None, ())
    return KubeProfile(
        weights=tuple(weights.get(name, 0) for name in PLUGINS),
        percentage=percentage,
        fit=fit or ScoringStrategy(),
        balanced=balanced or ("cpu", "memory"),
        default_spread=spread,
        ignores_existing=bool(affinity is not None and affinity.ignore_preferred_terms_of_existing_pods),
        # A plugin that does not score has no preferences.
        added_preferences=preferred_nodes if weights.get("NodeAffinity") else (),
        rules=ProfileRules(
            frozenset(every - filters - _GATED), required_nodes, 1 if hard_weight is None else hard_weight
        ),
    )


def _enabled(plugins: api.Plugins, path: str) -> tuple[dict[str, int], frozenset[str]]:
    """Return the weights of the plugins that score, and those that filter."""
    multi = plugins.multi_point or api.PluginSet()
    for point, plugin_set in _sets(plugins):
        for entry, where in indexed(plugin_set.enabled, f"{path}.{point}.enabled"):
            if required(entry.name, f"{where}.name") not in _POINTS:
                problem = f"{entry.name!r} is no plugin of kube-scheduler, so its decisions cannot be computed"
                raise FieldError(f"{where}.name", problem)
        for entry, where in indexed(plugin_set.disabled, f"{path}.{point}.disabled"):
            if entry.name in (*_GATED, _GATES):
                raise FieldError(f"{where}.name", f"{entry.name} cannot be disabled here")
        names = [entry.name for entry in plugin_set.enabled or ()]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise FieldError(f"{path}.{point}.enabled", f"has {twice} twice")
    chosen = _merged(multi)
    for point, name in _NEEDED.items():
        at_point = getattr(plugins, "queue_sort" if point == "queueSort" else point) or api.PluginSet()
        if name not in _at_point(chosen, at_point, lambda _: True):
            raise FieldError(f"{path}.{point}", f"lacks {name}; kube-scheduler does not start without one")
    filters = {*_at_point(chosen, plugins.filter or api.PluginSet(), lambda name: FILTER in _POINTS[name])}
    prepared = _at_point(chosen, plugins.pre_filter or api.PluginSet(), lambda _: True)
    _check_prepared(filters, prepared, FILTER, path)
    if NODE_AFFINITY_FILTER in prepared:
        filters.add(NODE_AFFINITY_PREFILTER)
    for name, why in _ALWAYS_FILTER.items():
        if name not in filters:
            raise FieldError(f"{path}.filter", f"lacks {name}, which cannot be disabled: {why}")
    scores = _at_point(chosen, plugins.score or api.PluginSet(), lambda name: SCORE in _POINTS[name])
    _check_prepared(scores, _at_point(chosen, plugins.pre_score or api.PluginSet(), lambda _: True), SCORE, path)
    # kube-scheduler takes a weight of 0 for 1.
    return {name: weight or 1 for name, weight in scores.items()}, frozenset(filters)


def _sets(plugins: api.Plugins) -> Iterator[tuple[str, api.PluginSet]]:
    for field in plugins.__struct_fields__:
        value = getattr(plugins, field)
        if value is not None:
            first, *rest = field.split("_")
            yield first + "".join(part.capitalize() for part in rest), value


def _merged(multi: api.PluginSet) -> dict[str, int]:
    """Return the plugins of `multiPoint` with their weights: the defaults, changed by what the profile says."""
    disabled = {entry.name for entry in multi.disabled or ()}
    stated = {str(entry.name): entry.weight or 0 for entry in multi.enabled or ()}
    kept = [] if _EVERY in disabled else [name for name in _POINTS if name not in disabled]
    return {name: stated.get(name, _WEIGHTS.get(name, 0)) for name in kept} | stated


def _at_point(chosen: Mapping[str, int], at: api.PluginSet, has: Callable[[str], bool]) -> dict[str, int]:
    """Return the plugins of an extension point with their weights: those of the point itself come first."""
    own = {str(entry.name): entry.weight or 0 for entry in at.enabled or ()}
    disabled = {entry.name for entry in at.disabled or ()}
    if _EVERY in disabled:
        return {name: weight for name, weight in own.items() if has(name)}
    others = {name: weight for name, weight in chosen.items() if name not in disabled}
    return {name: weight for name, weight in (others | own).items() if has(name)}


def _check_prepared(plugins: Iterable[str], prepared: Mapping[str, int], point: str, path: str) -> None:
    """Raise FieldError where a plugin is on at a point, but not at the one that prepares it."""
    for name in plugins:
        if name in _NEED_PREPARATION[point] and name not in prepared:
            before = _PREPARES[point]
            raise FieldError(f"{path}.{before}", f"lacks {name}, so that kube-scheduler fails in {point}; enable both")


class _Arguments:
    """Arguments of plugins.

    Args:
        entries: `pluginConfig`.
        path: of that field.
    """

    def __init__(self, entries: Sequence[api.PluginConfig] | None, path: str) -> None:
        self._args: dict[str, tuple[Mapping[str, Any], str]] = {}
        for entry, where in indexed(entries, path):
            name = required(entry.name, f"{where}.name")
            if name in self._args:
                raise FieldError(f"{where}.name", f"{name} has arguments already")
            self._args[name] = entry.args or {}, f"{where}.args"

    def of(self, plugin: str, kind: type[Args], read: Callable[[Args, str], T]) -> T | None:
        """Return what `read` makes of a plugin's arguments; None if there are none. Raises FieldError."""
        if plugin not in self._args:
            return None
        args, where = self._args.pop(plugin)
        decoded = converted(args, kind, where)
        if decoded.kind not in (None, f"{plugin}Args"):
            raise FieldError(f"{where}.kind", f"{decoded.kind!r} is wrong; expected {plugin}Args")
        return read(decoded, where)

    def check_others(self) -> None:
        """Raise FieldError for arguments of unknown plugins, and for those that would change where pods go."""
        for plugin, (args, where) in self._args.items():
            if plugin not in _POINTS:
                problem = f"{plugin!r} is no plugin of kube-scheduler, so its decisions cannot be computed"
                raise FieldError(where.removesuffix("args") + "name", problem)
            if plugin == "VolumeBinding" and args.get("shape"):
                raise FieldError(f"{where}.shape", "is not implemented: free storage is not scored")


def _fit(args: api.FitArgs, path: str) -> ScoringStrategy:
    for name in ("ignored_resources", "ignored_resource_groups"):
        if getattr(args, name):
            field = "ignoredResources" if name == "ignored_resources" else "ignoredResourceGroups"
            raise FieldError(f"{path}.{field}", "is not implemented: every requested resource is checked")
    if args.scoring_strategy is None:
        return ScoringStrategy()
    strategy, where = args.scoring_strategy, f"{path}.scoringStrategy"
    kind = STRATEGIES.index(one_of(required(strategy.type, f"{where}.type"), STRATEGIES, f"{where}.type"))
    ratio = strategy.requested_to_capacity_ratio
    if kind != REQUESTED_TO_CAPACITY:
        if ratio is not None:
            raise FieldError(f"{where}.requestedToCapacityRatio", f"has no meaning for {strategy.type}")
        shape: tuple[tuple[int, int], ...] = ()
    else:
        shape = _shape(None if ratio is None else ratio.shape, f"{where}.requestedToCapacityRatio.shape")
    resources = _resources(strategy.resources, f"{where}.resources")
    return ScoringStrategy(kind, resources or ScoringStrategy().resources, shape)


def _resources(specs: Sequence[api.ResourceSpec] | None, path: str) -> tuple[tuple[str, int], ...]:
    """Return (name, weight) of resources; a weight of 0 is 1, as in kube-scheduler."""
    return tuple((required(each.name, f"{where}.name"), each.weight or 1) for each, where in indexed(specs, path))


def _shape(points: Sequence[api.ShapePoint] | None, path: str) -> tuple[tuple[int, int], ...]:
    """Return (utilization, score in 0..100) of the points of a shape."""
    if not points:
        raise FieldError(path, "is missing; expected at least one point of utilization and score")
    shape = tuple((point.utilization or 0, 10 * (point.score or 0)) for point in points)
    for i, (before, after) in enumerate(pairwise(shape)):
        if before[0] >= after[0]:
            raise FieldError(f"{path}[{i + 1}].utilization", f"must be above {before[0]}, that of the point before")
    return shape


def _balanced(args: api.BalancedArgs, path: str) -> tuple[str, ...]:
    resources = _resources(args.resources, f"{path}.resources")
    names = [name for name, _ in resources]
    for i, (name, weight) in enumerate(resources):
        if weight != 1:
            raise FieldError(f"{path}.resources[{i}].weight", f"{weight} is wrong; must be 1")
        if name in names[:i]:
            raise FieldError(f"{path}.resources[{i}].name", f"{name!r} is there already")
    return tuple(names)


def _default_spread(args: api.SpreadArgs, path: str) -> tuple[DefaultSpread, ...] | None:
    kind = one_of(args.defaulting_type, ("System", "List"), f"{path}.defaultingType", "System")
    if kind == "System":
        if args.default_constraints:
            raise FieldError(f"{path}.defaultingType", "must be List where defaultConstraints are given")
        return None
    constraints: list[DefaultSpread] = []
    for each, where in indexed(args.default_constraints, f"{path}.defaultConstraints"):
        if each.max_skew is None:
            raise FieldError(f"{where}.maxSkew", "is missing")
        action = required(each.when_unsatisfiable, f"{where}.whenUnsatisfiable")
        hard = one_of(action, _SPREAD_ACTIONS, f"{where}.whenUnsatisfiable") == "DoNotSchedule"
        key = required(each.topology_key, f"{where}.topologyKey")
        if any((key, hard) == (other.topology_key, other.hard) for other in constraints):
            raise FieldError(where, f"is there already: {key}, {action}")
        constraints.append(DefaultSpread(each.max_skew, key, hard))
    return tuple(constraints)


def _added_affinity(args: api.NodeAffinityArgs, path: str) -> tuple[Any, Any] | None:
    if args.added_affinity is None:
        return None
    where = f"{path}.addedAffinity"
    return selectors.required_nodes(args.added_affinity, where), selectors.preferred_nodes(args.added_affinity, where)
