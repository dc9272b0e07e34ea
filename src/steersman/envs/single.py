"""The single form: one environment as a `gymnasium.Env`, over the same compiled code as the vector form."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from steersman.core.errors import UsageError
from steersman.envs.base import EnvCore, check_actions, observation_space
from steersman.envs.rendering import FRAME_RATE, draw, text

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
