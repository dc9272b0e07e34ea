"""Validation of a policy: its return on episodes that training never uses, beside a rule's on the same episodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steersman.envs.environment import RETURN, Chooser, Figures
from steersman.policies.files.policy_file import WorkloadResult
from steersman.training.environment import EnvironmentSpec

LEAST = 1e-9


class Validator:
    """Run validation episodes.

    Args:
        seeds: of the episodes on each workload.
        reference: the rule to compare with; it runs each episode once.

    Raises:
        UsageError: the environment has no such rule, or an option of it is invalid.
    """

    def __init__(self, environment: EnvironmentSpec, seeds: Sequence[int], reference: str) -> None:
        environment.check_rule(reference)
        self.episodes, self.reference = environment.stage(seeds), reference
        self._reference_figures: dict[str, Figures] = {}
        self._policy_figures: dict[str, Figures] = {}

    def validate(self, choose: Chooser) -> float:
        """Return by how many percent the mean return exceeds the reference's: the mean over workloads."""
        gains = []
        for name in self.episodes.names:
            if name not in self._reference_figures:
                self._reference_figures[name] = self.episodes.play(name, self.reference)
            self._policy_figures[name] = self.episodes.play(name, choose)
            mean = float(self._policy_figures[name][RETURN].mean())
            reference_mean = float(self._reference_figures[name][RETURN].mean())
            # `abs`: the reference's return may be negative.
            gains.append(100.0 * (mean - reference_mean) / max(abs(reference_mean), LEAST))
        return float(np.mean(gains))

    def scores(self) -> tuple[WorkloadResult, ...]:
        """Return the means of the last validation, for a model card: the return and the environment's metrics."""
        scores = []
        for name, figures in self._policy_figures.items():
            baseline_figures = self._reference_figures[name]
            for figure in (RETURN, *(each for each in figures if each != RETURN)):
                means = float(figures[figure].mean()), float(baseline_figures[figure].mean())
                if np.isfinite(means).all():  # an episode that was too short has no metrics
                    mean, baseline = (round(value, 6) for value in means)
                    scores.append(
                        WorkloadResult(name, figure, mean, self.reference, baseline, len(self.episodes.seeds))
                    )
        return tuple(scores)
