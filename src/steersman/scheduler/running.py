"""A scheduler at work: the policy and its mix, leadership, what is told, and how it all ends."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from steersman.cluster.model import Node, PodClass, Requests
from steersman.cluster.state import ClusterState
from steersman.errors import SteersmanError
from steersman.kube.cache import CachedPod, ClusterCache
from steersman.kube.client import Client
from steersman.kube.events import EventRecorder
from steersman.kube.lease import APP_LABEL, POLICY_KEY, LeaderElection
from steersman.kube.reflector import Reflector
from steersman.kube.selectors import Selectors
from steersman.policies.decider import Decider
from steersman.policies.policy import KubeDefaultPolicy
from steersman.policies.prepared import PreparedPolicy
from steersman.policies.ready import sees_outlook
from steersman.policies.registry import AnyPolicy, resolve
from steersman.scheduler.endpoints import ADDRESS, PORT, Endpoints
from steersman.scheduler.metrics import Metrics, PolicyInfo, Sources
from steersman.scheduler.mix import LiveMix
from steersman.scheduler.scheduler import Options, Scheduler
from steersman.scheduler.spreading import LiveServices
from steersman.scheduler.telling import Conditions, Teller

CHECK_SECONDS = 10.0
"""Between looks at whether the mix or the policy file is another."""
STUCK_SECONDS = 10.0
"""An event loop that did not come round for so long is not healthy."""
LEASE = "steersman"

log = structlog.get_logger("scheduler")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a scheduler runs.

    Attributes:
        policy: a name or file, see `policies.registry.resolve`; a file is read anew when it changes.
        options: which pods.
        leader_elect: whether to decide only while holding a lease.
        lease_namespace, lease_name: of the lease.
        address, port: of the endpoints.
    """

    policy: str
    options: Options = field(default_factory=Options)
    leader_elect: bool = False
    lease_namespace: str = "default"
    lease_name: str = LEASE
    address: str = ADDRESS
    port: int = PORT


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
    """

    def __init__(self, policy: PolicyFile) -> None:
        self.file, self.mix = policy, LiveMix()

    @property
    def policy(self) -> AnyPolicy:
        """The policy in use."""
        return self.file.policy

    def see(self, pod: CachedPod) -> None:
        """A pod came."""
        self.mix.see(pod.pod.pod_class)

    def decider(self, cache: ClusterCache) -> Decider:
        """A decider for the cache's state."""
        services = LiveServices(cache.selectors)
        return Decider(cache.state, self.policy, mix=self.mix.pods, outlook=self.mix.outlook, services=services)

    def selectors(self, client: Client) -> Selectors | None:
        """What selects pods to be spread by default, if the policy does that."""
        return Selectors(client) if isinstance(self.policy, KubeDefaultPolicy) else None

    async def learn_mix(self, models: tuple[str, ...]) -> bool:
        """Make the mix anew, unless the policy brings one; whether it is another."""
        if isinstance(self.policy, PreparedPolicy):
            return False
        return await self.mix.make(models, outlook=sees_outlook(self.policy))

    async def keep(self, models: Callable[[], tuple[str, ...]], renew: Callable[[], None]) -> None:
        """Look from time to time whether the mix or the policy is another, until cancelled; `renew` is told."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            renewed = self.file.renewed()
            if renewed or self.mix.due:
                renewed |= await self.learn_mix(models())
            if renewed:
                renew()


class LiveScheduler(Scheduler):
    """A scheduler whose policy knows the live mix.

    Args:
        client: the connection.
        settings: how it runs.
    """

    def __init__(self, client: Client, settings: Settings) -> None:
        self.settings = settings
        self.thinking = Thinking(PolicyFile(settings.policy))
        self.election = self._election(client) if settings.leader_elect else None
        self.events = EventRecorder(client, busy=lambda: self.in_flight > 0)
        self.conditions = Conditions(client)
        reflectors: dict[str, Reflector] = {}
        self.metrics = Metrics(self._sources(reflectors))
        teller = Teller(self.metrics, self.events, self.conditions)
        selectors = self.thinking.selectors(client)
        super().__init__(client, self.thinking.decider, teller, settings.options, self._may_decide, selectors)
        reflectors |= {reflector.resource: reflector for reflector in self.cache.reflectors}
        self._alive_at = time.monotonic()

    def pod_came(self, pod: CachedPod) -> None:
        """A pod is new in the API."""
        self.thinking.see(pod)

    async def run(self) -> None:
        """Watch, and schedule while leading, until cancelled.

        Raises:
            ApiError: we may not do what is needed.
            SteersmanError: the endpoints' port is taken.
        """
        checks = {"loop": self._stuck}
        ready = {"watches": self._unsynced, "policy": lambda: self.thinking.file.problem}
        settings = self.settings
        async with (
            Endpoints(self.metrics.registry, checks, ready, settings.address, settings.port) as endpoints,
            self.events,
            asyncio.TaskGroup() as group,
        ):
            log.info("listening", address=settings.address, port=endpoints.port)
            beside = [group.create_task(each) for each in (self._beat(), self.watch(), self.conditions.run())]
            for reflector in self.cache.reflectors:
                await reflector.synced.wait()
            await self.thinking.learn_mix(self.cache.state.gpu_models)
            beside.append(group.create_task(self.thinking.keep(lambda: self.cache.state.gpu_models, self.renew)))
            try:
                await (self.election.run(self.schedule) if self.election is not None else self.schedule())
            finally:
                for task in beside:
                    task.cancel()

    def _election(self, client: Client) -> LeaderElection:
        settings = self.settings
        return LeaderElection(
            client,
            settings.lease_namespace,
            settings.lease_name,
            labels=dict([APP_LABEL]),
            annotations={POLICY_KEY: self.thinking.policy.name, "steersman/scheduler": settings.options.name},
        )

    def _may_decide(self) -> bool:
        return self.election is None or self.election.is_leader

    def _sources(self, reflectors: dict[str, Reflector]) -> Sources:
        return Sources(
            pending=lambda: self.queue.counts(),
            in_flight=lambda: self.in_flight,
            bind_errors=lambda: self.binder.errors,
            reflectors=reflectors,
            is_leader=self._may_decide,
            policy=lambda: self.thinking.file.info,
            mix_age=lambda: self.thinking.mix.clock() - self.thinking.mix.made_at,
            events_dropped=lambda: self.events.dropped,
        )

    async def _beat(self) -> None:
        """Show that the event loop comes round."""
        while True:
            self._alive_at = time.monotonic()
            await asyncio.sleep(1.0)

    def _stuck(self) -> str:
        still = time.monotonic() - self._alive_at
        return f"the event loop stood still for {still:.0f} s" if still > STUCK_SECONDS else ""

    def _unsynced(self) -> str:
        missing = [reflector.resource for reflector in self.cache.reflectors if not reflector.synced.is_set()]
        return f"not listed yet: {', '.join(missing)}" if missing else ""


def warm_up(policy: AnyPolicy) -> None:
    """Let the policy decide once on a tiny cluster, so that everything is compiled."""
    state = ClusterState((Node("node", 1000, 1 << 30, gpu_count=1),))
    c = state.class_id(PodClass(Requests(cpu_milli=100, memory_bytes=1 << 20, gpu_count=1, gpu_milli=500)))
    decider = Decider(state, policy.policy if isinstance(policy, PreparedPolicy) else policy)
    for name in ("one", "two"):
        choice = decider.choose(c)
        assert choice is not None
        state.place(name, c, choice.slot, choice.devices)
        decider.changed(choice.slot)
