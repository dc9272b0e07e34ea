"""A live cluster as policies decide about it, and their arrays, which follow its changes.

A simulation builds the decision arrays once per run. Here nodes and pod classes appear and disappear between decisions,
and the arrays are rebuilt whenever one of them outgrows them.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.state import ClusterState
from steersman.policies.base import Need, Observations, Policy, Scorer, ScoringContext
from steersman.policies.decision import kernels
from steersman.policies.decision.context import build_decision_state
from steersman.policies.features import TELEMETRY, View
from steersman.policies.gpu_state.arrays import learned_arrays
from steersman.policies.gpu_state.leftovers import LeftoverArrays, leftover_arrays
from steersman.policies.node_metrics.view import NodeMetricsView, Telemetry
from steersman.policies.observations.live import LiveObservations
from steersman.policies.observations.telemetry_live import TelemetryObservations
from steersman.workloads.profile import TypicalPod, profile_arrays
from steersman.workloads.workload import SpreadSelectors

CHANGE_LOG_SIZE = 1 << 14  # least capacity of the change log; a full one restarts, and all rows are recomputed
CLASS_CAPACITY = 64  # least capacity of the score table in pod classes
NEVER_REFRESHED = -1  # `ScoreTable.log_position` of a row that must be computed from scratch
NO_CHANGES = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a policy can know of a cluster."""

    state: ClusterState  # the cluster's state
    profile: tuple[TypicalPod, ...] = ()  # the workload profile, for policies without an embedded one
    # Leftover tables of the profile; None: computed when needed (about a second)
    leftovers: LeftoverArrays | None = None
    # Source of the selectors of default spreading in `kube-default`, read before each decision
    selectors: Callable[[], SpreadSelectors] = SpreadSelectors
    telemetry: Telemetry | None = None  # the nodes' metrics; None: no metrics, and hard latency limits are ignored
    seed: int = 0  # seed of policies that draw random numbers
    demand: AbstractSet[int] = frozenset()  # classes of the pods that are known to be scheduled here


class LiveArrays:
    """The arrays and the scorer of one policy on a live cluster.

    Args:
        policy: the policy; not a portfolio.

    Raises:
        SteersmanError: the policy's preparation failed.
    """

    arrays: kernels.DecisionState  # the arrays that decision kernels read
    mask: npt.NDArray[np.bool_]  # [N] buffer of these kernels
    scorer: Scorer | None  # the Python scorer; None if all scores are in the score table

    def __init__(self, view: ClusterView, policy: Policy) -> None:
        # `node_metrics`: node metrics for telemetry policies and latency limits
        self.view, self.policy, self.node_metrics = view, policy, NodeMetricsView(view.state, view.telemetry)
        self._selectors, self._follows_selectors = view.selectors(), Need.SELECTORS in policy.needs
        self._leftovers = view.leftovers
        self._changed: set[int] = set()
        self._rebuild()

    def twin(self) -> LiveArrays:
        """Return a copy that shares all arrays until one of the two is rebuilt; no change may be pending."""
        # The arrays are shared on purpose; the set of pending changes must not be.
        other = copy(self)
        other._changed = set()
        return other

    def changed(self, slot: int) -> None:
        """Record a change of a node or of the pods on it."""
        self._changed.add(slot)
        self.node_metrics.changed(slot)

    def sync(self) -> None:
        """Update everything except the contents of changed nodes."""
        state, arrays = self.view.state, self.arrays
        classes, terms = state.class_arrays, state.term_arrays
        # A new GPU model renumbers nodes without a model, possibly without any other change of the node arrays.
        is_outdated = state.arrays is not arrays.nodes or state.gpu_types != self._models
        is_outdated = is_outdated or len(state.classes) > self._class_capacity
        has_same_pods = classes is arrays.classes and terms is arrays.terms
        if self._follows_selectors and (selectors := self.view.selectors()) != self._selectors:
            self._selectors, is_outdated = selectors, True
        if is_outdated or (self.policy.selection.follows_classes and not has_same_pods):
            self._rebuild()
        elif not has_same_pods:
            self.arrays = arrays._replace(classes=classes, terms=terms)

    def follow(self) -> None:
        """Update all arrays to the current state."""
        self.sync()
        self.apply_changes()

    def apply_changes(self) -> None:
        changed = self.drain_changes()
        if len(changed):
            kernels.follow(self.arrays, changed)

    def drain_changes(self) -> npt.NDArray[np.int64]:
        """Return and clear the slots of changed nodes; reset the table's change log if they do not fit into it."""
        if not self._changed:
            return NO_CHANGES
        changed = np.array(sorted(self._changed), dtype=np.int64)
        self._changed.clear()
        table = self.arrays.table
        if table.logged[0] + len(changed) > len(table.log):
            # A restarted log no longer tells what changed, so all rows are computed again.
            table.log_position[:], table.logged[0] = NEVER_REFRESHED, 0
            if self.scorer is not None:
                self.scorer.reset_cache()
        return changed

    def observations(self, view: View) -> Observations:
        """Return an encoder of the cluster in a view."""
        if view == TELEMETRY:
            return TelemetryObservations(self.node_metrics)
        return LiveObservations(view, self.view.state.nodes, self.arrays)

    def context(self) -> ScoringContext:
        view = self.view
        return ScoringContext(
            view.state, self.arrays, view.profile, self._selectors, self.node_metrics, self.observations, view.seed
        )

    def _rebuild(self) -> None:
        state, models, embedded = self.view.state, self.view.state.gpu_types, self.policy.prepared
        self._models = models
        profile = profile_arrays(self.view.profile, models) if embedded is None else embedded.profile_for(models)
        # Half as many classes again, so that not every new class rebuilds the arrays.
        self._class_capacity = max(CLASS_CAPACITY, 3 * len(state.classes) // 2)
        previous = getattr(self, "arrays", None)
        self.arrays = build_decision_state(
            self.policy,
            state,
            profile,
            classes=self._class_capacity,
            changes=max(CHANGE_LOG_SIZE, 2 * len(state.nodes)),
            selectors=self._selectors,
            known=lambda: learned_arrays(self._known_leftovers(), profile, state.arrays),
        )
        # kube-scheduler goes on where its last search ended, also when nodes' arrays are new.
        if previous is not None and self.arrays.kube.nodes == previous.kube.nodes:
            self.arrays.kube.cursor[:] = previous.kube.cursor  # start of the next search
        self._changed.clear()
        self.mask = np.zeros(len(state.nodes), dtype=np.bool_)
        self.scorer = self.policy.scorer(self.context())

    def _known_leftovers(self) -> LeftoverArrays:
        if self.policy.prepared is not None:
            assert self.policy.prepared.leftovers is not None
            return self.policy.prepared.leftovers
        if self._leftovers is None:
            self._leftovers = leftover_arrays(self.view.profile)
        return self._leftovers
