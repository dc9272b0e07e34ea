"""Networks that score nodes for a pod: any number of nodes, under a mask, in any order.

With x_n = [nodes_n, pod, context] and layers h -> dropout(relu(norm(W h + b))):

- `linear`: score_n = w_k . x_n + b_k, where k is the pod's kind (the first four features of the pod, one-hot).
- `mlp`: score_n = head(layers(x_n)).
- `deepsets` (Zaheer et al., "Deep Sets", NeurIPS 2017): phi_n = layers(x_n); p = the mean of phi over the present
  nodes; score_n = head(rho([phi_n, p])), where rho has layers of its own.
- `gnn`: attention between the pod, the nodes, their racks and servers (`agents.networks.graph_network`).

As node features describe the node before and after the placement, score_n is a function of the afterstate. A masked
node scores `MASKED`; a row is a present node if it is feasible or any of its features is not zero (or its `weight` is
positive, where the rows are a sample). A critic pools the embeddings of the feasible nodes:
V = head([mean, max, pod, context]).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from steersman.agents.networks.spec import FeatureCounts, NetworkConfig, sizes_of
from steersman.agents.networks.tensors import Arrays, Tensors
from steersman.core.errors import SteersmanError, UsageError
from steersman.policies.features import POD_KINDS
from steersman.policies.networks import find_network

__all__ = [
    "MASKED",
    "POD_KINDS",
    "FeatureCounts",
    "NetworkConfig",
    "ScoreNetwork",
    "ValueNetwork",
    "build",
    "build_critic",
    "export",
    "load",
    "sizes_of",
]

MASKED = torch.finfo(torch.float32).min  # finite, so that zero times it is zero

STATISTICS_RATE = 0.1  # Pop-Art's step size beta, once 1 / beta batches have been averaged
LEAST_SPREAD = 1e-4
SCORE_GAIN = 0.01  # scores start nearly equal: a policy starts nearly uniform, values near zero


class BatchNorm(nn.Module):
    """Batch normalisation over rows [M, F]; running statistics at evaluation, and for a single row."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))

    def forward(self, rows: Tensor) -> Tensor:
        """Map rows [M, F] to rows [M, F]."""
        # torch has no statistics of a single row, and raises an error.
        training = self.training and len(rows) > 1
        return functional.batch_norm(rows, self.running_mean, self.running_var, self.weight, self.bias, training)


def normalisation_layer(name: str, features: int) -> nn.Module:
    """Return the layer for one of `NORMALISATIONS`."""
    if name == "layer":
        return nn.LayerNorm(features)
    return BatchNorm(features) if name == "batch" else nn.Identity()


class Dense(nn.Linear):
    """dropout(relu(norm(W h + b))) of rows [M, inputs] to [M, outputs]."""

    def __init__(self, inputs: int, outputs: int, spec: NetworkConfig) -> None:
        super().__init__(inputs, outputs)
        self.norm = normalisation_layer(spec.normalisation, outputs)
        self.dropout = nn.Dropout(spec.dropout)
        nn.init.orthogonal_(self.weight, math.sqrt(2.0))
        nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # named so in nn.Linear
        """Map rows [M, inputs] to rows [M, outputs]."""
        rows: Tensor = self.dropout(functional.relu(self.norm(super().forward(input))))
        return rows


def dense(inputs: int, spec: NetworkConfig) -> nn.Sequential:
    """Return layers of the widths `spec.hidden`."""
    widths = (inputs, *spec.hidden)
    return nn.Sequential(*(Dense(a, b, spec) for a, b in pairwise(widths)))


def presence(observation: Tensors) -> Tensor:
    """Return [B, N] how many nodes each row stands for: 0 for none, 1, or its weight in a sample."""
    if "weight" in observation:
        return observation["weight"]
    return ((observation["nodes"] != 0).any(-1) | observation["mask"]).to(observation["nodes"].dtype)


def joint_rows(observation: Tensors, batch: Tensor, node: Tensor) -> Tensor:
    """Return x_n = [nodes_n, pod, context] of the rows (batch [M], node [M]), as [M, Fn + Fp + Fc]."""
    rows = observation["nodes"][batch, node], observation["pod"][batch], observation["context"][batch]
    return torch.cat(rows, dim=-1)


