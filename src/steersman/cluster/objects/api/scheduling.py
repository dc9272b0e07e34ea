"""KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1), and what managed Kubernetes has for it.

Unknown fields are errors, as in kube-scheduler. Source: Kubernetes 1.37.2, staging/src/k8s.io/kube-scheduler.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from steersman.cluster.objects.api.pods import NodeAffinity

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Percentage = Annotated[int, msgspec.Meta(ge=0, le=100)]


class StrictStruct(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """An object in which an unknown field is an error."""


class PluginEntry(StrictStruct, frozen=True):
    """A plugin of a set."""

    name: str | None = None
    weight: Count | None = None


class PluginSet(StrictStruct, frozen=True):
    """Plugins of an extension point that are enabled and disabled."""

    enabled: list[PluginEntry] | None = None
    disabled: list[PluginEntry] | None = None


class Plugins(StrictStruct, frozen=True):
    """Sets of plugins by extension point."""

    multi_point: PluginSet | None = None
    pre_enqueue: PluginSet | None = None
    queue_sort: PluginSet | None = None
    pre_filter: PluginSet | None = None
    filter: PluginSet | None = None
    post_filter: PluginSet | None = None
    pre_score: PluginSet | None = None
    score: PluginSet | None = None
    reserve: PluginSet | None = None
    permit: PluginSet | None = None
    pre_bind: PluginSet | None = None
    bind: PluginSet | None = None
    post_bind: PluginSet | None = None
    placement_generate: PluginSet | None = None
    placement_score: PluginSet | None = None
    pod_group_post_filter: PluginSet | None = None


class PluginConfig(StrictStruct, frozen=True):
    """Arguments of a plugin."""

    name: str | None = None
    args: dict[str, Any] | None = None


class Profile(StrictStruct, frozen=True):
    """A profile: a scheduler by name."""

    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Percentage | None = None
    plugins: Plugins | None = None
    plugin_config: list[PluginConfig] | None = None


class LeaderElectionSettings(StrictStruct, frozen=True):
    """Who leads, which changes no placement."""

    leader_elect: bool | None = None
    lease_duration: str | None = None
    renew_deadline: str | None = None
    retry_period: str | None = None
    resource_lock: str | None = None
    resource_name: str | None = None
    resource_namespace: str | None = None


class ClientConnectionSettings(StrictStruct, frozen=True):
    """How kube-scheduler reaches the API server."""

    kubeconfig: str | None = None
    accept_content_types: str | None = None
    content_type: str | None = None
    qps: float | None = None
    burst: int | None = None


class SchedulerConfiguration(StrictStruct, frozen=True):
    """A KubeSchedulerConfiguration."""

    api_version: str | None = None
    kind: str | None = None
    parallelism: Positive | None = None
    leader_election: LeaderElectionSettings | None = None
    client_connection: ClientConnectionSettings | None = None
    enable_profiling: bool | None = None
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: Percentage | None = None
    pod_initial_backoff_seconds: Positive | None = None
    pod_max_backoff_seconds: Positive | None = None
    delay_cache_until_active: bool | None = None
    profiles: list[Profile | None] | None = None
    extenders: list[dict[str, Any]] | None = None


class PluginArgs(StrictStruct, frozen=True):
    """What the arguments of all plugins have."""

    api_version: str | None = None
    kind: str | None = None


class ResourceSpec(StrictStruct, frozen=True):
    """A resource and its weight."""

    name: str | None = None
    weight: Percentage | None = None


class ShapePoint(StrictStruct, frozen=True):
    """A point of RequestedToCapacityRatio's function: utilization in percent, score from 0 to 10."""

    utilization: Percentage | None = None
    score: Annotated[int, msgspec.Meta(ge=0, le=10)] | None = None


class CapacityRatio(StrictStruct, frozen=True):
    """Arguments of RequestedToCapacityRatio."""

    shape: list[ShapePoint] | None = None


class ScoringStrategyArgs(StrictStruct, frozen=True):
    """`scoringStrategy` of NodeResourcesFit."""

    type: str | None = None
    resources: list[ResourceSpec] | None = None
    requested_to_capacity_ratio: CapacityRatio | None = None


class FitArgs(PluginArgs, frozen=True):
    """Arguments of NodeResourcesFit."""

    ignored_resources: list[str] | None = None
    ignored_resource_groups: list[str] | None = None
    scoring_strategy: ScoringStrategyArgs | None = None


class BalancedArgs(PluginArgs, frozen=True):
    """Arguments of NodeResourcesBalancedAllocation."""

    resources: list[ResourceSpec] | None = None


class DefaultConstraint(StrictStruct, frozen=True):
    """A default topology spread constraint."""

    max_skew: Positive | None = None
    topology_key: str | None = None
    when_unsatisfiable: str | None = None
    min_domains: Count | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class SpreadArgs(PluginArgs, frozen=True):
    """Arguments of PodTopologySpread."""

    default_constraints: list[DefaultConstraint] | None = None
    defaulting_type: str | None = None


class InterPodAffinityArgs(PluginArgs, frozen=True):
    """Arguments of InterPodAffinity."""

    hard_pod_affinity_weight: Percentage | None = None
    ignore_preferred_terms_of_existing_pods: bool | None = None


class VolumeBindingArgs(PluginArgs, frozen=True):
    """Arguments of VolumeBinding."""

    bind_timeout_seconds: Count | None = None
    shape: list[ShapePoint] | None = None


class DefaultPreemptionArgs(PluginArgs, frozen=True):
    """Arguments of DefaultPreemption."""

    min_candidate_nodes_percentage: Percentage | None = None
    min_candidate_nodes_absolute: Count | None = None


class DynamicResourcesArgs(PluginArgs, frozen=True):
    """Arguments of DynamicResources: durations."""

    filter_timeout: str | None = None
    binding_timeout: str | None = None


class NodeAffinityArgs(PluginArgs, frozen=True):
    """Arguments of NodeAffinity."""

    added_affinity: NodeAffinity | None = None


class ManagedFit(StrictStruct, frozen=True):
    """`nodeResourcesFit` of EKS."""

    scoring_strategy: ScoringStrategyArgs | None = None


class ManagedConfiguration(StrictStruct, frozen=True):
    """`kubeSchedulerConfig` of EKS."""

    node_resources_fit: ManagedFit | None = None
