"""Steps of a batch of clusters that are filled with random Deployments, compiled, as AAML's load generator does.

It draws as `workloads.generators.deployments.generate` does, pod by pod: another Deployment while every load is below
its target; everything is cleared when one is reached. There is no clock, and nothing waits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, PODS, ClassArrays, NodeArrays, fits, place
from steersman.core.compiled import inlined_kernel, kernel
from steersman.envs.observation import AFTER, BEFORE, NOW, Observation, StepResults, attempt, observation_of
from steersman.objectives import summary as state
from steersman.objectives.fragmentation import FragmentArrays
from steersman.objectives.measures import weighted
from steersman.policies.decision.kernels import random_below
from steersman.policies.gpu_state.fragmentation_cache import FragmentationCache
from steersman.policies.gpu_state.gpu_features import Scratch
from steersman.policies.gpu_state.leftover_tables import LeftoverTables
from steersman.policies.node_scores.local_scores import local_score
from steersman.policies.observations.encoding import (
    EncodingContext,
    ObservedCluster,
    OwnerArrays,
    count_owner,
    encode_context,
    encode_node,
    share_nearby,
)
from steersman.policies.observations.kernels import write_shared_features, write_terminal_observation
from steersman.workloads.profile import ProfileArrays

# Columns of `FillState.counts`: nodes, class of the Deployment under way, its pods to come, fillings done, steps taken,
# whether the last action was illegal, pods bound and dropped in this episode, pods that this filling would have if none
# had been dropped, their CPU and memory.
NODES, CLASS, LEFT, FILLED, STEPS, ILLEGAL, BOUND, DROPPED, PODS_WANTED, CPU_WANTED, MEMORY_WANTED = range(11)
COUNTS = 11

ONLY = 0  # the one owner that counts: the Deployment under way


class FillState(NamedTuple):
    """E clusters, padded to N nodes.

    Attributes:
        nodes: [E, N, ...], see `NodeArrays`.
        owners: [E, ...], see `OwnerArrays`; the one owner is the current Deployment.
        counts: [E, 11] int64, see NODES...
        summary: [E, 3, 16] float64, see `envs.observation` and `objectives.summary`.
        rng: [E, 1] uint64 states of the random numbers.
    """

    nodes: NodeArrays
    owners: OwnerArrays
    counts: npt.NDArray[np.int64]
    summary: npt.NDArray[np.float64]
    rng: npt.NDArray[np.uint64]


class EpisodeRules(NamedTuple):
    """What all clusters share.

    Attributes:
        classes: a class for every pair of a CPU and a memory request, that of CPU i and memory j is i M + j.
        profile, fragments, known, leftovers, room: without GPUs.
        objectives, weights: [K] the reward.
        targets: [3] loads of CPU, memory and pods; the first one reached ends a filling.
        numbers: [5] int64: CPU requests, memory requests, fewest and most replicas, fillings per episode.
        view_number: number of the view.
        penalty: cost of an illegal action.
        step_limit: steps after which an episode is truncated.
    """

    classes: ClassArrays
    profile: ProfileArrays
    fragments: FragmentArrays
    known: FragmentationCache
    leftovers: LeftoverTables
    room: Scratch
    objectives: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    targets: npt.NDArray[np.float64]
    numbers: npt.NDArray[np.int64]
    view_number: int
    penalty: float
    step_limit: int


CPU_CHOICES, MEMORY_CHOICES, FEWEST, MOST, FILLINGS = range(5)
"""Columns of `EpisodeRules.numbers`."""


@inlined_kernel
def nodes_of(b: NodeArrays, e: int) -> NodeArrays:
    return NodeArrays(
        b.allocatable[e], b.free[e], b.nonzero[e], b.gpu_count[e], b.gpu_free[e], b.gpu_model[e], b.gpu_kinds[e]
    )


@inlined_kernel
def owners_of(b: OwnerArrays, e: int) -> OwnerArrays:
    """Return the locations of owners' pods in run `e`."""
    return OwnerArrays(b.rack[e], b.running[e], b.on_node[e], b.in_rack[e])


@inlined_kernel
def best_by_rule(
    rule: int,
    profile: ProfileArrays,
    fragments: FragmentArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
    mask: npt.NDArray[np.int8],
) -> int:
    """Return the node with heuristic `rule`'s highest score for class `c` where it may run, the first of equals."""
    best, chosen = 0, -1
    for n in range(mask.shape[0]):
        if mask[n]:
            score = local_score(rule, profile, fragments, nodes, classes, c, n)
            if chosen < 0 or score > best:
                best, chosen = score, n
    return chosen


