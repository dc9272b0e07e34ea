"""Configurations of the algorithms: options with their defaults, help, valid values and search spaces.

Nothing here imports torch, Gymnasium or NumPy: the command line reads these classes at every start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from steersman.core.config.fields import (
    AMOUNT,
    COUNT,
    EVEN,
    POSITIVE,
    POSITIVE_SHARE,
    SHARE,
    FloatRange,
    Option,
    check_config,
    flag,
)
from steersman.core.errors import UsageError

LEARNING_RATES = FloatRange(1e-4, 1e-2, log=True)
BATCHES = (64, 128, 200, 400)
INTERVALS = (5, 10, 25, 50)

Gamma = Annotated[
    float,
    Option(
        "Discount of the reward of the next decision.",
        SHARE,
        (0.0, 0.5, 0.9, 0.97, 0.99, 1.0),
        shown_default="that of the objective: 0.99 for allocation and waiting-time, 0 for the others",
    ),
]
GaeLambda = Annotated[
    float,
    Option(
        "Lambda of the advantages; 1 sums rewards to the rollout's end, 0 trusts the critic at once.",
        SHARE,
        FloatRange(0.8, 1.0),
    ),
]
ActorRate = Annotated[float, Option("Of the actor's Adam.", POSITIVE, LEARNING_RATES)]
CriticRate = Annotated[float, Option("Of the critic's Adam.", POSITIVE, LEARNING_RATES)]
EntropyCoefficient = Annotated[float, Option("Weight of the entropy (nats).", AMOUNT, FloatRange(1e-4, 1e-1, log=True))]
UpdateEvery = Annotated[
    int, Option("Decisions for each gradient step; more environments do not change the ratio.", COUNT, INTERVALS)
]
BatchSize = Annotated[int, Option("Transitions in a gradient step.", COUNT, BATCHES)]
GradientNorm = Annotated[float, Option("Norm that the gradient is clipped to.", POSITIVE)]
GradientNorms = Annotated[float, Option("Norm that each gradient is clipped to.", POSITIVE)]
Candidates = Annotated[int, Option("Nodes in a sample while learning; 0: all.", AMOUNT)]


def _check_batch_size(config: DQNConfig | ImitationConfig) -> None:
    if config.batch_size > config.replay_size:
        raise UsageError(
            f"{flag('batch_size')} {config.batch_size} does not work with {flag('replay_size')} {config.replay_size}, "
            "which would never hold a batch; expected a replay buffer of at least a batch"
        )


class CheckedOptions:
    """Options of an algorithm, whose values are in range."""

    __slots__ = ()

    def __post_init__(self) -> None:
        check_config(self)


@dataclass(frozen=True, slots=True)
class DQNConfig(CheckedOptions):
    """Options of DQN."""

    gamma: Gamma = 0.99
    learning_rate: Annotated[float, Option("Of Adam, at first.", POSITIVE, LEARNING_RATES)] = 1e-3
    learning_rate_decay: Annotated[
        float,
        Option(
            "Factor of the learning rate after each gradient step: similar values can only be learned with small "
            "steps.",
            POSITIVE_SHARE,
        ),
    ] = 1.0
    batch_size: BatchSize = 200
    replay_size: Annotated[int, Option("Transitions in the replay buffer.", COUNT)] = 10_000
    update_every: UpdateEvery = 25
    gradient_steps: Annotated[
        int, Option("Gradient steps in place of each: more learn more from few decisions, and take longer.", COUNT)
    ] = 1
    target_update_every: Annotated[
        int, Option("Gradient steps between updates of the target network.", COUNT, (5, 10, 50, 200))
    ] = 10
    tau: Annotated[
        float,
        Option(
            "Share of the network that an update moves into the target network; 1 replaces it.",
            POSITIVE_SHARE,
            (0.01, 0.1, 1.0),
        ),
    ] = 1.0
    learning_starts: Annotated[int, Option("Decisions before the first gradient step.", AMOUNT)] = 0
    initial_epsilon: Annotated[float, Option("Initial share of exploratory actions.", SHARE)] = 1.0
    minimum_epsilon: Annotated[float, Option("Its minimum.", SHARE)] = 0.01
    exploration: Annotated[
        Literal["exponential", "linear"],
        Option(
            "How epsilon falls: by --epsilon-decay after each gradient step, or linearly over --exploration-decisions."
        ),
    ] = "exponential"
    epsilon_decay: Annotated[
        float,
        Option(
            "Factor of epsilon after each gradient step.",
            SHARE,
            FloatRange(0.98, 0.9995),
            only_with=("exploration", "exponential"),
        ),
    ] = 0.995
    exploration_decisions: Annotated[
        int,
        Option(
            "With linear exploration: decisions until epsilon is at its minimum.",
            COUNT,
            only_with=("exploration", "linear"),
        ),
    ] = 10_000
    use_heuristic: Annotated[bool, Option("Take half of the exploratory actions from the teacher.")] = False
    prefill: Annotated[int, Option("Decisions of the teacher in the replay buffer at the start.", AMOUNT)] = 0
    max_grad_norm: GradientNorm = 10.0
    reward_scale: Annotated[
        float,
        Option(
            "Rewards are multiplied by this for learning; errors above 1 count linearly.",
            POSITIVE,
            FloatRange(0.1, 10.0, log=True),
        ),
    ] = 1.0
    candidates: Candidates = 128

    def __post_init__(self) -> None:
        CheckedOptions.__post_init__(self)
        _check_batch_size(self)


@dataclass(frozen=True, slots=True)
class ActorCriticConfig(CheckedOptions):
    """Options of actor-critic."""

    gamma: Gamma = 0.99
    gae_lambda: GaeLambda = 0.95
    rollout: Annotated[
        int, Option("Decisions in each environment for each of the actor's gradient steps.", COUNT, (8, 16, 32, 64))
    ] = 16
    critic_steps: Annotated[
        int,
        Option(
            "The critic's gradient steps for each of the actor's: a critic that lags behind misleads the actor.",
            COUNT,
            (1, 2, 4, 8),
        ),
    ] = 8
    actor_learning_rate: ActorRate = 3e-3
    critic_learning_rate: CriticRate = 3e-3
    ent_coef: EntropyCoefficient = 0.01
    normalise_advantages: Annotated[
        bool, Option("To mean 0 and standard deviation 1 in each rollout, so that rewards may have any scale.")
    ] = True
    max_grad_norm: GradientNorms = 0.5
    candidates: Candidates = 128


@dataclass(frozen=True, slots=True)
class PPOConfig(CheckedOptions):
    """Options of PPO."""

    gamma: Gamma = 0.99
    gae_lambda: GaeLambda = 0.95
    rollout: Annotated[int, Option("Decisions in each environment for each iteration.", COUNT, (32, 64, 128))] = 64
    epochs: Annotated[int, Option("Passes over the rollout in an iteration.", COUNT, (2, 4, 8))] = 4
    batch_size: Annotated[int, Option("Decisions in a minibatch.", COUNT, (64, 128, 256, 512))] = 256
    clip_range: Annotated[
        float, Option("Range of the ratio of probabilities around 1.", POSITIVE, FloatRange(0.1, 0.3))
    ] = 0.2
    actor_learning_rate: ActorRate = 3e-3
    critic_learning_rate: CriticRate = 3e-3
    ent_coef: EntropyCoefficient = 0.01
    target_kl: Annotated[
        float, Option("An iteration stops early when the policies are this far apart (nats); 0: never.", AMOUNT)
    ] = 0.0
    max_grad_norm: GradientNorms = 0.5
    candidates: Candidates = 128


@dataclass(frozen=True, slots=True)
class ImitationConfig(CheckedOptions):
    """Options of imitation."""

    learning_rate: Annotated[float, Option("Of Adam.", POSITIVE, LEARNING_RATES)] = 1e-3
    batch_size: Annotated[int, Option("Decisions in a gradient step.", COUNT, BATCHES)] = 200
    replay_size: Annotated[int, Option("Decisions in the replay buffer.", COUNT)] = 10_000
    update_every: UpdateEvery = 25
    initial_teacher_share: Annotated[float, Option("Initial share of the teacher's decisions.", SHARE)] = 1.0
    minimum_teacher_share: Annotated[float, Option("Its minimum.", SHARE)] = 0.0
    teacher_decay: Annotated[
        float, Option("Factor of that share after each gradient step.", SHARE, FloatRange(0.9, 0.999))
    ] = 0.99
    max_grad_norm: GradientNorm = 10.0
    candidates: Annotated[
        int, Option("Nodes in a sample while learning, with the teacher's choice; 0: all.", AMOUNT)
    ] = 128

    def __post_init__(self) -> None:
        CheckedOptions.__post_init__(self)
        _check_batch_size(self)


@dataclass(frozen=True, slots=True)
class EpisodeEvolutionConfig(CheckedOptions):
    """Options of evolution in environments."""

    population: Annotated[int, Option("Candidates per generation, in mirrored pairs.", EVEN, (8, 16, 32))] = 16
    episodes: Annotated[int, Option("Episodes per generation, the same for each candidate.", COUNT, (2, 4, 8))] = 4
    step: Annotated[
        float, Option("The first standard deviation of weights.", POSITIVE, FloatRange(0.05, 1.0, log=True))
    ] = 0.3
    memory: Annotated[float, Option("Decay of the averaged mean per generation.", SHARE, FloatRange(0.5, 0.98))] = 0.9


@dataclass(frozen=True, slots=True)
class EvolutionConfig(CheckedOptions):
    """Options of evolution on workloads."""

    population: Annotated[int, Option("Candidates per generation, in mirrored pairs.", EVEN, (10, 20, 30, 40))] = 20
    episodes: Annotated[int, Option("Workloads per generation, in rotation.", COUNT, (1, 2, 3, 4))] = 3
    step: Annotated[
        float,
        Option("The first standard deviation, in points of FGD's score.", POSITIVE, FloatRange(0.01, 0.3, log=True)),
    ] = 0.06
    loss_weight: Annotated[
        float, Option("How much more a loss against the reference counts than a gain.", search=FloatRange(0.0, 1.0))
    ] = 0.5
    reference: str = "fgd"  # the policy that gains are measured against
    planned_weight: Annotated[
        float, Option("Initial weight of planned losses of devices, in points per GPU.", search=FloatRange(0.0, 100.0))
    ] = 50.0
    memory: Annotated[float, Option("Decay of the averaged mean per generation.")] = 0.97
    network: Literal["linear", "mlp"] = "linear"  # `linear`, or `mlp`: a linear policy plus a network of ReLU layers
    hidden: str = "16"  # widths of these layers, separated by commas

    def __post_init__(self) -> None:
        CheckedOptions.__post_init__(self)
        if not re.fullmatch(r"[1-9][0-9]{0,3}(,[1-9][0-9]{0,3})*", self.hidden):
            raise UsageError(f"hidden {self.hidden!r}: expected widths of layers, such as 16 or 32,16")

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the widths of the network's hidden layers, none for `linear`."""
        return tuple(map(int, self.hidden.split(","))) if self.network == "mlp" else ()


LIVE_DEFAULTS: dict[str, dict[str, int | float]] = {
    "dqn": {
        "reward_scale": 10.0,
        "batch_size": 64,
        "update_every": 1,
        "gradient_steps": 4,
        "epsilon_decay": 0.9987,
        "candidates": 64,
    },
    "actor-critic": {},
    "ppo": {},
}
"""The algorithms that can learn on a live cluster, with the defaults of an untrained network there that differ: it has
about a thousand decisions to learn from."""
