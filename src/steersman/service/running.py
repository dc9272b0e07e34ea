"""The service at work: the cluster that it watches, the policy in use, and how it all ends."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import structlog

from steersman.cluster.latency import NO_LIMITS
from steersman.cluster.model import Pod
from steersman.cluster.state import ClusterState
from steersman.errors import SteersmanError
from steersman.kube.cache import CachedPod, ClusterCache, Listener
from steersman.kube.client import Client
from steersman.live.policy_file import PolicyFile
from steersman.live.policy_metrics import PolicyMetrics
from steersman.live.running import Background
from steersman.live.thinking import Thinking
from steersman.policies.base import Policy
from steersman.policies.decider import Choice, Decider
from steersman.service.api import Api
from steersman.service.config import Config
from steersman.service.explaining import Explainer, explanation
from steersman.service.metrics import Metrics
from steersman.service.opinions import Numbers, Opinions, RefusedQuestion
from steersman.service.server import Server
from steersman.service.unknown_pods import UnknownPods
from steersman.telemetry.prometheus.collector import Collector
from steersman.telemetry.prometheus.configuration import read_configuration
from steersman.telemetry.prometheus.metrics import TelemetryMetrics
from steersman.workloads.mix import typical_pods

log = structlog.get_logger("service")


class WatchedCluster(Listener):
    """A live cluster and the policy's opinions about it.

    Args:
        client: the connection.
        thinking: the policy and its mix.
        metrics: are told where pods went.
    """

    def __init__(self, client: Client, thinking: Thinking, metrics: Metrics) -> None:
        self.thinking, self.metrics = thinking, metrics
        self.cache = ClusterCache(client, self, thinking.selectors(client))
        self._opinions: Opinions | None = None
        self._unknown = UnknownPods(self.cache)

    @property
    def opinions(self) -> Opinions:
        """See `api.Watched`. Raises SteersmanError: nothing is known of the cluster yet."""
        if self._opinions is None:
            raise SteersmanError("nodes and pods are not listed yet; try again")
        return self._opinions

    @property
    def age(self) -> float:
        """Seconds since all watches were up."""
        return max(reflector.age for reflector in self.cache.reflectors)

    @property
    def node_count(self) -> int:
        """See `api.Watched`."""
        return len(self.cache.state.slots)

    def waiting(self, raw: msgspec.Raw) -> CachedPod | None:
        """See `api.Watched`."""
        return self.cache.waiting(raw)

    def numbered(self, pod: Pod) -> AbstractContextManager[tuple[Opinions, Numbers]]:
        """See `api.Watched`."""
        return self._unknown.numbered(self.opinions, pod)

    def peers(self, pod: Pod) -> Mapping[int, int]:
        """See `api.Watched`."""
        return self.cache.peers(pod)

    def renew(self) -> None:
        """The policy or its mix is another."""
        self._opinions = Opinions(self.thinking.decider(self.cache))

    def pod_came(self, pod: CachedPod) -> None:
        """See `kube.cache.Listener`."""
        self.thinking.see(pod)

    def pod_bound(self, pod: CachedPod) -> None:
        """See `kube.cache.Listener`."""
        self.metrics.bound(pod.key, pod.node)

    def node_changed(self, slot: int, *, more: bool) -> None:
        """See `kube.cache.Listener`."""
        if self._opinions is not None:
            self._opinions.changed(slot)

    def rebuilt(self) -> None:
        """See `kube.cache.Listener`."""
        if self._opinions is not None:
            self.renew()

    def _state(self) -> ClusterState:
        return self.cache.state

    async def run(self) -> None:
        """Watch, until cancelled. Raises ApiError: we may not."""
        telemetry = self.thinking.telemetry
        beside = () if telemetry is None else (telemetry.run(),)
        async with Background(*(reflector.run() for reflector in self.cache.reflectors), *beside):
            for reflector in self.cache.reflectors:
                await reflector.synced.wait()
            await self.thinking.begin(self.cache.state)
            self.renew()
            gc.collect()
            gc.freeze()  # nodes and pods stay; to look through them for garbage takes a tenth of a second each time
            log.info("watching", nodes=len(self.cache.state.slots), policy=self.thinking.deciding.name)
            await self.thinking.keep(self._state, self.renew)


class Service:
    """A score service.

    Args:
        config: how it runs.
        client: of the cluster to watch; None: every question brings one.

    Raises:
        SteersmanError: without a cluster to watch, the policy has to be prepared, and there is no telemetry.
        InputError: the configuration of telemetry cannot be used.
    """

    def __init__(self, config: Config, client: Client | None) -> None:
        self.config = config
        measured = read_configuration(Path(config.telemetry)) if config.telemetry else None
        if measured is not None and client is None:
            raise SteersmanError("telemetry is of a cluster that is watched, and none is")
        self.telemetry = None if measured is None else Collector(measured, self._nodes)
        # Without a cluster to watch there is nothing to compare on; the policy was prepared by whoever asks.
        unchecked = config.unchecked or client is None
        self.thinking = Thinking(PolicyFile(config.policy), self.telemetry, unchecked=unchecked)
        if client is None and self.policy.derives_tables:
            raise SteersmanError(
                f"policy {config.policy!r} derives tables from typical pods, and without a cluster to watch there are "
                "none; steersman policy prepare puts them into a file"
            )
        self.metrics = Metrics(None if client is None else lambda: self._age())
        self.metrics.registry.register(PolicyMetrics(self.thinking.comparison))
        if self.telemetry is not None:
            self.metrics.registry.register(TelemetryMetrics(self.telemetry, self._nodes))
        self.watched = None if client is None else WatchedCluster(client, self.thinking, self.metrics)

    @property
    def policy(self) -> Policy:
        """The policy in use."""
        return self.thinking.policy

    async def run(self, listening: Callable[[int], object] = lambda _: None) -> None:
        """Serve, until cancelled.

        Args:
            listening: is told the port.

        Raises:
            ApiError: we may not watch the cluster.
            SteersmanError: the port is taken.
            InputError: a file of the configuration cannot be used.
        """
        api = Api(self.config, self._name, self.watched, self._opinions_of, self.metrics)
        explainer = Explainer(self._name, self._member, self.watched, self._opinions_of, api.check_sent)
        ready = {} if self.watched is None else {"watches": self._unsynced}
        notes = {"policy": lambda: self.thinking.file.problem}
        async with Server(self.config, api, explainer, self.metrics, {}, ready, notes) as server:
            log.info("listening", address=self.config.address, port=server.port, policy=self._name())
            listening(server.port)
            nothing = ClusterState(())
            if self.watched is not None:
                await self.watched.run()
            else:
                await self.thinking.keep(lambda: nothing, lambda: None)

    def _name(self) -> str:
        return self.thinking.deciding.name

    def _member(self) -> str:
        return self.thinking.comparison.choice.member

    def _opinions_of(self, state: ClusterState, pod: Pod) -> Opinions:
        """About a cluster that a question brought. Its pods and the one in question are its mix; it sees no other.

        Raises:
            RefusedQuestion: the policy derives tables from the mix, which takes longer than a question may.
        """
        policy = self.thinking.deciding
        if policy.derives_tables:
            raise RefusedQuestion(
                f"policy {policy.name!r} derives tables from typical pods, which takes too long for a question that "
                "brings its cluster; steersman policy prepare puts them into a file"
            )
        classes = [state.classes[placed.class_id] for placed in state.placements.values()]
        return Opinions(Decider(state, policy, mix=typical_pods([*classes, pod.pod_class])))

    def _age(self) -> float:
        assert self.watched is not None
        return self.watched.age

    def _nodes(self) -> Collection[str]:
        return () if self.watched is None else self.watched.cache.state.slots

    def _unsynced(self) -> str:
        assert self.watched is not None
        return "" if self.watched.cache.synced else "nodes and pods are not listed yet"


def by_opinion(decider: Decider, class_id: int) -> Choice | None:
    """What `live.thinking.warm_up` chooses by, so that what the service asks is compiled."""
    opinions = Opinions(decider)
    ranking = opinions.ask(class_id, 0, opinions.everywhere)
    ranking.scores()
    ranking.devices()
    opinions.refused(class_id, 0)
    explanation("", opinions, (class_id, 0), {}, NO_LIMITS)
    choice = decider.choose(class_id)
    assert choice is not None
    decider.contributions(class_id, 0, {}, choice.slot, choice.slot)  # `explanation` has one node, and none to compare
    return choice
