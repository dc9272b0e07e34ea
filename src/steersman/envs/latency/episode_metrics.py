"""Metrics of an episode on the simulated cluster, with names and units, from its totals."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.envs.latency import state

FIGURES = {
    "empty_nodes": "nodes",
    "used_nodes": "nodes",
    "cpu_use_deviation_percent": "percent",
    "connections_peak": "connections",
    "connections_maximum_mean": "connections",
    "hard_limits_broken_avoidable": "pods",
    "hard_limits_broken": "pods",
    "soft_limits_kept_percent": "percent",
    "soft_limits_kept_running_percent": "percent",
    "hard_limits_broken_running_percent": "percent",
    "saturated_nodes_percent": "percent",
    "refused_pods": "pods",
    "placed_pods": "pods",
}
"""Names of the figures and their units.

Means over time, from the truth every 15 seconds after the warm-up: nodes without and with pods; standard deviation over
nodes of the share of CPU used; connections of the node that has most (and the highest number ever); running pods with
limits whose latency is within the soft one, and beyond the hard one; used nodes whose pods want more CPU than there is.
Of placements after the warm-up, at the moment after: pods beyond their hard limit though some node with room could have
met it, and in all; pods with limits placed within the soft one; pods refused for lack of room.
"""


def figures(total: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
    """Return the metrics, each [E], of `SimulatorState.total`, [E, 16]; NaN if nothing was counted."""
    column = total.T

    def share(part: int, whole: int) -> npt.NDArray[np.float64]:
        quotient = np.full(len(total), np.nan)
        np.divide(column[part], column[whole], out=quotient, where=column[whole] > 0)
        return quotient

    result = {
        "empty_nodes": share(state.EMPTY, state.SAMPLES),
        "used_nodes": share(state.USED, state.SAMPLES),
        "cpu_use_deviation_percent": 100.0 * share(state.DEVIATION, state.SAMPLES),
        "connections_peak": np.where(column[state.SAMPLES] > 0, column[state.PEAK], np.nan),
        "connections_maximum_mean": share(state.MOST_CONNECTIONS, state.SAMPLES),
        "hard_limits_broken_avoidable": column[state.HARD_AVOIDABLE].copy(),
        "hard_limits_broken": column[state.HARD_BROKEN].copy(),
        "soft_limits_kept_percent": 100.0 * share(state.SOFT_MET, state.LIMITED),
        "soft_limits_kept_running_percent": 100.0 * share(state.SOFT_NOW, state.LIMITED_NOW),
        "hard_limits_broken_running_percent": 100.0 * share(state.HARD_NOW, state.LIMITED_NOW),
        "saturated_nodes_percent": 100.0 * share(state.SATURATED, state.USED),
        "refused_pods": column[state.REFUSED].copy(),
        "placed_pods": column[state.PLACED].copy(),
    }
    return {name: result[name] for name in FIGURES}
