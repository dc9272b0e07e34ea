"""Rules that decide by telemetry, and kube-scheduler's default, which only sees requests: baselines and teachers.

`most-allocated`, `least-allocated`, `least-connections` and `latency-aware` are the objectives MA, LA, LC and P0 of
Matranga's thesis (SoniaMatranga/SoniaMatrangaTesi) as rules: each takes the node that is best once the pod runs there.
A node whose metric is missing counts as the average of the others: it neither attracts nor repels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.core.compiled import inlined_kernel, kernel
from steersman.core.errors import UsageError
from steersman.policies.node_metrics.arrays import NODES, POD, SOFT, SchedulerView
from steersman.policies.node_metrics.estimates import Rates, connections_after, cpu_after, latency_to_users, rates
from steersman.policies.node_metrics.latency_filter import MARGIN, QUEUEING_KNEE, SAFE, find_nearest, hard_limit_risk
from steersman.policies.node_metrics.requests import class_of, row_of, running
from steersman.policies.node_scores.kube_profile import BALANCED, FIT, SPREADING, WEIGHTS
from steersman.policies.node_scores.plugin_scores import MAX_SCORE, balanced_allocation, least_allocated

KUBE_DEFAULT, MOST_ALLOCATED, LEAST_ALLOCATED, LEAST_CONNECTIONS, LATENCY_AWARE = range(5)
"""Numbers of the rules in compiled code."""

METRIC_RULES = {
    "kube-default": KUBE_DEFAULT,
    "most-allocated": MOST_ALLOCATED,
    "least-allocated": LEAST_ALLOCATED,
    "least-connections": LEAST_CONNECTIONS,
    "latency-aware": LATENCY_AWARE,
}

HOSTNAME_SKEW, ZONE_SKEW = 3, 5
"""maxSkew of the default constraints of PodTopologySpread, kubernetes.io/hostname and topology.kubernetes.io/zone."""

SIBLING_LOAD_PRIOR = 3.0
"""Average pods that another pod of the same Deployment on a node counts as, until use is measured.

