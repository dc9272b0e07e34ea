"""Predict when pods start, what they wait for, and what would let them start sooner."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI, Pod
from steersman.cluster.state import ClusterState
from steersman.core.errors import UsageError
from steersman.core.quantities import format_duration
from steersman.orders.live_order import check_live
from steersman.policies.base import Policy
from steersman.simulation.arrivals import least_of
from steersman.simulation.prediction.alternatives import changes
from steersman.simulation.prediction.coming import SHORTEST_SECONDS
from steersman.simulation.prediction.moment import DAY, ClusterMoment
from steersman.simulation.prediction.obstacles import gangs_of, impossible, impossible_pods, needs_of
from steersman.simulation.prediction.queue_place import WaitingQueue
from steersman.simulation.prediction.rollouts import Rollouts

Floats = npt.NDArray[np.float64]

ROLLOUTS, MOST_ROLLOUTS = 50, 10_000
HORIZON = 7 * DAY
SCREENING = 8
"""Rollouts after which a change that did not help is given up; one that may help has half of all."""
LEAST_GAIN_SECONDS, LEAST_GAIN_SHARE = 60.0, 0.1
"""A median wait that is shorter by less is no gain."""
SIGNIFICANT = 0.01
"""Probability below which a sign test finds a gain."""
MOST_EXPLAINED, SHOWN_SENTENCES = 1000, 3
"""Waiting pods of which it is asked whether others would be preempted for them; sentences about them."""
P10, P50, P90 = 0.1, 0.5, 0.9
STEPS = (1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 2 * 3600.0, 6 * 3600.0, DAY)
"""Seconds to which times are rounded: the largest step below their standard error."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A change that lets a pod start sooner."""

    change: str  # what is changed
    seconds: float  # median wait with it
    gain: float  # seconds by which that is shorter, inf: without the change the median is beyond the horizon


@dataclass(frozen=True, slots=True)
class WaitPrediction:
    """When pods start, from now on; a time beyond the horizon is inf."""

    pods: tuple[str, ...]  # namespaces and names; the times are those of the last one to start
    policy: str  # name of who decides
    order: str  # name of who goes next
    p10: float = math.inf  # seconds within which 10 % of the rollouts start them
    p50: float = math.inf  # the median
    p90: float = math.inf  # seconds within which 90 % start them
    never: float = 1.0  # share of the rollouts in which they do not start within the horizon
    horizon: float = HORIZON  # seconds that rollouts last
    rollouts: int = 0  # number of rollouts
    ahead: int = 0  # pods that wait and go before the first of them
    waiting: int = 0  # all other pods that wait, but for those that can never start and those of its gang
    needs: str = ""  # what a pod requests, in words
    nodes: int = 0  # nodes that can hold it once what runs there ends
    refused: str = ""  # why no node takes it now, "": one does
    # why it, or its gang as a whole, could never start, "": it can; nothing else is predicted then
    impossible: str = ""
    gang: str = ""  # its gang, "": it starts alone
    members: int = 1  # pods of its gang that wait
    together: int = 1  # how many of them must start at once
    assumptions: tuple[str, ...] = ()  # what was assumed for lack of knowledge, in sentences
    alternatives: tuple[Alternative, ...] = ()  # changes that let it start sooner, the largest gain first


