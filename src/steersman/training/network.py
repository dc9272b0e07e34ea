"""Which network is trained, and what it starts from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from steersman.agents.spec import NORMALISATIONS, Sizes, Spec
from steersman.errors import InputError, UsageError
from steersman.features import View
from steersman.policies.network_registry import find_network
from steersman.policies.policy_file import Card, read_policy


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """The network to train, see `steersman.agents.networks`.

    Attributes:
        name: of a registered network.
        hidden: widths of its layers; a network without any has none, whatever is said here.
        dropout: share of hidden activations that training zeroes.
        normalisation: of its layers.
        start: a policy file whose weights it starts with; None: random ones.
    """

    name: str = "mlp"
    hidden: tuple[int, ...] = (64, 64)
    dropout: float = 0.0
    normalisation: str = "none"
    start: Path | None = None

    def __post_init__(self) -> None:
        find_network(self.name)
        if self.normalisation not in NORMALISATIONS:
            raise UsageError(f"unknown normalisation {self.normalisation!r}; known are {', '.join(NORMALISATIONS)}")

    @property
    def layers(self) -> tuple[int, ...]:
        """The widths of its hidden layers."""
        return self.hidden if find_network(self.name).has_layers else ()

    @property
    def norm(self) -> str:
        """The normalisation of these layers."""
        return self.normalisation if self.layers else "none"

    def spec(self, sizes: Sizes) -> Spec:
        """The network for so many features. Raises UsageError: a number is out of range."""
        return Spec(self.name, sizes, self.layers, self.dropout if self.layers else 0.0, self.norm)

    def weights(self, view: View, spec: Spec) -> dict[str, npt.NDArray[Any]] | None:
        """Those of the policy file to start with, if there is one.

        Raises:
            InputError: the file is of another view, network or size.
        """
        if self.start is None:
            return None
        card, arrays = read_policy(self.start)
        check_start(self.start, card, view.name, spec.name, spec.hidden, spec.normalisation)
        return arrays

    def identity(self) -> dict[str, Any]:
        """The same as JSON: what a checkpoint belongs to."""
        return {
            "name": self.name,
            "hidden": list(self.layers),
            "dropout": self.dropout,
            "normalisation": self.norm,
            "start": fingerprint(self.start),
        }


def check_start(file: Path, card: Card, view: str, network: str, hidden: tuple[int, ...], norm: str = "none") -> None:
    """Raises InputError: a policy file to start with is not of the view and the network that are trained."""
    for field, found, wanted in (
        ("view", card.view, view),
        ("network", card.network, network),
        ("hidden", list(card.hidden), list(hidden)),
        ("normalisation", card.normalisation, norm),
    ):
        if found != wanted:
            raise InputError(file, "card", field, f"is {found!r}, but {wanted!r} is trained here")


def fingerprint(file: Path | None) -> str | None:
    """A file's name and what tells it from another of that name. Raises InputError: it cannot be read."""
    if file is None:
        return None
    try:
        return f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"
    except OSError as error:
        raise InputError(file, "", "", f"cannot be read: {error.strerror}") from None
