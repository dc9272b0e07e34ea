"""The queue of a run: gangs, sizes, estimates and groups of equal pods, as the event loop needs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from steersman.cluster.constraints.inter_pod import AFFINITY, KIND, SPREAD
from steersman.cluster.model import Pod
from steersman.cluster.state import ClusterState
from steersman.core.handles import BELIEF_WEIGHTS, BINS, LEVELS
from steersman.orders import scores
from steersman.orders.order import Order, recurring_owner
from steersman.orders.run_time_history import RunTimeGroup, RunTimeHistory, levels_of
from steersman.policies.decision.description import Arrays
from steersman.simulation.arrivals import Schedule
from steersman.workloads.workload import Workload

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MILLI = 1000.0


@dataclass(frozen=True, eq=False)
class QueueInputs:
    """What a queue needs to know of the pods of a workload, P of them, computed on first use."""

    workload: Workload  # the workload
    state: ClusterState  # its cluster, with the classes and labels of all pods
    class_id: Ints  # [P] class
    past: RunTimeHistory | None = None  # run times of what ended before the run; None: nothing has

    @property
    def by_gpu(self) -> bool:
        """Return whether sizes are in GPUs, else in CPUs."""
        return bool(self.workload.gpu_capacity and any(self.workload.gpu_demand))

    @cached_property
    def capacity(self) -> float:
        """Return the size of the cluster: GPUs, or CPUs where no pod requests a GPU."""
        if self.by_gpu:
            return self.workload.gpu_capacity / MILLI
        return max(sum(node.cpu_milli for node in self.workload.eligible_nodes) / MILLI, 1e-3)

    @cached_property
    def shares(self) -> Floats:
        """Return [P, 3] the shares of the cluster's GPUs, CPUs and memory that each pod requests."""
        pods, nodes = self.workload.pods, self.workload.eligible_nodes
        gpu = np.array(self.workload.gpu_demand, dtype=np.float64) / MILLI
        cpu = np.array([pod.requests.cpu_milli for pod in pods], dtype=np.float64) / MILLI
        memory = np.array([pod.requests.memory_bytes for pod in pods], dtype=np.float64)
        cpus = max(sum(node.cpu_milli for node in nodes) / MILLI, 1e-3)
        total = max(float(sum(node.memory_bytes for node in nodes)), 1.0)
        gpus = self.capacity if self.by_gpu else np.inf
        return np.stack([gpu / gpus, cpu / cpus, memory / total], axis=1)

    @cached_property
    def size(self) -> Floats:
        """Return [P] the dominant share of the cluster that each pod requests, times the cluster's size."""
        # Exact in the unit of the capacity: GPUs, or CPUs.
        main = self.workload.gpu_demand if self.by_gpu else [pod.requests.cpu_milli for pod in self.workload.pods]
        others = self.shares[:, 1:] if self.by_gpu else self.shares[:, 2:]
        return np.asarray(np.maximum(np.array(main, dtype=np.float64) / MILLI, others.max(axis=1) * self.capacity))

    @cached_property
    def lifted(self) -> npt.NDArray[np.bool_]:
        """Return [C] whether another pod's start may lift the refusal of a class: by an affinity or a hard spread."""
        terms = self.state.term_arrays
        kinds = terms.rules[:, KIND]
        lifts = np.concatenate([[0], np.cumsum((kinds == AFFINITY) | (kinds == SPREAD))])
        return np.asarray(np.diff(lifts[terms.rule_start]) > 0)

    @cached_property
    def priority(self) -> Ints:
        """Return [P] the priority of each pod."""
        return np.array([pod.priority for pod in self.workload.pods], dtype=np.int64)

    @cached_property
    def account(self) -> Ints:
        """Return [P] a number for each pod's namespace."""
        return _numbers(pod.namespace for pod in self.workload.pods)

    def kinds(self, *, by_stated: bool) -> RunTimeKinds:
        """Return the pods that are believed to run alike; `by_stated`: by their stated run times, too."""
        return self._kinds_by_stated if by_stated else self._kinds

    @cached_property
    def _kinds(self) -> RunTimeKinds:
        return RunTimeKinds(self.workload.pods, self.past, by_stated=False)

    @cached_property
    def _kinds_by_stated(self) -> RunTimeKinds:
        return RunTimeKinds(self.workload.pods, self.past, by_stated=True)


