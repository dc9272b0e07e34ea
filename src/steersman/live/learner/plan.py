"""Plan of learning on a live cluster: the algorithm and its options, the network, the objective; the run's folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steersman.agents.configs import LIVE_DEFAULTS
from steersman.agents.networks.spec import FeatureCounts, sizes_of
from steersman.agents.registry import AlgorithmSpec, find_algorithm
from steersman.cluster.model import Node
from steersman.core.atomic_files import naming_in_errors, set_aside
from steersman.core.config.fields import make_config
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.core.extras import require_extra
from steersman.core.folder_lock import LOCK, FolderLock, lock_folder
from steersman.objectives import registry as objectives
from steersman.objectives import telemetry
from steersman.orders.registry import PolicyOrder
from steersman.policies.features import CLUSTER, GPU, TELEMETRY, View
from steersman.policies.features import view as find_view
from steersman.policies.kinds import observing_policy
from steersman.policies.policy_file import SUFFIX, Card, open_policy, read_policy, write_policy
from steersman.training.network import NetworkPlan
from steersman.training.run import (
    CHECKPOINT,
    METRICS,
    OPTIONS,
    POLICY,
    VALIDATION,
    TrainingLimits,
    TrainingRun,
    read_identity,
    write_options,
)
from steersman.version import __version__

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

    from steersman.agents.base import Agent, Teacher

PROTOCOL = "live"
OBJECTIVE = "balance"
NETWORK, HIDDEN, NORMALISATION = "mlp", (64, 64), "none"
DEFAULTS_FINE_TUNING: dict[str, dict[str, Any]] = {
    "dqn": {
        "learning_rate": 1e-4,
        "learning_rate_decay": 1.0,
        "replay_size": 5_000,
        "update_every": 5,
        "candidates": 32,
        "initial_epsilon": 0.0,
        "minimum_epsilon": 0.0,
        "use_heuristic": False,
        "prefill": 0,
    }
}
"""Default options by algorithm for a policy file to start from; they override those of its training. Learning rates are
low, and there is no exploration. Discount and reward scale define what the network's values mean, so they stay."""
NODE_HEADROOM = 2  # capacity of the observation as a multiple of the cluster's first number of nodes
MIN_NODES = 64  # smallest capacity of the observation in nodes
MAX_NODES = "max_nodes"


