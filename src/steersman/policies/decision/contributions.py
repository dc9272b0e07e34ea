"""Feature contributions: the fall of a node's score if one feature had another node's value (occlusion)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Contribution:
    """Contribution of one feature to the preference of one node over another."""

    name: str  # the feature's name
    # `value`, `other`: its values on the preferred and on the other node.
    value: float
    other: float
    contribution: float  # fall of the preferred node's score with the other node's value


def occlusion_contributions(
    names: Sequence[str], row: Floats, other: Floats, score: Callable[[Floats], Floats]
) -> list[Contribution]:
    """Return the contribution of every feature that differs between two nodes.

    Args:
        names: the features' names.
        row: [F] features of the preferred node.
        other: [F] features of the other node.
        score: the scores, [B], of feature rows, [B, F].
    """
    differ = np.flatnonzero(row != other)
    # Row 0 is the unchanged one; row 1 + k has the other node's value of the k-th feature that differs.
    replaced = np.repeat(row[None], 1 + len(differ), axis=0)
    replaced[1 + np.arange(len(differ)), differ] = other[differ]
    scores = score(replaced)
    return [
        Contribution(names[i], float(row[i]), float(other[i]), float(scores[0] - scores[1 + k]))
        for k, i in enumerate(differ.tolist())
    ]
