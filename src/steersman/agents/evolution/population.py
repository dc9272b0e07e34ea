"""Many networks of one shape at once, in NumPy: their weights side by side, and each one's scores for its own pods.

The networks are those of `agents.networks.score_networks` (which defines what each computes), in the layout of its
`export`, and without normalisation. C networks with K observations each take one matrix product per layer, [C, K N, F]
by [C, F, H].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.agents.networks.spec import NetworkConfig
from steersman.core.errors import UsageError
from steersman.policies.features import POD_KINDS
from steersman.policies.networks.layers import MASKED, Shapes, dense_shapes, head_shapes

Array = npt.NDArray[np.float32]
Weights = dict[str, Array]  # by the names of `agents.networks.score_networks.export`; of C networks, [C, ...]
Observation = Mapping[str, npt.NDArray[Any]]

INPUTS = {"linear": "head", "mlp": "layers.0", "deepsets": "phi.0"}
"""Networks that can evolve, and the layer that takes the features."""


def shapes_of(spec: NetworkConfig) -> Shapes:
    """Return the shape of each array of one network by name.

    Raises:
        UsageError: NumPy does not compute this network, or not many at once.
    """
    if spec.name not in INPUTS:
        raise UsageError(f"network {spec.name!r} does not evolve in episodes; {', '.join(INPUTS)} do")
    if spec.normalisation != "none" or spec.dropout:
        raise UsageError("evolution has no use for normalisation and dropout; leave them out")
    joint, hidden = spec.sizes.joint, spec.hidden
    if spec.name == "linear":
        return {"head.weight": (POD_KINDS, joint), "head.bias": (POD_KINDS,)}
    if spec.name == "mlp":
        return dense_shapes("layers", joint, hidden, "none") | head_shapes(hidden[-1])
    rho = dense_shapes("rho", 2 * hidden[-1], hidden, "none")
    return dense_shapes("phi", joint, hidden, "none") | rho | head_shapes(hidden[-1])


def first_weights(spec: NetworkConfig, rng: np.random.Generator) -> Weights:
    """Return initial weights of one network: zero for `linear`, else normal with variance 2 / inputs.

    Source: He et al., "Delving Deep into Rectifiers", ICCV 2015. Biases are zero.
    """
    weights = {}
    for name, shape in shapes_of(spec).items():
        zero = spec.name == "linear" or name.endswith("bias")
        scale = 0.0 if zero else np.sqrt(2.0 / shape[-1])
        weights[name] = (scale * rng.standard_normal(shape)).astype(np.float32)
    return weights


class Population:
    """C networks. `spec`: configuration of each network; `weights`: of all of them, [C, ...] by name."""

    def __init__(self, spec: NetworkConfig, weights: Mapping[str, npt.NDArray[Any]]) -> None:
        shapes = shapes_of(spec)
        self.spec = spec
        self.weights = {name: np.ascontiguousarray(weights[name], dtype=np.float32) for name in shapes}
        self.count = len(self.weights["head.bias"])

    def choose(self, observation: Observation) -> npt.NDArray[np.int64]:
        """Return [C K] the best node of each observation, the first of equals; the first K are the first network's."""
        best: npt.NDArray[np.int64] = self.scores(observation).argmax(axis=1)
        return best

    def scores(self, observation: Observation) -> Array:
        """Return [C K, N] scores of observations of C K environments; `MASKED` where the mask forbids."""
        nodes, mask = observation["nodes"], observation["mask"] > 0
        environments, rows, _ = nodes.shape
        shared = np.concatenate([observation["pod"], observation["context"]], axis=1)
        if self.spec.name == "linear":
            raw = self._linear(nodes, shared)
        elif self.spec.name == "mlp":
            raw = self._head(self._dense("layers", self._joint(nodes, shared)))
        else:
            raw = self._deep_sets(nodes, shared, mask)
        scores: Array = np.where(mask, raw.reshape(environments, rows), MASKED)
        return scores

    def _linear(self, nodes: Array, shared: Array) -> Array:
        """Return [E, N] w_k . x + b_k, k the kind of each pod."""
        # [E, 4] to [C, K, 4]; environments are ordered by network.
        kind = shared[:, :POD_KINDS].reshape(self.count, -1, POD_KINDS)
        # The one-hot kind picks one row: [C, K, 4] @ [C, 4, F] to [E, F].
        weight = (kind @ self.weights["head.weight"]).reshape(len(nodes), -1)
        bias = (kind @ self.weights["head.bias"][:, :, None]).reshape(len(nodes), 1)
        split = nodes.shape[2]
        result: Array = (nodes @ weight[:, :split, None])[:, :, 0]
        result += (shared * weight[:, split:]).sum(axis=1, keepdims=True) + bias
        return result

    def _joint(self, nodes: Array, shared: Array) -> Array:
        """Return [C, K, N, H] of the first layer, relu(W x + b); inputs equal for all nodes are multiplied once."""
        first, (environments, rows, split) = INPUTS[self.spec.name], nodes.shape
        weight, bias = self.weights[f"{first}.weight"], self.weights[f"{first}.bias"]
        own = nodes.reshape(self.count, -1, split) @ weight[:, :, :split].transpose(0, 2, 1)
        rest = shared.reshape(self.count, -1, shared.shape[1]) @ weight[:, :, split:].transpose(0, 2, 1)
        # [C, K N, H] to [C, K, N, H].
        hidden: Array = own.reshape(self.count, environments // self.count, rows, -1)
        hidden += (rest + bias[:, None, :])[:, :, None, :]
        np.maximum(hidden, np.float32(0.0), out=hidden)
        return hidden

    def _dense(self, group: str, hidden: Array, start: int = 1) -> Array:
        for i in range(start, len(self.spec.hidden)):
            weight, bias = self.weights[f"{group}.{i}.weight"], self.weights[f"{group}.{i}.bias"]
            hidden = hidden @ weight.transpose(0, 2, 1)[:, None]
            hidden += bias[:, None, None, :]
            np.maximum(hidden, np.float32(0.0), out=hidden)
        return hidden

    def _head(self, hidden: Array) -> Array:
        weight, bias = self.weights["head.weight"], self.weights["head.bias"]
        result: Array = hidden @ weight.transpose(0, 2, 1)[:, None] + bias[:, None, None, :]
        return result

    def _deep_sets(self, nodes: Array, shared: Array, mask: npt.NDArray[np.bool_]) -> Array:
        phi = self._dense("phi", self._joint(nodes, shared))
        # [C, K, N, 1]: a row of zeros that the mask forbids is padding, not a node.
        here = (mask | nodes.any(axis=2)).reshape(phi.shape[:3]).astype(np.float32)[..., None]
        mean = (phi * here).sum(axis=2, keepdims=True) / np.maximum(here.sum(axis=2, keepdims=True), 1.0)
        joined = np.concatenate([phi, np.broadcast_to(mean, phi.shape)], axis=3)
        return self._head(self._dense("rho", joined, start=0))
