"""Scores of learned policies in compiled code: what the weights make of a node's state is looked up by a hash of it.

States are hashed by sums over devices, so a placement changes the hash by the devices that it takes.
"""

from __future__ import annotations

import numpy as np

from steersman.cluster.arrays import (
    CPU,
    MEMORY,
    WHOLE,
    ClassArrays,
    NodeArrays,
    alike_before,
    best_devices,
    devices_taken,
    pod_kind,
)
from steersman.compiled import inner, kernel, outlined, pasted
from steersman.policies.afterstates import device_key
from steersman.policies.gpu_features import FEATURES, describe, usable_cpu, usable_cpu_of
from steersman.policies.kube_scores import balanced_allocation, least_allocated, most_allocated
from steersman.policies.learned import FRAGMENTED, KEY, KINDS, VALUE, LearnedArrays
from steersman.policies.local import (
    BALANCED_ALLOCATION,
    BEST_FIT,
    DOT_PRODUCT,
    GPU_CLUSTERING,
    GPU_PACKING,
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    best_fit,
    dot_product,
    gpu_clustering,
    gpu_packing,
    gradient,
)
from steersman.telemetry.randomness import GOLDEN, mixed
from steersman.workloads.mix import MixArrays


@inner
def _devices_key(learned: LearnedArrays, nodes: NodeArrays, n: int) -> np.uint64:
    """A hash of what is fixed about node `n`, and of its devices as they are."""
    fixed = np.uint64(nodes.gpu_model[n]) * GOLDEN + np.uint64(nodes.gpu_count[n])
    key = mixed(fixed * GOLDEN + np.uint64(usable_cpu_of(learned.outlook, nodes, n)))
    for d in range(nodes.gpu_count[n]):
        key += device_key(nodes.gpu_free[n, d])
    return np.uint64(key)


@inner
def _state_key(devices_key: np.uint64, cpu: int) -> np.uint64:
    """A hash, never 0, of a state with `cpu` milli-CPU."""
    return np.uint64(mixed(devices_key + np.uint64(cpu) * GOLDEN) | np.uint64(1))


@inner
def _cpu_now(learned: LearnedArrays, nodes: NodeArrays, n: int) -> int:
    """Return the milli-CPU that pods can use of node `n` as it is."""
    return usable_cpu(learned.outlook, nodes.free[n, CPU], nodes.free[n, MEMORY])


