"""Bindings of other schedulers as they happen: what was observed before each, and what came of it."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.core.errors import SteersmanError
from steersman.kubernetes.cache.cached_pod import CachedPod, Listener
from steersman.kubernetes.cache.cluster_cache import ClusterCache
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeConfig
from steersman.live.runtime.policy_manager import LiveProfile
from steersman.live.runtime.tasks import BackgroundTasks
from steersman.live.scheduler.agent_link import DecisionOutcome
from steersman.live.scheduler.agent_policy import AgentScorer, AgentSettings, agent_policy
from steersman.objectives.summary import reward
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.features import GPU
from steersman.policies.heuristics import heuristic
from steersman.prometheus.collector import Addresses, TelemetryCollector, addresses_of
from steersman.prometheus.configuration import Configuration

TRAIN_BLOCK, TEST_BLOCK = 80, 20
"""Lengths of blocks of decisions in turn: the first are learned from, the next are held back to test candidates on.
Neighbouring decisions are correlated, hence blocks."""
PROFILE_SECONDS = 10.0  # time between two looks whether the workload profile changed
MOST_WAITING = 10_000  # bindings that wait to be learned from; further ones are left out

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class ObservedBinding:
    """A binding of another scheduler: the observation before it, its outcome and rewards."""

    observation: Arrays  # parts of the observation before it by name, without a leading axis
    outcome: DecisionOutcome  # its outcome; `ended` and the waiting time in it are not known yet
    ended_before: bool  # whether all observed pods were gone since the binding before
    # Pod-seconds waited since the previous binding: the elapsed time multiplied by the number of pods that had waited
    # longer than the previously bound one, as `waiting` of a `Decider` counts
    waited_before: float
    # [N] rewards of all feasible nodes, NaN elsewhere, if the binding is held back; None: learn from it
    rewards: npt.NDArray[np.float64] | None


class BindingObserver(Listener):
    """Listener of a cache that observes a scheduler's bindings, or those of all others."""

    def __init__(
        self,
        client: Client,
        # The scheduler whose pods the policy is for; nodes that they may enter count in observations and rewards
        scheduler_name: str,
        settings: AgentSettings,  # view and objective
        telemetry_config: Configuration | None,  # Prometheus queries; None: no telemetry
        bindings: queue.Queue[ObservedBinding | SteersmanError],  # receives them
        *,
        # Whether the bindings of all other schedulers are observed instead; none of them is held back
        others: bool = False,
    ) -> None:
        self.scheduler_name, self._settings, self._bindings = scheduler_name, settings, bindings
        self._others, self._held_back = others, 0 if others else TEST_BLOCK
        self.telemetry = None if telemetry_config is None else TelemetryCollector(telemetry_config, self._nodes)
        self.cache = ClusterCache(client, self)
        self._profile = LiveProfile()
        self._decider: Decider | None = None
        self._waiting: dict[str, None] = {}  # in order of arrival
        self._running: set[str] = set()
        self._has_ended = False
        self._count = 0
        self._observed_at, self._ahead = 0.0, 0

    def on_pod_added(self, pod: CachedPod) -> None:
        """Count a new pod in the workload profile."""
        self._profile.see(pod.pod.pod_class)

    def on_pod_pending(self, pod: CachedPod) -> None:
        """Remember a pod that waits for a scheduler."""
        if self._is_observed(pod):
            self._waiting.setdefault(pod.key)
        if self._decider is not None and pod.pod.scheduler_name == self.scheduler_name:
            self._decider.expect(self.cache.number(pod)[0])

    def on_pod_bound(self, pod: CachedPod) -> None:
        """Observe the binding of a pod that waited."""
        if not self._is_observed(pod):
            return
        # Other pods were bound earlier or never seen waiting, so the state before their binding is unknown.
        if pod.key in self._waiting:
            ahead = list(self._waiting).index(pod.key)
            del self._waiting[pod.key]
            self._observe(pod, ahead)
        self._running.add(pod.key)

    def on_pod_deleted(self, pod: CachedPod) -> None:
        self._waiting.pop(pod.key, None)
        if pod.key in self._running:
            self._running.discard(pod.key)
            self._has_ended = self._has_ended or not self._running

    def on_node_changed(self, slot: int, *, may_have_grown: bool) -> None:
        if self._decider is not None:
            self._decider.changed(slot)

    def on_rebuilt(self) -> None:
        self.rebuild_decider()

    async def run(self) -> None:
        background = () if self.telemetry is None else (self.telemetry.run(),)
        async with BackgroundTasks(*(reflector.run() for reflector in self.cache.reflectors), *background):
            for reflector in self.cache.reflectors:
                await reflector.synced.wait()
            while True:
                if self._decider is None or self._profile.is_due:
                    await self._profile.make(leftovers=self._settings.view == GPU)
                    self.rebuild_decider()
                await asyncio.sleep(PROFILE_SECONDS)

    def rebuild_decider(self) -> None:
        policy = agent_policy(self._settings, heuristic("least-allocated"), self.telemetry)
        self._decider = Decider(
            ClusterView(
                self.cache.state,
                profile=self._profile.pods,
                leftovers=self._profile.leftovers,
                telemetry=self.telemetry,
                demand={
                    self.cache.number(pod)[0]
                    for pod in self.cache.pods.values()
                    if pod.pod.scheduler_name == self.scheduler_name
                },
            ),
            policy,
        )

    def _observe(self, pod: CachedPod, ahead: int) -> None:
        """Observe the cluster as it was before a pod was placed, while `ahead` pods had waited longer."""
        placed, decider = self.cache.state.placements.get(pod.key), self._decider
        # Without a placement the node is not known; a full queue means that learning is slower than the scheduler.
        if decider is None or placed is None or self._bindings.qsize() >= MOST_WAITING:
            return
        decider.waiting = ahead
        with self.cache.unplaced(pod) as query:
            nodes = decider.candidates(query)
            if not nodes.feasible[placed.slot]:  # the scheduler saw another state
                return
            scorer = decider.live.scorer
            assert isinstance(scorer, AgentScorer)
            observation, outcome = scorer.observe(query, nodes), scorer.outcome(query, nodes, placed.slot)
            self._count += 1
            rewards = None
            if self._count % (TRAIN_BLOCK + self._held_back) >= TRAIN_BLOCK:
                rewards = np.full(len(nodes.feasible), np.nan)
                for slot in np.flatnonzero(nodes.feasible).tolist():
                    rewards[slot] = self._reward(scorer.outcome(query, nodes, slot))
            now = time.monotonic()
            waited = self._ahead * (now - self._observed_at)
            self._bindings.put(ObservedBinding(observation, outcome, self._has_ended, waited, rewards))
            self._has_ended, self._observed_at, self._ahead = False, now, ahead

    def _is_observed(self, pod: CachedPod) -> bool:
        return (pod.pod.scheduler_name == self.scheduler_name) != self._others

    def _reward(self, outcome: DecisionOutcome) -> float:
        if outcome.reward is not None:
            return outcome.reward
        return reward(self._settings.objective, outcome.before, outcome.after)

    def _nodes(self) -> Addresses:
        return addresses_of(self.cache.state.nodes)


class BindingThread:
    """Queue of the bindings that a `BindingObserver` in a thread of its own observes."""

    def __init__(
        self,
        kubeconfig: KubeConfig,
        scheduler_name: str,
        settings: AgentSettings,
        telemetry_config: Configuration | None,
        *,
        others: bool = False,
    ) -> None:
        self._bindings: queue.Queue[ObservedBinding | SteersmanError] = queue.Queue()

        async def watch() -> None:
            async with Client(kubeconfig) as client:
                observer = BindingObserver(
                    client, scheduler_name, settings, telemetry_config, self._bindings, others=others
                )
                await observer.run()

        def run() -> None:
            try:
                asyncio.run(watch())
            except SteersmanError as error:
                self._bindings.put(error)

        threading.Thread(target=run, daemon=True).start()

    def read(self) -> Iterator[ObservedBinding]:
        """Yield the bindings, without end. Raises SteersmanError: the cluster cannot be watched."""
        while True:
            binding = self._bindings.get()
            if isinstance(binding, SteersmanError):
                raise binding
            yield binding
