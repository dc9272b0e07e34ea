"""A policy at work on a cluster that lives: nodes and classes of pods come and go between decisions.

What the event loop of a simulation does once at the start of a run is done here whenever the cluster outgrows it; what
decides is the same compiled code.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import best_devices
from steersman.cluster.latency import NO_LIMITS, LatencyLimits
from steersman.cluster.state import ClusterState
from steersman.features import View
from steersman.policies import deciding
from steersman.policies.base import NO_PEERS, Policy, ScoreQuery, ScoringContext
from steersman.policies.context import build_cluster
from steersman.policies.contributions import Contribution
from steersman.policies.learned import learned_arrays
from steersman.policies.live_observations import LiveObservations
from steersman.policies.outlook import OutlookArrays, for_models, outlook_arrays
from steersman.policies.telemetry_sight import Sight, Telemetry
from steersman.workloads.mix import MixArrays, TypicalPod, mix_arrays
from steersman.workloads.workload import Services

CHANGES_KEPT = 1 << 14
"""Changes of nodes between two decisions on a class that are looked up one by one; beyond that all nodes are."""
CLASS_ROOM = 64
UNSEEN = -1
NO_NEWS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Choice:
    """A node's slot and the bit mask of the GPU devices there."""

    slot: int
    devices: int


class Decider:
    """Decides for one cluster by one policy.

    Args:
        state: the cluster; whoever changes it says so by `changed`.
        policy: the policy.
        mix: the typical pods, for a policy that brings none.
        outlook: what follows from them, None: worked out when needed (about a second).
        services: says what `kube-default` spreads pods of by default; asked before each decision.
        telemetry: what is measured of the nodes; None: nothing, so hard limits of latencies are not looked at.
        seed: of policies that draw random numbers.

    Attributes:
        scorer: scores nodes in Python; None: all scores are in the score table.
        services: what pods are spread of now.
        sight: what there is to see of the cluster for rules of telemetry and limits of latency.
        waiting: pods that wait since they fit nowhere, which networks see; the caller keeps it up to date.

    Raises:
        SteersmanError: the policy failed to prepare.
    """

    cluster: deciding.Cluster

    def __init__(
        self,
        state: ClusterState,
        policy: Policy,
        *,
        mix: tuple[TypicalPod, ...] = (),
        outlook: OutlookArrays | None = None,
        services: Callable[[], Services] = Services,
        telemetry: Telemetry | None = None,
        seed: int = 0,
    ) -> None:
        self.state, self.name, self.waiting = state, policy.name, 0
        self.policy, self.mix, self.seed = policy.default_member, mix, seed
        self.prepared = self.policy.prepared
        self._services_now, self.services = services, services()
        self.chooser, self.rule = self.policy.node_rule, self.policy.device_rule
        self.sight = Sight(state, telemetry)
        self._outlook = outlook
        self._rng, self._draw = np.array([seed], dtype=np.uint64), random.Random(seed)
        self._answer = np.zeros(2, dtype=np.int64)
        self._changed: set[int] = set()
        self._make()

    def changed(self, slot: int) -> None:
        """Tell that a node changed: a pod came or left, or the node itself is another."""
        self._changed.add(slot)
        self.sight.changed(slot)

    def choose(
        self,
        class_id: int,
        labels_id: int = 0,
        peers: Mapping[int, int] = NO_PEERS,
        limits: LatencyLimits = NO_LIMITS,
        allowed: npt.NDArray[np.bool_] | None = None,
    ) -> Choice | None:
        """The best node for a pod that passes every hard constraint; None: there is none.

        Args:
            class_id: of the pod.
            labels_id: its label set.
            peers: slot -> how many pods of its owner run there; read by networks and rules of telemetry.
            limits: how far it may be from its users. Where nodes are known to keep the hard one, it goes to one of
                these.
            allowed: [N] the nodes that anything else leaves, such as the pod's volumes; None: all.

        Raises:
            SteersmanError: a policy that is not compiled failed, or gave scores that are no finite numbers.
        """
        self._renew()
        if allowed is not None or self._filters(limits):
            feasible = self.state.mask(class_id, labels_id)
            kept = feasible if allowed is None else feasible & allowed
            if self._filters(limits) and kept.any():
                kept = self.sight.keep_limit(class_id, kept, peers, limits)
            if not (kept == feasible).all():
                return self._choose_among(class_id, labels_id, peers, limits, kept) if kept.any() else None
        if self.chooser == deciding.CHOOSE_ASK:
            return self._ask(class_id, labels_id, peers, limits)
        news, chooser, rule, answer = self._news(), self.chooser, self.rule, self._answer
        deciding.decide(self.cluster, news, self._mask, self._rng, chooser, rule, class_id, labels_id, answer)
        slot, devices = self._answer.tolist()
        return None if slot == deciding.NONE else Choice(slot, devices)

    def is_by_scores(self, limits: LatencyLimits = NO_LIMITS) -> bool:
        """Whether `choose` takes the first slot of the highest of `scores`: who has these need not ask it, too."""
        return self.chooser == deciding.CHOOSE_TABLE and not self._filters(limits)

    def _filters(self, limits: LatencyLimits) -> bool:
        return limits.hard < math.inf and self.sight.telemetry is not None

    def _choose_among(
        self,
        class_id: int,
        labels_id: int,
        peers: Mapping[int, int],
        limits: LatencyLimits,
        kept: npt.NDArray[np.bool_],
    ) -> Choice:
        """The same among the slots that are kept, one at least."""
        if self.chooser == deciding.CHOOSE_RANDOM:
            slot = self._draw.choice(np.flatnonzero(kept).tolist())
        else:
            slot = int(np.argmax(self._scores(class_id, labels_id, peers, limits, kept)))
        return Choice(slot, self.devices(class_id, slot))

    def scores(
        self,
        class_id: int,
        labels_id: int = 0,
        peers: Mapping[int, int] = NO_PEERS,
        limits: LatencyLimits = NO_LIMITS,
    ) -> npt.NDArray[np.float64]:
        """[N] what the policy thinks of every slot for a pod, -inf where it may not run. The rest is as for `choose`.

        `random` has no preference; `kube-default` has none about nodes beyond those that it would look at.
        """
        self._renew()
        kept = None
        if self._filters(limits):
            mask = self.state.mask(class_id, labels_id)
            kept = self.sight.keep_limit(class_id, mask, peers, limits, decides=False)
        return self._scores(class_id, labels_id, peers, limits, kept)

    def _scores(
        self,
        class_id: int,
        labels_id: int,
        peers: Mapping[int, int],
        limits: LatencyLimits,
        kept: npt.NDArray[np.bool_] | None,
    ) -> npt.NDArray[np.float64]:
        """The same of the slots that are kept alone; None: all that the pod may run on."""
        if self.chooser == deciding.CHOOSE_TABLE:
            scores, mask = np.empty(len(self.state.nodes)), self._mask
            if masked := self.state.sees_others(class_id, labels_id):
                mask = self.state.mask(class_id, labels_id)
            cluster = self.cluster
            scored = deciding.Scored(
                cluster.nodes, cluster.classes, cluster.mix, cluster.fragments, cluster.table, cluster.learned
            )
            deciding.score_nodes(scored, self._news(), mask, masked, class_id, scores)
            return scores if kept is None else np.where(kept, scores, -np.inf)
        self._follow()
        feasible = self.state.mask(class_id, labels_id) if kept is None else kept
        if not feasible.any():
            return np.full(len(feasible), -np.inf)
        assert self.scorer is not None
        return self.scorer.scores(self._query(class_id, labels_id, peers, limits, feasible))

    def contributions(
        self,
        class_id: int,
        labels_id: int,
        peers: Mapping[int, int],
        slot: int,
        other: int,
        limits: LatencyLimits = NO_LIMITS,
    ) -> list[Contribution]:
        """Return what told a slot from another one, the largest part first; nothing if a policy's scores have no parts.

        Args:
            class_id: of the pod.
            labels_id: its label set.
            peers: slot -> how many pods of its owner run there.
            slot: the preferred one.
            other: the other one; the pod must fit on both.
            limits: how far it may be from its users.
        """
        self.follow()
        query = self._query(class_id, labels_id, peers, limits, self.state.mask(class_id, labels_id))
        return sorted(self.policy.contributions(self, query, slot, other), key=lambda each: -abs(each.contribution))

    def observations(self, view: View) -> LiveObservations:
        """Return what shows the cluster in a view."""
        return LiveObservations(view, self.state.nodes, self.cluster)

    def devices(self, class_id: int, slot: int) -> int:
        """The GPU devices, as a bit mask, that a pod of a class would get on a node that it fits on."""
        self.follow()
        if self.chooser == deciding.CHOOSE_ASK:
            return int(best_devices(self.state.arrays, self.state.class_arrays, class_id, slot))
        return int(deciding.devices_on(self.cluster, self.rule, class_id, slot, self._rng))

    def _ask(self, class_id: int, labels_id: int, peers: Mapping[int, int], limits: LatencyLimits) -> Choice | None:
        self._follow()
        feasible = self.state.mask(class_id, labels_id)
        if not feasible.any():
            return None
        assert self.scorer is not None
        slot = self.scorer.choose(self._query(class_id, labels_id, peers, limits, feasible))
        devices = best_devices(self.state.arrays, self.state.class_arrays, class_id, slot)
        return Choice(slot, int(devices))

    def _query(
        self,
        class_id: int,
        labels_id: int,
        peers: Mapping[int, int],
        limits: LatencyLimits,
        feasible: npt.NDArray[np.bool_],
    ) -> ScoreQuery:
        return ScoreQuery(class_id, feasible, labels_id, peers, limits=limits, waiting=self.waiting)

    def follow(self) -> None:
        """Bring everything up to date with the state."""
        self._renew()
        self._follow()

    def _renew(self) -> None:
        """Follow everything but what changed on nodes."""
        state, cluster = self.state, self.cluster
        classes, terms = state.class_arrays, state.term_arrays
        # A model that is new renumbers nodes without one, which may be all that changes in the arrays of the nodes.
        grown = state.arrays is not cluster.nodes or state.gpu_types != self._models
        grown = grown or len(state.classes) > self._room
        known = classes is cluster.classes and terms is cluster.terms
        if self.policy.needs_selectors and (services := self._services_now()) != self.services:
            self.services, grown = services, True
        if grown or (self.policy.is_bound_to_classes and not known):
            self._make()
        elif not known:
            self.cluster = cluster._replace(classes=classes, terms=terms)

    def _follow(self) -> None:
        news = self._news()
        if len(news):
            deciding.follow(self.cluster, news)

    def _news(self) -> npt.NDArray[np.int64]:
        """Slots of the nodes that changed since this was last asked, for the kernel that follows them."""
        if not self._changed:
            return NO_NEWS
        changed = np.array(sorted(self._changed), dtype=np.int64)
        self._changed.clear()
        table = self.cluster.table
        if table.logged[0] + len(changed) > len(table.log):
            table.seen[:], table.logged[0] = UNSEEN, 0
            if self.scorer is not None:
                self.scorer.reset_cache()
        return changed

    def _make(self) -> None:
        """Make everything from the state as it is."""
        state, models = self.state, self.state.gpu_types
        self._models = models
        mix = mix_arrays(self.mix, models) if self.prepared is None else self.prepared.mix_for(models)
        self._room = max(CLASS_ROOM, 3 * len(state.classes) // 2)
        former = getattr(self, "cluster", None)
        self.cluster = build_cluster(
            self.policy,
            state,
            mix,
            classes=self._room,
            changes=max(CHANGES_KEPT, 2 * len(state.nodes)),
            selectors=self.services,
            known=lambda: learned_arrays(self._outlook_for(mix), mix, state.arrays),
        )
        if former is not None and self.cluster.kube.nodes == former.kube.nodes:
            self.cluster.kube.cursor[:] = former.kube.cursor  # where the next search begins
        self._changed.clear()
        self._mask = np.zeros(len(state.nodes), dtype=np.bool_)
        context = ScoringContext(state, self.cluster, self.mix, self.services, self.sight, self.observations, self.seed)
        self.scorer = self.policy.scorer(context)

    def _outlook_for(self, mix: MixArrays) -> OutlookArrays:
        if self.prepared is not None:
            return self.prepared.outlook_for(self.state.gpu_types)
        if self._outlook is None:
            self._outlook = outlook_arrays(self.mix, mix)
        # The outlook that was given, or was made before a model was new, numbers GPU models as another state does.
        return for_models(self._outlook, self.mix, mix)