class RunTimeKinds:
    """Pods of a workload that are believed to run alike, P of them, as `core/src/belief.rs` reads them.

    An owner of one pod, such as a Job, says nothing of others: its series stands for it, or its namespace.

    Attributes:
        of_pod: [P] the kind of each pod.
        arrays: `queue.keys` [K, LEVELS] the groups of each kind, and what is known of the groups.
    """

    def __init__(self, pods: Sequence[Pod], past: RunTimeHistory | None, *, by_stated: bool) -> None:
        times = Counter((pod.namespace, recurring_owner(pod.owner)) for pod in pods)
        numbers: dict[tuple[RunTimeGroup | None, ...], int] = {}
        levels: dict[tuple[object, ...], tuple[RunTimeGroup | None, ...]] = {}
        of_pod = []
        for pod in pods:
            is_owner_known = times[pod.namespace, recurring_owner(pod.owner)] > 1
            # Requests by identity, since their hash takes long; equal ones become one kind below.
            stated = pod.estimated_seconds if by_stated else None
            alike = id(pod.requests), pod.namespace, pod.owner, pod.program, stated, is_owner_known
            if alike not in levels:
                levels[alike] = tuple(levels_of(pod, is_owner_known=is_owner_known, by_stated=by_stated))
            of_pod.append(numbers.setdefault(levels[alike], len(numbers)))
        self.of_pod = np.array(of_pod, dtype=np.int64)
        groups: dict[RunTimeGroup | None, int] = {None: 0}
        rows = [[groups.setdefault(group, len(groups)) for group in kind] for kind in numbers]
        self.arrays = {"queue.keys": np.array(rows, dtype=np.int64).reshape(-1, LEVELS), **_known(list(groups), past)}


def _known(groups: Sequence[RunTimeGroup | None], past: RunTimeHistory | None) -> Arrays:
    """Return what is known of groups, of which the first one is None."""
    counts, last = np.zeros((len(groups) - 1, 2 * BINS)), np.full(len(groups) - 1, -1, dtype=np.int64)
    after, weights = [], np.zeros((0, BELIEF_WEIGHTS))
    if past is not None:
        copy = past.copy()
        weights = copy.weights
        for i, group in enumerate(groups):
            if group is None:
                continue
            for number in copy.rows_of.get(group.encode(), []):
                row = copy.row(number, group)
                if row.after < 0:
                    counts[i - 1], last[i - 1] = copy.counts[number], row.last
                else:
                    after.append(np.concatenate([[i, row.after], copy.counts[number]]))
    return {
        "queue.history": counts,
        "queue.last": last,
        "queue.after": np.array(after).reshape(-1, 2 + 2 * BINS),
        "queue.belief": weights,
    }


@dataclass(frozen=True, eq=False)
class Shapes:
    """What is alike for every node: single pods of a class, and gangs of so many pods of a class.

    Gangs of several classes, and those of which some pods may start later, are shapes of their own.
    """

    of_arrival: Ints  # [A] the shape of an arrival
    together: Ints  # [A] how many pods of an arrival's class must fit at once, at least, so that its gang can start
    # [F, 3] a shape, a class, and how many pods of that must fit at once, at least: every class of every shape. The
    # first ones are single pods of each class.
    needs: Ints
    incomplete: npt.NDArray[np.bool_]  # [S] whether a gang has fewer pods than must start at once


def shapes_of(class_id: Ints, members: Ints, least: Ints, classes: int) -> Shapes:
    """Return the shapes of arrivals of so many classes; arguments as in `Schedule`, [A] each."""
    if (members == 1).all() and (least == 1).all():
        singles = np.arange(classes)
        needs = np.stack([singles, singles, np.ones_like(singles)], axis=1)
        return Shapes(class_id, np.ones_like(class_id), needs, np.zeros(classes, dtype=np.bool_))
    leaders = np.flatnonzero(members)
    sizes, first, minimum = members[leaders], class_id[leaders], least[leaders]
    gang = np.repeat(np.arange(len(leaders)), sizes)
    others = np.bincount(gang, class_id != first[gang], len(leaders)).astype(np.int64)
    together = np.ones(len(class_id), dtype=np.int64)
    together[leaders] = np.maximum(minimum - others, 0)
    is_alike = (others == 0) & (minimum == sizes)
    gangs, special = leaders[is_alike & (sizes > 1)], leaders[~is_alike]
    pairs, where = np.unique(np.stack([class_id[gangs], members[gangs]], axis=1), axis=0, return_inverse=True)
    shape, singles = class_id.copy(), np.arange(classes)
    shape[gangs] = classes + where.reshape(-1)
    shape[special] = classes + len(pairs) + np.arange(len(special))
    # Among any pods of a gang that start at once there are as many of each class, at least.
    of_special = ~is_alike[gang]
    mixed, count = np.unique(
        np.stack([gang[of_special], class_id[of_special]], axis=1).reshape(-1, 2), axis=0, return_counts=True
    )
    needs = np.concatenate(
        [
            np.stack([singles, singles, np.ones_like(singles)], axis=1),
            np.stack([classes + np.arange(len(pairs)), pairs[:, 0], pairs[:, 1]], axis=1),
            np.stack([shape[leaders[mixed[:, 0]]], mixed[:, 1], (minimum - sizes)[mixed[:, 0]] + count], axis=1),
        ]
    )
    is_incomplete = (minimum > sizes)[~is_alike]
    return Shapes(
        of_arrival=shape,
        together=together,
        needs=needs,
        incomplete=np.concatenate([np.zeros(classes + len(pairs), dtype=np.bool_), is_incomplete]),
    )


