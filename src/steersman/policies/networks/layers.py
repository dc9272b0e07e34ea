"""Network layers in NumPy, and the arrays of a policy file that they are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.core.errors import InputError

EPSILON = np.float32(1e-5)  # added to a variance by normalisation

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


@dataclass(frozen=True, eq=False, slots=True)
class Layer:
    """relu(norm(x W + b)) of rows."""

    weight: Array  # [inputs, outputs]
    bias: Array  # [outputs]
    # `scale`, `shift`: [outputs] of layer normalisation, None without.
    scale: Array | None
    shift: Array | None

    def apply(self, rows: Array) -> Array:
        """Map rows [M, inputs] to [M, outputs]."""
        return self.finish(rows @ self.weight + self.bias)

    def apply_joint(self, nodes: Array, shared: Array) -> Array:
        """Map rows [node, shared] to [M, outputs], where `shared` is equal in all rows."""
        split = nodes.shape[1]
        return self.finish(nodes @ self.weight[:split] + (shared @ self.weight[split:] + self.bias))

    def finish(self, rows: Array) -> Array:
        """Normalise rows [M, outputs] in place and apply the ReLU."""
        if self.scale is not None and self.shift is not None:
            normalise_rows(rows)
            rows *= self.scale
            rows += self.shift
        return np.maximum(rows, np.float32(0.0), out=rows)


def normalise_rows(rows: Array) -> None:
    """Normalise each row, [M, F], to mean 0 and variance 1 in place (Ba et al., "Layer Normalization", 2016)."""
    rows -= rows.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", rows, rows)[:, None] / np.float32(rows.shape[1])
    rows /= np.sqrt(variance + EPSILON)


def present(nodes: Array, mask: Flags) -> Flags:
    """Return [N] which rows are nodes."""
    result: Flags = nodes.any(axis=1) | mask
    return result


def first_best(scores: Array, nodes: Array) -> int:
    """Return the row with the best of the scores, [N], the first of equals.

    Equals are rows of `nodes`, [N, F], that are identical and score the same but for rounding: matrix products round
    rows differently by their position, which must not decide between nodes.
    """
    best = int(scores.argmax())
    near = np.flatnonzero(scores >= scores[best] - ROUNDING * max(1.0, abs(float(scores[best]))))
    return int(near[(nodes[near] == nodes[best]).all(axis=1).argmax()])


def first_bests(scores: Array, nodes: Array) -> npt.NDArray[np.int64]:
    """Return [E] the first best rows of E observations: scores [E, N] and nodes [E, N, F]."""
    return np.array([first_best(*each) for each in zip(scores, nodes, strict=True)], dtype=np.int64)


def masked_scores(mask: Flags, result: Array) -> Array:
    """Return [N] the scores found for the nodes of the mask, `MASKED` elsewhere."""
    scores = np.full(len(mask), MASKED, dtype=np.float32)
    scores[mask] = result
    return scores


def run_layers(layers: tuple[Layer, ...], rows: Array, shared: Array) -> Array:
    """Map rows [M, F], each followed by the `shared` numbers, through all layers."""
    rows = layers[0].apply_joint(rows, shared)
    for layer in layers[1:]:
        rows = layer.apply(rows)
    return rows


def single(array: npt.NDArray[Any]) -> Array:
    """Return the array in single precision."""
    return np.ascontiguousarray(array, dtype=np.float32)


def layers_of(arrays: Arrays, group: str, depth: int) -> tuple[Layer, ...]:
    """Return the layers `group.0` and following."""
    result = []
    for i in range(depth):
        norm = [arrays.get(f"{group}.{i}.norm.{part}") for part in ("weight", "bias")]
        scale, shift = (None if array is None else single(array) for array in norm)
        weight, bias = single(arrays[f"{group}.{i}.weight"].T), single(arrays[f"{group}.{i}.bias"])
        result.append(Layer(weight, bias, scale, shift))
    return tuple(result)


def head_of(arrays: Arrays) -> tuple[Array, Array]:
    """Return the weight, [H], and bias, [1], of a head."""
    return single(arrays["head.weight"][0]), single(arrays["head.bias"])
