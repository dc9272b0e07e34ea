"""Interface of all policies: what they need, how the core selects a node, Python scorers and explanations.

A policy is an immutable value. Its state for one cluster is in a decider of the core (`decision.description`), and in
its scorer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.core.handles import CoreDecider
from steersman.orders.order import AGE, Order
from steersman.policies.decision.selection import BY_SCORER, SelectionRules

if TYPE_CHECKING:
    from steersman.policies.embedded_profile import EmbeddedProfile
    from steersman.policies.features import View
    from steersman.policies.node_metrics import NodeMetricsView
    from steersman.policies.observation import ObservationArrays
    from steersman.workloads.profile import TypicalPod
    from steersman.workloads.workload import SpreadSelectors


Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The nodes that a scorer chooses from for one pod."""

    feasible: Mask  # [N] bool, the node slots to choose from
    # [N] bool, the nodes over which features and rewards of the whole cluster are taken, see
    # `cluster.constraints.node.eligible_nodes`
    eligible: Mask
    waiting: int = 0  # number of pods that wait beside this one, see `decision.decider.Decider`


class Observations(Protocol):
    """Encoder of a cluster for networks: the same observations that environments return."""

    def observe(self, query: PodQuery, nodes: Candidates) -> tuple[ObservationArrays, npt.NDArray[np.int32]]:
        """Return the observation of the slots up to the last node, and their racks and servers, [M, 2]."""


@dataclass(frozen=True, slots=True)
class ScoringContext:
    """Inputs of a scorer."""

    state: ClusterState  # the cluster's state
    # The policy's decider on a live cluster, which the caller keeps up to date; None in a simulated run
    decider: CoreDecider | None
    typical_pods: tuple[TypicalPod, ...]  # the workload profile
    selectors: SpreadSelectors  # the selectors of default spreading
    node_metrics: NodeMetricsView  # the nodes' measured metrics
    observations: Callable[[View], Observations]  # factory of observation encoders by view
    seed: int  # seed of random numbers


class Scorer(ABC):
    """Node scorer in Python, for a policy that the core does not know."""

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
        """Whether `ask` is to be awaited before `choose`, because decisions come from elsewhere or take long."""
        return False

    @property
    def answers_once(self) -> bool:
        """Whether what `ask` fetched serves a single `choose`."""
        return False

    async def ask(self, query: PodQuery, nodes: Candidates) -> None:  # noqa: B027  # most scorers send no request
        """Fetch what the next `choose` needs from elsewhere, without blocking the event loop."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """Contribution of one feature to the preference of one node over another."""

    name: str  # the feature's name
    # `value`, `other`: its values on the preferred and on the other node.
    value: float
    other: float
    contribution: float  # fall of the preferred node's score with the other node's value


def occlusion_contributions(
    names: Sequence[str], row: Floats, other: Floats, score: Callable[[Floats], Floats]
) -> list[Contribution]:
    """Return the contribution of every feature that differs between two nodes.

    Args:
        names: the features' names.
        row: [F] features of the preferred node.
        other: [F] features of the other node.
        score: the scores, [B], of feature rows, [B, F].
    """
    differ = np.flatnonzero(row != other)
    # Row 0 is the unchanged one; row 1 + k has the other node's value of the k-th feature that differs.
    replaced = np.repeat(row[None], 1 + len(differ), axis=0)
    replaced[1 + np.arange(len(differ)), differ] = other[differ]
    scores = score(replaced)
    return [
        Contribution(names[i], float(row[i]), float(other[i]), float(scores[0] - scores[1 + k]))
        for k, i in enumerate(differ.tolist())
    ]


class Need(Enum):
    """An input that a policy reads in addition to the cluster's nodes and pods."""

    LEFTOVER_TABLES = auto()  # leftover tables, which take a second to compute where the policy embeds none
    SELECTORS = auto()  # the selectors of Services and controllers, whose pods it spreads
    TELEMETRY = auto()  # measured metrics of the nodes
    PEERS = auto()  # on which nodes pods of the same owner run
    SERVER = auto()  # a server that scores, see `live.http_policy`


