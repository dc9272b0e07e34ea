"""Arrays of learned policies that the score table evaluates.

The score of placing a pod of kind k (no GPU, a share, one GPU, several) on a node is

    after[k] . f(node after) + change[k] . (f(node after) - f(node before)) + fgd[k] FGD(node) + rules[k] . r(node)

with the features f of `gpu_features`, FGD's integer score and the scores r of other heuristics. A network may add its
output for the same features and the pod's. Few distinct node states occur, so their weighted features are cached by a
hash of the state (`gpu_state.kernels`).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays
from steersman.policies.features import POD_KINDS
from steersman.policies.gpu_state.gpu_features import FEATURES, Scratch, scratch
from steersman.policies.gpu_state.leftover_tables import LeftoverTables, leftover_tables
from steersman.policies.gpu_state.leftovers import LeftoverArrays, leftover_arrays
from steersman.policies.observations.encoding import encode_pods
from steersman.workloads.profile import ProfileArrays, profile_arrays

GPU_VIEW = "gpu"  # name of the weights' view (`steersman.policies.features`)

RULE_COUNT = 8  # rows of `rules`, one for each id in `local_scores`; that of FGD is unused, its weight is in `weights`

WEIGHTS = 2 * FEATURES + 1  # number of weights per pod kind: of the state after, of its change, of FGD's score

STATE_CACHE_SIZE = 1 << 16
FEATURE_CACHE_SIZE = 1 << 16
CACHE_LINE = 8  # Float64 values per cache line of the processor; each cached state is aligned to one

# Columns of `LearnedArrays.states`; the values follow. `LearnedArrays.before` has no key.
KEY, FRAGMENTED, VALUE = range(3)

Array = npt.NDArray[np.float64]
Layer = tuple[Array, Array]  # weights [H, I] and biases [H] of a layer


class LearnedArrays(NamedTuple):
    """Arrays of a learned policy for N nodes, with caches of S states' values and H states' features.

    A value is a weighted sum of the features of a state. The first four of J values are scores by pod kind, the others
    pre-activations of the network's first layer.
    """

    leftovers: LeftoverTables  # leftover tables of the profile
    # [F + 1, 2 J] weights: of J values of the state after a placement (weights of the state plus weights of the
    # change), then of J values of the state before (weights of the change); the last row weighs FGD's score
    columns: Array
    # [S, 8 i] KEY, a hash of the state; FRAGMENTED, its fragmented GPU milli; from VALUE on its J values as the state
    # after a placement
    states: Array
    keys: npt.NDArray[np.uint64]  # [S, 8 i] uint64 view of `states`
    feature_keys: npt.NDArray[np.uint64]  # [H] hashes of the states in `features`
    features: npt.NDArray[np.float32]  # [H, F] float32, features of states; independent of weights
    fragmented: Array  # [H] fragmented GPU milli of these states
    node_keys: npt.NDArray[np.uint64]  # [N] hashes of the nodes' current devices
    before: Array  # [N, 1 + J] fragmented GPU milli of the node's current state, and its values as the state before
    pods: Array  # [C, J - 4] contribution of each pod class to the network's first layer; [C, 0] without a network
    layers: Array  # weights and biases of the network's further layers, concatenated
    sizes: npt.NDArray[np.int64]  # widths of these layers, the last of which is 1
    activity: Array  # [2, M] buffer of activations
    rules: Array  # [R, 4] weights of the heuristics' scores by id and pod kind; [0, 4] if there are none
    room: Scratch  # buffers of the features


def learned_arrays(leftovers: LeftoverArrays, profile: ProfileArrays, nodes: NodeArrays) -> LearnedArrays:
    """Return arrays without weights (see `with_weights`) for these nodes."""
    states, keys = _state_cache(STATE_CACHE_SIZE, POD_KINDS)
    buffers = scratch(nodes.gpu_free.shape[1], profile)
    tables = leftover_tables(leftovers, profile)
    return _arrays(tables, len(nodes.gpu_count), buffers, FEATURE_CACHE_SIZE)._replace(states=states, keys=keys)


def _arrays(leftovers: LeftoverTables, nodes: int, buffers: Scratch, features_kept: int) -> LearnedArrays:
    states, keys = _state_cache(0, POD_KINDS)
    return LearnedArrays(
        leftovers=leftovers,
        columns=np.zeros((FEATURES + 1, 2 * POD_KINDS)),
        states=states,
        keys=keys,
        feature_keys=np.zeros(features_kept, dtype=np.uint64),
        features=np.zeros((features_kept, FEATURES), dtype=np.float32),
        fragmented=np.zeros(features_kept),
        node_keys=np.zeros(nodes, dtype=np.uint64),
        before=np.zeros((nodes, 1 + POD_KINDS)),
        pods=np.zeros((0, 0)),
        layers=np.zeros(0),
        sizes=np.zeros(0, dtype=np.int64),
        activity=np.zeros((2, 0)),
        rules=np.zeros((0, POD_KINDS)),
        room=buffers,
    )


def _state_cache(count: int, values: int) -> tuple[Array, npt.NDArray[np.uint64]]:
    """Return `states`, aligned to the processor's cache lines, and `keys`, the same memory as integers."""
    width = -(-(VALUE + values) // CACHE_LINE) * CACHE_LINE
    memory = np.zeros(count * width + CACHE_LINE)
    start = -memory.ctypes.data // memory.itemsize % CACHE_LINE
    states = memory[start : start + count * width].reshape(count, width)
    return states, states.view(np.uint64)


@cache
def empty_learned() -> LearnedArrays:
    """Return the empty arrays of policies that are not learned; never written to, so all runs share them."""
    profile = profile_arrays((), ())
    return _arrays(leftover_tables(leftover_arrays(()), profile), 0, scratch(0, profile), 0)


def features_only(learned: LearnedArrays) -> LearnedArrays:
    """Return the leftover tables and buffers alone, for runs with observations but without learned scores."""
    return empty_learned()._replace(leftovers=learned.leftovers, room=learned.room)


def with_weights(
    learned: LearnedArrays, weights: Array, network: tuple[Layer, ...], classes: ClassArrays, rules: Array | None = None
) -> LearnedArrays:
    """Return the arrays of a policy with `weights`, [4, W], an optional network and `rules`, [4, R], for pod classes.

    Call `kernels.learned_refresh_all` before use. The caches are shared with `learned`, so only one policy can be
    evaluated at a time.
    """
    weighted = learned._replace(
        columns=_columns(weights), before=np.zeros_like(learned.before), node_keys=np.zeros_like(learned.node_keys)
    )
    if rules is not None:
        weighted = weighted._replace(rules=np.ascontiguousarray(rules.T))
    if network:
        weighted = _with_network(weighted, network, classes)
    # Key 0 is no state's, so all entries of earlier weights are invalid.
    weighted.keys[:, KEY] = 0
    return weighted


def _columns(weights: Array) -> Array:
    """Return `LearnedArrays.columns`, [F + 1, 2 J], of the weights, [J, W]."""
    after, change, fgd = np.split(weights, (FEATURES, 2 * FEATURES), axis=1)
    # FGD's score has no value before the placement, hence the zeros.
    last = np.concatenate([fgd, np.zeros_like(fgd)])
    # W f(after) + C (f(after) - f(before)): state after weighs after + change; `before` is subtracted in kernels.
    return np.ascontiguousarray(np.concatenate([np.concatenate([after + change, change]), last], axis=1).T)


def _with_network(learned: LearnedArrays, network: tuple[Layer, ...], classes: ClassArrays) -> LearnedArrays:
    (weight, bias), *further = network
    # Kernels compute values in groups of four.
    weight = np.concatenate([weight, np.zeros((-len(weight) % POD_KINDS, weight.shape[1]))])
    bias = np.concatenate([bias, np.zeros(len(weight) - len(bias))])
    further = [
        (np.pad(w, ((0, 0), (0, (-w.shape[1]) % POD_KINDS if i == 0 else 0))), b) for i, (w, b) in enumerate(further)
    ]
    pods = np.zeros((len(classes.gpu_count), weight.shape[1] - WEIGHTS), dtype=np.float32)
    encode_pods(classes, pods)
    states, keys = _state_cache(STATE_CACHE_SIZE, POD_KINDS + len(weight))
    linear, first = learned.columns, _columns(weight[:, :WEIGHTS])
    # J = 4 scores and the units; first all columns of the state after, then those of the state before.
    parts = (linear[:, :POD_KINDS], first[:, : len(weight)], linear[:, POD_KINDS:], first[:, len(weight) :])
    columns = np.concatenate(parts, axis=1)
    sizes = np.array([len(b) for _, b in further], dtype=np.int64)
    return learned._replace(
        columns=np.ascontiguousarray(columns),
        states=states,
        keys=keys,
        before=np.zeros((len(learned.before), 1 + POD_KINDS + len(weight))),
        # The pod's part of the first layer does not depend on the node: computed once per class.
        pods=pods @ weight[:, WEIGHTS:].T + bias,
        layers=np.concatenate([np.concatenate([w.ravel(), b]) for w, b in further]),
        sizes=sizes,
        activity=np.zeros((2, max(len(weight), int(sizes.max())))),
    )
