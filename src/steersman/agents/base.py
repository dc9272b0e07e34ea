"""Base class of agents: an environment and its observation, exploration's randomness, metrics, checkpoints.

An agent alternates between acting in its environments and learning; one such round is an iteration. All it depends on
is in its `state_dict`, so that a run that was killed resumes from its last checkpoint to the same result.
"""

from __future__ import annotations

import copy
import inspect
import json
import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor, nn
from torch.optim import Optimizer

from steersman.agents.networks.score_networks import ScoreNetwork
from steersman.agents.networks.tensors import (
    Actions,
    Arrays,
    CandidateSample,
    as_tensors,
    pack,
    replace_rows,
    sample_candidates,
    stack,
    unpack,
)
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.extensions import attribute_foreign_errors
from steersman.policies.network_policy import first_bests

Teacher = Callable[[Arrays], Actions]
"""Map observations to actions [E]: a policy to learn from, or a named rule. Called once per observation, in order."""


LARGEST = 1e5  # largest weight: units that die of too large a step leave a finite loss, and nothing to learn


class Adam(torch.optim.Adam):
    """`torch.optim.Adam` without the import of torch's compiler, which takes longer than torch's own import.

    torch wraps optimisers so that its compiler skips them, and imports the compiler for this at the first step: 4.2
    seconds, beside 2.8 for torch itself (2.15). The weights are equal to the last bit, and 20 iterations of DQN or
    actor-critic take 5.7 s from start to end instead of 10.3. With `fused=True` torch imports it as well, and the
    weights differ.
    """

    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Adam.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Adam.load_state_dict)
    # The removed wrapper of `step` switches gradients off; the others need none.
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


class DivergedError(SteersmanError):
    """A loss or a weight is not finite or too large."""


@dataclass(frozen=True, slots=True)
class Step:
    """One decision in each of E environments."""

    before: Arrays  # observation before it, [E, ...]
    rows: Actions  # int64 [E] the row that was chosen
    reward: npt.NDArray[np.float32]  # float32 [E]
    terminated: npt.NDArray[np.bool_]  # bool [E] the episode has ended, and no reward follows
    truncated: npt.NDArray[np.bool_]  # bool [E] the episode was cut off, and what follows still counts
    after: Arrays  # next observation, [E, ...], before any reset; undefined where `terminated`
    # Whether these rows were taken. If not, a live cluster took another node, which the observation does not offer:
    # the reward is that node's, and nothing is to be learned from the step.
    was_taken: bool = True


def teacher_of(env: VectorEnv[Any, Any, Any], *rule: str) -> Teacher | None:
    """Return the rule `env.heuristic(*rule)` as a teacher, or None if the environment has no such method."""
    heuristic = getattr(env.unwrapped, "heuristic", None)
    # `_`: the rule reads the environment's current state, which is the observation's as long as calls stay in order.
    return None if heuristic is None else lambda _: np.asarray(heuristic(*rule), np.int64)


