"""Service process: the watched cluster, the policy, and graceful shutdown."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import structlog

from steersman.cluster.model import Pod
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.core.errors import SteersmanError
from steersman.core.garbage_collection import short_collections
from steersman.kubernetes.cache.cached_pod import CachedPod, Listener
from steersman.kubernetes.cache.cluster_cache import ClusterCache
from steersman.kubernetes.client import Client
from steersman.live.runtime.comparison import PolicyReloader
from steersman.live.runtime.http_server import Probes
from steersman.live.runtime.policy_manager import PolicyManager, PolicyMetrics, check_served
from steersman.live.runtime.tasks import BackgroundTasks
from steersman.live.service.api import Api
from steersman.live.service.config import ServiceConfig, exposure
from steersman.live.service.metrics import ServiceMetrics
from steersman.live.service.scoring.explanation import Explainer
from steersman.live.service.scoring.node_scorer import NodeScorer, RefusedRequestError
from steersman.live.service.scoring.unknown_pods import UnknownPods
from steersman.live.service.server import HttpServer
from steersman.policies.base import Policy, derives_tables
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.prometheus.collector import Addresses, TelemetryCollector, TelemetryMetrics, addresses_of
from steersman.prometheus.configuration import read_configuration
from steersman.workloads.profile import typical_pods

log = structlog.get_logger("service")


class WatchedCluster(Listener):
    """State of a live cluster, with the policy's scorer for it."""

    def __init__(self, client: Client, policy_manager: PolicyManager, metrics: ServiceMetrics) -> None:
        self.policy_manager, self.metrics = policy_manager, metrics
        self.cache = ClusterCache(client, self, policy_manager.selectors(client))
        self._node_scorer: NodeScorer | None = None
        self._unknown = UnknownPods(self.cache)

    @property
    def node_scorer(self) -> NodeScorer:
        """See `api.WatchedState`. Raises SteersmanError: nothing is known of the cluster yet."""
        if self._node_scorer is None:
            raise SteersmanError("nodes and pods are not listed yet; try again")
        return self._node_scorer

    @property
    def age(self) -> float:
        """See `api.WatchedState`: seconds since all watches were up."""
        return max(reflector.age for reflector in self.cache.reflectors)

    @property
    def node_count(self) -> int:
        return len(self.cache.state.slots)

    def waiting(self, raw: msgspec.Raw) -> CachedPod | None:
        return self.cache.waiting(raw)

    def query(self, pod: Pod, waiting: CachedPod | None = None) -> AbstractContextManager[tuple[NodeScorer, PodQuery]]:
        return self._unknown.query(self.node_scorer, pod, waiting)

    def renew(self) -> None:
        """Rebuild the decider after the policy or its workload profile changed."""
        self._node_scorer = NodeScorer(self.policy_manager.decider(self.cache))

    def on_pod_added(self, pod: CachedPod) -> None:
        self.policy_manager.see(pod)

    def on_pod_pending(self, pod: CachedPod) -> None:
        self.cache.number_waiting(pod)  # it will be asked about

    def on_pod_bound(self, pod: CachedPod) -> None:
        self.metrics.bound(pod.key, pod.node)

    def on_node_changed(self, slot: int, *, may_have_grown: bool) -> None:
        if self._node_scorer is not None:
            self._node_scorer.changed(slot)

    def on_rebuilt(self) -> None:
        for pod in self.cache.pods.values():
            if not pod.node:
                self.cache.number_waiting(pod)
        if self._node_scorer is not None:
            self.renew()

    async def run(self) -> None:
        """Watch the cluster until cancelled. Raises ApiError: the API server refuses."""
        telemetry = self.policy_manager.telemetry
        background = () if telemetry is None else (telemetry.run(),)
        async with BackgroundTasks(*(reflector.run() for reflector in self.cache.reflectors), *background):
            for reflector in self.cache.reflectors:
                await reflector.synced.wait()
            await self.policy_manager.begin(self.cache.state)
            self.renew()
            log.info("watching", nodes=len(self.cache.state.slots), policy=self.policy_manager.deciding.name)
            await self.policy_manager.keep(lambda: self.cache.state, self.renew)