@inlined_kernel
def _scene(filling: FillState, rules: EpisodeRules, e: int) -> EncodingContext:
    nodes = nodes_of(filling.nodes, e)
    return EncodingContext(
        nodes, rules.classes, rules.profile, rules.fragments, rules.known, rules.leftovers, rules.room
    )


@inlined_kernel
def _draw(filling: FillState, rules: EpisodeRules, e: int) -> None:
    """Draw the next Deployment: replicas, CPU, memory, uniformly and in this order."""
    counts, rng, owners = filling.counts[e], filling.rng[e], owners_of(filling.owners, e)
    numbers = rules.numbers
    replicas = numbers[FEWEST] + random_below(rng, numbers[MOST] - numbers[FEWEST] + 1)
    cpu = random_below(rng, numbers[CPU_CHOICES])
    c = cpu * numbers[MEMORY_CHOICES] + random_below(rng, numbers[MEMORY_CHOICES])
    counts[CLASS], counts[LEFT] = c, replicas
    counts[PODS_WANTED] += replicas
    counts[CPU_WANTED] += replicas * rules.classes.request[c, CPU]
    counts[MEMORY_WANTED] += replicas * rules.classes.request[c, MEMORY]
    owners.running[ONLY] = 0
    for n in range(counts[NODES]):
        owners.on_node[ONLY, n] = 0
        if owners.rack[n] >= 0:
            owners.in_rack[ONLY, owners.rack[n]] = 0


@inlined_kernel
def _clear(filling: FillState, e: int) -> None:
    nodes, counts, now = filling.nodes, filling.counts[e], filling.summary[e, NOW]
    for n in range(counts[NODES]):
        for r in range(nodes.free.shape[2]):
            nodes.free[e, n, r] = nodes.allocatable[e, n, r]
        nodes.nonzero[e, n, 0] = nodes.nonzero[e, n, 1] = 0
    # The targets are those of one filling: the counts restart with an empty cluster.
    counts[PODS_WANTED] = counts[CPU_WANTED] = counts[MEMORY_WANTED] = 0
    now[state.NODES_USED] = now[state.CPU_SHARE] = now[state.CPU_SQUARE] = 0.0
    now[state.CPU_TAKEN] = now[state.MEMORY_TAKEN] = now[state.WAITING] = 0.0


@inlined_kernel
def _below_targets(filling: FillState, rules: EpisodeRules, e: int) -> bool:
    counts, now = filling.counts[e], filling.summary[e, NOW]
    pods = 0
    for n in range(counts[NODES]):
        pods += filling.nodes.allocatable[e, n, PODS]
    return bool(
        # By what was requested, dropped pods included: loads of bound pods alone might never reach a target.
        counts[CPU_WANTED] / now[state.CPU_TOTAL] < rules.targets[0]
        and counts[MEMORY_WANTED] / now[state.MEMORY_TOTAL] < rules.targets[1]
        and counts[PODS_WANTED] / pods < rules.targets[2]
    )


@inlined_kernel
def _next(filling: FillState, rules: EpisodeRules, out: Observation, e: int) -> int:
    """Go on to the next pod that fits somewhere; return on how many nodes, 0 if the episode has ended.

    `LEFT` counts the current pod, too.
    """
    scene, counts, mask = _scene(filling, rules, e), filling.counts[e], out.mask[e]
    while True:
        # After a clearing, or a Deployment of no replicas, the next one is drawn.
        while counts[LEFT] == 0:
            if _below_targets(filling, rules, e):
                _draw(filling, rules, e)
            else:
                counts[FILLED] += 1
                if counts[FILLED] >= rules.numbers[FILLINGS]:
                    return 0
                _clear(filling, e)
        feasible = 0
        for n in range(counts[NODES]):
            mask[n] = fits(scene.nodes, scene.classes, counts[CLASS], n)
            feasible += mask[n]
        if feasible > 0:
            return feasible
        # Nothing leaves before everything is cleared: no pod of this Deployment will fit any more.
        counts[DROPPED] += counts[LEFT]
        filling.summary[e, NOW, state.WAITING] += counts[LEFT]
        counts[LEFT] = 0


@inlined_kernel
def _observe(filling: FillState, rules: EpisodeRules, out: Observation, e: int, feasible: int) -> None:
    scene, c = _scene(filling, rules, e), filling.counts[e, CLASS]
    cluster = ObservedCluster(scene, owners_of(filling.owners, e), filling.summary[e, NOW])
    for n in range(filling.counts[e, NODES]):
        encode_node(rules.view_number, scene, c, n, out.nodes[e, n])
    write_shared_features(rules.view_number, cluster, c, ONLY, feasible, observation_of(out, e))


