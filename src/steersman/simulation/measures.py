"""What is measured of runs: names, units and words, from which result files, reports and dashboards are made.

To add a number over a run: its row in `COURSE`, and its values in `metrics.events_of`. An installed package brings a
row with a function of the run's events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from steersman.core.errors import SteersmanError
from steersman.core.extensions import Registry, attribute_errors
from steersman.objectives.summary import CAUSES
from steersman.simulation.event_arrays import EventRecord


@dataclass(frozen=True, slots=True)
class MeasurePlot:
    """A plot of a measure among a report's plots of balance and nodes in use."""

    id: str  # in the page
    axis: str
    caption: str
    resource: str = ""  # `GPU` or `CPU`: only where the comparison is about it


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of a run; policies are compared by those that have a phrase."""

    name: str  # in files
    unit: str = "percent"
    title: str = ""  # of a column, with the unit; of a measure of `COURSE` with {} where it says when
    short: str = ""  # the same where space is scarce
    phrase: str = ""  # in a sentence
    larger_is_better: bool = False
    digits: int = 2
    objective: str = ""  # that aims at it
    curve: str = ""  # its values over a run: a measure of `COURSE` or an objective's rewards; empty if it has none
    # Of measures of `COURSE` alone:
    over_time: str = ""  # metric of its mean over time (`timed`); empty: none
    is_final: bool = True  # whether its value at the end is a metric
    in_timeline: bool = True  # whether `timeline.csv` has it
    is_published: bool = False  # two decimals, and the end of `inflation` is that of the curve, as in published results
    plot: MeasurePlot | None = None
    function: Callable[[EventRecord], npt.NDArray[np.float64]] | None = None  # [E] its values, of a package's measure

    def of_events(self, record: EventRecord) -> npt.NDArray[np.float64]:
        """Return [E] the values of a package's measure. Raises SteersmanError: it failed."""
        with attribute_errors(f"measure {self.name!r}"):
            found = np.asarray(None if self.function is None else self.function(record), dtype=np.float64)
        if found.shape != record.time.shape:
            raise SteersmanError(f"measure {self.name!r}: expected a value after each of {len(record.time)} events")
        return found

    @property
    def difference_unit(self) -> str:
        return {"percent": "points", "seconds": "s"}.get(self.unit, self.unit)

    @property
    def symbol(self) -> str:
        """Return what follows its values, such as ` %`."""
        return {"percent": " %", "seconds": " s"}.get(self.unit, "")

    def at_end(self) -> Measure:
        return replace(self, title=self.title.format(" at the end"), curve=self.name)

    def mean_over_time(self) -> Measure:
        return replace(self, name=self.over_time, title=self.title.format(" over time"), curve=self.name)


def _by_name(*measures: Measure) -> dict[str, Measure]:
    return {each.name: each for each in measures}


_UNEVEN = "How unequally nodes are used; 0 is perfectly balanced."

