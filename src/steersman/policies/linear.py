"""Learned policies of the score table: linear in node features, optionally with a network added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from steersman.cluster.pod_query import PodQuery
from steersman.orders.order import AGE, Order
from steersman.policies.base import Candidates, Need, Policy, ScoringContext
from steersman.policies.decision import kernels
from steersman.policies.decision.contributions import Contribution, occlusion_contributions
from steersman.policies.decision.explanation_kernels import linear_features, rule_scores
from steersman.policies.decision.selection import LearnedWeights, SelectionRules
from steersman.policies.embedded_profile import EmbeddedProfile
from steersman.policies.features import GPU, POD_KINDS
from steersman.policies.gpu_state.arrays import Layer
from steersman.policies.node_scores.local_scores import LEARNED, NAMES
from steersman.policies.observations.encoding import encode_pods

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class LinearPolicy(Policy):
    """Learned policy that is linear in node features (`policies.gpu_state.arrays`) and also chooses GPU devices."""

    name: str  # name in results
    weights: Floats  # [4, W] weights by pod kind, on the scale of FGD's score
    # [4, R] weights of the heuristics' scores by pod kind and id (`policies.node_scores.local_scores`), or None
    rules: Floats | None = None
    # Weights [H, I] and biases [H] of two or more layers with ReLU between them, whose output is added to the score.
    # Inputs are the features of a node and of the pod in view `gpu`, the output is one number. Empty if there is
    # none.
    network: tuple[Layer, ...] = ()
    prepared: EmbeddedProfile | None = None  # see `Policy`
    order: Order = AGE

    is_learned: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({Need.LEFTOVER_TABLES})

    @property
    def selection(self) -> SelectionRules:
        """See `Policy`; the network's first layer is computed in advance for every pod class."""
        learned = LearnedWeights(self.weights, self.rules, self.network)
        return SelectionRules(
            *(kernels.SELECT_BEST, kernels.DEVICES_LEARNED, (LEARNED,), (1.0,), learned),
            # The pod's part of the first layer is computed per class, see `_with_network`.
            follows_classes=bool(self.network),
        )

    def tensors(self) -> dict[str, Floats]:
        """Return `weights`, `rules` if any, and the network: `layers.0.weight`, `layers.0.bias`, ..., `head.bias`."""
        tensors = {"weights": self.weights} | ({} if self.rules is None else {"rules": self.rules})
        for i, (weight, bias) in enumerate(self.network):
            layer = f"layers.{i}" if i + 1 < len(self.network) else "head"
            tensors |= {f"{layer}.weight": weight, f"{layer}.bias": bias}
        return tensors

    def contributions(
        self, context: ScoringContext, query: PodQuery, nodes: Candidates, slot: int, other: int
    ) -> list[Contribution]:
        cluster, c = context.arrays, query.class_id
        # Learned devices are not random, so the generator is never read.
        rule, no_draws = kernels.DEVICES_LEARNED, np.zeros(1, dtype=np.uint64)
        row, other_row = (
            linear_features(cluster, c, n, kernels.devices_on(cluster, rule, c, n, no_draws)) for n in (slot, other)
        )
        pods = np.zeros((len(cluster.classes.gpu_count), len(GPU.pod)), dtype=np.float32)
        encode_pods(cluster.classes, pods)
        kind = int(pods[c, :POD_KINDS].argmax())

        def score(rows: Floats) -> Floats:
            return np.asarray(rows @ self.weights[kind]) + self._network_scores(rows, pods[c])

        parts = occlusion_contributions([feature.name for feature in GPU.node], row, other_row, score)
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
        """Return the network's output, [B], for rows of node features, [B, W], and pod features, [P]."""
        if not self.network:
            return np.zeros(len(rows))
        values = np.concatenate([rows, np.broadcast_to(pod, (len(rows), len(pod)))], axis=1)
        for i, (weight, bias) in enumerate(self.network):
            values = values @ weight.T + bias
            if i + 1 < len(self.network):
                values = np.maximum(values, 0.0)
        return np.asarray(values[:, 0])
