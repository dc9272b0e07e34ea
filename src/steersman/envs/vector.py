"""The vector form: E environments in one set of contiguous buffers, stepped by one call of compiled code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from steersman.core.errors import UsageError
from steersman.envs.base import Arrays, EnvCore, check_actions, observation_space, packed, unpack
from steersman.envs.rendering import FRAME_RATE, draw, text

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
