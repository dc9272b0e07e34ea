"""The arrays of networks in policy files, and the choice of the best of their scores."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.core.errors import InputError

MASKED = np.finfo(np.float32).min  # the score of a node that the pod does not fit on

ROUNDING = 1e-5  # largest difference between scores of equal nodes, relative to the best score and at least to 1

Array = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Arrays = Mapping[str, npt.NDArray[Any]]
Shapes = dict[str, tuple[int, ...]]


def check_arrays(file: str, shapes: Shapes, arrays: Arrays) -> None:
    """Check arrays against the shapes they must have.

    Raises:
        InputError: one is missing, of another shape, or unknown.
    """
    for name, shape in shapes.items():
        if name not in arrays:
            raise InputError(file, "tensor", name, f"is missing; expected {list(shape)}")
        if arrays[name].shape != shape:
            raise InputError(file, "tensor", name, f"is of shape {list(arrays[name].shape)}; expected {list(shape)}")
    for name in sorted(arrays.keys() - shapes.keys()):
        raise InputError(file, "tensor", name, "is not one of this network's")


def dense_shapes(group: str, inputs: int, hidden: tuple[int, ...], normalisation: str) -> Shapes:
    """Return the shapes of a stack of layers; folded batch normalisation has no arrays of its own."""
    shapes: Shapes = {}
    for i, (width, outputs) in enumerate(pairwise((inputs, *hidden))):
        shapes[f"{group}.{i}.weight"] = (outputs, width)
        shapes[f"{group}.{i}.bias"] = (outputs,)
        if normalisation == "layer":
            shapes[f"{group}.{i}.norm.weight"] = shapes[f"{group}.{i}.norm.bias"] = (outputs,)
    return shapes


def head_shapes(width: int) -> Shapes:
    """Return the shapes of a head that maps `width` numbers to a score."""
    return {"head.weight": (1, width), "head.bias": (1,)}


def first_best(scores: npt.NDArray[np.floating], nodes: Array) -> int:
    """Return the row with the best of the scores, [N], the first of equals.

    Equals are rows of `nodes`, [N, F], that are identical and score the same but for rounding: matrix products round
    rows differently by their position, which must not decide between nodes.
    """
    best = int(scores.argmax())
    near = np.flatnonzero(scores >= scores[best] - ROUNDING * max(1.0, abs(float(scores[best]))))
    return int(near[(nodes[near] == nodes[best]).all(axis=1).argmax()])


def first_bests(scores: npt.NDArray[np.floating], nodes: Array) -> npt.NDArray[np.int64]:
    """Return [E] the first best rows of E observations: scores [E, N] and nodes [E, N, F]."""
    return np.array([first_best(*each) for each in zip(scores, nodes, strict=True)], dtype=np.int64)
