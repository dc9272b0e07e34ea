"""The learning curve of a policy for a report: gains of candidates during the search, and in validation."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from steersman.evaluation.report.style import POLICY_COLOURS, Figure, Floats, figure, rounded, titled


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """A training run by evolution.

    Attributes:
        reference: the policy that gains are measured against.
        episodes, gain: [G] episodes so far, and percent saved by the mean candidate, by generation.
        checked_episodes, checked: [V] the same for validations of the policy itself.
    """

    policy: str
    reference: str
    training: tuple[str, ...]
    episodes: Floats
    gain: Floats
    checked_episodes: Floats
    checked: Floats


def read_learning(folder: Path, policy: str, reference: str, training: tuple[str, ...]) -> LearningCurve:
    metrics = list(_rows(folder / "metrics.csv"))
    at = {row["iteration"]: float(row["steps"]) for row in metrics}
    checks = list(_rows(folder / "validation.csv"))
    return LearningCurve(
        policy,
        reference,
        training,
        np.array(list(at.values())),
        np.array([float(row["gain"]) for row in metrics]),
        np.array([at[row["iteration"]] for row in checks]),
        np.array([float(row["value"]) for row in checks]),
    )


def _rows(file: Path) -> Iterator[dict[str, str]]:
    with open(file, newline="") as lines:
        yield from csv.DictReader(lines)


def learning_figure(curve: LearningCurve) -> Figure:
    search: Figure = {
        "type": "scatter",
        "mode": "lines",
        "x": curve.episodes.tolist(),
        "y": rounded(curve.gain),
        "line": {"color": "#aaaaaa", "width": 1.5},
        "hovertemplate": "%{x} episodes: %{y:.1f} %<extra>mean candidate</extra>",
    }
    checks: Figure = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": curve.checked_episodes.tolist(),
        "y": rounded(curve.checked),
        "line": {"color": POLICY_COLOURS[0], "width": 2},
        "hovertemplate": "%{x} episodes: %{y:.1f} %<extra>validation</extra>",
    }
    low = min(-5.0, float(curve.checked.min(initial=0.0)))
    high = max(float(curve.gain.max(initial=0.0)), float(curve.checked.max(initial=0.0)))
    y_axis = titled("unallocated GPUs saved, %", range=[low, high + 2])
    return figure([search, checks], titled("episodes played"), y_axis)
