"""Reference of the Python API, from docstrings: functions of `steersman`, and the classes that they take and return."""

from __future__ import annotations

import steersman
from website.docstrings import described

CLASSES = {
    "Results": (
        "steersman.evaluation.evaluation.Evaluation",
        "steersman.simulation.result.RunResult",
        "steersman.training.plans.TrainingResult",
    ),
    "Workloads": (
        "steersman.workloads.workload.Workload",
        "steersman.workloads.workload.RunningPods",
        "steersman.cluster.model.Node",
        "steersman.cluster.model.Pod",
        "steersman.cluster.model.PodClass",
        "steersman.cluster.model.Requests",
        "steersman.live.load.live_cluster.LiveCluster",
    ),
    "Environments": (
        "steersman.envs.deployments.DeploymentsOptions",
        "steersman.workloads.generators.deployments.DeploymentSettings",
        "steersman.envs.workload.WorkloadOptions",
        "steersman.envs.latency.LatencyOptions",
    ),
    "Extensions": (
        "steersman.policies.user_policy.PolicyProtocol",
        "steersman.policies.base.Policy",
        "steersman.objectives.objective.Objective",
        "steersman.workloads.formats.base.WorkloadFormat",
        "steersman.workloads.formats.base.FormatContent",
        "steersman.agents.registry.AlgorithmSpec",
        "steersman.policies.networks.NetworkSpec",
    ),
    "Errors": (
        "steersman.core.errors.SteersmanError",
        "steersman.core.errors.UsageError",
        "steersman.core.errors.InputError",
        "steersman.core.extras.MissingExtraError",
    ),
}
"""Classes by the title of their section."""


def page() -> str:
    """Return the page."""
    names = [name for name in steersman.__all__ if not name.startswith("_")]
    parts = [
        "# Python API",
        "Every function of `steersman` with its arguments; [From Python](python.md) shows them at work. "
        "The modules of classes are below their names.",
        "## Functions",
        *(described(f"steersman.api.{name}", 3, f"steersman.{name}") for name in names),
    ]
    for title, paths in CLASSES.items():
        parts += [f"## {title}", *(described(path, 3) for path in paths)]
    return "\n\n".join(parts) + "\n"
