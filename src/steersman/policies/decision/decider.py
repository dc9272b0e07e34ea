"""Decisions of a policy for a live cluster, by the core that also decides in simulations."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from operator import is_not

import numpy as np
import numpy.typing as npt

from steersman.cluster.constraints.node import eligible_nodes
from steersman.cluster.model import Node
from steersman.cluster.pod_query import PodQuery
from steersman.core.handles import NOWHERE
from steersman.policies.base import Candidates, Contribution, Policy, default_member
from steersman.policies.decision.live_core import ClusterView, LiveCore
from steersman.policies.decision.selection import NodeRule


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """Chosen node: its slot and the bit mask of its GPU devices."""

    slot: int
    devices: int


class Decider:
    """Decisions of one policy for one cluster.

    Args:
        view: the cluster; the caller reports every node change by `changed`.

    Raises:
        SteersmanError: the policy's preparation failed.
    """

    def __init__(self, view: ClusterView, policy: Policy) -> None:
        # `waiting`: number of pods that wait besides the one to place, a feature of networks. The caller keeps it up
        # to date: a scheduler counts unschedulable pods, an observer of another scheduler those pending for longer
        self.state, self.name, self.waiting = view.state, policy.name, 0
        self.policy = default_member(policy)
        self.selection = self.policy.selection
        self.live = LiveCore(view, self.policy)  # the policy's decider in the core, and its scorer
        self._demand = set(view.demand)
        self._eligible_by: tuple[int, list[Node | None]] = (-1, [])
        self._eligible = np.zeros(0, dtype=np.bool_)

    @property
    def eligible(self) -> npt.NDArray[np.bool_]:
        """Return which nodes are eligible, [N]: those that some pod scheduled here may enter."""
        nodes, (classes, known) = self.state.nodes, self._eligible_by
        if classes != len(self._demand) or len(nodes) != len(known) or any(map(is_not, nodes, known)):
            self._eligible = eligible_nodes(self.state.table, (self.state.classes[c].constraints for c in self._demand))
            self._eligible_by = len(self._demand), list(nodes)
        return self._eligible

    def guest(self) -> Decider:
        """Return a copy for hypothetical pods: their classes are not added to the demand of this decider."""
        # All else is shared, so hypothetical pods advance the random numbers.
        other = copy(self)
        other._demand = set(self._demand)
        return other

    def expect(self, class_id: int) -> None:
        """Add a class to those of the pods that are scheduled here."""
        self._demand.add(class_id)

    def changed(self, slot: int) -> None:
        """Record a change of a node or of the pods on it."""
        self.live.changed(slot)

    @property
    def asks_first(self) -> bool:
        """Whether `ask` is to be awaited before `choose`, because decisions come from elsewhere or take long."""
        return self.live.scorer is not None and self.live.scorer.asks_first

    @property
    def answers_once(self) -> bool:
        """Whether what `ask` fetched serves a single `choose`."""
        return self.live.scorer is not None and self.live.scorer.answers_once

    async def ask(self, query: PodQuery) -> None:
        """Fetch what the next `choose`, for this pod, needs from elsewhere, without blocking the event loop."""
        self._demand.add(query.class_id)
        self.follow()
        feasible = self._feasible(query)
        # The same filter as in `choose`, or the answer would be about other nodes.
        if self._filters(query) and feasible.any():
            feasible, _ = self.live.node_metrics.filter_by_hard_limit(query, feasible)
        if feasible.any():
            assert self.live.scorer is not None
            await self.live.scorer.ask(query, self._candidates(query, feasible))

    def choose(self, query: PodQuery) -> NodeChoice | None:
        """Return the policy's choice among the nodes that pass every hard constraint; None if there are none.

        A hard latency limit narrows the candidates to (1) the nodes that keep it with a margin, else (2) the least
        risky of those that keep it now, or whose zone does where a node is not measured, else (3) all. A decision on
        such a pod is counted by the limit's outcome.

        Raises:
            SteersmanError: a Python scorer failed, or a score is not finite.
        """
        outcome = ""
        if self._filters(query):
            candidates = self._feasible(query)
            if candidates.any():
                left, outcome = self.live.node_metrics.filter_by_hard_limit(query, candidates)
                query = query.within(left)
        choice = self.choose_among(query)
        self.live.node_metrics.count_decision(outcome)
        return choice

    def choose_among(self, query: PodQuery) -> NodeChoice | None:
        """Return the policy's choice as `choose` does, without applying or counting a hard latency limit."""
        self._demand.add(query.class_id)
        core = self.live.decider
        if self.selection.node == NodeRule.EXTERNAL:
            return self._choose_by_scorer(query)
        self.live.store(query.storage)
        slot, devices = core.decide(query.class_id, query.labels_id, query.allowed)
        return None if slot == NOWHERE else NodeChoice(slot, devices)

    def selects_argmax(self, query: PodQuery) -> bool:
        """Return whether `choose` is the argmax of `scores` (lowest slot on ties), so that scores alone suffice."""
        return self.selection.node == NodeRule.BEST and not self._filters(query)

    def _filters(self, query: PodQuery) -> bool:
        return query.limits.hard < math.inf and self.live.view.telemetry is not None

    def _feasible(self, query: PodQuery) -> npt.NDArray[np.bool_]:
        """Return the slots that pass every hard constraint but the latency limit, [N] bool."""
        feasible = self.live.decider.mask(query.class_id, query.labels_id)
        return feasible if query.allowed is None else feasible & query.allowed

    def scores(self, query: PodQuery) -> npt.NDArray[np.float64]:
        """Return the scores of all slots for a pod, [N] float64, -inf where infeasible.

        Errors are those of `choose`. Scores of `random` are all equal; those of `kube-default` are -inf beyond the
        nodes that its search would visit.
        """
        candidates = None if query.allowed is None else self._feasible(query)
        if self._filters(query):
            candidates, _ = self.live.node_metrics.filter_by_hard_limit(query, self._feasible(query))
        return self._scores(query, candidates)

    def _scores(self, query: PodQuery, candidates: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.float64]:
        """Return the scores of candidates, [N] bool, -inf elsewhere; None: all feasible slots."""
        core = self.live.decider
        if self.selection.node != NodeRule.EXTERNAL:
            self.live.store(query.storage)
            return core.scores(query.class_id, query.labels_id, candidates)
        feasible = core.mask(query.class_id, query.labels_id) if candidates is None else candidates
        if not feasible.any():
            return np.full(len(feasible), -np.inf)
        assert self.live.scorer is not None
        return self.live.scorer.scores(query, self._candidates(query, feasible))

    def contributions(self, query: PodQuery, slot: int, other: int) -> list[Contribution]:
        """Return feature contributions to preferring one node over another, the largest first.

        Empty if the policy's scores have no parts.

        Args:
            query: the pod, which must fit on both.
        """
        nodes = self.candidates(query)
        self.live.store(query.storage)
        parts = self.policy.contributions(self.live.context(), query, nodes, slot, other)
        return sorted(parts, key=lambda part: -abs(part.contribution))

    def devices(self, class_id: int, slot: int) -> int:
        """Return the GPU devices, as a bit mask, for a pod of a class on a node that it fits on."""
        return self.live.decider.devices(class_id, slot)

    def _choose_by_scorer(self, query: PodQuery) -> NodeChoice | None:
        feasible = self._feasible(query)
        if not feasible.any():
            return None
        assert self.live.scorer is not None
        slot = self.live.scorer.choose(query, self._candidates(query, feasible))
        return NodeChoice(slot, self.live.decider.devices(query.class_id, slot))

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
        """Tell the core what changed in the cluster."""
        self.live.follow()
