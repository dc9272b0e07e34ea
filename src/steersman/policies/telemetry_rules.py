"""Rules that decide by telemetry, and kube-scheduler's default, which sees requests only: to compare with, to imitate.

`most-allocated`, `least-allocated`, `least-connections` and `latency-aware` are reference C's objectives MA, LA, LC and
P0 (SoniaMatranga/SoniaMatrangaTesi) as rules: each takes the node that is best once the pod runs there. A node whose
metric is missing counts as the average of the others: it neither attracts nor repels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.compiled import inner, kernel
from steersman.errors import UsageError
from steersman.policies.kube_arrays import BALANCED, FIT, SPREADING, WEIGHTS
from steersman.policies.kube_scores import MAX_SCORE, balanced_allocation, least_allocated
from steersman.policies.telemetry_estimates import (
    Rates,
    connections_after,
    cpu_after,
    latency_to_users,
    rates,
)
from steersman.policies.telemetry_filter import MARGIN, SAFE, find_nearest, hard_limit_risk
from steersman.telemetry.model import NODES, POD, SOFT, Seen
from steersman.telemetry.requests import class_of, row_of, running

KUBE_DEFAULT, MOST_ALLOCATED, LEAST_ALLOCATED, LEAST_CONNECTIONS, LATENCY_AWARE = range(5)
"""Numbers of the rules in compiled code."""

RULES = {
    "kube-default": KUBE_DEFAULT,
    "most-allocated": MOST_ALLOCATED,
    "least-allocated": LEAST_ALLOCATED,
    "least-connections": LEAST_CONNECTIONS,
    "latency-aware": LATENCY_AWARE,
}

HOSTNAME_SKEW, ZONE_SKEW = 3, 5
"""maxSkew of the default constraints of PodTopologySpread, kubernetes.io/hostname and topology.kubernetes.io/zone."""

SIBLINGS = 3.0
"""Pods of one Deployment have about as many connections each, and a few Deployments have most of them: how many average
pods another one of the same Deployment on a node counts as, beside itself, as long as nobody knows."""

BUSY = 0.8
"""Share of CPU used above which a queue grows fast: `latency-aware` goes on to the next node."""


def rule_number(name: str) -> int:
    """The number of a rule. Raises UsageError: there is none of that name; the message lists those there are."""
    if name not in RULES:
        raise UsageError(f"unknown rule {name!r}; known are {', '.join(RULES)}")
    return RULES[name]


@kernel
def decide_all(rule: int, seen: Seen, mask: npt.NDArray[np.int8], actions: npt.NDArray[np.int64]) -> None:
    """Into actions, [E], the node that a rule takes for the pod in question, the first of equals; -1: there is none.

    Args:
        rule: its number.
        seen: what is known.
        mask: [E, N] the nodes that passed all filters.
        actions: [E].
    """
    for e in range(actions.shape[0]):
        actions[e] = decide(rule, seen, mask, e)


@inner
def decide(rule: int, seen: Seen, mask: npt.NDArray[np.int8], e: int) -> int:
    """The same for environment `e`."""
    known = rates(seen, e)
    spread = spread_range(seen, mask, e)
    neutral = _average(rule, seen, mask, e, known)
    _prepare(rule, seen, e)
    best, best_score = -1, -np.inf
    for n in range(seen.counts[e, NODES]):
        if not mask[e, n]:
            continue
        score = float(kube_default(seen, e, n, spread)) if rule == KUBE_DEFAULT else 0.0
        if rule != KUBE_DEFAULT:
            score = _score(rule, seen, e, n, _after(rule, seen, e, n, known), neutral)
        if score > best_score:
            best, best_score = n, score
    return best


@kernel
def score_all(rule: int, seen: Seen, mask: npt.NDArray[np.int8], e: int, scores: npt.NDArray[np.float64]) -> None:
    """Into scores, [N], what a rule other than `KUBE_DEFAULT` thinks of the nodes of environment `e`.

    -inf where a node is not in the mask. `decide_all` takes the first of the highest.
    """
    known = rates(seen, e)
    neutral = _average(rule, seen, mask, e, known)
    _prepare(rule, seen, e)
    for n in range(scores.shape[0]):
        scores[n] = -np.inf
        if n < seen.counts[e, NODES] and mask[e, n]:
            scores[n] = _score(rule, seen, e, n, _after(rule, seen, e, n, known), neutral)


@inner
def _prepare(rule: int, seen: Seen, e: int) -> None:
    """What `hard_limit_risk` needs."""
    if rule == LATENCY_AWARE and seen.user[e, seen.counts[e, POD]] >= 0:
        find_nearest(seen, e)


@inner
def _score(rule: int, seen: Seen, e: int, n: int, after: float, neutral: float) -> float:
    after = neutral if math.isnan(after) else after
    if rule == MOST_ALLOCATED:
        return _fullest(seen, e, n, after)
    if rule == LATENCY_AWARE:
        return _latency_aware(seen, e, n, after)
    return -after


@inner
def _after(rule: int, seen: Seen, e: int, n: int, known: Rates) -> float:
    """What a rule looks at: connections, or the share of CPU used, with the pod on node `n`; NaN: missing."""
    if rule == LEAST_CONNECTIONS:
        return float(connections_after(seen, e, n, known) + SIBLINGS * known.connections * seen.siblings[e, n])
    return cpu_after(seen, e, n, known)


@inner
def _average(rule: int, seen: Seen, mask: npt.NDArray[np.int8], e: int, known: Rates) -> float:
    """Its mean over the nodes of the mask whose metric is there; 0 if there are none."""
    total, count = 0.0, 0
    for n in range(seen.counts[e, NODES]):
        after = _after(rule, seen, e, n, known)
        if mask[e, n] and not math.isnan(after):
            total += after
            count += 1
    return total / count if count > 0 else 0.0


@inner
def _fullest(seen: Seen, e: int, n: int, after: float) -> float:
    """Nodes that hold a pod first, so that empty ones stay so; of these the one with most CPU used."""
    return (10.0 if running(seen, e, n) > 0 else 0.0) + after


@inner
def _latency_aware(seen: Seen, e: int, n: int, after: float) -> float:
    """Limits first, then as `_fullest`; where hard limits are at stake, the node of the least risk.

    Known to be within the soft limit; within the hard one; then by `hard_limit_risk`. Since a Deployment may turn out
    to be a busy one, its pods go to different nodes as long as that takes no empty one.
    """
    pod = seen.counts[e, POD]
    fullest = _fullest(seen, e, n, after)
    if seen.user[e, pod] < 0:
        return fullest - (20.0 if after > BUSY else 0.0)
    risk = hard_limit_risk(seen, e, n)
    if risk > SAFE:
        return 200.0 - risk
    near = latency_to_users(seen, e, n) * MARGIN <= float(seen.limit[e, pod, SOFT])
    return (400.0 if near else 300.0) + fullest - float(min(seen.siblings[e, n], 9))


# kube-scheduler's default ---------------------------------------------------------------------------------------------


class Spread(NamedTuple):
    """What the spread of a Deployment is normalised with, over the nodes that passed the filters.

    Attributes:
        host: the weight of a pod on the node, ln(nodes + 2).
        zone: the weight of a pod in the zone, ln(zones + 2).
        least: the lowest raw score.
        most: the highest.
    """

    host: float
    zone: float
    least: int
    most: int


@inner
def spread_range(seen: Seen, mask: npt.NDArray[np.int8], e: int) -> Spread:
    """What `kube_default` needs for the pod in question."""
    hosts, zones = 0, 0
    for n in range(seen.counts[e, NODES]):
        if mask[e, n]:
            hosts += 1
            zones += _is_first_of_zone(seen, mask, e, n)
    host, zone = math.log(hosts + 2.0), math.log(zones + 2.0)
    least, most = 1 << 60, 0
    for n in range(seen.counts[e, NODES]):
        if mask[e, n]:
            raw = _spread(seen, e, n, host, zone)
            least, most = min(least, raw), max(most, raw)
    return Spread(host, zone, least, most)


@inner
def kube_default(seen: Seen, e: int, n: int, spread: Spread) -> int:
    """LeastAllocated, BalancedAllocation and the default PodTopologySpread: the plugins that tell these nodes apart."""
    c, row = class_of(seen, e, seen.counts[e, POD]), row_of(seen, e, n)
    raw = _spread(seen, e, n, spread.host, spread.zone)
    apart = MAX_SCORE * (spread.most + spread.least - raw) // spread.most if spread.most > 0 else MAX_SCORE
    return int(
        WEIGHTS[FIT] * least_allocated(seen.nodes, seen.pods, c, row)
        + WEIGHTS[BALANCED] * balanced_allocation(seen.nodes, seen.pods, c, row)
        + WEIGHTS[SPREADING] * apart
    )


@inner
def _spread(seen: Seen, e: int, n: int, host: float, zone: float) -> int:
    """Pods of the Deployment on the node and in its zone, weighted, plus max skew - 1 of each; halves go up."""
    in_zone = 0
    for other in range(seen.counts[e, NODES]):
        if seen.zone[e, other] == seen.zone[e, n]:
            in_zone += seen.siblings[e, other]
    raw = (seen.siblings[e, n] * host + (HOSTNAME_SKEW - 1.0)) + (in_zone * zone + (ZONE_SKEW - 1.0))
    return int(np.floor(raw + 0.5))


@inner
def _is_first_of_zone(seen: Seen, mask: npt.NDArray[np.int8], e: int, n: int) -> bool:
    """Whether no node of the mask before `n` is in its zone."""
    before = 0
    for other in range(n):
        before += mask[e, other] == 1 and seen.zone[e, other] == seen.zone[e, n]
    return before == 0
