"""Shadow another scheduler: what a policy would have decided; nothing is bound.

For every pod that the other scheduler binds: where would the policy have put it *in the same state of the cluster* (how
often do they agree), and where in a cluster that had followed the policy since the shadow began (how would the cluster
look now)?
"""

from __future__ import annotations

import asyncio
import csv
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TextIO

import numpy as np
import structlog

from steersman.cluster.arrays import CPU, MEMORY, PODS
from steersman.cluster.model import GPU_MILLI
from steersman.cluster.owner_pods import OwnerPods
from steersman.core.errors import SteersmanError
from steersman.kubernetes.cache.cluster_cache import (
    NODES_PATH,
    PODS_PATH,
    CachedPod,
    ClusterCache,
    Listener,
    NodeFeed,
    PodFeed,
)
from steersman.kubernetes.client import Client
from steersman.kubernetes.objects import PodHead
from steersman.kubernetes.selectors import Selectors
from steersman.kubernetes.watch import Reflector, TeeHandler
from steersman.policies.decision.decider import Decider, NodeChoice

COLUMNS = ("time", "pod", "scheduler_node", "policy_node", "agrees", "alternative_node")

log = structlog.get_logger("shadow")


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """Summary of the nodes that some pod of the scheduler may enter.

    Attributes:
        nodes_in_use: nodes that hold a pod.
        cpu_percent, memory_percent, gpu_percent: requested share of what is allocatable.
        cpu_deviation_percent: standard deviation over nodes of the requested share of CPU.
        fragmented_gpus: idle GPUs that typical pods cannot use.
        unplaced: pods that fit on no node.
    """

    nodes_in_use: int
    cpu_percent: float
    memory_percent: float
    gpu_percent: float
    cpu_deviation_percent: float
    fragmented_gpus: float
    unplaced: int


@dataclass(slots=True)
class AgreementStats:
    """How often the policy and the scheduler agreed."""

    decisions: int = 0
    agreed: int = 0
    refused: int = 0
    """Pods without a feasible node in the state in which the scheduler bound them (it decided in an earlier one)."""

    @property
    def agreement_percent(self) -> float:
        """Share of all decisions, percent."""
        return 100.0 * self.agreed / self.decisions if self.decisions else 0.0


MakeDecider = Callable[[ClusterCache], Decider]


class ShadowCluster:
    """One of the two clusters: its cache, and the policy's decider for it."""

    def __init__(self, cache: ClusterCache, make_decider: MakeDecider) -> None:
        self.cache, self._make_decider = cache, make_decider
        self.decider: Decider | None = None

    def renew(self) -> None:
        """Rebuild the decider."""
        self.decider = self._make_decider(self.cache)

    def choose(self, pod: CachedPod, owner_pods: OwnerPods) -> NodeChoice | None:
        """Return the policy's choice in this cluster."""
        if self.decider is None:
            self.renew()
        assert self.decider is not None
        mixing = self.cache.gpu_pods.refusal(self.cache.state, pod.pod.requests)
        allowed = None if mixing is None else ~mixing[1]
        return self.decider.choose(pod.class_id, pod.labels_id, owner_pods, pod.pod.latency, allowed)

    def summary(self, unplaced: int) -> ClusterSummary:
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
            fragmented_gpus=float(self.decider.cluster.fragments.total[eligible].sum()) / GPU_MILLI,
            unplaced=unplaced,
        )


class CounterfactualCache(ClusterCache):
    """Cache of a cluster in which the other scheduler's pods are where the policy puts them.

    Pods that were bound before the shadow began, and those of all other schedulers, are where they are.
    """

    cluster: ShadowCluster
    scheduler_name: str = ""
    began: bool = False

    def _on_bound(self, pod: CachedPod, node: str, head: PodHead) -> None:
        if not self.began or pod.pod.scheduler_name != self.scheduler_name:
            super()._on_bound(pod, node, head)
        elif not pod.node:
            choice = self.cluster.choose(pod, self.owner_pods(pod.pod))
            if choice is not None:
                chosen = self.state.nodes[choice.slot]
                assert chosen is not None
                self._put(pod, chosen.name, choice.devices)


