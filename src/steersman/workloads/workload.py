"""A workload: the nodes of a cluster and the pods that want to run on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from steersman.cluster.model import Node, Pod

SUFFIXES = (".csv.gz", ".csv", ".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Services:
    """What kube-scheduler's default topology spread looks up: (namespace, labels selected) of Services and the like."""

    selectors: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """Nodes and pods in the order of their source.

    Attributes:
        name: the pod file's or folder's name without its suffix (`workload` in every result file).
        nodes: names are unique.
        pods: (namespace, name) is unique. A pod with `constraints.node_name` may only go to that node.
        services: selectors of Services, ReplicaSets, StatefulSets and ReplicationControllers among the objects.
        warnings: what a user should know about the input, one line each (never a reason to stop).
    """

    name: str
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    services: Services = field(default_factory=Services)
    warnings: tuple[str, ...] = ()


def workload_name(path: str | Path) -> str:
    """The name of a pod file or folder in results: without folder and suffix."""
    name = Path(path).resolve().name
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return name
