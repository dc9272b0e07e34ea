"""Process that learns from what another scheduler does with the policy's scores, and exchanges the policy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import structlog

from steersman.apps.learner.bindings import BindingThread, ObservedBinding
from steersman.apps.learner.exchange import CANDIDATE, PolicyExchange
from steersman.apps.learner.plan import LivePlan, LiveRun, card_of_run
from steersman.apps.scheduler.agent_policy import AgentSettings
from steersman.core.errors import SteersmanError
from steersman.kubernetes.config import KubeConfig
from steersman.objectives import registry as objectives
from steersman.policies.files.policy_file import read_policy, write_policy
from steersman.prometheus.configuration import Configuration
from steersman.training.run import POLICY, Learner

if TYPE_CHECKING:
    from steersman.apps.learner.passive_dqn import PassiveDQN

NICENESS = 10
CHECKPOINT_EVERY = 20
"""Iterations of 50 decisions between two checkpoints, each with a candidate file."""

log = structlog.get_logger("learning")


def follow(plan: LivePlan, live_run: LiveRun, kubeconfig: KubeConfig, telemetry_config: Configuration | None) -> None:
    """Watch a scheduler, learn from its bindings, and replace the policy in use when a better one was learned.

    Args:
        plan: the plan; it starts from the policy file in the folder.
        live_run: the run, from `init_run`.
        kubeconfig: configuration of the cluster.
        telemetry_config: Prometheus queries; None: no telemetry.

    Raises:
        SteersmanError: the cluster cannot be watched, or learning failed; the policy in use stays.
    """
    import torch

    from steersman.agents.networks.score_networks import build, export, load
    from steersman.agents.networks.spec import sizes_of
    from steersman.apps.learner.environment import PassiveLiveEnv
    from steersman.apps.learner.passive_dqn import PassiveDQN

    os.nice(NICENESS)
    # Where others use the cores, several threads are slower, see `training.learning`.
    torch.set_num_threads(1)
    view, objective = plan.find_view(), objectives.resolve(plan.objective)
    run, folder = live_run.start(plan, CHECKPOINT_EVERY), live_run.folder
    exchange = PolicyExchange(folder)
    thread = BindingThread(
        kubeconfig, plan.scheduler_name, AgentSettings(plan.algorithm, view, objective, None), telemetry_config
    )
    env = PassiveLiveEnv(_train_bindings(thread, exchange), view, live_run.capacity, objective)
    log.info("learning", scheduler=plan.scheduler_name, network=plan.network.name, objective=plan.objective)
    spec = plan.network.spec(sizes_of(env.single_observation_space))
    network = build(spec.name, spec.sizes, spec.hidden, spec.dropout, spec.normalisation, plan.seed)
    load(network, read_policy(folder / POLICY)[1])
    agent = PassiveDQN(env, network, plan.config, plan.seed)

    def save(path: Path) -> None:
        write_policy(path, card_of_run(plan, agent.steps), export(agent.network))

    learner = PassiveLearner(agent, exchange, folder, save)
    run.train(cast(Learner, learner), None, lambda _: save(folder / CANDIDATE))


class PassiveLearner:
    """Adapt a passive agent to `TrainingRun`; between two iterations it may exchange the policy in use.

    Args:
        agent: the agent.
        exchange: the policy in use.
        folder: of the run.
        save: writes the agent's policy to a file.
    """

    def __init__(self, agent: PassiveDQN, exchange: PolicyExchange, folder: Path, save: Any) -> None:
        self._agent, self._exchange, self._folder, self._save = agent, exchange, folder, save

    def iterate(self) -> dict[str, Any]:
        """Observe and learn once; test the candidate if that is due."""
        metrics = self._agent.iterate()
        # Before the test, which would compare a candidate of the old policy with the new one.
        if self._exchange.was_replaced():
            self._start_again()
        if self._exchange.is_due:
            self._exchange.test(self._save)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return everything that later iterations depend on but the cluster."""
        return self._agent.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self._agent.load_state_dict(state)

    def _start_again(self) -> None:
        """Go on from the policy in use, which somebody else has put there."""
        from steersman.agents.networks.score_networks import load

        try:
            load(self._agent.network, read_policy(self._folder / POLICY)[1])
        except SteersmanError as error:
            log.warning(
                "the policy in use cannot be learned from; learning continues from the previous one", error=str(error)
            )
            return
        # Else the targets would still be those of the old policy.
        self._agent.target_network.load_state_dict(self._agent.network.state_dict())
        log.info("the policy in use was replaced; learning goes on from it")


def _train_bindings(thread: BindingThread, exchange: PolicyExchange) -> Iterator[ObservedBinding]:
    """Yield the bindings that may be learned from; the others are held back."""
    for binding in thread.read():
        if binding.rewards is None:
            yield binding
        else:
            exchange.hold_back(binding)
