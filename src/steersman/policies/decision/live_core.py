"""A policy's decider in the core that follows a live cluster.

A simulation describes its cluster once. Here nodes, classes, labels and selectors appear and disappear between
decisions. The core is told what changed; where its arrays would need another shape, the cluster is described anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays
from steersman.cluster.constraints.inter_pod import InterPodArrays
from steersman.cluster.model import Node
from steersman.cluster.state import ClusterState
from steersman.core.handles import CoreDecider
from steersman.objectives import summary as summed
from steersman.policies.base import Need, Observations, Policy, Scorer, ScoringContext
from steersman.policies.decision.description import (
    VIEW_NUMBERS,
    Arrays,
    described_decisions,
    described_leftovers,
    described_scheduler,
)
from steersman.policies.decision.selection import NodeRule
from steersman.policies.features import CLUSTER, GPU, TELEMETRY, View
from steersman.policies.leftovers import LeftoverArrays, LeftoverTables, leftover_arrays, leftover_tables
from steersman.policies.live_observations import LiveObservations, TelemetryObservations
from steersman.policies.node_metrics import NodeMetricsView, Telemetry
from steersman.workloads.profile import TypicalPod, profile_arrays
from steersman.workloads.topology import NodePlaces, node_places
from steersman.workloads.workload import SpreadSelectors

Counts = tuple[int, ...]
"""Numbers of classes, rows of constraints, label sets, selectors, owned terms, exclusive things, topology keys and node
filters."""


class LiveCore:
    """The decider and the scorer of one policy on a live cluster.

    Args:
        policy: the policy; not a portfolio.

    Raises:
        SteersmanError: the policy's preparation failed.
    """

    scorer: Scorer | None  # the scorer in Python; None if the core decides
    places: NodePlaces  # racks and servers of the nodes that are observed

    def __init__(self, view: ClusterView, policy: Policy) -> None:
        # `node_metrics`: node metrics for telemetry policies and latency limits
        self.view, self.policy, self.node_metrics = view, policy, NodeMetricsView(view.state, view.telemetry)
        self._selectors, self._follows_selectors = view.selectors(), Need.SELECTORS in policy.needs
        self._is_kube = policy.selection.node == NodeRule.KUBE_SCHEDULER
        self._leftovers = view.leftovers
        self._tables: LeftoverTables | None = None
        self._changed: set[int] = set()
        self._is_broken = False
        self.version = 0  # of the nodes: changes when one is added, removed or replaced
        self._watched: tuple[str, int] = ("", 0)
        self._known: Counts = ()  # what the core has numbers for
        self._lasting: Counts = ()  # of these, what has its number for good
        self._is_provisional = False
        self._stored: npt.NDArray[np.int64] | None = None
        self._decider = CoreDecider(self._described())
        self.scorer = policy.scorer(self.context())

    @property
    def decider(self) -> CoreDecider:
        """The decider, up to date with the cluster."""
        self.follow()
        return self._decider

    def changed(self, slot: int) -> None:
        """Record a change of a node or of the pods on it."""
        self._changed.add(slot)
        self.node_metrics.changed(slot)

    def store(self, scores: npt.NDArray[np.int64] | None) -> None:
        """Set the scores of VolumeBinding for the next decisions, see `PodQuery.storage`."""
        if self._is_kube and (scores is not None or self._stored is not None):
            self._decider.set_storage(np.zeros(len(self._nodes), dtype=np.int64) if scores is None else scores)
        self._stored = scores

    def follow(self) -> None:
        """Tell the core what changed since it was last told."""
        state = self.view.state
        # A first description that was made for a request has nothing that lasts.
        is_outdated = self._is_broken or self._shape != self._shape_now() or not self._lasting
        if self._follows_selectors and (selectors := self.view.selectors()) != self._selectors:
            self._selectors, is_outdated = selectors, True
        if is_outdated:
            self._decider.replace(self._described())
            self.scorer = self.policy.scorer(self.context())
            return
        replaced = [slot for slot in self._changed if state.nodes[slot] is not self._nodes[slot]]
        scheduler: Arrays = {}
        if self._is_kube and (replaced or self._has_new_numbers()):
            # First, because it adds selectors to the state.
            scheduler = described_scheduler(state, self._selectors, self.policy.selection.kube)
        changes = self._described_numbers() if self._has_new_numbers() else {}
        if replaced:
            changes |= self._described_nodes(replaced)
        self._is_broken = True  # unless the core takes all of it
        if changes:
            self._decider.follow(changes | scheduler)
        if self._changed:
            self._set_pods(self._changed.difference(replaced))
        self._is_broken = False
        self._changed.clear()
        for slot in replaced:
            self._nodes[slot] = state.nodes[slot]
        self.version += bool(replaced)

    def observations(self, view: View) -> Observations:
        """Return an encoder of the cluster in a view."""
        if view == TELEMETRY:
            return TelemetryObservations(self.node_metrics)
        return LiveObservations(view, self)

    def watching(self, view: View) -> CoreDecider:
        """Return the decider, which observes the nodes in this view and in their present racks."""
        core = self.decider
        if self._watched != (view.name, self.version):
            self.places = node_places(self.view.state.nodes)
            core.watch(
                {
                    "observer.view": np.array(VIEW_NUMBERS[view.name]),
                    "observer.rack": self.places.rack,
                    "observer.racks": np.array(self.places.racks),
                    **(described_leftovers(self._leftover_tables()) if view == GPU else {}),
                    "profile.accepts": self._profile.accepts,
                }
            )
            self._watched = view.name, self.version
        return core

    def summary(self, waiting: int, eligible: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """Return the state, [16], of the nodes that some pod may enter, [N], while so many pods wait.

        See `objectives.summary`.
        """
        core, state = self.watching(CLUSTER), np.zeros(summed.COLUMNS)
        core.observe(waiting, eligible.view(np.int8), {})
        core.write_state(state)
        return state

    def context(self) -> ScoringContext:
        view = self.view
        return ScoringContext(
            *(view.state, self._decider, view.profile, self._selectors, self.node_metrics, self.observations, view.seed)
        )

    def _shape_now(self) -> tuple[object, ...]:
        """Return what cannot change without a new description."""
        state = self.view.state
        return len(state.nodes), state.arrays.gpu_free.shape[1], state.resources, state.gpu_types

    def _described(self) -> Arrays:
        state, embedded = self.view.state, self.policy.prepared
        self._shape, self._tables = self._shape_now(), None
        models = state.gpu_types
        self._profile = profile_arrays(self.view.profile, models) if embedded is None else embedded.profile_for(models)
        arrays = described_decisions(
            self.policy, state, self._profile, self._selectors, self._leftover_tables, self.view.seed
        )
        self._note_numbers(_counts(state.class_arrays, state.term_arrays))
        self._changed.clear()
        self._nodes: list[Node | None] = list(state.nodes)
        self._stored, self._is_broken = None, False
        self.version += 1
        return arrays

    def _has_new_numbers(self) -> bool:
        state = self.view.state
        return self._is_provisional or self._known != _counts(state.class_arrays, state.term_arrays)

    def _note_numbers(self, counts: Counts) -> None:
        """Note what the core has numbers for. Those of a request are taken back, and then belong to something else."""
        self._known, self._is_provisional = counts, self.view.state.terms.is_provisional
        if not self._is_provisional:
            self._lasting = counts

    def _described_numbers(self) -> Arrays:
        """Return what is new among the things that have numbers, see `Decider::follow_changes` in the core."""
        state = self.view.state
        classes, terms = state.class_arrays, state.term_arrays
        kept = self._lasting if self._is_provisional else self._known
        self._note_numbers(_counts(classes, terms))
        of_classes, constraints, labels, selectors, owned, things, keys, filters = kept
        first = int(terms.rule_start[of_classes])
        return {
            "kept": np.array(kept, dtype=np.int64),
            **{f"classes.{name}": value[of_classes:] for name, value in classes._asdict().items() if name != "allowed"},
            "classes.allowed": classes.allowed[constraints:],
            "terms.rules": terms.rules[first:],
            "terms.rule_start": terms.rule_start[of_classes:] - first,
            "terms.matches": terms.matches[labels:],
            "terms.more_matches": terms.matches[:labels, selectors:],
            "terms.matched": terms.matched[selectors:],
            "terms.owned_terms": terms.owned_terms[owned:],
            "terms.owned": terms.owned[owned:],
            "terms.held": terms.held[things:],
            "terms.conflicts": terms.conflicts[things:],
            "terms.domain": terms.domain[keys:],
            "terms.domains": terms.domains,
            "terms.included": terms.included[filters:],
        }

    def _described_nodes(self, replaced: Sequence[int]) -> Arrays:
        """Return the nodes that came, went or were replaced, see `Decider::follow_changes` in the core."""
        state = self.view.state
        terms, slots = state.term_arrays, np.array(replaced, dtype=np.int64)
        return {
            "slots": slots,
            **{f"nodes.{name}": value[slots] for name, value in state.arrays._asdict().items()},
            "changed.allowed": state.class_arrays.allowed[:, slots],
            "changed.matched": terms.matched[:, slots],
            "changed.owned": terms.owned[:, slots],
            "changed.held": terms.held[:, slots],
            "changed.domain": terms.domain[:, slots],
            "changed.domains": terms.domains,
            "changed.included": terms.included[:, slots],
        }

    def _set_pods(self, slots: Iterable[int]) -> None:
        nodes, terms = self.view.state.arrays, self.view.state.term_arrays
        of_nodes = nodes.free, nodes.nonzero, nodes.gpu_free, nodes.gpu_kinds
        of_terms = terms.matched.T, terms.owned.T, terms.held.T
        for slot in slots:
            numbers = np.concatenate([each[slot] for each in (*of_nodes, *of_terms)], dtype=np.int64)
            self._decider.set_pods(slot, numbers)

    def _leftover_tables(self) -> LeftoverTables:
        if self._tables is None:
            if self.policy.prepared is not None:
                assert self.policy.prepared.leftovers is not None
                known = self.policy.prepared.leftovers
            else:
                if self._leftovers is None:
                    self._leftovers = leftover_arrays(self.view.profile)
                known = self._leftovers
            self._tables = leftover_tables(known, self._profile)
        return self._tables


def _counts(classes: ClassArrays, terms: InterPodArrays) -> Counts:
    of_terms = *terms.matches.shape, *map(len, (terms.owned, terms.held, terms.domain, terms.included))
    return len(classes.gpu_count), len(classes.allowed), *of_terms


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