class Agent(ABC):
    """An agent that learns by gradients."""

    algorithm: ClassVar[str]
    asks_teacher: bool = False  # whether the teacher acts on every observation

    def __init__(
        self,
        # E environments that reset in the same step, with `snapshot()` and `restore()` if the run is to be resumed
        env: VectorEnv[Any, Any, Any],
        network: ScoreNetwork,  # scores nodes; trained in place
        config: Any,  # the algorithm's options
        seed: int,  # of the environments, exploration and dropout
        device: str | torch.device = "cpu",  # device of the networks (`cpu`, `cuda`, `cuda:1`)
        teacher: Teacher | None = None,  # actions to learn or explore from, or None
    ) -> None:
        if env.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
            raise UsageError(
                f"{self.algorithm} needs environments that reset in the same step (AutoresetMode.SAME_STEP)"
            )
        self.env, self.config, self.teacher = env, config, teacher
        self.device = torch.device(device)
        self.network = network.to(self.device)
        self.rng = np.random.default_rng(seed)
        self.steps = self.iterations = self.episodes = 0
        self.parts: dict[str, nn.Module | Optimizer] = {"network": self.network}
        self._random = _seeded(seed, self.device)
        self._tally = RolloutStats(env.num_envs)
        observation, _ = env.reset(seed=seed)
        self._teacher_actions: Actions | None = None
        self.sample = self._look(observation)

    @abstractmethod
    def _iterate(self) -> Metrics:
        """Act and learn once; return metrics of the learning."""

    def iterate(self) -> Metrics:
        """Act and learn once.

        Returns:
            `steps`, `episodes` so far, `reward` (mean of a decision), `cumulative_reward` (its sum so far, of the mean
            environment), `return` and `length` (means over the episodes that ended, if any did), `actions` (the chosen
            node slots), numbers from the environments' infos (means; of the episodes that ended under `final_...`), and
            metrics of the algorithm, such as `loss`.

        Raises:
            DivergedError: a loss is not finite, or a weight is too large. The agent is of no more use; an earlier
                checkpoint is.
        """
        self.iterations += 1
        with self._own_randomness(), attribute_foreign_errors(self.algorithm, type(self)):
            learned = self._iterate()
        for name, part in self.parts.items():
            largest = _largest_weight(part) if isinstance(part, nn.Module) else 0.0
            if not largest <= LARGEST:  # also true of NaN
                problem = f"beyond {LARGEST:g}" if math.isfinite(largest) else "not finite"
                raise self._diverged(f"a weight of the {name} is {problem}")
        return {"steps": float(self.steps), "episodes": float(self.episodes), **self._tally.take(), **learned}

    def act(self, observation: Mapping[str, npt.NDArray[Any]], greedy: bool = True) -> Actions:
        """Return node slots [E] for observations of all nodes: the best ones, or as the agent explores.

        Ties: the lowest slot, as where a policy file is used (`policies.network_policy.first_best`).

        Raises:
            DivergedError: a score is not finite.
        """
        scores = self.scores(observation)
        if not greedy:
            return self._explore(scores, observation["mask"] > 0)
        if not np.isfinite(scores).all():
            raise self._diverged("the score of a node is not finite")
        return first_bests(scores, observation["nodes"])

    def scores(self, observation: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        """Return [E, N] the network's scores in evaluation mode."""
        self.network.eval()
        with torch.no_grad():
            scores: npt.NDArray[np.float32] = self.network(as_tensors(observation, self.device)).cpu().numpy()
        return scores

    @abstractmethod
    def _explore(self, scores: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_]) -> Actions:
        """Return rows [E] to choose while learning, from scores [E, N]."""

    def state_dict(self) -> dict[str, Any]:
        """Return copies of everything that later iterations depend on: tensors, numbers and strings alone."""
        return {
            "algorithm": self.algorithm,
            "counts": [self.steps, self.iterations, self.episodes],
            "parts": {name: copy.deepcopy(part.state_dict()) for name, part in self.parts.items()},
            "rng": json.dumps(self.rng.bit_generator.state),
            "torch": [state.clone() for state in self._random],
            "env": pack(self._resumable().snapshot()),
            "seen": pack(self.sample.observation),
            "slots": pack({} if self.sample.slots is None else {"slots": self.sample.slots}),
            "teacher_actions": pack(
                {} if self._teacher_actions is None else {"teacher_actions": self._teacher_actions}
            ),
            "tally": pack(self._tally.arrays()),
            "more": self._more_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of an agent with the same environments, network and options.

        Raises:
            SteersmanError: the state is of another algorithm or network.
        """
        if state["algorithm"] != self.algorithm:
            raise SteersmanError(f"the checkpoint is of {state['algorithm']}, not of {self.algorithm}")
        try:
            # Buffers too (running statistics, Pop-Art's scale): `state_dict` of a module has them.
            for name, part in self.parts.items():
                part.load_state_dict(state["parts"][name])
        except (RuntimeError, ValueError, KeyError) as error:
            raise SteersmanError("the checkpoint is of another network; give the options it was made with") from error
        self.steps, self.iterations, self.episodes = state["counts"]
        self.rng.bit_generator.state = json.loads(state["rng"])
        self._random = [saved.clone() for saved in state["torch"]]
        self._resumable().restore(unpack(state["env"]))
        self.sample = CandidateSample(unpack(state["seen"]), unpack(state["slots"]).get("slots"))
        self._teacher_actions = unpack(state["teacher_actions"]).get("teacher_actions")
        self._tally.restore(unpack(state["tally"]))
        self._load_more_state(state["more"])

    def _more_state(self) -> dict[str, Any]:
        return {}

    def _load_more_state(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most algorithms add nothing
        """Restore what `_more_state` returned."""

    def step(self, rows: Actions) -> Step:
        """Take the chosen rows [E] of the current observation, and observe the next one."""
        before, slots = self.sample.observation, self.sample.to_slots(rows)
        observation, reward, terminated, truncated, infos = self.env.step(slots)
        terminated, truncated = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        was_taken = True
        if "taken" in infos:  # on a live cluster the fallback may have decided
            slots = np.array(infos["taken"], np.int64)
            was_taken = self.sample.offers(slots)
            rows = self.sample.to_rows(slots) if was_taken else rows
        self._tally.add(slots, reward, terminated | truncated, infos)
        self.steps += len(rows)
        self.episodes += int((terminated | truncated).sum())
        # A step that is both counts as terminated: nothing is bootstrapped from it.
        cut = truncated & ~terminated
        self.sample = self._look(observation)
        # The observation after an automatic reset is the next episode's; a truncated one bootstraps from its own last.
        after = self.sample.observation
        if cut.any():
            final = stack([infos["final_obs"][copy] for copy in np.flatnonzero(cut)])
            after = replace_rows(after, cut, sample_candidates(final, self.config.candidates, self.rng).observation)
        return Step(before, rows, np.array(reward, np.float32), terminated, cut, after, was_taken)

    def teacher_actions(self) -> Actions:
        """Return [E] the rows that the teacher would choose in the current observation."""
        assert self._teacher_actions is not None
        return self.sample.to_rows(self._teacher_actions)

    def observe(self, observation: Arrays) -> None:
        """Take an observation, [E, ...], as the current one."""
        self.sample = self._look(observation)

    def _look(self, observation: Arrays) -> CandidateSample:
        self._teacher_actions = (
            np.array(self.teacher(observation), np.int64) if self.asks_teacher and self.teacher else None
        )
        # The teacher's choice is always among the candidates, or the sample could not hold its label.
        return sample_candidates(observation, self.config.candidates, self.rng, self._teacher_actions)

    def learn(self, loss: Tensor, optimiser: Optimizer, max_grad_norm: float) -> float:
        """Take one gradient step with clipped norm; return the loss as a number.

        Raises:
            DivergedError: the loss is not finite.
        """
        if not torch.isfinite(loss):
            raise self._diverged("the loss is not finite")
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_([p for group in optimiser.param_groups for p in group["params"]], max_grad_norm)
        optimiser.step()
        return float(loss.detach())

    def _diverged(self, what: str) -> DivergedError:
        return DivergedError(
            f"{self.algorithm} diverged: {what} in iteration {self.iterations}; "
            "a smaller learning rate or reward scale may help"
        )

    def _resumable(self) -> Any:
        env = self.env.unwrapped
        if not hasattr(env, "snapshot") or not hasattr(env, "restore"):
            raise UsageError(f"{type(env).__name__} cannot be resumed: it has no snapshot() and restore()")
        return env

    @contextmanager
    def _own_randomness(self) -> Iterator[None]:
        """Use this agent's random state for dropout inside, and leave torch's global one as it was."""
        with keeping_randomness(self.device):
            _set_random_state(self.device, self._random)
            try:
                yield
            finally:
                self._random = _random_state(self.device)


@contextmanager
def keeping_randomness(device: torch.device) -> Iterator[None]:
    """Restore torch's global random state afterwards."""
    outer = _random_state(device)
    try:
        yield
    finally:
        _set_random_state(device, outer)


def random_rows(mask: npt.NDArray[np.bool_], rng: np.random.Generator) -> Actions:
    """Return [E] a uniformly random feasible row of mask [E, N]."""
    # Infeasible nodes get -1, below every draw in [0, 1): the argmax is uniform over the feasible ones.
    rows: Actions = np.where(mask, rng.random(mask.shape), -1.0).argmax(1)
    return rows


def _largest_weight(network: nn.Module) -> float:
    """Return the largest absolute value among the weights; not finite if one of them is not."""
    # `max` propagates NaN, so one comparison finds both a NaN and too large a weight.
    return float(torch.stack([parameter.detach().abs().max() for parameter in network.parameters()]).max())


def _seeded(seed: int, device: torch.device) -> list[Tensor]:
    states = [torch.Generator().manual_seed(seed).get_state()]
    if device.type == "cuda":
        states.append(torch.Generator(device).manual_seed(seed).get_state())
    return states


def _random_state(device: torch.device) -> list[Tensor]:
    return [torch.get_rng_state()] + ([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])


def _set_random_state(device: torch.device, states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)


Metrics = dict[str, float | npt.NDArray[Any]]  # scalars, and arrays that are shown as histograms


class RolloutStats:
    """Sums over the decisions of an iteration; returns of running episodes and the cumulative reward carry over."""

    def __init__(self, num_envs: int) -> None:
        self.returns = np.zeros(num_envs)
        self.lengths = np.zeros(num_envs, np.int64)
        self.cumulative = np.zeros(1)  # reward of all decisions so far, of the mean environment
        self._clear()

    def _clear(self) -> None:
        self._rewards: list[float] = []
        self._actions: list[npt.NDArray[np.int64]] = []
        self._ended: list[tuple[float, int]] = []
        self._infos: defaultdict[str, list[float]] = defaultdict(list)

    def add(
        self,
        actions: npt.NDArray[np.int64],
        reward: npt.NDArray[Any],
        ended: npt.NDArray[np.bool_],
        infos: Mapping[str, Any],
    ) -> None:
        """Add one step of all environments: actions, rewards and ended [E], infos as gymnasium gives them."""
        self._rewards.append(float(np.mean(reward)))
        self.cumulative += self._rewards[-1]
        self._actions.append(np.array(actions))
        self.returns += reward
        self.lengths += 1
        self._ended += zip(self.returns[ended].tolist(), self.lengths[ended].tolist(), strict=True)
        self.returns[ended], self.lengths[ended] = 0.0, 0
        self._add_infos(infos, "")

    def _add_infos(self, infos: Mapping[str, Any], prefix: str) -> None:
        for name, value in infos.items():
            if name == "final_info" and isinstance(value, Mapping):
                self._add_infos(value, "final_")
            elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and not name.startswith("_"):
                # Gymnasium's convention: `_name` tells which environments have a value of `name`.
                has_value = infos.get(f"_{name}", np.ones(len(value), np.bool_))
                self._infos[prefix + name] += [float(np.mean(one)) for one in value[has_value]]

    def take(self) -> Metrics:
        """Return the iteration's metrics, and reset them."""
        metrics: Metrics = {name: float(np.mean(values)) for name, values in self._infos.items() if values}
        if self._rewards:
            metrics |= {"reward": float(np.mean(self._rewards)), "cumulative_reward": float(self.cumulative[0])}
            metrics |= {"actions": np.concatenate(self._actions)}
        if self._ended:
            returns, lengths = zip(*self._ended, strict=True)
            metrics |= {"return": float(np.mean(returns)), "length": float(np.mean(lengths))}
        self._clear()
        return metrics

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"returns": self.returns, "lengths": self.lengths, "cumulative": self.cumulative}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore what `arrays` returned."""
        self.returns[...], self.lengths[...] = arrays["returns"], arrays["lengths"]
        self.cumulative[...] = arrays["cumulative"]
        self._clear()