@inner
def _cpu_with(learned: LearnedArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Return the milli-CPU that pods could use of node `n` with a pod of class `c` on it."""
    cpu, memory = nodes.free[n, CPU] - classes.request[c, CPU], nodes.free[n, MEMORY] - classes.request[c, MEMORY]
    return usable_cpu(learned.outlook, cpu, memory)


@inner
def _row(key: np.uint64, size: int) -> int:
    return int(key >> np.uint64(20)) & (size - 1)


@inner
def described(
    learned: LearnedArrays,
    mix: MixArrays,
    nodes: NodeArrays,
    n: int,
    cpu: int,
    devices: int,
    milli: int,
    key: np.uint64,
) -> int:
    """The row of `features` for the state `key`: node `n` with `cpu` milli-CPU, some devices with `milli` less."""
    row = _row(key, learned.feature_keys.shape[0])
    if learned.feature_keys[row] != key:
        learned.feature_keys[row] = key
        features = learned.features[row]
        learned.fragmented[row] = describe(learned.outlook, mix, nodes, learned.room, n, cpu, devices, milli, features)
    return row


@inner
def _four_sums(learned: LearnedArrays, known: int, first: int) -> tuple[float, float, float, float]:
    """The weighted features by four columns of weights, from the `first` on."""
    # Four sums side by side, not one after the other: they do not wait for each other.
    a = b = c = d = 0.0
    for i in range(FEATURES):
        x = float(learned.features[known, i])
        a += learned.columns[i, first] * x
        b += learned.columns[i, first + 1] * x
        c += learned.columns[i, first + 2] * x
        d += learned.columns[i, first + 3] * x
    return a, b, c, d


@outlined
def _learn(
    learned: LearnedArrays,
    mix: MixArrays,
    nodes: NodeArrays,
    n: int,
    cpu: int,
    devices: int,
    milli: int,
    key: np.uint64,
    row: int,
) -> None:
    """Write what the state is worth into a row of `states`."""
    known, states = described(learned, mix, nodes, n, cpu, devices, milli, key), learned.states
    for first in range(0, learned.columns.shape[1] // 2, 4):
        at = VALUE + first
        states[row, at], states[row, at + 1], states[row, at + 2], states[row, at + 3] = _four_sums(
            learned, known, first
        )
    states[row, FRAGMENTED] = learned.fragmented[known]
    learned.keys[row, KEY] = key


@kernel
def learned_refresh_all(learned: LearnedArrays, mix: MixArrays, nodes: NodeArrays) -> None:
    """Look at every node anew."""
    for n in range(nodes.gpu_count.shape[0]):
        learned_refresh(learned, mix, nodes, n)


@outlined
def learned_refresh(learned: LearnedArrays, mix: MixArrays, nodes: NodeArrays, n: int) -> None:
    """Look at node `n`, which changed, anew."""
    learned.node_keys[n] = _devices_key(learned, nodes, n)
    cpu, before = _cpu_now(learned, nodes, n), learned.before
    known = described(learned, mix, nodes, n, cpu, 0, 0, _state_key(learned.node_keys[n], cpu))
    values = learned.columns.shape[1] // 2
    for first in range(0, values, 4):
        at = FRAGMENTED + first
        before[n, at], before[n, at + 1], before[n, at + 2], before[n, at + 3] = _four_sums(
            learned, known, values + first
        )
    before[n, 0] = learned.fragmented[known]


@inner
def _score(
    learned: LearnedArrays,
    mix: MixArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    kind: int,
    c: int,
    n: int,
    devices: int,
    devices_key: np.uint64,
) -> float:
    """The score of class `c`, of a kind, on devices (-1: best-fitting ones) of node `n`, and their hash with it."""
    cpu = _cpu_with(learned, nodes, classes, c, n)
    key = _state_key(devices_key, cpu)
    row = _row(key, learned.keys.shape[0])
    if learned.keys[row, KEY] != key:
        if devices < 0:
            devices = best_devices(nodes, classes, c, n)
        _learn(learned, mix, nodes, n, cpu, devices, classes.gpu_milli[c], key, row)
    points = gradient(learned.before[n, 0], learned.states[row, FRAGMENTED])
    score = learned.states[row, VALUE + kind] - learned.before[n, 1 + kind] + learned.columns[FEATURES, kind] * points
    if learned.sizes.shape[0] > 0:
        score += _network(learned, c, n, row, points)
    return float(score)


@outlined
def _network(learned: LearnedArrays, c: int, n: int, row: int, points: float) -> float:
    """What the network adds to the score of class `c` on node `n`, which would be in the state of a row of `states`."""
    width, activity, layers = learned.pods.shape[1], learned.activity, learned.layers
    for j in range(width):
        k = KINDS + j
        sum_ = learned.states[row, VALUE + k] - learned.before[n, 1 + k] + learned.columns[FEATURES, k] * points
        activity[0, j] = max(sum_ + learned.pods[c, j], 0.0)
    at = 0
    for layer in range(learned.sizes.shape[0]):
        size = learned.sizes[layer]
        here, there, biases = layer % 2, (layer + 1) % 2, at + size * width
        for i in range(size):
            sum_ = layers[biases + i]
            for j in range(width):
                sum_ += layers[at + i * width + j] * activity[here, j]
            activity[there, i] = max(sum_, 0.0) if layer + 1 < learned.sizes.shape[0] else sum_
        at, width = biases + size, size
    return float(activity[learned.sizes.shape[0] % 2, 0])


@outlined
def rule_points(learned: LearnedArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> float:
    """Return what the heuristics' scores of class `c` on node `n` count in all."""
    rules, kind, points = learned.rules, pod_kind(classes, c), 0.0
    if rules[DOT_PRODUCT, kind] != 0.0:
        points += rules[DOT_PRODUCT, kind] * dot_product(nodes, classes, c, n)
    if rules[GPU_CLUSTERING, kind] != 0.0:
        points += rules[GPU_CLUSTERING, kind] * gpu_clustering(nodes, classes, c, n)
    if rules[GPU_PACKING, kind] != 0.0:
        points += rules[GPU_PACKING, kind] * gpu_packing(nodes, classes, c, n)
    if rules[BEST_FIT, kind] != 0.0:
        points += rules[BEST_FIT, kind] * best_fit(nodes, classes, c, n)
    if rules[LEAST_ALLOCATED, kind] != 0.0:
        points += rules[LEAST_ALLOCATED, kind] * least_allocated(nodes, classes, c, n)
    if rules[MOST_ALLOCATED, kind] != 0.0:
        points += rules[MOST_ALLOCATED, kind] * most_allocated(nodes, classes, c, n)
    if rules[BALANCED_ALLOCATION, kind] != 0.0:
        points += rules[BALANCED_ALLOCATION, kind] * balanced_allocation(nodes, classes, c, n)
    return points


@pasted
def learned_score(
    learned: LearnedArrays, mix: MixArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int
) -> float:
    """Return the score of class `c` on node `n`, where it must fit."""
    score = _state_score(learned, mix, nodes, classes, c, n)
    return score + rule_points(learned, nodes, classes, c, n) if learned.rules.shape[0] > 0 else score


@pasted
def _state_score(
    learned: LearnedArrays, mix: MixArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int
) -> float:
    """Return the part of the score that the node's state and FGD make."""
    kind, milli, key = pod_kind(classes, c), classes.gpu_milli[c], learned.node_keys[n]
    if kind == 1:
        return _share(learned, mix, nodes, classes, c, n)[0]
    if kind == 0 or milli == WHOLE:  # which of the unused devices makes no difference
        key += np.uint64(devices_taken(nodes, classes, c, n)) * (device_key(0) - device_key(WHOLE))
        return _score(learned, mix, nodes, classes, kind, c, n, -1, key)
    devices = best_devices(nodes, classes, c, n)
    for d in range(nodes.gpu_count[n]):
        if (devices >> d) & 1:
            key += device_key(nodes.gpu_free[n, d] - milli) - device_key(nodes.gpu_free[n, d])
    return _score(learned, mix, nodes, classes, kind, c, n, devices, key)


@inner
def _share(
    learned: LearnedArrays, mix: MixArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int
) -> tuple[float, int]:
    """For a pod with a share of one device: the best score over the devices that fit, and that device's index.

    Of equal ones the fullest is taken, as by the rule of best fit.
    """
    milli, best, chosen, least = classes.gpu_milli[c], -np.inf, -1, WHOLE + 1
    for d in range(nodes.gpu_count[n]):
        left = nodes.gpu_free[n, d]
        if left < milli or alike_before(nodes, n, d):
            continue
        key = learned.node_keys[n] + device_key(left - milli) - device_key(left)
        score = _score(learned, mix, nodes, classes, 1, c, n, 1 << d, key)
        if score > best or (score == best and left < least):
            best, chosen, least = score, d, left
    return best, chosen


@outlined
def learned_device(
    learned: LearnedArrays, mix: MixArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int
) -> int:
    """The device of node `n` for a pod with a share of one."""
    return _share(learned, mix, nodes, classes, c, n)[1]


@inner
def features_now(learned: LearnedArrays, mix: MixArrays, nodes: NodeArrays, n: int) -> int:
    """The row of `features` for node `n` as it is."""
    cpu = _cpu_now(learned, nodes, n)
    return described(learned, mix, nodes, n, cpu, 0, 0, _state_key(learned.node_keys[n], cpu))


@inner
def features_with(
    learned: LearnedArrays, mix: MixArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int, devices: int
) -> int:
    """The row of `features` for node `n` with a pod of class `c` on the devices of the bit mask."""
    cpu, milli, key = _cpu_with(learned, nodes, classes, c, n), classes.gpu_milli[c], learned.node_keys[n]
    for d in range(nodes.gpu_count[n]):
        if (devices >> d) & 1:
            key += device_key(nodes.gpu_free[n, d] - milli) - device_key(nodes.gpu_free[n, d])
    return described(learned, mix, nodes, n, cpu, devices, milli, _state_key(key, cpu))
