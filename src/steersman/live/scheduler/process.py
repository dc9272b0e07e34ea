"""Scheduler process: leader election, metrics and health endpoints, graceful shutdown."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from steersman.core.garbage_collection import short_collections
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.client import Client
from steersman.kubernetes.events import EventRecorder
from steersman.kubernetes.lease import APP_LABEL, POLICY_KEY, SCHEDULER_KEY, LeaderElection, Lease
from steersman.kubernetes.watch import Reflector
from steersman.live.http_policy.live import ScoreClientMetrics
from steersman.live.runtime.comparison import PolicyReloader
from steersman.live.runtime.http_server import ADDRESS, ListenAddress, Probes, WebServer
from steersman.live.runtime.policy_manager import PolicyManager, PolicyMetrics
from steersman.live.runtime.tasks import entered_in_loop, run_in_loop, side_loop
from steersman.live.scheduler.agent_policy import AgentMetrics, AgentSettings, agent_policy
from steersman.live.scheduler.metrics import MetricSources, SchedulerMetrics
from steersman.live.scheduler.reporting import Conditions, StatusReporter
from steersman.live.scheduler.run_times import RunTimeFile, RunTimeObserver
from steersman.live.scheduler.scheduler import Scheduler, SchedulerOptions
from steersman.live.scheduler.wait_events import Predict, WaitEvents
from steersman.orders.live_order import live_order
from steersman.orders.order import AGE, Order
from steersman.orders.run_time_history import RunTimeHistory
from steersman.prometheus.collector import Addresses, TelemetryCollector, TelemetryMetrics, addresses_of
from steersman.prometheus.configuration import Configuration

STUCK_SECONDS = 60.0  # delay of the event loop beyond which the process is unhealthy, and its lease is not renewed
LEASE = "steersman"
PORT = 10269

FORBIDDEN, LEAST_FORBIDDEN, FORBIDDEN_SECONDS = 403, 3, 900.0
"""HTTP status of forbidden bindings; so many in a row, the last one this recent, mean that all are forbidden."""

log = structlog.get_logger("scheduler")


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Settings of a scheduler process."""

    policy: str  # name or file, see `policies.registry.resolve`; a file is reloaded when it changes
    # Agent that decides while it learns; the policy decides where it does not answer. None: none.
    agent: AgentSettings | None = None
    unchecked: bool = False  # whether a learned policy decides without having been compared with rules
    telemetry: Configuration | None = None  # Prometheus queries; None: no telemetry, so limits of latency are ignored
    options: SchedulerOptions = field(default_factory=SchedulerOptions)  # pods of this scheduler
    order: Order = AGE  # who goes next among the waiting pods, see `orders.live_order.check_live`
    history: RunTimeHistory | None = None  # run times of what ended before; None: nothing
    run_times: Path | None = None  # file that keeps the history over restarts; None: none does
    predict: Predict | None = None  # predicts when waiting pods start, for their events; None: nothing does
    predict_seconds: float = 60.0  # between two predictions
    leader_elect: bool = True  # whether to decide only while holding a lease
    # `lease_namespace`, `lease_name`: of the lease.
    lease_namespace: str = "default"
    lease_name: str = LEASE
    # `address`, `port`: of the endpoints.
    address: str = ADDRESS
    port: int = PORT


class BindingCheck:
    """Health check that fails while the API forbids every binding.

    Args:
        errors: number of answers to bindings by HTTP status.
    """

    def __init__(self, errors: Callable[[], Mapping[int, int]], clock: Callable[[], float] = time.monotonic) -> None:
        self._errors, self._clock = errors, clock
        # `_before` is the count at the last success, so that only failures in a row are counted.
        self._seen = self._before = 0
        self._last = clock()

    def bound(self) -> None:
        """Record a successful binding."""
        self._before = self._errors().get(FORBIDDEN, 0)

    def problem(self) -> str:
        """Return what is wrong; "" while bindings succeed, fail otherwise, or are not tried."""
        refused, now = self._errors().get(FORBIDDEN, 0), self._clock()
        if refused > self._seen:
            self._seen, self._last = refused, now
        count = refused - self._before
        if count < LEAST_FORBIDDEN or now - self._last > FORBIDDEN_SECONDS:
            return ""
        return f"the last {count} bindings were all forbidden; is there a right to create pods/binding?"


