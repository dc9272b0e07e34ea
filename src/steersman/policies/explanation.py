"""Why a policy prefers one node to another: by how much its score would fall if a feature were as on the other one.

For a linear policy these contributions add up to the difference of the two scores. For a network they do not: each is
what one feature alone decides, with all others as they are (occlusion by the other node's value).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays
from steersman.cluster.latency import NO_LIMITS, LatencyLimits
from steersman.compiled import kernel
from steersman.features import GPU
from steersman.objectives.fragmentation import FragmentArrays
from steersman.policies.decider import Decider
from steersman.policies.encoding import encode_pods
from steersman.policies.gpu_features import FEATURES
from steersman.policies.heuristics import LOCAL
from steersman.policies.learned import KINDS, LearnedArrays
from steersman.policies.learned_scores import features_now, features_with
from steersman.policies.local import gradient, local_score
from steersman.policies.network_live import LiveNetwork
from steersman.policies.policy import KubeDefaultPolicy, LinearPolicy, LocalPolicy, MlpPolicy
from steersman.policies.showing import Seen
from steersman.policies.telemetry_policy import TelemetryPolicy
from steersman.workloads.mix import MixArrays

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Contribution:
    """A feature's part in a preference.

    Attributes:
        name: of the feature.
        value, other: on the preferred node, and on the other one.
        contribution: by how much the preferred node's score falls with the other one's value.
    """

    name: str
    value: float
    other: float
    contribution: float


def contributions(
    decider: Decider,
    class_id: int,
    labels_id: int,
    peers: Mapping[int, int],
    slot: int,
    other: int,
    limits: LatencyLimits = NO_LIMITS,
) -> list[Contribution]:
    """What told node `slot` from node `other`, the largest part first; nothing if a policy's scores have no parts.

    Args:
        decider: of the policy and the cluster.
        class_id: of the pod.
        labels_id: its label set.
        peers: slot -> how many pods of its owner run there.
        slot: the preferred node.
        other: the other one; the pod must fit on both.
        limits: how far it may be from its users.
    """
    decider.follow()
    found: list[Contribution] = []
    match decider.policy:
        case LocalPolicy() as policy:
            found = _of_rules(decider, policy, class_id, slot, other)
        case LinearPolicy() | MlpPolicy() as policy:
            found = _of_learned(decider, policy, class_id, slot, other)
        case KubeDefaultPolicy() as policy:
            parts = decider.kube_default(policy).breakdown(class_id, labels_id)
            found = [_difference(name, float(part[slot]), float(part[other])) for name, part in parts.items()]
        case TelemetryPolicy() as policy:
            feasible = decider.state.mask(class_id, labels_id)
            told = decider.sight.parts(policy.rule, class_id, feasible, peers, limits, (slot, other))
            found = [Contribution(*each) for each in told]
        case _ if isinstance(decider.asked, LiveNetwork):
            feasible = decider.state.mask(class_id, labels_id)
            seen, groups = decider.asked.see(class_id, peers, feasible, decider.waiting)
            found = _of_network(decider.asked, seen, groups, slot, other)
    return sorted(found, key=lambda each: -abs(each.contribution))


def _difference(name: str, value: float, other: float) -> Contribution:
    return Contribution(name, value, other, value - other)


def _of_rules(decider: Decider, policy: LocalPolicy, c: int, slot: int, other: int) -> list[Contribution]:
    """Scores of the rules that a mix consists of, times their weights."""
    cluster, names = decider.cluster, {number: name for name, number in LOCAL.items()}
    kinds = np.array(policy.kinds, dtype=np.int64)
    points = np.zeros((2, len(kinds)), dtype=np.int64)
    _rule_scores(kinds, cluster.mix, cluster.fragments, cluster.nodes, cluster.classes, c, slot, points[0])
    _rule_scores(kinds, cluster.mix, cluster.fragments, cluster.nodes, cluster.classes, c, other, points[1])
    return [
        Contribution(names[kind], float(a), float(b), weight * float(a - b))
        for kind, weight, a, b in zip(policy.kinds, policy.weights, *points.tolist(), strict=True)
    ]


@kernel
def _rule_scores(
    kinds: npt.NDArray[np.int64],
    mix: MixArrays,
    fragments: FragmentArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
    n: int,
    points: npt.NDArray[np.int64],
) -> None:
    """Into points, [K], the scores of rules for class `c` on node `n`."""
    for k in range(kinds.shape[0]):
        points[k] = local_score(kinds[k], mix, fragments, nodes, classes, c, n)


def _of_learned(
    decider: Decider, policy: LinearPolicy | MlpPolicy, c: int, slot: int, other: int
) -> list[Contribution]:
    cluster = decider.cluster
    rows = np.zeros((2, 2 * FEATURES + 1))
    for row, n in zip(rows, (slot, other), strict=True):
        _learned_row(cluster.learned, cluster.mix, cluster.nodes, cluster.classes, c, n, decider.devices(c, n), row)
    pods = np.zeros((len(cluster.classes.gpu_count), len(GPU.pod)), dtype=np.float32)
    encode_pods(cluster.classes, pods)
    weights = policy.weights[int(pods[c, :KINDS].argmax())]

    def score(several: Floats) -> Floats:
        return np.asarray(several @ weights) + _network(policy, several, pods[c])

    found = _by_replacing([feature.name for feature in GPU.node], rows[0], rows[1], score)
    if isinstance(policy, LinearPolicy) and policy.rules is not None:
        counts = policy.rules[int(pods[c, :KINDS].argmax())]
        used = [number for number in LOCAL.values() if counts[number]]
        mixed = LocalPolicy("rules", tuple(used), tuple(counts[used].tolist()))
        found += [each for each in _of_rules(decider, mixed, c, slot, other) if each.contribution]
    return found


def _network(policy: LinearPolicy | MlpPolicy, rows: Floats, pod: npt.NDArray[np.float32]) -> Floats:
    """[B] what a network adds to the scores of rows, [B, 2 F + 1]."""
    if isinstance(policy, LinearPolicy):
        return np.zeros(len(rows))
    values = np.concatenate([rows, np.broadcast_to(pod, (len(rows), len(pod)))], axis=1)
    for i, (weight, bias) in enumerate(policy.network):
        values = values @ weight.T + bias
        if i + 1 < len(policy.network):
            values = np.maximum(values, 0.0)
    return np.asarray(values[:, 0])


@kernel
def _learned_row(
    learned: LearnedArrays,
    mix: MixArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
    n: int,
    devices: int,
    row: npt.NDArray[np.float64],
) -> None:
    """Into row, [2 F + 1], what the weights of a learned policy weigh: the state after, its change, FGD's score."""
    now = features_now(learned, mix, nodes, n)
    fragmented = learned.fragmented[now]
    for i in range(FEATURES):
        row[FEATURES + i] = -learned.features[now, i]
    after = features_with(learned, mix, nodes, classes, c, n, devices)
    for i in range(FEATURES):
        row[i] = learned.features[after, i]
        row[FEATURES + i] += learned.features[after, i]
    row[2 * FEATURES] = gradient(fragmented, learned.fragmented[after])


