"""Arguments of the plugins of a profile in a KubeSchedulerConfiguration.

Source: Kubernetes 1.37.2, pkg/scheduler/apis/config (defaults and validation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from steersman.cluster.model import GPU_RESOURCES
from steersman.cluster.objects import selectors
from steersman.cluster.objects.api import scheduling as api
from steersman.cluster.objects.api.pods import PREFERRED, REQUIRED
from steersman.cluster.objects.fields import FieldError, converted, indexed, one_of, required
from steersman.policies.kube_scheduler.minors import MINORS
from steersman.policies.kube_scheduler.plugins import check_plugin
from steersman.policies.kube_scheduler.profile import (
    MOST_FREE,
    REQUESTED_TO_CAPACITY,
    STRATEGIES,
    DefaultSpread,
    ScoringStrategy,
    is_ignored,
)

Fields = dict[str, "Fields"]
T = TypeVar("T")
Args = TypeVar("Args", bound=api.PluginArgs)

_SPREAD_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_REQUIREMENTS: Fields = {"key": {}, "operator": {}, "values": {}}
_TERM: Fields = {"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS}
_AFFINITY: Fields = {REQUIRED: {"nodeSelectorTerms": _TERM}, PREFERRED: {"weight": {}, "preference": _TERM}}
"""Fields of `addedAffinity`; those of pods may have further ones, which an API server of another minor knows."""


API_VERSION = "kubescheduler.config.k8s.io/v1"


class Arguments:
    """Arguments of plugins.

    Args:
        entries: `pluginConfig`.
        minor: of Kubernetes.
        path: of that field.
    """

    def __init__(self, entries: Sequence[api.PluginConfig] | None, minor: str, path: str) -> None:
        self._minor = minor
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
        if kind is api.NodeAffinityArgs:
            _check_fields(args.get("addedAffinity"), _AFFINITY, f"{where}.addedAffinity")
        decoded = converted(args, kind, where)
        if decoded.api_version not in (None, API_VERSION):
            raise FieldError(f"{where}.apiVersion", f"{decoded.api_version!r} cannot be read; expected {API_VERSION}")
        if decoded.kind not in (None, f"{plugin}Args"):
            raise FieldError(f"{where}.kind", f"{decoded.kind!r} is wrong; expected {plugin}Args")
        return read(decoded, where)

    def check_others(self) -> None:
        """Raise FieldError for arguments of unknown plugins, and for unknown ones of those that change no decision."""
        self.of("DynamicResources", api.DynamicResourcesArgs, lambda *_: None)
        for plugin, (_, where) in self._args.items():
            check_plugin(plugin, self._minor, where.removesuffix("args") + "name")

    def storage_shape(self, args: api.VolumeBindingArgs, path: str) -> tuple[tuple[int, int], ...]:
        """Return the shape of VolumeBinding's scores, see `KubeProfile`. Raises FieldError."""
        if args.shape is not None and not MINORS[self._minor].scores_storage:
            raise FieldError(f"{path}.shape", f"is unknown to kube-scheduler {self._minor}, which scores no storage")
        return _shape(args.shape, f"{path}.shape") if args.shape else MOST_FREE

    def fit(self, args: api.FitArgs, path: str) -> tuple[ScoringStrategy, frozenset[str]]:
        """Return the scoring strategy, and the resources that are ignored, see `KubeProfile`. Raises FieldError."""
        strategy = ScoringStrategy()
        if args.scoring_strategy is not None:
            strategy = _strategy(args.scoring_strategy, self._minor, f"{path}.scoringStrategy")
        return strategy, frozenset(_ignored(args, path))


def _check_fields(value: object, known: Fields, path: str) -> None:
    """Raise FieldError for a field of nested objects that is not known; no fields known: values of any kind."""
    if isinstance(value, dict) and known:
        for name, inner in value.items():
            if name not in known:
                raise FieldError(f"{path}.{name}", "is an unknown field")
            _check_fields(inner, known[name], f"{path}.{name}")
    elif isinstance(value, list):
        for i, each in enumerate(value):
            _check_fields(each, known, f"{path}[{i}]")


