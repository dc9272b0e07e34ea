"""Learned policies that the score table runs: linear in the features of a node, perhaps with a network added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from steersman.cluster.state import ClusterState
from steersman.features import GPU
from steersman.policies import deciding
from steersman.policies.base import Policy, ScoreQuery
from steersman.policies.contributions import Contribution, by_replacing
from steersman.policies.encoding import encode_pods
from steersman.policies.explanation_kernels import learned_row, rule_scores
from steersman.policies.learned import KINDS, Layer, LearnedArrays, at_work
from steersman.policies.learned_scores import learned_refresh_all
from steersman.policies.local import LEARNED, NAMES
from steersman.policies.prepared import Prepared
from steersman.workloads.mix import MixArrays

if TYPE_CHECKING:
    from steersman.policies.decider import Decider

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class LinearPolicy(Policy):
    """A learned policy that is linear in the features of a node (`policies.learned`); it also chooses GPU devices.

    Attributes:
        name: what results call it.
        weights: [4, W] by kind of pod, in points as FGD's score.
        rules: [4, R] by kind of pod what a point of each heuristic's score counts, by its number in `policies.local`;
            None: nothing.
        network: weights [H, I] and biases [H] of two or more layers with rectifiers between them, whose output is added
            to the score; the first takes the features of a node and of the pod in view `gpu`, the last gives one
            number. Empty: there is none.
        prepared: see `Policy`.
    """

    name: str
    weights: Floats
    rules: Floats | None = None
    network: tuple[Layer, ...] = ()
    prepared: Prepared | None = None

    node_rule: ClassVar[int] = deciding.CHOOSE_TABLE
    is_learned: ClassVar[bool] = True

    @property
    def is_bound_to_classes(self) -> bool:
        """See `Policy`: what the network makes of classes of pods is worked out beforehand."""
        return bool(self.network)

    @property
    def device_rule(self) -> int:
        """See `Policy`."""
        return deciding.DEVICES_LEARNED

    @property
    def score_functions(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """See `Policy`."""
        return (LEARNED,), (1.0,)

    @property
    def needs_leftover_tables(self) -> bool:
        """See `Policy`."""
        return True

    @property
    def saved_as(self) -> str:
        """See `Policy`."""
        return "mlp" if self.network else "linear"

    def tensors(self) -> dict[str, Floats]:
        """Return `weights`, `rules` if there are any, `layers.0.weight`, `layers.0.bias` etc.; the last is `head`."""
        tensors = {"weights": self.weights} | ({} if self.rules is None else {"rules": self.rules})
        for i, (weight, bias) in enumerate(self.network):
            layer = f"layers.{i}" if i + 1 < len(self.network) else "head"
            tensors |= {f"{layer}.weight": weight, f"{layer}.bias": bias}
        return tensors

    def as_linear(self) -> LinearPolicy:
        """Return the policy itself."""
        return self

    def learned_arrays(self, state: ClusterState, mix: MixArrays, known: Callable[[], LearnedArrays]) -> LearnedArrays:
        """See `Policy`."""
        learned = at_work(known(), self.weights, self.network, state.class_arrays, self.rules)
        learned_refresh_all(learned, mix, state.arrays)
        return learned

    def contributions(self, decider: Decider, query: ScoreQuery, slot: int, other: int) -> list[Contribution]:
        """See `Policy`."""
        cluster, c = decider.cluster, query.class_id
        row, other_row = (learned_row(cluster, c, n, decider.devices(c, n)) for n in (slot, other))
        pods = np.zeros((len(cluster.classes.gpu_count), len(GPU.pod)), dtype=np.float32)
        encode_pods(cluster.classes, pods)
        kind = int(pods[c, :KINDS].argmax())

        def score(rows: Floats) -> Floats:
            return np.asarray(rows @ self.weights[kind]) + self._network_scores(rows, pods[c])

        parts = by_replacing([feature.name for feature in GPU.node], row, other_row, score)
        if self.rules is not None:
            used = np.flatnonzero(self.rules[kind]).tolist()
            points = [rule_scores(cluster, used, c, n) for n in (slot, other)]
            parts += [
                Contribution(NAMES[rule], float(a), float(b), float(self.rules[kind, rule]) * float(a - b))
                for rule, a, b in zip(used, *points, strict=True)
                if a != b
            ]
        return parts

    def _network_scores(self, rows: Floats, pod: npt.NDArray[np.float32]) -> Floats:
        """[B] what the network adds to the scores of rows, [B, W], for a pod, [P]."""
        if not self.network:
            return np.zeros(len(rows))
        values = np.concatenate([rows, np.broadcast_to(pod, (len(rows), len(pod)))], axis=1)
        for i, (weight, bias) in enumerate(self.network):
            values = values @ weight.T + bias
            if i + 1 < len(self.network):
                values = np.maximum(values, 0.0)
        return np.asarray(values[:, 0])
