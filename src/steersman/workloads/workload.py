"""A workload: the nodes of a cluster and the pods that want to run on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from steersman.cluster.model import Node, Pod, Requirement

SUFFIXES = (".csv.gz", ".csv", ".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Services:
    """What kube-scheduler's default topology spread looks up: what selects pods to be spread.

    Attributes:
        selectors: (namespace, labels selected) of Services, and of controllers that select by labels alone.
        expressions: (namespace, all requirements) of the other controllers.
    """

    selectors: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    expressions: tuple[tuple[str, tuple[Requirement, ...]], ...] = ()

    def __bool__(self) -> bool:
        return len(self) > 0

    def __len__(self) -> int:
        return len(self.selectors) + len(self.expressions)

    @classmethod
    def union(cls, every: Iterable[Self]) -> Self:
        """What any of them selects, each once."""
        found = list(every)
        return cls(
            tuple(dict.fromkeys(each for services in found for each in services.selectors)),
            tuple(dict.fromkeys(each for services in found for each in services.expressions)),
        )


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

    def unbound(self) -> Workload:
        """Return the same with pods that are on no node yet: what is to come is like what runs, but may go anywhere."""
        return replace(self, pods=tuple(replace(pod.unbound(), gpu_devices=()) for pod in self.pods))


def workload_name(path: str | Path) -> str:
    """The name of a pod file or folder in results: without folder and suffix."""
    name = Path(path).resolve().name
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return name
