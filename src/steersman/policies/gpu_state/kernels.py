"""Score kernels of learned policies; weighted features of node states are cached by a hash of the state.

The hash is a sum over devices, so a placement updates it by the devices that it takes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from steersman.cluster.arrays import (
    CPU,
    MEMORY,
    ClassArrays,
    NodeArrays,
    best_devices,
    devices_taken,
    has_equal_earlier_device,
    pod_kind,
)
from steersman.cluster.model import GPU_MILLI
from steersman.core.compiled import called_kernel, inlined_kernel, ir_inlined, kernel
from steersman.core.random_numbers import GOLDEN, mixed
from steersman.policies.features import POD_KINDS
from steersman.policies.gpu_state.arrays import FRAGMENTED, KEY, VALUE, LearnedArrays
from steersman.policies.gpu_state.fragmentation_cache import device_key
from steersman.policies.gpu_state.gpu_features import FEATURES, RemainingCapacity, describe, usable_cpu, usable_cpu_of
from steersman.policies.node_scores.local_scores import (
    BALANCED_ALLOCATION,
    BEST_FIT,
    DOT_PRODUCT,
    GPU_CLUSTERING,
    GPU_PACKING,
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    best_fit,
    dot_product,
    fgd_points,
    gpu_clustering,
    gpu_packing,
)
from steersman.policies.node_scores.plugin_scores import balanced_allocation, least_allocated, most_allocated
from steersman.workloads.profile import ProfileArrays


class DevicePlacement(NamedTuple):
    """Devices that a pod takes (bit mask; -1: by best fit), and the hash of all devices with the placement."""

    devices: int
    key: np.uint64


@inlined_kernel
def _devices_key(learned: LearnedArrays, nodes: NodeArrays, n: int) -> np.uint64:
    """Return a hash of the constants of node `n` and of its current devices."""
    # What distinguishes nodes of equal devices: model, number of devices, and the CPU of the empty node (`UNTOUCHED`).
    fixed = np.uint64(nodes.gpu_model[n]) * GOLDEN + np.uint64(nodes.gpu_count[n])
    key = mixed(fixed * GOLDEN + np.uint64(usable_cpu_of(learned.leftovers, nodes, n)))
    for d in range(nodes.gpu_count[n]):
        key += device_key(nodes.gpu_free[n, d])
    return np.uint64(key)


@inlined_kernel
def _state_key(devices_key: np.uint64, cpu: int) -> np.uint64:
    """Return the hash, never 0, of a state with `cpu` usable milli-CPU."""
    # 0 marks an empty entry of a cache.
    return np.uint64(mixed(devices_key + np.uint64(cpu) * GOLDEN) | np.uint64(1))


@inlined_kernel
def _cpu_now(learned: LearnedArrays, nodes: NodeArrays, n: int) -> int:
    """Return the milli-CPU that pods can currently use of node `n`."""
    return usable_cpu(learned.leftovers, nodes.free[n, CPU], nodes.free[n, MEMORY])


@inlined_kernel
def _cpu_with(learned: LearnedArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Return the milli-CPU that pods can use of node `n` after placing a pod of class `c`."""
    cpu, memory = nodes.free[n, CPU] - classes.request[c, CPU], nodes.free[n, MEMORY] - classes.request[c, MEMORY]
    return usable_cpu(learned.leftovers, cpu, memory)


@inlined_kernel
def _row(key: np.uint64, size: int) -> int:
    # Other bits than the lowest, which is always 1 in a key.
    return int(key >> np.uint64(20)) & (size - 1)


@inlined_kernel
def cached_features(
    learned: LearnedArrays, profile: ProfileArrays, nodes: NodeArrays, n: int, left: RemainingCapacity, key: np.uint64
) -> int:
    """Return the row of `features` for the state `key`: node `n` with `left`."""
    row = _row(key, learned.feature_keys.shape[0])
    # Direct-mapped: a colliding state is overwritten. Two states with the same 64 bits are taken as one.
    if learned.feature_keys[row] != key:
        learned.feature_keys[row] = key
        features = learned.features[row]
        learned.fragmented[row] = describe(learned.leftovers, profile, nodes, learned.room, n, left, features)
    return row


