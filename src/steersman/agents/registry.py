"""Algorithms by name, imported when one is asked for: torch takes seconds to import, and is an extra."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from steersman.agents.configs import ActorCriticConfig, DQNConfig, ImitationConfig, PPOConfig
from steersman.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from steersman.agents.agent import Agent

GRADIENT_ALGORITHMS = {
    "dqn": ("dqn", "DQN", DQNConfig),
    "actor-critic": ("actor_critic", "ActorCritic", ActorCriticConfig),
    "ppo": ("ppo", "PPO", PPOConfig),
    "imitation": ("imitation", "Imitation", ImitationConfig),
}
"""Name to the module in this package its class and the class of its options. All learn with all networks."""


def gradient_algorithm(name: str) -> tuple[type[Agent], type[Any]]:
    """The agent and the options of an algorithm.

    Raises:
        UsageError: there is no such algorithm.
        MissingExtraError: torch is not installed.
    """
    if name not in GRADIENT_ALGORITHMS:
        raise UsageError(f"unknown algorithm {name!r}; known are {', '.join(GRADIENT_ALGORITHMS)}")
    module, agent, config = GRADIENT_ALGORITHMS[name]
    try:
        found = importlib.import_module(f"steersman.agents.{module}")
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "gymnasium"):
            raise
        raise MissingExtraError(f"training with {name}", "train") from error
    return getattr(found, agent), config