class LiveScheduler(Scheduler):
    """Scheduler with a policy that follows the live workload profile."""

    def __init__(self, client: Client, settings: SchedulerSettings) -> None:
        self.settings = settings
        self.telemetry = None if settings.telemetry is None else TelemetryCollector(settings.telemetry, self._nodes)
        named = PolicyReloader(settings.policy, has_telemetry=self.telemetry is not None)
        self.agent = None if settings.agent is None else agent_policy(settings.agent, named.policy, self.telemetry)
        self._own_running: set[str] = set()
        if self.agent is not None:
            # The user's policy is now the agent's fallback.
            named = PolicyReloader(self.agent.name, has_telemetry=True, policy=self.agent)
        self.policy_manager = PolicyManager(
            named, self.telemetry, unchecked=settings.unchecked, scheduler_name=settings.options.name
        )
        # A client of its own, since it is used in another thread.
        self.election = self._election(Client(client.config)) if settings.leader_elect else None
        self.events = EventRecorder(client, busy=lambda: self.in_flight > 0)
        self.conditions = Conditions(client, lambda: self.in_flight > 0)
        # Filled below: the cache makes them in `super().__init__`, which needs a reporter with these metrics.
        reflectors: dict[str, Reflector] = {}
        self.metrics = SchedulerMetrics(self._sources(reflectors))
        self.metrics.registry.register(PolicyMetrics(self.policy_manager.comparison))
        if settings.agent is not None and settings.agent.link is not None:
            self.metrics.registry.register(AgentMetrics(settings.agent.link))
        if self.policy_manager.score_client is not None:
            self.metrics.registry.register(ScoreClientMetrics(self.policy_manager.score_client))
        if self.telemetry is not None:
            self.metrics.registry.register(TelemetryMetrics(self.telemetry, self._nodes))
        self.binding_check = BindingCheck(lambda: self.binder.errors)
        reporter = StatusReporter(self.metrics, self.events, self.conditions, self.binding_check.bound)
        history = RunTimeHistory() if settings.history is None else settings.history
        if (order := live_order(settings.order, history)) is not None:
            order.on_failure = lambda error: log.error("a pod has no score and goes last", error=str(error))
        self._learns_from_ended = settings.run_times is not None or settings.order.learns_run_times
        self.run_times = RunTimeObserver(history, self.metrics.estimated, learns_from_ended=self._learns_from_ended)
        selectors = self.policy_manager.selectors(client)
        super().__init__(
            client,
            self.policy_manager.decider,
            reporter,
            settings.options,
            self._may_decide,
            lambda: self.election.identity if self.election is not None and self.election.succeeds else "",
            selectors,
            order=order,
        )
        reflectors |= {reflector.resource: reflector for reflector in self.cache.reflectors}
        self._alive_at = time.monotonic()
        # What is in the file ended before it was written, and what it lacks ended later.
        file = settings.run_times
        self._learned_until = file.stat().st_mtime if file is not None and file.exists() else -math.inf

    def on_pod_added(self, pod: CachedPod) -> None:
        self.policy_manager.see(pod)

    def on_pod_bound(self, pod: CachedPod) -> None:
        """Handle a bound pod; an agent's episode goes on while pods of ours run."""
        super().on_pod_bound(pod)
        self.run_times.bound(pod)
        if pod.pod.scheduler_name == self.options.name:
            self._own_running.add(pod.key)

    def on_pod_deleted(self, pod: CachedPod) -> None:
        """Handle a deleted or finished pod; an agent's episode ends with the last one of ours."""
        super().on_pod_deleted(pod)
        if self.run_times.ended(pod):
            self.queue.note_first_end(pod.pod.namespace, pod.pod.owner)
        if pod.key in self._own_running:
            self._own_running.discard(pod.key)
            if self.agent is not None and not self._own_running:
                self.agent.transition.has_ended = True

    async def run(self) -> None:
        """Watch, and schedule while leading, until cancelled.

        Raises:
            ApiError: the API server forbids something that is needed.
            LeaseLostError: another scheduler may lead.
            SteersmanError: the endpoints' port is taken.
        """
        score_client = self.policy_manager.score_client
        probes = Probes(
            healthy={"loop": self._stuck},
            ready={"watches": self._unsynced, "bindings": self.binding_check.problem},
            # A note, not a check: with a file that cannot be read the previous policy goes on deciding.
            notes={
                "policy": lambda: (
                    self.policy_manager.file.problem or ("" if score_client is None else score_client.problem)
                )
            },
        )
        settings, main = self.settings, asyncio.get_running_loop()
        listen = ListenAddress(settings.address, settings.port)
        async with AsyncExitStack() as stack:
            stack.enter_context(short_collections())
            side = stack.enter_context(side_loop())
            server = WebServer(self.metrics.registry, probes, listen, loop=main)
            endpoints = await stack.enter_async_context(entered_in_loop(side, server))
            if self.election is not None:
                await stack.enter_async_context(entered_in_loop(side, self.election.client))
            await stack.enter_async_context(self.events)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            log.info("listening", address=settings.address, port=endpoints.port)
            background = [group.create_task(each) for each in (self._beat(), self.watch(), self.conditions.run())]
            if settings.predict is not None:
                background.append(group.create_task(self._wait_events(settings.predict).run()))
            for reflector in self.cache.reflectors:
                await reflector.synced.wait()
            if self.telemetry is not None:
                # Series of Prometheus are matched to nodes by name and address, so the nodes must be listed first.
                background.append(group.create_task(self.telemetry.run()))
            file = None if settings.run_times is None else RunTimeFile(settings.run_times, self.run_times.history)
            if self._learns_from_ended:
                await self.run_times.learn_from_ended(
                    self.client,
                    self.cache,
                    self._learned_until,
                    lambda pod: self.queue.note_first_end(pod.namespace, pod.owner),
                )
            if file is not None:
                # Not before: what it lacks ended after it was written.
                background.append(group.create_task(file.keep()))
            await self.policy_manager.begin(self.cache.state)
            background.append(group.create_task(self.policy_manager.keep(lambda: self.cache.state, self.renew)))
            try:
                if (election := self.election) is None:
                    await self.schedule()
                else:
                    await run_in_loop(side, lambda: election.run(lambda: run_in_loop(main, self.schedule)))
            finally:
                # The task group would wait for them forever.
                for task in background:
                    task.cancel()
                if score_client is not None:
                    await score_client.close()

    def _election(self, client: Client) -> LeaderElection:
        settings = self.settings
        annotations = {POLICY_KEY: self.policy_manager.policy.name, SCHEDULER_KEY: settings.options.name}
        lease = Lease(settings.lease_namespace, settings.lease_name, dict([APP_LABEL]), annotations)
        return LeaderElection(
            client, lease, may_release=lambda: self.all_bindings_ended, may_renew=lambda: not self._stuck()
        )

    def _wait_events(self, predict: Predict) -> WaitEvents:
        return WaitEvents(
            lambda: predict(self.policy_manager.deciding),
            self.settings.predict_seconds,
            self.cache.pods,
            self.options.name,
            lambda: self.queue.unschedulable > 0 and self._may_decide(),
            self.events,
            time.monotonic,
        )

    def _nodes(self) -> Addresses:
        return addresses_of(self.cache.state.nodes)

    def _may_decide(self) -> bool:
        return self.election is None or self.election.is_leader

    def _sources(self, reflectors: dict[str, Reflector]) -> MetricSources:
        return MetricSources(
            pending=lambda: self.queue.counts(),
            in_flight=lambda: self.in_flight,
            bind_errors=lambda: self.binder.errors,
            reflectors=reflectors,
            is_leader=self._may_decide,
            scheduler_name=self.settings.options.name,
            profile_age=lambda: time.time() - self.policy_manager.profile.made_at,
            events_dropped=lambda: self.events.dropped,
            taken=lambda: self.binder.taken,
            node_problems=lambda: len(self.cache.node_problems),
        )

    async def _beat(self) -> None:
        while True:
            self._alive_at = time.monotonic()
            await asyncio.sleep(1.0)

    def _stuck(self) -> str:
        still = time.monotonic() - self._alive_at
        return f"the event loop stood still for {still:.0f} s" if still > STUCK_SECONDS else ""

    def _unsynced(self) -> str:
        missing = [reflector.resource for reflector in self.cache.reflectors if not reflector.synced.is_set()]
        return f"not listed yet: {', '.join(missing)}" if missing else ""
