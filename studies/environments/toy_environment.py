"""Small environments with a known optimum, in the observation layout of the real ones: what every agent must master.

`match`: one decision an episode. Each node has a value v; pods of kind 0 and 2 earn v, those of kind 1 and 3 earn
1 - v. The optimum is the best feasible node.

`reserve`: pods of kind 0 fit on any node with a free slot and earn v, or v + 0.5 on a large node; the others fit on
large nodes only and earn v + 2. There are as many of them as large slots, and enough small slots for the rest, so each
pod of kind 0 on a large node costs another pod its place: greedy choices lose. The optimum fills all large slots with
the pods that need them, and the best small slots with the rest. Pods come in random order; one that fits nowhere is
dropped.

`rack`: one decision an episode that earns 1 minus the mean v of the nodes in the chosen node's rack. No node's own
features tell it, so a network must look along the racks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from steersman.core.errors import UsageError

VARIANTS = ("match", "reserve", "rack")
GRID = 4  # values are multiples of a quarter, so that a nearly right network is exactly right
KINDS = 4
SLOTS = 2  # a node's most
FULL = 0.3  # in `match`: the share of nodes without a free slot
LARGE_BONUS = 0.5
RARE_BONUS = 2.0
PENALTY = -1.0  # for an action outside the mask, which places nothing
RACK_SIZE = 2
NODE_FEATURES, CONTEXT_FEATURES = 5, 4

Observation = dict[str, npt.NDArray[Any]]
Act = Callable[[Observation], npt.NDArray[np.int64]]


class ToyVectorEnv(VectorEnv[Observation, npt.NDArray[np.int64], npt.NDArray[Any]]):
    """`num_envs` independent copies, stepped together; an episode that ends starts again in the same step.

    Args:
        num_envs: E, the number of copies.
        variant: `match`, `reserve` or `rack`.
        nodes: how many nodes there are.
        max_nodes: N, the rows of the observation; those past `nodes` are zero and masked. None: as many as nodes.
        limit: decisions after which an episode is truncated, or None.

    The observation: `nodes` [E, N, 5] (present, large, free slots before and after in units of 2, value), `pod` [E, 4]
    (one-hot kind), `context` [E, 4] (pods of kind 0 and others still to come, free slots of small and of large nodes,
    as shares of all slots there can be), `mask` [E, N], `groups` [E, N, 2] (rack and server, -1: no node).

    Raises:
        UsageError: the variant is unknown, or `nodes` or `max_nodes` are out of range.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int = 16,
        variant: str = "reserve",
        nodes: int = 6,
        max_nodes: int | None = None,
        limit: int | None = None,
    ) -> None:
        if variant not in VARIANTS:
            raise UsageError(f"unknown toy environment {variant!r}; known are {', '.join(VARIANTS)}")
        rows = nodes if max_nodes is None else max_nodes
        if not 2 <= nodes <= rows:
            raise UsageError(f"{nodes} nodes in {rows} rows do not work; expected 2 nodes or more, and a row for each")
        self.num_envs, self.variant, self.nodes, self.rows, self.limit = num_envs, variant, nodes, rows, limit
        self.commons = nodes - nodes // 2  # the pods of kind 0 in `reserve`: as many as small nodes
        self.length = 1 if variant != "reserve" else self.commons + SLOTS * (nodes // 2)
        self.single_observation_space = spaces.Dict(
            {
                "nodes": spaces.Box(0.0, 1.0, (rows, NODE_FEATURES), np.float32),
                "pod": spaces.Box(0.0, 1.0, (KINDS,), np.float32),
                "context": spaces.Box(0.0, 1.0, (CONTEXT_FEATURES,), np.float32),
                "mask": spaces.Box(0, 1, (rows,), np.int8),
                "groups": spaces.Box(-1, rows, (rows, 2), np.int32),
            }
        )
        self.single_action_space = spaces.Discrete(rows)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rng = np.random.default_rng(0)
        self._value = np.zeros((num_envs, nodes))
        self._large = np.zeros((num_envs, nodes), np.bool_)
        self._free = np.zeros((num_envs, nodes), np.int64)
        self._queue = np.full((num_envs, self.length), -1)
        self._next = np.zeros(num_envs, np.int64)  # the place in the queue of the pod that is asked for
        self._decisions = np.zeros(num_envs, np.int64)
        self._return = np.zeros(num_envs)
        self._optimum = np.zeros(num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draw a new instance for each copy; the same seed gives the same instances."""
        if seed is not None:
            self._rng = np.random.default_rng([0 if s is None else s for s in seed] if isinstance(seed, list) else seed)
        self._draw(np.arange(self.num_envs))
        return self._observe(), {}

    def step(
        self, actions: npt.NDArray[np.int64]
    ) -> tuple[Observation, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]:
        """Place each copy's pod on the chosen node, an index [E].

        Returns:
            Observation, rewards [E], terminated [E], truncated [E] and infos. Where an episode ended, infos hold
            `final_obs`, and `episode_return` and `optimum` with their masks.
        """
        copies, actions = np.arange(self.num_envs), np.asarray(actions, np.int64)
        legal = self._mask()[copies, actions]
        node = np.where(legal, actions, 0)
        rewards = np.where(legal, self._worth()[copies, node], PENALTY)
        self._free[copies, node] -= legal
        self._next += 1
        self._decisions += 1
        self._return += rewards
        self._drop_hopeless()
        terminated = ~self._waiting()
        truncated = ~terminated & (self._decisions >= self.limit) if self.limit else np.zeros_like(terminated)
        infos: dict[str, Any] = {}
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            last, final = self._observe(), np.full(self.num_envs, None, dtype=object)
            for copy in ended:
                final[copy] = {name: array[copy] for name, array in last.items()}
            over = terminated | truncated
            infos = {"final_obs": final, "episode_return": self._return.copy(), "optimum": self._optimum.copy()}
            infos |= {f"_{name}": over for name in list(infos)}
            self._draw(ended)
        return self._observe(), rewards, terminated, truncated, infos

    def heuristic(self) -> npt.NDArray[np.int64]:
        """[E] an optimal action: the node that earns most, but pods of kind 0 leave large nodes alone if they can."""
        worth = self._worth() - 10.0 * (self._large & (self._kind() == 0)[:, None] & (self.variant == "reserve"))
        best: npt.NDArray[np.int64] = np.where(self._mask()[:, : self.nodes], worth, -np.inf).argmax(1)
        return best

    def greedy(self) -> npt.NDArray[np.int64]:
        """[E] the action that earns most at once."""
        best: npt.NDArray[np.int64] = np.where(self._mask()[:, : self.nodes], self._worth(), -np.inf).argmax(1)
        return best

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Everything that later steps depend on, as arrays."""
        state = json.dumps(self._rng.bit_generator.state).encode()
        arrays = {name: getattr(self, f"_{name}").copy() for name in self._ARRAYS}
        return arrays | {"rng": np.frombuffer(state, np.uint8).copy()}

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue from a snapshot of an environment with the same arguments."""
        for name in self._ARRAYS:
            getattr(self, f"_{name}")[...] = snapshot[name]
        self._rng.bit_generator.state = json.loads(bytes(snapshot["rng"]))

    _ARRAYS = ("value", "large", "free", "queue", "next", "decisions", "return", "optimum")

    def _draw(self, copies: npt.NDArray[np.int64]) -> None:
        """Draw new instances for these copies."""
        shape, rng = (len(copies), self.nodes), self._rng
        value = rng.integers(0, GRID + 1, shape) / GRID
        if self.variant == "reserve":
            large = rng.permuted(np.broadcast_to(np.arange(self.nodes) < self.nodes // 2, shape), axis=1)
            free = rng.integers(1, SLOTS + 1, shape)
            rares = (free * large).sum(1, keepdims=True)
            place = np.arange(self.length)
            queue = np.where(place < self.commons, 0, rng.integers(1, KINDS, (len(copies), self.length)))
            order = np.where(place < self.commons + rares, rng.random(queue.shape), 2.0)  # the surplus goes last
            queue = np.where(place < self.commons + rares, queue, -1)
            queue = np.take_along_axis(queue, order.argsort(1), 1)
            optimum = [_reserve_optimum(*one, self.commons) for one in zip(value, large, free, strict=True)]
            self._optimum[copies] = optimum
        else:
            large = np.zeros(shape, np.bool_)
            free = (rng.random(shape) >= FULL).astype(np.int64) if self.variant == "match" else np.ones(shape, np.int64)
            free[np.arange(len(copies)), rng.integers(0, self.nodes, len(copies))] = 1
            queue = rng.integers(0, KINDS, (len(copies), 1))
        self._value[copies], self._large[copies], self._free[copies], self._queue[copies] = value, large, free, queue
        self._next[copies], self._decisions[copies], self._return[copies] = 0, 0, 0.0
        if self.variant != "reserve":
            worth = np.where(self._mask()[:, : self.nodes], self._worth(), -np.inf)
            self._optimum[copies] = worth.max(1)[copies]

    def _waiting(self) -> npt.NDArray[np.bool_]:
        kinds = self._queue[np.arange(self.num_envs), np.minimum(self._next, self.length - 1)]
        return (self._next < self.length) & (kinds >= 0)

    def _kind(self) -> npt.NDArray[np.int64]:
        """[E] the kind of the pod that is asked for; 0 after the last."""
        kinds = self._queue[np.arange(self.num_envs), np.minimum(self._next, self.length - 1)]
        return np.where(self._waiting(), kinds, 0)

    def _mask(self) -> npt.NDArray[np.bool_]:
        """[E, N] where the pod fits; nowhere after the last."""
        mask = np.zeros((self.num_envs, self.rows), np.bool_)
        mask[:, : self.nodes] = (self._free > 0) & self._waiting()[:, None]
        if self.variant == "reserve":
            mask[:, : self.nodes] &= self._large | (self._kind() == 0)[:, None]
        return mask

    def _worth(self) -> npt.NDArray[np.float64]:
        """[E, nodes] what placing the pod there earns."""
        kind, value = self._kind()[:, None], self._value
        if self.variant == "match":
            return np.where(kind % 2 == 0, value, 1.0 - value)
        if self.variant == "rack":
            rack = np.arange(self.nodes) // RACK_SIZE
            same = rack[:, None] == rack[None, :]
            mean: npt.NDArray[np.float64] = value @ (same / same.sum(0))
            return 1.0 - mean
        bonus = np.where(kind == 0, LARGE_BONUS * self._large, RARE_BONUS)
        return value + bonus

    def _drop_hopeless(self) -> None:
        while True:
            infeasible_classes = self._waiting() & ~self._mask().any(1)
            if not infeasible_classes.any():
                return
            self._next += infeasible_classes

    def _observe(self) -> Observation:
        mask, kind, size = self._mask(), self._kind(), self.nodes
        nodes = np.zeros((self.num_envs, self.rows, NODE_FEATURES), np.float32)
        nodes[:, :size, 0] = 1.0
        nodes[:, :size, 1] = self._large
        nodes[:, :size, 2] = self._free / SLOTS
        nodes[:, :size, 3] = (self._free - mask[:, :size]) / SLOTS
        nodes[:, :size, 4] = self._value
        pod = np.zeros((self.num_envs, KINDS), np.float32)
        pod[np.arange(self.num_envs), kind] = self._waiting()
        left = np.arange(self.length) >= self._next[:, None]
        counts = (
            (left & (self._queue == 0)).sum(1),
            (left & (self._queue > 0)).sum(1),
            (self._free * ~self._large).sum(1),
            (self._free * self._large).sum(1),
        )
        groups = np.full((self.num_envs, self.rows, 2), -1, np.int32)
        groups[:, :size, 0] = np.arange(size) // RACK_SIZE
        groups[:, :size, 1] = np.arange(size)
        return {
            "nodes": nodes,
            "pod": pod,
            "context": (np.stack(counts, 1) / (SLOTS * size)).astype(np.float32),
            "mask": mask.astype(np.int8),
            "groups": groups,
        }


def _reserve_optimum(
    value: npt.NDArray[np.float64], large: npt.NDArray[np.bool_], free: npt.NDArray[np.int64], commons: int
) -> float:
    """Return the most that `reserve` can earn on this instance [nodes]: every large slot for a pod that needs it."""
    slots = np.repeat(value[~large], free[~large])
    rare = ((value + RARE_BONUS) * free)[large].sum()
    return float(np.sort(slots)[::-1][:commons].sum() + rare)


def share_of_optimum(env: ToyVectorEnv, act: Act, episodes: int, seed: int) -> float:
    """Return what `act` (observations to actions [E]) earns in `episodes` or more, as a share of their optima."""
    observation, _ = env.reset(seed=seed)
    earned, possible, count = 0.0, 0.0, 0
    while count < episodes:
        observation, _, _, _, infos = env.step(act(observation))
        if "optimum" in infos:
            over = infos["_optimum"]
            earned += float(infos["episode_return"][over].sum())
            possible += float(infos["optimum"][over].sum())
            count += int(over.sum())
    return earned / possible
