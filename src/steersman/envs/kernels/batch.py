"""A batch of runs: the arrays of the event loop with a leading axis E, and one run's slices of them.

Kernels look at the slices as at a run of its own, so that they share every function with `simulation.engine`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays
from steersman.cluster.terms import TermArrays
from steersman.compiled import inner
from steersman.objectives.fragmentation import FragmentArrays
from steersman.policies.afterstates import Afterstates
from steersman.policies.deciding import Cluster
from steersman.policies.encoding import OwnerArrays, Scene
from steersman.policies.gpu_features import Scratch
from steersman.policies.kube_arrays import KubeArrays
from steersman.policies.learned import LearnedArrays
from steersman.policies.outlook_tables import OutlookTables
from steersman.policies.showing import Rows
from steersman.policies.table import TableArrays
from steersman.simulation.engine import Arrivals, Record, Run
from steersman.workloads.mix import MixArrays

# Columns of `Batch.counts`: arrivals of the run, nodes of its cluster, steps taken and allowed, events of the record
# that were looked at, whether the last action was illegal.
ARRIVALS, NODES, STEPS, STEP_LIMIT, FOLLOWED, ILLEGAL = range(6)
COUNTS = 6
# Columns of `Batch.clock`: the time up to which waiting was counted, and how many waited then.
TIME, WAITED_FOR = range(2)
# Rows of `Batch.summary`: the state at the decision that is to be made; before and after the last action.
NOW, BEFORE, AFTER = range(3)


class Kept(NamedTuple):
    """What is kept from decision to decision to be quick; nothing is lost if it is forgotten.

    Attributes:
        rows: [E, ...] local features of every class on every node.
        known: the fragmentation of states that were met, [S, ...] for all runs; of `mark` [E, 2].
    """

    rows: Rows
    known: Afterstates


class Batch(NamedTuple):
    """E runs; the arrays of `engine` and others with a leading axis, padded to the largest run.

    Attributes:
        log: [E, L] slots of changed nodes, in order.
        logged: [E, 1] how much of `log` is written.
        owner: [E, A] owner of each arriving pod, -1: none.
        counts: [E, 6] int64, see ARRIVALS...
        outlook, room: of view `gpu`; of no pods in another.
        clock: [E, 2] float64, see TIME...
        summary: [E, 3, 15] float64, see NOW..., and `objectives.summary`.
    """

    nodes: NodeArrays
    classes: ClassArrays
    terms: TermArrays
    mix: MixArrays
    fragments: FragmentArrays
    outlook: OutlookTables
    room: Scratch
    arrivals: Arrivals
    run: Run
    record: Record
    owners: OwnerArrays
    log: npt.NDArray[np.int64]
    logged: npt.NDArray[np.int64]
    owner: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    clock: npt.NDArray[np.float64]
    summary: npt.NDArray[np.float64]


class Nothing(NamedTuple):
    """Empty arrays to stand where the event loop could have used others; every array passed costs time."""

    integers: npt.NDArray[np.int64]
    floats: npt.NDArray[np.float64]
    flags: npt.NDArray[np.bool_]
    keys: npt.NDArray[np.uint64]
    matrix: npt.NDArray[np.float64]
    integer_matrix: npt.NDArray[np.int64]
    key_matrix: npt.NDArray[np.uint64]
    single_matrix: npt.NDArray[np.float32]


class Task(NamedTuple):
    """What is the same for all runs of a batch.

    Attributes:
        none: stands for the score table, kube-default's arrays and a learned policy's, since none is used.
        objectives, weights: [K] the reward.
        view_number: which view.
        waits: whether pods that fit nowhere wait.
        penalty: what an illegal action costs.
    """

    none: Nothing
    objectives: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    view_number: int
    waits: bool
    penalty: float


def nothing() -> Nothing:
    """Empty arrays."""
    return Nothing(
        integers=np.zeros(0, dtype=np.int64),
        floats=np.zeros(0),
        flags=np.zeros(0, dtype=np.bool_),
        keys=np.zeros(0, dtype=np.uint64),
        matrix=np.zeros((0, 0)),
        integer_matrix=np.zeros((0, 0), dtype=np.int64),
        key_matrix=np.zeros((0, 0), dtype=np.uint64),
        single_matrix=np.zeros((0, 0), dtype=np.float32),
    )


@inner
def nodes_of(b: NodeArrays, e: int) -> NodeArrays:
    """The nodes of run `e`."""
    return NodeArrays(
        b.allocatable[e], b.free[e], b.nonzero[e], b.gpu_count[e], b.gpu_free[e], b.gpu_model[e], b.gpu_kinds[e]
    )


@inner
def classes_of(b: ClassArrays, e: int) -> ClassArrays:
    """What pods of run `e` ask for."""
    return ClassArrays(
        b.request[e], b.nonzero[e], b.gpu_count[e], b.gpu_milli[e], b.gpu_column[e], b.constraint[e], b.allowed[e]
    )


@inner
def terms_of(b: TermArrays, e: int) -> TermArrays:
    """What pods of run `e` demand of others."""
    return TermArrays(
        b.rules[e],
        b.rule_start[e],
        b.matches[e],
        b.matched[e],
        b.owned_terms[e],
        b.owned[e],
        b.owned_total[e],
        b.port_conflicts[e],
        b.ports[e],
        b.domain[e],
        b.domains[e],
        b.included[e],
        b.scratch[e],
    )


@inner
def mix_of(b: MixArrays, e: int) -> MixArrays:
    """The typical pods of run `e`."""
    return MixArrays(b.cpu[e], b.gpu_count[e], b.milli[e], b.value[e], b.accepts[e], b.share[e])


@inner
def fragments_of(b: FragmentArrays, e: int) -> FragmentArrays:
    """The fragmentation of run `e`."""
    return FragmentArrays(b.total[e], b.causes[e], b.usable[e], b.wasted[e])


@inner
def _outlook(b: OutlookTables, e: int) -> OutlookTables:
    return OutlookTables(
        b.by_left[e],
        b.counts[e],
        b.order[e],
        b.start[e],
        b.pods_per_cpu[e],
        b.steps[e],
        b.model[e],
        b.ratios[e],
        b.least[e],
    )


@inner
def scene_of(batch: Batch, known: Afterstates, e: int) -> Scene:
    """What local features of run `e` depend on."""
    return Scene(
        nodes_of(batch.nodes, e),
        classes_of(batch.classes, e),
        mix_of(batch.mix, e),
        fragments_of(batch.fragments, e),
        Afterstates(known.states, known.keys, known.mark[e]),
        _outlook(batch.outlook, e),
        Scratch(batch.room.amounts[e]),
    )


@inner
def _table(none: Nothing, log: npt.NDArray[np.int64], logged: npt.NDArray[np.int64]) -> TableArrays:
    """The table of nobody's scores; the log of changed nodes is all that is used of it."""
    i, f = none.integers, none.floats
    return TableArrays(none.matrix, none.matrix, i, i, log, logged, i, i, i, f, none.matrix, f)


