"""Learned policies that the score table runs: what they are, and their arrays.

The score of placing a pod of kind k (no GPU, a share, one GPU, several) on a node is

    after[k] . f(node after) + change[k] . (f(node after) - f(node before)) + fgd[k] FGD(node) + rules[k] . r(node)

with the features f of `gpu_features`, FGD's whole-numbered score and those of other heuristics r; a network may add to
it what it makes of the same
features and of the pod's. f depends on little of a node, and the same states come again and again, so what the weights
make of a state is kept by a hash of it (`learned_scores`).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays
from steersman.policies.encoding import encode_pods
from steersman.policies.gpu_features import FEATURES, Scratch, scratch
from steersman.policies.outlook import OutlookArrays, outlook_arrays
from steersman.policies.outlook_tables import OutlookTables, outlook_tables
from steersman.workloads.mix import MixArrays, mix_arrays

VIEW = "gpu"
"""The view (`steersman.features`) that the weights are for."""

KINDS = 4
"""Kinds of pods: no GPU, a share of one GPU, one GPU, several."""

RULES = 8
"""Heuristics that a linear policy may use, by their numbers in `policies.local`; FGD's weight is in `weights`."""

WEIGHTS = 2 * FEATURES + 1
"""Weights of a kind: of the state after, of its change, of FGD's score."""

STATES_KEPT = 1 << 16
FEATURES_KEPT = 1 << 16
LINE = 8
"""Numbers in a line of the processor's cache: what is kept of a state begins with one."""

# Columns of `LearnedArrays.states`; the values follow. `LearnedArrays.before` has no key.
KEY, FRAGMENTED, VALUE = range(3)

Array = npt.NDArray[np.float64]
Layer = tuple[Array, Array]
"""Weights [H, I] and biases [H]."""


class LearnedArrays(NamedTuple):
    """A learned policy at work on N nodes; S states whose worth is kept, H states whose features are kept.

    Attributes:
        outlook: what the mix says about leftovers.
        columns: [F + 1, 2 J] weights of the features: for J values of the state after a placement, where they weigh
            it and the change, then for J of the state before, where they weigh the change alone; the last row is of
            FGD's score. The first four values are scores by kind of pod, others go into the network.
        states: [S, 8 i] KEY, a hash of the state; its fragmented GPU milli; the values of the state if it is the one
            after a placement.
        keys: the same memory as integers.
        feature_keys: [H] hashes.
        features: [H, F] float32, the features of these states, and fragmented: [H] their fragmented GPU milli. They
            do not depend on weights.
        node_keys: [N] hashes of the nodes' devices as they are.
        before: [N, 1 + J] fragmented GPU milli of the node as it is, and its values as the state before.
        pods: [C, J - 4] what the network's first layer makes of each class of pods; [C, 0] without a network.
        layers: weights and biases of the network's further layers, one after the other.
        sizes: widths of these layers, the last of which is 1.
        activity: [2, M] scratch of the network.
        rules: [R, 4] what a point of each heuristic counts, by its number and the kind of pod; [0, 4]: nothing.
        room: scratch of the features.
    """

    outlook: OutlookTables
    columns: Array
    states: Array
    keys: npt.NDArray[np.uint64]
    feature_keys: npt.NDArray[np.uint64]
    features: npt.NDArray[np.float32]
    fragmented: Array
    node_keys: npt.NDArray[np.uint64]
    before: Array
    pods: Array
    layers: Array
    sizes: npt.NDArray[np.int64]
    activity: Array
    rules: Array
    room: Scratch


def learned_arrays(
    outlook: OutlookArrays, mix: MixArrays, nodes: NodeArrays, *, features_kept: int = FEATURES_KEPT
) -> LearnedArrays:
    """What policies need on these nodes, whatever their weights, see `at_work`. `features_kept` is a power of two."""
    states, keys = _states(STATES_KEPT, KINDS)
    room = scratch(nodes.gpu_free.shape[1], mix)
    tables = outlook_tables(outlook, mix)
    return _arrays(tables, len(nodes.gpu_count), room, features_kept)._replace(states=states, keys=keys)


