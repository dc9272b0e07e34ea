"""How good a policy is: its return on episodes that training does not see, beside a rule's on the same episodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steersman.envs.playing import RETURN, Chooser, Figures
from steersman.policies.policy_file import Score
from steersman.training.scene import Scene

LEAST = 1e-9


class Referee:
    """Plays validation episodes.

    Args:
        scene: what is played.
        seeds: of the episodes on each workload.
        reference: the rule to compare with; it plays each episode once.

    Raises:
        UsageError: the environment has no such rule, or an option of it is wrong.
    """

    def __init__(self, scene: Scene, seeds: Sequence[int], reference: str) -> None:
        scene.check_rule(reference)
        self.stage, self.reference = scene.stage(seeds), reference
        self._theirs: dict[str, Figures] = {}
        self._ours: dict[str, Figures] = {}

    def validate(self, choose: Chooser) -> float:
        """By how many percent the mean return is above the reference's: the mean over workloads."""
        gains = []
        for name in self.stage.names:
            if name not in self._theirs:
                self._theirs[name] = self.stage.play(name, self.reference)
            self._ours[name] = self.stage.play(name, choose)
            ours, theirs = (float(figures[RETURN].mean()) for figures in (self._ours[name], self._theirs[name]))
            gains.append(100.0 * (ours - theirs) / max(abs(theirs), LEAST))
        return float(np.mean(gains))

    def scores(self) -> tuple[Score, ...]:
        """The means of the last validation, for a model card: the return, and what the environment tells."""
        made = []
        for name, ours in self._ours.items():
            theirs = self._theirs[name]
            for figure in (RETURN, *(each for each in ours if each != RETURN)):
                means = float(ours[figure].mean()), float(theirs[figure].mean())
                if np.isfinite(means).all():  # a figure of an episode that was too short is none
                    mean, baseline = (round(value, 6) for value in means)
                    made.append(Score(name, figure, mean, self.reference, baseline, len(self.stage.seeds)))
        return tuple(made)
