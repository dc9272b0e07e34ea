"""Learned policies that are linear in the features of a node: how they are stored, and their scores in compiled code.

The score of placing a pod of kind k (no GPU, a share, one GPU, several) on a node is

    after[k] . f(node after) + change[k] . (f(node after) - f(node before)) + fgd[k] FGD(node)

with the features f of `gpu_features` and FGD's whole-numbered score. f depends on little of a node, and the same states
come again and again, so what the weights make of a state is kept by a hash of it.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, WHOLE, ClassArrays, NodeArrays, alike_before, best_devices, fits, pod_kind
from steersman.compiled import inner, kernel
from steersman.policies.gpu_features import FEATURES, Scratch, describe, scratch
from steersman.policies.local import gradient
from steersman.policies.outlook import OutlookArrays, outlook_arrays
from steersman.workloads.mix import MixArrays, TypicalPod, mix_arrays

VIEW = "gpu"
"""The view (`steersman.features`) that the weights are for."""

KINDS = 4
"""Kinds of pods: no GPU, a share of one GPU, one GPU, several."""

WEIGHTS = 2 * FEATURES + 1
"""Weights of a kind: of the state after, of its change, of FGD's score."""

VALUES = 2 * KINDS + 1
STATES_KEPT = 1 << 16
FEATURES_KEPT = 1 << 16
SALT_SEED = 1
RUN_SALT = 0x9E3779B97F4A7C15


class LearnedArrays(NamedTuple):
    """A linear policy at work on N nodes; S states whose worth is kept, H states whose features are kept.

    Attributes:
        outlook: what the mix says about leftovers.
        columns: [F, 8] weights of the features: of the state after for the four kinds, then of its change.
        fgd: [4] weights of FGD's score.
        salt: [1001] random numbers: states are hashed by the sum over devices of the salt of what is left of each.
        node_salt: [N] the same for what is fixed about a node: GPU model, devices, CPU.
        keys: [S] hashes, xor `run`.
        values: [S, 9] for each kind what the state is worth after and before a placement; its fragmented GPU milli.
        run: [1] distinguishes what other weights left in `keys`.
        feature_keys: [H] hashes.
        features: [H, F] float32, the features of these states, and fragmented: [H] their fragmented GPU milli. They
            do not depend on weights.
        before: [N, 5] what the node as it is is worth to each kind, and its fragmentation.
        room: scratch.
    """

    outlook: OutlookArrays
    columns: npt.NDArray[np.float64]
    fgd: npt.NDArray[np.float64]
    salt: npt.NDArray[np.uint64]
    node_salt: npt.NDArray[np.uint64]
    keys: npt.NDArray[np.uint64]
    values: npt.NDArray[np.float64]
    run: npt.NDArray[np.uint64]
    feature_keys: npt.NDArray[np.uint64]
    features: npt.NDArray[np.float32]
    fragmented: npt.NDArray[np.float64]
    before: npt.NDArray[np.float64]
    room: Scratch


def learned_arrays(
    pods: tuple[TypicalPod, ...], mix: MixArrays, nodes: NodeArrays, *, features_kept: int = FEATURES_KEPT
) -> LearnedArrays:
    """What policies need on these nodes, whatever their weights, see `at_work`. `features_kept` is a power of two."""
    rng = np.random.default_rng(SALT_SEED)
    shape = np.stack([nodes.gpu_model, nodes.gpu_count, nodes.allocatable[:, CPU]], axis=1)
    _, which = np.unique(shape, axis=0, return_inverse=True)
    salts = rng.integers(1, 1 << 63, WHOLE + 1 + int(which.max(initial=0)) + 1, dtype=np.uint64)
    return LearnedArrays(
        outlook=outlook_arrays(pods, mix),
        columns=np.zeros((FEATURES, 2 * KINDS)),
        fgd=np.zeros(KINDS),
        salt=salts[: WHOLE + 1],
        node_salt=salts[WHOLE + 1 :][which.reshape(-1)],
        keys=np.zeros(STATES_KEPT, dtype=np.uint64),
        values=np.zeros((STATES_KEPT, VALUES)),
        run=np.zeros(1, dtype=np.uint64),
        feature_keys=np.zeros(features_kept, dtype=np.uint64),
        features=np.zeros((features_kept, FEATURES), dtype=np.float32),
        fragmented=np.zeros(features_kept),
        before=np.zeros((len(nodes.gpu_count), KINDS + 1)),
        room=scratch(nodes.gpu_free.shape[1], mix),
    )


def at_work(
    learned: LearnedArrays,
    weights: npt.NDArray[np.float64],
    order: npt.NDArray[np.int64],
    mix: MixArrays,
    nodes: NodeArrays,
) -> LearnedArrays:
    """The policy with `weights`, [4, W], ready for a run on `nodes`, which are those of `learned` in another order.

    What is known of states is shared with `learned`, so only one policy can be at work at a time.
    """
    learned.run[0] = np.uint64((int(learned.run[0]) + RUN_SALT) % (1 << 64))
    columns = np.concatenate([weights[:, :FEATURES].T, weights[:, FEATURES : 2 * FEATURES].T], axis=1)
    ready = learned._replace(
        columns=np.ascontiguousarray(columns),
        fgd=weights[:, 2 * FEATURES].copy(),
        node_salt=learned.node_salt[order],
        before=np.zeros_like(learned.before),
    )
    learned_refresh_all(ready, mix, nodes)
    return ready