class Body(nn.Module):
    """Map each requested row to an embedding of `width` numbers."""

    width: int

    def forward(self, observation: Tensors, batch: Tensor, node: Tensor) -> Tensor:
        """Return [M, width] for the feasible nodes (batch [M], node [M])."""
        raise NotImplementedError

    def inputs(self) -> list[tuple[nn.Linear, slice]]:
        """Return the layers that take features, and the part of x_n that each takes."""
        raise NotImplementedError

    def make_head(self) -> nn.Linear:
        """Return the layer that maps an embedding [M, width] to a score [M, 1]."""
        return nn.Linear(self.width, 1)


class LinearBody(Body):
    """x_n itself."""

    def __init__(self, spec: NetworkConfig) -> None:
        super().__init__()
        self.width, self.node_features = spec.sizes.joint, spec.sizes.node

    def make_head(self) -> nn.Linear:
        return KindLinear(self.width, self.node_features)

    def forward(self, observation: Tensors, batch: Tensor, node: Tensor) -> Tensor:
        """Return [M, Fn + Fp + Fc]."""
        return joint_rows(observation, batch, node)

    def inputs(self) -> list[tuple[nn.Linear, slice]]:
        """Return nothing: the features go to the head."""
        return []


class MlpBody(Body):
    """layers(x_n): a node by itself."""

    def __init__(self, spec: NetworkConfig) -> None:
        super().__init__()
        self.layers = dense(spec.sizes.joint, spec)
        self.width = spec.hidden[-1]

    def forward(self, observation: Tensors, batch: Tensor, node: Tensor) -> Tensor:
        """Return [M, hidden[-1]]."""
        rows: Tensor = self.layers(joint_rows(observation, batch, node))
        return rows

    def inputs(self) -> list[tuple[nn.Linear, slice]]:
        """Return the first layer, which takes all features."""
        return [(cast(nn.Linear, self.layers[0]), slice(None))]


class DeepSetsBody(Body):
    """rho([phi(x_n), mean of phi]): a node within its cluster."""

    def __init__(self, spec: NetworkConfig) -> None:
        super().__init__()
        self.phi = dense(spec.sizes.joint, spec)
        self.rho = dense(2 * spec.hidden[-1], spec)
        self.width = spec.hidden[-1]

    def forward(self, observation: Tensors, batch: Tensor, node: Tensor) -> Tensor:
        """Return [M, hidden[-1]]."""
        weight = presence(observation)
        b, n = weight.nonzero(as_tuple=True)
        phi = self.phi(joint_rows(observation, b, n))
        count = weight.sum(1, keepdim=True).clamp(min=1.0)
        # The mean of phi by observation, weighted by how many nodes a row of a sample stands for.
        mean = phi.new_zeros(len(weight), self.width).index_add(0, b, phi * weight[b, n].unsqueeze(1)) / count
        place = torch.zeros_like(weight, dtype=torch.int64)
        place[b, n] = torch.arange(len(b), device=b.device)
        rows: Tensor = self.rho(torch.cat([phi[place[batch, node]], mean[batch]], dim=-1))
        return rows

    def inputs(self) -> list[tuple[nn.Linear, slice]]:
        """Return the first layer of phi, which takes all features."""
        return [(cast(nn.Linear, self.phi[0]), slice(None))]


class KindLinear(nn.Linear):
    """w_k . x_n + b_k: weights for each kind of pod, which x_n has one-hot from `offset` on."""

    def __init__(self, features: int, offset: int) -> None:
        super().__init__(features, POD_KINDS)
        self.offset = offset

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # named so in nn.Linear
        """Map rows [M, F] to [M, 1]."""
        kind = input[:, self.offset : self.offset + POD_KINDS]
        return (super().forward(input) * kind).sum(-1, keepdim=True)


class ScoreNetwork(nn.Module):
    """Scores of nodes; `spec` is its configuration."""

    def __init__(self, spec: NetworkConfig) -> None:
        super().__init__()
        self.spec = spec
        self.body = _body(spec)
        self.head = self.body.make_head()
        nn.init.orthogonal_(self.head.weight, SCORE_GAIN)
        nn.init.zeros_(self.head.bias)

    def forward(self, observation: Tensors) -> Tensor:
        """Return scores [B, N], `MASKED` where the mask forbids."""
        mask = observation["mask"]
        batch, node = mask.nonzero(as_tuple=True)
        feasible_scores = self.head(self.body(observation, batch, node)).squeeze(-1)
        scores: Tensor = feasible_scores.new_full(mask.shape, MASKED).index_put((batch, node), feasible_scores)
        return scores

    def inputs(self) -> list[tuple[nn.Linear, slice]]:
        """Return the layers that take features, and the part of x_n that each takes."""
        return self.body.inputs() or [(self.head, slice(None))]


