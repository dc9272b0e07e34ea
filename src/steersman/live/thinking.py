"""The policy in use on a live cluster: its file, which may become another one, and the mix of pods that it sees."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

import structlog

from steersman.cluster.latency import LatencyLimits
from steersman.cluster.model import Constraints, GpuType, Node, PodClass, PodSelector, Requests, TopologySpread
from steersman.cluster.state import ClusterState
from steersman.kube.cache import CachedPod, ClusterCache
from steersman.kube.client import Client
from steersman.kube.selectors import Selectors
from steersman.live.comparison import FALLBACK, PolicyComparison
from steersman.live.mix import LiveMix
from steersman.live.policy_file import PolicyFile
from steersman.live.spreading import LiveServices
from steersman.policies.base import Policy
from steersman.policies.decider import Choice, Decider
from steersman.policies.heuristics import heuristic
from steersman.policies.kube_arrays import HOSTNAME
from steersman.telemetry.prometheus.collector import Collector
from steersman.telemetry.prometheus.configuration import Configuration

CHECK_SECONDS = 10.0
"""Between looks at whether the mix or the policy file is another."""
LOOK_SECONDS = 5.0
"""Between looks at whether the policy should be compared with rules, until it was."""
SETTLED_SECONDS = 60.0
"""And then between looks at whether nodes and pods are others; at 5,000 nodes one takes 7 ms."""
POURING = 1.1
"""Times as many pods as `LOOK_SECONDS` before: they pour in. What comes first in a burst is the pods of a few
controllers. A policy that is best for them may be worst for those that follow, so there is no comparison before."""
WARNINGS_KEPT = 1000
"""Warnings that were given; beyond that they may be given again, for names of GPUs come from nodes, without end."""
LOOK_GROWTH = 2
"""Times as many pods as at the last look are a reason to look before that."""

log = structlog.get_logger("policy")


class Thinking:
    """A policy with the live mix: makes deciders, and says when they must be made anew.

    Args:
        policy: the one that the user named.
        telemetry: what is measured of the cluster; None: nothing. Whoever made it keeps it up to date.
        unchecked: whether a learned policy decides without having been compared with rules on the cluster.
    """

    def __init__(self, policy: PolicyFile, telemetry: Collector | None = None, *, unchecked: bool = False) -> None:
        self.file, self.mix, self.telemetry = policy, LiveMix(), telemetry
        self._warned: set[str] = set()
        self.comparison = PolicyComparison(policy, unchecked=unchecked)

    @property
    def policy(self) -> Policy:
        """The policy that the user named."""
        return self.file.policy

    @property
    def deciding(self) -> Policy:
        """The policy that decides now."""
        return self.comparison.choice.policy

    def see(self, pod: CachedPod) -> None:
        """A pod came."""
        self.mix.see(pod.pod.pod_class)

    def decider(self, cache: ClusterCache) -> Decider:
        """A decider for the cache's state."""
        self._warn(cache.state.gpu_types)
        services = LiveServices(cache.selectors)
        return Decider(
            cache.state,
            self.deciding,
            mix=self.mix.pods,
            outlook=self.mix.outlook,
            services=services,
            telemetry=self.telemetry,
        )

    def _warn(self, types: tuple[GpuType, ...]) -> None:
        """Say once what a prepared policy does not know of the cluster's GPU models."""
        policy = self.deciding
        if policy.prepared is not None:
            for each in policy.prepared.warnings(policy.name, types):
                if each not in self._warned:
                    if len(self._warned) >= WARNINGS_KEPT:
                        self._warned.clear()
                    self._warned.add(each)
                    log.warning(each)

    def selectors(self, client: Client) -> Selectors | None:
        """What selects pods to be spread by default, if the policy does that."""
        return Selectors(client) if self.policy.needs_selectors else None

    async def begin(self, state: ClusterState) -> None:
        """Make the first mix, before the first decider; a policy that was fitted to this cluster decides from then on.

        Args:
            state: the cluster's, as it was listed.
        """
        await self._make_mix(state)
        self.comparison.recognise(_nodes(state), self.mix.classes)

    async def _make_mix(self, state: ClusterState) -> bool:
        """Make the mix anew; whether it is another and the policy that decides brings none."""
        looked_at = any(each.derives_tables for each in (self.policy, self.deciding))
        is_another = await self.mix.make(state.gpu_types, outlook=looked_at)
        return is_another and self.deciding.prepared is None

    async def keep(self, state: Callable[[], ClusterState], renew: Callable[[], None]) -> None:
        """Look from time to time whether another policy should decide, or by another mix, until cancelled.

        Args:
            state: the cluster's.
            renew: is told.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_mix(state, renew))
            group.create_task(self._keep_choice(state, renew))

    async def _keep_mix(self, state: Callable[[], ClusterState], renew: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self._warn(state().gpu_types)
            self.file.renewed()
            if self.mix.due and await self._make_mix(state()):
                renew()

    async def _keep_choice(self, state: Callable[[], ClusterState], renew: Callable[[], None]) -> None:
        looked_at, pods, before = -math.inf, 0, len(self.mix)
        while True:
            now, seen = time.monotonic(), len(self.mix)
            is_due = not self.comparison.is_settled or now - looked_at >= SETTLED_SECONDS or seen >= LOOK_GROWTH * pods
            is_due = is_due and not (self.comparison.is_needed and seen > POURING * before)
            before = seen
            looked_at, pods = (now, seen) if is_due else (looked_at, pods)
            if is_due and await self.comparison.look(_nodes(state()), self.mix.classes):
                log.info("another policy decides", policy=self.deciding.name, member=self.comparison.choice.member)
                renew()
            await asyncio.sleep(LOOK_SECONDS)


def _nodes(state: ClusterState) -> list[Node]:
    return [node for node in state.nodes if node is not None]


def warm_up(
    policy: Policy, choose: Callable[[Decider, int], Choice | None] = Decider.choose, *, telemetry: bool = False
) -> None:
    """Let the policy choose a node for two pods on a tiny cluster, so that everything is compiled.

    The second one is kept from nodes by other pods, of which some kernels are asked for such pods alone.

    Args:
        policy: which. The rule that decides until a learned one was compared is asked, too.
        choose: how it is asked.
        telemetry: whether limits of latencies will be looked at.
    """
    for each in (policy, heuristic(FALLBACK)) if policy.is_learned else (policy,):
        _choose_twice(each, choose, telemetry=telemetry)


def _choose_twice(policy: Policy, choose: Callable[[Decider, int], Choice | None], *, telemetry: bool) -> None:
    state = ClusterState((Node("node", 1000, 1 << 30, gpu_count=1, labels={HOSTNAME: "node"}),))
    requests = Requests(cpu_milli=100, memory_bytes=1 << 20, gpu_count=1, gpu_milli=500)
    spread = TopologySpread(max_skew=9, topology_key=HOSTNAME, hard=True, selector=PodSelector((), None))
    classes = [state.class_id(PodClass(requests, each)) for each in (Constraints(), Constraints(spread=(spread,)))]
    measured = Collector(Configuration(), tuple) if telemetry else None
    decider = Decider(
        state, policy.default_member.with_profile(None) if policy.prepared else policy, telemetry=measured
    )
    if telemetry:
        decider.choose(classes[0], limits=LatencyLimits(1.0, 1.0))
    for c in classes:
        choice = choose(decider, c)
        assert choice is not None
        state.place(f"pod {c}", c, choice.slot, choice.devices)
        decider.changed(choice.slot)
