"""DQN that never plays: it learns from what a scheduler does, which may follow an earlier state of its own network.

Q-learning is off-policy: the right-hand side of its equation takes the best action of what follows, whoever chose the
one before. So a policy can learn on a cluster that must not be experimented with. What nobody tries it does not learn
about; that is the price of not exploring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from steersman.agents.configs import DQNConfig
from steersman.agents.dqn import DQN
from steersman.agents.metrics import Metrics
from steersman.agents.networks import ScoreNetwork
from steersman.agents.replay import Replay
from steersman.envs.watched import WatchedVectorEnv

DECISIONS = 50
"""That an iteration waits for."""


class Follower(DQN):
    """DQN on a cluster that somebody else schedules.

    Nothing is folded away (`agents.ranges`): what did not vary here yet may have varied where the network learned
    before. A checkpoint has no transitions; a run that goes on waits until there are enough again.

    Args:
        env: the cluster.
        network: what is learned on; trained in place.
        config: of DQN; its exploration is of no effect.
        seed: of the draws from the replay.
    """

    env: WatchedVectorEnv

    def __init__(self, env: WatchedVectorEnv, network: ScoreNetwork, config: DQNConfig, seed: int) -> None:
        never = replace(config, use_heuristic=True, initial_epsilon=0.0, minimum_epsilon=0.0)
        super().__init__(env, network, never, seed, teacher=env.action)
        unbounded = np.full(network.spec.sizes.joint, np.inf, dtype=np.float32)
        self.ranges.restore({"low": -unbounded, "high": unbounded})

    def _iterate(self) -> Metrics:
        for _ in range(DECISIONS):
            self._remember(self.step(self.advice()))
            self.owed += 1
        return self._learn()

    def state_dict(self) -> dict[str, Any]:
        """See `Agent`."""
        kept, self.replay = self.replay, Replay(self.config.replay_size)
        try:
            return super().state_dict()
        finally:
            self.replay = kept

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Agent`; what is seen is what is there now."""
        super().load_state_dict(state)
        self.seen = self._look(self.env.observed)
