"""Algorithms by name, imported when one is asked for: torch takes seconds to import, and is an extra."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from steersman.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from steersman.agents.agent import Agent

GRADIENT_ALGORITHMS = {
    "dqn": ("dqn", "DQN"),
    "actor-critic": ("actor_critic", "ActorCritic"),
    "ppo": ("ppo", "PPO"),
    "imitation": ("imitation", "Imitation"),
}
"""Name to the module in this package and its class; each module also has a `Config`. All learn with all networks."""


def gradient_algorithm(name: str) -> tuple[type[Agent], type[Any]]:
    """The agent and the options of an algorithm.

    Raises:
        UsageError: there is no such algorithm.
        MissingExtraError: torch is not installed.
    """
    if name not in GRADIENT_ALGORITHMS:
        raise UsageError(f"unknown algorithm {name!r}; known are {', '.join(GRADIENT_ALGORITHMS)}")
    module, agent = GRADIENT_ALGORITHMS[name]
    try:
        found = importlib.import_module(f"steersman.agents.{module}")
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "gymnasium"):
            raise
        raise MissingExtraError(f"training with {name}", "train") from error
    return getattr(found, agent), found.Config
