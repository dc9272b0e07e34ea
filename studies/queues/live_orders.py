"""Order and place on a real control plane: three schedulers, the same days of the Philly trace, a forecast before.

100 unequal nodes that KWOK simulates have 168 GPUs. What ran and waited at midnight under kube-scheduler's rules is
there, and the schedulers take over. A day's jobs come 720 times as fast as they did, and are followed for 30 hours.
Stated run times are within a factor of 3 of the true ones for 90 % of the jobs.

Earlier days are played first, under every scheduler. They say how far simulations are off, which differ less from each
other than from what comes.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from steersman.core.errors import SteersmanError
from steersman.live.local_cluster import cluster, nodes, record
from steersman.orders.registry import find_order
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from studies import tables
from studies.common import Desk, Json, Progress, Say, desk, plain, published
from studies.live.cluster import DEFAULT_SCHEDULER, SCHEDULER, scheduling, state_dir
from studies.queues import days
from studies.queues.day_player import DayPlayer, Played
from studies.queues.days import Day, cluster_nodes, day_of

NAME = "live_orders"
MINUTES = 100
DATA = ("philly",)
CLUSTER = "live-orders"
DATES = tuple(f"2017-10-{day:02}" for day in (16, 17, 18, 19, 20))
"""Monday to Friday of the last whole week of the trace's earlier part."""
SPEED = 720.0
"""Seconds of a day in a second."""
QUICK_SPEED = 3_600.0
LATENCY_SECONDS = 0.04
"""Of the wall clock, after which a scheduler has seen a pod at the latest."""
MEASURED_DATES = ("2017-10-12", "2017-10-13")
"""Thursday and Friday before, played first."""
OVERHEAD_SECONDS = (0.0125, 0.05)
"""How much longer than its run time a pod holds its GPUs in a forecast, by the wall clock: minimum and maximum of the
mean. One earlier day had 0.025.
"""
NICE = -10
"""Of the process that submits pods: the servers want all of the cores now and then."""
LATE_SECONDS = 0.25
"""A run in which a pod was submitted later than this is void."""
TRIES = 3
FORECASTS = 40
OF_FORECASTS = ("measured_dates", "dates", "latency_seconds", "overhead_seconds", "forecasts")
"""Options that what is played does not depend on."""
REFERENCE = "stock"
PERCENTS = (2.5, 97.5)
METRICS = {
    "mean": "mean wait",
    "by_gpus": "by GPUs",
    "single": "one GPU",
    "several": "several GPUs",
    "unstarted": "not started",
}

COMPARED = ("mean", "by_gpus", "single", "several")

Floats = npt.NDArray[np.float64]
T = TypeVar("T")


class Arm(NamedTuple):
    """Who schedules.

    Attributes:
        title: what the results call it.
        policy: of `steersman schedule`, "" for kube-scheduler.
        order: name of the order.
        simulated: policy that stands for it in simulations.
    """

    title: str
    policy: str
    order: str
    simulated: str


ARMS = {
    REFERENCE: Arm("kube-scheduler", "", "age", "kube-default"),
    "age": Arm("`fgd`, by age", "fgd", "age", "fgd"),
    "rule": Arm("`fgd`, `wfp3:easy`", "fgd", "wfp3:easy", "fgd"),
}


def figures(day: Day, started: Floats) -> Json:
    """Return figures of a day's waits in minutes, of the jobs that came within it, each counted to the horizon."""
    waits = days.waits_to_horizon(day, started) / 60.0
    gpus = day.gpus[day.standing :]
    return {
        "mean": float(waits.mean()),
        "by_gpus": float(waits @ gpus / gpus.sum()),
        "single": float(waits[gpus == 1].mean()),
        "several": float(waits[gpus > 1].mean()),
        "unstarted": int(np.sum(~(started[day.standing :] < days.HORIZON))),
    }


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "measured_dates": MEASURED_DATES[:1] if quick else MEASURED_DATES,
        "dates": DATES[:1] if quick else DATES,
        "arms": {name: arm._asdict() for name, arm in ARMS.items() if not quick or name in (REFERENCE, "rule")},
        "nodes": days.SIZES,
        "past_days": days.PAST,
        "load": days.LOAD,
        "full": days.FULL,
        "error": days.ERROR,
        "hours": days.HORIZON / 3600.0,
        "speed": QUICK_SPEED if quick else SPEED,
        "latency_seconds": LATENCY_SECONDS,
        "overhead_seconds": OVERHEAD_SECONDS,
        "forecasts": 2 if quick else FORECASTS,
    }


