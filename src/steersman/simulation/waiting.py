"""Waiting times of the pods of a run (`timed`), and what each part of the trace contributes to means over it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from steersman.simulation.event_arrays import ARRIVAL, BOUND, EVICTED, FAILED, OUTCOME, WAITING, EventRecord
from steersman.simulation.pod_kinds import KINDS, kinds_of, wait_metric
from steersman.simulation.result import Metric

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SLOWDOWN_SECONDS = 10.0  # threshold of the bounded slowdown: a shorter run counts as this long
PERCENTILES = (50, 95, 99)
PARTS = 200  # parts of a trace whose contributions are kept
LEAST_ARRIVALS = 100  # with fewer arrivals a trace is not divided into parts
LEAST_BUSY_PERIODS = 50  # with fewer periods of waiting a trace is not divided: too few parts would be independent
WINSORIZED = 99.0  # percentile of a kind's waits beyond which `winsorized` counts a wait as that percentile
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Waits:
    """Waiting times by arrival, in the order of arrival, [A]."""

    # From arrival to binding, 0 for a pod bound at once, NaN for one that was never bound. Of one that was evicted all
    # seconds from its arrival in which it did not do work that it kept; NaN: it waits again, to the end.
    seconds: Floats
    duration: Floats  # seconds that the pod runs once it is bound, inf: to the end
    demand: Ints  # GPU milli of the pod
    devices: Ints  # number of GPUs that it asks for, or asks for a share of

    def after(self, first: int) -> Waits:
        return Waits(self.seconds[first:], self.duration[first:], self.demand[first:], self.devices[first:])

    @property
    def bound(self) -> Floats:
        """Return the waits of the pods that were bound."""
        return self.seconds[~np.isnan(self.seconds)]

    @property
    def kind(self) -> Ints:
        """Return [A] the index in `KINDS`."""
        return kinds_of(self.demand, self.devices)

    @property
    def bounded_slowdown(self) -> Floats:
        """Return [A] the bounded slowdown of each pod."""
        return bounded_slowdown(self.seconds, self.duration)

    def weighted_means(self) -> dict[str, tuple[Floats, Floats]]:
        """Return the values and weights, [A] each, of every metric that is a mean over pods."""
        every = np.ones(len(self.seconds))
        means = {
            "waiting_time_mean_seconds": (self.seconds, every),
            "waiting_time_mean_by_gpus_seconds": (self.seconds, self.demand.astype(np.float64)),
        }
        for number, kind in enumerate(KINDS):
            means[wait_metric(kind)] = self.seconds, (self.kind == number).astype(np.float64)
        return means | {"bounded_slowdown_mean": (self.bounded_slowdown, every)}


def bounded_slowdown(seconds: Floats, duration: Floats) -> Floats:
    """Return [A] how many times its duration a pod took from arrival to end, at least 1.

    `max(1, (wait + duration) / max(duration, SLOWDOWN_SECONDS))`, from Feitelson and Rudolph, "Metrics and
    Benchmarking for Parallel Job Scheduling" (JSSPP 1998). It is 1 for a pod that runs to the end.

    Args:
        seconds: [A] waits, NaN: never bound.
        duration: [A] seconds that the pod runs, inf: to the end.
    """
    lasting = np.isinf(duration)
    # Any finite number: the result below replaces it.
    run = np.where(lasting, 1.0, duration)
    slowdown = np.maximum(1.0, (seconds + run) / np.maximum(run, SLOWDOWN_SECONDS))
    return np.where(lasting & ~np.isnan(seconds), 1.0, slowdown)


def waits_of(record: EventRecord, duration: Floats, demand: Ints, devices: Ints, lost: Floats | None = None) -> Waits:
    """Return the waits of all arrivals of a record.

    Args:
        lost: [A] seconds of restarts and of work that was not saved; None: nothing was evicted.
        duration: [A] see `Waits`.
        demand: [A] see `Waits`.
        devices: [A] see `Waits`.
    """
    arrived, bound = np.full(len(duration), np.nan), np.full(len(duration), np.nan)
    arrival, outcome = record.numbers[:, ARRIVAL], record.numbers[:, OUTCOME]
    came = (outcome == WAITING) | (outcome == FAILED)
    arrived[arrival[came]] = record.time[came]
    started, evicted = outcome == BOUND, outcome == EVICTED
    bound[arrival[started]] = record.time[started]
    # Bound without having waited: there is no event of its arrival, and it waited 0 s.
    seconds = np.where(np.isnan(arrived) & ~np.isnan(bound), 0.0, bound - arrived)
    if lost is not None and evicted.any():
        # A pod that was evicted waits from its arrival, or its evictions, to each start.
        again = np.unique(arrival[evicted])
        sums = [np.bincount(arrival[which], record.time[which], len(duration)) for which in (started, evicted)]
        starts, evictions = (np.bincount(arrival[which], minlength=len(duration)) for which in (started, evicted))
        first = np.full(len(duration), np.inf)
        np.minimum.at(first, arrival[started], record.time[started])
        total = sums[0] - sums[1] - np.where(np.isnan(arrived), first, arrived) + lost
        seconds[again] = np.where(starts > evictions, total, np.nan)[again]
    return Waits(seconds, duration, demand, devices)


def waiting_metrics(waits: Waits) -> list[Metric]:
    """Return the metrics of waits, over the pods that were bound; NaN where no such pod was."""
    bound, means = waits.bound, waits.weighted_means()
    units = {"bounded_slowdown_mean": "ratio"}
    mean, *others = [
        Metric(name, units.get(name, "seconds"), _mean(values, weights)) for name, (values, weights) in means.items()
    ]
    return [
        mean,
        *(Metric(f"waiting_time_p{each}_seconds", "seconds", percentile(bound, each)) for each in PERCENTILES),
        Metric("waiting_time_max_seconds", "seconds", percentile(bound, 100)),
        *others,
    ]


def winsorized(waits: Waits) -> Waits:
    """Return waits of which the longest 1 % of each kind of pod count as the kind's 99th percentile.

    Policies are compared in a few draws, and the mean of heavy-tailed waits is mostly decided by a few pods, which
    differ from draw to draw. Kinds are told apart because a policy can let 1 % of all pods, those of several GPUs, do
    all of the waiting. Source: Tukey and McLaughlin, "Less Vulnerable Confidence and Significance Procedures for
    Location", Sankhya A 25 (1963).
    """
    known, kind, seconds = ~np.isnan(waits.seconds), waits.kind, waits.seconds.copy()
    for number in range(len(KINDS)):
        of_kind = known & (kind == number)
        if of_kind.any():
            # "lower": the limit is a wait that occurred, not an interpolated one.
            limit = np.percentile(seconds[of_kind], WINSORIZED, method="lower")
            seconds[of_kind] = np.minimum(seconds[of_kind], limit)
    return replace(waits, seconds=seconds)


def compared_waits(waits: Waits) -> float:
    """Return the cost of waits when policies are compared in a few draws, on a logarithmic scale; inf without waits.

    It is the mean of two logarithms, of the mean wait and a minute, in seconds, and of the mean bounded slowdown, both
    of `winsorized` waits. Differences are then logarithms of ratios, in which draws with long waits weigh no more than
    others. The mean wait is mostly that of pods that run for long, and the slowdown that of pods that run shortly.
    """
    typical = winsorized(waits)
    known = ~np.isnan(typical.seconds)
    if not known.any():
        return math.inf
    wait, slowdown = float(typical.seconds[known].mean()), float(typical.bounded_slowdown[known].mean())
    # A minute is added, so that waits of seconds do not dominate the logarithm.
    return 0.5 * (math.log(wait + MINUTE) + math.log(slowdown))


def estimate_metrics(estimated: Floats, duration: Floats) -> list[Metric]:
    """Return by which factor estimates of run times were too long or too short: median and 90th percentile.

    Args:
        estimated: [A] seconds, NaN: there was no estimate.
        duration: [A] seconds that the pod ran, inf: to the end.
    """
    known = np.isfinite(estimated) & np.isfinite(duration)
    wrong = np.abs(np.log(np.maximum(estimated[known], 1.0) / np.maximum(duration[known], 1.0)))
    return [Metric(f"estimate_error_p{each}", "ratio", math.exp(percentile(wrong, each))) for each in (50, 90)]


def percentile(values: Floats, percent: float) -> float:
    """Return a percentile; NaN without values."""
    return float(np.percentile(values, percent)) if len(values) else float("nan")


def parts_of_arrivals(waits: Waits) -> dict[str, Floats]:
    """Return [PARTS, 2] by metric: sums of weighted values and of weights over equally many consecutive arrivals."""
    part = np.arange(len(waits.seconds)) * PARTS // max(1, len(waits.seconds))
    parts = {}
    for name, (values, weights) in waits.weighted_means().items():
        known = ~np.isnan(values)
        sums = [
            np.bincount(part[known], of_pods[known], minlength=PARTS)
            for of_pods in (np.nan_to_num(values) * weights, weights)
        ]
        parts[name] = np.stack(sums, axis=1).astype(np.float64)
    return parts


def parts_of_time(time: Floats, until: float, value: Floats) -> Floats:
    """Return [PARTS, 2]: integrals over equally long parts of the time up to `until` of a value, and their lengths.

    `value` [E] holds from each event at `time` [E] to the next.
    """
    edges = np.linspace(time[0], until, PARTS + 1)
    integral = np.concatenate([[0.0], np.cumsum(np.nan_to_num(value[:-1]) * np.diff(time))])
    at = np.searchsorted(time, edges, side="right") - 1
    # Integral up to each edge: to the last event before it, and from there with that event's value.
    area = integral[at] + np.nan_to_num(value[at]) * (edges - time[at])
    return np.stack([np.diff(area), np.diff(edges)], axis=1)


def _mean(values: Floats, weights: Floats) -> float:
    known = ~np.isnan(values)
    weight = float(weights[known].sum())
    return float((values[known] * weights[known]).sum() / weight) if weight > 0 else float("nan")
