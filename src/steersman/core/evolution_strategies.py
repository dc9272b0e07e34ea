"""An evolution strategy: maximize a noisy function of many numbers by ask and tell.

strategy = SeparableCma(start, step=0.1, population=20, seed=1)
while ...:
candidates = strategy.ask()                      # [population, D]
strategy.tell([value(c) for c in candidates])    # higher is better
strategy.mean
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


class SeparableCma:
    """CMA-ES with a diagonal covariance, whose cost grows linearly with the dimension.

    Source: Ros and Hansen, "A Simple Modification in CMA-ES Achieving Linear Time and Space Complexity", PPSN 2008;
    constants of Hansen, "The CMA Evolution Strategy: A Tutorial" (2016); mirrored sampling with pairwise selection of
    Brockhoff et al., PPSN 2010.

    Args:
        start: [D] initial mean.
        step: initial standard deviation, in every dimension.
        population: candidates per generation, even.
    """

    def __init__(self, start: Array, step: float, population: int = 20, seed: int = 1) -> None:
        if population < 4 or population % 2:
            raise ValueError(f"population {population}: expected an even number from 4 on")
        self.mean = np.array(start, dtype=np.float64)
        self.step, self.population = step, population
        self.rng = np.random.default_rng(seed)
        self.generation = 0
        self.drawn = np.zeros((population, len(self.mean)))
        d = len(self.mean)
        ranks = np.log(population // 2 + 0.5) - np.log(np.arange(1, population // 2 + 1))
        self.weights = ranks / ranks.sum()
        m = self.effective = 1.0 / float((self.weights**2).sum())
        self.step_memory = (m + 2) / (d + m + 5)
        self.damping = 1 + 2 * max(0.0, np.sqrt((m - 1) / (d + 1)) - 1) + self.step_memory
        self.memory = (4 + m / d) / (d + 4 + 2 * m / d)
        faster = (d + 2) / 3  # only the diagonal is learned, so its rate may be larger
        one = 2 / ((d + 1.3) ** 2 + m)
        self.rank_one = min(1.0, one * faster)
        self.rank_many = min(1 - self.rank_one, min(1 - one, 2 * (m - 2 + 1 / m) / ((d + 2) ** 2 + m)) * faster)
        self.expected_length = np.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))
        self.variance, self.path, self.step_path = np.ones(d), np.zeros(d), np.zeros(d)

    def ask(self) -> Array:
        """Return candidates, [population, D], in mirrored pairs: the second half is the first reflected at the mean."""
        half = self.rng.standard_normal((self.population // 2, len(self.mean)))
        self.drawn = np.concatenate([half, -half])
        candidates: Array = self.mean + self.step * np.sqrt(self.variance) * self.drawn
        return candidates

    def tell(self, values: Sequence[float] | Array) -> None:
        best = self._better_of_pairs(np.asarray(values, dtype=np.float64))
        z = self.drawn[best]
        y = np.sqrt(self.variance) * z
        shift, direction = self.weights @ y, self.weights @ z
        self.mean = self.mean + self.step * shift
        self.generation += 1
        keep = self.step_memory
        self.step_path = (1 - keep) * self.step_path + np.sqrt(keep * (2 - keep) * self.effective) * direction
        length = float(np.linalg.norm(self.step_path))
        unbiased = length / np.sqrt(1 - (1 - keep) ** (2 * self.generation))
        # The tutorial's h_sigma: while the step size still grows fast, the path would make the variance grow, too.
        stalled = unbiased >= (1.4 + 2 / (len(self.mean) + 1)) * self.expected_length
        keep = self.memory
        self.path = (1 - keep) * self.path + (not stalled) * np.sqrt(keep * (2 - keep) * self.effective) * shift
        old = 1 - self.rank_one - self.rank_many + self.rank_one * stalled * keep * (2 - keep)
        self.variance = old * self.variance + self.rank_one * self.path**2 + self.rank_many * (self.weights @ (y * y))
        # At most by a factor of e in a generation, however far its candidates went.
        self.step *= float(np.exp(min(1.0, self.step_memory / self.damping * (length / self.expected_length - 1))))

    def _better_of_pairs(self, values: Array) -> npt.NDArray[np.int64]:
        """Return the better candidate of each mirrored pair, best first.

        Selecting both of a pair would cancel, and the step would shrink for no reason.
        """
        half = self.population // 2
        pairs = np.arange(half)
        better = np.where(values[:half] >= values[half:], pairs, pairs + half)
        return better[np.argsort(-values[better], kind="stable")]

    def state_dict(self) -> dict[str, Any]:
        arrays = {name: getattr(self, name).copy() for name in ("mean", "variance", "path", "step_path")}
        rng = json.dumps(self.rng.bit_generator.state)
        return {"arrays": arrays, "step": self.step, "generation": self.generation, "rng": rng}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, array in state["arrays"].items():
            setattr(self, name, np.array(array))
        self.step, self.generation = state["step"], state["generation"]
        self.rng.bit_generator.state = json.loads(state["rng"])
