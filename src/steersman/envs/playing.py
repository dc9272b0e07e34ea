"""Playing environments without learning: one episode in each, by a rule or by a function that chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.envs.core import Arrays, Core

Chooser = Callable[[Mapping[str, npt.NDArray[Any]]], npt.NDArray[np.int64]]
"""From the observations of E environments, as a vector environment gives them, to E actions."""

Figures = dict[str, npt.NDArray[np.float64]]
"""[E] by name: what each episode came to."""

RETURN = "return"


def play(
    core: Core, policy: str | Chooser, starts: Sequence[Mapping[str, Any]], figures: Callable[[], Arrays]
) -> Figures:
    """Play one episode in every environment.

    Args:
        core: E environments.
        policy: a rule's name, or what chooses actions.
        starts: the options that each begins with; they name a seed, so that no other randomness matters.
        figures: gives [E] numbers by name, which are read when an episode ends.

    Returns:
        The figures of each episode, and `return`, the sum of its rewards.

    Raises:
        UsageError: there is no such rule, or an option is wrong.
    """
    rng = np.random.default_rng(0)
    for e, options in enumerate(starts):
        core.start(e, rng, options)
    going, returned = np.ones(core.count, dtype=np.bool_), np.zeros(core.count)
    found: Figures = {}
    while going.any():
        core.step(core.rule_actions(policy) if isinstance(policy, str) else policy(core.observed()))
        returned += np.where(going, core.rewards, 0.0)
        ended = core.terminated | core.truncated
        first = ended & going
        if first.any():
            for name, values in figures().items():
                found.setdefault(name, np.zeros(core.count))[first] = values[first]
        going &= ~ended
        for e in np.flatnonzero(ended).tolist():  # all step together: those that are over play on, unobserved
            core.start(e, rng, starts[e])
    return found | {RETURN: returned}
