"""DQN: learn what each placement is worth, and take the best.

Q(s, n) is what the rewards from here on add up to if the pod goes to node n, later ones discounted. It obeys
Q(s, n) = r + discount max Q(s', .), and a network learns it by moving towards the right-hand side (Mnih et al.,
"Human-level control through deep reinforcement learning", Nature 2015). Four things make that work:

- Transitions are kept and drawn at random (replay), for consecutive ones resemble each other.
- The right-hand side comes from an older copy of the network (the target), or it would chase itself.
- The maximum is taken by the network and judged by the target (van Hasselt et al., "Deep Reinforcement Learning with
  Double Q-learning", AAAI 2016), or errors that happen to be high would be believed.
- Large errors count linearly (Huber's loss), and gradients are clipped.

What never varied while it learned does not count afterwards (`agents.ranges`), so that it can be used elsewhere.

Exploration is epsilon-greedy: with probability epsilon a random feasible node, and epsilon decays. With `use_heuristic`
half of these moves are the heuristic's instead: it knows better than chance where to look. The network's scores are the
values themselves; no softmax is applied to them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor
from torch.nn import functional

from steersman.agents.agent import Agent, Step, Teacher, random_rows
from steersman.agents.configs import DQNConfig
from steersman.agents.metrics import Metrics
from steersman.agents.networks import ScoreNetwork
from steersman.agents.observations import Actions, Arrays, Tensors, as_tensors, pack, unpack
from steersman.agents.optimiser import Adam
from steersman.agents.ranges import Ranges
from steersman.agents.recording import Recording
from steersman.agents.replay import Replay, flatten, unflatten
from steersman.errors import UsageError

HEURISTIC_SHARE = 0.5  # of the exploratory moves


class DQN(Agent):
    """Double DQN. `recording`: transitions that are in the replay from the start. The rest is as for any agent.

    Raises:
        UsageError: `use_heuristic` or `prefill` without a teacher.
    """

    algorithm = "dqn"
    config: DQNConfig

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        network: ScoreNetwork,
        config: DQNConfig,
        seed: int,
        device: str | torch.device = "cpu",
        teacher: Teacher | None = None,
        recording: Recording | None = None,
    ) -> None:
        self.listens = config.use_heuristic or config.prefill > 0
        if self.listens and teacher is None:
            raise UsageError("--use-heuristic and --prefill need a heuristic, and this environment names none")
        super().__init__(env, network, config, seed, device, teacher)
        self.target = copy.deepcopy(self.network)
        self.optimiser = Adam(self.network.parameters(), lr=config.learning_rate)
        self.parts |= {"target": self.target, "optimiser": self.optimiser}
        self.replay = Replay(config.replay_size)
        self.ranges = Ranges(network.spec.sizes)
        self.epsilon = config.initial_epsilon
        self.updates = 0  # gradient steps so far
        self.owed = 0  # decisions since the last one
        if recording is not None:
            for step in recording.steps(config.candidates, self.rng):
                self._remember(step)

    def _iterate(self) -> Metrics:
        if self.iterations == 1:
            while self.steps < self.config.prefill:
                self._remember(self.step(self.advice()))
        while self.owed < self.config.update_every:
            observation = self.seen.observation
            self._remember(self.step(self._explore(self.scores(observation), observation["mask"] > 0)))
            self.owed += self.env.num_envs
        return self._learn()

    def _learn(self) -> Metrics:
        """Take the gradient steps that are due."""
        losses, values = [], []
        while self.owed >= self.config.update_every:
            self.owed -= self.config.update_every
            if len(self.replay) >= self.config.batch_size:
                loss, value = self._update()
                losses.append(loss)
                values.append(value)
        metrics: Metrics = {"epsilon": self.epsilon, "replay": float(len(self.replay))}
        if losses:
            metrics |= {"loss": float(np.mean(losses)), "q_value": float(np.mean(values))}
        return metrics

    def _explore(self, scores: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_]) -> Actions:
        explores = self.rng.random(len(scores)) < self.epsilon
        elsewhere = random_rows(mask, self.rng)
        if self.config.use_heuristic:
            listens = self.rng.random(len(scores)) < HEURISTIC_SHARE
            elsewhere = np.where(listens, self.advice(), elsewhere)
        return np.where(explores, elsewhere, scores.argmax(1))

    def _remember(self, step: Step) -> None:
        self.ranges.add(step.before)
        self.replay.add(
            flatten("before", step.before)
            | flatten("after", step.after)
            | {"row": step.rows, "reward": step.reward, "terminated": step.terminated}
        )

    def _update(self) -> tuple[float, float]:
        """One gradient step; its loss, and the mean value of the transitions."""
        batch = self.replay.sample(self.config.batch_size, self.rng)
        wanted = self._wanted(batch)
        self.network.train()
        before = as_tensors(unflatten("before", batch), self.device)
        row = torch.tensor(batch["row"], device=self.device).unsqueeze(1)
        if self.network.spec.normalisation != "batch":
            # Only the chosen row is judged, so only its score is computed; a batch's statistics need them all.
            before["mask"] = torch.zeros_like(before["mask"]).scatter(1, row, True)
        value = self.network(before).gather(1, row).squeeze(1)
        loss = self.learn(functional.smooth_l1_loss(value, wanted), self.optimiser, self.config.gradient_norm)

        self.ranges.fold(self.network)
        self.updates += 1
        for group in self.optimiser.param_groups:
            group["lr"] *= self.config.learning_rate_decay
        self.epsilon = max(self.config.minimum_epsilon, self.epsilon * self.config.epsilon_decay)
        if self.updates % self.config.target_update_every == 0:
            self.target.load_state_dict(self.network.state_dict())
        return loss, float(value.detach().mean())

    def _wanted(self, batch: Arrays) -> Tensor:
        """[B] the right-hand side; with a discount of 0, what follows need not be looked at."""
        wanted = torch.tensor(batch["reward"] * self.config.reward_scale, dtype=torch.float32, device=self.device)
        if self.config.discount == 0.0:
            return wanted
        after = as_tensors(unflatten("after", batch), self.device)
        goes_on = torch.tensor(~batch["terminated"], device=self.device) & after["mask"].any(1)
        return wanted + self.config.discount * torch.where(goes_on, self._value(after), 0.0)

    @torch.no_grad()
    def _value(self, observation: Tensors) -> Tensor:
        """[B] the target's value of the network's best choice."""
        self.network.eval()
        self.target.eval()
        best = self.network(observation).argmax(1, keepdim=True)
        value: Tensor = self.target(observation).gather(1, best).squeeze(1)
        return value

    def _more_state(self) -> dict[str, Any]:
        return {
            "numbers": [self.epsilon, self.updates, self.owed],
            "ranges": pack(self.ranges.arrays()),
            "replay": pack(self.replay.arrays()),
        }

    def _load_more_state(self, state: Mapping[str, Any]) -> None:
        self.epsilon, self.updates, self.owed = state["numbers"]
        self.ranges.restore(unpack(state["ranges"]))
        self.replay.restore(unpack(state["replay"]))
