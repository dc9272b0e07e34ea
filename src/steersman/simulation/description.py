"""A run before its first event, as the compiled core reads it (`core/src/engine.rs`)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.core.handles import CoreEngine
from steersman.orders import evictions
from steersman.orders.evictions import described_evictions
from steersman.orders.order import AGE
from steersman.orders.scores import LAS
from steersman.policies.base import Candidates, Policy
from steersman.policies.decision.description import Arrays, described_decisions
from steersman.policies.features import View
from steersman.policies.observation import ObservationArrays, empty_observation
from steersman.simulation.arrivals import Schedule
from steersman.simulation.prepared_workload import PreparedWorkload
from steersman.simulation.queueing import queue_of, shapes_of
from steersman.workloads.topology import Places

Ints = npt.NDArray[np.int64]

NOT_THERE = -1


class RunDescription:
    """What a run is made of.

    Args:
        workload: as the policy's profile of kube-scheduler reads it.
        plan: the arrivals, A of them.
        policy: who decides; not a portfolio.
        state: the nodes in the order of the plan, with the pods' classes and labels.
        seed: of random choices.
        notes_reasons: whether the run stops after a pod that was not bound.
    """

    def __init__(
        self,
        workload: PreparedWorkload,
        plan: Schedule,
        policy: Policy,
        state: ClusterState,
        seed: int,
        *,
        notes_reasons: bool = False,
    ) -> None:
        self._prepared, self._plan, self._policy, self._state, self._seed = workload, plan, policy, state, seed
        self._notes_reasons = notes_reasons
        self.order = policy.order if plan.waits else AGE
        self.class_id, self.labels_id = workload.classes_of(plan.pods)  # [A] each
        self.shapes = shapes_of(self.class_id, plan.members, plan.least, len(state.classes))
        self.eligible = workload.workload.eligible[plan.nodes]  # [N] whether a node is part of totals
        self.queue = queue_of(workload.queued, plan, self.order, self.shapes.of_arrival, self.labels_id, seed)
        # [A] each: priorities, groups of equal pods, and what pods and their gangs request in the unit of the cluster
        self.priority, self.groups = workload.queued.priority[plan.pods], self.queue["queue.group"]
        self.totals: npt.NDArray[np.float64] = self.queue["queue.total"].astype(np.float64)

    def arrays(self) -> Arrays:
        """Return the cluster, the policy and the pods that stand and arrive."""
        workload, prepared = self._prepared, self._policy.prepared
        decisions = described_decisions(
            self._policy,
            self._state,
            workload.profile_arrays(prepared),
            workload.workload.services,
            lambda: workload.leftovers_with(prepared),
            self._seed,
        )
        return decisions | self.arrivals() | self._standing()

    def arrivals(self) -> Arrays:
        """Return the pods that arrive alone, for a run on the cluster of another one."""
        plan, shapes, prepared = self._plan, self.shapes, self._prepared
        lifted = np.bincount(shapes.needs[:, 0], prepared.queued.lifted[shapes.needs[:, 1]], len(shapes.incomplete))
        arrivals: Arrays = {
            "arrivals.class_id": self.class_id,
            "arrivals.labels_id": self.labels_id,
            "arrivals.time": plan.time,
            "arrivals.duration": plan.duration,
            "arrivals.priority": self.priority,
            "arrivals.members": plan.members,
            "arrivals.least": plan.least,
            "arrivals.together": shapes.together,
            "arrivals.shape": shapes.of_arrival,
            "arrivals.controller": plan.controller,
            "arrivals.following": _following(plan.controller),
            "run.infeasible": prepared.infeasible_shapes(shapes),
            "run.lifted": lifted > 0,
            "run.nominated": self.nominated,
            "run.room": plan.room,
            "run.eligible": self.eligible,
            "run.waits": np.array(int(plan.waits)),
            "run.reasons": np.array(int(self._notes_reasons)),
            "run.tries_everybody": np.array(0),
            "run.queued": np.array(plan.queued),
        }
        return arrivals | self.queue | self._evictions

    @property
    def evicts(self) -> bool:
        """Return whether the order may have pods evicted."""
        return bool(self._evictions)

    @property
    def resumable(self) -> npt.NDArray[np.bool_]:
        """Return [A] whether an arrival can resume after an eviction."""
        nothing = np.full(len(self._plan.pods), np.nan)
        return ~np.isnan(self._evictions.get("evictions.interval", nothing).astype(np.float64))

    @cached_property
    def _evictions(self) -> Arrays:
        """Return who may be evicted, and when, if the order has pods evicted."""
        if self.order.score != LAS or not self._plan.waits:
            return {}
        pods = self._prepared.workload.pods
        arriving = [pods[i] for i in self._plan.pods.tolist()]
        return described_evictions(arriving, self._plan.members, self._prepared.queued.capacity, evictions.RULES)

    def _standing(self) -> Arrays:
        """Return the pods that stay where the workload recorded them."""
        node, devices = (each[self._plan.pods[: self._plan.standing]] for each in self._prepared.recorded)
        # argsort of a permutation is its inverse.
        return {"run.node": np.argsort(self._plan.nodes)[node], "run.devices": devices}

    @cached_property
    def nominated(self) -> Ints:
        """Return [M, 2] the pods that wait with a nominated node, and these nodes."""
        workload, slots, plan = self._prepared.workload, self._state.slots, self._plan
        if not workload.has_nominated:
            return np.zeros((0, 2), dtype=np.int64)
        # Pods that are drawn again later are not nominated.
        waiting, first = np.unique(plan.pods[plan.standing :], return_index=True)
        nodes = [slots.get(workload.pods[i].nominated, NOT_THERE) for i in waiting]
        rows = np.stack([plan.standing + first, np.array(nodes, dtype=np.int64)], axis=1)
        return rows[np.flatnonzero(rows[:, 1] != NOT_THERE)]


def write_state(engine: CoreEngine, state: ClusterState) -> None:
    """Write what the pods of a run have changed so far into the state of its nodes."""
    nodes, terms = state.arrays, state.term_arrays
    counts = terms.matched, terms.owned, terms.owned_total, terms.held
    engine.write_state(nodes.free, nodes.nonzero, nodes.gpu_free, nodes.gpu_kinds, *counts)


def _following(controller: Ints) -> Ints:
    """Return [A] the next arrival of the same controller, -1: there is none, or it has no controller."""
    following = np.full(len(controller), NOT_THERE, dtype=np.int64)
    arrivals = np.flatnonzero(controller != NOT_THERE)
    arrivals = arrivals[np.argsort(controller[arrivals], kind="stable")]
    is_same = controller[arrivals[:-1]] == controller[arrivals[1:]]
    following[arrivals[:-1][is_same]] = arrivals[1:][is_same]
    return following


class RunObservations:
    """Observe the cluster of a run.

    Args:
        view: the view that the policy observes.
        engine: the run, which observes it (`CoreEngine.watch`).
        plan: the arrivals.
        places: of the workload.
    """

    def __init__(self, view: View, engine: CoreEngine, plan: Schedule, places: Places) -> None:
        self._engine = engine
        self._groups = np.stack([places.rack[plan.nodes], places.server[plan.nodes]], axis=1).astype(np.int32)
        self._observation = empty_observation(view, len(plan.nodes))

    def observe(self, _: PodQuery, nodes: Candidates) -> tuple[ObservationArrays, npt.NDArray[np.int32]]:
        """Return the observation of a decision, see `policies.base.Observations`."""
        observation = self._observation
        self._engine.observe(observation.nodes, observation.pod, observation.context, observation.mask)
        return observation, self._groups
