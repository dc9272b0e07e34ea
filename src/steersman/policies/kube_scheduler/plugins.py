"""The plugins of a profile in a KubeSchedulerConfiguration: which filter, and which score with which weight.

Source: Kubernetes 1.37.2, pkg/scheduler/apis/config/v1/default_plugins.go and pkg/scheduler/framework/runtime
(extension points).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from steersman.cluster.constraints.node import FEATURES_FILTER, NODE_AFFINITY_FILTER, NODE_AFFINITY_PREFILTER
from steersman.cluster.objects.api import scheduling as api
from steersman.cluster.objects.fields import FieldError, indexed, required
from steersman.policies.kube_scheduler.minors import MINORS, MinorRules
from steersman.policies.kube_scheduler.profile import DEFAULT_PROFILE, PLUGINS

FILTER, SCORE = "filter", "score"
_FILTERS, _SCORES = ("preFilter", FILTER), ("preScore", SCORE)
POINTS: dict[str, tuple[str, ...]] = {
    "SchedulingGates": ("preEnqueue",),
    "PrioritySort": ("queueSort",),
    "NodeName": _FILTERS,
    "NodeUnschedulable": _FILTERS,
    "TaintToleration": (*_FILTERS, *_SCORES),
    "NodeAffinity": (*_FILTERS, *_SCORES),
    "NodePorts": _FILTERS,
    "NodeResourcesFit": (*_FILTERS, *_SCORES),
    "VolumeRestrictions": _FILTERS,
    "NodeVolumeLimits": _FILTERS,
    "VolumeBinding": (*_FILTERS, *_SCORES, "reserve", "preBind"),
    "VolumeZone": _FILTERS,
    "PodTopologySpread": (*_FILTERS, *_SCORES),
    "InterPodAffinity": (*_FILTERS, *_SCORES),
    "DynamicResources": ("preEnqueue", *_FILTERS, "postFilter", SCORE, "reserve", "preBind"),
    "DefaultPreemption": ("preEnqueue", "postFilter"),
    "NodeResourcesBalancedAllocation": _SCORES,
    "ImageLocality": (SCORE,),
    "DefaultBinder": ("bind",),
    "NodeDeclaredFeatures": _FILTERS,
    "DeferredPodScheduling": (*_FILTERS, "permit"),
    "GangScheduling": ("preEnqueue", "permit"),
    "TopologyPlacementGenerator": ("placementGenerate",),
    "PodGroupPodsCount": ("placementScore",),
}
"""Plugins of kube-scheduler in the order in which they are on by default: the extension points that they have."""
IN_TREE_PLUGINS = frozenset(POINTS)
WEIGHT_OF = dict(zip(PLUGINS, DEFAULT_PROFILE.weights, strict=True))
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
ALWAYS_ON = frozenset({"DynamicResources"})
"""Filters of what is not modelled but for resources that DeviceClasses have, which are always checked here."""
MODELLED_FILTERS = (
    frozenset(name for name, points in POINTS.items() if FILTER in points)
    - ALWAYS_ON
    - {
        "DeferredPodScheduling"  # for pods that grow in place, by a gate that is off
    }
)
_GATES = "SchedulingGates"
_NEEDED = {"queueSort": "PrioritySort", "bind": "DefaultBinder"}
_EVERY = "*"
_MULTI = "multiPoint"
_SPREAD_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")


def check_plugin(name: str, minor: str, path: str) -> None:
    """Raise FieldError if kube-scheduler of a minor has no such plugin."""
    if name not in POINTS or name in MINORS[minor].without:
        of = "kube-scheduler" if name not in POINTS else f"kube-scheduler {minor}"
        raise FieldError(path, f"{name!r} is no plugin of {of}, so its decisions cannot be computed")


def points_of(name: str, minor: str) -> list[str]:
    """Return the extension points that a plugin has in a minor."""
    return [point for point in POINTS[name] if (name, point) not in MINORS[minor].lacks]


def enabled_plugins(plugins: api.Plugins, minor: str, path: str) -> tuple[dict[str, int], frozenset[str], bool]:
    """Return the weights of the plugins that score, those that filter, and whether it preempts. Raises FieldError."""
    multi = plugins.multi_point or api.PluginSet()
    for point, plugin_set in _sets(plugins):
        if point in MINORS[minor].without_points:
            raise FieldError(f"{path}.{point}", f"is unknown to kube-scheduler {minor}")
        for entry, where in indexed(plugin_set.enabled, f"{path}.{point}.enabled"):
            check_plugin(required(entry.name, f"{where}.name"), minor, f"{where}.name")
            if point != _MULTI and point not in points_of(str(entry.name), minor):
                raise FieldError(f"{where}.name", f"{entry.name} has no {point}; kube-scheduler does not start")
        for entry, where in indexed(plugin_set.disabled, f"{path}.{point}.disabled"):
            if entry.name in (*ALWAYS_ON, _GATES):
                raise FieldError(f"{where}.name", f"{entry.name} cannot be disabled here")
        names = [entry.name for entry in plugin_set.enabled or ()]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise FieldError(f"{path}.{point}.enabled", f"has {twice} twice")
    chosen = _merged(multi, MINORS[minor])
    for point, name in _NEEDED.items():
        at_point = getattr(plugins, "queue_sort" if point == "queueSort" else point) or api.PluginSet()
        if name not in _at_point(chosen, at_point, lambda _: True):
            raise FieldError(f"{path}.{point}", f"lacks {name}; kube-scheduler does not start without one")
    filters = {*_at_point(chosen, plugins.filter or api.PluginSet(), lambda name: FILTER in points_of(name, minor))}
    prepared = _at_point(chosen, plugins.pre_filter or api.PluginSet(), lambda _: True)
    _check_prepared(filters, prepared, FILTER, path)
    if NODE_AFFINITY_FILTER in prepared:
        filters.add(NODE_AFFINITY_PREFILTER)
    for name, why in _ALWAYS_FILTER.items():
        if name not in filters:
            raise FieldError(f"{path}.filter", f"lacks {name}, which cannot be disabled: {why}")
    scores = _at_point(chosen, plugins.score or api.PluginSet(), lambda name: SCORE in points_of(name, minor))
    _check_prepared(scores, _at_point(chosen, plugins.pre_score or api.PluginSet(), lambda _: True), SCORE, path)
    # kube-scheduler takes a weight of 0 for 1.
    weights = {name: weight or 1 for name, weight in scores.items()}
    after = _at_point(chosen, plugins.post_filter or api.PluginSet(), lambda _: True)
    return weights, frozenset(filters), "DefaultPreemption" in after


def _sets(plugins: api.Plugins) -> Iterator[tuple[str, api.PluginSet]]:
    for field in plugins.__struct_fields__:
        value = getattr(plugins, field)
        if value is not None:
            first, *rest = field.split("_")
            yield first + "".join(part.capitalize() for part in rest), value


def _merged(multi: api.PluginSet, minor: MinorRules) -> dict[str, int]:
    """Return the plugins of `multiPoint` with their weights: the defaults, changed by what the profile says."""
    disabled = {entry.name for entry in multi.disabled or ()} | minor.without
    if not minor.filters_features:
        disabled.add(FEATURES_FILTER)
    stated = {str(entry.name): entry.weight or 0 for entry in multi.enabled or ()}
    kept = [] if _EVERY in disabled else [name for name in POINTS if name not in disabled]
    return {name: stated.get(name, WEIGHT_OF.get(name, 0)) for name in kept} | stated


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
