"""Rollouts: a policy's latest decisions, their rewards and advantages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.agents.base import Step
from steersman.agents.networks.tensors import Actions, Arrays, take

Values = Callable[[Arrays], npt.NDArray[np.float32]]  # a critic: observations [B, ...] to values [B]


@dataclass(frozen=True, slots=True)
class Rollout:
    """T decisions in each of E environments, flattened to B = T E in that order."""

    observation: Arrays  # [B, ...]
    rows: Actions  # int64 [B] the rows that were chosen
    values: npt.NDArray[np.float32]  # float32 [B] the critic's values
    advantages: npt.NDArray[np.float32]  # float32 [B]
    targets: npt.NDArray[np.float32]  # float32 [B] targets of the critic


def rollout(steps: Sequence[Step], critic: Values, gamma: float, gae_lambda: float) -> Rollout:
    """Return consecutive steps with values and advantages by a critic."""
    shape = len(steps), len(steps[0].rows)
    observation = {name: np.concatenate([s.before[name] for s in steps]) for name in steps[0].before}
    terminated = np.stack([s.terminated for s in steps])
    truncated = np.stack([s.truncated for s in steps])
    values = critic(observation).reshape(shape)
    # The next observation is the next decision's, except where an episode was cut off and at the end of the rollout.
    following = np.concatenate([values[1:], np.zeros((1, shape[1]), np.float32)])
    # `apart`: where V(s_t+1) is not the value of the next row and has to be computed from `after`.
    apart = truncated.copy()
    apart[-1] |= ~terminated[-1]
    if apart.any():
        ends = [take(s.after, rows) for s, rows in zip(steps, apart, strict=True) if rows.any()]
        following[apart] = critic({name: np.concatenate([end[name] for end in ends]) for name in ends[0]})
    rewards = np.stack([s.reward for s in steps])
    advantages = generalised_advantages(rewards, values, following, terminated, truncated, gamma, gae_lambda)
    rows = np.concatenate([s.rows for s in steps])
    return Rollout(observation, rows, values.ravel(), advantages.ravel(), (advantages + values).ravel())


def generalised_advantages(
    rewards: npt.NDArray[np.float32],  # r_t
    values: npt.NDArray[np.float32],  # V(s_t)
    following: npt.NDArray[np.float32],  # V(s_t+1), of the observation before any reset
    terminated: npt.NDArray[np.bool_],  # where the episode has ended
    truncated: npt.NDArray[np.bool_],  # where it was cut off
    gamma: float,  # from 0 to 1
    gae_lambda: float,  # lambda, from 0 (one step, little variance) to 1 (to the end, no bias)
) -> npt.NDArray[np.float32]:
    """Return generalised advantage estimates (Schulman et al., ICLR 2016), all arrays [T, E].

        d_t = r_t + gamma V(s_t+1) - V(s_t),    A_t = d_t + gamma gae_lambda A_t+1

    After a terminated episode nothing follows, so V(s_t+1) counts as zero. After a truncated one V(s_t+1) counts, but
    the sum ends, for the next row belongs to another episode.
    """
    # TD residual d_t.
    delta = rewards + gamma * np.where(terminated, 0.0, following) - values
    # The factor gamma lambda of A_t+1, 0 at the last step of an episode.
    keep = gamma * gae_lambda * ~(terminated | truncated)
    advantages = np.zeros_like(rewards)
    running = np.zeros(rewards.shape[1])
    # Backwards, since A_t needs A_t+1; beyond the rollout's end it counts as 0.
    for t in range(len(rewards) - 1, -1, -1):
        running = delta[t] + keep[t] * running
        advantages[t] = running
    return advantages
