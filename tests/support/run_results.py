"""Run results made by hand, for tests of what comes after the simulator."""

import base64
import gzip
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from steersman.cluster.model import Pod, PodClass, Requests
from steersman.evaluation.experiment import Experiment
from steersman.simulation.measures import BY_CAUSE
from steersman.simulation.result import Curve, FinalNodes, Metric, Placements, RunResult
from steersman.workloads.workload import Workload

POINTS = 131
EXPERIMENT = Experiment((Workload("default", (), (Pod("pod", PodClass(Requests())),)),), ("fgd",), (42,))
"""Of reports, whose runs need not be its runs."""


def made_run(
    policy: str = "fgd",
    seed: int = 42,
    *,
    allocation: float = 95.0,
    workload: str = "default",
    protocol: str = "inflation",
    gpus: Sequence[int] = (8, 8, 0, 4),
    cpu: float = 80.0,
    failed: float = 12.0,
    metrics: Sequence[Metric] = (),
    placements: Placements | None = None,
) -> RunResult:
    """A run whose GPU allocation rises with the arrivals and ends at `allocation`."""
    x = np.arange(POINTS, dtype=np.float64)
    rising = np.minimum(x, allocation) if gpus else np.full(POINTS, np.nan)
    idle = 100 - rising
    causes = np.outer([0.1, 0.2, 0.1, 0.05, 0.05, 0.0], idle)
    measured = {
        "gpu_allocation_percent": rising,
        "cpu_allocation_percent": np.minimum(x, cpu),
        "memory_allocation_percent": np.minimum(x, 60.0),
        "gpu_fragmented_of_idle_percent": np.where(x > 90, 99.0, 15.0) if gpus else np.full(POINTS, np.nan),
        "gpu_fragmented_percent": causes.sum(axis=0),
        **dict(zip(BY_CAUSE, causes, strict=True)),
        "gpu_balance_percent": idle / 3,
        "cpu_balance_percent": idle / 4,
        "nodes_used": np.minimum(x, len(gpus)),
        "pods_waiting": np.maximum(x - allocation, 0),
    }
    count = np.array(gpus, dtype=np.int64)
    share = np.where(count > 0, np.linspace(1, 0, len(count)), np.nan)
    nodes = FinalNodes(
        names=tuple(f"node-{i}" for i in range(len(count))),
        gpu_model=tuple("T4" if n == 4 else "V100" if n else "" for n in count),
        gpu_count=count,
        gpu_used_share=share,
        cpu_used_share=np.linspace(1, 0, len(count)),
    )
    standard = (
        Metric("gpu_allocation_percent", "percent", allocation if gpus else float("nan")),
        Metric("cpu_allocation_percent", "percent", cpu),
        Metric("pods_failed", "pods", failed),
    )
    return RunResult(
        workload=workload,
        policy=policy,
        seed=seed,
        protocol=protocol,  # type: ignore[arg-type]
        curve=Curve(x, measured),
        metrics=(*standard, *metrics),
        final_nodes=nodes,
        placements=placements,
    )


def made_experiment(
    ends: dict[str, Sequence[float]], *, workloads: Sequence[str] = ("default",), protocol: str = "inflation"
) -> list[RunResult]:
    """Runs whose allocation ends at `ends[policy][i]` for seed 42 + i, on every workload."""
    return [
        made_run(policy, 42 + i, allocation=end, workload=workload, protocol=protocol)
        for workload in workloads
        for policy, of_policy in ends.items()
        for i, end in enumerate(of_policy)
    ]


def figures_in(report: str) -> dict[str, Any]:
    """The figures that the text of a report draws, by the ids of their places."""
    (packed,) = re.findall(r'<script type="application/gzip" id="figures">(.*?)</script>', report, re.DOTALL)
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed)))
    return found