@dataclass(frozen=True, slots=True)
class LivePlan:
    """Plan of learning on a live cluster."""

    scheduler_name: str  # name of the scheduler whose pods are placed
    algorithm: str  # one of `LIVE_DEFAULTS`
    config: Any  # options of the algorithm
    network: NetworkPlan  # the network; its `start` is the policy file to start from, None: from nothing
    objective: str  # what is rewarded, see `objectives.registry`
    view: str  # name of the observed features
    seed: int = 1  # seed of the first weights, exploration and the draws from the replay buffer

    @property
    def explores(self) -> bool:
        """Whether the agent takes actions that it does not believe to be the best."""
        if self.algorithm != "dqn":
            return True
        # A minimum above the initial epsilon is reached, too.
        return bool(self.config.initial_epsilon or self.config.minimum_epsilon or self.config.prefill)

    @property
    def asks_fallback(self) -> bool:
        """Whether the agent asks for the fallback's choice, which is the teacher that it learns or explores by."""
        return self.algorithm == "dqn" and (self.config.use_heuristic or self.config.prefill > 0)

    @property
    def learns_from_others(self) -> bool:
        """Whether the agent also learns from what other schedulers do: it is off-policy."""
        return self.algorithm == "dqn"

    @property
    def default_fallback(self) -> str:
        """Name of the fallback where --policy is not given: the rule that the objective is compared with."""
        return objectives.resolve(self.objective).objectives[0].reference

    @property
    def decisions(self) -> int:
        """Number of own decisions in an iteration of a deciding learner."""
        return int(self.config.update_every if self.algorithm == "dqn" else self.config.rollout)

    def with_settings(self, settings: Mapping[str, Any]) -> LivePlan:
        """Return the plan with some options of the algorithm by name. Raises UsageError: one is invalid."""
        config = make_config(type(self.config), asdict(self.config) | dict(settings), self.algorithm)
        return replace(self, config=config)

    def find_view(self) -> View:
        """Return the observed features."""
        return find_view(self.view)

    @property
    def task_options(self) -> dict[str, Any]:
        """Return the task by the names that files of options have; the protocol is that of simulations."""
        return {"objective": self.objective}

    def options(self) -> dict[str, Any]:
        """Return the plan as JSON; a checkpoint belongs to it."""
        return {
            "algorithm": self.algorithm,
            "protocol": PROTOCOL,
            "network": self.network.identity(),
            "objective": self.objective,
            "view": self.view,
            "scheduler_name": self.scheduler_name,
            "config": asdict(self.config),
            "seed": self.seed,
        }


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Options of an agent that learns on a cluster. `None`: that of the policy file it starts from, or the default."""

    algorithm: str | None = None  # by default that of the policy file if it can learn here, else `dqn`
    network: str | None = None  # by default that of the policy file, else `mlp`
    hidden: tuple[int, ...] | None = None  # widths of its layers
    dropout: float = 0.0  # share of hidden activations that learning zeroes
    normalisation: str | None = None  # of its layers; by default that of the policy file, else none
    objective: str | None = None  # by default that of the policy file, else `balance`


def live_plan(
    scheduler_name: str,
    policy: Path | None = None,
    options: AgentOptions = AgentOptions(),
    *,
    has_telemetry: bool = False,
    seed: int = 1,
) -> LivePlan:
    """Return a plan from what is given, and from a policy file to start from."""
    card = None if policy is None else _card_of(policy)
    usual = card.algorithm if card is not None and card.algorithm in LIVE_DEFAULTS else "dqn"
    algorithm, network, hidden = options.algorithm or usual, options.network, options.hidden
    dropout, normalisation = options.dropout, options.normalisation
    spec = find_algorithm(algorithm)
    if algorithm not in LIVE_DEFAULTS:
        raise UsageError(f"--algorithm {algorithm} cannot learn on a cluster; {', '.join(LIVE_DEFAULTS)} can")
    objective = options.objective or (OBJECTIVE if card is None else card.objective)
    resolved = objectives.resolve(objective)
    if card is None:
        layers = HIDDEN if hidden is None else hidden
        network_plan = NetworkPlan(network or NETWORK, layers, dropout, normalisation or NORMALISATION)
        rewards_gpus = any(each.needs == "gpu" for each in resolved.objectives)
        view = TELEMETRY if has_telemetry else GPU if rewards_gpus else CLUSTER
    else:
        network_plan = NetworkPlan(
            network or card.network,
            card.hidden if hidden is None else hidden,
            dropout,
            normalisation or card.normalisation,
            policy,
        )
        view = find_view(card.view)
    if view == TELEMETRY:
        telemetry.check(resolved, "the view 'telemetry'")
    if network_plan.name not in spec.supported_networks:
        known = ", ".join(spec.supported_networks)
        raise UsageError(f"network {network_plan.name!r} cannot be trained by {algorithm}; these can: {known}")
    network_plan.weights(view, network_plan.spec(FeatureCounts(len(view.node), len(view.pod), len(view.context))))
    config = spec.config(**_settings(spec, card, resolved))
    return LivePlan(scheduler_name, algorithm, config, network_plan, objective, view.name, seed)


def file_to_start_from(policy: str | None) -> Path | None:
    """Return the file of a policy that an agent can start from, None for a policy that only is its fallback."""
    return Path(policy) if policy is not None and policy.endswith(SUFFIX) else None


def _card_of(policy: Path) -> Card:
    card, _ = read_policy(policy)
    if observing_policy(open_policy(policy, card.name)) is None:
        problem = f"is {card.algorithm!r}; learning on a cluster needs a policy of {', '.join(LIVE_DEFAULTS)}"
        raise InputError(policy, "card", "algorithm", problem)
    try:
        objectives.resolve(card.objective)
    except SteersmanError as error:
        raise InputError(policy, "card", "objective", str(error)) from None
    return card


def _settings(spec: AlgorithmSpec, card: Card | None, objective: objectives.WeightedObjectives) -> dict[str, Any]:
    """Return the algorithm's options: those that suit a live cluster, over those of the policy's training."""
    if card is None:
        return {"gamma": objective.gamma, **LIVE_DEFAULTS[spec.name]}
    names = {field.name for field in fields(spec.config)}
    trained = card.settings if card.algorithm == spec.name else {}
    inherited = {name: value for name, value in trained.items() if name in names}
    return inherited | DEFAULTS_FINE_TUNING.get(spec.name, {})


@dataclass(frozen=True, slots=True)
class LiveRun:
    """The folder of a run, locked, and the capacity of the run's observation in nodes."""

    folder: Path
    capacity: int
    lock: FolderLock

    def start(self, plan: LivePlan, save_every: int) -> TrainingRun:
        """Return the run, resumed if it has a checkpoint, that saves every so many iterations."""
        options = plan.options() | {MAX_NODES: self.capacity}
        limits = TrainingLimits(sys.maxsize, validate_every=save_every)
        resume = (self.folder / CHECKPOINT).exists()
        for name in () if resume else (METRICS, VALIDATION):  # of an agent that died before its first checkpoint
            set_aside(self.folder / name)
        return TrainingRun(self.folder, options, limits, resume=resume, lock=self.lock)


