"""What an episode on the simulated cluster came to: its totals as figures with names and units."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.telemetry import model

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
    """The figures, each [E], of `World.total`, [E, 16]; NaN where nothing was counted, as before the warm-up ends."""
    column = total.T

    def share(part: int, whole: int) -> npt.NDArray[np.float64]:
        made = np.full(len(total), np.nan)
        np.divide(column[part], column[whole], out=made, where=column[whole] > 0)
        return made

    found = {
        "empty_nodes": share(model.EMPTY, model.SAMPLES),
        "used_nodes": share(model.USED, model.SAMPLES),
        "cpu_use_deviation_percent": 100.0 * share(model.DEVIATION, model.SAMPLES),
        "connections_peak": np.where(column[model.SAMPLES] > 0, column[model.PEAK], np.nan),
        "connections_maximum_mean": share(model.MOST_CONNECTIONS, model.SAMPLES),
        "hard_limits_broken_avoidable": column[model.HARD_AVOIDABLE].copy(),
        "hard_limits_broken": column[model.HARD_BROKEN].copy(),
        "soft_limits_kept_percent": 100.0 * share(model.SOFT_MET, model.LIMITED),
        "soft_limits_kept_running_percent": 100.0 * share(model.SOFT_NOW, model.LIMITED_NOW),
        "hard_limits_broken_running_percent": 100.0 * share(model.HARD_NOW, model.LIMITED_NOW),
        "saturated_nodes_percent": 100.0 * share(model.SATURATED, model.USED),
        "refused_pods": column[model.REFUSED].copy(),
        "placed_pods": column[model.PLACED].copy(),
    }
    return {name: found[name] for name in FIGURES}
