"""Inference of networks with NumPy alone: scores of nodes from the arrays of a policy file.

`steersman.agents.networks.score_networks` defines what each network computes and the names of its arrays, and trains
them; graph networks are in `policies.networks.graph_network`. Inference has one observation and no gradients: rows of
the feasible nodes go through matrix products, and inputs that are equal for all nodes (the pod, the cluster) are
multiplied once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from steersman.core.errors import InputError, UsageError
from steersman.policies.features import POD_KINDS, View
from steersman.policies.networks.layers import (
    Array,
    Arrays,
    Flags,
    Layer,
    Shapes,
    check_arrays,
    dense_shapes,
    head_of,
    head_shapes,
    layers_of,
    masked_scores,
    present,
    run_layers,
    single,
)
from steersman.policies.networks.registry import find_network, network_names

NORMALISATIONS = ("none", "layer", "batch")


class Network(Protocol):
    """Score nodes for a pod."""

    def scores(self, nodes: Array, pod: Array, context: Array, mask: Flags, groups: npt.NDArray[np.int32]) -> Array:
        """Return [N] float32 scores, `MASKED` where the mask forbids; `MASKED` is below every other score.

        Args:
            nodes: [N, Fn] features of each node; a masked row of zeros is not a node.
            pod: [Fp].
            context: [Fc].
            mask: [N] where the pod may run.
            groups: [N, 2] index of the node's rack and server, -1: none; only graph networks read it.
        """


def joint_size(view: View) -> int:
    """Return the number of features of a node, the pod and the cluster together."""
    return len(view.node) + len(view.pod) + len(view.context)


def open_network(
    file: str, name: str, view: View, hidden: tuple[int, ...], normalisation: str, arrays: Arrays
) -> Network:
    """Return the network of a name from its arrays, which `agents.networks.score_networks.export` names.

    Args:
        normalisation: `none`, `layer` or `batch` (which is folded into the weights, except of a `gnn`).

    Raises:
        InputError: there is no such network, or an array is missing, of another shape, or unknown.
    """
    check_network(file, name, hidden, normalisation)
    network: Network = find_network(name).load_opener()(file, view, hidden, normalisation, arrays)
    return network


def open_linear(file: str, view: View, _hidden: tuple[int, ...], _normalisation: str, arrays: Arrays) -> Linear:
    """Return a linear network, see `open_network`."""
    check_arrays(file, {"head.weight": (POD_KINDS, joint_size(view)), "head.bias": (POD_KINDS,)}, arrays)
    return Linear(single(arrays["head.weight"]), single(arrays["head.bias"]), len(view.node))


def open_mlp(file: str, view: View, hidden: tuple[int, ...], normalisation: str, arrays: Arrays) -> Mlp:
    """Return an MLP, see `open_network`."""
    check_arrays(file, mlp_shapes(joint_size(view), hidden, normalisation), arrays)
    return Mlp(layers_of(arrays, "layers", len(hidden)), head_of(arrays))


def open_deepsets(file: str, view: View, hidden: tuple[int, ...], normalisation: str, arrays: Arrays) -> DeepSets:
    """Return a DeepSets network, see `open_network`."""
    phi = dense_shapes("phi", joint_size(view), hidden, normalisation)
    rho = dense_shapes("rho", 2 * hidden[-1], hidden, normalisation)
    check_arrays(file, phi | rho | head_shapes(hidden[-1]), arrays)
    depth = len(hidden)
    return DeepSets(layers_of(arrays, "phi", depth), layers_of(arrays, "rho", depth), head_of(arrays))


def check_network(file: str, name: str, hidden: tuple[int, ...], normalisation: str) -> None:
    """Check that there is such a network with such layers. Raises InputError: see `open_network`."""
    try:
        spec = find_network(name)
    except UsageError:
        raise InputError(file, "card", "network", f"is {name!r}; known are {', '.join(network_names())}") from None
    if normalisation not in NORMALISATIONS:
        raise InputError(file, "card", "normalisation", f"is {normalisation!r}; known are {', '.join(NORMALISATIONS)}")
    if spec.has_layers and (not hidden or min(hidden) < 1):
        raise InputError(file, "card", "hidden", f"is {list(hidden)}; the network {name!r} has one layer or more")


def mlp_shapes(inputs: int, hidden: tuple[int, ...], normalisation: str) -> Shapes:
    """Return the shapes of an MLP from `inputs` numbers to a score."""
    return dense_shapes("layers", inputs, hidden, normalisation) | head_shapes(hidden[-1])


@dataclass(frozen=True, eq=False, slots=True)
class Linear:
    """w_k . x + b_k by the kind k of the pod; weight: [4, F], bias: [4], of which `node` features are a node's."""

    weight: Array
    bias: Array
    node: int

    def scores(self, nodes: Array, pod: Array, context: Array, mask: Flags, groups: npt.NDArray[np.int32]) -> Array:
        # The one-hot kind picks one row: [4] @ [4, F].
        kind = pod[:POD_KINDS]
        weight, bias = kind @ self.weight, kind @ self.bias
        shared = weight[self.node :] @ np.concatenate([pod, context]) + bias
        return masked_scores(mask, nodes[mask] @ weight[: self.node] + shared)


@dataclass(frozen=True, eq=False, slots=True)
class Mlp:
    """head(layers(x)); head: weight [H] and bias [1]."""

    layers: tuple[Layer, ...]
    head: tuple[Array, Array]

    def scores(self, nodes: Array, pod: Array, context: Array, mask: Flags, groups: npt.NDArray[np.int32]) -> Array:
        rows = run_layers(self.layers, nodes[mask], np.concatenate([pod, context]))
        return masked_scores(mask, rows @ self.head[0] + self.head[1])


@dataclass(frozen=True, eq=False, slots=True)
class DeepSets:
    """head(rho([phi(x), the mean of phi over all nodes]))."""

    phi: tuple[Layer, ...]
    rho: tuple[Layer, ...]
    head: tuple[Array, Array]

    def scores(self, nodes: Array, pod: Array, context: Array, mask: Flags, groups: npt.NDArray[np.int32]) -> Array:
        here = present(nodes, mask)
        phi = run_layers(self.phi, nodes[here], np.concatenate([pod, context]))
        mean = phi.mean(axis=0) if len(phi) else np.zeros(phi.shape[1], dtype=np.float32)
        rows = run_layers(self.rho, phi[mask[here]], mean)
        return masked_scores(mask, rows @ self.head[0] + self.head[1])
