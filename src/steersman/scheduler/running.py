"""A scheduler at work: leadership, what is told, and how it all ends."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from steersman.kube.cache import CachedPod
from steersman.kube.client import Client
from steersman.kube.events import EventRecorder
from steersman.kube.lease import APP_LABEL, POLICY_KEY, LeaderElection
from steersman.kube.reflector import Reflector
from steersman.live.policy_file import PolicyFile
from steersman.live.policy_metrics import PolicyMetrics
from steersman.live.thinking import Thinking
from steersman.live.web import ADDRESS, WebServer
from steersman.scheduler.metrics import Metrics, Sources
from steersman.scheduler.queue import QueuedPod
from steersman.scheduler.scheduler import Options, Scheduler
from steersman.scheduler.telling import Conditions, Teller
from steersman.telemetry.prometheus.collector import Collector
from steersman.telemetry.prometheus.configuration import Configuration
from steersman.telemetry.prometheus.metrics import TelemetryMetrics

STUCK_SECONDS = 10.0
"""An event loop that did not come round for so long is not healthy."""
LEASE = "steersman"
PORT = 10269

FORBIDDEN, LEAST_FORBIDDEN, FORBIDDEN_SECONDS = 403, 3, 900.0
"""HTTP status of a binding that we may not make; so many in a row, the last one not longer ago, mean that all are."""

log = structlog.get_logger("scheduler")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a scheduler runs.

    Attributes:
        policy: a name or file, see `policies.registry.resolve`; a file is read anew when it changes.
        fitted: a policy file that takes its place as soon as it is there.
        unchecked: whether a learned policy decides without having been compared with rules.
        telemetry: what is asked of Prometheus; None: nothing, so limits of latencies are not looked at.
        options: which pods.
        leader_elect: whether to decide only while holding a lease.
        lease_namespace, lease_name: of the lease.
        address, port: of the endpoints.
    """

    policy: str
    fitted: Path | None = None
    unchecked: bool = False
    telemetry: Configuration | None = None
    options: Options = field(default_factory=Options)
    leader_elect: bool = True
    lease_namespace: str = "default"
    lease_name: str = LEASE
    address: str = ADDRESS
    port: int = PORT


class BindingCheck:
    """Says whether the API forbids every binding.

    Args:
        errors: how often the API answered a binding with each HTTP status.
        clock: of seconds.
    """

    def __init__(self, errors: Callable[[], Mapping[int, int]], clock: Callable[[], float] = time.monotonic) -> None:
        self._errors, self._clock = errors, clock
        self._seen = self._before = 0
        self._last = clock()

    def bound(self) -> None:
        """A pod was bound: not all bindings are forbidden."""
        self._before = self._errors().get(FORBIDDEN, 0)

    def problem(self) -> str:
        """Return what is wrong, or "" while bindings succeed, fail otherwise, or are not tried."""
        refused, now = self._errors().get(FORBIDDEN, 0), self._clock()
        if refused > self._seen:
            self._seen, self._last = refused, now
        count = refused - self._before
        if count < LEAST_FORBIDDEN or now - self._last > FORBIDDEN_SECONDS:
            return ""
        return f"the last {count} bindings were all forbidden; is there a right to create pods/binding?"


class CheckedTeller(Teller):
    """Tells what a scheduler did, and `check` when a pod was bound."""

    def __init__(
        self, metrics: Metrics, events: EventRecorder | None, conditions: Conditions | None, check: BindingCheck
    ) -> None:
        super().__init__(metrics, events, conditions)
        self._check = check

    def scheduled(self, queued: QueuedPod, node: str, seconds: float) -> None:
        """A pod was bound, so long after the decision began."""
        self._check.bound()
        super().scheduled(queued, node, seconds)


class LiveScheduler(Scheduler):
    """A scheduler whose policy knows the live mix.

    Args:
        client: the connection.
        settings: how it runs.
    """

    def __init__(self, client: Client, settings: Settings) -> None:
        self.settings = settings
        self.telemetry = None if settings.telemetry is None else Collector(settings.telemetry, self._nodes)
        named = PolicyFile(settings.policy, settings.fitted)
        self.thinking = Thinking(named, self.telemetry, unchecked=settings.unchecked)
        self.election = self._election(client) if settings.leader_elect else None
        self.events = EventRecorder(client, busy=lambda: self.in_flight > 0)
        self.conditions = Conditions(client)
        reflectors: dict[str, Reflector] = {}
        self.metrics = Metrics(self._sources(reflectors))
        self.metrics.registry.register(PolicyMetrics(self.thinking.comparison))
        if self.telemetry is not None:
            self.metrics.registry.register(TelemetryMetrics(self.telemetry, self._nodes))
        self.binding_check = BindingCheck(lambda: self.binder.errors)
        teller = CheckedTeller(self.metrics, self.events, self.conditions, self.binding_check)
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
        ready = {"watches": self._unsynced, "bindings": self.binding_check.problem}
        notes = {"policy": lambda: self.thinking.file.problem}
        settings = self.settings
        async with (
            WebServer(self.metrics.registry, checks, ready, settings.address, settings.port, notes=notes) as endpoints,
            self.events,
            asyncio.TaskGroup() as group,
        ):
            log.info("listening", address=settings.address, port=endpoints.port)
            beside = [group.create_task(each) for each in (self._beat(), self.watch(), self.conditions.run())]
            for reflector in self.cache.reflectors:
                await reflector.synced.wait()
            if self.telemetry is not None:
                beside.append(group.create_task(self.telemetry.run()))
            await self.thinking.begin(self.cache.state)
            gc.collect()
            gc.freeze()  # nodes and pods stay; looking through 50,000 of them for garbage takes a tenth of a second
            beside.append(group.create_task(self.thinking.keep(lambda: self.cache.state, self.renew)))
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

    def _nodes(self) -> Collection[str]:
        return self.cache.state.slots

    def _may_decide(self) -> bool:
        return self.election is None or self.election.is_leader

    def _sources(self, reflectors: dict[str, Reflector]) -> Sources:
        return Sources(
            pending=lambda: self.queue.counts(),
            in_flight=lambda: self.in_flight,
            bind_errors=lambda: self.binder.errors,
            reflectors=reflectors,
            is_leader=self._may_decide,
            mix_age=lambda: time.time() - self.thinking.mix.made_at,
            events_dropped=lambda: self.events.dropped,
            taken=lambda: self.binder.taken,
            node_problems=lambda: len(self.cache.node_problems),
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
