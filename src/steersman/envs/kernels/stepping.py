"""Steps of a batch of runs, compiled: answer the event loop's question, let it go on to the next one, observe.

Every array of a batch has a leading axis E, the runs. A step looks at one run's slices as at a run of its own, so that
the dynamics are those of `simulation.engine` and of nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.terms import terms_active
from steersman.compiled import inner, kernel, pasted
from steersman.envs.kernels.batch import (
    AFTER,
    BEFORE,
    FOLLOWED,
    ILLEGAL,
    NODES,
    NOW,
    STEP_LIMIT,
    STEPS,
    TIME,
    WAITED_FOR,
    Batch,
    Rows,
    Task,
    arrivals_of,
    cluster_of,
    owners_of,
    record_of,
    run_of,
    scene_of,
    terms_of,
)
from steersman.objectives import summary as state
from steersman.objectives.measures import weighted
from steersman.policies import deciding
from steersman.policies.encoding import Scene, encode_context, encode_node, encode_pod, encode_shared
from steersman.policies.local import local_score
from steersman.simulation import engine

FOREVER = 1 << 62


class Observation(NamedTuple):
    """What agents see of E environments.

    Attributes:
        nodes: [E, N, F] float32.
        flat: [E, N F] the same memory.
        pod: [E, P] float32.
        context: [E, X] float32.
        mask: [E, N] int8, 1 where the pod may run.
        groups: [E, N, 2] int32, index of the node's rack and server, -1: none.
    """

    nodes: npt.NDArray[np.float32]
    flat: npt.NDArray[np.float32]
    pod: npt.NDArray[np.float32]
    context: npt.NDArray[np.float32]
    mask: npt.NDArray[np.int8]
    groups: npt.NDArray[np.int32]


@inner
def _summarise(batch: Batch, e: int, row: int) -> None:
    """Write the state into a row of the summary; what never changes is there already."""
    cursor, sums, out = batch.run.cursor[e], batch.run.sums[e], batch.summary[e, row]
    out[state.NODES_USED] = cursor[engine.NODES_USED]
    out[state.CPU_SHARE] = sums[engine.CPU_SHARE]
    out[state.CPU_SQUARE] = sums[engine.CPU_SQUARE]
    out[state.CPU_TAKEN] = cursor[engine.CPU_USED]
    out[state.MEMORY_TAKEN] = cursor[engine.MEMORY_USED]
    out[state.GPU_TAKEN] = cursor[engine.GPU_USED]
    fragmented = 0.0
    for i in range(engine.CAUSE, sums.shape[0]):
        fragmented += sums[i]
    out[state.FRAGMENTED] = max(fragmented, 0.0)
    out[state.WAITING] = cursor[engine.WAITING_NOW]


@inner
def _wait_until(batch: Batch, e: int, time: float) -> None:
    clock = batch.clock[e]
    batch.summary[e, AFTER, state.WAITED] += clock[WAITED_FOR] * (time - clock[TIME])
    clock[TIME] = time


@inner
def _follow(batch: Batch, e: int, waits: bool) -> None:
    """Count what the events since the last look mean for waiting and for owners."""
    owners = owners_of(batch.owners, e)
    time, numbers = batch.record.time[e], batch.record.numbers[e]
    for k in range(batch.counts[e, FOLLOWED], batch.run.cursor[e, engine.EVENTS]):
        outcome, arrival = numbers[k, engine.OUTCOME], numbers[k, engine.ARRIVAL]
        if waits:
            _wait_until(batch, e, time[k])
            batch.clock[e, WAITED_FOR] = numbers[k, engine.NOW_WAITING]
        owner = batch.owner[e, arrival]
        if owner >= 0 and (outcome == engine.BOUND or outcome == engine.FINISHED):
            sign, n = 1 if outcome == engine.BOUND else -1, numbers[k, engine.SLOT]
            owners.running[owner] += sign
            owners.on_node[owner, n] += sign
            if owners.rack[n] >= 0:
                owners.in_rack[owner, owners.rack[n]] += sign
    batch.counts[e, FOLLOWED] = batch.run.cursor[e, engine.EVENTS]


@inner
def _together(batch: Batch, e: int, arrival: int, n: int) -> float:
    """Share of the running pods of a placed pod's owner that are in its rack."""
    owners, owner = owners_of(batch.owners, e), batch.owner[e, arrival]
    if owner < 0 or owners.running[owner] == 0:
        return 1.0
    if owners.rack[n] < 0:
        return float(owners.on_node[owner, n] / owners.running[owner])
    return float(owners.in_rack[owner, owners.rack[n]] / owners.running[owner])


