"""The interface of every policy: what it needs of a cluster, how it prepares, chooses, scores, explains, is saved.

A policy is a value without state of its own. What it knows of a cluster lies in the arrays of `deciding.Cluster`, which
`context.build_cluster` makes for it, and in its scorer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, cast

import numpy as np
import numpy.typing as npt

from steersman.cluster.latency import NO_LIMITS, LatencyLimits
from steersman.cluster.model import Node
from steersman.cluster.state import ClusterState
from steersman.policies import deciding
from steersman.policies.contributions import Contribution
from steersman.policies.kube_arrays import KubeArrays, kube_arrays
from steersman.policies.learned import LearnedArrays, for_showing, no_learned

if TYPE_CHECKING:
    from steersman.features import View
    from steersman.policies.decider import Decider
    from steersman.policies.linear_policy import LinearPolicy
    from steersman.policies.prepared import Prepared
    from steersman.policies.showing import Seen
    from steersman.policies.telemetry_sight import Sight
    from steersman.workloads.mix import MixArrays, TypicalPod
    from steersman.workloads.workload import Services

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

NO_PEERS: Mapping[int, int] = {}
RULE = "rule"
"""`saved_as` of a policy without weights."""


@dataclass(frozen=True, slots=True)
class ScoreQuery:
    """A pod that a scorer is asked about.

    Attributes:
        class_id: of the pod.
        feasible: [N] the slots among which it may choose.
        labels_id: its label set.
        peers: slot -> how many pods of its owner run there; in a cluster that lives.
        owner: number of its owner, -1 for none; in a simulation.
        limits: how far it may be from its users.
        waiting: pods that wait since they fit nowhere.
    """

    class_id: int
    feasible: Mask
    labels_id: int = 0
    peers: Mapping[int, int] = field(default_factory=dict)
    owner: int = -1
    limits: LatencyLimits = NO_LIMITS
    waiting: int = 0


class Observations(Protocol):
    """Shows a network what environments show of a cluster."""

    def observe(self, query: ScoreQuery) -> tuple[Seen, npt.NDArray[np.int32]]:
        """Return the observation of the slots up to the last node, and their racks and servers [M, 2]."""

    def reset_cache(self) -> None:
        """Look at every node anew: the log of changes begins again."""


@dataclass(frozen=True, slots=True)
class ScoringContext:
    """What a scorer may look at.

    Attributes:
        state: the cluster.
        cluster: its arrays, which whoever asks keeps up to date.
        typical_pods: of the workload.
        selectors: what pods are spread of by default.
        node_metrics: what is measured of the nodes.
        observations: shows the cluster in a view.
        seed: for what is random.
    """

    state: ClusterState
    cluster: deciding.Cluster
    typical_pods: tuple[TypicalPod, ...]
    selectors: Services
    node_metrics: Sight
    observations: Callable[[View], Observations]
    seed: int


class Scorer(ABC):
    """Scores nodes in Python, for a policy whose scores are not in the score table."""

    @abstractmethod
    def scores(self, query: ScoreQuery) -> Floats:
        """Return a score for every slot, [N], -inf where it is not feasible; some slot must be.

        Raises:
            SteersmanError: the policy failed, or a score is not a finite number.
        """

    def choose(self, query: ScoreQuery) -> int:
        """Return the feasible slot with the highest score, the first of equals. Raises SteersmanError: see `scores`."""
        return int(np.argmax(self.scores(query)))

    def reset_cache(self) -> None:  # noqa: B027  # most keep nothing
        """Look at every node anew: the log of changes begins again."""


class EqualScorer(Scorer):
    """Has no preference."""

    def scores(self, query: ScoreQuery) -> Floats:
        """Return 0 for every feasible slot."""
        return np.where(query.feasible, 0.0, -np.inf)


class Policy:
    """Ranks the nodes that a pod fits on; never refuses a pod, and never sees what comes next.

    Attributes:
        name: what results call it.
        prepared: a workload profile that it brings along; None: that of the workload at hand is used.
        members: of a portfolio, the policies to choose from.
        digest: of a portfolio, the same for two with the same members.
        node_rule, device_rule: how it chooses nodes and their GPU devices, by the numbers of `deciding`.
        score_functions: of the score table, their numbers (`policies.local`) and weights.
        needs_leftover_tables: whether it looks at what follows from the typical pods, which takes a second to work out.
        needs_selectors: whether it spreads pods of the same Service or ReplicaSet.
        needs_telemetry: whether it decides by what is measured.
        needs_peers: whether it looks at where pods of the same owner run.
        is_learned: whether it has weights that were trained.
        is_network: whether it is a network that is shown observations.
        saved_as: the kind of network in a policy file; "" for one that cannot be saved.
        scores_nothing: whether it has no preference.
        tie_rule: what decides among nodes of equal score.
    """

    __slots__ = ()

    name: str
    prepared: Prepared | None = None
    members: tuple[Policy, ...] = ()
    digest: str = ""
    node_rule: ClassVar[int] = deciding.CHOOSE_ASK
    needs_selectors: ClassVar[bool] = False
    needs_telemetry: ClassVar[bool] = False
    needs_peers: ClassVar[bool] = False
    is_learned: ClassVar[bool] = False
    is_network: ClassVar[bool] = False
    scores_nothing: ClassVar[bool] = False
    tie_rule: ClassVar[str] = "the order of the nodes: the first of those of equal score is taken"

    @property
    def device_rule(self) -> int:
        """Return how GPU devices of the chosen node are chosen."""
        return deciding.DEVICES_BEST

    @property
    def score_functions(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return the numbers and weights of the functions in the score table; none: there is no table."""
        return (), ()

    @property
    def is_bound_to_classes(self) -> bool:
        """Return whether its arrays must be made anew when a class of pods is new."""
        return True

    @property
    def needs_leftover_tables(self) -> bool:
        """Return whether the tables have to be there before it can decide."""
        return False

    @property
    def derives_tables(self) -> bool:
        """Return whether the tables have to be worked out, for it brings none."""
        return self.needs_leftover_tables and self.prepared is None

    @property
    def saved_as(self) -> str:
        """Return the kind of network in a policy file."""
        return ""

    @property
    def default_member(self) -> Policy:
        """Return who decides where nothing was compared: of a portfolio its first member, under its own name."""
        return self

    def renamed(self, name: str) -> Self:
        """Return the same policy under another name."""
        return replace(cast(Any, self), name=name)  # type: ignore[no-any-return]

    def with_profile(self, prepared: Prepared | None) -> Self:
        """Return the same policy with a workload profile of its own; None: without."""
        return replace(cast(Any, self), prepared=prepared)  # type: ignore[no-any-return]

    def tensors(self) -> dict[str, Floats]:
        """Return what a policy file holds."""
        return {}

    def as_linear(self) -> LinearPolicy | None:
        """Return the same as a linear policy, for a search to go on from; None: it cannot be written as one."""
        return None

    def kube_arrays(self, state: ClusterState, selectors: Services) -> KubeArrays:
        """Return the arrays of kube-scheduler's scores for a cluster."""
        return kube_arrays(ClusterState((Node("unused", 0, 0),)))

    def learned_arrays(self, state: ClusterState, mix: MixArrays, known: Callable[[], LearnedArrays]) -> LearnedArrays:
        """Return the arrays of learned scores. `known` gives what holds for nodes and pods whatever the weights."""
        return for_showing(known()) if self.needs_leftover_tables else no_learned()

    def scorer(self, context: ScoringContext) -> Scorer | None:
        """Return what scores nodes in Python; None: the score table has the scores.

        Raises:
            SteersmanError: the policy failed to prepare.
        """
        return None

    def contributions(self, decider: Decider, query: ScoreQuery, slot: int, other: int) -> list[Contribution]:
        """Return what told a slot from another one; nothing if scores have no parts.

        For a linear policy these parts add up to the difference of the two scores. For a network they do not: each is
        what one feature alone decides, with all others as they are (occlusion by the other node's value).
        """
        return []
