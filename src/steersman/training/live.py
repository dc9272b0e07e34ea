"""Learning on a live cluster: a process beside the scheduler that watches its decisions and writes policy files.

It has watches of its own and never talks to the scheduler, which reads the policy file anew when it has changed. So
nothing that goes wrong here, and no gradient step however long, can delay a binding.
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

import steersman
from steersman.agents.configs import DQNConfig
from steersman.agents.registry import GRADIENT_ALGORITHMS
from steersman.agents.spec import sizes_of
from steersman.cluster.model import Node
from steersman.envs.watched import WatchedVectorEnv
from steersman.errors import InputError, MissingExtraError, SteersmanError
from steersman.features import View
from steersman.features import view as find_view
from steersman.kube.config import KubeConfig
from steersman.live.feed import Feed
from steersman.live.streaming import Stream
from steersman.live.transitions import Seen
from steersman.objectives import registry as objectives
from steersman.policies.policy_file import Card, open_policy, read_policy, write_policy
from steersman.training.network import fingerprint
from steersman.training.run import CHECKPOINT, METRICS, OPTIONS, POLICY, Learner, Limits, TrainingRun

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
"""How DQN learns here, whatever it learned with before: steps are small, for the policy is in use, and transitions are
few. Its discount and reward scale, which say what its values mean, stay."""
SAVE_EVERY = 4
"""Iterations between two policy files: 200 decisions."""
WAIT_SECONDS = 5.0
"""That decisions are gathered for at most before they are looked at."""
DECISIONS = 50
"""That are gathered if they come in time."""
WINDOW_BYTES = 64 << 20
"""Observations that are worked out at a time."""
ROOM = 2
"""Times as many nodes as there are at first may come."""
MIN_NODES = 64
NICENESS = 10

log = structlog.get_logger("learning")


@dataclass(frozen=True, slots=True)
class LivePlan:
    """What is learned, and from whom.

    Attributes:
        policy: the file to go on from.
        scheduler_name: whose decisions are watched.
        seed: of the draws among transitions.

    Raises:
        InputError: the file is no policy, or not one that can go on learning so.
    """

    policy: Path
    scheduler_name: str
    seed: int = 1

    def __post_init__(self) -> None:
        card, _ = read_policy(self.policy)
        if not open_policy(self.policy, card.name).is_network:
            problem = f"{card.algorithm!r} made it; learning goes on from policies of {', '.join(GRADIENT_ALGORITHMS)}"
            raise InputError(self.policy, "card", "algorithm", problem)
        try:
            objectives.resolve(card.objective)
        except SteersmanError as error:
            raise InputError(self.policy, "card", "objective", str(error)) from None

    @property
    def card(self) -> Card:
        """Of the file to go on from."""
        return read_policy(self.policy)[0]

    def options(self) -> dict[str, Any]:
        """The same as JSON: what a checkpoint belongs to."""
        return {
            "algorithm": "dqn",
            "protocol": PROTOCOL,
            "start": fingerprint(self.policy),
            "scheduler_name": self.scheduler_name,
            "config": LEARNING,
            "seed": self.seed,
        }


def begin(plan: LivePlan, folder: Path, nodes: tuple[Node, ...]) -> Path:
    """Prepare a folder to learn in, or to go on learning in; the policy file that is to be used, which will change.

    Raises:
        MissingExtraError: torch is not installed.
        UsageError: the objective means nothing on such nodes.
        SteersmanError: the folder is of another run, or cannot be written.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("learning on a live cluster", "train")
    objectives.check(objectives.resolve(plan.card.objective), "the cluster", nodes, None)
    policy, asked = folder / POLICY, folder / OPTIONS
    try:
        if _went_before(folder):
            if json.loads(asked.read_text()) != json.loads(json.dumps(plan.options())):
                raise SteersmanError(f"{folder}: goes on from another policy or watches another scheduler; see {asked}")
            return policy
        if folder.exists() and any(folder.iterdir()) and not asked.exists():
            raise SteersmanError(f"{folder}: holds something that is no run; a new folder is right")
        (folder / METRICS).unlink(missing_ok=True)  # of a run that ended before there was anything to go on from
    except OSError as error:
        raise SteersmanError(f"{folder}: cannot learn there: {error.strerror or error}") from None
    except ValueError as error:
        raise SteersmanError(f"{asked}: is no JSON, so this is no run: {error}") from None
    write_policy(policy, *read_policy(plan.policy))
    asked.write_text(json.dumps(plan.options()))
    return policy


def learn_beside(plan: LivePlan, folder: Path, config: KubeConfig) -> None:
    """Watch a scheduler and learn from its decisions, until this process is killed.

    Raises:
        SteersmanError: the cluster cannot be watched, or learning went wrong; the last good policy is kept.
    """
    import torch

    from steersman.agents.follower import Follower
    from steersman.agents.networks import build, export, load

    os.nice(NICENESS)
    torch.set_num_threads(1)
    card, arrays = read_policy(plan.policy)
    view = find_view(card.view)
    run = TrainingRun(
        folder, plan.options(), Limits(sys.maxsize, validate_every=SAVE_EVERY), resume=_went_before(folder)
    )
    feed = Feed(config, plan.scheduler_name)
    env = WatchedVectorEnv(
        decisions(feed, view), view, max(MIN_NODES, ROOM * feed.nodes), objectives.resolve(card.objective)
    )
    log.info("learning", scheduler=plan.scheduler_name, network=card.network, objective=card.objective)
    network = build(card.network, sizes_of(env.single_observation_space), card.hidden, 0.0, card.normalisation)
    load(network, arrays)
    settings = _settings(card)
    learner = Follower(env, network, settings, plan.seed)

    def save(path: Path) -> None:
        learned = msgspec.structs.replace(
            card,
            algorithm=learner.algorithm,
            protocol=PROTOCOL,
            settings=asdict(settings),
            steps=card.steps + learner.steps,
            scores=(),  # of what it was before
            made_by=f"steersman {steersman.__version__}",
        )
        write_policy(path, learned, export(network))

    run.train(cast(Learner, learner), None, save)


def _settings(card: Card) -> DQNConfig:
    """DQN's options: `LEARNING`, and those that say what the network's values mean if DQN made it."""
    names = {each.name for each in fields(DQNConfig)}
    settings: dict[str, Any] = dict(LEARNING)
    if card.algorithm == "dqn":
        settings = {name: value for name, value in card.settings.items() if name in names} | settings
    return DQNConfig(**settings)


def _went_before(folder: Path) -> bool:
    return all((folder / name).exists() for name in (CHECKPOINT, OPTIONS, POLICY))


def decisions(feed: Feed, view: View) -> Iterator[Seen]:
    """A scheduler's decisions as they come, for ever."""
    row = 4 * len(view.node) * max(feed.nodes, 1)
    stream = Stream(feed.scheduler_name, view, max(DECISIONS, WINDOW_BYTES // row))
    while True:
        yield from stream.read(feed.take(DECISIONS, WAIT_SECONDS))