def run(say: Say, quick: bool = False) -> Json:
    """Write the forecast, then play every day with every scheduler.

    Schedulers that the repository's result has, with the same options, are not played again.

    Raises:
        SteersmanError: a run was void in every try.
    """
    at, asked = desk(NAME, quick, say), options(quick)
    arms = {name: Arm(**arm) for name, arm in asked["arms"].items()}
    common = {name: value for name, value in asked.items() if name != "arms"}
    earlier = published("queues", NAME, common, quick)
    kept = [name for name in arms if earlier and is_same_arm(earlier, asked, name)]
    of_runs = {name: value for name, value in common.items() if name not in OF_FORECASTS}
    state_dir(at.folder / "clusters")

    def play(dates: Sequence[str], known: Json) -> Json:
        """Return the runs of dates under every arm; those of `kept` are known."""
        runs: Json = {}
        progress, count = Progress(say, "runs"), len(dates) * len(arms)
        for date in dates:
            for name, arm in arms.items():
                key, depends = f"{date}-{name}", {**of_runs, "arm": asked["arms"][name], "date": date}
                make = partial(_play, at, date, arm, asked["speed"])
                runs[key] = known[key] if name in kept else at.once(f"run-{key}", depends, make)
                progress(len(runs), count)
        return runs

    measured = play(asked["measured_dates"], earlier.get("measured", {}))
    dates = [(date, name) for date in asked["measured_dates"] for name in arms]
    dates += [(date, name) for date in asked["dates"] for name in arms if name not in kept]
    parts = {f"{date}-{name}": {**common, "arm": asked["arms"][name], "date": date} for date, name in dates}
    simulated = at.each(
        {f"simulated-{key}": part for key, part in parts.items()}, _simulated, Progress(say, "simulations")
    )
    forecast = with_residuals({key: simulated[f"simulated-{key}"] for key in parts}, measured)
    # Its time shows that it was there before the first run.
    new = at.once("forecast", {**asked, "forecast": forecast}, lambda: {"written": _now(), "days": forecast})
    before = earlier.get("forecast", {"written": {}, "days": {}})
    written = {name: before["written"][name] if name in kept else new["written"] for name in arms}
    expected = {
        f"{date}-{name}": (before if name in kept else new)["days"][f"{date}-{name}"]
        for date in asked["dates"]
        for name in arms
    }
    runs = play(asked["dates"], earlier.get("runs", {}))
    if any(run["began"] < written[key.rpartition("-")[2]] for key, run in runs.items()):
        raise SteersmanError(f"runs of {at.folder} began before the forecast was written; expected a run with --fresh")
    return {**asked, "measured": measured, "forecast": {"written": written, "days": expected}, "runs": runs}


def is_same_arm(earlier: Json, asked: Json, name: str) -> bool:
    """Return whether an earlier result has an arm with the same options."""
    return name in earlier["arms"] and plain(earlier["arms"][name]) == plain(asked["arms"][name])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def with_residuals(simulated: Json, measured: Json) -> Json:
    """Return simulated figures of the days that were not measured, with errors as large as those of the measured ones.

    Errors are of the logarithms of figures plus 1. Their mean and variance are drawn for each simulation from what the
    measured runs leave open (a normal distribution with the prior of Jeffreys), and then an error for each run.

    Args:
        simulated: [forecasts] of each figure by run.
        measured: figures of the measured runs.
    """
    random = np.random.default_rng(1)
    forecast: Json = {key: {} for key in simulated if key not in measured}
    for metric in METRICS:
        errors = [np.log1p(run[metric]) - np.log1p(np.mean(simulated[key][metric])) for key, run in measured.items()]
        count, mean, variance = len(errors), float(np.mean(errors)), float(np.var(errors, ddof=1))
        draws = len(next(iter(simulated.values()))[metric])
        spread = np.sqrt(variance * (count - 1) / random.chisquare(count - 1, draws))
        bias = mean + spread * random.standard_normal(draws) / math.sqrt(count)
        for key, of_day in forecast.items():
            error = bias + spread * random.standard_normal(draws)
            of_day[metric] = np.maximum(np.expm1(np.log1p(simulated[key][metric]) + error), 0.0).tolist()
    return forecast


