"""Shadow another scheduler: what a policy would have decided; nothing is bound.

For every pod that the other scheduler binds: where would the policy have put it *in the same state of the cluster* (how
often do they agree), and where in a cluster that had followed the policy since the shadow began (how would the cluster
look now)? There, pods that the other scheduler finds no node for are tried, too.
"""

from __future__ import annotations

import asyncio
import csv
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TextIO

import msgspec
import numpy as np
import structlog

from steersman.cluster.arrays import CPU, MEMORY, PODS
from steersman.cluster.model import GPU_MILLI
from steersman.cluster.objects.api.pods import UNSCHEDULABLE, LivePod
from steersman.cluster.pod_query import PodQuery
from steersman.core.errors import SteersmanError
from steersman.kubernetes.cache.cached_pod import CachedPod, Listener
from steersman.kubernetes.cache.cluster_cache import NODES_PATH, PODS_PATH, ClusterCache, NodeFeed, PodFeed
from steersman.kubernetes.client import Client
from steersman.kubernetes.selectors import Selectors
from steersman.kubernetes.watch import Reflector, TeeHandler
from steersman.objectives.summary import FRAGMENTED
from steersman.policies.decision.decider import Decider, NodeChoice

PENDING_SECONDS = 1.0  # time between attempts to place pods that wait
COLUMNS = ("time", "pod", "scheduler_node", "policy_node", "agrees", "alternative_node")

log = structlog.get_logger("shadow")


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """Summary of the nodes that some pod of the scheduler may enter."""

    nodes_in_use: int  # nodes that hold a pod
    # `cpu_percent`, `memory_percent`, `gpu_percent`: requested share of what is allocatable.
    cpu_percent: float
    memory_percent: float
    gpu_percent: float
    cpu_deviation_percent: float  # standard deviation over nodes of the requested share of CPU
    fragmented_gpus: float  # idle GPUs that typical pods cannot use
    unplaced: int  # pods without a node


@dataclass(slots=True)
class AgreementStats:
    """How often the policy and the scheduler agreed."""

    decisions: int = 0
    agreed: int = 0
    refused: int = 0
    """Pods without a feasible node in the state in which the scheduler bound them (it decided in an earlier one)."""

    @property
    def agreement_percent(self) -> float | None:
        """Share of all decisions, percent; None before the first one."""
        return 100.0 * self.agreed / self.decisions if self.decisions else None


MakeDecider = Callable[[ClusterCache], Decider]


class ShadowCluster:
    """One of the two clusters: its cache, and the policy's decider for it."""

    def __init__(self, cache: ClusterCache, make_decider: MakeDecider) -> None:
        self.cache, self._make_decider = cache, make_decider
        self.decider: Decider | None = None

    def renew(self) -> None:
        self.decider = self._make_decider(self.cache)

    def choose(self, pod: CachedPod, query: PodQuery) -> NodeChoice | None:
        """Return the policy's choice in this cluster; None: there is no feasible node, or the policy has failed."""
        if self.decider is None:
            self.renew()
        assert self.decider is not None
        mixing = self.cache.gpu_pods.refusal(self.cache.state, pod.pod.requests)
        allowed = None if mixing is None else ~mixing[1]
        try:
            return self.decider.choose(query.within(allowed))
        except SteersmanError as error:
            log.error("no decision", pod=pod.key, error=str(error))
            return None

    def summary(self) -> ClusterSummary:
        """Return the summary of this cluster."""
        if self.decider is None:
            self.renew()
        assert self.decider is not None
        self.decider.follow()
        nodes, eligible = self.cache.state.arrays, self.decider.eligible
        used, whole = (nodes.allocatable - nodes.free)[eligible], nodes.allocatable[eligible]
        some = whole[:, CPU] > 0
        shares = used[some, CPU] / whole[some, CPU]
        return ClusterSummary(
            nodes_in_use=int((used[:, PODS] > 0).sum()),
            cpu_percent=_percent(used[:, CPU].sum(), whole[:, CPU].sum()),
            memory_percent=_percent(used[:, MEMORY].sum(), whole[:, MEMORY].sum()),
            gpu_percent=_percent(*(each[eligible].sum() for each in self.cache.state.gpu_use_by_node())),
            cpu_deviation_percent=100.0 * float(shares.std()) if some.any() else 0.0,
            fragmented_gpus=float(self.decider.live.summary(0, eligible)[FRAGMENTED]) / GPU_MILLI,
            unplaced=sum(not pod.node for pod in self.cache.pods.values()),
        )