def _of_network(
    network: LiveNetwork, seen: Seen, groups: npt.NDArray[np.int32], slot: int, other: int
) -> list[Contribution]:
    kept = seen.nodes[slot].copy()

    def score(several: Floats) -> Floats:
        found = []
        for row in several:
            seen.nodes[slot] = row
            found.append(float(network.policy.scores(seen, groups)[slot]))
        seen.nodes[slot] = kept
        return np.array(found)

    try:
        names = [feature.name for feature in network.view.node]
        return _by_replacing(names, kept.astype(np.float64), seen.nodes[other].astype(np.float64), score)
    finally:
        seen.nodes[slot] = kept


def _by_replacing(
    names: Sequence[str], row: Floats, other: Floats, score: Callable[[Floats], Floats]
) -> list[Contribution]:
    """By how much `score` of rows falls when one number of `row` at a time is as in `other`; of those that differ."""
    differ = np.flatnonzero(row != other)
    replaced = np.repeat(row[None], 1 + len(differ), axis=0)
    replaced[1 + np.arange(len(differ)), differ] = other[differ]
    scores = score(replaced)
    return [
        Contribution(names[i], float(row[i]), float(other[i]), float(scores[0] - scores[1 + k]))
        for k, i in enumerate(differ.tolist())
    ]
