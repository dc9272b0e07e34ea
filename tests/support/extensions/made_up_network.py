"""A network that is not steersman's, in one file: one layer of hyperbolic tangents, in torch and in NumPy."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from steersman.agents.networks.score_networks import Body, joint_rows
from steersman.agents.networks.spec import NetworkConfig
from steersman.agents.networks.tensors import Tensors
from steersman.policies.features import View
from steersman.policies.network_policy import Arrays, Flags, check_arrays, head_shapes, joint_size
from steersman.policies.networks import NetworkSpec

Array = npt.NDArray[np.float32]


class TanhBody(Body):
    """tanh(W x_n)."""

    def __init__(self, spec: NetworkConfig) -> None:
        super().__init__()
        self.width = spec.hidden[0]
        self.layer = nn.Linear(spec.sizes.joint, self.width, bias=False)

    def forward(self, observation: Tensors, batch: Tensor, node: Tensor) -> Tensor:
        return torch.tanh(self.layer(joint_rows(observation, batch, node)))

    def inputs(self) -> list[tuple[nn.Linear, slice]]:
        return [(self.layer, slice(None))]


@dataclass(frozen=True, eq=False, slots=True)
class Tanh:
    """The same from the arrays of a policy file."""

    layer: Array
    head: tuple[Array, Array]

    def scores(self, nodes: Array, pod: Array, context: Array, mask: Flags, groups: npt.NDArray[np.int32]) -> Array:
        shared = np.broadcast_to(np.concatenate([pod, context]), (int(mask.sum()), len(pod) + len(context)))
        rows = np.tanh(np.concatenate([nodes[mask], shared], axis=1) @ self.layer.T)
        scores = np.zeros(len(mask), dtype=np.float32)
        scores[mask] = rows @ self.head[0] + self.head[1]
        return scores


def open_tanh(file: str, view: View, hidden: tuple[int, ...], _normalisation: str, arrays: Arrays) -> Any:
    check_arrays(file, {"layer.weight": (hidden[0], joint_size(view))} | head_shapes(hidden[0]), arrays)
    return Tanh(arrays["layer.weight"], (arrays["head.weight"][0], arrays["head.bias"]))


TANH = NetworkSpec("tanh", "made_up_network:TanhBody", "made_up_network:open_tanh", help="(one layer)")