class Service:
    """The score service; without a client of a cluster to watch, every request brings one."""

    def __init__(self, config: ServiceConfig, client: Client | None) -> None:
        self.config = config
        measured = read_configuration(Path(config.telemetry)) if config.telemetry else None
        if measured is not None and client is None:
            raise SteersmanError("telemetry is of a cluster that is watched, and none is")
        self.telemetry = None if measured is None else TelemetryCollector(measured, self._nodes)
        # Without a watched cluster there is nothing to compare on; whoever sends requests prepared the policy.
        unchecked = config.unchecked or client is None
        file = PolicyReloader(config.policy, has_telemetry=self.telemetry is not None)
        check_served(file.policy)
        self.policy_manager = PolicyManager(file, self.telemetry, unchecked=unchecked)
        if client is None and derives_tables(self.policy):
            raise SteersmanError(
                f"policy {config.policy!r} derives tables from typical pods, and without a cluster to watch there are "
                "none; steersman fit policy puts them into a file"
            )
        self.metrics = ServiceMetrics(None if client is None else lambda: self._age())
        self.metrics.registry.register(PolicyMetrics(self.policy_manager.comparison))
        if self.telemetry is not None:
            self.metrics.registry.register(TelemetryMetrics(self.telemetry, self._nodes))
        self.watched = None if client is None else WatchedCluster(client, self.policy_manager, self.metrics)

    @property
    def policy(self) -> Policy:
        return self.policy_manager.policy

    async def run(self, listening: Callable[[int], object] = lambda _: None) -> None:
        """Serve until cancelled.

        Raises:
            ApiError: the API server refuses the watches.
            SteersmanError: the port is taken.
            InputError: a file of the configuration cannot be used.
        """
        api = Api(self.config, self._name, self.watched, self._scorer_for, self.metrics)
        explainer = Explainer(self._name, self._choice, self.watched, self._scorer_for, api.check_sent)
        probes = Probes(
            ready={} if self.watched is None else {"watches": self._unsynced},
            notes={"policy": lambda: self.policy_manager.file.problem},
        )
        async with HttpServer(self.config, api, explainer, self.metrics, probes) as server:
            log.info("listening", address=self.config.address, port=server.port, policy=self._name())
            if problem := exposure(self.config):
                log.warning(problem, address=self.config.address)
            listening(server.port)
            nothing = ClusterState(())
            if self.watched is not None:
                with short_collections():
                    await self.watched.run()
            else:
                await self.policy_manager.keep(lambda: nothing, lambda: None)

    def _name(self) -> str:
        return self.policy_manager.deciding.name

    def _choice(self) -> tuple[str, str]:
        choice = self.policy_manager.comparison.choice
        return choice.member, choice.evidence

    def _scorer_for(self, state: ClusterState, pod: Pod) -> NodeScorer:
        """Return a scorer for a request's own cluster, whose profile is its pods and the one in question."""
        policy = self.policy_manager.deciding
        if derives_tables(policy):
            raise RefusedRequestError(
                f"policy {policy.name!r} derives tables from typical pods, which takes too long for a question that "
                "brings its cluster; steersman fit policy puts them into a file"
            )
        classes = [state.classes[placed.class_id] for placed in state.placements.values()]
        return NodeScorer(Decider(ClusterView(state, profile=typical_pods([*classes, pod.pod_class])), policy))

    def _age(self) -> float:
        assert self.watched is not None
        return self.watched.age

    def _nodes(self) -> Addresses:
        return {} if self.watched is None else addresses_of(self.watched.cache.state.nodes)

    def _unsynced(self) -> str:
        assert self.watched is not None
        return "" if self.watched.cache.synced else "nodes and pods are not listed yet"
