"""A batch of runs: the arrays of the event loop with a leading axis E, and slices of one run.

Kernels treat the slices as a run of its own, so that they share every function with `simulation.engine`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays
from steersman.cluster.constraints.inter_pod import InterPodArrays
from steersman.core.compiled import inlined_kernel
from steersman.objectives.fragmentation import FragmentArrays
from steersman.orders.estimates import RunTimeHistory
from steersman.orders.queue import QueueArrays
from steersman.orders.reservations import ReservationArrays
from steersman.policies.decision.kernels import DecisionState
from steersman.policies.decision.score_table import ScoreTable
from steersman.policies.gpu_state.arrays import LearnedArrays
from steersman.policies.gpu_state.fragmentation_cache import FragmentationCache
from steersman.policies.gpu_state.gpu_features import Scratch
from steersman.policies.gpu_state.leftover_tables import LeftoverTables
from steersman.policies.node_scores.kube_arrays import KubeArrays
from steersman.policies.node_scores.scored_resources import ScoredResources
from steersman.policies.observations.encoding import EncodingContext, OwnerArrays
from steersman.policies.observations.kernels import FeatureCache
from steersman.simulation.event_arrays import Arrivals, EventRecord, Run
from steersman.workloads.profile import ProfileArrays

# Columns of `Batch.counts`: arrivals of the run, nodes of its cluster, steps taken and allowed, events of the record
# that were followed, whether the last action was illegal.
ARRIVALS, NODES, STEPS, STEP_LIMIT, FOLLOWED, ILLEGAL = range(6)
COUNTS = 6
# Columns of `Batch.clock`: the time up to which waiting was counted, and how many waited then.
TIME, WAITED_FOR = range(2)


class StepCache(NamedTuple):
    """Caches between decisions; forgetting them changes no result.

    Attributes:
        rows: [E, ...] local features of every class on every node.
        known: fragmentation of states met before, [S, ...] for all runs; of `mark` [E, 2].
    """

    rows: FeatureCache
    known: FragmentationCache


class Batch(NamedTuple):
    """E runs; the arrays of `engine` and others with a leading axis, padded to the largest run.

    Attributes:
        log: [E, L] slots of changed nodes, in order.
        logged: [E, 2] length of the log, and how often it was emptied.
        owner: [E, A] owner of each arriving pod, -1: none.
        counts: [E, 6] int64, see ARRIVALS...
        leftovers, room: of view `gpu`; of no pods in another.
        clock: [E, 2] float64, see TIME...
        summary: [E, 3, 16] float64, see `envs.observation`, and `objectives.summary`.
    """

    nodes: NodeArrays
    classes: ClassArrays
    terms: InterPodArrays
    profile: ProfileArrays
    fragments: FragmentArrays
    leftovers: LeftoverTables
    room: Scratch
    arrivals: Arrivals
    run: Run
    record: EventRecord
    owners: OwnerArrays
    log: npt.NDArray[np.int64]
    logged: npt.NDArray[np.int64]
    owner: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    clock: npt.NDArray[np.float64]
    summary: npt.NDArray[np.float64]


class EmptyArrays(NamedTuple):
    """Empty arrays in place of those that the event loop does not use here; every array passed costs time."""

    integers: npt.NDArray[np.int64]
    floats: npt.NDArray[np.float64]
    flags: npt.NDArray[np.bool_]
    keys: npt.NDArray[np.uint64]
    flag_matrix: npt.NDArray[np.bool_]
    matrix: npt.NDArray[np.float64]
    integer_matrix: npt.NDArray[np.int64]
    key_matrix: npt.NDArray[np.uint64]
    single_matrix: npt.NDArray[np.float32]


class BatchConfig(NamedTuple):
    """What all runs of a batch share.

    Attributes:
        none: in place of the score table, kube-default's arrays and a learned policy's, none of which is used.
        objectives, weights: [K] the reward.
        view_number: number of the view.
        waits: whether pods that fit nowhere wait.
        penalty: cost of an illegal action.
    """

    none: EmptyArrays
    objectives: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    view_number: int
    waits: bool
    penalty: float


def empty_arrays() -> EmptyArrays:
    return EmptyArrays(
        integers=np.zeros(0, dtype=np.int64),
        floats=np.zeros(0),
        flags=np.zeros(0, dtype=np.bool_),
        keys=np.zeros(0, dtype=np.uint64),
        flag_matrix=np.zeros((0, 0), dtype=np.bool_),
        matrix=np.zeros((0, 0)),
        integer_matrix=np.zeros((0, 0), dtype=np.int64),
        key_matrix=np.zeros((0, 0), dtype=np.uint64),
        single_matrix=np.zeros((0, 0), dtype=np.float32),
    )


@inlined_kernel
def nodes_of(b: NodeArrays, e: int) -> NodeArrays:
    return NodeArrays(
        b.allocatable[e], b.free[e], b.nonzero[e], b.gpu_count[e], b.gpu_free[e], b.gpu_model[e], b.gpu_kinds[e]
    )


@inlined_kernel
def classes_of(b: ClassArrays, e: int) -> ClassArrays:
    return ClassArrays(
        b.request[e], b.nonzero[e], b.gpu_count[e], b.gpu_milli[e], b.gpu_column[e], b.constraint[e], b.allowed[e]
    )


@inlined_kernel
def terms_of(b: InterPodArrays, e: int) -> InterPodArrays:
    return InterPodArrays(
        b.rules[e],
        b.rule_start[e],
        b.matches[e],
        b.matched[e],
        b.owned_terms[e],
        b.owned[e],
        b.owned_total[e],
        b.conflicts[e],
        b.held[e],
        b.domain[e],
        b.domains[e],
        b.included[e],
        b.scratch[e],
    )


@inlined_kernel
def profile_of(b: ProfileArrays, e: int) -> ProfileArrays:
    """Return the typical pods of run `e`."""
    return ProfileArrays(b.cpu[e], b.gpu_count[e], b.milli[e], b.value[e], b.accepts[e], b.share[e])


@inlined_kernel
def fragments_of(b: FragmentArrays, e: int) -> FragmentArrays:
    return FragmentArrays(b.total[e], b.causes[e], b.usable[e], b.wasted[e])


@inlined_kernel
def _leftovers(b: LeftoverTables, e: int) -> LeftoverTables:
    return LeftoverTables(b.by_left[e], b.steps[e], b.ratios[e], b.least[e])


@inlined_kernel
def scene_of(batch: Batch, known: FragmentationCache, e: int) -> EncodingContext:
    """Return the inputs of local features of run `e`."""
    return EncodingContext(
        nodes_of(batch.nodes, e),
        classes_of(batch.classes, e),
        profile_of(batch.profile, e),
        fragments_of(batch.fragments, e),
        # One cache for all runs: the hash includes `mark`, so that runs of other profiles do not collide.
        FragmentationCache(known.states, known.keys, known.mark[e]),
        _leftovers(batch.leftovers, e),
        Scratch(batch.room.amounts[e]),
    )


@inlined_kernel
def _table(none: EmptyArrays, log: npt.NDArray[np.int64], logged: npt.NDArray[np.int64]) -> ScoreTable:
    """Return a score table without scores; only its log of changed nodes is used."""
    i, f = none.integers, none.floats
    return ScoreTable(none.matrix, none.matrix, i, i, log, logged, i, i, i, f, none.matrix, f)


@inlined_kernel
def _kube(none: EmptyArrays) -> KubeArrays:
    """Return empty arrays of kube-default, which is not asked."""
    i, m, f, flags = none.integers, none.integer_matrix, none.floats, none.flag_matrix
    scored = ScoredResources(0, 0, False, m, flags, flags, m)
    return KubeArrays(0, 0, False, i, scored, 0, 0, i, m, m, i, m, f, i, i, i, i, m, none.flags, i, f, m)


@inlined_kernel
def _learned(batch: Batch, none: EmptyArrays, e: int) -> LearnedArrays:
    """Return empty arrays of a learned policy, which is not asked."""
    i, f, k, m = none.integers, none.floats, none.keys, none.matrix
    leftovers, room = _leftovers(batch.leftovers, e), Scratch(batch.room.amounts[e])
    return LearnedArrays(leftovers, m, m, none.key_matrix, k, none.single_matrix, f, k, m, m, f, i, m, m, room)


@inlined_kernel
def cluster_of(batch: Batch, task: BatchConfig, e: int) -> DecisionState:
    """Return everything that a decision of run `e` reads."""
    return DecisionState(
        nodes_of(batch.nodes, e),
        classes_of(batch.classes, e),
        terms_of(batch.terms, e),
        profile_of(batch.profile, e),
        fragments_of(batch.fragments, e),
        _table(task.none, batch.log[e], batch.logged[e]),
        _kube(task.none),
        _learned(batch, task.none, e),
    )


@inlined_kernel
def rows_of(b: FeatureCache, e: int) -> FeatureCache:
    return FeatureCache(b.features[e], b.fit[e], b.log_position[e], b.stamp[e], b.stamps[e])


@inlined_kernel
def arrivals_of(batch: Batch, e: int) -> Arrivals:
    """Return the pods of run `e`."""
    b, count = batch.arrivals, batch.counts[e, ARRIVALS]
    # The arrays are padded to the longest run; the event loop takes their length as the number of arrivals.
    return Arrivals(
        b.class_id[e, :count],
        b.labels_id[e, :count],
        b.time[e, :count],
        b.duration[e, :count],
        b.priority[e, :count],
        b.members[e, :count],
        b.least[e, :count],
        b.together[e, :count],
        b.shape[e, :count],
        b.controller[e, :count],
        b.following[e, :count],
    )


@inlined_kernel
def _queue(b: QueueArrays, e: int) -> QueueArrays:
    h = b.history
    return QueueArrays(
        b.settings[e],
        b.limits[e],
        b.weights[e],
        b.counts[e],
        b.given[e],
        b.size[e],
        b.total[e],
        b.account[e],
        b.shares[e],
        b.usage[e],
        b.estimated[e],
        b.time[e],
        b.priority[e],
        b.group[e],
        b.following[e],
        b.first[e],
        b.last[e],
        b.shape[e],
        b.begins[e],
        b.active_groups[e],
        b.shapes[e],
        b.shape_place[e],
        b.active[e],
        b.place[e],
        b.heap[e],
        b.may_start[e],
        b.scores[e],
        b.stated[e],
        b.keys[e],
        RunTimeHistory(h.counts[e], h.ended[e], h.estimates[e], h.buffer[e]),
        b.ends[e],
        b.freed[e],
    )


@inlined_kernel
def _reservation(b: ReservationArrays, e: int) -> ReservationArrays:
    return ReservationArrays(
        b.state[e], b.begins[e], b.expected[e], b.ends[e], b.pods[e], b.slots[e], b.opened[e], b.free[e], b.gpu_free[e]
    )


@inlined_kernel
def run_of(b: Run, e: int) -> Run:
    """Return the state of run `e`."""
    return Run(
        b.cursor[e],
        b.question[e],
        b.sums[e],
        b.slot[e],
        b.devices[e],
        b.heap[e],
        b.leaves[e],
        b.started[e],
        _queue(b.queue, e),
        _reservation(b.reservation, e),
        b.infeasible[e],
        b.lifted[e],
        b.infeasible_in_pass[e],
        b.infeasible_beside[e],
        b.mask[e],
        # Padding would nominate nodes for pods.
        b.fitting[e, :0],
        b.nominated[e, :0],
        b.room[e],
        b.eligible[e],
        b.rng[e],
    )


@inlined_kernel
def record_of(b: EventRecord, e: int) -> EventRecord:
    return EventRecord(b.time[e], b.numbers[e], b.sums[e], b.reasons[e])


@inlined_kernel
def owners_of(b: OwnerArrays, e: int) -> OwnerArrays:
    """Return the locations of owners' pods in run `e`."""
    return OwnerArrays(b.rack[e], b.running[e], b.on_node[e], b.in_rack[e])