class CounterfactualCache(ClusterCache):
    """Cache of a cluster in which the other scheduler's pods are where the policy puts them.

    Pods that were bound before the shadow began, and those of all other schedulers, are where they are.
    """

    cluster: ShadowCluster  # what the policy decides in

    def __init__(
        self, client: Client, listener: Listener, selectors: Selectors | None = None, *, scheduler_name: str
    ) -> None:
        super().__init__(client, listener, selectors)
        self.scheduler_name = scheduler_name  # `schedulerName` of the pods that the policy places
        self.began = False  # whether it places them yet
        # Those that it found no node for, and those that the other scheduler says are unschedulable, by key
        self.pending: dict[str, CachedPod] = {}
        self.has_new = False  # whether one of these was not tried yet

    def place_pending(self) -> None:
        """Try the pending pods, those of the highest priority first."""
        self.has_new = False
        refused: set[tuple[int, int, str]] = set()
        for pod in sorted(self.pending.values(), key=lambda pod: -pod.pod.priority):
            alike = (*self.number(pod), pod.pod.owner)
            if alike in refused:
                continue
            if self._place_by_policy(pod):
                log.debug("pending pod placed", pod=pod.key, node=pod.node)
            else:
                refused.add(alike)

    def delete_pod(self, key: str) -> None:
        self.pending.pop(key, None)
        super().delete_pod(key)

    def apply(self, head: LivePod, raw: msgspec.Raw) -> None:
        """Add or update a pod; one that the other scheduler found no node for is pending."""
        super().apply(head, raw)
        pod = self.pods.get(head.key)
        # With `pod.node` the policy has placed it already, though the other scheduler has not.
        if pod is None or pod.pod.scheduler_name != self.scheduler_name or head.node or pod.node:
            return
        # Pods that the other scheduler has not tried yet are placed by `bind`, in its order.
        if self._waits_for_room(pod) and head.scheduled_condition.reason == UNSCHEDULABLE:
            self.has_new |= pod.key not in self.pending
            self.pending[pod.key] = pod
        else:
            self.pending.pop(pod.key, None)

    def _waits_for_room(self, pod: CachedPod) -> bool:
        return not (pod.gated or pod.deleting or pod.nominated or pod.claims or pod.unmodelled)

    def bind(self, pod: CachedPod, node: str, head: LivePod) -> None:
        """Place a pod that the other scheduler has bound where the policy wants it."""
        if not self.began or pod.pod.scheduler_name != self.scheduler_name:
            super().bind(pod, node, head)
            return
        pod.assumed = False
        # A nomination by the other scheduler means nothing in this cluster.
        self.expected.nominate(pod, "")
        if not pod.node and pod.key not in self.pending and not self._place_by_policy(pod):
            self.pending[pod.key] = pod

    def _place_by_policy(self, pod: CachedPod) -> bool:
        choice = self.cluster.choose(pod, self.query(pod))
        if choice is None:
            return False
        self.pending.pop(pod.key, None)
        self.expected.assume(pod, choice.slot, choice.devices)
        return True


class _ForwardingListener(Listener):
    """Listener that forwards node changes to the cluster's decider, and added and bound pods to hooks."""

    def __init__(self) -> None:
        self.cluster: ShadowCluster | None = None
        self.has_grown = False
        self.added_hook: Callable[[CachedPod], None] | None = None
        self.bound_hook: Callable[[CachedPod], None] | None = None

    def on_pod_added(self, pod: CachedPod) -> None:
        if self.added_hook is not None:
            self.added_hook(pod)

    def on_pod_bound(self, pod: CachedPod) -> None:
        if self.bound_hook is not None:
            self.bound_hook(pod)

    def on_node_changed(self, slot: int, *, may_have_grown: bool) -> None:
        self.has_grown |= may_have_grown
        if self.cluster is not None and self.cluster.decider is not None:
            self.cluster.decider.changed(slot)

    def on_rebuilt(self) -> None:
        self.has_grown = True
        if self.cluster is not None and self.cluster.decider is not None:
            self.cluster.renew()


