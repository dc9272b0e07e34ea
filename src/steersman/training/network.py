"""The network to train, and its initial weights."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from steersman.agents.networks.spec import FeatureCounts, NetworkConfig
from steersman.core.errors import InputError, UsageError
from steersman.policies.features import View
from steersman.policies.networks import NORMALISATIONS, find_network
from steersman.policies.policy_file import Card, read_policy

if TYPE_CHECKING:
    from steersman.agents.networks.score_networks import ScoreNetwork


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """The network to train, see `steersman.agents.networks.score_networks`."""

    name: str = "mlp"  # of a registered network
    hidden: tuple[int, ...] = (64, 64)  # widths of its layers; ignored by a network without any
    dropout: float = 0.0  # share of hidden activations that training zeroes
    normalisation: str = "none"  # of its layers
    start: Path | None = None  # a policy file with its initial weights; None: random ones

    def __post_init__(self) -> None:
        find_network(self.name)
        if self.normalisation not in NORMALISATIONS:
            raise UsageError(f"unknown normalisation {self.normalisation!r}; known are {', '.join(NORMALISATIONS)}")

    @property
    def layers(self) -> tuple[int, ...]:
        return self.hidden if find_network(self.name).has_layers else ()

    @property
    def norm(self) -> str:
        return self.normalisation if self.layers else "none"

    @property
    def saved_norm(self) -> str:
        """Return the normalisation in a policy file: that of a batch is folded into the layers where that can be."""
        return "none" if self.norm == "batch" and find_network(self.name).folds_batch_norm else self.norm

    def spec(self, sizes: FeatureCounts) -> NetworkConfig:
        """Return the network for so many features. Raises UsageError: a number is out of range."""
        return NetworkConfig(self.name, sizes, self.layers, self.dropout if self.layers else 0.0, self.norm)

    def weights(self, view: View, spec: NetworkConfig) -> dict[str, npt.NDArray[Any]] | None:
        """Return the initial weights of the policy file, or None.

        Raises:
            InputError: the file is of another view, network or size.
        """
        if self.start is None:
            return None
        card, arrays = read_policy(self.start)
        check_start(self.start, card, view.name, spec.name, spec.hidden, spec.normalisation)
        return arrays

    def build(self, view: View, sizes: FeatureCounts, seed: int) -> ScoreNetwork:
        """Return the network with its initial weights; raises as `spec` and `weights` do."""
        from steersman.agents.networks.score_networks import build, load

        spec = self.spec(sizes)
        network = build(spec.name, spec.sizes, spec.hidden, spec.dropout, spec.normalisation, seed)
        if (start := self.weights(view, spec)) is not None:
            load(network, start)
        return network

    def identity(self) -> dict[str, Any]:
        """Return the plan as JSON; a checkpoint belongs to it."""
        return {
            "name": self.name,
            "hidden": list(self.layers),
            "dropout": self.dropout,
            "normalisation": self.norm,
            "start": fingerprint(self.start),
        }


def check_start(file: Path, card: Card, view: str, network: str, hidden: tuple[int, ...], norm: str = "none") -> None:
    """Check the view and network of a policy file to start with. Raises InputError: they differ from those trained."""
    for field, found, expected in (
        ("view", card.view, view),
        ("network", card.network, network),
        ("hidden", list(card.hidden), list(hidden)),
        ("normalisation", card.normalisation, norm),
    ):
        if found != expected:
            raise InputError(file, "card", field, f"is {found!r}, but {expected!r} is trained here")


def fingerprint(file: Path | None) -> str | None:
    """Return a file's name and a digest of its content. Raises InputError: it cannot be read."""
    if file is None:
        return None
    try:
        return f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"
    except OSError as error:
        raise InputError(file, "", "", f"cannot be read: {error.strerror}") from None