@pasted
def _advance(batch: Batch, task: Task, e: int, until: int) -> int:
    cluster, arrivals = cluster_of(batch, task, e), arrivals_of(batch, e)
    run, record = run_of(batch.run, e), record_of(batch.record, e)
    return engine.advance(cluster, arrivals, run, record, deciding.CHOOSE_ASK, deciding.DEVICES_BEST, task.waits, until)


@pasted
def _go_on(batch: Batch, task: Task, e: int) -> bool:
    """Let the run go on to its next question; False if there is none."""
    asking = _advance(batch, task, e, FOREVER) == engine.ASKING
    _follow(batch, e, task.waits)
    if asking and task.waits and batch.run.cursor[e, engine.RETRIED] <= 0:
        _wait_until(batch, e, batch.arrivals.time[e, batch.run.question[e, engine.QUESTION]])
    _summarise(batch, e, NOW)
    return asking


@inner
def _local(batch: Batch, scene: Scene, rows: Rows, view: int, e: int, c: int, out: Observation) -> None:
    """The local features of all nodes for class `c`, and where it fits; by bringing those that are kept up to date."""
    count, width = batch.counts[e, NODES], out.nodes.shape[2]
    kept, seen, logged = rows.features.shape[1] > 0, -1, batch.logged[e, 0]
    flat, mask = out.flat[e], out.mask[e]
    if kept:
        seen = rows.seen[e, c]
        rows.seen[e, c] = logged
    if seen >= 0:
        # All rows first, in one go, and then those that changed: they are in the processor's cache by then.
        _copy_floats(rows.features[e, c], flat, count * width)
        _copy_flags(rows.fit[e, c], mask, count)
    rows.stamps[e, 0] += 1
    stamp = rows.stamps[e, 0]
    for k in range(count if seen < 0 else logged - seen):
        n = k if seen < 0 else batch.log[e, seen + k]
        if rows.stamp[e, n] != stamp:
            rows.stamp[e, n] = stamp
            row = flat[n * width : (n + 1) * width]
            mask[n] = encode_node(view, scene, c, n, row)
            if kept:
                rows.fit[e, c, n] = mask[n]
                _copy_floats(row, rows.features[e, c, n * width : (n + 1) * width], width)


@inner
def _copy_floats(source: npt.NDArray[np.float32], target: npt.NDArray[np.float32], count: int) -> None:
    # A plain loop over one axis, from 0 on, is the only form that becomes a block copy.
    for i in range(count):
        target[i] = source[i]


@inner
def _copy_flags(source: npt.NDArray[np.int8], target: npt.NDArray[np.int8], count: int) -> None:
    for i in range(count):
        target[i] = source[i]


@kernel
def _observe(batch: Batch, task: Task, rows: Rows, out: Observation, e: int) -> None:
    """Write the observation of a run that asks."""
    scene, owners = scene_of(batch, e), owners_of(batch.owners, e)
    arrival = batch.run.question[e, engine.QUESTION]
    c, owner = batch.arrivals.class_id[e, arrival], batch.owner[e, arrival]
    _local(batch, scene, rows, task.view_number, e, c, out)
    masked = terms_active(terms_of(batch.terms, e), c, batch.arrivals.labels_id[e, arrival])
    mask, feasible = out.mask[e], 0
    for n in range(batch.counts[e, NODES]):
        if masked:
            mask[n] = batch.run.mask[e, n]
        feasible += mask[n]
    encode_shared(task.view_number, scene, owner, owners, batch.summary[e, NOW], out.nodes[e])
    encode_pod(task.view_number, scene.classes, c, owners.running[owner] if owner >= 0 else 0, out.pod[e])
    encode_context(task.view_number, batch.summary[e, NOW], feasible, out.context[e])


