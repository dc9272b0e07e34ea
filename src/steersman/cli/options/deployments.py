"""Options of commands that draw random Deployments: `workload generate` for files, `workload run` on a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from steersman.core.errors import UsageError

CpuLoad = Annotated[float, typer.Option(help="Fill until this share of the CPU is requested, ...")]
MemoryLoad = Annotated[float, typer.Option(help="... or this share of the memory, ...")]
PodLoad = Annotated[float, typer.Option(help="... or this share of the pods, whichever comes first.")]
Resets = Annotated[
    int, typer.Option("--cluster-resets", "--resets", min=1, help="Number of fillings: fill, wait, clear.")
]
Interval = Annotated[float, typer.Option(help="Seconds from one Deployment to the next.")]
Wait = Annotated[float, typer.Option(help="Seconds before the cluster is cleared, and after it.")]
Replicas = Annotated[str, typer.Option(metavar="MIN-MAX", help="Pods of a Deployment.")]
CpuRequests = Annotated[
    str,
    typer.Option(metavar="LIST", help="CPU requests to draw from, such as 500m,1,2. [default: 100m to 3500m]"),
]
MemoryRequests = Annotated[
    str,
    typer.Option(metavar="LIST", help="Memory requests to draw from, such as 1Gi,2Gi. [default: 256Mi to 20Gi]"),
]


def parse_range(option: str, text: str) -> tuple[int, int]:
    """Return the ends of an option's `5-15`; `5` is both. Raises UsageError."""
    low, dash, high = text.partition("-")
    ends = (low.strip(), high.strip() if dash else low.strip())
    if not all(end.isascii() and end.isdigit() and len(end) < 10 for end in ends):
        raise UsageError(f"{option} {text}: write a range such as 5-15")
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
            result[f"{name}_limits"] = (*getattr(DeploymentSettings(), f"{name}_limits"), *values)
    return result
