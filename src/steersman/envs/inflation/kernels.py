"""Steps of a batch of runs, compiled: answer the event loop's question, advance to the next one, observe.

Every array of a batch has a leading axis E, the runs. A step treats one run's slices as a run of its own, so that the
dynamics are those of `simulation.engine` and of nothing else.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays
from steersman.cluster.constraints.inter_pod import has_inter_pod_rules
from steersman.core.compiled import inlined_kernel, ir_inlined, kernel
from steersman.envs.inflation.batch import (
    FOLLOWED,
    ILLEGAL,
    STEP_LIMIT,
    STEPS,
    TIME,
    WAITED_FOR,
    Batch,
    BatchConfig,
    StepCache,
    arrivals_of,
    classes_of,
    cluster_of,
    fragments_of,
    nodes_of,
    owners_of,
    profile_of,
    record_of,
    rows_of,
    run_of,
    scene_of,
    terms_of,
)
from steersman.envs.observation import AFTER, BEFORE, NOW, Observation, StepResults, observation_of
from steersman.objectives import summary as state
from steersman.objectives.fragmentation import FragmentArrays
from steersman.objectives.measures import cpu_mean, weighted
from steersman.policies.decision import kernels
from steersman.policies.node_scores.local_scores import local_score
from steersman.policies.observations.encoding import ObservedCluster, encode_context, share_nearby
from steersman.policies.observations.kernels import CachedFeatures, write_observation, write_terminal_observation
from steersman.simulation import engine, event_arrays
from steersman.simulation.run_tracker import follow_event, summarise
from steersman.workloads.profile import ProfileArrays

NO_LIMIT = 1 << 62


@inlined_kernel
def attempt(counts: npt.NDArray[np.int64], steps: int, illegal: int, mask: npt.NDArray[np.int8], n: int) -> bool:
    """Return whether node `n` exists and may take the pod; count a step, and note in column `illegal` if it may not."""
    counts[steps] += 1
    legal = 0 <= n < mask.shape[0] and mask[n] == 1
    counts[illegal] = not legal
    return bool(legal)


@inlined_kernel
def _wait_until(batch: Batch, e: int, time: float) -> None:
    clock = batch.clock[e]
    batch.summary[e, AFTER, state.POD_SECONDS_WAITED] += clock[WAITED_FOR] * (time - clock[TIME])
    clock[TIME] = time


@inlined_kernel
def _follow(batch: Batch, e: int, waits: bool) -> None:
    """Update waiting and owners by the events since the last call."""
    owners = owners_of(batch.owners, e)
    time, numbers = batch.record.time[e], batch.record.numbers[e]
    for k in range(batch.counts[e, FOLLOWED], batch.run.cursor[e, event_arrays.EVENTS]):
        if waits:
            # Those who waited after the previous event did so until this one.
            _wait_until(batch, e, time[k])
            batch.clock[e, WAITED_FOR] = numbers[k, event_arrays.NOW_WAITING]
        follow_event(owners, batch.owner[e], numbers, k)
    batch.counts[e, FOLLOWED] = batch.run.cursor[e, event_arrays.EVENTS]


@ir_inlined
def _advance(batch: Batch, task: BatchConfig, e: int, until: int) -> int:
    cluster, arrivals = cluster_of(batch, task, e), arrivals_of(batch, e)
    run, record = run_of(batch.run, e), record_of(batch.record, e)
    return engine.advance(
        cluster, arrivals, run, record, kernels.SELECT_EXTERNAL, kernels.DEVICES_BEST, task.waits, until
    )


@ir_inlined
def _run_to_next_decision(batch: Batch, task: BatchConfig, e: int) -> bool:
    """Advance the run to its next question. Return False if there is none."""
    asking = _advance(batch, task, e, NO_LIMIT) == event_arrays.NEEDS_ACTION
    _follow(batch, e, task.waits)
    # A question about a new arrival comes after the last event, one about a waiting pod (a retry) at its time.
    if asking and task.waits and batch.run.cursor[e, event_arrays.PASS] == event_arrays.NO_PASS:
        _wait_until(batch, e, batch.arrivals.time[e, batch.run.question[e, event_arrays.QUESTION]])
    summarise(batch.run.cursor[e], batch.run.sums[e], batch.summary[e, NOW])
    return asking


@kernel
def _observe(batch: Batch, task: BatchConfig, kept: StepCache, out: Observation, e: int) -> None:
    """Write the observation of a run that has a question."""
    cluster = ObservedCluster(scene_of(batch, kept.known, e), owners_of(batch.owners, e), batch.summary[e, NOW])
    arrival = batch.run.question[e, event_arrays.QUESTION]
    c, owner = batch.arrivals.class_id[e, arrival], batch.owner[e, arrival]
    masked = has_inter_pod_rules(terms_of(batch.terms, e), c, batch.arrivals.labels_id[e, arrival])
    mask = batch.run.mask[e]
    # Empty where no other pods matter: fitting alone decides then.
    allowed = mask if masked else mask[:0]
    known = CachedFeatures(rows_of(kept.rows, e), batch.log[e], batch.logged[e, 0])
    write_observation(task.view_number, cluster, known, c, owner, allowed, observation_of(out, e))


@inlined_kernel
def _observe_end(batch: Batch, out: Observation, e: int) -> None:
    """Write the observation of a run that has ended: no pod, no node to choose, the cluster as it is left."""
    write_terminal_observation(observation_of(out, e))
    encode_context(batch.summary[e, NOW], 0, out.context[e])


@ir_inlined
def _act(batch: Batch, task: BatchConfig, e: int, n: int) -> None:
    """Bind the current pod to node `n`, where it must fit."""
    before, after = batch.summary[e, BEFORE], batch.summary[e, AFTER]
    for i in range(before.shape[0]):
        before[i] = batch.summary[e, NOW, i]
    arrival = batch.run.question[e, event_arrays.QUESTION]
    batch.run.question[e, event_arrays.ANSWER] = n
    # Exactly one event: the reward is about the state that the action leads to, not about what happens next.
    _advance(batch, task, e, batch.run.cursor[e, event_arrays.EVENTS] + 1)
    summarise(batch.run.cursor[e], batch.run.sums[e], after)
    # Counted from zero from the action to the next decision.
    after[state.POD_SECONDS_WAITED] = 0.0
    _follow(batch, e, task.waits)
    after[state.RACK_LOCALITY] = share_nearby(owners_of(batch.owners, e), batch.owner[e, arrival], n)


@kernel
def step(
    batch: Batch,
    task: BatchConfig,
    kept: StepCache,
    out: Observation,
    actions: npt.NDArray[np.int64],
    results: StepResults,
    begun: int,
) -> None:
    """Take one action in each of E runs, and write its results into the other arrays.

    An illegal action (no such node, or the pod may not run there) changes nothing but the count of steps, and costs
    the penalty. With `begun` of at least 0 no action is taken: that run, whose arrays are in place, is started and its
    first question observed, or it is terminated. A kernel of its own would contain the event loop once more, which
    takes a minute to compile.
    """
    rewards, terminated, truncated = results
    for e in range(actions.shape[0]) if begun < 0 else range(begun, begun + 1):
        counts = batch.counts[e]
        if begun < 0 and not attempt(counts, STEPS, ILLEGAL, out.mask[e], actions[e]):
            rewards[e] = -task.penalty
            terminated[e] = False
        else:
            if begun < 0:
                _act(batch, task, e, actions[e])
            else:
                # Rows of another episode; -1 makes the next observation compute them.
                for c in range(kept.rows.log_position.shape[1]):
                    kept.rows.log_position[e, c] = -1
            asking = _run_to_next_decision(batch, task, e)
            terminated[e] = not asking
            if begun < 0:
                # With the waiting until the next decision.
                before, after = batch.summary[e, BEFORE], batch.summary[e, AFTER]
                rewards[e] = weighted(task.objectives, task.weights, before, after)
            if asking:
                _observe(batch, task, kept, out, e)
            else:
                _observe_end(batch, out, e)
        truncated[e] = not terminated[e] and counts[STEPS] >= counts[STEP_LIMIT]


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


@kernel
def follow_rule(batch: Batch, rule: int, mask: npt.NDArray[np.int8], actions: npt.NDArray[np.int64]) -> None:
    """Write into actions, [E], what heuristic `rule` would do."""
    for e in range(mask.shape[0]):
        c = batch.arrivals.class_id[e, batch.run.question[e, event_arrays.QUESTION]]
        nodes, classes = nodes_of(batch.nodes, e), classes_of(batch.classes, e)
        profile, fragments = profile_of(batch.profile, e), fragments_of(batch.fragments, e)
        actions[e] = best_by_rule(rule, profile, fragments, nodes, classes, c, mask[e])


@kernel
def compute_infos(
    summary: npt.NDArray[np.float64], allocation: npt.NDArray[np.float64], variance: npt.NDArray[np.float64]
) -> None:
    """Write the shares of GPU (of CPU without GPUs) in use, [E], and the variance over nodes of those of CPU, [E].

    Rows AFTER of `summary`, [E, 3, 16], are read.
    """
    for e in range(summary.shape[0]):
        row = summary[e, AFTER]
        if row[state.GPU_TOTAL] > 0:
            allocation[e] = row[state.GPU_TAKEN] / row[state.GPU_TOTAL]
        else:
            allocation[e] = row[state.CPU_TAKEN] / row[state.CPU_TOTAL]
        mean = cpu_mean(row)
        variance[e] = max(row[state.CPU_SQUARE] / max(row[state.CPU_NODES], 1.0) - mean * mean, 0.0)
