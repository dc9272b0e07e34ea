"""The learning curve of a policy for a report: gains of candidates during the search, and in validation."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from steersman.evaluation.report import markup
from steersman.evaluation.report.figures import POLICY_COLOURS, Figure, layout, rounded

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """A training run by evolution.

    Attributes:
        policy: its name.
        reference: the policy that gains are measured against.
        training: names of the workloads of training.
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
    """Return the curve of the training run in a folder."""
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


def learning_section(curve: LearningCurve, plots: dict[str, Figure]) -> str:
    """Return its section of a report; its figure goes to `plots`."""
    name = "learning"
    plots[name] = _figure(curve)
    caption = (
        f"What {curve.policy} saves of the GPUs that {curve.reference} leaves unallocated: grey, the mean candidate of "
        "a generation on its training episodes; dots, the policy itself on arrivals that training does not see."
    )
    return markup.block(
        f"How the policy “{curve.policy}” learned",
        f"Trained on {', '.join(curve.training)}, from {curve.reference} on; the workload of this report was not among "
        "them.",
        "pair",
        [markup.figure(markup.plot(name, plots[name], caption), caption)],
    )


def _figure(curve: LearningCurve) -> Figure:
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
    y_axis = {"title": {"text": "unallocated GPUs saved, %"}, "range": [low, high + 2]}
    return {"data": [search, checks], "layout": layout({"title": {"text": "episodes played"}}, y_axis)}
