"""Active policy of a live cluster and its workload profile, both kept up to date in the background."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from statistics import median_low

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from steersman.cluster.model import (
    GPU_MILLI,
    GpuType,
    Node,
    PodClass,
    Requests,
)
from steersman.cluster.state import ClusterState
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.processes import ask_process
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.cache.cluster_cache import ClusterCache
from steersman.kubernetes.client import Client
from steersman.kubernetes.selectors import Selectors
from steersman.live.http_policy.live import HttpDecider, LiveScoreClient
from steersman.live.http_policy.policy import server_url
from steersman.live.runtime.comparison import FALLBACK_RULE, PolicyComparison, PolicyReloader
from steersman.policies.base import Need, Policy, derives_tables
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.heuristics import heuristic
from steersman.policies.kube_scheduler.profile import DEFAULT_PROFILE
from steersman.policies.kube_scheduler.spreading import PodReader
from steersman.policies.leftovers import LeftoverArrays, leftover_arrays
from steersman.prometheus.collector import TelemetryCollector
from steersman.prometheus.families import counter_family
from steersman.workloads.formats.kubernetes.controllers import services_of
from steersman.workloads.profile import TypicalPod, typical_pods
from steersman.workloads.workload import SpreadSelectors

WINDOW = 10_000  # size of the sliding window in pods
NEW_SHARE = 0.1  # share of the window that must be new before the profile is rebuilt
GENERIC_KINDS = 10  # kinds of pods whose weight the generic ones have: half of a profile of as many kinds
PODS_OF_EMPTY_WINDOW = 100  # number of generic pods for an empty window
"""Typical pods and the types of the cluster's GPUs."""
CHECK_INTERVAL_SECONDS = 10.0  # interval of the checks whether the workload profile or the policy file changed
GROWTH_INTERVAL_SECONDS = 1.0  # interval of the checks whether at least half of the workload profile's window is new
LOOK_SECONDS = 5.0  # interval of the checks whether a comparison with rules is due, until the active policy is settled
SETTLED_INTERVAL_SECONDS = 60.0  # interval of these checks afterwards; on 5,000 nodes a check takes 7 ms
BURST_GROWTH = 1.1
"""Growth of the number of pods within `LOOK_SECONDS` that counts as a burst. The first pods of a burst belong to a few
controllers, and the best policy for them may be the worst for the pods that follow, so a comparison waits."""
MAX_REMEMBERED_WARNINGS = 1000
"""Warnings that are not repeated. GPU names come from nodes and are unbounded, so beyond this the memory is cleared."""
EARLY_CHECK_GROWTH = 2  # growth of the number of pods since the last check that makes the next one due early

log, profile_log = structlog.get_logger("policy"), structlog.get_logger("profile")


class PodWindow:
    """Sliding window over the classes of arriving pods."""

    def __init__(self) -> None:
        self._classes: deque[PodClass] = deque(maxlen=WINDOW)
        self._new = 0

    def __len__(self) -> int:
        return len(self._classes)

    def see(self, pod_class: PodClass) -> None:
        """Add the class of an arriving pod."""
        self._classes.append(pod_class)
        self._new += 1

    @property
    def classes(self) -> tuple[PodClass, ...]:
        """Classes in the window, the newest last."""
        return tuple(self._classes)

    @property
    def is_due(self) -> bool:
        """Whether enough pods arrived since the profile was built to rebuild it."""
        return self._new > NEW_SHARE * len(self._classes)

    @property
    def is_mostly_new(self) -> bool:
        """Whether the number of pods has doubled since the profile was built, or half of a full window is new."""
        return self._new > 0 and self._new >= len(self._classes) / 2

    def typical_pods(self) -> tuple[TypicalPod, ...]:
        """Return the workload profile of the present window, and restart the count of new pods."""
        self._new = 0
        return typical_pods(self._classes)

    def expected_pods(self, nodes: Iterable[Node]) -> tuple[TypicalPod, ...]:
        """Return the profile of the window and of generic pods for these nodes.

        The pods of a burst are those of its first controllers, which tell little of the pods that follow: what counts
        is the number of kinds, not that of pods.
        """
        kinds = len(set(self._classes))
        count = round(GENERIC_KINDS * len(self._classes) / kinds) if kinds else PODS_OF_EMPTY_WINDOW
        return typical_pods(chain(self._classes, generic_pods(nodes, count)))


