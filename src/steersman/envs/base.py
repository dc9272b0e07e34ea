"""What the single and the vector form of an environment share: E environments in one set of buffers."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from steersman.core.config.fields import KINDS, checked_arguments, is_of_kind
from steersman.core.errors import UsageError, unknown_name
from steersman.core.handles import Batch, Described
from steersman.objectives import summary as summed
from steersman.objectives.registry import WeightedObjectives
from steersman.policies.features import View, bounds
from steersman.policies.heuristics import HEURISTIC_IDS

Arrays = dict[str, npt.NDArray[Any]]

Options = TypeVar("Options")


class EnvCore(ABC):
    """E environments of one kind, stepped together.

    Args:
        count: E.
        view: the view that agents observe.
        max_nodes: N, the most nodes of a cluster; an action is a node's slot, 0 to N - 1.
    """

    def __init__(self, count: int, view: View, max_nodes: int) -> None:
        if count < 1:
            raise UsageError(f"num_envs must be at least 1, not {count}")
        self.count, self.view, self.max_nodes = count, view, max_nodes
        # The buffers that every step writes to
        self.observation = Observation(
            nodes=np.zeros((count, max_nodes, len(view.node)), dtype=np.float32),
            pod=np.zeros((count, len(view.pod)), dtype=np.float32),
            context=np.zeros((count, len(view.context)), dtype=np.float32),
            mask=np.zeros((count, max_nodes), dtype=np.int8),
            groups=np.full((count, max_nodes, 2), -1, dtype=np.int32),
        )
        self.rewards = np.zeros(count)  # [E] float64 of the last step
        # `terminated`, `truncated`: [E] bool, whether an episode ended with its workload, or at the limit of steps
        self.terminated = np.zeros(count, dtype=np.bool_)
        self.truncated = np.zeros(count, dtype=np.bool_)

    @abstractmethod
    def start(self, e: int, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Begin a new episode in environment `e` and observe it."""

    @abstractmethod
    def step(self, actions: npt.NDArray[np.int64]) -> None:
        """Take one action, [E], in every environment; none of them may have ended."""

    @abstractmethod
    def heuristic(self, rule: int) -> npt.NDArray[np.int64]:
        """Return [E] the node that a heuristic would choose now."""

    @abstractmethod
    def infos(self) -> Arrays:
        """Return [E] metrics of each environment after the last step, by name."""

    @abstractmethod
    def state(self) -> Arrays:
        """Return every array that the next steps depend on (not copies)."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Return to a state; its observation is restored, too."""

    @abstractmethod
    def names(self, e: int) -> list[str]:
        """Return the names of the nodes of environment `e` in the order of their slots."""

    @abstractmethod
    def loads(self, e: int) -> npt.NDArray[np.float64]:
        """Return [n, 3] shares of CPU, memory and GPU in use on the nodes of environment `e`; NaN if there is none."""

    def observed(self) -> Arrays:
        """Return the buffers of `observation` by the names that agents know (not copies)."""
        observation = self.observation
        return {
            "nodes": observation.nodes,
            "pod": observation.pod,
            "context": observation.context,
            "mask": observation.mask,
            "groups": observation.groups,
        }

    def rule_actions(self, name: str) -> npt.NDArray[np.int64]:
        """Return [E] the actions of the heuristic of that name. Raises UsageError: there is none."""
        if name not in HEURISTIC_IDS:
            raise UsageError(f"no rule {name!r} here; there are {', '.join(HEURISTIC_IDS)}")
        return self.heuristic(HEURISTIC_IDS[name])


