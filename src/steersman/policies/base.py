"""Interface of all policies: their inputs, selection rules, Python scorers, explanations and saved tensors.

A policy is an immutable value. Its state for one cluster is in the arrays of `decision.kernels.DecisionState`, which
`decision.context.build_decision_state` builds, and in its scorer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, cast

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Node
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.policies.decision import kernels
from steersman.policies.decision.contributions import Contribution
from steersman.policies.gpu_state.arrays import LearnedArrays, empty_learned, features_only
from steersman.policies.node_scores.kube_arrays import KubeArrays, kube_arrays

if TYPE_CHECKING:
    from steersman.policies.decision.decider import Decider
    from steersman.policies.features import View
    from steersman.policies.files.embedded_profile import EmbeddedProfile
    from steersman.policies.linear import LinearPolicy
    from steersman.policies.node_metrics.view import NodeMetricsView
    from steersman.policies.observations.kernels import ObservationArrays
    from steersman.workloads.profile import ProfileArrays, TypicalPod
    from steersman.workloads.workload import SpreadSelectors

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


RULE = "rule"
"""`saved_as` of a rule, which has no trained weights."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The nodes that a scorer chooses from for one pod.

    Attributes:
        feasible: [N] bool, the node slots to choose from.
        eligible: [N] bool, the nodes over which features and rewards of the whole cluster are taken, see
            `cluster.constraints.node.eligible_nodes`.
        waiting: number of pods that wait beside this one, see `decision.decider.Decider`.
    """

    feasible: Mask
    eligible: Mask
    waiting: int = 0


ObservationChooser = Callable[["ObservationArrays", npt.NDArray[np.int32]], int]
"""Return the chosen slot for an observation and the racks and servers of its nodes, [N, 2]."""


class Observations(Protocol):
    """Encoder of a cluster for networks: the same observations that environments return."""

    def observe(self, query: PodQuery, nodes: Candidates) -> tuple[ObservationArrays, npt.NDArray[np.int32]]:
        """Return the observation of the slots up to the last node, and their racks and servers, [M, 2]."""

    def reset_cache(self) -> None:
        """Discard cached features of all nodes, because the change log was reset."""


@dataclass(frozen=True, slots=True)
class ScoringContext:
    """Inputs of a scorer.

    Attributes:
        state: the cluster's state.
        cluster: the decision arrays, which the caller keeps up to date.
        typical_pods: the workload profile.
        selectors: the selectors of default spreading.
        node_metrics: the nodes' measured metrics.
        observations: factory of observation encoders by view.
        seed: seed of random numbers.
    """

    state: ClusterState
    cluster: kernels.DecisionState
    typical_pods: tuple[TypicalPod, ...]
    selectors: SpreadSelectors
    node_metrics: NodeMetricsView
    observations: Callable[[View], Observations]
    seed: int


class Scorer(ABC):
    """Node scorer in Python, for a policy whose scores are not in the score table."""

    @abstractmethod
    def scores(self, query: PodQuery, nodes: Candidates) -> Floats:
        """Return the score of every slot, [N] float64, -inf where infeasible; at least one slot must be feasible.

        Raises:
            SteersmanError: the policy failed, or a score is not finite.
        """

    def choose(self, query: PodQuery, nodes: Candidates) -> int:
        """Return the feasible slot with the highest score, the lowest on ties. Raises SteersmanError: see `scores`."""
        return int(np.argmax(self.scores(query, nodes)))

    @property
    def asks_first(self) -> bool:
        """Whether `ask` must be awaited before `choose`, because decisions come from elsewhere."""
        return False

    async def ask(self, query: PodQuery, nodes: Candidates) -> None:  # noqa: B027  # most scorers ask nobody
        """Fetch what the next `choose` needs from elsewhere, without blocking the event loop."""

    def reset_cache(self) -> None:  # noqa: B027  # most scorers have no cache
        """Discard cached features of all nodes, because the change log was reset."""


class EqualScorer(Scorer):
    """Scorer that gives every feasible node the same score."""

    def scores(self, query: PodQuery, nodes: Candidates) -> Floats:
        """Return 0 for every feasible slot, -inf for the others."""
        return np.where(nodes.feasible, 0.0, -np.inf)


class Policy:
    """Base of all policies: ranks the feasible nodes of a pod; never rejects a pod or sees later arrivals.

    Attributes:
        name: name in results.
        prepared: the embedded workload profile; None: the current workload's profile applies.
        members: a portfolio's policies.
        digest: a portfolio's digest, equal for portfolios with the same members.
        node_rule, device_rule: selection rules of nodes and GPU devices (constants of `decision.kernels`).
        score_functions: ids (`policies.node_scores.local_scores`) and weights of the score table's functions.
        needs_leftover_tables: whether it reads leftover tables, which take a second to compute.
        needs_selectors: whether it spreads pods of the same Service or ReplicaSet.
        needs_telemetry: whether it scores measured metrics.
        needs_peers: whether it reads on which nodes pods of the same owner run.
        is_learned: whether its weights were trained.
        is_network: whether it is a network over observations.
        saved_as: the network kind in a policy file; "" if it cannot be saved.
        scores_nothing: whether all its scores are equal.
        server_url: URL of the server that scores; "" if scores are computed in this process.
        tie_rule: description of the choice among nodes of equal score.
    """

    __slots__ = ()

    name: str
    prepared: EmbeddedProfile | None = None
    members: tuple[Policy, ...] = ()
    digest: str = ""
    node_rule: ClassVar[int] = kernels.SELECT_EXTERNAL
    needs_selectors: ClassVar[bool] = False
    needs_peers: ClassVar[bool] = False
    is_learned: ClassVar[bool] = False
    is_network: ClassVar[bool] = False
    scores_nothing: ClassVar[bool] = False
    tie_rule: ClassVar[str] = "the order of the nodes: the first of equal scores wins"

    @property
    def server_url(self) -> str:
        """URL of the server that scores; "" if scores are computed in this process."""
        return ""

    @property
    def device_rule(self) -> int:
        """Selection rule of GPU devices on the chosen node (`decision.kernels.DEVICES_...`)."""
        return kernels.DEVICES_BEST

    @property
    def score_functions(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Ids and weights of the score table's functions; both empty if the policy has no table."""
        return (), ()

    @property
    def is_bound_to_classes(self) -> bool:
        """Whether its arrays must be rebuilt for every new pod class."""
        return True

    @property
    def needs_leftover_tables(self) -> bool:
        """Whether decisions read leftover tables."""
        return False

    @property
    def needs_telemetry(self) -> bool:
        """Whether it scores measured metrics."""
        return False

    @property
    def telemetry_rule(self) -> str:
        """Name of the rule of `policies.node_metrics.rules` that decides as it does; "" if there is none."""
        return ""

    def chooser(self, view: View) -> ObservationChooser | None:
        """Return the function that chooses by observations in a view; None if it does not decide by such."""
        return None

    @property
    def derives_tables(self) -> bool:
        """Whether leftover tables must be computed, because the policy embeds none."""
        return self.needs_leftover_tables and self.prepared is None

    @property
    def saved_as(self) -> str:
        """Network kind in a policy file; "" if the policy cannot be saved."""
        return ""

    @property
    def default_member(self) -> Policy:
        """Policy that decides without a selection: a portfolio's first member, under the portfolio's name."""
        return self

    def renamed(self, name: str) -> Self:
        """Return a copy with another name."""
        return replace(cast(Any, self), name=name)  # type: ignore[no-any-return]

    def with_profile(self, prepared: EmbeddedProfile | None) -> Self:
        """Return a copy with this embedded workload profile; None removes it."""
        return replace(cast(Any, self), prepared=prepared)  # type: ignore[no-any-return]

    def tensors(self) -> dict[str, Floats]:
        """Return the tensors of the policy file by name."""
        return {}

    def as_linear(self) -> LinearPolicy | None:
        """Return an equivalent linear policy to start a search from; None if there is none."""
        return None

    def kube_arrays(self, state: ClusterState, selectors: SpreadSelectors) -> KubeArrays:
        """Return the arrays of kube-scheduler's scores; of a dummy node for policies that do not use them."""
        return kube_arrays(ClusterState((Node("unused", 0, 0),)))

    def learned_arrays(
        self, state: ClusterState, profile: ProfileArrays, known: Callable[[], LearnedArrays]
    ) -> LearnedArrays:
        """Return the arrays of learned scores; `known` returns their part that does not depend on weights."""
        return features_only(known()) if self.needs_leftover_tables else empty_learned()

    def scorer(self, context: ScoringContext) -> Scorer | None:
        """Return the Python scorer; None if the score table holds the scores.

        Raises:
            SteersmanError: the policy's preparation failed.
        """
        return None

    def contributions(
        self, decider: Decider, query: PodQuery, nodes: Candidates, slot: int, other: int
    ) -> list[Contribution]:
        """Return each feature's contribution to preferring `slot` over `other`; empty if scores have no parts.

        The contributions of a linear policy add up to the score difference. Those of a network do not: each is the
        effect of replacing one feature by the other node's value (occlusion).
        """
        return []