def _ignored(args: api.FitArgs, path: str) -> Iterator[str]:
    """Yield the names of ignored resources, and groups with a slash at the end."""
    for field, names, end in (
        ("ignoredResources", args.ignored_resources, ""),
        ("ignoredResourceGroups", args.ignored_resource_groups, "/"),
    ):
        for i, name in enumerate(names or ()):
            where = f"{path}.{field}[{i}]"
            if not name or (end and "/" in name):
                raise FieldError(where, f"{name!r} is wrong; expected a {'group' if end else 'resource'} such as a.com")
            if any(is_ignored(each, (name + end,)) for each in GPU_RESOURCES):
                raise FieldError(where, f"{name} is a resource of GPUs, which are always counted here")
            yield name + end


def _strategy(strategy: api.ScoringStrategyArgs, minor: str, where: str) -> ScoringStrategy:
    kind = STRATEGIES.index(one_of(required(strategy.type, f"{where}.type"), STRATEGIES, f"{where}.type"))
    ratio = strategy.requested_to_capacity_ratio
    if kind != REQUESTED_TO_CAPACITY:
        if ratio is not None and not MINORS[minor].ignores_ratio:
            raise FieldError(f"{where}.requestedToCapacityRatio", f"has no meaning for {strategy.type}")
        if ratio is not None:
            _shape(ratio.shape, f"{where}.requestedToCapacityRatio.shape")
        shape: tuple[tuple[int, int], ...] = ()
    else:
        shape = _shape(None if ratio is None else ratio.shape, f"{where}.requestedToCapacityRatio.shape")
    resources = _resources(strategy.resources, f"{where}.resources")
    return ScoringStrategy(kind, resources or ScoringStrategy().resources, shape)


def _resources(specs: Sequence[api.ResourceSpec] | None, path: str) -> tuple[tuple[str, int], ...]:
    return tuple((required(each.name, f"{where}.name"), each.weight or 1) for each, where in indexed(specs, path))


def _shape(points: Sequence[api.ShapePoint] | None, path: str) -> tuple[tuple[int, int], ...]:
    if not points:
        raise FieldError(path, "is missing; expected at least one point of utilization and score")
    shape = tuple((point.utilization or 0, 10 * (point.score or 0)) for point in points)
    for i, (before, after) in enumerate(pairwise(shape)):
        if before[0] >= after[0]:
            raise FieldError(f"{path}[{i + 1}].utilization", f"must be above {before[0]}, that of the point before")
    return shape


def candidates(args: api.DefaultPreemptionArgs, path: str) -> tuple[int, int]:
    """Return how many candidates DefaultPreemption wants, see `KubeProfile`. Raises FieldError."""
    percentage, least = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    stated = 10 if percentage is None else percentage, 100 if least is None else least
    if stated == (0, 0):
        where = f"{path}.minCandidateNodesAbsolute"
        raise FieldError(where, "is 0, as is minCandidateNodesPercentage; one of them must be above 0")
    return stated


def balanced(args: api.BalancedArgs, path: str) -> tuple[str, ...]:
    """Return the resources of NodeResourcesBalancedAllocation. Raises FieldError."""
    resources = _resources(args.resources, f"{path}.resources")
    names = [name for name, _ in resources]
    for i, (name, weight) in enumerate(resources):
        if weight != 1:
            raise FieldError(f"{path}.resources[{i}].weight", f"{weight} is wrong; must be 1")
        if name in names[:i]:
            raise FieldError(f"{path}.resources[{i}].name", f"{name!r} is there already")
    return tuple(names)


def default_spread(args: api.SpreadArgs, path: str) -> tuple[DefaultSpread, ...] | None:
    """Return the default constraints, None for those of the system. Raises FieldError."""
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
        # `matchLabelKeys` has no effect: what selects the pod replaces the selector.
        constraints.append(
            DefaultSpread(
                each.max_skew,
                key,
                hard,
                min_domains=1 if each.min_domains is None else each.min_domains,
                honor_node_affinity=_honors(each.node_affinity_policy, f"{where}.nodeAffinityPolicy", "Honor"),
                honor_node_taints=_honors(each.node_taints_policy, f"{where}.nodeTaintsPolicy", "Ignore"),
            )
        )
    return tuple(constraints)


def _honors(policy: str | None, path: str, default: str) -> bool:
    return one_of(policy, ("Honor", "Ignore"), path, default) == "Honor"


def added_affinity(args: api.NodeAffinityArgs, path: str) -> tuple[Any, Any] | None:
    """Return required and preferred terms that pods have beside their own, None for none. Raises FieldError."""
    if args.added_affinity is None:
        return None
    where = f"{path}.addedAffinity"
    return selectors.required_nodes(args.added_affinity, where), selectors.preferred_nodes(args.added_affinity, where)
