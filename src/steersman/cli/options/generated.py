"""Options of generated clusters, of `train` and `evaluate` with --protocol deployments and latency."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from steersman.cli.options.declaring import RequiresProtocol, option
from steersman.cli.options.deployments import parse_range
from steersman.core.errors import UsageError

if TYPE_CHECKING:
    from steersman.envs.deployments.environment import DeploymentsOptions
    from steersman.envs.latency.environment import LatencyOptions
    from steersman.evaluation.generated import GeneratedOptions

GENERATED = ("deployments", "latency")
EQUAL_SHARE = (
    0.5  # share of the clusters with --mixed-nodes: on equal nodes differences are small, and must be learned, too
)

_generated = partial(option, rich_help_panel="Environment")
OF_BOTH = RequiresProtocol(*GENERATED, is_stated=True)
OF_DEPLOYMENTS = RequiresProtocol("deployments", is_stated=True)


@dataclass(frozen=True, slots=True)
class GeneratedCluster:
    """The cluster and its Deployments. `None`: not given."""

    node_count: Annotated[
        str | None,
        _generated(
            "deployments, latency: number of nodes; from a range deployments draws one for each episode. "
            "[default: 10 for deployments, 12 for latency]",
            metavar="N or MIN-MAX",
        ),
        OF_BOTH,
    ] = None
    node_cpu: Annotated[str | None, _generated("deployments: CPU of a node. [default: 64]"), OF_DEPLOYMENTS] = None
    node_memory: Annotated[
        str | None, _generated("deployments: memory of a node. [default: 256Gi]"), OF_DEPLOYMENTS
    ] = None
    node_pods: Annotated[int | None, _generated("deployments: pods per node. [default: 110]"), OF_DEPLOYMENTS] = None
    mixed_nodes: Annotated[
        bool | None,
        _generated("deployments: draw other node sizes for each episode, one for all or mixed.", "--mixed-nodes"),
        OF_DEPLOYMENTS,
    ] = None
    cpu_load: Annotated[
        float | None,
        _generated("deployments: fill until this share of the CPU is requested, ... [default: 0.5]"),
        OF_DEPLOYMENTS,
    ] = None
    memory_load: Annotated[
        float | None, _generated("... or this share of the memory, ... [default: 0.5]"), OF_DEPLOYMENTS
    ] = None
    pod_load: Annotated[float | None, _generated("... or this share of the pods. [default: 0.5]"), OF_DEPLOYMENTS] = (
        None
    )
    replicas: Annotated[
        str | None,
        _generated(
            "deployments: pods of a Deployment [default: 5-15]; latency: the most, from 1 [default: 8]",
            metavar="MIN-MAX",
        ),
        OF_BOTH,
    ] = None


def deployments_options(given: Mapping[str, Any], common: Mapping[str, Any]) -> DeploymentsOptions:
    """Return the options of `steersman/Deployments-v0`.

    Args:
        given: options of the cluster that were given, by name.
        common: further options of the environment.
    """
    from steersman.envs.deployments.environment import MIXED_SHAPES, DeploymentsOptions
    from steersman.workloads.generators.deployments import DeploymentSettings

    settings: dict[str, Any] = {name: given[name] for name in ("cpu_load", "memory_load", "pod_load") if name in given}
    if "replicas" in given:
        settings["min_replicas"], settings["max_replicas"] = parse_range("--replicas", given["replicas"])
    if "cluster_resets" in given:
        settings["resets"] = given["cluster_resets"]
    plain = ("node_cpu", "node_memory", "node_pods", "servers_per_rack")
    options: dict[str, Any] = {name: given[name] for name in plain if name in given}
    if "node_count" in given:
        low, high = parse_range("--node-count", given["node_count"])
        options["nodes"] = low if low == high else (low, high)
    if given.get("mixed_nodes"):
        options |= {"shapes": MIXED_SHAPES, "equal_share": EQUAL_SHARE}
    return DeploymentsOptions(settings=DeploymentSettings(**settings), **options, **common)


def latency_options(given: Mapping[str, Any], declared: Mapping[str, Any], common: Mapping[str, Any]) -> LatencyOptions:
    """Return the options of `steersman/Latency-v0`.

    Args:
        given: options of the cluster that were given, by name, and `load`.
        declared: settings by the names of `LatencySettings`.
        common: further options of the environment.
    """
    from steersman.envs.latency.environment import LatencyOptions
    from steersman.workloads.generators.latency_settings import LatencySettings, checked

    settings = dict(declared)
    if "node_count" in given:
        low, high = parse_range("--node-count", given["node_count"])
        if low != high:
            raise UsageError(
                f"--node-count {given['node_count']}: expected a number such as 12 with --protocol latency"
            )
        settings |= {"nodes": low, "max_nodes": max(low, LatencySettings().max_nodes)}
    if "load" in given:
        settings["load"] = given["load"]
    if "replicas" in given:
        settings["replicas"] = parse_range("--replicas", given["replicas"])[1]
    return LatencyOptions(settings=checked(LatencySettings(**settings)), **common)


def environment_of(protocol: str, given: Mapping[str, Any], settings: Mapping[str, Any]) -> GeneratedOptions:
    """Return the options of generated clusters, see `deployments_options` and `latency_options`."""
    return latency_options(given, settings, {}) if protocol == "latency" else deployments_options(given, {})
