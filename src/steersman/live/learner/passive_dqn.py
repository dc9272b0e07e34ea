"""DQN that never acts: it learns from a scheduler's decisions, which may follow an earlier state of its own network.

Q-learning is off-policy: its target takes the best next action, whoever chose the previous one. So a policy can learn
on a cluster that allows no experiments. The price of not exploring is that actions which the scheduler never takes are
not learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from steersman.agents.base import Metrics
from steersman.agents.buffers import ReplayBuffer
from steersman.agents.configs import DQNConfig
from steersman.agents.dqn import DQN
from steersman.agents.networks.score_networks import ScoreNetwork
from steersman.live.learner.environment import PassiveLiveEnv

DECISIONS = 50  # decisions per iteration


class PassiveDQN(DQN):
    """DQN on a cluster that another process schedules.

    A checkpoint holds no transitions; a resumed run takes no gradient step until there is a batch again.

    Args:
        env: the cluster.
        network: network to train, in place.
        config: options of DQN; those of exploration have no effect.
        seed: seed of the draws from the replay buffer.
    """

    env: PassiveLiveEnv

    def __init__(self, env: PassiveLiveEnv, network: ScoreNetwork, config: DQNConfig, seed: int) -> None:
        # With these options every action is the teacher's, which here is the scheduler's binding.
        passive = replace(config, use_heuristic=True, initial_epsilon=0.0, minimum_epsilon=0.0)
        super().__init__(env, network, passive, seed, teacher=env.action)
        self.ranges.keep_all()

    def _iterate(self) -> Metrics:
        for _ in range(DECISIONS):
            self._remember(self.step(self.teacher_actions()))
            self.steps_since_update += 1
        return self._learn()

    def state_dict(self) -> dict[str, Any]:
        """Return the state without the replay buffer, see `Agent`."""
        replay, self.replay = self.replay, ReplayBuffer(self.config.replay_size)
        try:
            return super().state_dict()
        finally:
            self.replay = replay

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state, see `Agent`; the observation is the cluster's present one."""
        super().load_state_dict(state)
        self.observe(self.env.observed)
