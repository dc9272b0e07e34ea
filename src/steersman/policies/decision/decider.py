"""Decisions of a policy for a live cluster, where nodes and pod classes appear and disappear between decisions.

A simulation builds the decision arrays once per run; here they are rebuilt whenever nodes or pod classes outgrow them.
The decision kernels are the same.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from operator import is_not

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import best_devices
from steersman.cluster.constraints.node import eligible_nodes
from steersman.cluster.model import Node
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.policies.base import Candidates, Need, Observations, Policy, ScoringContext, default_member
from steersman.policies.decision import kernels
from steersman.policies.decision.context import build_decision_state
from steersman.policies.decision.contributions import Contribution
from steersman.policies.features import TELEMETRY, View
from steersman.policies.gpu_state.arrays import learned_arrays
from steersman.policies.gpu_state.leftovers import LeftoverArrays, leftover_arrays, renumber_models
from steersman.policies.node_metrics.view import NodeMetricsView, Telemetry
from steersman.policies.observations.live import LiveObservations
from steersman.policies.observations.telemetry_live import TelemetryObservations
from steersman.workloads.profile import ProfileArrays, TypicalPod, profile_arrays
from steersman.workloads.workload import SpreadSelectors

CHANGE_LOG_SIZE = 1 << 14
"""Least capacity of the score table's change log; when it is full, the log restarts and all rows are recomputed."""
CLASS_CAPACITY = 64
"""Least capacity of the score table in pod classes."""
NEVER_REFRESHED = -1
"""`ScoreTable.log_position` of a row that must be computed from scratch."""
NO_CHANGES = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """Chosen node: its slot and the bit mask of its GPU devices."""

    slot: int
    devices: int


