"""What is believed of run times before a job runs, on logs with owners, and what that is worth to an order.

Every job is predicted when it is submitted, from what ended by then; nothing is scored in the first part of a log. Keys
that tell jobs apart are compared one by one, each with two histograms of its own: of all its jobs, and of recent ones.
The last part of each log is followed under `wfp3:easy`, whose estimates come from the same past.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from steersman.agents.evolution.orders import waits_under
from steersman.cluster.model import Pod
from steersman.core.handles import BINS
from steersman.orders.registry import find_order
from steersman.orders.run_time_history import BINS_PER_OCTAVE, FIRST_PRIOR, RunTimeHistory, run_time_bin
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.run import Simulator
from steersman.training.search.orders import LOADS, four_waits, history_of, history_windows
from steersman.workloads.formats.swf import Swf
from steersman.workloads.workload import Workload
from studies import tables
from studies.common import Json, Progress, Say, desk
from studies.queues.traces import trace_file

NAME = "run_times"
MINUTES = 15
DATA = ("swf",)
LOGS = {"NASA": "nasa_first.swf.gz", "LCG": "lcg_first.swf.gz"}
"""Logs of the Parallel Workloads Archive with owners, the first 60 % of each; NASA's jobs state no run times."""
MOST_JOBS = 40_000
SMALLER = {LOGS["LCG"]: 256}
"""Processors of the machine on which jobs wait, where the log's own holds all of them at once."""
UNSCORED = 0.3
"""Share of the jobs that come first, of which nothing is scored."""
FACTOR = 3.0
TAILS = (0.1, 0.9)
KEPT = (1.0, 0.7)
"""What is left of a job in the two histograms of a key when its next one ends."""
NEIGHBOUR = 0.2
"""Share of a job that counts in each neighbouring bin of a key's histogram, which each key is better with."""
KEYS: dict[str, Callable[[Pod], tuple[object, ...]]] = {
    "all": lambda _: (),
    "size": lambda pod: (pod.requests,),
    "user": lambda pod: (pod.namespace, pod.owner),
    "user, size": lambda pod: (pod.namespace, pod.owner, pod.requests),
    "user, executable, size": lambda pod: (pod.namespace, pod.owner, pod.program, pod.requests),
    "stated time": lambda pod: (pod.estimated_seconds,),
    "user, stated time": lambda pod: (pod.namespace, pod.owner, pod.estimated_seconds),
}
FOLLOWED_LOADS = (0.85, 0.95, 1.05)
SOURCES = {
    "none": "nothing",
    "history": "what ended before",
    "auto": "the stated times, else what ended before",
    "oracle:3": "within a factor of 3",
    "oracle": "exact",
}
ORDER = "wfp3:easy"
REFERENCE = "age"
POLICY = "fgd"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is said of a job when it is submitted: seconds, and the probability of each bin, [BINS]."""

    seconds: float
    p: Floats


class KeyHistory:
    """Histograms of the jobs of a key, those of all jobs beneath."""

    def __init__(self, key: Callable[[Pod], tuple[object, ...]], kept: float) -> None:
        self._key, self._kept = key, kept
        self._counts: dict[tuple[object, ...], Floats] = {}
        low, high = FIRST_PRIOR
        self._all = np.where((np.arange(BINS) >= low) & (np.arange(BINS) < high), 1.0, 0.02)
        self._all *= 2.0 / self._all.sum()

    def predict(self, pod: Pod) -> Prediction:
        counts = self._counts.get(self._key(pod), np.zeros(BINS))
        p = counts + self._all / self._all.sum()
        return Prediction(likeliest(p / p.sum()), p / p.sum())

    def note(self, pod: Pod, seconds: float) -> None:
        k, counts = run_time_bin(seconds), self._counts.setdefault(self._key(pod), np.zeros(BINS))
        counts *= self._kept
        for histogram in (counts, self._all):
            histogram[k] += 1.0 - 2.0 * NEIGHBOUR
            histogram[max(k - 1, 0)] += NEIGHBOUR
            histogram[min(k + 1, BINS - 1)] += NEIGHBOUR


class BeliefHistory:
    """What the product believes."""

    def __init__(self) -> None:
        self._history = RunTimeHistory()

    def predict(self, pod: Pod) -> Prediction:
        return Prediction(self._history.estimate(pod), self._history.distribution(pod))

    def note(self, pod: Pod, seconds: float) -> None:
        self._history.note(pod, seconds)


def likeliest(p: Floats) -> float:
    """Return the run time in seconds with the most probability within a factor of three."""
    edges, width = np.arange(BINS + 1.0), BINS_PER_OCTAVE * math.log2(FACTOR)
    places, below = np.arange(0, BINS, 0.25), np.concatenate([[0.0], np.cumsum(p)])
    mass = np.interp(places + width, edges, below) - np.interp(places - width, edges, below)
    best = places[mass >= mass.max() - 1e-9]
    return float(2.0 ** (best[len(best) // 2] / BINS_PER_OCTAVE))


def quantile(p: Floats, share: float) -> float:
    """Return a quantile in seconds."""
    below = np.concatenate([[0.0], np.cumsum(p)])
    k = min(int(np.searchsorted(below, share)), BINS)
    within = (share - below[k - 1]) / max(float(p[k - 1]), 1e-12)
    return float(2.0 ** ((k - 1 + within) / BINS_PER_OCTAVE))


def log_of(file: Path) -> Workload:
    """Return the first jobs of a log on its machine, in time order."""
    content = Swf().open([file])
    nodes = tuple(content.nodes())
    if file.name in SMALLER:
        nodes = (replace(nodes[0], cpu_milli=1000 * SMALLER[file.name]),)
    pods = sorted(content.pods(nodes)[0], key=lambda pod: pod.creation_time or 0.0)
    return Workload(file.name.partition("_")[0], nodes, tuple(pods[:MOST_JOBS]))


def scores_of(pods: tuple[Pod, ...], history: KeyHistory | BeliefHistory) -> Json:
    """Return how good predictions at submission are: bits, and shares within a factor of 3 and in the interval."""
    running: list[tuple[float, int]] = []
    rows: list[tuple[float, bool, bool]] = []
    for i, pod in enumerate(pods):
        created, seconds = _times(pod)
        while running and running[0][0] <= created:
            ended = pods[heapq.heappop(running)[1]]
            history.note(ended, _times(ended)[1])
        said = history.predict(pod)
        low, high = (quantile(said.p, tail) for tail in TAILS)
        is_near = abs(math.log(said.seconds / max(seconds, 1.0))) <= math.log(FACTOR) + 1e-9
        bits = -math.log2(max(float(said.p[run_time_bin(seconds)]), 1e-12))
        rows.append((bits, is_near, low <= seconds * 1.0001 and seconds <= high * 1.0001))
        heapq.heappush(running, (created + seconds, i))
    bits, near, inside = np.array(rows[int(UNSCORED * len(rows)) :], dtype=np.float64).mean(axis=0)
    return {"bits": round(float(bits), 3), "near": round(float(near), 3), "inside": round(float(inside), 3)}


def _times(pod: Pod) -> tuple[float, float]:
    created = pod.creation_time or 0.0
    return created, (pod.deletion_time or created) - created


def options(quick: bool) -> Json:
    """Return what the result depends on."""
    logs = dict(list(LOGS.items())[:1]) if quick else LOGS
    return {"logs": logs, "jobs": 600 if quick else MOST_JOBS, "loads": FOLLOWED_LOADS, "policy": POLICY}


def run(say: Say, quick: bool = False) -> Json:
    """Predict, and follow the order, on every log; what was finished is kept."""
    at, asked = desk(NAME, quick, say), options(quick)
    parts = {
        f"{log}-{what}": {**asked, "log": log, "what": what}
        for log in asked["logs"]
        for what in (*_predictors(log), *(f"@{source}" for source in SOURCES))
    }
    return {**asked, "values": list(at.each(parts, _measured, Progress(say, "parts")).values())}


def _predictors(log: str) -> Iterator[str]:
    yield "belief"
    for key in KEYS:
        if ("stated" not in key or log != "NASA") and ("executable" not in key or log == "NASA"):
            yield from (f"{key}/{kept:g}" for kept in KEPT)


def _measured(asked: Json) -> Json:
    workload = log_of(trace_file(asked["logs"][asked["log"]]))
    workload = replace(workload, pods=workload.pods[: asked["jobs"]])
    what = asked["what"]
    if what.startswith("@"):
        return {"log": asked["log"], "what": what, "waits": _followed(workload, what[1:], asked["loads"])}
    key, _, kept = what.partition("/")
    history = BeliefHistory() if key == "belief" else KeyHistory(KEYS[key], float(kept))
    return {"log": asked["log"], "what": what, **scores_of(workload.pods, history)}


def _followed(workload: Workload, source: str, loads: tuple[float, ...]) -> list[float]:
    """Return the mean wait of the later part at each load, over that of the order of age."""
    history = history_of(workload)
    first = int(UNSCORED * len(history.pods))
    windows = replace(history_windows(history, LOADS)[1], first=first, last=len(history.pods))
    windows = replace(windows, count=windows.last - first)
    past = RunTimeHistory()
    for pod in sorted(history.pods[:first], key=lambda pod: pod.deletion_time or 0.0):
        past.note(pod, _times(pod)[1])
    policy, nodes = resolve(POLICY), np.arange(len(history.nodes))
    simulator = Simulator(history, past=past)
    plans = [windows.window_at(first, load, nodes) for load in loads]
    age, other = (
        [four_waits(waits_under(with_order(policy, find_order(name)), simulator, plan, 1))[0] for plan in plans]
        for name in (REFERENCE, f"{ORDER}@{source}")
    )
    return [round(float(x / y), 3) for x, y in zip(other, age, strict=True)]


def section(result: Json) -> str:
    """Write the page of docs/results."""
    lines = [
        "## Belief about run times",
        "",
        "Every job of a log is predicted when it is submitted, from what ended by then; the first "
        f"{100 * UNSCORED:.0f} % are not scored. *Bits*: minus the logarithm of the probability of the half-octave "
        f"that came. *Near*: the estimate is within a factor of {FACTOR:g}. *Inside*: in the 80 % interval. Of each "
        "key the histogram that is better, that of all its jobs or of recent ones.",
        "",
    ]
    for log in result["logs"]:
        values = {each["what"]: each for each in result["values"] if each["log"] == log}
        keys: dict[str, list[Json]] = {}
        for what, each in values.items():
            if not what.startswith("@"):
                keys.setdefault(what.partition("/")[0], []).append(each)
        best = {key: min(each, key=lambda one: one["bits"]) for key, each in keys.items()}
        rows = [
            [key, tables.number(each["bits"]), *(tables.number(each[name]) for name in ("near", "inside"))]
            for key, each in best.items()
        ]
        lines += [tables.markdown([log, "bits", "near", "inside"], rows), ""]
    loads = ", ".join(f"{load:g}" for load in result["loads"])
    lines += [
        f"What it is worth: the mean wait (and a minute) under `{ORDER}` over that under `{REFERENCE}`, on the later "
        f"part of each log at loads of {loads}, by what is known of run times.",
        "",
    ]
    rows = [
        [text, *(" ".join(map(tables.number, _waits(result, log, source))) for log in result["logs"])]
        for source, text in SOURCES.items()
    ]
    return "\n".join([*lines, tables.markdown(["run times", *result["logs"]], rows)])


def _waits(result: Json, log: str, source: str) -> list[float]:
    return next(each["waits"] for each in result["values"] if (each["log"], each["what"]) == (log, f"@{source}"))
