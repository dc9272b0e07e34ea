"""The policy in use on a live cluster: its file, which may become another one, and the mix of pods that it sees."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from steersman.cluster.latency import LatencyLimits
from steersman.cluster.model import Constraints, GpuType, Node, PodClass, PodSelector, Requests, TopologySpread
from steersman.cluster.state import ClusterState
from steersman.errors import SteersmanError
from steersman.kube.cache import CachedPod, ClusterCache
from steersman.kube.client import Client
from steersman.kube.selectors import Selectors
from steersman.live.mix import LiveMix
from steersman.live.spreading import LiveServices
from steersman.policies.decider import Choice, Decider
from steersman.policies.kube_arrays import HOSTNAME
from steersman.policies.policy import KubeDefaultPolicy
from steersman.policies.prepared import PreparedPolicy
from steersman.policies.ready import sees_outlook
from steersman.policies.registry import AnyPolicy, resolve
from steersman.telemetry.prometheus.collector import Collector
from steersman.telemetry.prometheus.configuration import Configuration

CHECK_SECONDS = 10.0
"""Between looks at whether the mix or the policy file is another."""

log = structlog.get_logger("policy")


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """Which policy decides: its name, and the digest of its file ("" for one that is in the package)."""

    name: str
    digest: str = ""


class PolicyFile:
    """The policy that a name stands for, and whether its file has become another.

    Args:
        spec: a name or file.
    """

    def __init__(self, spec: str) -> None:
        self.spec, self.policy = spec, resolve(spec)
        self._path = Path(spec) if Path(spec).is_file() else None
        self._stamp = self._now()
        self.problem = ""

    @property
    def info(self) -> PolicyInfo:
        """Its name and the digest of its file."""
        digest = hashlib.sha256(self._path.read_bytes()).hexdigest()[:16] if self._path and self._path.exists() else ""
        return PolicyInfo(self.policy.name, digest)

    def renewed(self) -> bool:
        """Whether the file is another and could be read. One that cannot be read changes nothing and is said once."""
        stamp = self._now()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self.policy = resolve(self.spec)
        except SteersmanError as error:
            self.problem = str(error)
            log.error("policy file cannot be used; the former policy goes on", error=self.problem)
            return False
        self.problem = ""
        log.info("policy file read anew", policy=self.policy.name)
        return True

    def _now(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return None if found is None else (found.st_mtime_ns, found.st_size)


class Thinking:
    """A policy with the live mix: makes deciders, and says when they must be made anew.

    Args:
        policy: which.
        telemetry: what is measured of the cluster; None: nothing. Whoever made it keeps it up to date.
    """

    def __init__(self, policy: PolicyFile, telemetry: Collector | None = None) -> None:
        self.file, self.mix, self.telemetry = policy, LiveMix(), telemetry
        self._warned: set[str] = set()

    @property
    def policy(self) -> AnyPolicy:
        """The policy in use."""
        return self.file.policy

    def see(self, pod: CachedPod) -> None:
        """A pod came."""
        self.mix.see(pod.pod.pod_class)

    def decider(self, cache: ClusterCache) -> Decider:
        """A decider for the cache's state."""
        self._warn(cache.state.gpu_types)
        services = LiveServices(cache.selectors)
        return Decider(
            cache.state,
            self.policy,
            mix=self.mix.pods,
            outlook=self.mix.outlook,
            services=services,
            telemetry=self.telemetry,
        )

    def _warn(self, types: tuple[GpuType, ...]) -> None:
        """Say once what a prepared policy does not know of the cluster's GPU models."""
        policy = self.policy
        if isinstance(policy, PreparedPolicy):
            for each in policy.prepared.warnings(policy.name, types):
                if each not in self._warned:
                    self._warned.add(each)
                    log.warning(each)

    def selectors(self, client: Client) -> Selectors | None:
        """What selects pods to be spread by default, if the policy does that."""
        return Selectors(client) if isinstance(self.policy, KubeDefaultPolicy) else None

    async def learn_mix(self, types: tuple[GpuType, ...]) -> bool:
        """Make the mix anew, unless the policy brings one; whether it is another."""
        if isinstance(self.policy, PreparedPolicy):
            return False
        return await self.mix.make(types, outlook=sees_outlook(self.policy))

    async def keep(self, types: Callable[[], tuple[GpuType, ...]], renew: Callable[[], None]) -> None:
        """Look from time to time whether the mix or the policy is another, until cancelled; `renew` is told."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self._warn(types())
            renewed = self.file.renewed()
            if renewed or self.mix.due:
                renewed |= await self.learn_mix(types())
            if renewed:
                renew()


def warm_up(
    policy: AnyPolicy, choose: Callable[[Decider, int], Choice | None] = Decider.choose, *, telemetry: bool = False
) -> None:
    """Let the policy choose a node for two pods on a tiny cluster, so that everything is compiled.

    The second one is kept from nodes by other pods, of which some kernels are asked for such pods alone.

    Args:
        policy: which.
        choose: how it is asked.
        telemetry: whether limits of latencies will be looked at.
    """
    state = ClusterState((Node("node", 1000, 1 << 30, gpu_count=1, labels={HOSTNAME: "node"}),))
    requests = Requests(cpu_milli=100, memory_bytes=1 << 20, gpu_count=1, gpu_milli=500)
    spread = TopologySpread(max_skew=9, topology_key=HOSTNAME, hard=True, selector=PodSelector((), None))
    classes = [state.class_id(PodClass(requests, each)) for each in (Constraints(), Constraints(spread=(spread,)))]
    measured = Collector(Configuration(), tuple) if telemetry else None
    decider = Decider(state, policy.policy if isinstance(policy, PreparedPolicy) else policy, telemetry=measured)
    if telemetry:
        decider.choose(classes[0], limits=LatencyLimits(1.0, 1.0))
    for c in classes:
        choice = choose(decider, c)
        assert choice is not None
        state.place(f"pod {c}", c, choice.slot, choice.devices)
        decider.changed(choice.slot)