class ValueNetwork(nn.Module):
    """A critic: a body of its own, and a head over the mean and maximum of its rows.

    Its head is in units of the observed values, V = centre + spread head(...), so that it learns values of hundreds as
    quickly as values of one (Pop-Art: van Hasselt et al., "Learning values across many orders of magnitude", NeurIPS
    2016).
    """

    centre: Tensor
    spread: Tensor
    square: Tensor
    shown: Tensor  # number of batches so far, under its name in checkpoints

    def __init__(self, spec: NetworkConfig) -> None:
        super().__init__()
        for name, value in (("centre", 0.0), ("spread", 1.0), ("square", 0.0), ("shown", 0.0)):
            self.register_buffer(name, torch.tensor(value))
        self.spec = spec
        self.body = _body(spec)
        self.head = nn.Linear(2 * self.body.width + spec.sizes.pod + spec.sizes.context, 1)
        nn.init.orthogonal_(self.head.weight, 1.0)
        nn.init.zeros_(self.head.bias)

    def forward(self, observation: Tensors) -> Tensor:
        """Return values [B]."""
        mask = observation["mask"]
        batch, node = mask.nonzero(as_tuple=True)
        rows = self.body(observation, batch, node)
        pooled = rows.new_zeros(len(mask), rows.shape[1])
        mean = pooled.index_add(0, batch, rows) / mask.sum(1, keepdim=True).clamp(min=1)
        # include_self=False: the zeros of `pooled` must not take part in the maximum.
        most = pooled.scatter_reduce(0, batch.unsqueeze(1).expand_as(rows), rows, "amax", include_self=False)
        joined = torch.cat([mean, most, observation["pod"], observation["context"]], dim=-1)
        value: Tensor = self.centre + self.spread * self.head(joined).squeeze(-1)
        return value

    @torch.no_grad()
    def update_return_statistics(self, targets: Tensor) -> None:
        """Update mean and standard deviation of returns by targets [B], and rescale the head so that no value changes.

        Moving averages as in Pop-Art, algorithm 1 and equation 10, with a step size that begins as a mean's, 1 / t.
        """
        self.shown += 1.0
        rate = (1.0 / self.shown).clamp(min=STATISTICS_RATE)
        centre = self.centre.lerp(targets.mean(), rate)
        self.square.lerp_(targets.square().mean(), rate)
        # sqrt(E[G^2] - E[G]^2), at least LEAST_SPREAD, so that nothing is divided by 0.
        spread = (self.square - centre.square()).clamp(min=LEAST_SPREAD**2).sqrt()
        # W' = W s / s', b' = (s b + c - c') / s': the outputs stay the same (Pop-Art, proposition 1).
        self.head.weight *= self.spread / spread
        self.head.bias.mul_(self.spread).add_(self.centre - centre).div_(spread)
        self.centre.copy_(centre)
        self.spread.copy_(spread)


def _body(spec: NetworkConfig) -> Body:
    body: Body = find_network(spec.name).load_body()(spec)
    return body


def build(
    name: str,
    sizes: FeatureCounts,
    hidden: tuple[int, ...] = (64, 64),
    dropout: float = 0.0,
    normalisation: str = "none",
    seed: int = 0,
) -> ScoreNetwork:
    """Return a score network with weights drawn from `seed`; the arguments are those of `NetworkConfig`."""
    # CPU generators alone: weights are drawn on the CPU and moved later, so they are the same on every device.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ScoreNetwork(NetworkConfig(name, sizes, hidden, dropout, normalisation))