class _ForwardingListener(Listener):
    """Listener that forwards node changes to the cluster's decider, and added and bound pods to hooks."""

    def __init__(self) -> None:
        self.cluster: ShadowCluster | None = None
        self.added_hook: Callable[[CachedPod], None] | None = None
        self.bound_hook: Callable[[CachedPod], None] | None = None

    def on_pod_added(self, pod: CachedPod) -> None:
        """See `kubernetes.cache.cluster_cache.Listener`."""
        if self.added_hook is not None:
            self.added_hook(pod)

    def on_pod_bound(self, pod: CachedPod) -> None:
        """See `kubernetes.cache.cluster_cache.Listener`."""
        if self.bound_hook is not None:
            self.bound_hook(pod)

    def on_node_changed(self, slot: int, *, may_have_grown: bool) -> None:
        """See `kubernetes.cache.cluster_cache.Listener`."""
        if self.cluster is not None and self.cluster.decider is not None:
            self.cluster.decider.changed(slot)

    def on_rebuilt(self) -> None:
        """See `kubernetes.cache.cluster_cache.Listener`."""
        if self.cluster is not None and self.cluster.decider is not None:
            self.cluster.renew()


class Shadow:
    """Shadow of another scheduler.

    Args:
        client: connection to the API server.
        make_decider: builds the policy's decider for a cache.
        shadowed: `schedulerName` of the pods.
        selectors: what selects pods for default spreading, for policies that use it.
        came: called with every new pod.
        output: file for the decisions, CSV.

    Attributes:
        tally: agreement so far.
    """

    def __init__(
        self,
        client: Client,
        make_decider: MakeDecider,
        shadowed: str,
        *,
        selectors: Selectors | None = None,
        came: Callable[[CachedPod], None] | None = None,
        output: TextIO | None = None,
    ) -> None:
        listener, other_listener = _ForwardingListener(), _ForwardingListener()
        actual, alternative = (
            ClusterCache(client, listener, selectors),
            CounterfactualCache(client, other_listener, selectors),
        )
        self.actual, self.alternative = ShadowCluster(actual, make_decider), ShadowCluster(alternative, make_decider)
        listener.cluster, other_listener.cluster = self.actual, self.alternative
        listener.bound_hook, listener.added_hook = self._compare, came
        alternative.cluster, alternative.scheduler_name = self.alternative, shadowed
        self._alternative, self.shadowed = alternative, shadowed
        # Reflectors that feed both, and those that the real cluster starts once a pod needs them; no volume claims.
        others = {each: None for cache in (actual, alternative) for each in cache.reflectors[2:]}
        self.reflectors: tuple[Reflector, ...] = (
            Reflector(client, NODES_PATH, TeeHandler(NodeFeed(actual), NodeFeed(alternative))),
            # The counterfactual first: its decision is written beside what the scheduler did.
            Reflector(client, PODS_PATH, TeeHandler(PodFeed(alternative), PodFeed(actual))),
            *others,
        )
        self.tally = AgreementStats()
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

    def renew(self) -> None:
        """Rebuild both deciders after the policy or its workload profile changed."""
        self.actual.renew()
        self.alternative.renew()

    def pictures(self) -> tuple[ClusterSummary, ClusterSummary]:
        """Return the summaries of the cluster and of the counterfactual one."""
        own_pods = [pod for pod in self.alternative.cache.pods.values() if pod.pod.scheduler_name == self.shadowed]
        lost = sum(1 for pod in own_pods if not pod.node and self.actual.cache.pods[pod.key].node)
        waiting = sum(1 for pod in self.actual.cache.pods.values() if not pod.node)
        return self.actual.summary(waiting), self.alternative.summary(waiting + lost)

    def _compare(self, pod: CachedPod) -> None:
        """Compare a binding of the scheduler with the policy's choice in the state before it."""
        if not self._alternative.began or pod.pod.scheduler_name != self.shadowed:
            return
        if pod.key not in self.actual.cache.state.placements or self.actual.decider is None:
            return
        with self.actual.cache.unplaced(pod) as owner_pods:
            try:
                choice = self.actual.choose(pod, owner_pods)
            except SteersmanError as error:
                log.error("no decision", pod=pod.key, error=str(error))
                choice = None
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
            there = other.node if other is not None else ""
            agrees = str(chosen == pod.node).lower()
            self._writer.writerow([f"{time.time():.3f}", pod.key, pod.node, chosen, agrees, there])


def _percent(part: np.int64 | int, whole: np.int64 | int) -> float:
    return 100.0 * float(part) / float(whole) if whole else 0.0