@cache
def no_learned() -> LearnedArrays:
    """What stands for a learned policy where there is none; nobody writes to it, so one serves all runs."""
    mix = mix_arrays((), ())
    none = np.zeros(0, dtype=np.uint64)
    return LearnedArrays(
        outlook=outlook_arrays((), mix),
        columns=np.zeros((FEATURES, 2 * KINDS)),
        fgd=np.zeros(KINDS),
        salt=none,
        node_salt=none,
        keys=none,
        values=np.zeros((0, VALUES)),
        run=none,
        feature_keys=none,
        features=np.zeros((0, FEATURES), dtype=np.float32),
        fragmented=np.zeros(0),
        before=np.zeros((0, KINDS + 1)),
        room=scratch(0, mix),
    )


@inner
def _state_key(learned: LearnedArrays, n: int, cpu: int, devices: int) -> np.uint64:
    """A hash of the state (cpu, room.left) of node `n`, never 0, whatever the order of its devices."""
    key = learned.node_salt[n] + np.uint64(cpu) * np.uint64(0x9E3779B97F4A7C15)
    key = (key ^ (key >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    for d in range(devices):
        key += learned.salt[learned.room.left[d]]
    key = (key ^ (key >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
    return np.uint64(key ^ (key >> np.uint64(32)) | np.uint64(1))


@inner
def _slot(key: np.uint64, size: int) -> int:
    return int(key >> np.uint64(20)) & (size - 1)


@inner
def _feature_row(learned: LearnedArrays, mix: MixArrays, nodes: NodeArrays, n: int, cpu: int, key: np.uint64) -> int:
    row = _slot(key, learned.feature_keys.shape[0])
    if learned.feature_keys[row] != key:
        learned.feature_keys[row] = key
        fragmented = describe(learned.outlook, mix, nodes, learned.room, n, cpu, learned.features[row])
        learned.fragmented[row] = fragmented
    return row


@inner
def _value_row(learned: LearnedArrays, mix: MixArrays, nodes: NodeArrays, n: int, cpu: int) -> int:
    """The row of `values` for the state (cpu, room.left) of node `n`."""
    key = _state_key(learned, n, cpu, nodes.gpu_count[n])
    row = _slot(key, learned.keys.shape[0])
    if learned.keys[row] == key ^ learned.run[0]:
        return row
    learned.keys[row] = key ^ learned.run[0]
    known = _feature_row(learned, mix, nodes, n, cpu, key)
    # Eight sums side by side, not one after the other: they do not wait for each other.
    a0 = a1 = a2 = a3 = c0 = c1 = c2 = c3 = 0.0
    columns = learned.columns
    for i in range(FEATURES):
        x = float(learned.features[known, i])
        a0 += columns[i, 0] * x
        a1 += columns[i, 1] * x
        a2 += columns[i, 2] * x
        a3 += columns[i, 3] * x
        c0 += columns[i, 4] * x
        c1 += columns[i, 5] * x
        c2 += columns[i, 6] * x
        c3 += columns[i, 7] * x
    values = learned.values
    values[row, 0], values[row, 1], values[row, 2], values[row, 3] = a0 + c0, a1 + c1, a2 + c2, a3 + c3
    values[row, 4], values[row, 5], values[row, 6], values[row, 7] = c0, c1, c2, c3
    learned.values[row, 2 * KINDS] = learned.fragmented[known]
    return row


@kernel
def learned_refresh_all(learned: LearnedArrays, mix: MixArrays, nodes: NodeArrays) -> None:
    """Look at every node anew."""
    for n in range(nodes.gpu_count.shape[0]):
        learned_refresh(learned, mix, nodes, n)


@inner
def learned_refresh(learned: LearnedArrays, mix: MixArrays, nodes: NodeArrays, n: int) -> None:
    """Look at node `n`, which changed, anew."""
    for d in range(nodes.gpu_count[n]):
        learned.room.left[d] = nodes.gpu_free[n, d]
    row = _value_row(learned, mix, nodes, n, nodes.free[n, CPU])
    for k in range(KINDS + 1):
        learned.before[n, k] = learned.values[row, KINDS + k]


@inner
def _afterwards(learned: LearnedArrays, mix: MixArrays, nodes: NodeArrays, kind: int, n: int, cpu: int) -> float:
    """The score of a placement that leaves node `n` in the state (cpu, room.left)."""
    row = _value_row(learned, mix, nodes, n, cpu)
    points = gradient(learned.before[n, KINDS], learned.values[row, 2 * KINDS])
    return float(learned.values[row, kind] - learned.before[n, kind] + learned.fgd[kind] * points)


@inner
def learned_score(
    learned: LearnedArrays, mix: MixArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int
) -> float:
    """The score of class `c` on node `n`, where it must fit."""
    kind = pod_kind(classes, c)
    if kind == 1:
        return learned_share(learned, mix, nodes, classes, c, n)[0]
    devices = best_devices(nodes, classes, c, n)
    for d in range(nodes.gpu_count[n]):
        learned.room.left[d] = nodes.gpu_free[n, d] - ((devices >> d) & 1) * classes.gpu_milli[c]
    return _afterwards(learned, mix, nodes, kind, n, nodes.free[n, CPU] - classes.request[c, CPU])


@inner
def learned_share(
    learned: LearnedArrays, mix: MixArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int
) -> tuple[float, int]:
    """For a pod with a share of one device: the best score over the devices that fit, and that device's index."""
    milli, left = classes.gpu_milli[c], learned.room.left
    cpu = nodes.free[n, CPU] - classes.request[c, CPU]
    for d in range(nodes.gpu_count[n]):
        left[d] = nodes.gpu_free[n, d]
    best, chosen = -np.inf, -1
    for d in range(nodes.gpu_count[n]):
        was = nodes.gpu_free[n, d]
        if was < milli or alike_before(nodes, n, d):
            continue
        left[d] = was - milli
        score = _afterwards(learned, mix, nodes, 1, n, cpu)
        left[d] = was
        if score > best:
            best, chosen = score, d
    return best, chosen


@kernel
def add_spread(
    learned: LearnedArrays,
    mix: MixArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
    sums: npt.NDArray[np.float64],
    counts: npt.NDArray[np.float64],
    moments: npt.NDArray[np.float64],
) -> None:
    """How much features differ between the nodes that class `c` could go to.

    Adds to sums, [4, 2, F], the variances of their changes and of their values after, at the kind of `c`; to counts,
    [4], 1. `moments`, [5, F], is scratch.
    """
    left, kind, found = learned.room.left, pod_kind(classes, c), 0
    for i in range(FEATURES):
        for j in range(4):
            moments[j, i] = 0.0
    for n in range(nodes.gpu_count.shape[0]):
        if not fits(nodes, classes, c, n):
            continue
        found += 1
        for d in range(nodes.gpu_count[n]):
            left[d] = nodes.gpu_free[n, d]
        cpu = nodes.free[n, CPU]
        row = _feature_row(learned, mix, nodes, n, cpu, _state_key(learned, n, cpu, nodes.gpu_count[n]))
        for i in range(FEATURES):
            moments[4, i] = learned.features[row, i]
        devices = best_devices(nodes, classes, c, n)
        for d in range(nodes.gpu_count[n]):
            left[d] -= ((devices >> d) & 1) * classes.gpu_milli[c]
        cpu -= classes.request[c, CPU]
        row = _feature_row(learned, mix, nodes, n, cpu, _state_key(learned, n, cpu, nodes.gpu_count[n]))
        for i in range(FEATURES):
            after = float(learned.features[row, i])
            change = after - moments[4, i]
            moments[0, i] += change
            moments[1, i] += change * change
            moments[2, i] += after
            moments[3, i] += after * after
    if found < 2:
        return
    counts[kind] += 1.0
    for i in range(FEATURES):
        for j in range(2):
            mean = moments[2 * j, i] / found
            sums[kind, j, i] += max(0.0, moments[2 * j + 1, i] / found - mean * mean)


@kernel
def see_nodes(
    learned: LearnedArrays,
    mix: MixArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
    out: npt.NDArray[np.float64],
) -> None:
    """The features of view `gpu` for class `c` into out, [N, W]; rows of nodes that it does not fit on are zero.

    A share goes to the device that the policy chooses. Scores are these rows times the weights of the pod's kind.
    """
    left, kind = learned.room.left, pod_kind(classes, c)
    for n in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[n, i] = 0.0
        if not fits(nodes, classes, c, n):
            continue
        devices = best_devices(nodes, classes, c, n)
        if kind == 1:
            devices = 1 << learned_share(learned, mix, nodes, classes, c, n)[1]
        for d in range(nodes.gpu_count[n]):
            left[d] = nodes.gpu_free[n, d]
        cpu = nodes.free[n, CPU]
        row = _feature_row(learned, mix, nodes, n, cpu, _state_key(learned, n, cpu, nodes.gpu_count[n]))
        before = learned.fragmented[row]
        for i in range(FEATURES):
            out[n, FEATURES + i] = -learned.features[row, i]
        for d in range(nodes.gpu_count[n]):
            left[d] -= ((devices >> d) & 1) * classes.gpu_milli[c]
        cpu -= classes.request[c, CPU]
        row = _feature_row(learned, mix, nodes, n, cpu, _state_key(learned, n, cpu, nodes.gpu_count[n]))
        for i in range(FEATURES):
            out[n, i] = learned.features[row, i]
            out[n, FEATURES + i] += learned.features[row, i]
        out[n, 2 * FEATURES] = gradient(before, learned.fragmented[row])
