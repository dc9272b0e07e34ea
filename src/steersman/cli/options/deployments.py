"""Options of commands that draw random Deployments: `workload generate` for files, `workload run` on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from steersman.cli.options.declaring import option
from steersman.core.errors import UsageError

if TYPE_CHECKING:
    from steersman.workloads.generators.deployments import DeploymentSettings

Interval = Annotated[float, option("Seconds from one Deployment to the next.")]
Wait = Annotated[float, option("Seconds before the cluster is cleared, and after it.")]


@dataclass(frozen=True, slots=True)
class FillingOptions:
    """How random Deployments fill a cluster."""

    cpu_load: Annotated[float, option("Fill until this share of the CPU is requested, ...")] = 0.5
    memory_load: Annotated[float, option("... or this share of the memory, ...")] = 0.5
    pod_load: Annotated[float, option("... or this share of the pods, whichever comes first.")] = 0.5
    cluster_resets: Annotated[
        int, option("Number of fillings: fill, wait, clear.", "--cluster-resets", "--resets", min=1)
    ] = 1
    interval: Interval = 10.0
    wait: Wait = 60.0
    replicas: Annotated[str, option("Pods of a Deployment.", metavar="MIN-MAX")] = "5-15"
    cpu_requests: Annotated[
        str, option("CPU requests to draw from, such as 500m,1,2. [default: 100m to 3500m]", metavar="LIST")
    ] = ""
    memory_requests: Annotated[
        str, option("Memory requests to draw from, such as 1Gi,2Gi. [default: 256Mi to 20Gi]", metavar="LIST")
    ] = ""

    @property
    def settings(self) -> DeploymentSettings:
        """Return the settings of the generator. Raises UsageError: one is out of range."""
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
