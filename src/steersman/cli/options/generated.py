"""Random Deployments, in files, on a cluster, or on generated clusters of --protocol deployments and latency."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from steersman.cli.options.declaring import RequiresProtocol, advanced, option
from steersman.core.errors import UsageError
from steersman.workloads.generators.latency_settings import LatencySettings, checked

if TYPE_CHECKING:
    from steersman.envs.deployments.environment import DeploymentsOptions
    from steersman.envs.latency.environment import LatencyOptions
    from steersman.evaluation.generated import GeneratedOptions
    from steersman.workloads.generators.deployments import DeploymentSettings

Interval = Annotated[float, advanced("Seconds from one Deployment to the next.")]
Wait = Annotated[float, advanced("Seconds before the cluster is cleared, and after it.")]


@dataclass(frozen=True, slots=True)
class FillingOptions:
    cpu_load: Annotated[float, option("Fill until this share of the CPU is requested, ...")] = 0.5
    memory_load: Annotated[float, option("... or this share of the memory, ...")] = 0.5
    pod_load: Annotated[float, option("... or this share of the pods, whichever comes first.")] = 0.5
    cluster_resets: Annotated[
        int, option("Number of fillings: fill, wait, clear.", "--cluster-resets", "--resets", min=1)
    ] = 1
    interval: Interval = 10.0
    wait: Wait = 60.0
    replicas: Annotated[str, advanced("Pods of a Deployment.", metavar="MIN-MAX")] = "5-15"
    cpu_requests: Annotated[
        str, advanced("CPU requests to draw from, such as 500m,1,2. [default: 100m to 3500m]", metavar="LIST")
    ] = ""
    memory_requests: Annotated[
        str, advanced("Memory requests to draw from, such as 1Gi,2Gi. [default: 256Mi to 20Gi]", metavar="LIST")
    ] = ""

    @property
    def settings(self) -> DeploymentSettings:
        from steersman.workloads.generators.deployments import DeploymentSettings

        least, most = parse_range("--replicas", self.replicas)
        return DeploymentSettings(
            cpu_load=self.cpu_load,
            memory_load=self.memory_load,
            pod_load=self.pod_load,
            resets=self.cluster_resets,
            interval_seconds=self.interval,
            wait_seconds=self.wait,
            min_replicas=least,
            max_replicas=most,
            **value_lists(self.cpu_requests, self.memory_requests),
        )


def parse_range(option: str, text: str) -> tuple[int, int]:
    """Return the ends of an option's `5-15`; `5` is both. Raises UsageError."""
    low, dash, high = text.partition("-")
    ends = (low.strip(), high.strip() if dash else low.strip())
    if not all(end.isascii() and end.isdigit() and len(end) < 10 for end in ends):
        raise UsageError(f"{option} {text}: expected a number such as 10 or a range such as 5-15")
    if int(ends[0]) > int(ends[1]):
        raise UsageError(f"{option} {text}: the first number is the larger one")
    return int(ends[0]), int(ends[1])


def value_lists(cpu: str, memory: str) -> dict[str, tuple[str, ...]]:
    """Return the settings for stated lists of requests. Limits are at least the largest of them."""
    from steersman.workloads.generators.deployments import DeploymentSettings

    result = {}
    for name, text in (("cpu", cpu), ("memory", memory)):
        values = tuple(part.strip() for part in text.split(",") if part.strip())
        if values:
            result[f"{name}_requests"] = values
            # A container's limit must not be below its request.
            result[f"{name}_limits"] = (*getattr(DeploymentSettings(), f"{name}_limits"), *values)
    return result


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
    """Return the options of `steersman/Deployments-v0`."""
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
    """Return the options of `steersman/Latency-v0`."""
    from steersman.envs.latency.environment import LatencyOptions

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
    return latency_options(given, settings, {}) if protocol == "latency" else deployments_options(given, {})