def init_run(plan: LivePlan, folder: Path, nodes: tuple[Node, ...]) -> LiveRun:
    """Lock and prepare the folder of a new or resumed run. A checkpoint alone resumes it.

    Raises:
        MissingExtraError: torch is not installed.
        UsageError: the policy's objective is undefined on these nodes.
        SteersmanError: another process uses the folder, it belongs to another run, or cannot be written.
    """
    require_extra("learning on a live cluster", "train", "torch")
    if plan.find_view() != TELEMETRY:
        objectives.check(objectives.resolve(plan.objective), "the cluster", nodes, None)
    # Before locking, which creates the folder and a file in it.
    with naming_in_errors(folder):
        is_other = folder.exists() and any(entry.name != LOCK for entry in folder.iterdir())
    if is_other and not (folder / CHECKPOINT).exists() and not _has_live_options(folder):
        raise SteersmanError(f"{folder}: holds files that are not of a run on a live cluster; name a new folder")
    lock = lock_folder(folder)
    try:
        return LiveRun(folder, _prepare(plan, folder, len(nodes)), lock)
    except BaseException:
        lock.close()
        raise


def _prepare(plan: LivePlan, folder: Path, nodes: int) -> int:
    start = None if plan.network.start is None else read_policy(plan.network.start)
    if (folder / CHECKPOINT).exists():
        capacity = _resumed_capacity(plan, folder / CHECKPOINT, nodes)
    else:
        capacity = max(MIN_NODES, NODE_HEADROOM * nodes)
        for name in (OPTIONS, METRICS, VALIDATION, POLICY):  # of a run that ended before its first checkpoint
            set_aside(folder / name)
    if not (folder / OPTIONS).exists():
        write_options(folder, plan.options() | {MAX_NODES: capacity})
    if start is not None and not (folder / POLICY).exists():
        write_policy(folder / POLICY, *start)
    return capacity


def _has_live_options(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / OPTIONS).read_text())["protocol"] == PROTOCOL)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _resumed_capacity(plan: LivePlan, checkpoint: Path, nodes: int) -> int:
    saved = read_identity(checkpoint)
    try:
        capacity = int(saved.pop(MAX_NODES))
    except (ValueError, KeyError, TypeError):
        raise SteersmanError(f"{checkpoint}: is not that of a run on a live cluster; name a new folder") from None
    # As the checkpoint has them: JSON turns tuples into lists.
    now = json.loads(json.dumps(plan.options()))
    for name in now:
        if saved.get(name) != now[name]:
            raise SteersmanError(
                f"{checkpoint}: the run has {name} {_short(saved.get(name))}, now it is {_short(now[name])}; name a "
                f"new folder, or give the same options"
            )
    if nodes > capacity:
        raise SteersmanError(
            f"{checkpoint}: the run observes up to {capacity} nodes, and the cluster has {nodes}; name a new folder "
            f"and start from --policy {checkpoint.with_name(POLICY)}"
        )
    return capacity


def _short(value: Any) -> str:
    return json.dumps(value) if not isinstance(value, dict) else json.dumps(value, sort_keys=True)


def build_agent(plan: LivePlan, env: VectorEnv[Any, Any, Any], teacher: Teacher | None) -> Agent:
    """Return an agent with its network, which has the weights of the policy file to start from.

    Features that have not varied here may have varied in the training of that policy, so none is ignored then.
    """
    network = plan.network.build(plan.find_view(), sizes_of(env.single_observation_space), plan.seed)
    algorithm = find_algorithm(plan.algorithm)
    more = {"teacher": teacher} if algorithm.uses_teacher else {}
    agent: Any = algorithm.load()(env, network, plan.config, plan.seed, **more)
    if plan.network.start is not None:
        agent.ranges.keep_all()
    result: Agent = agent
    return result


def card_of_run(plan: LivePlan, decisions: int) -> Card:
    """Return the card of a policy after so many decisions."""
    network, view = plan.network, plan.find_view()
    settings = {name: value for name, value in asdict(plan.config).items() if value is not None}
    if network.start is not None:
        before = read_policy(network.start)[0]
        name, steps, training = before.name, before.steps + decisions, before.training
        order = PolicyOrder(before.order, before.order_weights)
    else:
        name, steps, training, order = f"{plan.algorithm}-{network.name}", decisions, (), PolicyOrder()
    return Card(
        name=name,
        view=view.name,
        view_version=view.version,
        network=network.name,
        hidden=network.layers,
        normalisation=network.saved_norm,
        objective=plan.objective,
        algorithm=plan.algorithm,
        protocol=PROTOCOL,
        training=training,
        seeds=f"{plan.seed} for learning",
        settings=settings,
        steps=steps,
        made_by=f"steersman {__version__}",
        order=order.order,
        order_weights=order.order_weights,
    )
