"""How pods arrive in simulations: --protocol and what belongs to it, workloads and generated clusters."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from steersman.cli.options.declaring import AssumedValue, RequiresOption, RequiresProtocol, Unit, advanced, option
from steersman.cluster.model import RESTART_SECONDS
from steersman.core.config.fields import AMOUNT, SHARE, ValueCheck
from steersman.core.errors import UsageError
from steersman.core.quantities import duration_seconds
from steersman.workloads.generators.latency_settings import LatencySettings, checked

if TYPE_CHECKING:
    from steersman.cli.output.display import Warnings
    from steersman.envs.deployments import DeploymentsOptions
    from steersman.envs.latency import LatencyOptions
    from steersman.workloads.generators.deployments import DeploymentSettings
    from steersman.workloads.workload import Workload

MAX_RATIO = 100.0
RATIO = 1.3
# Share of the clusters with --mixed-nodes that have equal ones: there differences are small, and must be learned, too
EQUAL_SHARE = 0.5
WITH_WORKLOADS = ("inflation", "arrivals", "timed")
GENERATED = ("deployments", "latency")
ON_WORKLOADS = RequiresProtocol(*WITH_WORKLOADS)
OF_BOTH = RequiresProtocol(*GENERATED, is_stated=True)
OF_DEPLOYMENTS = RequiresProtocol("deployments", is_stated=True)
RATIO_RANGE = ValueCheck(
    lambda value: 0 < value <= MAX_RATIO, f"above 0 and at most {MAX_RATIO:g} (1.3 = 130 % of the GPUs)"
)
LOAD_RANGE = ValueCheck(
    lambda value: 0 < value <= MAX_RATIO, f"above 0 and at most {MAX_RATIO:g} (0.9 = 90 % of the cluster)"
)


class Protocol(enum.StrEnum):
    INFLATION = "inflation"
    TIMED = "timed"
    ARRIVALS = "arrivals"


class AnyProtocol(enum.StrEnum):
    """Protocol of training and of a comparison: arrivals of a workload, or a generated cluster."""

    INFLATION = "inflation"
    ARRIVALS = "arrivals"
    TIMED = "timed"
    DEPLOYMENTS = "deployments"
    LATENCY = "latency"


Ratio = Annotated[
    float | None,
    advanced(f"inflation only: requested GPUs as a share of all GPUs. [default: {RATIO}]"),
    RequiresProtocol("inflation"),
    RATIO_RANGE,
]
LOAD_HELP = "requested share of the cluster, by pods that arrive at random. [default: the times in the trace]"
MeanDuration = Annotated[
    float | None,
    advanced(
        "timed only: mean duration (exponential) of pods without an end: 90s, 30m, 2h, 1.5d. "
        "[default: to the end, with --load 1h]",
        parser=duration_seconds,
        metavar="TIME",
    ),
    RequiresProtocol("timed"),
    Unit("s"),
]


@dataclass(frozen=True, slots=True)
class ArrivalOptions:
    protocol: Protocol | None = option(
        "How pods arrive. inflation: drawn from the trace until they request RATIO times the GPUs, none leaves. "
        "timed: pods arrive and leave by the times in the trace, and wait if they fit nowhere. "
        "arrivals: in the order of the file, none leaves. [default: inflation]",
        AssumedValue(Protocol.INFLATION),
    )
    ratio: Ratio = None
    load: float | None = option(f"timed only: {LOAD_HELP}", RequiresProtocol("timed"), LOAD_RANGE)
    mean_duration: MeanDuration = None

    @property
    def settings(self) -> dict[str, Any]:
        """Return protocol, ratio, load and mean duration as simulations take them."""
        return {
            "protocol": (self.protocol or Protocol.INFLATION).value,
            **dict(zip(("ratio", "load", "mean_duration"), self.numbers, strict=True)),
        }

    @property
    def numbers(self) -> tuple[float, float | None, float | None]:
        return RATIO if self.ratio is None else self.ratio, self.load, self.mean_duration

    def warn_of(self, workload: Workload, warn: Warnings) -> None:
        """Print what the protocol `timed` assumes of durations that are not in the data."""
        from steersman.simulation.protocols import duration_warnings

        if self.protocol is Protocol.TIMED:
            warn(duration_warnings(workload, self.load, self.mean_duration))


@dataclass(frozen=True, slots=True)
class ComparedArrivalOptions:
    """How pods arrive in a comparison: in one protocol, or in those that the data allow."""

    protocol: AnyProtocol | None = option(
        "How pods arrive. inflation: drawn from the workload until they request RATIO times the GPUs, none leaves. "
        "timed: pods arrive and leave by the times in the data, and wait if they fit nowhere. "
        "arrivals: in the order of the data, none leaves. deployments: random Deployments fill a cluster, both "
        "drawn by the seed. latency: Deployments arrive and leave on a drawn cluster with telemetry, whose users "
        "have limits of latency. By the data: timed and inflation where pods have times, else inflation and "
        "arrivals. [default: by the data]"
    )
    ratio: Ratio = None
    load: list[float] | None = advanced(
        f"timed: {LOAD_HELP} Several are compared one by one, with each policy's regret at each of them; "
        "latency: requested share of the CPU [default: 0.6]",
        RequiresProtocol("timed", "latency", is_stated=True),
        LOAD_RANGE,
        metavar="LOAD",
    )
    mean_duration: MeanDuration = None


@dataclass(frozen=True, slots=True)
class EvictionOptions:
    """Which jobs the order `las` may have evicted, where the data do not say."""

    resumable: float | None = advanced(
        "timed only: share of the jobs that the order las may have evicted, since they save their work then. "
        "[default: pods that say so]",
        RequiresProtocol("timed", is_stated=True),
        SHARE,
        metavar="SHARE",
    )
    restart_seconds: float | None = advanced(
        f"With --resumable: what such a job needs before it goes on. [default: {RESTART_SECONDS:g}]",
        RequiresOption("resumable"),
        AMOUNT,
    )

    def applied(self, workload: Workload) -> Workload:
        """Return a workload with these jobs marked."""
        from steersman.workloads.resumable import with_resumable

        if self.resumable is None:
            return workload
        restart = RESTART_SECONDS if self.restart_seconds is None else self.restart_seconds
        return with_resumable(workload, self.resumable, restart)


Interval = Annotated[float, advanced("Seconds from one Deployment to the next.")]
Wait = Annotated[float, advanced("Seconds before the cluster is cleared, and after it.")]


@dataclass(frozen=True, slots=True)
class FillingOptions:
    cpu_load: float = option("Fill until this share of the CPU is requested, ...", default=0.5)
    memory_load: float = option("... or this share of the memory, ...", default=0.5)
    pod_load: float = option("... or this share of the pods, whichever comes first.", default=0.5)
    cluster_resets: int = option(
        "Number of fillings: fill, wait, clear.", "--cluster-resets", "--resets", default=1, min=1
    )
    interval: Interval = 10.0
    wait: Wait = 60.0
    replicas: str = advanced("Pods of a Deployment.", default="5-15", metavar="MIN-MAX")
    cpu_requests: str = advanced(
        "CPU requests to draw from, such as 500m,1,2. [default: 100m to 3500m]", default="", metavar="LIST"
    )
    memory_requests: str = advanced(
        "Memory requests to draw from, such as 1Gi,2Gi. [default: 256Mi to 20Gi]", default="", metavar="LIST"
    )

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


_generated = partial(option, rich_help_panel="Environment")


@dataclass(frozen=True, slots=True)
class GeneratedCluster:
    """The cluster and its Deployments. `None`: not given."""

    node_count: str | None = _generated(
        "deployments, latency: number of nodes; from a range deployments draws one for each episode. "
        "[default: 10 for deployments, 12 for latency]",
        OF_BOTH,
        metavar="N or MIN-MAX",
    )
    node_cpu: str | None = _generated("deployments: CPU of a node. [default: 64]", OF_DEPLOYMENTS)
    node_memory: str | None = _generated("deployments: memory of a node. [default: 256Gi]", OF_DEPLOYMENTS)
    node_pods: int | None = _generated("deployments: pods per node. [default: 110]", OF_DEPLOYMENTS)
    mixed_nodes: bool | None = _generated(
        "deployments: draw other node sizes for each episode, one for all or mixed.", "--mixed-nodes", OF_DEPLOYMENTS
    )
    cpu_load: float | None = _generated(
        "deployments: fill until this share of the CPU is requested, ... [default: 0.5]", OF_DEPLOYMENTS
    )
    memory_load: float | None = _generated("... or this share of the memory, ... [default: 0.5]", OF_DEPLOYMENTS)
    pod_load: float | None = _generated("... or this share of the pods. [default: 0.5]", OF_DEPLOYMENTS)
    replicas: str | None = _generated(
        "deployments: pods of a Deployment [default: 5-15]; latency: the most, from 1 [default: 8]",
        OF_BOTH,
        metavar="MIN-MAX",
    )


def deployments_options(given: Mapping[str, Any], common: Mapping[str, Any]) -> DeploymentsOptions:
    from steersman.envs.deployments import MIXED_SHAPES, DeploymentsOptions
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
    from steersman.envs.latency import LatencyOptions

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
