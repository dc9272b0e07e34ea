"""PPO: actor-critic that learns from each decision several times, with bounded updates.

A rollout is used for several epochs in minibatches. As the policy moves away from the one that acted, each decision is
weighted by ratio = pi(n | s) / pi_old(n | s), which is clipped so that nothing is gained by moving further than
`clip_range` (Schulman et al., "Proximal Policy Optimization Algorithms", 2017):

    mean of  min(ratio A, clamp(ratio, 1 - clip_range, 1 + clip_range) A)

Further details, after Andrychowicz et al. ("What Matters for On-Policy Deep Actor-Critic Methods?", ICLR 2021) and
Huang et al. ("The 37 Implementation Details of Proximal Policy Optimization", 2022): advantages are normalised within
each minibatch; scores start nearly equal; masked nodes have probability zero in the ratio and in the entropy alike; the
critic's loss is not clipped. The policy acts without dropout and with running statistics; so if a network has either,
the old probabilities are recomputed by a copy of the old network under the same dropout and the same minibatch's
statistics (cf. Hausknecht and Wagener, "Consistent Dropout for Policy Gradient Reinforcement Learning", 2022), or the
ratio would not start at 1.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steersman.agents.actor_critic import CHUNK, ActorCritic
from steersman.agents.base import Metrics, keeping_randomness
from steersman.agents.buffers import Rollout
from steersman.agents.configs import PPOConfig
from steersman.agents.networks.score_networks import ScoreNetwork
from steersman.agents.networks.tensors import Tensors, as_tensors, entropy, log_probabilities


class PPO(ActorCritic):
    """PPO over the feasible nodes: acts and judges as `ActorCritic`, and learns several times from each rollout."""

    algorithm = "ppo"
    config: PPOConfig  # type: ignore[assignment]

    def _update(self, played: Rollout) -> Metrics:
        # In training mode the network computes another function than in evaluation mode.
        is_noisy = self.network.spec.dropout > 0.0 or self.network.spec.normalisation == "batch"
        old = copy.deepcopy(self.network) if is_noisy else None
        # Exactly one of the two: fixed log probabilities, or a copy of the old network that recomputes them.
        fixed = None if old else self._played_log_probability(played)
        # Once per rollout, not per minibatch: all its targets are in the same units.
        self.critic.update_return_statistics(torch.tensor(played.targets, device=self.device))
        seen: list[dict[str, float]] = []
        for _ in range(self.config.epochs):
            order = self.rng.permutation(len(played.rows))
            for start in range(0, len(order), self.config.batch_size):
                index = order[start : start + self.config.batch_size]
                seen.append(self._minibatch(played, index, old, fixed))
            # As in CleanRL: the last minibatch's estimate decides, between epochs.
            if 0.0 < self.config.target_kl < seen[-1]["approx_kl"]:
                break
        return {name: float(np.mean([one[name] for one in seen])) for name in seen[0]}

    def _minibatch(
        self, played: Rollout, index: Any, old: ScoreNetwork | None, fixed: Tensor | None
    ) -> dict[str, float]:
        """Take one gradient step of the actor and of the critic."""
        self.network.train()
        self.critic.train()
        observation = as_tensors({name: array[index] for name, array in played.observation.items()}, self.device)
        row = torch.tensor(played.rows[index], device=self.device).unsqueeze(1)
        advantage = torch.tensor(played.advantages[index], device=self.device)
        # Within the minibatch; correction=0, so that a single decision gives 0 instead of NaN.
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)

        before = (
            # Before the new network's pass: both then use the same random numbers for dropout.
            fixed[torch.from_numpy(index).to(self.device)] if fixed is not None else self._again(old, observation, row)
        )
        log_probability = log_probabilities(self.network(observation))
        log_ratio = log_probability.gather(1, row).squeeze(1) - before
        ratio, clip_range = log_ratio.exp(), self.config.clip_range
        clipped_ratio = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
        # L^CLIP of PPO (equation 7), negated: optimisers minimise.
        policy_loss = -torch.minimum(ratio * advantage, clipped_ratio * advantage).mean()
        mean_entropy = entropy(log_probability, observation["mask"]).mean()
        loss = policy_loss - self.config.ent_coef * mean_entropy
        self.learn(loss, self.actor_optimiser, self.config.max_grad_norm)

        value_loss = self._learn_values(observation, torch.tensor(played.targets[index], device=self.device))
        # An estimate of KL(old, new) that is never negative and varies little (Schulman, "Approximating KL", 2020).
        approx_kl = (ratio - 1.0 - log_ratio).detach().mean()
        clip_fraction = ((ratio - 1.0).abs() > clip_range).float().mean()
        return {
            "policy_loss": float(policy_loss.detach()),
            "value_loss": value_loss,
            "entropy": float(mean_entropy.detach()),
            "approx_kl": float(approx_kl),
            "clip_fraction": float(clip_fraction),
        }

    @torch.no_grad()
    def _played_log_probability(self, played: Rollout) -> Tensor:
        """Return [B] log pi_old(n_t | s_t)."""
        self.network.eval()
        result = []
        for start in range(0, len(played.rows), CHUNK):
            part = slice(start, start + CHUNK)
            observation = as_tensors({name: array[part] for name, array in played.observation.items()}, self.device)
            row = torch.tensor(played.rows[part], device=self.device).unsqueeze(1)
            result.append(log_probabilities(self.network(observation)).gather(1, row).squeeze(1))
        return torch.cat(result)

    @torch.no_grad()
    def _again(self, old: ScoreNetwork | None, observation: Tensors, row: Tensor) -> Tensor:
        """Return [B] log pi_old(n_t | s_t) under the dropout and the statistics of the next training pass."""
        assert old is not None
        # Statistics of the minibatch, as in the pass that follows; the running ones that change belong to a copy.
        old.train()
        # Restores the random state, so that the next pass draws the same dropout.
        with keeping_randomness(self.device):
            return log_probabilities(old(observation)).gather(1, row).squeeze(1)
