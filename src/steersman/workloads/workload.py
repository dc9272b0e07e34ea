"""A workload: the nodes of a cluster and the pods to run on it."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from steersman.cluster.gpu_units import mean_milli, requested_milli
from steersman.cluster.model import DisruptionBudget, Node, Pod, Requests, Requirement
from steersman.workloads.files import stem

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from steersman.cluster.account import ClusterAccount
    from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject


@dataclass(frozen=True, slots=True)
class Life:
    """Times of a pod in seconds since 1970; None: it has not happened, or is not known."""

    created: float | None  # when it was submitted
    started: float | None  # when its kubelet began with it
    deleted: float | None = None  # when it will be gone, of a pod that is being deleted


@dataclass(frozen=True, slots=True)
class EndedPod:
    """A pod that succeeded or failed after it had run; times in seconds since 1970.

    It `ended` when its last container did, else its Job, or when it was deleted.
    """

    pod: Pod
    created: float
    started: float
    ended: float


@dataclass(frozen=True, slots=True)
class Lives:
    """Lives of the pods of a source."""

    # By (namespace, name) those of pods that have not ended, with and without a node
    present: Mapping[tuple[str, str], Life] = field(default_factory=dict)
    ended: tuple[EndedPod, ...] = ()  # the others, in order of their end
    untimed: int = 0  # number of pods that have ended and do not say when they ran
    latest: float | None = None  # the latest time that an object of the source states as past, None: no time is stated


FIRST_SEED = 42  # seed of a run, and the first of several, unless another is given


@dataclass(frozen=True, slots=True)
class SpreadSelectors:
    """Selectors for kube-scheduler's default topology spread."""

    # (namespace, labels selected) of Services, and of controllers that select by labels alone
    selectors: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    # (namespace, all requirements) of the other controllers
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
    REPLAYED: they arrive and leave again when they did, as do those that have ended. Pods of DaemonSets and static ones
        run where they are.
    """

    AS_WRITTEN = "as-written"
    FREE = "free"
    PINNED = "pinned"
    FROM_NOW = "from-now"
    REPLAYED = "replayed"


@dataclass(frozen=True, slots=True)
class Recorded:
    """Where a pod ran when its source was written."""

    node: str  # name of the node
    devices: int = 0  # bit mask of the GPU devices that it held there
    # Whether it is part of its node rather than of the demand: it runs there before anything arrives and is never
    # drawn (pods of DaemonSets, static pods, pods that no other node allows or that are being deleted)
    stays: bool = False
    # Whether its node offers less than runs there: it runs there before anything arrives, whatever becomes of other
    # pods, since no scheduler would bind it there
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
        budgets: PodDisruptionBudgets among the objects, by namespace and name.
        lives: when pods were created, began to run and ended, where that was asked for.
        referable: its Kubernetes objects that pods of other sources may refer to, where lives were asked for.
        invalid_nodes: names of nodes that are left out since they make no sense.
    """

    name: str
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    services: SpreadSelectors = field(default_factory=SpreadSelectors)
    warnings: tuple[str, ...] = ()
    recorded: tuple[Recorded | None, ...] = ()
    from_now: bool = False
    understood: str = field(default="", compare=False)
    budgets: tuple[DisruptionBudget, ...] = ()
    lives: Lives = field(default=Lives(), compare=False)
    referable: tuple[KubernetesObject, ...] = field(default=(), compare=False)
    invalid_nodes: tuple[str, ...] = field(default=(), compare=False)

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
    def later(self) -> npt.NDArray[np.bool_]:
        """Return [P] which pods their controllers make once others have ended, see `Pod.at_once`."""
        import numpy as np

        later, made = np.zeros(len(self.pods), dtype=np.bool_), Counter[tuple[str, str]]()
        bounded = {i: pod.at_once for i, pod in enumerate(self.pods) if pod.at_once is not None}
        recorded = self.recorded or (None,) * len(self.pods)
        for i in sorted(bounded, key=lambda i: recorded[i] is None):
            made[self.pods[i].limited_by] += 1
            later[i] = made[self.pods[i].limited_by] > bounded[i]
        return later

    @cached_property
    def running_gangs(self) -> Counter[tuple[str, str]]:
        """Return by namespace and name of a gang how many of its pods run from the start."""
        pods = (self.pods[i] for i in self.standing())
        return Counter((pod.namespace, pod.gang) for pod in pods if pod.gang)

    @cached_property
    def has_limited_controllers(self) -> bool:
        """Whether some controller makes few pods at a time."""
        return any(pod.at_once is not None for pod in self.pods)

    @cached_property
    def has_nominated(self) -> bool:
        """Whether some pod that waits now has a nominated node."""
        return self.from_now and any(pod.nominated for pod in self.pods)

    def drawable(self) -> tuple[int, ...]:
        """Return the demand without the pods that exist later than others of their controllers."""
        every, later = self.demand(), set(self.later.nonzero()[0].tolist())
        return tuple(i for i in every if i not in later) if later else every

    @cached_property
    def fits(self) -> tuple[bool, ...]:
        """Return [P] which pods of Kubernetes objects run or would fit on a node alone; of other sources all count.

        Published experiments draw pods whether they fit or not.
        """
        if not (self.recorded or self.understood):
            return (True,) * len(self.pods)
        from steersman.cluster.state import ClusterState

        state = ClusterState(self.nodes)
        classes = state.class_ids(self.pods).tolist()
        by_class = {c: state.fits_when_empty(c) for c in set(classes)}
        recorded = self.recorded or (None,) * len(self.pods)
        return tuple(where is not None or by_class[c] for c, where in zip(classes, recorded, strict=True))

    @cached_property
    def account(self) -> ClusterAccount:
        """Return which nodes are eligible, since some pod of the demand may enter them, and why others are not.

        The node that a pod runs on says nothing about where it may: pinned pods leave the cluster as large as it is.
        """
        # The command line imports this module at its start, and must not wait for NumPy.
        from steersman.cluster.account import account_of

        runs = [where is not None for where in self.recorded] or [False] * len(self.pods)
        pods = ((self.pods[i].unbound() if runs[i] else self.pods[i]) for i in self.demand())
        return account_of(self.nodes, (pod.constraints for pod in pods), self.invalid_nodes)

    @property
    def eligible(self) -> npt.NDArray[np.bool_]:
        """Return which nodes are eligible, [N]."""
        return self.account.eligible

    @property
    def eligible_nodes(self) -> tuple[Node, ...]:
        """Return the eligible nodes."""
        return self.account.counted

    @property
    def gpu_capacity(self) -> int:
        """Return the GPU milli of the eligible nodes; a slice or a replica is as much of a GPU as it is."""
        return self.account.gpu_milli

    @cached_property
    def gpu_demand(self) -> tuple[int, ...]:
        """Return the GPU milli that each pod requests; of resources that nodes share unequally their mean."""
        means = mean_milli(self.eligible_nodes)
        known: dict[Requests, int] = {}
        for pod in self.pods:
            if pod.requests not in known:
                known[pod.requests] = requested_milli(pod.requests, means)
        return tuple(known[pod.requests] for pod in self.pods)

    @cached_property
    def counted_demand(self) -> tuple[int, ...]:
        """Return the GPU milli by which each pod counts as demand: 0 if it fits on no node, see `fits`."""
        return tuple(milli if fit else 0 for milli, fit in zip(self.gpu_demand, self.fits, strict=True))

    @cached_property
    def recorded_demand(self) -> tuple[int, ...]:
        """Return the GPU milli of the capacity that each pod holds where it ran: 0 on a node that is not eligible."""
        eligible = {node.name for node in self.eligible_nodes}
        return tuple(
            milli if where is not None and where.node in eligible else 0
            for milli, where in zip(self.gpu_demand, self.recorded or (None,) * len(self.pods), strict=True)
        )

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

    def replayed(self) -> Workload:
        """Return the workload with the pods that have ended, and the times that its Kubernetes objects state.

        Times are in seconds from the first pod. A pod leaves after the time for which it ran, once it has started. One
        that is yet to be created arrives at the latest time that the objects state.
        """
        lives, standing = self.lives, set(self.standing())
        present = [lives.present.get((pod.namespace, pod.name), Life(lives.latest, None)) for pod in self.pods]
        coming = (life.created for i, life in enumerate(present) if i not in standing)
        first = min(filter(None, (*(each.created for each in lives.ended), *coming)), default=0.0)
        ended = [
            replace(
                each.pod.unbound(),
                creation_time=each.created - first,
                deletion_time=each.created - first + each.ended - each.started,
            )
            for each in sorted(lives.ended, key=lambda each: each.created)
        ]
        pods = [
            pod if i in standing else _with_times(pod, life, first)
            for i, (pod, life) in enumerate(zip(self.pods, present, strict=True))
        ]
        recorded = (*(None for _ in ended), *self.recorded) if self.recorded else ()
        return replace(self, pods=(*ended, *pods), recorded=recorded)


def _with_times(pod: Pod, life: Life, first: float) -> Pod:
    """Return a pod that has not ended with the times of its life, unless it states others."""
    if pod.creation_time is not None or life.created is None:
        return pod
    created, deleted = life.created - first, None
    if life.deleted is not None:
        deleted = created + max(life.deleted - (life.started or life.created), 0.0)
    return replace(pod, creation_time=created, deletion_time=deleted)


def workload_name(path: str | Path) -> str:
    """Return the name of a pod file or folder in results: without folder and suffix."""
    path = Path(path)
    # A pipe has no name but its path.
    return stem(resolved if (resolved := path.resolve()).exists() else path)
