"""Process that learns from what another scheduler does with the policy's scores, and exchanges the policy.

On each held-back decision both policies choose a node in the state that was observed, and the difference of the rewards
of their choices is taken. The candidate replaces the policy if the 95 % interval of the mean difference is above zero.
Every held-back decision serves one test, so that testing again and again does not find a difference by chance alone.
The reward is that of the decision itself: what later decisions lose or gain by it is not seen.
"""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import structlog

from steersman.core.atomic_files import keep_copy, replacing
from steersman.core.errors import SteersmanError
from steersman.core.statistics import mean_interval
from steersman.kubernetes.config import KubeConfig
from steersman.live.learner.bindings import TEST_BLOCK, BindingThread, ObservedBinding
from steersman.live.learner.plan import LivePlan, LiveRun, card_of_run
from steersman.live.scheduler.agent_policy import AgentSettings
from steersman.objectives import registry as objectives
from steersman.policies.kinds import observing_policy
from steersman.policies.observation import ObservationArrays
from steersman.policies.policy_file import open_policy, read_policy, write_policy
from steersman.prometheus.configuration import Configuration
from steersman.training.run import POLICY, Learner

if TYPE_CHECKING:
    from steersman.live.learner.passive_dqn import PassiveDQN

EXCHANGES = "exchanges.csv"
CANDIDATE = "candidate.safetensors"
PREVIOUS = "previous"  # folder of the policies that were replaced, numbered
COLUMNS = ("time", "result", "held_back", "reward", "reward_of_candidate", "difference", "low", "high", "policy")
EXCHANGED, KEPT, UNDONE = "exchanged", "kept", "undone"
MIN_BLOCKS = 20  # blocks of `TEST_BLOCK` decisions that a test needs
NICENESS = 10
CHECKPOINT_EVERY = 20  # iterations of 50 decisions between two checkpoints, each with a candidate file

log = structlog.get_logger("learning")


class PolicyExchange:
    """The policy in use, and the decisions that are held back to test candidates on."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._held_back = folder, list[ObservedBinding]()
        self._digest = digest_of(folder / POLICY)

    def hold_back(self, binding: ObservedBinding) -> None:
        """Keep a decision for the next test."""
        self._held_back.append(binding)

    @property
    def is_due(self) -> bool:
        """Whether there are enough decisions for a test."""
        return len(self._held_back) >= MIN_BLOCKS * TEST_BLOCK

    def was_replaced(self) -> bool:
        """Return whether somebody else replaced the policy in use since the last call, such as `undo`."""
        now = digest_of(self._folder / POLICY)
        before, self._digest = self._digest, now
        return now != before

    def test(self, save: Callable[[Path], None]) -> bool:
        """Test a candidate and use it if it is better; return whether it is used."""
        bindings, self._held_back = self._held_back, []
        candidate, active = self._folder / CANDIDATE, self._folder / POLICY
        save(candidate)
        active_rewards, candidate_rewards = _rewards(active, bindings), _rewards(candidate, bindings)
        differences = candidate_rewards - active_rewards
        # The interval assumes independent values; means of blocks nearly are, neighbouring decisions are not.
        blocks = differences[: len(differences) // TEST_BLOCK * TEST_BLOCK].reshape(-1, TEST_BLOCK).mean(axis=1)
        low, high = (round(limit, 6) for limit in mean_interval(blocks))
        is_better = low > 0.0  # as it is logged: less than that is no gain
        if is_better:
            _replace(self._folder, candidate)
            self._digest = digest_of(active)
        figures = {
            "held_back": len(bindings),
            "reward": round(float(active_rewards.mean()), 6),
            "reward_of_candidate": round(float(candidate_rewards.mean()), 6),
            "difference": round(float(blocks.mean()), 6),
            "low": low,
            "high": high,
        }
        outcome = EXCHANGED if is_better else KEPT
        _append(self._folder, {"result": outcome, **figures, "policy": digest_of(active)})
        message = "the learned policy is better and replaces the one in use" if is_better else "the policy is kept"
        log.info(message, **figures)
        return is_better


def undo(folder: Path) -> str:
    """Put the policy that was replaced last back, and return the name of its file."""
    replaced = _replaced(folder)
    if not (folder / POLICY).exists() or not replaced:
        raise SteersmanError(f"{folder}: no policy was replaced there, so there is nothing to undo")
    last = replaced[-1]
    # Raises before anything is changed if the file cannot be read.
    read_policy(last)
    try:
        keep_copy(folder / POLICY)
        os.replace(last, folder / POLICY)
    except OSError as error:
        raise SteersmanError(f"{folder}: cannot be written: {error.strerror}") from None
    _append(folder, {"result": UNDONE, "policy": digest_of(folder / POLICY)})
    return last.name


def digest_of(file: Path) -> str:
    """Return a short digest of a policy file, as the metric `steersman_policy_info` has it; "" if there is none."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.exists() else ""


def _replaced(folder: Path) -> list[Path]:
    return sorted((folder / PREVIOUS).glob("*.safetensors"))


def _replace(folder: Path, candidate: Path) -> None:
    active = folder / POLICY
    number = max((int(file.stem) for file in _replaced(folder) if file.stem.isdigit()), default=0) + 1
    try:
        (folder / PREVIOUS).mkdir(exist_ok=True)
        # A copy, so that the file in use exists at every moment.
        with replacing(folder / PREVIOUS / f"{number:04}.safetensors") as part:
            shutil.copy2(active, part)
        os.replace(candidate, active)
    except OSError as error:
        raise SteersmanError(f"{folder}: cannot be written: {error.strerror}; the policy in use stays") from None


def _rewards(file: Path, bindings: list[ObservedBinding]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    policy = observing_policy(open_policy(file, read_policy(file)[0].name))
    assert policy is not None
    rewards = np.empty(len(bindings))
    for i, binding in enumerate(bindings):
        parts, known = binding.observation, binding.rewards
        assert known is not None
        nodes = np.ascontiguousarray(parts["nodes"])
        arrays = ObservationArrays(nodes, parts["pod"], parts["context"], parts["mask"])
        rewards[i] = known[policy.choose(arrays, parts["groups"])]
    return rewards


def _append(folder: Path, row: dict[str, object]) -> None:
    file = folder / EXCHANGES
    try:
        is_new = not file.exists()
        with file.open("a", newline="") as out:
            writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
            if is_new:
                writer.writeheader()
            writer.writerow({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **row})
    except OSError as error:
        raise SteersmanError(f"{file}: cannot be written: {error.strerror}") from None


def follow(plan: LivePlan, live_run: LiveRun, kubeconfig: KubeConfig, telemetry_config: Configuration | None) -> None:
    """Watch a scheduler, learn from its bindings, and replace the policy in use when a better one was learned."""
    import torch

    from steersman.agents.networks.score_networks import build, export, load
    from steersman.agents.networks.spec import sizes_of
    from steersman.live.learner.environment import PassiveLiveEnv
    from steersman.live.learner.passive_dqn import PassiveDQN

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
    """Adapt a passive agent to `TrainingRun`; between two iterations it may exchange the policy in use."""

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