@inlined_kernel
def _four_sums(learned: LearnedArrays, feature_row: int, first: int) -> tuple[float, float, float, float]:
    """Return the features weighted by four columns of weights, from `first` on."""
    # Four independent sums in one loop, so that additions do not wait for each other.
    a = b = c = d = 0.0
    for i in range(FEATURES):
        x = float(learned.features[feature_row, i])
        a += learned.columns[i, first] * x
        b += learned.columns[i, first + 1] * x
        c += learned.columns[i, first + 2] * x
        d += learned.columns[i, first + 3] * x
    return a, b, c, d


@called_kernel
def _cache_state(
    learned: LearnedArrays,
    profile: ProfileArrays,
    nodes: NodeArrays,
    n: int,
    left: RemainingCapacity,
    key: np.uint64,
    row: int,
) -> None:
    """Write the key, fragmentation and values of a state into a row of `states`."""
    feature_row, states = cached_features(learned, profile, nodes, n, left, key), learned.states
    for first in range(0, learned.columns.shape[1] // 2, 4):
        j = VALUE + first
        states[row, j], states[row, j + 1], states[row, j + 2], states[row, j + 3] = _four_sums(
            learned, feature_row, first
        )
    states[row, FRAGMENTED] = learned.fragmented[feature_row]
    learned.keys[row, KEY] = key


@kernel
def learned_refresh_all(learned: LearnedArrays, profile: ProfileArrays, nodes: NodeArrays) -> None:
    """Recompute the current state of every node."""
    for n in range(nodes.gpu_count.shape[0]):
        learned_refresh(learned, profile, nodes, n)


@called_kernel
def learned_refresh(learned: LearnedArrays, profile: ProfileArrays, nodes: NodeArrays, n: int) -> None:
    """Recompute the current state of node `n`, which changed."""
    learned.node_keys[n] = _devices_key(learned, nodes, n)
    cpu, before = _cpu_now(learned, nodes, n), learned.before
    feature_row = cached_features(
        learned, profile, nodes, n, RemainingCapacity(cpu, 0, 0), _state_key(learned.node_keys[n], cpu)
    )
    values = learned.columns.shape[1] // 2
    for first in range(0, values, 4):
        # Values begin in column 1 of `before`, which has no key; column 0 follows below.
        j = FRAGMENTED + first
        before[n, j], before[n, j + 1], before[n, j + 2], before[n, j + 3] = _four_sums(
            learned, feature_row, values + first
        )
    before[n, 0] = learned.fragmented[feature_row]


@inlined_kernel
def _score(
    learned: LearnedArrays,
    profile: ProfileArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
    n: int,
    taken: DevicePlacement,
) -> float:
    """Return the score of class `c` on devices of node `n`."""
    kind, (devices, devices_key) = pod_kind(classes, c), taken
    cpu = _cpu_with(learned, nodes, classes, c, n)
    key = _state_key(devices_key, cpu)
    row = _row(key, learned.keys.shape[0])
    if learned.keys[row, KEY] != key:
        # -1: found only where the state is new, since equal states have equal values.
        if devices < 0:
            devices = best_devices(nodes, classes, c, n)
        _cache_state(learned, profile, nodes, n, RemainingCapacity(cpu, devices, classes.gpu_milli[c]), key, row)
    points = fgd_points(learned.before[n, 0], learned.states[row, FRAGMENTED])
    # W f(after) - C f(before) + w FGD.
    score = learned.states[row, VALUE + kind] - learned.before[n, 1 + kind] + learned.columns[FEATURES, kind] * points
    if learned.sizes.shape[0] > 0:
        score += _network(learned, c, n, row, points)
    return float(score)


@called_kernel
def _network(learned: LearnedArrays, c: int, n: int, row: int, points: float) -> float:
    """Return the network's output for class `c` on node `n`; its state after the placement is row `row` of `states`."""
    width, activity, layers = learned.pods.shape[1], learned.activity, learned.layers
    for j in range(width):
        k = POD_KINDS + j
        value = learned.states[row, VALUE + k] - learned.before[n, 1 + k] + learned.columns[FEATURES, k] * points
        # First layer: values of the state, the pod's part (with the bias), and ReLU.
        activity[0, j] = max(value + learned.pods[c, j], 0.0)
    offset = 0
    for layer in range(learned.sizes.shape[0]):
        size = learned.sizes[layer]
        source, target, biases = layer % 2, (layer + 1) % 2, offset + size * width
        for i in range(size):
            value = layers[biases + i]
            for j in range(width):
                value += layers[offset + i * width + j] * activity[source, j]
            activity[target, i] = max(value, 0.0) if layer + 1 < learned.sizes.shape[0] else value
        offset, width = biases + size, size
    return float(activity[learned.sizes.shape[0] % 2, 0])


@called_kernel
def rule_points(learned: LearnedArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> float:
    """Return the weighted sum of the heuristics' scores of class `c` on node `n`."""
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


@ir_inlined
def learned_score(
    learned: LearnedArrays, profile: ProfileArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int
) -> float:
    """Return the score of class `c` on node `n`, where it must fit."""
    score = _state_score(learned, profile, nodes, classes, c, n)
    return score + rule_points(learned, nodes, classes, c, n) if learned.rules.shape[0] > 0 else score


@ir_inlined
def _state_score(
    learned: LearnedArrays, profile: ProfileArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int
) -> float:
    """Return the score of class `c` on node `n` without the heuristics' scores."""
    kind, milli, key = pod_kind(classes, c), classes.gpu_milli[c], learned.node_keys[n]
    if kind == 1:
        return _best_shared_device(learned, profile, nodes, classes, c, n)[0]
    if kind == 0 or milli == GPU_MILLI:  # unused devices are interchangeable
        # Whole devices: each one taken turns a device of 1000 milli into one of 0.
        key += np.uint64(devices_taken(nodes, classes, c, n)) * (device_key(0) - device_key(GPU_MILLI))
        return _score(learned, profile, nodes, classes, c, n, DevicePlacement(-1, key))
    devices = best_devices(nodes, classes, c, n)
    for d in range(nodes.gpu_count[n]):
        if (devices >> d) & 1:
            # The hash is a sum over devices, so a change is the difference of their summands.
            key += device_key(nodes.gpu_free[n, d] - milli) - device_key(nodes.gpu_free[n, d])
    return _score(learned, profile, nodes, classes, c, n, DevicePlacement(devices, key))


@inlined_kernel
def _best_shared_device(
    learned: LearnedArrays, profile: ProfileArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int
) -> tuple[float, int]:
    """Return the best score over the devices that fit a share of one device, and that device's index.

    Ties go to the first device if FGD's score has a weight, as in FGD, otherwise to the fullest one, as in best fit.
    """
    milli, best, chosen, least = classes.gpu_milli[c], -np.inf, -1, GPU_MILLI + 1
    for d in range(nodes.gpu_count[n]):
        left = nodes.gpu_free[n, d]
        # Devices with equal free milli lead to equal states; the first one stands for all.
        if left < milli or has_equal_earlier_device(nodes, n, d):
            continue
        key = learned.node_keys[n] + device_key(left - milli) - device_key(left)
        score = _score(learned, profile, nodes, classes, c, n, DevicePlacement(1 << d, key))
        if score > best or (score == best and left < least and learned.columns[FEATURES, 1] == 0.0):
            best, chosen, least = score, d, left
    return best, chosen


@called_kernel
def learned_device(
    learned: LearnedArrays, profile: ProfileArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int
) -> int:
    """Return the device of node `n` for a pod with a share of one device."""
    return _best_shared_device(learned, profile, nodes, classes, c, n)[1]


@inlined_kernel
def features_now(learned: LearnedArrays, profile: ProfileArrays, nodes: NodeArrays, n: int) -> int:
    """Return the row of `features` for the current state of node `n`."""
    cpu = _cpu_now(learned, nodes, n)
    return cached_features(
        learned, profile, nodes, n, RemainingCapacity(cpu, 0, 0), _state_key(learned.node_keys[n], cpu)
    )


@inlined_kernel
def features_with(
    learned: LearnedArrays,
    profile: ProfileArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
    n: int,
    devices: int,
) -> int:
    """Return the row of `features` for node `n` after placing a pod of class `c` on the devices of the bit mask."""
    cpu, milli, key = _cpu_with(learned, nodes, classes, c, n), classes.gpu_milli[c], learned.node_keys[n]
    for d in range(nodes.gpu_count[n]):
        if (devices >> d) & 1:
            key += device_key(nodes.gpu_free[n, d] - milli) - device_key(nodes.gpu_free[n, d])
    return cached_features(learned, profile, nodes, n, RemainingCapacity(cpu, devices, milli), _state_key(key, cpu))