@inner
def _kube(none: Nothing) -> KubeArrays:
    """What kube-default would know; it is not asked."""
    i, m, f = none.integers, none.integer_matrix, none.floats
    return KubeArrays(0, 0, 0, 0, i, m, m, i, m, f, i, i, i, m, none.flags, i, f, m)


@inner
def _learned(batch: Batch, none: Nothing, e: int) -> LearnedArrays:
    """What a learned policy would know; it is not asked."""
    i, f, k, m = none.integers, none.floats, none.keys, none.matrix
    outlook, room = _outlook(batch.outlook, e), Scratch(batch.room.amounts[e])
    return LearnedArrays(outlook, m, m, none.key_matrix, k, none.single_matrix, f, k, m, m, f, i, m, m, room)


@inner
def cluster_of(batch: Batch, task: Task, e: int) -> Cluster:
    """Everything that a decision of run `e` reads."""
    return Cluster(
        nodes_of(batch.nodes, e),
        classes_of(batch.classes, e),
        terms_of(batch.terms, e),
        mix_of(batch.mix, e),
        fragments_of(batch.fragments, e),
        _table(task.none, batch.log[e], batch.logged[e]),
        _kube(task.none),
        _learned(batch, task.none, e),
    )


@inner
def rows_of(b: Rows, e: int) -> Rows:
    """What is kept of run `e`."""
    return Rows(b.features[e], b.fit[e], b.seen[e], b.stamp[e], b.stamps[e])


@inner
def arrivals_of(batch: Batch, e: int) -> Arrivals:
    """The pods of run `e`."""
    b, count = batch.arrivals, batch.counts[e, ARRIVALS]
    return Arrivals(
        b.class_id[e, :count], b.labels_id[e, :count], b.time[e, :count], b.duration[e, :count], b.priority[e, :count]
    )


@inner
def run_of(b: Run, e: int) -> Run:
    """Where run `e` stands."""
    return Run(
        b.cursor[e],
        b.question[e],
        b.sums[e],
        b.slot[e],
        b.devices[e],
        b.heap[e],
        b.leaves[e],
        b.queue[e],
        b.hopeless[e],
        b.stuck[e],
        b.mask[e],
        b.rng[e],
    )


@inner
def record_of(b: Record, e: int) -> Record:
    """What happened in run `e`."""
    return Record(b.time[e], b.numbers[e], b.sums[e], b.reasons[e], b.codes[e], b.counts[e], b.counted[e])


@inner
def owners_of(b: OwnerArrays, e: int) -> OwnerArrays:
    """Where pods of owners are in run `e`."""
    return OwnerArrays(b.rack[e], b.running[e], b.on_node[e], b.in_rack[e])
