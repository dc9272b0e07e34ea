"""Policies that are networks: they observe what environments show, and choose the node with the best score.

Networks of steersman are computed by the core, those of packages by what they bring.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from steersman.cluster.pod_query import PodQuery
from steersman.core.errors import InputError, SteersmanError, input_error
from steersman.core.event_loop import SLICE_SECONDS
from steersman.core.handles import PolicyHandle
from steersman.orders.order import AGE, Order
from steersman.policies.base import (
    Candidates,
    Contribution,
    Need,
    Observations,
    Policy,
    Scorer,
    ScoringContext,
    occlusion_contributions,
)
from steersman.policies.embedded_profile import EmbeddedProfile
from steersman.policies.features import TELEMETRY, View
from steersman.policies.learned_weights import GPU_VIEW
from steersman.policies.observation import ObservationArrays

MASKED = np.finfo(np.float32).min  # the score of a node that the pod does not fit on

ROUNDING = 1e-5  # largest difference between scores of equal nodes, relative to the best score and at least to 1

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Arrays = Mapping[str, npt.NDArray[Any]]
Shapes = dict[str, tuple[int, ...]]


def check_arrays(file: str, shapes: Shapes, arrays: Arrays) -> None:
    """Check arrays against the shapes they must have.

    Raises:
        InputError: one is missing, of another shape, or unknown.
    """
    for name, shape in shapes.items():
        if name not in arrays:
            raise InputError(file, "tensor", name, f"is missing; expected {list(shape)}")
        if arrays[name].shape != shape:
            raise InputError(file, "tensor", name, f"is of shape {list(arrays[name].shape)}; expected {list(shape)}")
    for name in sorted(arrays.keys() - shapes.keys()):
        raise InputError(file, "tensor", name, "is not one of this network's")


def dense_shapes(group: str, inputs: int, hidden: tuple[int, ...], normalisation: str) -> Shapes:
    """Return the shapes of a stack of layers; folded batch normalisation has no arrays of its own."""
    shapes: Shapes = {}
    for i, (width, outputs) in enumerate(pairwise((inputs, *hidden))):
        shapes[f"{group}.{i}.weight"] = (outputs, width)
        shapes[f"{group}.{i}.bias"] = (outputs,)
        if normalisation == "layer":
            shapes[f"{group}.{i}.norm.weight"] = shapes[f"{group}.{i}.norm.bias"] = (outputs,)
    return shapes


def head_shapes(width: int) -> Shapes:
    """Return the shapes of a head that maps `width` numbers to a score."""
    return {"head.weight": (1, width), "head.bias": (1,)}


def first_best(scores: npt.NDArray[np.floating], nodes: Array) -> int:
    """Return the row with the best of the scores, [N], the first of equals.

    Equals are rows of `nodes`, [N, F], that are identical and score the same but for rounding: matrix products round
    rows differently by their position, which must not decide between nodes.
    """
    best = int(scores.argmax())
    near = np.flatnonzero(scores >= scores[best] - ROUNDING * max(1.0, abs(float(scores[best]))))
    return int(near[(nodes[near] == nodes[best]).all(axis=1).argmax()])


def first_bests(scores: npt.NDArray[np.floating], nodes: Array) -> npt.NDArray[np.int64]:
    """Return [E] the first best rows of E observations: scores [E, N] and nodes [E, N, F]."""
    return np.array([first_best(*each) for each in zip(scores, nodes, strict=True)], dtype=np.int64)


class Network(Protocol):
    """Score nodes for a pod."""

    def scores(
        self, nodes: Array, pod: Array, context: Array, mask: Flags, groups: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.floating]:
        """Return [N] scores, which are read where the mask is true.

        Args:
            nodes: [N, Fn] features of each node; a masked row of zeros is not a node.
            pod: [Fp].
            context: [Fc].
            mask: [N] where the pod may run.
            groups: [N, 2] index of the node's rack and server, -1: none.
        """


class CoreNetwork:
    """The network of a policy file, computed by the core: see `core/src/networks.rs`.

    Args:
        file: its name, of which errors speak.
        content: its bytes.

    Raises:
        InputError: it is of another network, or an array is missing, of another shape, or unknown.
    """

    def __init__(self, file: str, content: bytes) -> None:
        self._arguments = file, content
        try:
            self._handle = PolicyHandle("", content)
        except SteersmanError as error:
            raise input_error(file, str(error)) from None

    def __reduce__(self) -> tuple[type[CoreNetwork], tuple[str, bytes]]:
        return CoreNetwork, self._arguments

    def scores(
        self, nodes: Array, pod: Array, context: Array, mask: Flags, groups: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.floating]:
        """Return [N] scores, -inf where the mask forbids, see `Network`."""
        return self._handle.scores(nodes, pod, context, mask.view(np.int8), groups.astype(np.int64))


def joint_size(view: View) -> int:
    """Return the number of features of a node, the pod and the cluster together."""
    return len(view.node) + len(view.pod) + len(view.context)


@dataclass(frozen=True, eq=False, slots=True)
class NetworkPolicy(Policy):
    """A network and the view that it was trained on; GPU devices are chosen by the best-fit rule, as in training."""

    name: str  # its name in results
    view: View  # the view that it observes
    network: Network  # scores nodes
    prepared: EmbeddedProfile | None = None  # see `Policy`
    order: Order = AGE

    is_learned: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[Need]:
        """See `Policy`; leftover tables or measured metrics, if the view has them."""
        return frozenset({Need.PEERS}) | needs_of_view(self.view)

    def scorer(self, context: ScoringContext) -> Scorer:
        return NetworkScorer(self, context.observations(self.view))

    def contributions(
        self, context: ScoringContext, query: PodQuery, nodes: Candidates, slot: int, other: int
    ) -> list[Contribution]:
        """Return contributions by occlusion, see `Policy`."""
        observation, groups = context.observations(self.view).observe(query, nodes)
        row, other_row = observation.nodes[slot].copy(), observation.nodes[other].copy()

        def score(rows: Floats) -> Floats:
            scores = []
            for each in rows:
                # Written into the observation itself: features of other nodes and the context have to stay in place.
                observation.nodes[slot] = each
                scores.append(float(self.scores(observation, groups)[slot]))
            return np.array(scores)

        try:
            names = [feature.name for feature in self.view.node]
            return occlusion_contributions(names, row.astype(np.float64), other_row.astype(np.float64), score)
        finally:
            # The buffers are the encoder's, and the next decision reads them.
            observation.nodes[slot] = row

    def choose(self, observation: ObservationArrays, groups: npt.NDArray[np.int32]) -> int:
        """Return the feasible node with the highest score, the first of equals; some node must be feasible.

        Raises:
            SteersmanError: a score is not a finite number.
        """
        return first_best(self.scores(observation, groups), observation.nodes)

    def scores(self, observation: ObservationArrays, groups: npt.NDArray[np.int32]) -> Floats:
        """Return [N] the network's scores, -inf where a node is not feasible.

        Raises:
            SteersmanError: a score is not a finite number.
        """
        mask = observation.mask != 0
        with np.errstate(all="ignore"):  # of a package's network: a score that is not finite is an error below
            scores = self.network.scores(observation.nodes, observation.pod, observation.context, mask, groups)
        if not np.isfinite(scores[mask]).all():
            raise SteersmanError(f"policy {self.name!r}: the score of a node is not a finite number")
        return np.where(mask, scores, -np.inf)


def needs_of_view(view: View) -> frozenset[Need]:
    """Return what observations in a view are computed from."""
    needs = {GPU_VIEW: Need.LEFTOVER_TABLES, TELEMETRY.name: Need.TELEMETRY}
    return frozenset({needs[view.name]} if view.name in needs else ())


class NetworkScorer(Scorer):
    """Score nodes by a network. `observations`: source of its observations.

    A network that takes longer than a time slice of the event loop computes in a thread, where `ask` is awaited.
    """

    def __init__(self, policy: NetworkPolicy, observations: Observations) -> None:
        self._policy, self._observations = policy, observations
        self._seconds = 0.0  # processor time of the last scores
        self._asked: tuple[PodQuery, Floats, ObservationArrays] | None = None

    @property
    def asks_first(self) -> bool:
        return self._seconds >= SLICE_SECONDS

    async def ask(self, query: PodQuery, nodes: Candidates) -> None:
        seen, groups = self._observations.observe(query, nodes)
        # Copied, since other decisions write to the same arrays meanwhile.
        seen = deepcopy(seen)
        self._asked = None
        with suppress(SteersmanError):  # `choose` raises it
            self._asked = query, await asyncio.to_thread(self._scores, seen, groups), seen

    def choose(self, query: PodQuery, nodes: Candidates) -> int:
        if self.asks_first and self._asked is not None and self._asked[0].pod is query.pod is not None:
            _, scores, seen = self._asked
            # Nodes may have become feasible, or not, since the observation.
            scores = np.where(nodes.feasible[: len(scores)], scores[: len(nodes.feasible)], -np.inf)
            if np.isfinite(scores).any():
                return first_best(scores, seen.nodes)
        seen, groups = self._observations.observe(query, nodes)
        return first_best(self._scores(seen, groups), seen.nodes)

    def scores(self, query: PodQuery, nodes: Candidates) -> Floats:
        observation, groups = self._observations.observe(query, nodes)
        scores = np.full(len(nodes.feasible), -np.inf)
        # Observations end with the last node; slots after it are free.
        scores[: len(groups)] = self._scores(observation, groups)
        return scores

    def _scores(self, observation: ObservationArrays, groups: npt.NDArray[np.int32]) -> Floats:
        began = time.thread_time()
        scores = self._policy.scores(observation, groups)
        self._seconds = time.thread_time() - began
        return scores
