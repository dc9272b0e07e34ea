"""A workload: the nodes of a cluster and the pods to run on it."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from steersman.cluster.gpu_units import gpu_milli, mean_milli, requested_milli
from steersman.cluster.model import Node, Pod, Requests, Requirement
from steersman.workloads.files import stem
from steersman.workloads.lives import NO_LIVES, Lives

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject

FIRST_SEED = 42
"""Seed of a run, and the first of several, unless another is given."""


@dataclass(frozen=True, slots=True)
class SpreadSelectors:
    """Selectors for kube-scheduler's default topology spread.

    Attributes:
        selectors: (namespace, labels selected) of Services, and of controllers that select by labels alone.
        expressions: (namespace, all requirements) of the other controllers.
    """

    selectors: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    expressions: tuple[tuple[str, tuple[Requirement, ...]], ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is anything in it."""
        return len(self) > 0

    def __len__(self) -> int:
        """Return the number of selectors."""
        return len(self.selectors) + len(self.expressions)

    @classmethod
    def union(cls, every: Iterable[Self]) -> Self:
        """Return what any of them selects, each once."""
        result = list(every)
        return cls(
            tuple(dict.fromkeys(each for services in result for each in services.selectors)),
            tuple(dict.fromkeys(each for services in result for each in services.expressions)),
        )


class RunningPods(enum.StrEnum):
    """What to do with pods that run already.

    AS_WRITTEN: nothing is interpreted; `spec.nodeName` is a constraint, pods that are being deleted are included.
    FREE: they are placed again with all others.
    PINNED: they run where they are before others arrive, and pods drawn after them may go to that node alone.
    FROM_NOW: they run where they are before others arrive, and pods drawn after them go anywhere.
    """

    AS_WRITTEN = "as-written"
    FREE = "free"
    PINNED = "pinned"
    FROM_NOW = "from-now"


@dataclass(frozen=True, slots=True)
class Recorded:
    """Where a pod ran when its source was written.

    Attributes:
        node: name of the node.
        devices: bit mask of the GPU devices that it held there.
        stays: whether it is part of its node rather than of the demand: it runs there before anything arrives and is
            never drawn (pods of DaemonSets, static pods, pods that no other node allows or that are being deleted).
        exceeds: whether its node offers less than runs there: it runs there before anything arrives, whatever becomes
            of other pods, since no scheduler would bind it there.
    """

    node: str
    devices: int = 0
    stays: bool = False
    exceeds: bool = False


@dataclass(frozen=True, repr=False)
class Workload:
    """Nodes and pods in the order of their source.

    Attributes:
        name: the pod file's or folder's name without its suffix (`workload` in every result file).
        nodes: names are unique.
        pods: (namespace, name) is unique. A pod with `constraints.node_name` may only go to that node.
        services: selectors of Services, ReplicaSets, StatefulSets and ReplicationControllers among the objects.
        warnings: what a user should know about the input, one line each (never a reason to stop).
        recorded: by pod where it ran, None if it waited; empty if the source records no placement.
        from_now: whether all pods that ran stay where they were and only later pods are placed; else all of them are
            placed from scratch.
        understood: a sentence on how many pods of what kind the source holds; empty for sources of pods alone.
        lives: when pods were created, began to run and ended, where that was asked for.
        referable: its Kubernetes objects that pods of other sources may refer to, where lives were asked for.
    """

    name: str
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    services: SpreadSelectors = field(default_factory=SpreadSelectors)
    warnings: tuple[str, ...] = ()
    recorded: tuple[Recorded | None, ...] = ()
    from_now: bool = False
    understood: str = field(default="", compare=False)
    lives: Lives = field(default=NO_LIVES, compare=False)
    referable: tuple[KubernetesObject, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        """Return its name and how many nodes and pods it has."""
        counts = (len(self.nodes), "node"), (len(self.pods), "pod")
        nodes, pods = (f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts)
        return f"{self.name}: {nodes}, {pods}"

    def standing(self) -> tuple[int, ...]:
        """Return the indices of the pods that run from the start, before anything arrives."""
        return tuple(
            i
            for i, where in enumerate(self.recorded)
            if where is not None and (self.from_now or where.stays or where.exceeds)
        )

    def demand(self) -> tuple[int, ...]:
        """Return the indices of the pods that are the demand: they define the profile and may be drawn again."""
        if not self.recorded:
            return tuple(range(len(self.pods)))
        return tuple(i for i, where in enumerate(self.recorded) if where is None or not where.stays)

    @cached_property
    def eligible(self) -> npt.NDArray[np.bool_]:
        """Return which nodes are eligible, [N]: some pod of the demand may enter them, see `eligible_nodes`.

        The node that a pod runs on says nothing about where it may: pinned pods leave the cluster as large as it is.
        """
        # The command line imports this module at its start, and must not wait for NumPy.
        from steersman.cluster.constraints.node import eligible_nodes

        runs = [where is not None for where in self.recorded] or [False] * len(self.pods)
        pods = ((self.pods[i].unbound() if runs[i] else self.pods[i]) for i in self.demand())
        return eligible_nodes(self.nodes, (pod.constraints for pod in pods))

    @cached_property
    def eligible_nodes(self) -> tuple[Node, ...]:
        """Return the eligible nodes, see `eligible`."""
        return tuple(node for node, counts in zip(self.nodes, self.eligible, strict=True) if counts)

    @cached_property
    def gpu_capacity(self) -> int:
        """Return the GPU milli of the eligible nodes; a slice or a replica is as much of a GPU as it is."""
        return sum(map(gpu_milli, self.eligible_nodes))

    @cached_property
    def gpu_demand(self) -> tuple[int, ...]:
        """Return the GPU milli that each pod requests; of resources that nodes share unequally their mean."""
        means = mean_milli(self.eligible_nodes)
        known: dict[Requests, int] = {}
        for pod in self.pods:
            if pod.requests not in known:
                known[pod.requests] = requested_milli(pod.requests, means)
        return tuple(known[pod.requests] for pod in self.pods)

    def shuffled_nodes(self, random: np.random.Generator) -> npt.NDArray[np.int64]:
        """Return [N] indices of nodes in random order; those that are not eligible come last and change nothing."""
        import numpy as np

        order = random.permutation(len(self.eligible_nodes))
        return np.concatenate([np.flatnonzero(self.eligible)[order], np.flatnonzero(~self.eligible)])

    def unbound(self) -> Workload:
        """Return the workload with all pods unbound: future pods are like the running ones but may go anywhere.

        Only pods that belong to their nodes stay there.
        """
        pods = tuple(replace(pod.unbound(), gpu_devices=()) for pod in self.pods)
        return replace(self, pods=pods, from_now=False)


def workload_name(path: str | Path) -> str:
    """Return the name of a pod file or folder in results: without folder and suffix."""
    return stem(Path(path).resolve())
