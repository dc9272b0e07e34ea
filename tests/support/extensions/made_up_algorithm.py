"""An algorithm that is not steersman's, in one file: REINFORCE (Williams, 1992) on the reward of the next decision."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import VectorEnv

from steersman.agents.base import Agent, Metrics, Teacher
from steersman.agents.networks.score_networks import ScoreNetwork
from steersman.agents.networks.tensors import Actions, as_tensors, draw, log_probabilities
from steersman.agents.registry import AlgorithmSpec
from steersman.core.config.fields import AMOUNT, POSITIVE, FloatRange, Option, check_config

FORBIDDEN = 0.666


@dataclass(frozen=True, slots=True)
class Config:
    """Options of REINFORCE."""

    made_up_rate: Annotated[float, Option("Of gradient steps.", POSITIVE, FloatRange(1e-3, 1e-1, log=True))] = 0.01
    candidates: Annotated[int, Option("Nodes that are looked at while learning; 0: all.", AMOUNT)] = 0

    def __post_init__(self) -> None:
        check_config(self)


class Reinforce(Agent):
    """Makes decisions likelier that earned more than the mean of the environments."""

    algorithm = "reinforce"
    config: Config

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        network: ScoreNetwork,
        config: Config,
        seed: int,
        device: str | torch.device = "cpu",
        teacher: Teacher | None = None,
    ) -> None:
        super().__init__(env, network, config, seed, device, teacher)
        self.optimiser = torch.optim.SGD(self.network.parameters(), lr=config.made_up_rate)
        self.parts |= {"optimiser": self.optimiser}

    def _iterate(self) -> Metrics:
        if self.config.made_up_rate == FORBIDDEN:
            raise ValueError("a mistake of its own")
        observation = self.sample.observation
        step = self.step(self._explore(self.scores(observation), observation["mask"] > 0))
        advantage = torch.tensor(step.reward - step.reward.mean(), device=self.device)
        rows = torch.tensor(step.rows, device=self.device).unsqueeze(1)
        chosen = log_probabilities(self.network(as_tensors(step.before, self.device))).gather(1, rows).squeeze(1)
        return {"loss": self.learn(-(advantage * chosen).mean(), self.optimiser, 1.0)}

    def _explore(self, scores: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_]) -> Actions:
        return draw(scores, mask, self.rng)


REINFORCE = AlgorithmSpec("reinforce", Config, "made_up_algorithm:Reinforce", iterations=3, validate_every=1)