class Decider:
    """Decisions of one policy for one cluster.

    Args:
        state: the cluster's state; the caller reports every node change by `changed`.
        policy: the policy.
        profile: the workload profile, for policies without an embedded one.
        leftovers: leftover tables of the profile; None: computed when needed (about a second).
        services: source of the selectors of default spreading in `kube-default`, read before each decision.
        telemetry: the nodes' metrics; None: no metrics, and hard latency limits are ignored.
        seed: seed of policies that draw random numbers.
        demand: classes of the pods that are known to be scheduled here; those that are decided about are added.

    Attributes:
        scorer: the Python scorer; None if all scores are in the score table.
        services: the current selectors of default spreading.
        node_metrics: node metrics for telemetry policies and latency limits.
        waiting: number of pods that wait beside the one to place, a feature of networks. The caller keeps it up to
            date: a scheduler counts unschedulable pods, an observer of another scheduler those pending for longer.

    Raises:
        SteersmanError: the policy's preparation failed.
    """

    cluster: kernels.DecisionState

    def __init__(
        self,
        state: ClusterState,
        policy: Policy,
        *,
        profile: tuple[TypicalPod, ...] = (),
        leftovers: LeftoverArrays | None = None,
        services: Callable[[], SpreadSelectors] = SpreadSelectors,
        telemetry: Telemetry | None = None,
        seed: int = 0,
        demand: Iterable[int] = (),
    ) -> None:
        self.state, self.name, self.waiting = state, policy.name, 0
        self.policy, self.profile, self.seed = default_member(policy), profile, seed
        self.prepared = self.policy.prepared
        self._read_services, self.services = services, services()
        self.selection, self._follows_selectors = self.policy.selection, Need.SELECTORS in self.policy.needs
        self.node_metrics = NodeMetricsView(state, telemetry)
        self._leftovers = leftovers
        self._demand = set(demand)
        self._eligible_by: tuple[int, list[Node | None]] = (-1, [])
        self._eligible = np.zeros(0, dtype=np.bool_)
        self._kernel_rng, self._python_rng = np.array([seed], dtype=np.uint64), random.Random(seed)
        self._changed: set[int] = set()
        self._rebuild()

    @property
    def eligible(self) -> npt.NDArray[np.bool_]:
        """Return which nodes are eligible, [N]: those that some pod scheduled here may enter."""
        nodes, (classes, former) = self.state.nodes, self._eligible_by
        if classes != len(self._demand) or len(nodes) != len(former) or any(map(is_not, nodes, former)):
            self._eligible = eligible_nodes(self.state.table, (self.state.classes[c].constraints for c in self._demand))
            self._eligible_by = len(self._demand), list(nodes)
        return self._eligible

    def guest(self) -> Decider:
        """Return a copy to ask about pods that may not come: it shares all arrays, but keeps no class of theirs."""
        result = copy(self)
        result._demand = set(self._demand)
        return result

    def expect(self, class_id: int) -> None:
        """Add a class to those of the pods that are scheduled here."""
        self._demand.add(class_id)

    def changed(self, slot: int) -> None:
        """Record a change of a node or of the pods on it."""
        self._changed.add(slot)
        self.node_metrics.changed(slot)

    @property
    def asks_first(self) -> bool:
        """Whether `ask` must be awaited before `choose`, because decisions come from elsewhere."""
        return self.scorer is not None and self.scorer.asks_first

    async def ask(self, query: PodQuery) -> None:
        """Fetch what the next `choose`, for this pod, needs from elsewhere, without blocking the event loop."""
        self._demand.add(query.class_id)
        self.follow()
        feasible = self._feasible(query)
        if self._filters(query) and feasible.any():
            feasible, _ = self.node_metrics.filter_by_hard_limit(query, feasible)
        if feasible.any():
            assert self.scorer is not None
            await self.scorer.ask(query, self._candidates(query, feasible))

    def choose(self, query: PodQuery) -> NodeChoice | None:
        """Return the policy's choice among the nodes that pass every hard constraint; None if there are none.

        By a hard latency limit the nodes that keep it with a margin are considered, else of those that keep it now (or
        whose zone does, where a node is not measured) the ones of the least risk, else all. A decision on such a pod is
        counted by the limit's outcome.

        Raises:
            SteersmanError: a Python scorer failed, or a score is not finite.
        """
        outcome = ""
        if self._filters(query):
            candidates = self._feasible(query)
            if candidates.any():
                left, outcome = self.node_metrics.filter_by_hard_limit(query, candidates)
                query = query.within(left)
        choice = self.choose_among(query)
        self.node_metrics.count_decision(outcome)
        return choice

    def choose_among(self, query: PodQuery) -> NodeChoice | None:
        """Return the policy's choice as `choose` does, where a hard limit excludes no further nodes and none counts."""
        self._demand.add(query.class_id)
        self._sync_arrays()
        if query.allowed is not None:
            feasible = self.state.mask(query.class_id, query.labels_id)
            candidates = feasible & query.allowed
            if not candidates.any():
                return None
            if not (candidates == feasible).all():
                return self._choose_by_scores(query, candidates)
        if self.selection.node == kernels.SELECT_EXTERNAL:
            return self._choose_by_scorer(query)
        changed, rules = self._drain_changes(), (self.selection.node, self.selection.devices)
        kernels.decide(self.cluster, changed, self._room, *rules, query.class_id, query.labels_id)
        slot, devices = self._room.answer.tolist()
        return None if slot == kernels.NONE else NodeChoice(slot, devices)

    def selects_argmax(self, query: PodQuery) -> bool:
        """Return whether `choose` is the argmax of `scores` (lowest slot on ties), so that scores alone suffice."""
        return self.selection.node == kernels.SELECT_BEST and not self._filters(query)

    def _filters(self, query: PodQuery) -> bool:
        return query.limits.hard < math.inf and self.node_metrics.telemetry is not None

    def _feasible(self, query: PodQuery) -> npt.NDArray[np.bool_]:
        """Return the slots that pass every hard constraint but the latency limit, [N] bool."""
        feasible = self.state.mask(query.class_id, query.labels_id)
        return feasible if query.allowed is None else feasible & query.allowed

    def _choose_by_scores(self, query: PodQuery, candidates: npt.NDArray[np.bool_]) -> NodeChoice:
        """Return the choice among candidates, [N] bool, of which there is at least one."""
        if self.selection.node == kernels.SELECT_RANDOM:
            slot = self._python_rng.choice(np.flatnonzero(candidates).tolist())
        else:
            slot = int(np.argmax(self._scores(query, candidates)))
        return NodeChoice(slot, self.devices(query.class_id, slot))

    def scores(self, query: PodQuery) -> npt.NDArray[np.float64]:
        """Return the scores of all slots for a pod, [N] float64, -inf where infeasible.

        Errors are those of `choose`. Scores of `random` are all equal; those of `kube-default` are -inf beyond the
        nodes that its search would visit.
        """
        self._sync_arrays()
        candidates = None if query.allowed is None else self._feasible(query)
        if self._filters(query):
            candidates, _ = self.node_metrics.filter_by_hard_limit(query, self._feasible(query))
        return self._scores(query, candidates)

    def _scores(self, query: PodQuery, candidates: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.float64]:
        """Return the scores of candidates, [N] bool, -inf elsewhere; None: all feasible slots."""
        class_id, labels_id = query.class_id, query.labels_id
        if self.selection.node == kernels.SELECT_BEST:
            scores, mask = np.empty(len(self.state.nodes)), self._room.mask
            if masked := self.state.has_inter_pod_constraints(class_id, labels_id):
                mask = self.state.mask(class_id, labels_id)
            cluster = self.cluster
            context = kernels.ScoreTableContext(
                cluster.nodes, cluster.classes, cluster.profile, cluster.fragments, cluster.table, cluster.learned
            )
            kernels.score_nodes(context, self._drain_changes(), mask, masked, class_id, scores)
            return scores if candidates is None else np.where(candidates, scores, -np.inf)
        self._apply_changes()
        feasible = self.state.mask(class_id, labels_id) if candidates is None else candidates
        if not feasible.any():
            return np.full(len(feasible), -np.inf)
        assert self.scorer is not None
        return self.scorer.scores(query, self._candidates(query, feasible))

    def contributions(self, query: PodQuery, slot: int, other: int) -> list[Contribution]:
        """Return feature contributions to preferring one node over another, the largest first.

        Empty if the policy's scores have no parts.

        Args:
            query: the pod, which must fit on both.
            slot: the preferred slot.
            other: the other slot.
        """
        nodes = self.candidates(query)
        parts = self.policy.contributions(self._context(), query, nodes, slot, other)
        return sorted(parts, key=lambda part: -abs(part.contribution))

    def observations(self, view: View) -> Observations:
        """Return an encoder of the cluster in a view."""
        if view is TELEMETRY:
            return TelemetryObservations(self.node_metrics)
        return LiveObservations(view, self.state.nodes, self.cluster)

    def devices(self, class_id: int, slot: int) -> int:
        """Return the GPU devices, as a bit mask, for a pod of a class on a node that it fits on."""
        self.follow()
        if self.selection.node == kernels.SELECT_EXTERNAL:
            return int(best_devices(self.state.arrays, self.state.class_arrays, class_id, slot))
        return int(kernels.devices_on(self.cluster, self.selection.devices, class_id, slot, self._kernel_rng))

    def _choose_by_scorer(self, query: PodQuery) -> NodeChoice | None:
        self._apply_changes()
        feasible = self.state.mask(query.class_id, query.labels_id)
        if not feasible.any():
            return None
        assert self.scorer is not None
        slot = self.scorer.choose(query, self._candidates(query, feasible))
        devices = best_devices(self.state.arrays, self.state.class_arrays, query.class_id, slot)
        return NodeChoice(slot, int(devices))

    def candidates(self, query: PodQuery) -> Candidates:
        """Return the nodes that a scorer chooses from for a pod, with all arrays up to date."""
        self.follow()
        return self._candidates(query, self._feasible(query))

    def _candidates(self, query: PodQuery, feasible: npt.NDArray[np.bool_]) -> Candidates:
        eligible = self.eligible
        if query.class_id not in self._demand:  # the number may be provisional, so it is not kept
            eligible = eligible | eligible_nodes(self.state.table, [self.state.classes[query.class_id].constraints])
        return Candidates(feasible, eligible, self.waiting)

    def follow(self) -> None:
        """Update all arrays to the current state."""
        self._sync_arrays()
        self._apply_changes()

    def _sync_arrays(self) -> None:
        """Update everything except the contents of changed nodes."""
        state, cluster = self.state, self.cluster
        classes, terms = state.class_arrays, state.term_arrays
        # A new GPU model renumbers nodes without a model, possibly without any other change of the node arrays.
        is_outdated = state.arrays is not cluster.nodes or state.gpu_types != self._models
        is_outdated = is_outdated or len(state.classes) > self._class_capacity
        has_same_pods = classes is cluster.classes and terms is cluster.terms
        if self._follows_selectors and (services := self._read_services()) != self.services:
            self.services, is_outdated = services, True
        if is_outdated or (self.selection.follows_classes and not has_same_pods):
            self._rebuild()
        elif not has_same_pods:
            self.cluster = cluster._replace(classes=classes, terms=terms)

    def _apply_changes(self) -> None:
        changed = self._drain_changes()
        if len(changed):
            kernels.follow(self.cluster, changed)

    def _drain_changes(self) -> npt.NDArray[np.int64]:
        """Return and clear the slots of changed nodes; reset the table's change log if they do not fit into it."""
        if not self._changed:
            return NO_CHANGES
        changed = np.array(sorted(self._changed), dtype=np.int64)
        self._changed.clear()
        table = self.cluster.table
        if table.logged[0] + len(changed) > len(table.log):
            table.log_position[:], table.logged[0] = NEVER_REFRESHED, 0
            if self.scorer is not None:
                self.scorer.reset_cache()
        return changed

    def _rebuild(self) -> None:
        """Build the decision arrays and the scorer from the current state."""
        state, models = self.state, self.state.gpu_types
        self._models = models
        profile = profile_arrays(self.profile, models) if self.prepared is None else self.prepared.profile_for(models)
        self._class_capacity = max(CLASS_CAPACITY, 3 * len(state.classes) // 2)
        previous = getattr(self, "cluster", None)
        self.cluster = build_decision_state(
            self.policy,
            state,
            profile,
            classes=self._class_capacity,
            changes=max(CHANGE_LOG_SIZE, 2 * len(state.nodes)),
            selectors=self.services,
            known=lambda: learned_arrays(self._leftovers_for(profile), profile, state.arrays),
        )
        if previous is not None and self.cluster.kube.nodes == previous.kube.nodes:
            self.cluster.kube.cursor[:] = previous.kube.cursor  # start of the next search
        self._changed.clear()
        mask = np.zeros(len(state.nodes), dtype=np.bool_)
        self._room = kernels.DecisionRoom(mask, self._kernel_rng, np.zeros(2, dtype=np.int64))
        self.scorer = self.policy.scorer(self._context())

    def _context(self) -> ScoringContext:
        return ScoringContext(
            self.state, self.cluster, self.profile, self.services, self.node_metrics, self.observations, self.seed
        )

    def _leftovers_for(self, profile: ProfileArrays) -> LeftoverArrays:
        if self.prepared is not None:
            return self.prepared.leftovers_for(self.state.gpu_types)
        if self._leftovers is None:
            self._leftovers = leftover_arrays(self.profile, profile)
        # Leftover tables that were passed in, or are older than a GPU model, may have other model ids.
        return renumber_models(self._leftovers, self.profile, profile)