@inner
def _observe_end(batch: Batch, task: Task, out: Observation, e: int) -> None:
    """The observation of a run that is over: no pod, no node to choose, the cluster as it is left."""
    for n in range(out.nodes.shape[1]):
        out.mask[e, n] = 0
        for i in range(out.nodes.shape[2]):
            out.nodes[e, n, i] = 0.0
    for i in range(out.pod.shape[1]):
        out.pod[e, i] = 0.0
    encode_context(task.view_number, batch.summary[e, NOW], 0, out.context[e])


@pasted
def _act(batch: Batch, task: Task, e: int, n: int) -> tuple[float, bool]:
    """Bind the pod in question to node `n`, where it must fit: the reward, and whether another question follows."""
    before, after = batch.summary[e, BEFORE], batch.summary[e, AFTER]
    for i in range(before.shape[0]):
        before[i] = batch.summary[e, NOW, i]
    arrival = batch.run.question[e, engine.QUESTION]
    batch.run.question[e, engine.ANSWER] = n
    # Exactly one event: the reward is about the state that the action leads to, not about what happens next.
    _advance(batch, task, e, batch.run.cursor[e, engine.EVENTS] + 1)
    _summarise(batch, e, AFTER)
    after[state.WAITED] = 0.0
    _follow(batch, e, task.waits)
    after[state.TOGETHER] = _together(batch, e, arrival, n)
    asking = _go_on(batch, task, e)  # counts the waiting until the next decision
    return weighted(task.objectives, task.weights, before, after), asking


@kernel
def begin(batch: Batch, task: Task, rows: Rows, out: Observation, e: int) -> bool:
    """Start run `e`, whose arrays are in place: go to its first question and observe; False if there is none."""
    for c in range(rows.seen.shape[1]):
        rows.seen[e, c] = -1
    asking = _go_on(batch, task, e)
    if asking:
        _observe(batch, task, rows, out, e)
    return asking


@kernel
def step(
    batch: Batch,
    task: Task,
    rows: Rows,
    out: Observation,
    actions: npt.NDArray[np.int64],
    rewards: npt.NDArray[np.float64],
    terminated: npt.NDArray[np.bool_],
    truncated: npt.NDArray[np.bool_],
) -> None:
    """Take one action in each of E runs that ask; all that comes of it is written into the other arrays.

    An illegal action (no such node, or the pod may not run there) changes nothing but the count of steps, and costs
    the penalty.
    """
    for e in range(actions.shape[0]):
        n, counts = actions[e], batch.counts[e]
        counts[STEPS] += 1
        legal = 0 <= n < counts[NODES] and out.mask[e, n] == 1
        counts[ILLEGAL] = not legal
        terminated[e] = False
        if legal:
            rewards[e], asking = _act(batch, task, e, n)
            terminated[e] = not asking
            if asking:
                _observe(batch, task, rows, out, e)
            else:
                _observe_end(batch, task, out, e)
        else:
            rewards[e] = -task.penalty
        truncated[e] = not terminated[e] and counts[STEPS] >= counts[STEP_LIMIT]


@inner
def best_by_rule(rule: int, scene: Scene, c: int, mask: npt.NDArray[np.int8]) -> int:
    """The node with the highest score of local policy `rule` for class `c` where it may run, the first of equals."""
    best, chosen = 0, -1
    for n in range(mask.shape[0]):
        if mask[n]:
            score = local_score(rule, scene.mix, scene.fragments, scene.nodes, scene.classes, c, n)
            if chosen < 0 or score > best:
                best, chosen = score, n
    return chosen


@kernel
def follow_rule(batch: Batch, rule: int, mask: npt.NDArray[np.int8], actions: npt.NDArray[np.int64]) -> None:
    """Into actions, [E], what local policy `rule` would do."""
    for e in range(mask.shape[0]):
        c = batch.arrivals.class_id[e, batch.run.question[e, engine.QUESTION]]
        actions[e] = best_by_rule(rule, scene_of(batch, e), c, mask[e])
