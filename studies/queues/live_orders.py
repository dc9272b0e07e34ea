"""Order and place on a real control plane: four schedulers, the same days of the Philly trace, a forecast before.

100 unequal nodes that KWOK simulates have 168 GPUs. A day's jobs come 720 times as fast as they did, and are followed
for 30 hours. Stated run times are within a factor of 3 of the true ones for 90 % of the jobs.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context

import numpy as np
import numpy.typing as npt

from steersman.apps.local_cluster import cluster, nodes, record
from steersman.core.errors import SteersmanError
from studies import tables
from studies.common import Desk, Json, Progress, Say, desk
from studies.live.cluster import DEFAULT_SCHEDULER, SCHEDULER, scheduling, state_dir
from studies.queues import days
from studies.queues.day_player import DayPlayer, Played
from studies.queues.days import ARMS, Arm, Day, cluster_nodes, day_of

NAME = "live_orders"
MINUTES = 75
CLUSTER = "live-orders"
DATES = tuple(f"2017-10-{day:02}" for day in (10, 11, 12, 17, 18, 19))
"""Tuesday to Thursday of the last two weeks of the trace's earlier part."""
SPEED = 720.0
"""Seconds of a day in a second."""
QUICK_SPEED = 3_600.0
LATENCY_SECONDS = 0.04
"""Of the wall clock, after which a scheduler has seen a pod at the latest."""
MEASURED_DATE = "2017-10-09"
"""A day under kube-scheduler, played first: for how much longer than it runs does a pod take its GPUs on this machine?
"""
OVERHEAD_FACTORS = (0.5, 2.0)
"""The least and the most of the mean of that in a forecast."""
NICE = -10
"""Of the process that submits pods: the servers want all of the cores now and then."""
LATE_SECONDS = 0.25
"""A run in which a pod was submitted later than this is void."""
TRIES = 3
FORECASTS = 40
REFERENCE = "stock"
PERCENTS = (2.5, 97.5)
METRICS = {
    "mean": "mean wait",
    "by_gpus": "by GPUs",
    "several": "several GPUs",
    "several_p99": "p99, several GPUs",
    "longest": "longest",
    "unstarted": "not started",
}

COMPARED = ("mean", "by_gpus", "several")

Floats = npt.NDArray[np.float64]


def figures(day: Day, started: Floats) -> Json:
    """Return figures of a day's waits in minutes, of the jobs that came within it, each counted to the horizon."""
    waits = days.waits_to_horizon(day, started) / 60.0
    gpus = day.gpus[day.standing :]
    several = waits[gpus > 1]
    return {
        "mean": float(waits.mean()),
        "by_gpus": float(waits @ gpus / gpus.sum()),
        "several": float(several.mean()),
        "several_p99": float(np.percentile(several, 99)),
        "longest": float(waits.max()),
        "unstarted": int(np.sum(~(started[day.standing :] < days.HORIZON))),
    }


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "dates": DATES[:1] if quick else DATES,
        "arms": {name: arm._asdict() for name, arm in ARMS.items() if not quick or name in ("stock", "order")},
        "nodes": days.SIZES,
        "load": days.LOAD,
        "full": days.FULL,
        "error": days.ERROR,
        "hours": days.HORIZON / 3600.0,
        "speed": QUICK_SPEED if quick else SPEED,
        "latency_seconds": LATENCY_SECONDS,
        "at_midnight": "one after the other",
        "overhead_factors": OVERHEAD_FACTORS,
        "forecasts": 2 if quick else FORECASTS,
    }


