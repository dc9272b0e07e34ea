"""Algorithms by name: what the command line, tuning and training need to know of each.

An installed package adds an algorithm by an entry point of the group `steersman.algorithms` that leads to an
`AlgorithmSpec`; `--algorithm module:NAME` leads to one that is not installed. Classes of agents are imported when an
agent is made: torch takes seconds to import, and is an extra. For the same reason the module of a registration should
not import torch: the command line reads the registrations at every start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steersman.agents.configs import (
    ActorCriticConfig,
    DQNConfig,
    EpisodeEvolutionConfig,
    EvolutionConfig,
    ImitationConfig,
    PPOConfig,
)
from steersman.core.errors import UsageError
from steersman.core.extensions import Registry, import_object
from steersman.core.extras import missing_extra
from steersman.policies.networks import network_names

EVOLUTION = "evolution"
ON_WORKLOADS, IN_ENVIRONMENTS = "on workloads", "in environments"


@dataclass(frozen=True, slots=True)
class AlgorithmSpec:
    """A registered algorithm.

    Attributes:
        name: as `--algorithm` has it.
        config: the dataclass of its options, see `steersman.core.config.fields`; one of them is `candidates`, which
            `Agent` reads.
        implementation: `module:Class` of its `agents.base.Agent`.
        iterations: default number of iterations of a run.
        validate_every: default number of iterations between two validations.
        network: default network.
        networks: networks that it can train; empty: all.
        uses_teacher: whether it takes a rule to learn from (`teacher`), or a recording (`recording`).
        plays: `on workloads` or `in environments` if the name stands for one algorithm on each.
        help: text of `--help` after the name.
    """

    name: str
    config: type[Any]
    implementation: str
    iterations: int
    validate_every: int
    network: str = "mlp"
    networks: tuple[str, ...] = ()
    uses_teacher: bool = False
    plays: str = ""
    help: str = ""

    @property
    def label(self) -> str:
        """Return the name, with where it trains if that distinguishes it from another."""
        return f"{self.name} {self.plays}".rstrip()

    @property
    def supported_networks(self) -> tuple[str, ...]:
        """Return the names of the networks that it can train."""
        return self.networks or network_names()

    def load(self) -> Any:
        """Import the class of its agents.

        Raises:
            MissingExtraError: torch, or another package of an extra, is not installed.
            SteersmanError: it cannot be imported.
        """
        try:
            return import_object("algorithm", self.implementation)
        except UsageError as error:
            # Only an absent extra is explained; any other module that is missing is an error of the algorithm's own.
            raise missing_extra(f"training with {self.name}", error.__cause__) or error from None


BUILT_IN = (
    AlgorithmSpec(
        EVOLUTION,
        EvolutionConfig,
        "steersman.agents.evolution.simulations:Evolution",
        iterations=100,
        validate_every=10,
        network="linear",
        networks=("linear", "mlp"),
        plays=ON_WORKLOADS,
    ),
    AlgorithmSpec(
        EVOLUTION,
        EpisodeEvolutionConfig,
        "steersman.agents.evolution.episodes:EpisodeEvolution",
        iterations=100,
        validate_every=10,
        network="linear",
        networks=("linear", "mlp", "deepsets"),
        plays=IN_ENVIRONMENTS,
    ),
    AlgorithmSpec("dqn", DQNConfig, "steersman.agents.dqn:DQN", 4000, 200, uses_teacher=True),
    AlgorithmSpec("actor-critic", ActorCriticConfig, "steersman.agents.actor_critic:ActorCritic", 1000, 50),
    AlgorithmSpec("ppo", PPOConfig, "steersman.agents.ppo:PPO", 200, 10),
    AlgorithmSpec(
        "imitation",
        ImitationConfig,
        "steersman.agents.imitation:Imitation",
        iterations=1000,
        validate_every=50,
        uses_teacher=True,
        help="of a rule",
    ),
)
GRADIENT_ALGORITHMS = tuple(spec.name for spec in BUILT_IN if spec.name != EVOLUTION)


ALGORITHMS: Registry[AlgorithmSpec] = Registry(
    "algorithm", "steersman.algorithms", AlgorithmSpec, {spec.name: spec for spec in BUILT_IN}, ["module:NAME"]
)


def algorithm_specs() -> tuple[AlgorithmSpec, ...]:
    """Return the algorithms that can be used: the default first, those of installed packages last."""
    return (*BUILT_IN, *(spec for spec in ALGORITHMS.usable() if spec not in BUILT_IN))


def find_algorithm(name: str, plays: str = IN_ENVIRONMENTS) -> AlgorithmSpec:
    """Return the algorithm of a name or of `module:NAME`.

    Args:
        plays: which of two algorithms of that name.

    Raises:
        UsageError: there is none.
        SteersmanError: it cannot be imported.
    """
    named = (spec for spec in BUILT_IN if spec.name == name and spec.plays == plays)
    return next(named, None) or ALGORITHMS.find(name)
