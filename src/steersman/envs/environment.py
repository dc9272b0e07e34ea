"""Environments for Gymnasium, single and vector, over the same core: their steps, pictures and rollouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from steersman.core.errors import UsageError
from steersman.envs.base import Arrays, EnvCore, check_actions, observation_space, packed, unpack

FRAME_RATE = 4
BAR = 20
CELL, GAP = 32, 2  # pixels of a node's square, and between its bars
BARS = ("cpu", "memory", "gpu")
COLOURS = np.array(((66, 133, 196), (125, 184, 105), (224, 142, 54)), dtype=np.uint8)  # of the bars
BACKGROUND, ABSENT, FEASIBLE, FRAME = (
    np.array(colour, dtype=np.uint8) for colour in ((240, 242, 245), (255, 255, 255), (30, 30, 30), (208, 212, 218))
)


def text(core: EnvCore, e: int) -> str:
    """Return a line per node: whether the pod may run there (`>`), its name, and bars of CPU, memory and GPU in use."""
    lines = [f"  {'node':<24}{'cpu':<{BAR + 7}}{'memory':<{BAR + 7}}gpu"]
    mask = core.observation.mask[e]
    for slot, (name, loads) in enumerate(zip(core.names(e), core.loads(e), strict=True)):
        bars = "".join(f"{_bar(load):<{BAR + 7}}" for load in loads)
        lines.append(f"{'>' if mask[slot] else ' '} {name[:22]:<24}{bars}".rstrip())
    return "\n".join(lines)


def draw(core: EnvCore, e: int) -> npt.NDArray[np.uint8]:
    """Return [H, W, 3] an image with a square per node: bars of CPU (blue), memory (green) and GPU (orange) in use.

    A node on which the current pod fits has a dark frame.
    """
    loads, mask = core.loads(e), core.observation.mask[e]
    columns = max(1, round(math.sqrt(2 * core.max_nodes)))
    rows = -(-core.max_nodes // columns)
    picture = np.tile(ABSENT, (rows * CELL, columns * CELL, 1))
    width = (CELL - 2 * GAP) // len(BARS)
    for slot, node in enumerate(loads):
        y, x = CELL * (slot // columns), CELL * (slot % columns)
        square = picture[y : y + CELL - 1, x : x + CELL - 1]
        square[:] = FEASIBLE if mask[slot] else FRAME
        inside = square[1:-1, 1:-1]
        inside[:] = BACKGROUND
        for i, load in enumerate(np.nan_to_num(node)):
            height = math.ceil(float(np.clip(load, 0.0, 1.0)) * len(inside))  # any use is seen
            left = GAP - 1 + i * width
            inside[len(inside) - height :, left : left + width - 1] = COLOURS[i]
    return picture


def _bar(load: float) -> str:
    if np.isnan(load):
        return "-"
    return f"{'#' * round(BAR * load):.<{BAR}} {100 * load:3.0f}%"


Observation = dict[str, npt.NDArray[Any]]


class SchedulingEnv(gymnasium.Env[Observation, np.int64]):
    """Pods arrive, and an agent chooses the node of each.

    Observation (`gymnasium.spaces.Dict`): `nodes` [N, F], `pod` [P] and `context` [X] float32 by the view
    (`steersman.policies.features`), `mask` [N] int8 (where the pod may run), `groups` [N, 2] int32 (index of the node's
    rack and server, -1: none).
    Action: a node's slot, 0 to N - 1; its GPU devices are chosen by the best-fit rule. An illegal action changes
    nothing and costs the penalty. An episode is terminated when the workload ends and truncated at the limit of steps.

    Args:
        core: one environment.
        render_mode: `ansi` (text) or `rgb_array` (an image).
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": FRAME_RATE}  # noqa: RUF012 (gymnasium's way)

    def __init__(self, core: EnvCore, *, render_mode: str | None = None) -> None:
        if render_mode not in (None, "ansi", "rgb_array"):
            raise UsageError(f"render_mode {render_mode!r} is unknown; there are ansi and rgb_array")
        self.core, self.render_mode = core, render_mode
        space: Any = observation_space(core.view, core.max_nodes)  # gymnasium's types of it change with its version
        self.observation_space = space
        self.action_space = spaces.Discrete(core.max_nodes)
        self._has_ended = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a new episode. Raises UsageError: an option is unknown or out of range."""
        super().reset(seed=seed)
        self.core.start(0, self.np_random, options or {})
        self._has_ended = False
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Bind the pod to a node.

        Raises:
            UsageError: the action is not a slot of the action space, or no episode is under way.
        """
        if self._has_ended:
            raise UsageError("no episode is under way; call reset() first")
        core = self.core
        core.step(check_actions(np.asarray(action).reshape(1), core.max_nodes))
        self._has_ended = bool(core.terminated[0] or core.truncated[0])
        infos = {name: array[0].item() for name, array in core.infos().items()}
        return self._observe(), float(core.rewards[0]), bool(core.terminated[0]), bool(core.truncated[0]), infos

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return [N] which actions are legal now."""
        legal: npt.NDArray[np.bool_] = self.core.observation.mask[0].astype(np.bool_)
        return legal

    def heuristic(self, rule: str) -> int:
        """Return what a heuristic (`fgd`, `best-fit`, ...) would do now. Raises UsageError: there is none."""
        return int(self.core.rule_actions(rule)[0])

    def render(self) -> Any:
        """Return text or an image of the nodes, by `render_mode`."""
        if self.render_mode is None:
            return None
        return text(self.core, 0) if self.render_mode == "ansi" else draw(self.core, 0)

    def _observe(self) -> Observation:
        return {name: buffer[0].copy() for name, buffer in self.core.observed().items()}


Observations = dict[str, npt.NDArray[Any]]


class SteersmanVectorEnv(VectorEnv[Observations, npt.NDArray[np.int64], npt.NDArray[Any]]):
    """E environments as one `gymnasium.vector.VectorEnv`.

    An environment whose episode ended is reset in the same step: the returned observation is the new episode's first
    one, and `infos["final_obs"]`, `infos["final_info"]` hold the ended one's last (masks: the same names with a `_`
    prefix). Environment i of a vector reset with seed s runs as a single one reset with seed s + i.

    Args:
        core: the environments.
        copy: whether observations are copies. False returns views of the buffers that the next step writes to
            (zero-copy mode): fast, but use or copy them before that step.
        render_mode: `ansi` or `rgb_array`, one frame per environment.
    """

    def __init__(self, core: EnvCore, *, copy: bool = True, render_mode: str | None = None) -> None:
        self.metadata = {
            "autoreset_mode": AutoresetMode.SAME_STEP,
            "render_modes": ["ansi", "rgb_array"],
            "render_fps": FRAME_RATE,
        }
        self.core, self.num_envs, self.copy, self.render_mode = core, core.count, copy, render_mode
        self.single_observation_space = observation_space(core.view, core.max_nodes)
        self.single_action_space = spaces.Discrete(core.max_nodes)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._random = [seeding.np_random()[0] for _ in range(self.num_envs)]
        self._buffers = core.observed()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Begin new episodes, in all environments or in those of `options["reset_mask"]`, [E] bool.

        Raises:
            UsageError: an option is unknown or invalid, or the number of seeds is not that of environments.
        """
        rest = dict(options or {})
        chosen = np.asarray(rest.pop("reset_mask", np.ones(self.num_envs)), dtype=np.bool_)
        seeds = _seeds(seed, self.num_envs)
        if chosen.shape != (self.num_envs,):
            raise UsageError(f"reset_mask has the shape {chosen.shape}; expected ({self.num_envs},)")
        # Only an integer seeds the vector's own generator, which nothing here draws from.
        if seed is not None and isinstance(seed, int):
            super().reset(seed=seed)
        for e in np.flatnonzero(chosen).tolist():
            if seeds[e] is not None:
                self._random[e] = seeding.np_random(seeds[e])[0]
            self.core.start(e, self._random[e], rest)
        return self._observe(), {}

    def step(
        self, actions: npt.NDArray[np.int64]
    ) -> tuple[Observations, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]:
        """Take an action, [E], in every environment.

        Raises:
            UsageError: there is not one action for each, or one is not a slot of the action space.
        """
        chosen = check_actions(np.asarray(actions), self.core.max_nodes)
        if chosen.shape != (self.num_envs,):
            raise UsageError(f"actions have the shape {chosen.shape}; expected ({self.num_envs},)")
        core = self.core
        core.step(chosen)
        # Before the resets below, which overwrite the state that these are about.
        infos = _with_masks(core.infos(), np.ones(self.num_envs, dtype=np.bool_))
        ended = core.terminated | core.truncated
        if ended.any():
            final = np.full(self.num_envs, None, dtype=object)
            # All last observations are copied before any reset.
            for e in np.flatnonzero(ended).tolist():
                final[e] = {name: buffer[e].copy() for name, buffer in self._buffers.items()}
            infos["final_info"] = _with_masks(core.infos(), ended)
            infos |= {"final_obs": final, "_final_obs": ended, "_final_info": ended}
            for e in np.flatnonzero(ended).tolist():
                # Without options: an automatic reset draws what the options of the last `reset` had fixed.
                core.start(e, self._random[e], {})
        return self._observe(), core.rewards.copy(), core.terminated.copy(), core.truncated.copy(), infos

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return [E, N] which actions are legal now."""
        return self.core.observation.mask.astype(np.bool_)

    def heuristic(self, rule: str) -> npt.NDArray[np.int64]:
        """Return [E] what a heuristic (`fgd`, `best-fit`, ...) would do now. Raises UsageError: there is none."""
        return self.core.rule_actions(rule)

    def snapshot(self) -> Arrays:
        """Return copies of everything that the next steps depend on, for `restore`."""
        return {name: array.copy() for name, array in self.core.state().items()} | {"random": packed(self._random)}

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> Observations:
        """Return exactly to a snapshot of an environment made with the same arguments; return its observation."""
        unpack(self._random, snapshot["random"])
        self.core.restore(snapshot)
        return self._observe()

    def render(self) -> tuple[Any, ...] | None:
        """Return text or an image of every environment's nodes, by `render_mode`."""
        if self.render_mode is None:
            return None
        show = text if self.render_mode == "ansi" else draw
        return tuple(show(self.core, e) for e in range(self.num_envs))

    def _observe(self) -> Observations:
        return {name: buffer.copy() if self.copy else buffer for name, buffer in self._buffers.items()}


