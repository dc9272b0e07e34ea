"""How the pods of a workload arrive in simulations: --protocol and what belongs to it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from steersman.cli.options.declaring import AssumedValue, RequiresProtocol, Unit, advanced, option
from steersman.core.config.fields import ValueCheck
from steersman.core.quantities import duration_seconds

if TYPE_CHECKING:
    from steersman.cli.output.display import Warnings
    from steersman.workloads.workload import Workload

MAX_RATIO = 100.0
RATIO = 1.3
WITH_WORKLOADS = ("inflation", "arrivals", "timed")
ON_WORKLOADS = RequiresProtocol(*WITH_WORKLOADS)
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
        "--mean-duration",
        parser=duration_seconds,
        metavar="TIME",
    ),
    RequiresProtocol("timed"),
    Unit("s"),
]


@dataclass(frozen=True, slots=True)
class ArrivalOptions:
    """How pods arrive in one protocol."""

    protocol: Annotated[
        Protocol | None,
        option(
            "How pods arrive. inflation: drawn from the trace until they request RATIO times the GPUs, none leaves. "
            "timed: pods arrive and leave by the times in the trace, and wait if they fit nowhere. "
            "arrivals: in the order of the file, none leaves. [default: inflation]"
        ),
        AssumedValue(Protocol.INFLATION),
    ] = None
    ratio: Ratio = None
    load: Annotated[float | None, option(f"timed only: {LOAD_HELP}"), RequiresProtocol("timed"), LOAD_RANGE] = None
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

    protocol: Annotated[
        AnyProtocol | None,
        option(
            "How pods arrive. inflation: drawn from the workload until they request RATIO times the GPUs, none leaves. "
            "timed: pods arrive and leave by the times in the data, and wait if they fit nowhere. "
            "arrivals: in the order of the data, none leaves. deployments: random Deployments fill a cluster, both "
            "drawn by the seed. latency: Deployments arrive and leave on a drawn cluster with telemetry, whose users "
            "have limits of latency. By the data: timed and inflation where pods have times, else inflation and "
            "arrivals. [default: by the data]"
        ),
    ] = None
    ratio: Ratio = None
    load: Annotated[
        list[float] | None,
        advanced(
            f"timed: {LOAD_HELP} Several are compared one by one, with each policy's regret at each of them; "
            "latency: requested share of the CPU [default: 0.6]",
            metavar="LOAD",
        ),
        RequiresProtocol("timed", "latency", is_stated=True),
        LOAD_RANGE,
    ] = None
    mean_duration: MeanDuration = None