class BatchedCore(EnvCore):
    """E episodes of the compiled core, stepped in its threads.

    Args:
        objective: what is rewarded. A user's own objectives are computed here, from the states that the core reports.
        penalty: cost of an illegal action.
    """

    def __init__(self, count: int, view: View, max_nodes: int, objective: WeightedObjectives, penalty: float) -> None:
        super().__init__(count, view, max_nodes)
        self.objective, self._penalty = objective, penalty
        self.illegal = np.zeros(count, dtype=np.bool_)  # [E] whether the last action was
        self.states = np.zeros((count, 3, summed.COLUMNS))  # NOW, BEFORE, AFTER, see `objectives.summary`
        self._not_begun = set(range(count))  # environments whose first episode has not begun
        buffers, flags = self.observation, (self.terminated.view(np.int8), self.truncated.view(np.int8))
        self._batch = Batch(
            (buffers.nodes, buffers.pod, buffers.context, buffers.mask), (self.rewards, *flags, self.states)
        )

    def _begin(self, e: int, arrays: Described, step_limit: int) -> bool:
        """Begin an episode, see `Batch.begin`; return whether it asks for a node."""
        rewarded = {
            "episode.objectives": np.array(self.objective.numbers, dtype=np.int64),
            "episode.weights": np.array(self.objective.compiled_weights, dtype=np.float64),
            "episode.penalty": np.array([self._penalty], dtype=np.float64),
            "episode.step_limit": np.array(step_limit),
        }
        return self._begin_again(e, {**rewarded, **arrays})

    def _begin_again(self, e: int, arrays: Described) -> bool:
        """Begin an episode; of one like the last the arrays say what differs, see `Episode::again` in the core."""
        asks = self._batch.begin(e, arrays)
        self._not_begun.discard(e)
        return asks

    def _check_begun(self) -> None:
        """Raise UsageError if an environment was not reset."""
        if self._not_begun:
            raise UsageError("reset the environment before anything else")

    def step(self, actions: npt.NDArray[np.int64]) -> None:
        self._check_begun()
        legal = self.observation.mask[np.arange(self.count), actions] == 1
        self._batch.step(actions)
        self.illegal = ~legal
        if self.objective.has_own:
            states = self.states[legal]
            self.rewards[legal] += self.objective.own_rewards(states[:, BEFORE], states[:, AFTER])

    def heuristic(self, rule: int) -> npt.NDArray[np.int64]:
        self._check_begun()
        return self._batch.rule_actions(rule)

    def _played(self) -> Arrays:
        """Return all actions since the episodes began: taking them again leads to the same state."""
        self._check_begun()
        actions = [self._batch.actions(e) for e in range(self.count)]
        return {"steps": np.array([len(each) for each in actions]), "actions": np.concatenate(actions)}

    def _replay(self, e: int, played: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take the actions of an episode that has just begun again."""
        end = int(played["steps"][: e + 1].sum())
        self._batch.replay(e, np.ascontiguousarray(played["actions"][end - int(played["steps"][e]) : end]))


def observation_space(view: View, max_nodes: int) -> spaces.Dict:
    """Return the space of one environment's observations; all bounds are finite."""
    node_low, node_high = bounds(view.node)
    shape = (max_nodes, len(view.node))
    pod_low, pod_high = bounds(view.pod)
    context_low, context_high = bounds(view.context)
    return spaces.Dict(
        {
            "nodes": spaces.Box(np.broadcast_to(node_low, shape), np.broadcast_to(node_high, shape), dtype=np.float32),
            "pod": spaces.Box(pod_low, pod_high, dtype=np.float32),
            "context": spaces.Box(context_low, context_high, dtype=np.float32),
            "mask": spaces.Box(0, 1, (max_nodes,), dtype=np.int8),
            "groups": spaces.Box(-1, max_nodes, (max_nodes, 2), dtype=np.int32),
        }
    )


def make_options(options: type[Options], given: Mapping[str, Any]) -> Options:
    """Return the options of an environment by name. Raises UsageError: one is unknown or of another type."""
    known = options.__dataclass_fields__  # type: ignore[attr-defined]
    for name in given:
        if name not in known:
            raise unknown_name("option of the environment", name, known)
    return checked_arguments(options)(**given)


def check_actions(actions: npt.NDArray[Any], nodes: int) -> npt.NDArray[np.int64]:
    """Return actions, [E], as contiguous integers. Raises UsageError: one is not the slot of one of N nodes."""
    if actions.dtype.kind not in "iu":
        raise UsageError(f"actions must be integers, not {actions.dtype}")
    checked = np.ascontiguousarray(actions, dtype=np.int64)
    if checked.size and not 0 <= checked.min() <= checked.max() < nodes:
        wrong = checked[(checked < 0) | (checked >= nodes)][0]
        raise UsageError(f"action {wrong} is out of range; expected a slot from 0 to {nodes - 1}")
    return checked


def check_limits(penalty: float, step_limit: int | None, servers_per_rack: int = 0) -> None:
    """Check options that environments share. Raises UsageError: one is out of range."""
    if not 0 <= penalty < 1e9:
        raise UsageError(f"penalty must be at least 0, not {penalty}")
    if step_limit is not None and step_limit < 1:
        raise UsageError(f"step_limit must be at least 1, not {step_limit}")
    if servers_per_rack < 0:
        raise UsageError(f"servers_per_rack must be at least 0, not {servers_per_rack}")


RESET_KINDS: dict[str, type[Any]] = {
    "seed": int,
    "nodes": int,
    "ratio": float,
    "load": float,
    "workload": str,
    "first": int,
}
"""Types of reset options."""


def known_options(options: Mapping[str, Any] | None, known: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of a reset. Raises UsageError: one is unknown or of another type."""
    for name in options or {}:
        if name not in known:
            raise unknown_name("reset option", name, known)
    for name, value in (options or {}).items():
        kind = RESET_KINDS[name]
        if not is_of_kind(value, kind) and not (name == "load" and value is None):
            raise UsageError(f"reset option {name!r} must be {KINDS[kind]}, not {value!r}")
        if name == "seed" and value < 0:
            raise UsageError(f"reset option 'seed' must be at least 0, not {value}")
    return dict(options or {})


def packed(generators: list[np.random.Generator]) -> npt.NDArray[np.uint8]:
    # JSON as bytes: a snapshot holds arrays alone, and a generator's state has integers of 128 bits.
    states = [generator.bit_generator.state for generator in generators]
    return np.frombuffer(json.dumps(states).encode(), dtype=np.uint8).copy()


def unpack(generators: list[np.random.Generator], data: npt.NDArray[np.uint8]) -> None:
    """Set random generators to the states in `data`, see `packed`."""
    for generator, state in zip(generators, json.loads(data.tobytes().decode()), strict=True):
        generator.bit_generator.state = state


# Rows of the summary of an environment: the state at the decision that is to be made; before and after the last action.
NOW, BEFORE, AFTER = range(3)


class Observation(NamedTuple):
    """Observations of E environments.

    Attributes:
        nodes: [E, N, F] float32.
        pod: [E, P] float32.
        context: [E, X] float32.
        mask: [E, N] int8, 1 where the pod may run.
        groups: [E, N, 2] int32, index of the node's rack and server, -1: none.
    """

    nodes: npt.NDArray[np.float32]
    pod: npt.NDArray[np.float32]
    context: npt.NDArray[np.float32]
    mask: npt.NDArray[np.int8]
    groups: npt.NDArray[np.int32]
