"""Run environments without learning: one episode in each, by a rule or by a function that chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.envs.base import Arrays, EnvCore

Chooser = Callable[[Mapping[str, npt.NDArray[Any]]], npt.NDArray[np.int64]]
"""Map the observations of E environments, as a vector environment gives them, to E actions."""

Figures = dict[str, npt.NDArray[np.float64]]
"""[E] metrics of each episode by name."""

RETURN = "return"


def play(
    core: EnvCore, policy: str | Chooser, starts: Sequence[Mapping[str, Any]], figures: Callable[[], Arrays]
) -> Figures:
    """Run one episode in every environment.

    Args:
        core: E environments.
        policy: a rule's name, or a function that chooses actions.
        starts: the options of each episode; they name a seed, so that no other randomness matters.
        figures: returns [E] metrics by name; it is called when an episode ends.

    Returns:
        The metrics of each episode, and `return`, the sum of its rewards.

    Raises:
        UsageError: there is no such rule, or an option is invalid.
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