def queue_of(known: QueueInputs, plan: Schedule, order: Order, shape: Ints, labels_id: Ints, seed: int) -> Arrays:
    """Return the empty queue of a run, as the core reads it (`core/src/queue.rs`): `queue.*`.

    Args:
        known: of the workload.
        shape: [A] from `shapes_of`.
        labels_id: [A] the pods' labels.
        seed: seed of the errors of estimates.
    """
    pods, count = plan.pods, len(plan.pods)
    size, account = known.size[pods], known.account[pods]
    total, leaders = size, np.flatnonzero(plan.members)
    if len(leaders) < count:
        total = size.copy()
        total[leaders] = np.add.reduceat(size, leaders)
    workload_pods = known.workload.pods
    priority = known.priority[pods]
    # Of those that may wait: what stands does not.
    coming = slice(plan.standing, None)
    columns = [priority[coming], shape[coming]]
    rules = known.state.term_arrays
    if len(rules.rules):
        columns.append(labels_id[coming])
    stated, kind = np.full(count, np.nan), np.zeros(count, dtype=np.int64)
    learned = {"queue.keys": np.zeros((0, LEVELS), dtype=np.int64), **_known([None], None)}
    if order.uses_estimates:
        arriving: list[Pod] = [workload_pods[i] for i in pods]
        stated = order.estimates.stated(arriving, plan.duration, seed)
        columns.append(np.unique(stated[coming], return_inverse=True)[1])
        if order.estimates.uses_history:
            kinds = known.kinds(by_stated=order.estimates.source == "history")
            kind, learned = kinds.of_pod[pods], kinds.arrays
            columns.append(kind[coming])
    if order.score == scores.FAIR:
        columns.append(account[coming])
    given = plan.time
    if order.score == scores.GIVEN and not order.follows_age:
        given = order.scores_at_arrival(plan.time, total, [workload_pods[i] for i in pods])
        columns.append(np.unique(given[coming], return_inverse=True)[1])
    elif order.uses_estimates:
        # Scores are functions of size, estimate and age; gangs of a shape may differ in size.
        columns.append(np.unique(total[coming], return_inverse=True)[1])
    # Nobody is queued where pods that do not fit are dropped, unless another pod's start may let them start.
    group = np.zeros(count, dtype=np.int64)
    if plan.waits or known.lifted[known.class_id[pods[coming]]].any():
        group[coming] = _combined([shape[coming], _combined(columns)])
    shape_of = np.zeros(int(group.max(initial=-1)) + 1, dtype=np.int64)
    shape_of[group[coming]] = shape[coming]
    # Where no pod is the next one, nobody asks how long one would keep others waiting.
    foresees = order.commits and order.uses_delay
    return {
        "queue.settings": np.array([order.score, order.overtaking, order.uses_estimates, foresees], dtype=np.int64),
        "queue.limits": np.array([order.ageing, known.capacity, float(known.by_gpu)]),
        "queue.weights": np.array(order.weights, dtype=np.float64),
        "queue.given": np.ascontiguousarray(given),
        "queue.size": size,
        "queue.total": total,
        "queue.account": account,
        "queue.shares": known.shares[pods] if order.score == scores.FAIR else np.zeros((0, 3)),
        "queue.time": plan.time,
        "queue.priority": priority,
        "queue.group": group,
        "queue.shape": shape_of,
        "queue.stated": stated,
        "queue.kind": kind,
        **learned,
    }


def _numbers(values: Iterable[Hashable]) -> Ints:
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], dtype=np.int64)


def _combined(columns: list[Ints]) -> Ints:
    """Return [A] a number for each distinct row of columns, each [A]."""
    result = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, where = np.unique(column, return_inverse=True)
        result = np.unique(result * len(values) + where, return_inverse=True)[1]
    return result.astype(np.int64)