def _simulated(asked: Json) -> Json:
    """Return [forecasts] of each figure of a day under an arm."""
    day, arm, speed = day_of(asked["date"]), Arm(**asked["arm"]), asked["speed"]
    policy = with_order(resolve(arm.simulated), find_order(arm.order))
    found: dict[str, list[float]] = {metric: [] for metric in METRICS}
    for seed in range(asked["forecasts"]):
        random = np.random.default_rng(seed)
        latency = asked["latency_seconds"] * speed * random.uniform(size=len(day))
        latency[: day.standing] = 0.0
        # They wait already: rules that weigh waits tell them apart.
        latency[day.standing : day.standing + day.queued] = -1.0
        overhead = random.uniform(*asked["overhead_seconds"]) * speed * random.uniform(0.5, 1.5, len(day))
        started = days.simulated_starts(day, policy, seed, latency, overhead, speed)
        for metric, value in figures(day, started).items():
            found[metric].append(value)
    return found


def _play(at: Desk, date: str, arm: Arm, speed: float) -> Json:
    """Return the figures of a run, and when it began."""
    day = day_of(date)
    for _ in range(TRIES):
        began = _now()
        played = _play_once(at, day, arm, speed)
        if played.latest <= LATE_SECONDS:
            return {
                "began": began,
                "latest": played.latest,
                "problems": played.problems,
                **figures(day, played.started * speed),
            }
        at.say(f"void: a pod of {date} was submitted {played.latest:.2f} s late")
    raise SteersmanError(f"{date}, {arm.title}: pods were submitted late in {TRIES} tries; the machine is too busy")


def _play_once(at: Desk, day: Day, arm: Arm, speed: float) -> Played:
    node_list = nodes.prepared(cluster_nodes())
    control_plane = cluster.find_control_plane(lambda *_: None, at.say)
    cluster.take_down(CLUSTER, at.say)  # of a study that was killed
    cluster.bring_up(CLUSTER, control_plane, node_list, lambda *_: None, at.say)
    try:
        # In a separate process: only the driver has the higher priority, not the servers.
        with ExitStack() as stack, ProcessPoolExecutor(1, get_context("spawn")) as process:
            asked = day, SCHEDULER if arm.policy else DEFAULT_SCHEDULER, speed
            process.submit(_prepare, *asked).result()
            if arm.policy:
                arguments = ["--name", CLUSTER, "--policy", arm.policy, "--order", arm.order, "--unchecked"]
                stack.enter_context(scheduling(arguments, at.folder / "scheduler.log", _has_tried))
            return process.submit(_follow, *asked).result()
    finally:
        cluster.take_down(CLUSTER, at.say)


def _has_tried(metrics: str) -> bool:
    """Return whether a scheduler has tried to place what waits."""
    found = re.search(r'^steersman_schedule_attempts_total\{result="unschedulable"\} (\S+)$', metrics, re.MULTILINE)
    return found is not None and float(found[1]) > 0


def _prepare(day: Day, scheduler_name: str, speed: float) -> None:
    _with_player(DayPlayer.prepare, day, scheduler_name, speed)


def _follow(day: Day, scheduler_name: str, speed: float) -> Played:
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    return _with_player(DayPlayer.play, day, scheduler_name, speed)


def _with_player(do: Callable[[DayPlayer], Awaitable[T]], day: Day, scheduler_name: str, speed: float) -> T:
    async def run_player() -> T:
        async with cluster.client(record.require(CLUSTER)) as client:
            return await do(DayPlayer(client, day, scheduler_name, speed))

    return asyncio.run(run_player())


def ratios(result: Json, arm: str, metric: str) -> list[float]:
    """Return a figure of an arm over kube-scheduler's, by day."""
    runs = result["runs"]
    return [runs[f"{date}-{arm}"][metric] / runs[f"{date}-{REFERENCE}"][metric] for date in result["dates"]]


def covered(result: Json, arm: str, metric: str) -> Json:
    """Return the mean of a figure over the days as it came, and the interval of the forecast."""
    days_of = [result["forecast"]["days"][f"{date}-{arm}"][metric] for date in result["dates"]]
    low, high = np.percentile(np.mean(days_of, axis=0), PERCENTS)
    came = float(np.mean([result["runs"][f"{date}-{arm}"][metric] for date in result["dates"]]))
    return {"came": came, "low": float(low), "high": float(high)}


def claim(result: Json) -> str:
    """Return what it shows, in a sentence."""
    ratio = tables.interval(tables.geometric(np.log(ratios(result, "rule", "mean"))), sign=False)
    return (
        f"On a real control plane, {len(result['dates'])} days of one trace, pods wait {ratio} times as long under "
        f"{result['arms']['rule']['title']} as under kube-scheduler; the forecast "
        f"before it was {_expected_ratio(result, 'rule', 'mean'):.2f}."
    )


