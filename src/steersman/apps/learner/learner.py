"""Process beside the scheduler that learns from its decisions and writes policy files.

It has its own watches and does not communicate with the scheduler, which reloads the policy file after a change. So
neither an error nor a long gradient step can delay a binding.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, cast

import msgspec
import structlog

from steersman.agents.configs import DQNConfig
from steersman.agents.networks.spec import sizes_of
from steersman.agents.registry import GRADIENT_ALGORITHMS
from steersman.apps.learner.environment import PassiveLiveEnv
from steersman.apps.recorder.streaming import DecisionStream
from steersman.apps.recorder.transitions import ObservedDecision
from steersman.apps.recorder.watcher_thread import WatcherThread
from steersman.cluster.model import Node
from steersman.core.errors import InputError, MissingExtraError, SteersmanError
from steersman.kubernetes.config import KubeConfig
from steersman.objectives import registry as objectives
from steersman.policies.features import View
from steersman.policies.features import view as find_view
from steersman.policies.files.policy_file import Card, open_policy, read_policy, write_policy
from steersman.training.network import fingerprint
from steersman.training.run import CHECKPOINT, METRICS, OPTIONS, POLICY, Learner, TrainingLimits, TrainingRun
from steersman.version import __version__

PROTOCOL = "live"
LEARNING = {
    "learning_rate": 1e-4,
    "learning_rate_decay": 1.0,
    "batch_size": 200,
    "replay_size": 5_000,
    "update_every": 5,
    "candidates": 32,
    "use_heuristic": False,
    "prefill": 0,
}
"""Options of DQN on a live cluster; they override those of the policy's training. Steps are small because the policy is
in use and transitions are few. The discount and the reward scale define the meaning of the values, so they stay."""
SAVE_EVERY = 4
"""Iterations between two policy files: 200 decisions."""
WAIT_SECONDS = 5.0
"""Time after which a batch of decisions is processed even if it is not full."""
DECISIONS = 50
"""Size of a batch of decisions."""
WINDOW_BYTES = 64 << 20
"""Memory of the observations that are computed at a time, in bytes."""
NODE_HEADROOM = 2
"""Capacity of the observation as a multiple of the cluster's first number of nodes."""
MIN_NODES = 64
"""Smallest capacity of the observation in nodes."""
NICENESS = 10

log = structlog.get_logger("learning")


@dataclass(frozen=True, slots=True)
class LivePlan:
    """Plan of learning on a live cluster.

    Attributes:
        policy: policy file to start from.
        scheduler_name: name of the scheduler whose decisions are watched.
        seed: seed of the draws from the replay buffer.

    Raises:
        InputError: the file is no policy file, or its policy cannot be trained further by DQN.
    """

    policy: Path
    scheduler_name: str
    seed: int = 1

    def __post_init__(self) -> None:
        """Check the values."""
        card, _ = read_policy(self.policy)
        if not open_policy(self.policy, card.name).is_network:
            problem = f"is {card.algorithm!r}; learning on a cluster needs a policy of {', '.join(GRADIENT_ALGORITHMS)}"
            raise InputError(self.policy, "card", "algorithm", problem)
        try:
            objectives.resolve(card.objective)
        except SteersmanError as error:
            raise InputError(self.policy, "card", "objective", str(error)) from None

    @property
    def card(self) -> Card:
        """Card of the policy file to start from."""
        return read_policy(self.policy)[0]

    def options(self) -> dict[str, Any]:
        """Return the options as JSON values; a checkpoint records them to identify its run."""
        return {
            "algorithm": "dqn",
            "protocol": PROTOCOL,
            "start": fingerprint(self.policy),
            "scheduler_name": self.scheduler_name,
            "config": LEARNING,
            "seed": self.seed,
        }


