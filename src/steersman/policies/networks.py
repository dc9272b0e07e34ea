"""Networks at work, in NumPy alone: scores of nodes from the arrays of a policy file.

What each network computes, and how its arrays are called, is said in `steersman.agents.networks`, which trains them;
graph networks are in `policies.graph_network`. Here are one observation and no gradients: rows of the feasible nodes go
through matrix products, and what is the same for all nodes (the pod, the cluster) is multiplied once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from steersman.errors import InputError, UsageError
from steersman.features import KINDS, View
from steersman.policies.layers import (
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
from steersman.policies.network_registry import find_network, network_names

NORMALISATIONS = ("none", "layer", "batch")


class Network(Protocol):
    """Scores nodes for a pod."""

    def scores(self, nodes: Array, pod: Array, context: Array, mask: Flags, groups: npt.NDArray[np.int32]) -> Array:
        """[N] float32, `MASKED` where the mask forbids; `MASKED` is below every other score.

        Args:
            nodes: [N, Fn] features of each node; a row of zeros that the mask forbids is no node.
            pod: [Fp].
            context: [Fc].
            mask: [N] where the pod may run.
            groups: [N, 2] index of the node's rack and server, -1: none; read by graph networks alone.
        """


def joint_size(view: View) -> int:
    """How many features a node, the pod and the cluster have together."""
    return len(view.node) + len(view.pod) + len(view.context)


def open_network(
    file: str, name: str, view: View, hidden: tuple[int, ...], normalisation: str, arrays: Arrays
) -> Network:
    """The network of that name from its arrays, which `agents.networks.export` names.

    Args:
        file: what errors name.
        name: of a registered network.
        view: what it sees.
        hidden: widths of its layers.
        normalisation: `none`, `layer` or `batch` (which is folded into the weights, except of a `gnn`).
        arrays: its weights.

    Raises:
        InputError: there is no such network, or an array is missing, of another shape, or not one of its own.
    """
    check_network(file, name, hidden, normalisation)
    network: Network = find_network(name).load_opener()(file, view, hidden, normalisation, arrays)
    return network


def open_linear(file: str, view: View, _hidden: tuple[int, ...], _normalisation: str, arrays: Arrays) -> Linear:
    """See `open_network`."""
    check_arrays(file, {"head.weight": (KINDS, joint_size(view)), "head.bias": (KINDS,)}, arrays)
    return Linear(single(arrays["head.weight"]), single(arrays["head.bias"]), len(view.node))


def open_mlp(file: str, view: View, hidden: tuple[int, ...], normalisation: str, arrays: Arrays) -> Mlp:
    """See `open_network`."""
    check_arrays(file, mlp_shapes(joint_size(view), hidden, normalisation), arrays)
    return Mlp(layers_of(arrays, "layers", len(hidden)), head_of(arrays))


def open_deepsets(file: str, view: View, hidden: tuple[int, ...], normalisation: str, arrays: Arrays) -> DeepSets:
    """See `open_network`."""
    check_arrays(file, _deepsets_shapes(joint_size(view), hidden, normalisation), arrays)
    depth = len(hidden)
    return DeepSets(layers_of(arrays, "phi", depth), layers_of(arrays, "rho", depth), head_of(arrays))


def check_network(file: str, name: str, hidden: tuple[int, ...], normalisation: str) -> None:
    """Make sure that there is such a network. Raises InputError: there is none; see `open_network`."""
    try:
        spec = find_network(name)
    except UsageError:
        raise InputError(file, "card", "network", f"is {name!r}; known are {', '.join(network_names())}") from None
    if normalisation not in NORMALISATIONS:
        raise InputError(file, "card", "normalisation", f"is {normalisation!r}; known are {', '.join(NORMALISATIONS)}")
    if spec.has_layers and (not hidden or min(hidden) < 1):
        raise InputError(file, "card", "hidden", f"is {list(hidden)}; the network {name!r} has one layer or more")


def mlp_shapes(inputs: int, hidden: tuple[int, ...], normalisation: str) -> Shapes:
    """The shapes of an MLP from `inputs` numbers to a score."""
    return dense_shapes("layers", inputs, hidden, normalisation) | head_shapes(hidden[-1])


def _deepsets_shapes(joint: int, hidden: tuple[int, ...], normalisation: str) -> Shapes:
    phi = dense_shapes("phi", joint, hidden, normalisation)
    rho = dense_shapes("rho", 2 * hidden[-1], hidden, normalisation)
    return phi | rho | head_shapes(hidden[-1])


@dataclass(frozen=True, eq=False, slots=True)
class Linear:
    """w_k . x + b_k by the kind k of the pod; weight: [4, F], bias: [4], of which `node` features are a node's."""

    weight: Array
    bias: Array
    node: int

    def scores(self, nodes: Array, pod: Array, context: Array, mask: Flags, groups: npt.NDArray[np.int32]) -> Array:
        """See `Network`."""
        kind = pod[:KINDS]
        weight, bias = kind @ self.weight, kind @ self.bias
        shared = weight[self.node :] @ np.concatenate([pod, context]) + bias
        return masked_scores(mask, nodes[mask] @ weight[: self.node] + shared)


@dataclass(frozen=True, eq=False, slots=True)
class Mlp:
    """head(layers(x)); head: weight [H] and bias [1]."""

    layers: tuple[Layer, ...]
    head: tuple[Array, Array]

    def scores(self, nodes: Array, pod: Array, context: Array, mask: Flags, groups: npt.NDArray[np.int32]) -> Array:
        """See `Network`."""
        rows = run_layers(self.layers, nodes[mask], np.concatenate([pod, context]))
        return masked_scores(mask, rows @ self.head[0] + self.head[1])


@dataclass(frozen=True, eq=False, slots=True)
class DeepSets:
    """head(rho([phi(x), the mean of phi over all nodes]))."""

    phi: tuple[Layer, ...]
    rho: tuple[Layer, ...]
    head: tuple[Array, Array]

    def scores(self, nodes: Array, pod: Array, context: Array, mask: Flags, groups: npt.NDArray[np.int32]) -> Array:
        """See `Network`."""
        here = present(nodes, mask)
        phi = run_layers(self.phi, nodes[here], np.concatenate([pod, context]))
        mean = phi.mean(axis=0) if len(phi) else np.zeros(phi.shape[1], dtype=np.float32)
        rows = run_layers(self.rho, phi[mask[here]], mean)
        return masked_scores(mask, rows @ self.head[0] + self.head[1])