GPU_ALLOCATION, CPU_ALLOCATION = "gpu_allocation_percent", "cpu_allocation_percent"
FRAGMENTED = "gpu_fragmented_percent"
BY_CAUSE = tuple(f"gpu_fragmented_{cause}_percent" for cause in CAUSES)
COURSE = _by_name(
    Measure("arrived_percent", is_final=False),
    Measure(
        GPU_ALLOCATION,
        title="GPU allocated{}, %",
        short="GPU %",
        phrase="share of allocated GPUs",
        larger_is_better=True,
        objective="allocation",
        over_time="gpu_allocation_over_time_percent",
        is_published=True,
    ),
    Measure(
        CPU_ALLOCATION,
        title="CPU allocated{}, %",
        short="CPU %",
        phrase="share of allocated CPU",
        larger_is_better=True,
        over_time="cpu_allocation_over_time_percent",
        is_published=True,
    ),
    Measure("memory_allocation_percent", is_published=True),
    Measure(
        FRAGMENTED,
        title="GPU fragmented{}, % of all GPUs",
        short="Fragmented %",
        phrase="share of fragmented GPU",
        objective="fragmentation",
        over_time="gpu_fragmented_over_time_percent",
    ),
    *map(Measure, BY_CAUSE),
    Measure("gpu_balance_percent", plot=MeasurePlot("balance", "standard deviation of GPU use, %", _UNEVEN, "GPU")),
    Measure(
        "cpu_balance_percent",
        title="Standard deviation of the nodes' CPU use{}, %",
        short="CPU dev. %",
        phrase="standard deviation of CPU use",
        objective="balance",
        over_time="cpu_balance_over_time_percent",
        plot=MeasurePlot("balance", "standard deviation of CPU use, %", _UNEVEN, "CPU"),
    ),
    Measure(
        "nodes_used",
        "nodes",
        title="Nodes in use{}",
        short="Nodes used",
        phrase="number of nodes in use",
        objective="most-allocated",
        over_time="nodes_used_over_time",
        plot=MeasurePlot("used", "nodes in use", "Nodes with at least one pod."),
    ),
    Measure("pods_waiting", "pods", is_final=False),
    Measure("gpu_fragmented_of_idle_percent", is_final=False, in_timeline=False, is_published=True),
)
"""What is known of a run at every moment, in the order of files.

GPU demand arrived so far, in percent of all GPUs; shares of the cluster that are allocated; fragmented GPU in percent
of all GPUs, and by `fragmentation.CAUSES`; standard deviation over nodes of the used share; nodes that run at least one
pod; pods that wait (`timed`) or have failed so far (`inflation`, `arrivals`); fragmented share of the idle GPU.
"""

REGISTRY: Registry[Measure] = Registry("measure", "steersman.measures", Measure, COURSE)
INSTALLED = tuple(REGISTRY.find(name) for name in REGISTRY.names() if name not in COURSE)
"""Measures of installed packages. One that cannot be loaded is an error of every simulation: nobody names it."""
COURSE |= {each.name: each for each in INSTALLED}

MEAN_WAIT = Measure(
    "waiting_time_mean_seconds", "seconds", "Mean wait, s", "Mean wait s", "mean wait", digits=1, curve="pods_waiting"
)

LATENCY = _by_name(
    Measure(
        "empty_nodes",
        "nodes",
        "Nodes without a pod over time",
        "Empty nodes",
        "number of empty nodes",
        larger_is_better=True,
        objective="most-allocated",
    ),
    Measure("used_nodes", "nodes", "Nodes in use over time", "Nodes used"),
    Measure(
        "cpu_use_deviation_percent",
        title="Standard deviation of the nodes' CPU use over time, %",
        short="CPU dev. %",
        phrase="standard deviation of CPU use",
        objective="balance",
        curve="cpu_balance_percent",
    ),
    Measure("connections_peak", "connections", "Most connections of a node ever", "Peak conn.", digits=0),
    Measure(
        "connections_maximum_mean",
        "connections",
        "Connections of the node with most, over time",
        "Most conn.",
        "number of connections of the node with most",
        digits=1,
        objective="least-connections",
    ),
    Measure(
        "hard_limits_broken_avoidable",
        "pods",
        "Hard limits broken though a node could have met them, pods",
        "Hard broken",
        digits=1,
    ),
    Measure("hard_limits_broken", "pods"),
    Measure(
        "soft_limits_kept_percent",
        title="Pods placed within their soft limit of latency, %",
        short="Soft kept %",
        phrase="share of pods within their soft limit of latency",
        larger_is_better=True,
        objective="latency-aware",
    ),
    Measure("soft_limits_kept_running_percent"),
    Measure("hard_limits_broken_running_percent"),
    Measure("saturated_nodes_percent"),
    Measure("refused_pods", "pods"),
    Measure("placed_pods", "pods"),
)
"""The figures of an episode with telemetry, of what is really used, in the order of the core.

Means over time, from the truth every 15 seconds after the warm-up: nodes without and with pods; standard deviation over
nodes of the share of CPU used; connections of the node that has most (and the highest number ever); running pods with
limits whose latency is within the soft one, and beyond the hard one; used nodes whose pods want more CPU than there is.
Of placements after the warm-up, at the moment after: pods beyond their hard limit though some node with room could have
met it, and in all; pods with limits placed within the soft one; pods refused for lack of room.
"""
