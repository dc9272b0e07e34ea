"""What a policy is: it ranks the nodes that a pod fits on, never refuses a pod, and never sees what comes next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from steersman.cluster.state import ClusterState
from steersman.workloads.mix import TypicalPod

Layer = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""Weights [H, I] and biases [H]."""


@runtime_checkable
class Policy(Protocol):
    """The open protocol: a user's own policy is any object with a name and these two methods."""

    name: str

    def prepare(self, state: ClusterState, mix: tuple[TypicalPod, ...], seed: int) -> None:
        """Called once before a run: the empty cluster, the typical pods, and a seed for what is random."""

    def scores(self, state: ClusterState, class_id: int, feasible: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """[N] a score for every node slot, the higher the better; read only where `feasible`. Ties: the lowest slot."""


@dataclass(frozen=True, slots=True)
class LocalPolicy:
    """A weighted sum of built-in local policies, which runs compiled over the score table.

    Attributes:
        name: what results call it.
        kinds: numbers of the local policies (`policies.local`).
        weights: their weights.
        fgd_devices: whether FGD chooses the GPU device of a share, else the fullest that suffices.
    """

    name: str
    kinds: tuple[int, ...]
    weights: tuple[float, ...]
    fgd_devices: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class LinearPolicy:
    """A learned policy that is linear in the features of a node (`policies.learned`); it also chooses GPU devices.

    Attributes:
        name: what results call it.
        weights: [4, W] by kind of pod.
        rules: [4, R] by kind of pod what a point of each heuristic's score counts, by its number in `policies.local`;
            None: nothing.
    """

    name: str
    weights: npt.NDArray[np.float64]
    rules: npt.NDArray[np.float64] | None = None

    def arrays(self) -> dict[str, npt.NDArray[np.float64]]:
        """What a policy file holds."""
        return {"weights": self.weights} | ({} if self.rules is None else {"rules": self.rules})


@dataclass(frozen=True, eq=False, slots=True)
class MlpPolicy:
    """Like `LinearPolicy`, with a network of the features of node and pod added to the score: layers and rectifiers.

    Attributes:
        name: what results call it.
        weights: [4, W] the linear part by kind of pod, in points as FGD's score.
        network: weights [H, I] and biases [H] of the layers, two or more; the first takes the features of a node and of
            the pod in view `gpu`, the last gives one number.
    """

    name: str
    weights: npt.NDArray[np.float64]
    network: tuple[Layer, ...]

    def arrays(self) -> dict[str, npt.NDArray[np.float64]]:
        """What a policy file holds: `weights`, `layers.0.weight`, `layers.0.bias` and so on; the last is `head`."""
        found = {"weights": self.weights}
        for i, (weight, bias) in enumerate(self.network):
            layer = f"layers.{i}" if i + 1 < len(self.network) else "head"
            found |= {f"{layer}.weight": weight, f"{layer}.bias": bias}
        return found


@dataclass(frozen=True, eq=False, slots=True)
class PortfolioPolicy:
    """Several sets of weights and rules, of which a short simulation takes the best for a cluster and its pods.

    `simulation.selection` chooses; until it has, or where there is nothing to simulate, the first member decides.

    Attributes:
        name: what results call it, whichever member decides.
        members: what there is to choose from, by its own name; learned policies first.
        digest: the same for two portfolios with the same members.
    """

    name: str
    members: tuple[LinearPolicy | LocalPolicy, ...]
    digest: str

    @property
    def first(self) -> LinearPolicy | LocalPolicy:
        """The member that decides where nothing was simulated, under the portfolio's name."""
        return replace(self.members[0], name=self.name)


@dataclass(frozen=True, slots=True)
class KubeDefaultPolicy:
    """kube-scheduler's default scores, sampling and ties (`policies.kube_default`).

    `percentage` is `percentageOfNodesToScore`, 0 for the scheduler's own choice by the number of nodes.
    """

    name: str = "kube-default"
    percentage: int = 0


@dataclass(frozen=True, slots=True)
class RandomPolicy:
    """A uniformly random feasible node, and a random device for a share."""

    name: str = "random"
