"""Actor-critic: increase the probability of placements that turned out better than expected.

The actor is a policy pi(n | s), the softmax over the scores of the feasible nodes. The critic V(s) estimates the
return. After a few decisions in each environment, the actor ascends the policy gradient (Williams, "Simple statistical
gradient-following algorithms", 1992; Mnih et al., "Asynchronous methods for deep reinforcement learning", ICML 2016)

    mean of  A_t grad log pi(n_t | s_t) + ent_coef grad H(pi(. | s_t))

and the critic moves towards the returns. A is the advantage: how much better a decision was than expected. The entropy
H keeps the policy from settling before it has explored. The actor learns from each decision once. Features that never
varied during training are ignored afterwards (`agents.networks.score_networks`), so that the policy can be used
elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor
from torch.nn import functional

from steersman.agents.base import Adam, Agent, Metrics, Step, Teacher
from steersman.agents.buffers import Rollout, rollout
from steersman.agents.configs import ActorCriticConfig
from steersman.agents.networks.score_networks import FeatureRanges, ScoreNetwork, build_critic
from steersman.agents.networks.tensors import (
    Actions,
    Arrays,
    Tensors,
    as_tensors,
    draw,
    entropy,
    log_probabilities,
    pack,
    unpack,
)

CHUNK = 1024  # observations in one batch of the critic


class ActorCritic(Agent):
    """Advantage actor-critic; the critic is of the same kind as the network but has weights of its own."""

    algorithm = "actor-critic"
    config: ActorCriticConfig

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        network: ScoreNetwork,
        config: ActorCriticConfig,
        seed: int,
        device: str | torch.device = "cpu",
        teacher: Teacher | None = None,
    ) -> None:
        super().__init__(env, network, config, seed, device, teacher)
        self.critic = build_critic(network.spec, seed).to(self.device)
        self.actor_optimiser = Adam(self.network.parameters(), lr=config.actor_learning_rate)
        self.critic_optimiser = Adam(self.critic.parameters(), lr=config.critic_learning_rate)
        self.parts |= {
            "critic": self.critic,
            "actor_optimiser": self.actor_optimiser,
            "critic_optimiser": self.critic_optimiser,
        }
        self.ranges = FeatureRanges(network.spec.sizes)

    def _iterate(self) -> Metrics:
        metrics = self._update(self._play())
        self.ranges.fold_constant_features(self.network)
        return metrics

    def _play(self) -> Rollout:
        steps: list[Step] = []
        while len(steps) < self.config.rollout:
            observation = self.sample.observation
            self.ranges.add(observation)
            step = self.step(self._explore(self.scores(observation), observation["mask"] > 0))
            if step.was_taken:
                steps.append(step)
            # The live cluster took another node (`Step.was_taken`), so the next kept step does not start from `after`.
            elif steps:  # the next step kept does not follow on the last one
                # Bootstrap from V(s') at the break, as where an episode is truncated.
                steps[-1] = replace(steps[-1], truncated=~steps[-1].terminated)
        return rollout(steps, self._values, self.config.gamma, self.config.gae_lambda)

    def _explore(self, scores: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_]) -> Actions:
        return draw(scores, mask, self.rng)

    def _values(self, observation: Arrays) -> npt.NDArray[np.float32]:
        """Return [B] the critic's values in evaluation mode."""
        self.critic.eval()
        result = []
        with torch.no_grad():
            # In chunks, which bounds the memory that a large rollout takes on the device.
            for start in range(0, len(observation["mask"]), CHUNK):
                part = {name: array[start : start + CHUNK] for name, array in observation.items()}
                result.append(self.critic(as_tensors(part, self.device)).cpu().numpy())
        return np.concatenate(result)

    def _update(self, played: Rollout) -> Metrics:
        self.network.train()
        self.critic.train()
        observation = as_tensors(played.observation, self.device)
        row = torch.tensor(played.rows, device=self.device).unsqueeze(1)
        advantage = torch.tensor(played.advantages, device=self.device)
        if self.config.normalise_advantages:
            # correction=0: a rollout of a single decision has an advantage of 0 instead of NaN.
            advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)

        log_probability = log_probabilities(self.network(observation))
        mean_entropy = entropy(log_probability, observation["mask"]).mean()
        policy_loss = -(advantage * log_probability.gather(1, row).squeeze(1)).mean()
        loss = policy_loss - self.config.ent_coef * mean_entropy
        self.learn(loss, self.actor_optimiser, self.config.max_grad_norm)

        # A_t + V(s_t), the lambda-return that the critic regresses to.
        target = torch.tensor(played.targets, device=self.device)
        # Pop-Art before the critic's steps: the head is rescaled so that its values stay the same in the new units.
        self.critic.update_return_statistics(target)
        value_losses = [self._learn_values(observation, target) for _ in range(self.config.critic_steps)]
        return {
            "policy_loss": float(policy_loss.detach()),
            "value_loss": float(np.mean(value_losses)),
            "entropy": float(mean_entropy.detach()),
        }

    def _learn_values(self, observation: Tensors, target: Tensor) -> float:
        """Take one gradient step of the critic towards target [B]; return its error in units of the values' spread."""
        # Both sides in units of the returns' deviation, so that the loss does not grow with the scale of rewards.
        loss = functional.mse_loss(self.critic(observation) / self.critic.spread, target / self.critic.spread)
        return self.learn(loss, self.critic_optimiser, self.config.max_grad_norm)

    def _more_state(self) -> dict[str, Any]:
        return {"ranges": pack(self.ranges.arrays())}

    def _load_more_state(self, state: Mapping[str, Any]) -> None:
        self.ranges.restore(unpack(state["ranges"]))
