"""Transitions to learn from without an environment, as a teacher makes them in one."""

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from steersman.agents.base import Teacher
from steersman.agents.buffers import Recording, flatten
from steersman.agents.networks.tensors import replace_rows, stack, take


def record(env: VectorEnv[Any, Any, Any], teacher: Teacher, decisions: int, seed: int) -> Recording:
    """What happens while a teacher plays for at least so many decisions."""
    observation, _ = env.reset(seed=seed)
    steps = []
    while len(steps) * env.num_envs < decisions:
        before, actions = take(observation, slice(None)), np.array(teacher(observation), np.int64)
        observation, reward, terminated, truncated, infos = env.step(actions)
        terminated, cut = np.array(terminated, np.bool_), np.array(truncated, np.bool_) & ~np.array(terminated)
        after = take(observation, slice(None))
        if cut.any():
            after = replace_rows(after, cut, stack([infos["final_obs"][copy] for copy in np.flatnonzero(cut)]))
        steps.append((before, actions, np.array(reward, np.float32), terminated, cut, after))
    before_all, actions_all, rewards, terminated_all, truncated_all, after_all = zip(*steps, strict=True)
    return Recording(
        {name: np.concatenate([one[name] for one in before_all]) for name in before_all[0]},
        np.concatenate(actions_all),
        np.concatenate(rewards),
        np.concatenate(terminated_all),
        np.concatenate(truncated_all),
        {name: np.concatenate([one[name] for one in after_all]) for name in after_all[0]},
    )


def save(recording: Recording, file: Path) -> None:
    """Write a recording as `Recording.load` reads it."""
    arrays = flatten("before", recording.before) | flatten("after", recording.after)
    arrays |= {name: getattr(recording, name) for name in ("actions", "rewards", "terminated", "truncated")}
    with file.open("wb") as out:
        np.savez_compressed(out, **arrays)