def build_critic(spec: NetworkConfig, seed: int = 0) -> ValueNetwork:
    """Return a critic of the same kind, with weights of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ValueNetwork(spec)


def export(network: ScoreNetwork | ValueNetwork, fold: bool = False) -> dict[str, npt.NDArray[np.float32]]:
    """Return copies of all weights by name.

    `linear`: `head.weight` [4, F], `head.bias` [4]. `mlp`: `layers.I.weight` [outputs, inputs], `layers.I.bias`, then
    `head.weight` [1, hidden], `head.bias` [1]. `deepsets`: `phi.I`, `rho.I` and `head` likewise. A normalised layer
    also has `norm.weight` and `norm.bias` (`phi.I.norm.weight`), with `batch` also `norm.running_mean` and
    `norm.running_var`; both add 1e-5 to the variance.

    Args:
        fold: multiply batch normalisation into the weights of its layer, as in evaluation mode; the result is a network
            without normalisation.

    Raises:
        UsageError: batch normalisation cannot be folded in this network, such as `gnn`.
    """
    arrays = {
        name.removeprefix("body."): tensor.detach().cpu().numpy().copy()
        for name, tensor in network.state_dict().items()
    }
    if not fold or network.spec.normalisation != "batch":
        return arrays
    if not find_network(network.spec.name).folds_batch_norm:
        raise UsageError(
            f"batch normalisation cannot be folded into the network {network.spec.name!r}; "
            "export it with its normalisation"
        )
    for name in [name for name in arrays if name.endswith(".norm.running_mean")]:
        layer = name.removesuffix(".norm.running_mean")
        norm = {part: arrays.pop(f"{layer}.norm.{part}") for part in ("weight", "bias", "running_mean", "running_var")}
        # 1e-5: the default eps of `functional.batch_norm`.
        scale = norm["weight"] / np.sqrt(norm["running_var"] + 1e-5)
        arrays[f"{layer}.weight"] *= scale[:, None]
        arrays[f"{layer}.bias"] = (arrays[f"{layer}.bias"] - norm["running_mean"]) * scale + norm["bias"]
    return arrays


def load(network: ScoreNetwork | ValueNetwork, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Set all weights from what `export` returned.

    Raises:
        SteersmanError: a name is missing or unknown, or a shape differs from the network's.
    """
    own = {name.removeprefix("body."): (name, tensor) for name, tensor in network.state_dict().items()}
    for name in sorted(own.keys() ^ arrays.keys()):
        raise SteersmanError(f"weights of a network: {name!r} is {'missing' if name in own else 'not one of its own'}")
    for name, (_, tensor) in own.items():
        if tuple(tensor.shape) != arrays[name].shape:
            raise SteersmanError(
                f"weights of a network: {name!r} has the shape {arrays[name].shape}; expected {tuple(tensor.shape)}"
            )
    network.load_state_dict({full: torch.tensor(arrays[name]) for name, (full, _) in own.items()})


class FeatureRanges:
    """The lowest and the highest value of each feature during training, in the order of x_n = [nodes_n, pod, context].

    A policy that learned on clusters of 10 nodes also has weights for the number of nodes, which training never
    determined. On 1,000 nodes they would shift every score. So, after learning, weights times constant features are
    moved into the bias: no learned score changes, and constant features no longer count.
    """

    def __init__(self, sizes: FeatureCounts) -> None:
        self.low = np.full(sizes.joint, np.inf, dtype=np.float32)
        self.high = np.full(sizes.joint, -np.inf, dtype=np.float32)

    def add(self, observation: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add an observation [E, ...]; rows of absent nodes do not count."""
        nodes = observation["nodes"]
        rows = nodes[(observation["mask"] > 0) | (nodes != 0).any(-1)]
        if len(rows) == 0:
            return
        others = np.concatenate([observation["pod"], observation["context"]], axis=1)
        self.low = np.minimum(self.low, np.concatenate([rows.min(0), others.min(0)]))
        self.high = np.maximum(self.high, np.concatenate([rows.max(0), others.max(0)]))

    def keep_all(self) -> None:
        """Count every feature as varying: an earlier training, whose ranges are unknown, may have used it."""
        self.low[:], self.high[:] = -np.inf, np.inf

    @torch.no_grad()
    def fold_constant_features(self, network: ScoreNetwork) -> None:
        """Move weights times constant features into the biases of the first layers, in place."""
        # Also false for features that were never observed: inf and -inf differ.
        constant = self.low == self.high
        for layer, features in network.inputs():
            here = np.flatnonzero(constant[features])
            columns = torch.from_numpy(here).to(layer.weight.device)
            values = torch.from_numpy(self.low[features][here]).to(layer.weight)
            # b + W c: the score for the constant value c stays the same when its weight becomes 0.
            layer.bias.add_(layer.weight[:, columns] @ values)
            layer.weight[:, columns] = 0.0

    def arrays(self) -> Arrays:
        return {"low": self.low, "high": self.high}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore what `arrays` returned."""
        self.low, self.high = arrays["low"], arrays["high"]