def generic_pods(nodes: Iterable[Node], count: int) -> list[PodClass]:
    """Return about so many pods of 1, 2, 4 and more whole GPUs, up to the largest node; none without GPUs.

    Those of each size request as many GPUs in all, and half of the CPU that a typical node has for each GPU.
    """
    with_gpus = [node for node in nodes if node.gpu_count]
    if not with_gpus:
        return []
    cpu = median_low(node.cpu_milli // node.gpu_count for node in with_gpus) // 2
    largest = max(node.gpu_count for node in with_gpus)
    sizes = [1 << i for i in range(largest.bit_length())]
    total = sum(1 / size for size in sizes)
    return [
        PodClass(Requests(cpu_milli=size * cpu, memory_bytes=0, gpu_count=size, gpu_milli=GPU_MILLI))
        for size in sizes
        for _ in range(round(count / size / total))
    ]


class LiveProfile(PodWindow):
    """Workload profile of a sliding window over pods."""

    def __init__(self) -> None:
        super().__init__()
        self.pods: tuple[TypicalPod, ...] = ()  # the typical pods in use
        # Their leftover tables; None if no policy needs them or they are not computed yet
        self.leftovers: LeftoverArrays | None = None
        self.made_at = time.time()  # time of the last build, in seconds of `time.time`

    async def make(self, *, leftovers: bool) -> bool:
        """Rebuild the profile, and return True if it changed. A separate process computes the leftover tables.

        If that process fails, for example for lack of memory, the previous one stays until enough pods are new again.
        """
        pods = self.typical_pods()
        # Equal pods need no new deciders, but are known to be current.
        if pods == self.pods and (self.leftovers is not None or not leftovers):
            self.made_at = time.time()
            return False
        # The tables take about a second, for which the event loop must not be blocked.
        try:
            tables = await ask_process(leftover_arrays, pods) if leftovers else None
        except SteersmanError as error:
            profile_log.error("the workload profile could not be rebuilt; the previous one stays", error=str(error))
            return False
        self.pods, self.leftovers, self.made_at = pods, tables, time.time()
        profile_log.info("workload profile rebuilt", typical_pods=len(pods), of=len(self))
        return True


class LiveSpreadSelectors:
    """Callable that returns the current selectors; the object stays the same while they do not change."""

    def __init__(self, selectors: Selectors | None) -> None:
        self._selectors, self._version, self._current = selectors, 0, SpreadSelectors()

    def __call__(self) -> SpreadSelectors:
        if self._selectors is not None and self._version != self._selectors.version:
            self._version, self._current = self._selectors.version, services_of(self._selectors)
        return self._current


class PolicyMetrics(Collector):
    """Collector of the policy's metrics; a scrape only reads values that exist already."""

    def __init__(self, comparison: PolicyComparison) -> None:
        self._comparison = comparison

    def collect(self) -> Iterator[Metric]:
        comparison, choice = self._comparison, self._comparison.choice
        info = GaugeMetricFamily(
            "steersman_policy_info",
            "Active policy: its name, the member of a portfolio and the digest of the policy file.",
            labels=("name", "member", "digest"),
        )
        info.add_metric((choice.policy.name, choice.member, choice.version), 1)
        yield info
        file = comparison.file
        text = "Reads of the policy file by result: loaded or refused."
        yield counter_family("steersman_policy_reads", text, "result", file.reads)
        yield GaugeMetricFamily(
            "steersman_policy_file_broken",
            "1 if the policy file is unusable and the previous policy stays active, else 0.",
            value=int(bool(file.problem)),
        )
        yield CounterMetricFamily(
            "steersman_policy_comparison_failures",
            "Comparisons of the policy with rules that failed or timed out.",
            value=comparison.failures,
        )
        if comparison.result is None:
            return
        yield GaugeMetricFamily(
            "steersman_policy_comparison_timestamp_seconds",
            "Unix time of the last comparison of the policy with rules.",
            value=comparison.finished,
        )
        savings = comparison.result.savings
        yield GaugeMetricFamily(
            "steersman_policy_comparison_difference_points",
            "Unallocated GPUs under the best candidate minus those under the fallback, in percentage points.",
            value=-float(savings.mean()) if len(savings) else 0.0,
        )
        yield GaugeMetricFamily(
            "steersman_policy_comparison_draws",
            "Draws of arrivals on which the last comparison tested the best candidate against the fallback.",
            value=len(savings),
        )


class PolicyManager:
    """Own the active policy and its workload profile; reload the file and request new deciders when either changes."""

    def __init__(
        self,
        policy: PolicyReloader,
        # Measurements of the cluster; None without telemetry. The caller keeps them up to date.
        telemetry: TelemetryCollector | None = None,
        *,
        unchecked: bool = False,  # whether a learned policy is used without a comparison with rules on the cluster
        # The scheduler whose pods decide which nodes are eligible; "": the pods that are asked about
        scheduler_name: str = "",
    ) -> None:
        self.scheduler_name = scheduler_name
        self.file, self.profile, self.telemetry = policy, LiveProfile(), telemetry
        self._warned: set[str] = set()
        self.comparison = PolicyComparison(policy, unchecked=unchecked)
        url = server_url(policy.policy)
        # Client of the server of a policy that is a URL; None for any other policy
        self.score_client = LiveScoreClient(url, FALLBACK_RULE) if url else None

    @property
    def policy(self) -> Policy:
        return self.file.policy

    @property
    def deciding(self) -> Policy:
        return self.comparison.choice.policy

    def see(self, pod: CachedPod) -> None:
        """Add an arriving pod to the workload profile's window; one of another scheduler only if it requests GPUs."""
        if pod.pod.requests.gpu_count or self.scheduler_name in ("", pod.pod.scheduler_name):
            self.profile.see(pod.pod.pod_class)

    def decider(self, cache: ClusterCache) -> Decider:
        """Return a new decider of the active policy for the cache's state."""
        self._warn(cache.state.gpu_types)
        view = ClusterView(
            cache.state,
            profile=self._expected_pods(cache.state),
            leftovers=self.profile.leftovers,
            selectors=LiveSpreadSelectors(cache.selectors),
            telemetry=self.telemetry,
            demand=self._demand(cache),
        )
        if url := server_url(self.deciding):
            if self.score_client is None:  # the policy of a file was replaced
                self.score_client = LiveScoreClient(url, FALLBACK_RULE)
            return HttpDecider(view, self.score_client, heuristic(FALLBACK_RULE))
        return Decider(view, self.deciding)

    def _expected_pods(self, state: ClusterState) -> tuple[TypicalPod, ...]:
        """Return the typical pods; a learned policy was compared by the pods that came, without generic ones."""
        return self.profile.pods if self.deciding.is_learned else self.profile.expected_pods(_nodes(state))

    def _demand(self, cache: ClusterCache) -> set[int]:
        if not self.scheduler_name:
            return set()
        ours = (pod for pod in cache.pods.values() if pod.pod.scheduler_name == self.scheduler_name)
        return {pod.class_id for pod in ours if pod.class_id >= 0}

    def _warn(self, types: tuple[GpuType, ...]) -> None:
        """Log, once each, the cluster's GPU models that the active policy was not trained on."""
        policy = self.deciding
        if policy.prepared is not None:
            for warning in policy.prepared.warnings(policy.name, types):
                if warning not in self._warned:
                    if len(self._warned) >= MAX_REMEMBERED_WARNINGS:
                        self._warned.clear()
                    self._warned.add(warning)
                    log.warning(warning)

    def selectors(self, client: Client) -> Selectors | None:
        """Return what a policy of kube-scheduler reads besides pods and nodes, and how it reads pods; else None."""
        if Need.SELECTORS not in self.policy.needs:
            return None
        selectors, profile = Selectors(client), self.policy.selection.kube
        if profile.changes_pods:
            selectors.read = PodReader(profile, LiveSpreadSelectors(selectors))
        return selectors

    async def begin(self, state: ClusterState) -> None:
        """Build the first workload profile, before the first decider; activate one that is fitted to this cluster."""
        await self._rebuild_profile(state)
        self.comparison.recognise(_nodes(state), self.profile.classes)

    async def _rebuild_profile(self, state: ClusterState) -> bool:
        needs_leftovers = any(derives_tables(policy) for policy in (self.policy, self.deciding))
        has_changed = await self.profile.make(leftovers=needs_leftovers)
        return has_changed and self.deciding.prepared is None

    async def keep(self, state: Callable[[], ClusterState], renew: Callable[[], None]) -> None:
        """Keep the active policy and the workload profile up to date, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_profile(state, renew))
            group.create_task(self._keep_choice(state, renew))

    async def _keep_profile(self, state: Callable[[], ClusterState], renew: Callable[[], None]) -> None:
        clock = asyncio.get_running_loop().time
        checked_at = clock()
        while True:
            await asyncio.sleep(GROWTH_INTERVAL_SECONDS)
            now = clock()
            # In a cluster without pods the first ones would be placed as if no pod were typical.
            if now - checked_at < CHECK_INTERVAL_SECONDS and not self.profile.is_mostly_new:
                continue
            checked_at = now
            self._warn(state().gpu_types)
            self.file.renewed()
            if self.profile.is_due and await self._rebuild_profile(state()):
                renew()

    async def _keep_choice(self, state: Callable[[], ClusterState], renew: Callable[[], None]) -> None:
        checked_at, pods_at_check, previous_pods = -math.inf, 0, len(self.profile)
        while True:
            now, pods = time.monotonic(), len(self.profile)
            is_due = (
                not self.comparison.is_settled
                or now - checked_at >= SETTLED_INTERVAL_SECONDS
                or pods >= EARLY_CHECK_GROWTH * pods_at_check
            )
            is_due = is_due and not (self.comparison.is_needed and pods > BURST_GROWTH * previous_pods)
            previous_pods = pods
            checked_at, pods_at_check = (now, pods) if is_due else (checked_at, pods_at_check)
            if is_due and await self.comparison.compare_if_due(_nodes(state()), self.profile.classes):
                log.info("the active policy changed", policy=self.deciding.name, member=self.comparison.choice.member)
                renew()
            await asyncio.sleep(LOOK_SECONDS)


def check_served(policy: Policy) -> None:
    """Raise UsageError if a policy's profile of kube-scheduler filters or reads pods otherwise than by default."""
    profile = policy.selection.kube
    if profile.reading != DEFAULT_PROFILE.of_minor(profile.minor).reading:
        raise UsageError(
            f"policy {policy.name}: the kube-scheduler that asks has filtered the nodes by its own configuration; "
            "disabled filters, addedAffinity, hardPodAffinityWeight, defaultConstraints and ignoredResources are for "
            "'steersman schedule' and simulations"
        )


def _nodes(state: ClusterState) -> list[Node]:
    return [node for node in state.nodes if node is not None]