def init_run(plan: LivePlan, folder: Path, nodes: tuple[Node, ...]) -> Path:
    """Prepare the folder of a new or resumed run, and return the policy file in it, which the run will overwrite.

    Args:
        plan: the run.
        folder: folder of the run's files.
        nodes: the cluster's nodes.

    Raises:
        MissingExtraError: torch is not installed.
        UsageError: the policy's objective is undefined on these nodes.
        SteersmanError: the folder belongs to another run, or cannot be written.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("learning on a live cluster", "train")
    objectives.check(objectives.resolve(plan.card.objective), "the cluster", nodes, None)
    policy, options = folder / POLICY, folder / OPTIONS
    try:
        if _has_checkpoint(folder):
            if json.loads(options.read_text()) != json.loads(json.dumps(plan.options())):
                raise SteersmanError(
                    f"{folder}: its run started from another policy or watches another scheduler; see {options}"
                )
            return policy
        if folder.exists() and any(folder.iterdir()) and not options.exists():
            raise SteersmanError(f"{folder}: holds files that are not of a run; name a new folder")
        (folder / METRICS).unlink(missing_ok=True)  # of a run that ended before its first checkpoint
    except OSError as error:
        raise SteersmanError(f"{folder}: cannot be used for learning: {error.strerror or error}") from None
    except ValueError as error:
        raise SteersmanError(f"{options}: is not valid JSON, so the folder is not of a run: {error}") from None
    write_policy(policy, *read_policy(plan.policy))
    options.write_text(json.dumps(plan.options()))
    return policy


def learn_beside(plan: LivePlan, folder: Path, config: KubeConfig) -> None:
    """Watch a scheduler and learn from its decisions, until this process is killed.

    Raises:
        SteersmanError: the cluster cannot be watched, or learning failed; the last policy file stays.
    """
    import torch

    from steersman.agents.networks.score_networks import build, export, load
    from steersman.apps.learner.passive_dqn import PassiveDQN

    os.nice(NICENESS)
    torch.set_num_threads(1)
    card, arrays = read_policy(plan.policy)
    view = find_view(card.view)
    run = TrainingRun(
        folder, plan.options(), TrainingLimits(sys.maxsize, validate_every=SAVE_EVERY), resume=_has_checkpoint(folder)
    )
    feed = WatcherThread(config, plan.scheduler_name)
    env = PassiveLiveEnv(
        decisions(feed, view), view, max(MIN_NODES, NODE_HEADROOM * feed.nodes), objectives.resolve(card.objective)
    )
    log.info("learning", scheduler=plan.scheduler_name, network=card.network, objective=card.objective)
    network = build(card.network, sizes_of(env.single_observation_space), card.hidden, 0.0, card.normalisation)
    load(network, arrays)
    settings = _settings(card)
    learner = PassiveDQN(env, network, settings, plan.seed)

    def save(path: Path) -> None:
        learned = msgspec.structs.replace(
            card,
            algorithm=learner.algorithm,
            protocol=PROTOCOL,
            settings=asdict(settings),
            steps=card.steps + learner.steps,
            scores=(),  # the recorded ones are of the policy before this training
            made_by=f"steersman {__version__}",
        )
        write_policy(path, learned, export(network))

    run.train(cast(Learner, learner), None, save)


def _settings(card: Card) -> DQNConfig:
    """Return DQN's options: `LEARNING` over those of the policy's training, if that was by DQN."""
    names = {field.name for field in fields(DQNConfig)}
    settings: dict[str, Any] = dict(LEARNING)
    if card.algorithm == "dqn":
        settings = {name: value for name, value in card.settings.items() if name in names} | settings
    return DQNConfig(**settings)


def _has_checkpoint(folder: Path) -> bool:
    return all((folder / name).exists() for name in (CHECKPOINT, OPTIONS, POLICY))


def decisions(feed: WatcherThread, view: View) -> Iterator[ObservedDecision]:
    """Yield a scheduler's decisions as they are observed, without end."""
    observation_bytes = 4 * len(view.node) * max(feed.nodes, 1)
    stream = DecisionStream(feed.scheduler_name, view, max(DECISIONS, WINDOW_BYTES // observation_bytes))
    while True:
        yield from stream.read(feed.take(DECISIONS, WAIT_SECONDS))