def _with_masks(infos: Arrays, which: npt.NDArray[np.bool_]) -> dict[str, Any]:
    return infos | {f"_{name}": which for name in infos}


def _seeds(seed: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    if seed is None:
        return [None] * count
    if isinstance(seed, int):
        return [seed + e for e in range(count)]
    if len(seed) != count:
        raise UsageError(f"{len(seed)} seeds were given for {count} environments")
    return list(seed)


Chooser = Callable[[Mapping[str, npt.NDArray[Any]]], npt.NDArray[np.int64]]
"""Map the observations of E environments, as a vector environment gives them, to E actions."""

Figures = dict[str, npt.NDArray[np.float64]]  # [E] metrics of each episode by name

RETURN = "return"


def play(
    core: EnvCore, policy: str | Chooser, starts: Sequence[Mapping[str, Any]], figures: Callable[[], Arrays]
) -> Figures:
    """Run one episode in every environment; return metrics of each, and `return`, the sum of its rewards.

    `policy` is a rule's name, or a function that chooses actions. The options of each start name a seed: no other
    randomness matters. `figures` returns [E] metrics by name; it is called when an episode ends.
    """
    rng = np.random.default_rng(0)
    for e, options in enumerate(starts):
        core.start(e, rng, options)
    going, returned = np.ones(core.count, dtype=np.bool_), np.zeros(core.count)
    result: Figures = {}
    while going.any():
        core.step(core.rule_actions(policy) if isinstance(policy, str) else policy(core.observed()))
        returned += np.where(going, core.rewards, 0.0)
        ended = core.terminated | core.truncated
        first = ended & going
        if first.any():
            for name, values in figures().items():
                result.setdefault(name, np.zeros(core.count))[first] = values[first]
        going &= ~ended
        for e in np.flatnonzero(ended).tolist():  # all step together: those that have ended go on, unobserved
            core.start(e, rng, starts[e])
    return result | {RETURN: returned}
