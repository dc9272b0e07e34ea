"""The result of a training run: its folder, its policy file and its metrics."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from steersman.core.frames import to_frame
from steersman.policies.base import Policy
from steersman.policies.registry import resolve
from steersman.training.plans import AnyPlan, gain_text
from steersman.training.run import POLICY, TrainingProgress, read_metrics


@dataclass(frozen=True, slots=True, repr=False)
class TrainingResult:
    """A training run that has ended.

    Attributes:
        plan: what was trained.
        folder: folder of the run.
        progress: iterations done, time spent and the best validation.
    """

    plan: AnyPlan
    folder: Path
    progress: TrainingProgress

    @property
    def file(self) -> Path:
        """Return the policy file with the best validation."""
        return self.folder / POLICY

    @property
    def policy(self) -> Policy:
        """Return the policy with the best validation."""
        return resolve(str(self.file))

    @property
    def summary(self) -> str:
        """Return the best validation and its iteration in words."""
        best = gain_text(self.plan, self.progress.best)
        return f"{best} in validation (best: iteration {self.progress.best_iteration} of {self.progress.iteration})"

    def to_frame(self) -> Any:
        """Return a data frame of `metrics.csv`: one row per iteration, NaN for undefined values."""
        return to_frame(read_metrics(self.folder))

    def __repr__(self) -> str:
        """Return the outcome in a sentence."""
        return f"{self.plan.name}: {self.summary}. {self.file}"

    def _repr_html_(self) -> str:
        """Return the outcome as a paragraph for notebooks."""
        return f"<p><b>{escape(self.plan.name)}</b>: {escape(self.summary)}. <code>{escape(str(self.file))}</code></p>"