class Policy:
    """Base of all policies: ranks the feasible nodes of a pod; never rejects a pod or sees later arrivals.

    Attributes:
        name: name in results.
        prepared: the embedded workload profile; None: the current workload's profile applies.
        members: a portfolio's policies.
        is_learned: whether its weights were trained.
        order: who goes next among pods that wait, where the policy decides that.
    """

    __slots__ = ()

    name: str
    prepared: EmbeddedProfile | None = None
    order: Order = AGE
    members: tuple[Policy, ...] = ()
    is_learned: ClassVar[bool] = False

    @property
    def needs(self) -> frozenset[Need]:
        """What it reads in addition to the cluster's nodes and pods."""
        return frozenset()

    @property
    def selection(self) -> SelectionRules:
        """How the core selects the node and its devices."""
        return BY_SCORER

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts of its scores by their numbers in the core, see `CoreDecider.contributions`."""
        return ()

    def scorer(self, context: ScoringContext) -> Scorer | None:
        """Return the Python scorer; None if the core decides.

        Raises:
            SteersmanError: the policy's preparation failed.
        """
        return None

    def contributions(
        self, context: ScoringContext, query: PodQuery, nodes: Candidates, slot: int, other: int
    ) -> list[Contribution]:
        """Return each feature's contribution to preferring `slot` over `other`; empty if scores have no parts.

        The contributions of a linear policy add up to the score difference. Those of a network do not: each is the
        effect of replacing one feature by the other node's value (occlusion).
        """
        if context.decider is None or not (names := self.parts):
            return []
        parts = context.decider.contributions(query.class_id, query.labels_id, slot, other)
        return [Contribution(names[int(number)], *values) for number, *values in parts.tolist()]


AnyPolicy = TypeVar("AnyPolicy", bound=Policy)


def renamed(policy: AnyPolicy, name: str) -> AnyPolicy:
    """Return a copy of a policy with another name."""
    return replace(cast(Any, policy), name=name)  # type: ignore[no-any-return]


def with_profile(policy: AnyPolicy, prepared: EmbeddedProfile | None) -> AnyPolicy:
    """Return a copy of a policy with this embedded workload profile; None removes it."""
    return replace(cast(Any, policy), prepared=prepared)  # type: ignore[no-any-return]


def with_own_order(policy: AnyPolicy, order: Order) -> AnyPolicy:
    """Return a copy of a policy with an order that is a part of it, so that its name does not tell."""
    return replace(cast(Any, policy), order=order)  # type: ignore[no-any-return]


def with_order(policy: AnyPolicy, order: Order) -> AnyPolicy:
    """Return a copy of a policy with another order; unless both orders are that of age, its name tells."""
    ordered = with_own_order(policy, order)
    is_of_age = policy.order.name == AGE.name and order.name == AGE.name
    # Names of some policies, such as URLs, are computed.
    if is_of_age or "name" not in (field.name for field in fields(cast(Any, ordered))):
        return ordered
    return renamed(ordered, f"{policy.name}+{order.name}")


def default_member(policy: Policy) -> Policy:
    """Return who decides without a selection: a portfolio's first member, under the portfolio's name and order."""
    return decided_by(policy, policy.members[0]) if policy.members else policy


def decided_by(portfolio: Policy, member: AnyPolicy) -> AnyPolicy:
    """Return a member of a portfolio under the portfolio's name and order."""
    return replace(cast(Any, member), name=portfolio.name, order=portfolio.order)  # type: ignore[no-any-return]


def derives_tables(policy: Policy) -> bool:
    """Return whether leftover tables must be computed, because the policy embeds none."""
    return Need.LEFTOVER_TABLES in policy.needs and policy.prepared is None