def run(say: Say, quick: bool = False) -> Json:
    """Write the forecast, then play every day with every scheduler.

    Raises:
        SteersmanError: a run was void in every try.
    """
    at, asked = desk(NAME, quick, say), options(quick)
    arms = {name: Arm(**arm) for name, arm in asked["arms"].items()}
    state_dir(at.folder / "clusters")
    measure = partial(_play, at, MEASURED_DATE, arms[REFERENCE], asked["speed"])
    measured = at.once("measured", {"date": MEASURED_DATE, "speed": asked["speed"]}, measure)["overhead_seconds"]
    say(f"a pod takes its GPUs for {measured:.3f} s longer than it runs")
    asked["overhead_seconds"] = [factor * measured for factor in asked["overhead_factors"]]
    parts = {
        f"forecast-{date}-{name}": {**asked, "date": date, "arm": name} for date in asked["dates"] for name in arms
    }
    forecast = at.each(parts, _forecast, Progress(say, "forecasts"))
    # Its time shows that it was there before the first run.
    written = at.once("forecast", {**asked, "forecast": forecast}, lambda: {"written": _now(), "days": forecast})
    runs, progress = {}, Progress(say, "runs")
    for date in asked["dates"]:
        for name, arm in arms.items():
            play = partial(_play, at, date, arm, asked["speed"])
            runs[f"{date}-{name}"] = at.once(f"run-{date}-{name}", {**asked, "date": date, "arm": name}, play)
            progress(len(runs), len(parts))
    return {**asked, "forecast": written, "runs": runs}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _forecast(asked: Json) -> Json:
    """Return [forecasts] of each figure of a day under an arm."""
    day, arm = day_of(asked["date"]), ARMS[asked["arm"]]
    found: dict[str, list[float]] = {metric: [] for metric in METRICS}
    for seed in range(asked["forecasts"]):
        random = np.random.default_rng(seed)
        latency = asked["latency_seconds"] * asked["speed"] * random.uniform(size=len(day))
        # Pods of midnight are created one after the other, and seen in that order.
        latency[: day.standing] = np.linspace(0.0, 1.0, day.standing, endpoint=False)
        overhead = random.uniform(*asked["overhead_seconds"]) * asked["speed"] * random.uniform(0.5, 1.5, len(day))
        started = days.simulated_starts(day, arm, seed, latency, overhead)
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
            ran = (played.ended - played.started) * speed - day.duration
            return {
                "began": began,
                "latest": played.latest,
                "overhead_seconds": float(np.nanmean(ran) / speed),
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
        with ExitStack() as stack:
            if arm.policy:
                arguments = ["--name", CLUSTER, "--policy", arm.policy, "--order", arm.order, "--unchecked"]
                stack.enter_context(scheduling(arguments, at.folder / "scheduler.log", bool))
            # In a separate process: only the driver has the higher priority, not the servers.
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                return process.submit(_follow, day, SCHEDULER if arm.policy else DEFAULT_SCHEDULER, speed).result()
    finally:
        cluster.take_down(CLUSTER, at.say)


def _follow(day: Day, scheduler_name: str, speed: float) -> Played:
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)

    async def play() -> Played:
        async with cluster.client(record.require(CLUSTER)) as client:
            return await DayPlayer(client, day, scheduler_name, speed).play()

    return asyncio.run(play())


def ratios(result: Json, arm: str, metric: str) -> list[float]:
    """Return a figure of an arm over kube-scheduler's, by day."""
    runs = result["runs"]
    return [runs[f"{date}-{arm}"][metric] / runs[f"{date}-{REFERENCE}"][metric] for date in result["dates"]]


def covered(result: Json, arm: str, metric: str) -> Json:
    """Return the mean of a figure over the days as it came, and the interval of the forecast."""
    days_of = [result["forecast"]["days"][f"forecast-{date}-{arm}"][metric] for date in result["dates"]]
    low, high = np.percentile(np.mean(days_of, axis=0), PERCENTS)
    came = float(np.mean([result["runs"][f"{date}-{arm}"][metric] for date in result["dates"]]))
    return {"came": came, "low": float(low), "high": float(high)}


def section(result: Json) -> str:
    """Return the section of docs/results.md."""
    runs = result["runs"].values()
    dates, forecast = result["dates"], result["forecast"]
    problems = sum(len(run["problems"]) for run in runs)
    sizes = ", ".join(f"{count} of {gpus} GPU{'s' if gpus > 1 else ''}" for count, gpus in result["nodes"])
    lines = [
        "## Order and place on a real control plane",
        "",
        "etcd, kube-apiserver, kube-controller-manager, kube-scheduler and "
        f"{sum(count for count, _ in result['nodes'])} nodes of KWOK: {sizes}. The pods are jobs of the Philly trace "
        f"of up to 8 GPUs on {len(dates)} days, {dates[0]} to {dates[-1]}: who runs at midnight, and who comes in the "
        f"24 hours after it, thinned at random to a load of {result['load']:g}. They come {result['speed']:g} times as "
        f"fast as they did and are followed for {result['hours']:g} hours; a job that has not started by then counts "
        f"as starting then. Stated run times are right within a factor of {result['error']:g} for 90 % of the jobs. "
        "`kube-scheduler` is the stock one; the others are `steersman schedule` with a policy and an order.",
        "",
        f"How much longer than it runs a pod takes its GPUs was measured on another day, {MEASURED_DATE}; the forecast "
        f"assumes {' to '.join(f'{seconds:.3f}' for seconds in result['overhead_seconds'])} s of the wall clock. "
        f"The forecast, {result['forecasts']} simulations of each day, was written at {forecast['written']}; the first "
        f"run began at {min(run['began'] for run in runs)}. No pod was submitted more than "
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
        "Times kube-scheduler on the same day, geometric means with 95 % intervals (Student's t over the days), and "
        "what the forecast expected:",
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


def _expected_ratio(result: Json, arm: str, metric: str) -> float:
    """Return the geometric mean over days of an arm's mean in the forecast over kube-scheduler's."""
    days_of = result["forecast"]["days"]
    means = [
        [np.mean(days_of[f"forecast-{date}-{name}"][metric]) for date in result["dates"]] for name in (arm, REFERENCE)
    ]
    return float(np.exp(np.mean(np.log(means[0]) - np.log(means[1]))))