@inlined_kernel
def _observe_end(filling: FillState, out: Observation, e: int) -> None:
    """Write an observation without a pod and without nodes to choose, of the cluster as it is left."""
    write_terminal_observation(observation_of(out, e))
    encode_context(filling.summary[e, NOW], 0, out.context[e])


@inlined_kernel
def _bind(filling: FillState, rules: EpisodeRules, e: int, n: int) -> None:
    """Bind the current pod to node `n`, and update the summary and the counts."""
    scene, owners, counts = _scene(filling, rules, e), owners_of(filling.owners, e), filling.counts[e]
    nodes, classes, c, now = scene.nodes, scene.classes, counts[CLASS], filling.summary[e, NOW]
    total = nodes.allocatable[n, CPU]
    before = (total - nodes.free[n, CPU]) / total
    now[state.NODES_USED] += nodes.free[n, PODS] == nodes.allocatable[n, PODS]
    place(nodes, classes, c, n, 0)
    after = (total - nodes.free[n, CPU]) / total
    now[state.CPU_SHARE] += after - before
    now[state.CPU_SQUARE] += after * after - before * before
    now[state.CPU_TAKEN] += classes.request[c, CPU]
    now[state.MEMORY_TAKEN] += classes.request[c, MEMORY]
    count_owner(owners, ONLY, n, 1)
    now[state.RACK_LOCALITY] = share_nearby(owners, ONLY, n)
    counts[LEFT] -= 1
    counts[BOUND] += 1


@inlined_kernel
def _act(filling: FillState, rules: EpisodeRules, out: Observation, e: int, n: int) -> tuple[float, bool]:
    """Bind the current pod to node `n`, where it must fit; return the reward, and whether another pod follows."""
    summary = filling.summary[e]
    for i in range(summary.shape[1]):
        summary[BEFORE, i] = summary[NOW, i]
    _bind(filling, rules, e, n)
    for i in range(summary.shape[1]):
        summary[AFTER, i] = summary[NOW, i]
    reward = weighted(rules.objectives, rules.weights, summary[BEFORE], summary[AFTER])
    # After AFTER was copied: `_next` may clear the cluster and change NOW.
    feasible = _next(filling, rules, out, e)
    if feasible > 0:
        _observe(filling, rules, out, e, feasible)
    else:
        _observe_end(filling, out, e)
    return reward, feasible > 0


@kernel
def begin_filling(filling: FillState, rules: EpisodeRules, out: Observation, e: int, seed: int) -> bool:
    """Start an episode on the given nodes and observe the first pod. Return False if no pod fits on any node."""
    counts = filling.counts[e]
    filling.rng[e, 0] = np.uint64(seed)
    # From CLASS on: NODES is the cluster's and stays.
    for i in range(CLASS, COUNTS):
        counts[i] = 0
    _clear(filling, e)
    feasible = _next(filling, rules, out, e)
    if feasible > 0:
        _observe(filling, rules, out, e, feasible)
    return feasible > 0


@kernel
def step_filling(
    filling: FillState, rules: EpisodeRules, out: Observation, actions: npt.NDArray[np.int64], results: StepResults
) -> None:
    """Take one action in each of E clusters, and write its results into the other arrays.

    An illegal action (no such node, or the pod does not fit there) changes nothing but the count of steps, and costs
    the penalty.
    """
    rewards, terminated, truncated = results
    for e in range(actions.shape[0]):
        n, counts = actions[e], filling.counts[e]
        terminated[e] = False
        if attempt(counts, STEPS, ILLEGAL, out.mask[e], n):
            rewards[e], going = _act(filling, rules, out, e, n)
            terminated[e] = not going
        else:
            rewards[e] = -rules.penalty
        truncated[e] = not terminated[e] and counts[STEPS] >= rules.step_limit


@kernel
def follow_rule_filling(
    filling: FillState, rules: EpisodeRules, rule: int, mask: npt.NDArray[np.int8], actions: npt.NDArray[np.int64]
) -> None:
    """Write into actions, [E], what heuristic `rule` would do."""
    for e in range(mask.shape[0]):
        nodes, c = nodes_of(filling.nodes, e), filling.counts[e, CLASS]
        actions[e] = best_by_rule(rule, rules.profile, rules.fragments, nodes, rules.classes, c, mask[e])