def _arrays(outlook: OutlookTables, nodes: int, room: Scratch, features_kept: int) -> LearnedArrays:
    states, keys = _states(0, KINDS)
    return LearnedArrays(
        outlook=outlook,
        columns=np.zeros((FEATURES + 1, 2 * KINDS)),
        states=states,
        keys=keys,
        feature_keys=np.zeros(features_kept, dtype=np.uint64),
        features=np.zeros((features_kept, FEATURES), dtype=np.float32),
        fragmented=np.zeros(features_kept),
        node_keys=np.zeros(nodes, dtype=np.uint64),
        before=np.zeros((nodes, 1 + KINDS)),
        pods=np.zeros((0, 0)),
        layers=np.zeros(0),
        sizes=np.zeros(0, dtype=np.int64),
        activity=np.zeros((2, 0)),
        rules=np.zeros((0, KINDS)),
        room=room,
    )


def _states(count: int, values: int) -> tuple[Array, npt.NDArray[np.uint64]]:
    """Room for states in whole lines of the processor's cache, and the same memory as integers."""
    width = -(-(VALUE + values) // LINE) * LINE
    memory = np.zeros(count * width + LINE)
    start = -memory.ctypes.data // memory.itemsize % LINE
    states = memory[start : start + count * width].reshape(count, width)
    return states, states.view(np.uint64)


@cache
def no_learned() -> LearnedArrays:
    """What stands for a learned policy where there is none; nobody writes to it, so one serves all runs."""
    mix = mix_arrays((), ())
    return _arrays(outlook_tables(outlook_arrays((), mix), mix), 0, scratch(0, mix), 0)


def for_showing(learned: LearnedArrays) -> LearnedArrays:
    """The outlook and its scratch alone, for a run in which features are shown and no score is kept."""
    return no_learned()._replace(outlook=learned.outlook, room=learned.room)


def at_work(
    learned: LearnedArrays,
    weights: Array,
    network: tuple[Layer, ...],
    classes: ClassArrays,
    rules: Array | None = None,
) -> LearnedArrays:
    """The policy with `weights`, [4, W], perhaps a network and scores of `rules`, [4, R], for pods of these classes.

    It has not looked at the nodes yet (`learned_scores.learned_refresh_all`). What is known of states is shared with
    `learned`, so only one policy can be at work at a time.
    """
    ready = learned._replace(
        columns=_columns(weights), before=np.zeros_like(learned.before), node_keys=np.zeros_like(learned.node_keys)
    )
    if rules is not None:
        ready = ready._replace(rules=np.ascontiguousarray(rules.T))
    if network:
        ready = _with_network(ready, network, classes)
    ready.keys[:, KEY] = 0
    return ready


def _columns(weights: Array) -> Array:
    """[F + 1, 2 J] from the weights, [J, W], of each value."""
    after, change, fgd = np.split(weights, (FEATURES, 2 * FEATURES), axis=1)
    last = np.concatenate([fgd, np.zeros_like(fgd)])
    return np.ascontiguousarray(np.concatenate([np.concatenate([after + change, change]), last], axis=1).T)


def _with_network(learned: LearnedArrays, network: tuple[Layer, ...], classes: ClassArrays) -> LearnedArrays:
    (weight, bias), *further = network
    # Values come in fours.
    weight = np.concatenate([weight, np.zeros((-len(weight) % KINDS, weight.shape[1]))])
    bias = np.concatenate([bias, np.zeros(len(weight) - len(bias))])
    further = [
        (np.pad(w, ((0, 0), (0, (-w.shape[1]) % KINDS if i == 0 else 0))), b) for i, (w, b) in enumerate(further)
    ]
    pods = np.zeros((len(classes.gpu_count), weight.shape[1] - WEIGHTS), dtype=np.float32)
    encode_pods(classes, pods)
    states, keys = _states(STATES_KEPT, KINDS + len(weight))
    linear, own = learned.columns, _columns(weight[:, :WEIGHTS])
    parts = (linear[:, :KINDS], own[:, : len(weight)], linear[:, KINDS:], own[:, len(weight) :])
    columns = np.concatenate(parts, axis=1)
    sizes = np.array([len(b) for _, b in further], dtype=np.int64)
    return learned._replace(
        columns=np.ascontiguousarray(columns),
        states=states,
        keys=keys,
        before=np.zeros((len(learned.before), 1 + KINDS + len(weight))),
        pods=pods @ weight[:, WEIGHTS:].T + bias,
        layers=np.concatenate([np.concatenate([w.ravel(), b]) for w, b in further]),
        sizes=sizes,
        activity=np.zeros((2, max(len(weight), int(sizes.max())))),
    )
