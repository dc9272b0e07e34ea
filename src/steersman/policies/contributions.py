"""Parts of a preference: by how much a node's score would fall if one feature were as on another node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Contribution:
    """A feature's part in a preference of one node to another.

    Attributes:
        name: of the feature.
        value, other: on the preferred node, and on the other one.
        contribution: by how much the preferred node's score falls with the other one's value.
    """

    name: str
    value: float
    other: float
    contribution: float


def by_replacing(
    names: Sequence[str], row: Floats, other: Floats, score: Callable[[Floats], Floats]
) -> list[Contribution]:
    """Return by how much `score` of rows falls when one number of `row` at a time is as in `other`, if they differ."""
    differ = np.flatnonzero(row != other)
    replaced = np.repeat(row[None], 1 + len(differ), axis=0)
    replaced[1 + np.arange(len(differ)), differ] = other[differ]
    scores = score(replaced)
    return [
        Contribution(names[i], float(row[i]), float(other[i]), float(scores[0] - scores[1 + k]))
        for k, i in enumerate(differ.tolist())
    ]
