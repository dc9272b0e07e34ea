"""What pages know of nodes, as columns, and of policies: their looks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from steersman.cluster.gpu_units import counted_milli, device_milli
from steersman.cluster.model import GPU_MILLI, Node, gpu_model
from steersman.evaluation.report.style import DASHES, styles

GROUP_LABELS = {
    "topology.kubernetes.io/zone": "zone",
    "topology.kubernetes.io/rack": "rack",
    "node.kubernetes.io/instance-type": "instance type",
    "karpenter.sh/nodepool": "node pool (Karpenter)",
    "cloud.google.com/gke-nodepool": "node pool (GKE)",
    "eks.amazonaws.com/nodegroup": "node group (EKS)",
    "kubernetes.azure.com/agentpool": "node pool (AKS)",
}
"""Labels by which the page can group nodes, and what they are called there."""


class PolicyLook(msgspec.Struct, kw_only=True):
    """A policy's colours on light and dark pages, and lengths of dashes and gaps of its line; see `style.styles`."""

    light: str
    dark: str
    dash: tuple[int, ...]


def policy_looks(policies: Sequence[str]) -> dict[str, PolicyLook]:
    """Return the looks of the policies of a page, those of reports."""
    return {
        name: PolicyLook(light=style.colour, dark=style.dark, dash=DASHES[style.dash])
        for name, style in styles(policies).items()
    }


class NodeColumns(msgspec.Struct, kw_only=True, rename="camel"):
    """Nodes in the workload's order, [N] each."""

    name: list[str]  # its name
    model: list[str]  # model of its GPUs, "" without one
    gpus: list[int]  # number of GPU devices, which pods hold by their index
    unit: list[float]  # GPUs that each of these devices is: less than 1 of a slice or a replica
    # Number of further GPUs, of which pods hold a number (`gpu_units.counted_milli`); slices are parts
    counted: list[float]
    # `cpu`, `memory`: allocatable milli-CPU and MiB.
    cpu: list[int]
    memory: list[int]
    groups: dict[str, list[str]]  # values of each label of `GROUP_LABELS` that some node has, "" where a node has none


def node_columns(nodes: Sequence[Node]) -> NodeColumns:
    return NodeColumns(
        name=[node.name for node in nodes],
        model=[_model(node) for node in nodes],
        gpus=[node.gpu_count for node in nodes],
        unit=[round(device_milli(node) / GPU_MILLI, 4) for node in nodes],
        counted=[_counted(node) for node in nodes],
        cpu=[node.cpu_milli for node in nodes],
        memory=[node.memory_bytes >> 20 for node in nodes],
        groups={
            name: [node.labels.get(label, "") for node in nodes]
            for label, name in GROUP_LABELS.items()
            if any(label in node.labels for node in nodes)
        },
    )


def _counted(node: Node) -> float:
    """Return the GPUs of a node that have no index."""
    milli = counted_milli(node)
    return round(sum(amount * milli.get(name, 0.0) for name, amount in node.extended) / GPU_MILLI, 3)


def _model(node: Node) -> str:
    if node.gpu_count:
        return node.gpu_model
    return gpu_model(node.labels, counted_milli(node)) or node.gpu_model
