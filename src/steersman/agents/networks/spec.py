"""Configuration of a network: name, numbers of features, layers. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium

from steersman.core.config.fields import BELOW_1, flag
from steersman.core.errors import UsageError
from steersman.policies.features import POD_KINDS
from steersman.policies.networks import NORMALISATIONS, find_network


@dataclass(frozen=True, slots=True)
class FeatureCounts:
    """Numbers of features of a node, the pod and the context."""

    node: int
    pod: int
    context: int

    @property
    def joint(self) -> int:
        """Return the size of x_n."""
        return self.node + self.pod + self.context


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Configuration of a network.

    Raises:
        UsageError: an unknown name or a number out of range.
    """

    name: str  # of a network, see `policies.networks`
    sizes: FeatureCounts  # numbers of features
    # The widths of the layers (`deepsets`: of phi and again of rho; `gnn`: of the attention); `linear`: none
    hidden: tuple[int, ...] = (64, 64)
    dropout: float = 0.0  # the share of hidden activations that training zeroes, from 0 to below 1
    # Of each layer before its relu: `none`, `layer` (over a node's features), `batch` (over the rows of a batch; in
    # evaluation mode by running statistics, so one observation at a time gives the same scores)
    normalisation: str = "none"

    def __post_init__(self) -> None:
        has_layers = find_network(self.name).has_layers
        if self.normalisation not in NORMALISATIONS:
            raise UsageError(f"unknown normalisation {self.normalisation!r}; known are {', '.join(NORMALISATIONS)}")
        if has_layers and (not self.hidden or min(self.hidden) < 1):
            raise UsageError(f"the network {self.name!r} needs hidden layers of 1 unit or more, not {self.hidden}")
        if not BELOW_1.holds(self.dropout):
            raise UsageError(f"{flag('dropout')} {self.dropout} does not work; expected {BELOW_1.text}")
        if self.sizes.pod < POD_KINDS:
            raise UsageError(
                f"a pod has {self.sizes.pod} features; its {POD_KINDS} kinds come first, so {POD_KINDS} or more"
            )


def sizes_of(space: gymnasium.Space[Any]) -> FeatureCounts:
    """Return the numbers of features of an environment's `single_observation_space`."""
    if not isinstance(space, gymnasium.spaces.Dict):
        raise UsageError(f"agents need observations with nodes, pod, context, mask and groups, not {space}")
    shapes = {name: box.shape or () for name, box in space.spaces.items()}
    return FeatureCounts(shapes["nodes"][-1], shapes["pod"][-1], shapes["context"][-1])