def predict_wait(
    moment: ClusterMoment,
    pods: Sequence[Pod],
    policy: Policy,
    *,
    rollouts: int = ROLLOUTS,
    seed: int = 0,
    horizon: float = HORIZON,
    priority: int | None = None,
) -> WaitPrediction:
    """Predict when pods start.

    Args:
        moment: the cluster now.
        pods: pods of `moment.workload` that wait, or others, which are submitted now and are alike.
        policy: who decides, with its order; no portfolio.
        rollouts: number of rollouts.
        seed: of their random numbers.
        horizon: seconds that they last at most.
        priority: a higher priority to try, which would delay others; None: none is.

    Raises:
        UsageError: there are too few or too many rollouts, or no live scheduler can follow the order.
        SteersmanError: the policy failed.
    """
    _check(policy, rollouts)
    empty = ClusterState(moment.workload.nodes)
    names = tuple(f"{pod.namespace}/{pod.name}" for pod in pods)
    waiting = {id(pod): i for i, pod in enumerate(moment.workload.pods) if not moment.runs(i)}
    new = [pod for pod in pods if id(pod) not in waiting]
    together = _together(pods[0], new or [moment.workload.pods[i] for i in waiting.values()])
    result = WaitPrediction(
        names,
        policy.name,
        policy.order.name,
        needs=needs_of(pods[0]),
        gang=pods[0].gang,
        members=len(together),
        together=least_of(together, moment.workload.running_gangs),
    )
    if reason := impossible_pods(empty, together, moment.workload.running_gangs)[0]:
        return replace(result, impossible=reason)
    tried = list(
        changes(
            pods[0],
            policy.order,
            shares_gpus=any(0 < pod.requests.gpu_milli < GPU_MILLI for pod in moment.workload.pods),
            estimate=moment.history.estimate(pods[0]),
            priority=priority,
        )
    )
    tried = [change for change in tried if not impossible(empty, change.pod)]
    variants = [_like(change.pod, pod) for change in tried for pod in pods]
    played = Rollouts(moment, policy, (*new, *variants), horizon)
    numbers = iter(range(played.first_extra, played.first_extra + len(new)))
    targets = [waiting[id(pod)] if id(pod) in waiting else next(numbers) for pod in pods]
    seeds, tries = [(seed, k) for k in range(rollouts)], max(SCREENING, rollouts // 2)
    starts = played.starts(targets, seeds).max(axis=1)
    median = start_quantile(starts, P50)
    alternatives = []
    for k, change in enumerate(tried):
        first = played.first_extra + len(new) + k * len(pods)
        changed = [*range(first, first + len(pods))]
        instead_of = {old: changed[i] for i, old in enumerate(targets) if old < len(moment.workload.pods)}
        # A start beyond the median without the change is none that the change has brought forward.
        shorter = played.starts(changed, seeds[:SCREENING], instead_of, by=median).max(axis=1)
        if _gain(starts[:SCREENING], shorter) <= 0.0:
            continue
        rest = played.starts(changed, seeds[SCREENING:tries], instead_of, by=median).reshape(-1, len(pods)).max(axis=1)
        shorter = np.concatenate([shorter, rest])
        gain, before = _gain(starts, shorter), starts[:tries]
        if gain > 0.0 and _is_significant(np.where(before <= median, before, math.inf), shorter):
            alternatives.append(Alternative(change.text, _told_quantiles(shorter, P50)[0], gain))
    alternatives.sort(key=lambda each: (-each.gain, each.seconds))
    p10, p50, p90 = _told_quantiles(starts, P10, P50, P90)
    queue = WaitingQueue(moment, policy.order)
    return replace(
        result,
        p10=p10,
        p50=p50,
        p90=p90,
        never=float(np.isinf(starts).mean()),
        horizon=played.horizon,
        rollouts=rollouts,
        ahead=min(queue.ahead(pod, _began(moment, waiting, pod)) for pod in pods),
        waiting=len(queue.others(pods[0])),
        nodes=played.nodes(pods[0]),
        refused=played.refused(pods[0]),
        assumptions=tuple(_assumptions(moment, played, pods)),
        alternatives=tuple(alternatives),
    )


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """When a waiting pod starts, from now on; a time beyond the horizon is inf.

    Attributes:
        pod: namespace and name.
        priority: its priority.
        waited: seconds so far.
        needs: what it requests, in words.
        p10, p50, p90, never: see `WaitPrediction`.
        impossible, gang, members: see `WaitPrediction`.
    """

    pod: str
    priority: int
    waited: float
    needs: str
    p10: float = math.inf
    p50: float = math.inf
    p90: float = math.inf
    never: float = 1.0
    impossible: str = ""
    gang: str = ""
    members: int = 1


@dataclass(frozen=True, slots=True)
class QueuePrediction:
    """When all waiting pods start.

    Attributes:
        policy, order, horizon, rollouts, assumptions: see `WaitPrediction`.
        pods: the pods, the one that goes next first.
    """

    policy: str
    order: str
    horizon: float
    rollouts: int
    pods: tuple[ExpectedStart, ...]
    assumptions: tuple[str, ...] = ()


def predict_queue(
    moment: ClusterMoment, policy: Policy, *, rollouts: int = ROLLOUTS, seed: int = 0, horizon: float = HORIZON
) -> QueuePrediction:
    """Predict when all waiting pods start; arguments and errors as of `predict_wait`."""
    _check(policy, rollouts)
    empty, pods = ClusterState(moment.workload.nodes), moment.workload.pods
    turn = WaitingQueue(moment, policy.order).turn()
    waiting = [pods[i] for i in turn]
    reasons = dict(zip(turn, impossible_pods(empty, waiting, moment.workload.running_gangs), strict=True))
    gangs = gangs_of(waiting)
    # A pod that can never start would keep every rollout from ending.
    possible = [i for i in turn if not reasons[i]]
    played = Rollouts(moment, policy, (), horizon)
    starts = dict(zip(possible, played.starts(possible, [(seed, k) for k in range(rollouts)]).T, strict=True))
    expected = []
    for i in turn:
        name, waited = f"{pods[i].namespace}/{pods[i].name}", -float(moment.began[i])
        start = ExpectedStart(
            name,
            pods[i].priority,
            waited,
            needs_of(pods[i]),
            impossible=reasons[i],
            gang=pods[i].gang,
            members=len(gangs.get((pods[i].namespace, pods[i].gang), (i,))),
        )
        if i in starts:
            p10, p50, p90 = _told_quantiles(starts[i], P10, P50, P90)
            start = replace(start, p10=p10, p50=p50, p90=p90, never=float(np.isinf(starts[i]).mean()))
        expected.append(start)
    assumptions = tuple(_assumptions(moment, played, [pods[i] for i in possible])) if turn else ()
    return QueuePrediction(policy.name, policy.order.name, played.horizon, rollouts, tuple(expected), assumptions)


def _check(policy: Policy, rollouts: int) -> None:
    if not 1 <= rollouts <= MOST_ROLLOUTS:
        raise UsageError(f"rollouts {rollouts}: expected 1 to {MOST_ROLLOUTS}")
    check_live(policy.order)


def _together(pod: Pod, others: Sequence[Pod]) -> list[Pod]:
    gang = (pod.namespace, pod.gang) if pod.gang else None
    return [pod, *(each for each in others if each is not pod and (each.namespace, each.gang) == gang)]


def _began(moment: ClusterMoment, waiting: Mapping[int, int], pod: Pod) -> float:
    """Return since when a pod waits, 0: it is submitted now."""
    return float(moment.began[waiting[id(pod)]]) if id(pod) in waiting else 0.0


def _like(changed: Pod, pod: Pod) -> Pod:
    seconds, priority = changed.estimated_seconds, changed.priority
    return replace(pod, pod_class=changed.pod_class, estimated_seconds=seconds, priority=priority)


def start_quantile(starts: Floats, share: float) -> float:
    """Return a quantile of starts, of which some may be infinite."""
    return float(np.sort(starts)[start_rank(len(starts), share) - 1])


def _told_quantiles(starts: Floats, *shares: float) -> list[float]:
    """Return quantiles of starts, ascending, no finer than their standard errors allow."""
    ordered, told = np.sort(starts), 0.0
    result = []
    for share in shares:
        value, around = start_quantile(starts, share), round(math.sqrt(len(starts) * share * (1.0 - share)))
        rank = start_rank(len(starts), share) - 1
        low, high = ordered[max(rank - around, 0)], ordered[min(rank + around, len(starts) - 1)]
        if math.isfinite(value):
            error = (high - low) / 2.0 if math.isfinite(high) else value - low
            step = max((each for each in STEPS if each <= min(error, value)), default=0.0)
            value = round(value / step) * step if step else value
        told = max(told, value)
        result.append(told)
    return result


def start_rank(count: int, share: float) -> int:
    """Return which of so many starts in ascending order is a quantile, from 1.

    It is that share of one more than their number, rounded away from the median: the true start is as likely to have
    each rank as any other, so that P10 to P90 hold it in 80 % of all cases, or little more.
    """
    rank = round(share * (count + 1), 6)
    return min(max(math.floor(rank) if share < P50 else math.ceil(rank), 1), count)


def _gain(starts: Floats, shorter: Floats) -> float:
    """Return by how many seconds the median is shorter, 0 if by too little."""
    before, after = start_quantile(starts, P50), start_quantile(shorter, P50)
    if math.isinf(after):
        return 0.0
    return (
        before - after
        if before - after >= max(LEAST_GAIN_SECONDS, LEAST_GAIN_SHARE * before * math.isfinite(before))
        else 0.0
    )


def _is_significant(starts: Floats, shorter: Floats) -> bool:
    """Return whether a pod starts sooner in more rollouts than chance would let it: a paired sign test."""
    sooner, later = int((shorter < starts).sum()), int((shorter > starts).sum())
    count = sooner + later
    tail = sum(math.comb(count, k) for k in range(sooner, count + 1))
    return bool(tail < SIGNIFICANT * 2**count)


def _assumptions(moment: ClusterMoment, played: Rollouts, pods: Sequence[Pod]) -> Iterator[str]:
    for name in sorted({pod.other_scheduler for pod in pods} - {""}):
        yield f"the policy also places pods whose schedulerName is {name}"
    preempting = [sentence for pod in pods[:MOST_EXPLAINED] if (sentence := played.preemption(pod))]
    for sentence in preempting[:SHOWN_SENTENCES]:
        yield f"no pod is preempted: {sentence}"
    if len(preempting) > SHOWN_SENTENCES:
        yield f"nor is any for {len(preempting) - SHOWN_SENTENCES} more waiting pods"
    if not moment.history.ended:
        untimed = moment.workload.lives.untimed
        why = f"pods that ended state no times ({untimed})" if untimed else "no pod is known to have ended"
        yield f"{why}: run times may be anything from seconds to weeks"
    running, waiting = moment.undated
    if running:
        yield f"running pods that state no time ({running}) are taken to have begun now"
    if waiting:
        yield f"waiting pods that state no time ({waiting}) are taken to have come now"
    stated = sum(pod.estimated_seconds is not None for pod in moment.workload.pods)
    if stated and not moment.history.ratios:
        states = "1 pod states" if stated == 1 else f"{stated} pods state"
        yield f"{states} a run time, and none that did has ended: a tenth to ten times of it is likely"
    if not played.rate:
        yield "no arrivals are known: nobody else is taken to be submitted"
    elif moment.observed < SHORTEST_SECONDS:
        known_for = format_duration(max(moment.observed, 0.0))
        yield f"arrivals are known for {known_for}: the same number is assumed for each hour"
    stay = sum(moment.history.lasts(moment.workload.pods[i]) for i in moment.workload.standing())
    if stay:
        yield f"{stay} running pods have a controller that replaces them: they are taken to stay"
