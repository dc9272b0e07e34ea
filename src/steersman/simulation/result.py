"""The result of one simulated run: curve, metrics and, if requested, every placement."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from html import escape
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from steersman.core.errors import UsageError
from steersman.core.extras import to_frame
from steersman.simulation.measures import COURSE

Floats = npt.NDArray[np.float64]

Protocol = Literal["inflation", "timed", "arrivals", "deployments", "latency"]
"""How pods arrive and depart; the last two generate clusters and pods by the seed."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of a run. `value` is NaN if the metric does not apply (an empty cell in CSV)."""

    name: str
    unit: str
    value: float


@dataclass(frozen=True, slots=True)
class Curve:
    """The course of a run, K points.

    It has an attribute [K] for each measure of `COURSE`. A value is NaN where no event falls on a point, where the
    cluster has none of the resource, and where it is unknown.
    """

    # [K] the points: arrived GPU demand in percent of all GPUs for `inflation` (0, 1, ... 130) and `arrivals`,
    # seconds for `timed`; of a timeline seconds, or the index of the arrival if the protocol has no time.
    x: Floats
    measured: dict[str, Floats]  # [K] by the name of each measure that is known
    # [K] reward of the last decision, by the name of each requested objective
    rewards: dict[str, Floats] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Floats:
        """Return [K] the values of a measure."""
        if name not in COURSE:
            raise AttributeError(f"a curve has no {name!r}; it has {', '.join(COURSE)}")
        return self.measured[name] if name in self.measured else np.full(len(self.x), np.nan)

    @property
    def cpu_variance(self) -> Floats:
        """Return [K] the variance over nodes of the used share of their CPU, as a fraction."""
        return np.asarray((self.cpu_balance_percent / 100.0) ** 2, dtype=np.float64)

    def values(self, quantity: str) -> Floats:
        """Return [K] the values of a measure or of an objective's rewards."""
        return self.rewards[quantity] if quantity in self.rewards else getattr(self, quantity)


@dataclass(frozen=True, slots=True)
class FinalNodes:
    """The eligible nodes at the end of a run, in the node file's order, for the heat map.

    Shares are 0..1, NaN where there is none of the resource; see `Workload.eligible`. `gpu_count` are physical GPUs,
    which slices and replicas are parts of.
    """

    names: tuple[str, ...]
    gpu_model: tuple[str, ...]
    gpu_count: npt.NDArray[np.float64]
    gpu_used_share: npt.NDArray[np.float64]
    cpu_used_share: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LatencyEpisode:
    """Decisions of an episode with telemetry, D of them on N nodes."""

    nodes: tuple[str, ...]  # names of the nodes
    pods: npt.NDArray[np.int64]  # [D, N] pods on each node before the decision
    node: npt.NDArray[np.int64]  # [D] index of the chosen node
    latency: npt.NDArray[np.float64]  # [D] milliseconds from there to the pod's users right after; NaN: it has none
    kept: npt.NDArray[np.float64]  # [D] whether that is within the pod's soft limit, 0 or 1; NaN: it has no limits


@dataclass(frozen=True, slots=True)
class Placements:
    """Every event of a run, in order; the columns of `placements.csv`."""

    time: npt.NDArray[np.float64]  # [E] seconds; the event's index where the protocol has no time
    pod: list[str]  # [E] pod names, as namespace/name if some pod is not in the namespace `default`
    node: list[str]  # [E] node names, "" where there is none
    devices: list[str]  # [E] GPU indices joined by "-", "" where there are none
    outcome: list[str]  # [E] "bound", "failed" (dropped), "waiting", "finished" (departed), "evicted"
    reason: list[str]  # [E] why a pod was not bound, in kube-scheduler's words, else ""


@dataclass(frozen=True, slots=True, repr=False)
class RunResult:
    """The result of one run.

    Attributes:
        curve, metrics, final_nodes: what was measured.
        timeline, placements: only if requested; the timeline has a point for every event.
        latency: of protocol `latency` alone.
        choice: of a portfolio the member that decided and why, in a sentence; else "".
        is_given: whether the arrivals are given by the workload. The seed then only ranks equal nodes, so seeds say
            nothing about other days.
        parts: by metric, [K, 2] for K consecutive parts of a given trace: its contribution to the sum and to the weight
            of the mean that the metric is. Empty where a metric is not a mean over a trace.
    """

    workload: str
    policy: str
    seed: int
    protocol: Protocol
    curve: Curve
    metrics: tuple[Metric, ...]
    final_nodes: FinalNodes
    warnings: tuple[str, ...] = ()
    timeline: Curve | None = None
    placements: Placements | None = None
    latency: LatencyEpisode | None = None
    choice: str = ""
    is_given: bool = False
    parts: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    def to_frame(self) -> Any:
        """Return a data frame of the metrics: name, unit, value."""
        return to_frame(
            {
                "metric": [metric.name for metric in self.metrics],
                "unit": [metric.unit for metric in self.metrics],
                "value": [metric.value for metric in self.metrics],
            }
        )

    def placements_frame(self) -> Any:
        """Return a data frame of the events: the columns of `placements.csv`. Raises UsageError: none were recorded."""
        if self.placements is None:
            raise UsageError("the run has no placements; simulate with record=True keeps them")
        return to_frame({field.name: list(getattr(self.placements, field.name)) for field in fields(self.placements)})

    def __repr__(self) -> str:
        """Return what was run."""
        return f"{self.policy} on {self.workload}: {self.protocol}, seed {self.seed}"

    def _repr_html_(self) -> str:
        """Return the defined metrics as a table for notebooks."""
        rows = "".join(
            f"<tr><th>{escape(metric.name)}</th><td>{metric.value:.6g}</td><td>{escape(metric.unit)}</td></tr>"
            for metric in self.metrics
            if not math.isnan(metric.value)
        )
        return f"<table><caption>{escape(repr(self))}</caption>{rows}</table>"