def section(result: Json) -> str:
    """Return the page of docs/results."""
    runs = result["runs"].values()
    dates = result["dates"]
    problems = sum(len(run["problems"]) for run in runs)
    former = sum(key.rpartition("-")[2] not in result["arms"] for key in result["measured"])
    sizes = ", ".join(f"{count} with {gpus} GPU{'s' if gpus > 1 else ''}" for count, gpus in result["nodes"])
    lines = [
        "## Order and place on a real control plane",
        "",
        "The control plane is etcd, kube-apiserver, kube-controller-manager and kube-scheduler; KWOK simulates "
        f"{sum(count for count, _ in result['nodes'])} nodes: {sizes}. The pods are jobs of the Philly trace "
        f"of up to 8 GPUs on {len(dates)} days, {dates[0]} to {dates[-1]}, thinned at random to a load of "
        f"{result['load']:g} on each day. What runs and what waits at midnight is what a simulation of the "
        f"{result['past_days']} days before it by kube-scheduler's rules had running and waiting, at the same places. "
        f"Then jobs come for 24 hours, {result['speed']:g} times as fast as they did, and are followed for "
        f"{result['hours']:g} hours. Waits count from midnight on, and a job that has not started by the end counts "
        f"as starting then. Stated run times are right within a factor of {result['error']:g} for 90 % of the jobs. "
        "`kube-scheduler` is the stock one; the others are `steersman schedule` with a policy and an order. "
        "Pods that run at midnight were created some seconds before it, so that schedulers expect them to end as much "
        "earlier.",
        "",
        f"How far simulations are off was measured in {len(result['measured'])} runs of "
        f"{', '.join(result['measured_dates'])}"
        f"{f', {former} of them under a trained order' if former else ''}. "
        f"The forecast, {result['forecasts']} simulations of each day with "
        f"errors as large as those, was there before the first run: {_written(result)}. No pod was submitted more than "
        f"{max(run['latest'] for run in runs):.2f} s late. Pods lost, bound twice or beyond a node's GPUs: {problems}.",
        "",
        "Minutes, means of the days; in brackets where the forecast has 95 % of its simulations:",
        "",
    ]
    rows = []
    for name, arm in result["arms"].items():
        found = [covered(result, name, metric) for metric in METRICS]
        cells = [f"{each['came']:.1f} ({each['low']:.1f} to {each['high']:.1f})" for each in found]
        rows.append([arm["title"], *cells])
    lines += [tables.markdown(["", *METRICS.values()], rows), ""]
    lines += [
        f"Times kube-scheduler on the same day, geometric means with 95 % intervals (Student's t over {len(dates)} "
        "days of one trace, which follow each other and share the days before them: other weeks may be outside more "
        "often), "
        "and what the forecast expected:",
        "",
    ]
    rows = []
    for name in result["arms"]:
        if name != REFERENCE:
            cells = [
                f"{tables.interval(tables.geometric(np.log(ratios(result, name, metric))), sign=False)}; "
                f"{_expected_ratio(result, name, metric):.2f}"
                for metric in COMPARED
            ]
            rows.append([result["arms"][name]["title"], *cells])
    lines.append(tables.markdown(["", *(METRICS[metric] for metric in COMPARED)], rows))
    return "\n".join(lines)


def _written(result: Json) -> str:
    """Return when forecasts were written, and when the first runs began."""
    found: dict[str, list[str]] = {}
    for name, written in result["forecast"]["written"].items():
        found.setdefault(written, []).append(name)
    parts = []
    for written, names in sorted(found.items()):
        began = min(result["runs"][f"{date}-{name}"]["began"] for date in result["dates"] for name in names)
        of = "" if len(found) == 1 else f"for {', '.join(result['arms'][name]['title'] for name in names)} "
        parts.append(f"{of}it was written at {written}, and the first run began at {began}")
    return "; ".join(parts)


def _expected_ratio(result: Json, arm: str, metric: str) -> float:
    """Return the geometric mean over days of an arm's median in the forecast over kube-scheduler's."""
    days_of = result["forecast"]["days"]
    means = [[np.median(days_of[f"{date}-{name}"][metric]) for date in result["dates"]] for name in (arm, REFERENCE)]
    return float(np.exp(np.mean(np.log(means[0]) - np.log(means[1]))))
