"""DQN: learn the value of each placement, and take the best.

Q(s, n) is the discounted sum of rewards if the pod goes to node n. It obeys Q(s, n) = r + gamma max Q(s', .), and a
network learns it by moving towards the right-hand side (Mnih et al., "Human-level control through deep reinforcement
learning", Nature 2015). Four things make that work:

- Transitions are stored and drawn at random (replay), since consecutive ones are correlated.
- The right-hand side is computed by an older copy of the network (the target network), which keeps it from drifting.
- The maximum is chosen by the network and evaluated by the target network (van Hasselt et al., "Deep Reinforcement
  Learning with Double Q-learning", AAAI 2016), which removes the bias towards overestimated values.
- Large errors count linearly (Huber loss), and gradients are clipped.

Features that never varied during training are ignored afterwards (`agents.networks.score_networks`), so that the policy
can be used elsewhere.

Exploration is epsilon-greedy: with probability epsilon a random feasible node, and epsilon decays exponentially with
gradient steps or linearly with decisions. With `use_heuristic` half of these actions are the heuristic's instead. The
network's scores are the values themselves; no softmax is applied.
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

from steersman.agents.base import Adam, Agent, Metrics, Step, Teacher, random_rows
from steersman.agents.buffers import Recording, ReplayBuffer, flatten, unflatten
from steersman.agents.configs import DQNConfig
from steersman.agents.networks.score_networks import FeatureRanges, ScoreNetwork
from steersman.agents.networks.tensors import Actions, Arrays, Tensors, as_tensors, pack, unpack
from steersman.core.errors import UsageError

HEURISTIC_SHARE = 0.5  # share of exploratory actions


class DQN(Agent):
    """Double DQN. `recording`: transitions that fill the replay buffer at the start. The rest is as for any agent.

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
        # Before `super().__init__`, which observes and asks the teacher already.
        self.asks_teacher = config.use_heuristic or config.prefill > 0
        if self.asks_teacher and teacher is None:
            raise UsageError("--use-heuristic and --prefill need a heuristic, and this environment names none")
        super().__init__(env, network, config, seed, device, teacher)
        self.target_network = copy.deepcopy(self.network)
        self.optimiser = Adam(self.network.parameters(), lr=config.learning_rate)
        self.parts |= {"target": self.target_network, "optimiser": self.optimiser}
        self.replay = ReplayBuffer(config.replay_size)
        self.ranges = FeatureRanges(network.spec.sizes)
        self.epsilon = config.initial_epsilon
        self.updates = 0  # gradient steps so far
        self.steps_since_update = 0  # decisions since the last one
        if recording is not None:
            self.add_transitions(recording)

    def add_transitions(self, recording: Recording) -> None:
        """Put transitions of any policy into the replay buffer; they count as no steps."""
        for step in recording.steps(self.config.candidates, self.rng):
            self._remember(step)

    def _iterate(self) -> Metrics:
        # In the first iteration: a resumed run is past it, and does not fill the buffer again.
        if self.iterations == 1:
            while self.steps < self.config.prefill:
                self._remember(self.step(self.teacher_actions()))
        while self.steps_since_update < self.config.update_every:
            observation = self.sample.observation
            self._remember(self.step(self._explore(self.scores(observation), observation["mask"] > 0)))
            self.steps_since_update += self.env.num_envs
        return self._learn()

    def _learn(self) -> Metrics:
        # Updates that are due: with E environments a step adds E decisions, which may be several updates or none.
        losses, values = [], []
        while self.steps_since_update >= self.config.update_every:
            # Counted down even while nothing is learned yet, or the missed updates would all follow at once.
            self.steps_since_update -= self.config.update_every
            if len(self.replay) >= self.config.batch_size and self.steps >= self.config.learning_starts:
                for _ in range(self.config.gradient_steps):
                    loss, value = self._update()
                    losses.append(loss)
                    values.append(value)
        metrics: Metrics = {"epsilon": self.epsilon, "replay": float(len(self.replay))}
        if losses:
            metrics |= {"loss": float(np.mean(losses)), "q_value": float(np.mean(values))}
        return metrics

    def _explore(self, scores: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_]) -> Actions:
        if self.config.exploration == "linear":
            passed = min(self.steps / self.config.exploration_decisions, 1.0)
            self.epsilon = (1.0 - passed) * self.config.initial_epsilon + passed * self.config.minimum_epsilon
        explores = self.rng.random(len(scores)) < self.epsilon
        # Drawn for all environments, exploring or not, so the stream of random numbers does not depend on who explores.
        elsewhere = random_rows(mask, self.rng)
        if self.config.use_heuristic:
            from_teacher = self.rng.random(len(scores)) < HEURISTIC_SHARE
            elsewhere = np.where(from_teacher, self.teacher_actions(), elsewhere)
        return np.where(explores, elsewhere, scores.argmax(1))

    def _remember(self, step: Step) -> None:
        if not step.was_taken:
            return
        self.ranges.add(step.before)
        self.replay.add(
            flatten("before", step.before)
            | flatten("after", step.after)
            | {"row": step.rows, "reward": step.reward, "terminated": step.terminated}
        )

    def _update(self) -> tuple[float, float]:
        """Take one gradient step; return its loss, and the mean value of the transitions."""
        batch = self.replay.sample(self.config.batch_size, self.rng)
        td_target = self._td_target(batch)
        # After `_td_target`, which sets evaluation mode for the next values.
        self.network.train()
        before = as_tensors(unflatten("before", batch), self.device)
        row = torch.tensor(batch["row"], device=self.device).unsqueeze(1)
        if self.network.spec.normalisation != "batch":
            # Only the chosen row's score is needed, but batch normalisation needs all rows.
            before["mask"] = torch.zeros_like(before["mask"]).scatter(1, row, True)
        value = self.network(before).gather(1, row).squeeze(1)
        # smooth_l1_loss is the Huber loss with threshold 1, in units of the scaled reward.
        loss = self.learn(functional.smooth_l1_loss(value, td_target), self.optimiser, self.config.max_grad_norm)

        # Weights of constant features are moved into the bias after every step, since a gradient makes new ones.
        self.ranges.fold_constant_features(self.network)
        self.updates += 1
        # In the optimiser's groups, because its `state_dict` then keeps the decayed rate.
        for group in self.optimiser.param_groups:
            group["lr"] *= self.config.learning_rate_decay
        if self.config.exploration == "exponential":
            self.epsilon = max(self.config.minimum_epsilon, self.epsilon * self.config.epsilon_decay)
        if self.updates % self.config.target_update_every == 0:
            self._update_target_network()
        return loss, float(value.detach().mean())

    def _update_target_network(self) -> None:
        """Move the target network towards the network by `tau` (Polyak averaging); counts are copied."""
        # `state_dict` returns references: changing these tensors changes the target network.
        moved = self.target_network.state_dict()
        for name, value in self.network.state_dict().items():
            # Integers, such as counts of batches, cannot be interpolated.
            if self.config.tau < 1.0 and value.is_floating_point():
                moved[name].lerp_(value, self.config.tau)
            else:
                moved[name].copy_(value)

    def _td_target(self, batch: Arrays) -> Tensor:
        """Return [B] the TD target; with a discount of 0 the next observation is not evaluated."""
        reward = torch.tensor(batch["reward"] * self.config.reward_scale, dtype=torch.float32, device=self.device)
        if self.config.gamma == 0.0:
            return reward
        after = as_tensors(unflatten("after", batch), self.device)
        # As after a terminal step: without a feasible node there is no next value, and the argmax is meaningless.
        goes_on = torch.tensor(~batch["terminated"], device=self.device) & after["mask"].any(1)
        # Double DQN: y = r + gamma Q'(s', argmax_n Q(s', n)).
        return reward + self.config.gamma * torch.where(goes_on, self._next_value(after), 0.0)

    @torch.no_grad()
    def _next_value(self, observation: Tensors) -> Tensor:
        """Return [B] the target network's value of the network's best action (double DQN)."""
        self.network.eval()
        self.target_network.eval()
        best = self.network(observation).argmax(1, keepdim=True)
        value: Tensor = self.target_network(observation).gather(1, best).squeeze(1)
        return value

    def _more_state(self) -> dict[str, Any]:
        return {
            "numbers": [self.epsilon, self.updates, self.steps_since_update],
            "ranges": pack(self.ranges.arrays()),
            "replay": pack(self.replay.arrays()),
        }

    def _load_more_state(self, state: Mapping[str, Any]) -> None:
        self.epsilon, self.updates, self.steps_since_update = state["numbers"]
        self.ranges.restore(unpack(state["ranges"]))
        self.replay.restore(unpack(state["replay"]))