class Shadow:
    """Shadow of another scheduler."""

    def __init__(
        self,
        client: Client,
        make_decider: MakeDecider,  # builds the policy's decider for a cache
        shadowed: str,  # `schedulerName` of the pods
        *,
        selectors: Selectors | None = None,  # what selects pods for default spreading, for policies that use it
        came: Callable[[CachedPod], None] | None = None,  # called with every new pod
        output: TextIO | None = None,  # file for the decisions, CSV
    ) -> None:
        listener, other_listener = _ForwardingListener(), _ForwardingListener()
        actual = ClusterCache(client, listener, selectors, ranked=True)
        alternative = CounterfactualCache(client, other_listener, selectors, scheduler_name=shadowed)
        self.actual, self.alternative = ShadowCluster(actual, make_decider), ShadowCluster(alternative, make_decider)
        listener.cluster, other_listener.cluster = self.actual, self.alternative
        listener.bound_hook, listener.added_hook = self._compare, came
        alternative.cluster = self.alternative
        self._alternative, self._listener, self.shadowed = alternative, other_listener, shadowed
        # Reflectors that feed both, and those that the real cluster starts once a pod needs them; no volume claims.
        others = {each: None for cache in (actual, alternative) for each in cache.related_reflectors}
        self.reflectors: tuple[Reflector, ...] = (
            Reflector(client, NODES_PATH, TeeHandler(NodeFeed(actual), NodeFeed(alternative))),
            # The counterfactual first: its decision is written beside what the scheduler did.
            Reflector(client, PODS_PATH, TeeHandler(PodFeed(alternative), PodFeed(actual))),
            *others,
        )
        self.tally = AgreementStats()  # agreement so far
        self._writer = csv.writer(output) if output is not None else None
        if self._writer is not None:
            self._writer.writerow(COLUMNS)

    async def run(self, prepare: Callable[[], Awaitable[object]]) -> None:
        """Follow until cancelled; `prepare` is awaited once the cluster is listed.

        Raises:
            ApiError: the API server refuses to list or watch.
        """
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run())
            for reflector in self.reflectors:
                await reflector.synced.wait()
            await prepare()
            self.renew()
            self._alternative.began = True
            log.info("shadowing", scheduler=self.shadowed, nodes=len(self.actual.cache.state.slots))
            while True:
                if self._listener.has_grown or self._alternative.has_new:
                    self._listener.has_grown = False
                    self._alternative.place_pending()
                await asyncio.sleep(PENDING_SECONDS)

    def renew(self) -> None:
        """Rebuild both deciders after the policy or its workload profile changed."""
        self.actual.renew()
        self.alternative.renew()

    def pictures(self) -> tuple[ClusterSummary, ClusterSummary]:
        """Return the summaries of the cluster and of the counterfactual one."""
        return self.actual.summary(), self.alternative.summary()

    def _compare(self, pod: CachedPod) -> None:
        if not self._alternative.began or pod.pod.scheduler_name != self.shadowed:
            return
        # Without a placement its node is not known, so the state before the binding is not either.
        if pod.key not in self.actual.cache.state.placements or self.actual.decider is None:
            return
        with self.actual.cache.unplaced(pod) as query:
            choice = self.actual.choose(pod, query)
        self._count(pod, choice)

    def _count(self, pod: CachedPod, choice: NodeChoice | None) -> None:
        node = self.actual.cache.state.nodes[choice.slot] if choice is not None else None
        chosen = "" if node is None else node.name
        other = self.alternative.cache.pods.get(pod.key)
        self.tally.decisions += 1
        self.tally.agreed += chosen == pod.node
        self.tally.refused += choice is None
        log.debug("decision", pod=pod.key, scheduler=pod.node, policy=chosen)
        if self._writer is not None:
            other_node = other.node if other is not None else ""
            agrees = str(chosen == pod.node).lower()
            self._writer.writerow([f"{time.time():.3f}", pod.key, pod.node, chosen, agrees, other_node])


def _percent(part: np.int64 | int, whole: np.int64 | int) -> float:
    return 100.0 * float(part) / float(whole) if whole else 0.0