Pods of one Deployment have about as many connections each, and a few Deployments have most of them."""


def rule_number(name: str) -> int:
    if name not in METRIC_RULES:
        raise UsageError(f"unknown rule {name!r}; known are {', '.join(METRIC_RULES)}")
    return METRIC_RULES[name]


@kernel
def decide_all(rule: int, view: SchedulerView, mask: npt.NDArray[np.int8], actions: npt.NDArray[np.int64]) -> None:
    """Write into actions, [E], the node that a rule takes for the current pod, the first of equals; -1: none.

    `mask`: [E, N] the nodes that passed all filters.
    """
    for e in range(actions.shape[0]):
        actions[e] = decide(rule, view, mask, e)


@inlined_kernel
def decide(rule: int, view: SchedulerView, mask: npt.NDArray[np.int8], e: int) -> int:
    """Return the node that a rule takes in environment `e`, see `decide_all`."""
    averages = rates(view, e)
    spread = spread_range(view, mask, e)
    neutral = _average(rule, view, mask, e, averages)
    _prepare(rule, view, e)
    best, best_score = -1, -np.inf
    for n in range(view.counts[e, NODES]):
        if not mask[e, n]:
            continue
        score = float(kube_default(view, e, n, spread)) if rule == KUBE_DEFAULT else 0.0
        if rule != KUBE_DEFAULT:
            score = _score(rule, view, e, n, _after(rule, view, e, n, averages), neutral)
        if score > best_score:
            best, best_score = n, score
    return best


@kernel
def score_all(
    rule: int, view: SchedulerView, mask: npt.NDArray[np.int8], e: int, scores: npt.NDArray[np.float64]
) -> None:
    """Write into scores, [N], a rule's scores (other than `KUBE_DEFAULT`'s) of the nodes of environment `e`.

    -inf where a node is not in the mask. `decide_all` takes the first of the highest.
    """
    averages = rates(view, e)
    neutral = _average(rule, view, mask, e, averages)
    _prepare(rule, view, e)
    for n in range(scores.shape[0]):
        scores[n] = -np.inf
        if n < view.counts[e, NODES] and mask[e, n]:
            scores[n] = _score(rule, view, e, n, _after(rule, view, e, n, averages), neutral)


@inlined_kernel
def _prepare(rule: int, view: SchedulerView, e: int) -> None:
    """Compute what `hard_limit_risk` needs."""
    if rule == LATENCY_AWARE and view.user[e, view.counts[e, POD]] >= 0:
        find_nearest(view, e)


@inlined_kernel
def _score(rule: int, view: SchedulerView, e: int, n: int, after: float, neutral: float) -> float:
    after = neutral if math.isnan(after) else after
    if rule == MOST_ALLOCATED:
        return _pack_score(view, e, n, after)
    if rule == LATENCY_AWARE:
        return _latency_aware(view, e, n, after)
    return -after


@inlined_kernel
def _after(rule: int, view: SchedulerView, e: int, n: int, averages: Rates) -> float:
    """Return what a rule compares: connections, or the share of CPU used, with the pod on node `n`; NaN: missing."""
    if rule == LEAST_CONNECTIONS:
        return float(
            connections_after(view, e, n, averages) + SIBLING_LOAD_PRIOR * averages.connections * view.siblings[e, n]
        )
    return cpu_after(view, e, n, averages)


@inlined_kernel
def _average(rule: int, view: SchedulerView, mask: npt.NDArray[np.int8], e: int, averages: Rates) -> float:
    """Return its mean over the nodes of the mask with the metric; 0 if there are none."""
    total, count = 0.0, 0
    for n in range(view.counts[e, NODES]):
        after = _after(rule, view, e, n, averages)
        if mask[e, n] and not math.isnan(after):
            total += after
            count += 1
    return total / count if count > 0 else 0.0


@inlined_kernel
def _pack_score(view: SchedulerView, e: int, n: int, after: float) -> float:
    """Return a score that prefers nodes in use, so that empty ones stay empty, and among these the most CPU used."""
    # 10 is more than any share of use, so packing goes first.
    return (10.0 if running(view, e, n) > 0 else 0.0) + after


@inlined_kernel
def _latency_aware(view: SchedulerView, e: int, n: int, after: float) -> float:
    """Return a score of limits first, then as `_pack_score`; if a hard limit is at risk, of the least risk.

    Within the soft limit first; then within the hard one; then by `hard_limit_risk`. Since a Deployment may turn out to
    be a busy one, its pods go to different nodes as long as that takes no empty one.
    """
    pod = view.counts[e, POD]
    fullest = _pack_score(view, e, n, after)
    if view.user[e, pod] < 0:
        # A pod without limits avoids nodes whose queues it would make grow.
        return fullest - (20.0 if after > QUEUEING_KNEE else 0.0)
    risk = hard_limit_risk(view, e, n)
    if risk > SAFE:
        return 200.0 - risk
    near = latency_to_users(view, e, n) * MARGIN <= float(view.limit[e, pod, SOFT])
    # Below the 10 points of a node in use, so that siblings never take an empty node.
    return (400.0 if near else 300.0) + fullest - float(min(view.siblings[e, n], 9))


# kube-scheduler's default ---------------------------------------------------------------------------------------------


class Spread(NamedTuple):
    """Normalisation of the spread of a Deployment, over the nodes that passed the filters.

    The weights of a pod on the node, ln(nodes + 2), and in the zone, ln(zones + 2), and the raw scores' range.
    """

    host: float
    zone: float
    least: int
    most: int


@inlined_kernel
def spread_range(view: SchedulerView, mask: npt.NDArray[np.int8], e: int) -> Spread:
    """Return what `kube_default` needs for the current pod."""
    hosts, zones = 0, 0
    for n in range(view.counts[e, NODES]):
        if mask[e, n]:
            hosts += 1
            zones += _is_first_of_zone(view, mask, e, n)
    host, zone = math.log(hosts + 2.0), math.log(zones + 2.0)
    least, most = 1 << 60, 0
    for n in range(view.counts[e, NODES]):
        if mask[e, n]:
            raw = _spread(view, e, n, host, zone)
            least, most = min(least, raw), max(most, raw)
    return Spread(host, zone, least, most)


@inlined_kernel
def kube_default(view: SchedulerView, e: int, n: int, spread: Spread) -> int:
    """Return kube-scheduler's default score: LeastAllocated, BalancedAllocation and the default PodTopologySpread."""
    c, row = class_of(view, e, view.counts[e, POD]), row_of(view, e, n)
    raw = _spread(view, e, n, spread.host, spread.zone)
    apart = MAX_SCORE * (spread.most + spread.least - raw) // spread.most if spread.most > 0 else MAX_SCORE
    return int(
        WEIGHTS[FIT] * least_allocated(view.nodes, view.pods, c, row)
        + WEIGHTS[BALANCED] * balanced_allocation(view.nodes, view.pods, c, row)
        + WEIGHTS[SPREADING] * apart
    )


@inlined_kernel
def _spread(view: SchedulerView, e: int, n: int, host: float, zone: float) -> int:
    """Return pods of the Deployment on the node and in its zone, weighted, plus max skew - 1 of each, half up."""
    in_zone = 0
    for other in range(view.counts[e, NODES]):
        if view.zone[e, other] == view.zone[e, n]:
            in_zone += view.siblings[e, other]
    raw = (view.siblings[e, n] * host + (HOSTNAME_SKEW - 1.0)) + (in_zone * zone + (ZONE_SKEW - 1.0))
    return int(np.floor(raw + 0.5))


@inlined_kernel
def _is_first_of_zone(view: SchedulerView, mask: npt.NDArray[np.int8], e: int, n: int) -> bool:
    before = 0
    for other in range(n):
        before += mask[e, other] == 1 and view.zone[e, other] == view.zone[e, n]
    return before == 0
