"""Jobs by the model of Lublin and Feitelson.

"The workload on parallel supercomputers: modeling the characteristics of rigid jobs" (JPDC 63(11), 2003). Sizes have a
two-stage uniform logarithm, and many are rounded to powers of two; the logarithm of a run time is hyper-gamma, with
longer jobs among the larger ones; times between arrivals are log-gamma and pass more quickly in the busy half hours of
the day.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.workloads.workload import Workload

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SLOTS, SLOT_SECONDS = 48, 1800.0
"""Half hours of a day."""
FIRST_SLOT = 11
"""The gamma distribution of arrivals over the day begins in this slot, when it is quiet, and ends a day later."""
LONGEST_LOG, LONGEST_GAP_LOG = 12.0, 13.0
"""Logarithms of seconds. Longer runs (two days) and longer gaps between arrivals (five days) are drawn again."""
LOADS = 0.6, 1.1
"""Offered loads of parts of a trace: what its jobs take of the machine while they arrive, in days of the mean pace."""


@dataclass(frozen=True, slots=True)
class LublinModel:
    """Parameters; by default those published for jobs of all types, but for the size of the machine.

    Attributes:
        processors: of the machine.
        serial: share of jobs of one processor.
        power_of_two: share of parallel jobs, of all jobs, whose size is rounded to a power of two.
        low: log2 of the smallest parallel size, which is rounded; below 1, else two processors would be too rare.
        middle: how far the point between the two stages of log2 of sizes is below log2 of the processors.
        lower: share of parallel sizes below that point.
        short: shape and scale of the logarithm of the seconds of short runs.
        long: the same of long runs.
        slope: change of the probability of a short run with each processor.
        offset: that probability without the processors.
        gap: shape and scale of the logarithm of the seconds between arrivals.
        day: shape and scale of arrivals over the slots of the day.
    """

    processors: int = 256
    serial: float = 0.244
    power_of_two: float = 0.576
    low: float = 0.8
    middle: float = 2.5
    lower: float = 0.86
    short: tuple[float, float] = (4.2, 0.94)
    long: tuple[float, float] = (312.0, 0.03)
    slope: float = -0.0054
    offset: float = 0.78
    gap: tuple[float, float] = (10.2303 * 1.0225, 0.4871)
    day: tuple[float, float] = (8.1737, 3.9631)

    def sizes(self, random: np.random.Generator, count: int) -> Ints:
        """Return [count] processors."""
        high = math.log2(self.processors)
        middle = high - self.middle
        below = random.random(count) < self.lower
        logs = np.where(below, random.uniform(self.low, middle, count), random.uniform(middle, high, count))
        kind = random.random(count)
        logs = np.where(kind < self.serial + self.power_of_two, np.rint(logs), logs)
        return np.where(kind < self.serial, 1, np.rint(2.0**logs)).astype(np.int64)

    def run_times(self, random: np.random.Generator, sizes: Ints) -> Floats:
        """Return the whole seconds that jobs of some sizes run, at least 1."""
        logs = np.full(len(sizes), np.inf)
        probability = np.clip(self.slope * sizes + self.offset, 0.0, 1.0)
        while len(again := np.flatnonzero(logs > LONGEST_LOG)):
            is_short = random.random(len(again)) < probability[again]
            drawn = random.gamma(*self.short, len(again)), random.gamma(*self.long, len(again))
            logs[again] = np.where(is_short, *drawn)
        return np.asarray(np.floor(np.exp(logs)))

    def arrivals(self, random: np.random.Generator, count: int, mean_gap: float | None = None) -> Floats:
        """Return [count] times in seconds from a midnight on, ascending; `mean_gap` replaces the mean of the gaps."""
        logs = np.full(count, np.inf)
        while len(again := np.flatnonzero(logs > LONGEST_GAP_LOG)):
            logs[again] = random.gamma(*self.gap, len(again))
        gaps = np.exp(logs)
        if mean_gap is not None:
            gaps *= mean_gap / gaps.mean()
        # In a busy slot more of a gap passes than its half hour.
        paid = np.cumsum(gaps) / SLOT_SECONDS
        days = int(paid[-1] // SLOTS) + 1
        passed = np.concatenate([[0.0], np.cumsum(np.tile(self.slot_weights(), days))])
        return np.asarray(np.interp(paid, passed, np.arange(len(passed)) * SLOT_SECONDS))

    def slot_weights(self) -> Floats:
        """Return [SLOTS] the pace of arrivals in each half hour from midnight on, 1 on average."""
        shape, scale = self.day
        x = np.arange(FIRST_SLOT - 0.5, FIRST_SLOT + SLOTS) / scale
        share = np.diff(_gamma_distribution(shape, x))
        weights = np.zeros(SLOTS)
        weights[(np.arange(FIRST_SLOT, FIRST_SLOT + SLOTS) - 1) % SLOTS] = share
        return np.asarray(weights / weights.mean())


INTERACTIVE = LublinModel(
    serial=0.1541,
    power_of_two=0.625,
    low=1.0,
    middle=2.5,
    lower=0.705,
    short=(3.8351, 0.6605),
    long=(7.073, 0.6856),
    slope=-0.0118,
    offset=0.9156,
    gap=(6.551 * 0.9797, 0.6621),
    day=(8.9186, 3.668),
)
"""As published for interactive jobs."""
BATCH = LublinModel(
    serial=0.2927,
    power_of_two=0.6686,
    low=1.2,
    middle=2.0,
    lower=0.875,
    short=(6.57, 0.823),
    long=(639.1, 0.0156),
    slope=-0.003,
    offset=0.6986,
    gap=(6.0415 * 1.0519, 0.8531),
    day=(6.1271, 5.274),
)
"""As published for batch jobs."""


def other_model(random: np.random.Generator) -> LublinModel:
    """Draw each parameter between its values for interactive and for batch jobs, of gammas the shape and the mean.

    `middle` and `lower` are drawn from the ranges that the model's authors give.
    """
    one, other = INTERACTIVE, BATCH

    def between(a: float, b: float) -> float:
        return a + (b - a) * random.random()

    def gamma(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
        shape = math.exp(between(math.log(a[0]), math.log(b[0])))
        return shape, between(a[0] * a[1], b[0] * b[1]) / shape

    return LublinModel(
        serial=between(one.serial, other.serial),
        power_of_two=between(one.power_of_two, other.power_of_two),
        low=between(one.low, other.low),
        middle=random.uniform(1.5, 3.5),
        lower=random.uniform(0.7, 0.95),
        short=gamma(one.short, other.short),
        long=gamma(one.long, other.long),
        slope=between(one.slope, other.slope),
        offset=between(one.offset, other.offset),
        gap=gamma(one.gap, other.gap),
        day=gamma(one.day, other.day),
    )


def other_trace(name: str, seed: int, parts: int, jobs: int) -> Workload:
    """Return jobs on one machine whose parameters and load change from part to part.

    Args:
        name: of the workload.
        seed: of all randomness.
        parts: number of parts.
        jobs: jobs of a part.
    """
    random = np.random.default_rng(seed)
    pods: list[Pod] = []
    begin = 0.0
    for _ in range(parts):
        model = other_model(random)
        sizes = model.sizes(random, jobs)
        run_times = model.run_times(random, sizes)
        offered = float((sizes * run_times).sum()) / model.processors
        times = begin + model.arrivals(random, jobs, offered / (jobs * random.uniform(*LOADS)))
        for time, run, size in zip(times.tolist(), run_times.tolist(), sizes.tolist(), strict=True):
            pod_class = PodClass(Requests(cpu_milli=1000 * size))
            pods.append(Pod(f"job-{len(pods) + 1}", pod_class, creation_time=time, deletion_time=time + run))
        # The next part goes on at midnight.
        begin = math.ceil(times[-1] / (SLOTS * SLOT_SECONDS)) * SLOTS * SLOT_SECONDS
    return Workload(name, (Node("machine", LublinModel().processors * 1000, 1 << 40),), tuple(pods))


def _gamma_distribution(shape: float, x: Floats) -> Floats:
    """Return P(shape, x), the regularised lower incomplete gamma function, by its series."""
    term = np.exp(-x + shape * np.log(x) - math.lgamma(shape + 1.0))
    total, k = term.copy(), 0
    while (term > 1e-12 * total).any():
        k += 1
        term = term * x / (shape + k)
        total += term
    return np.asarray(total)
