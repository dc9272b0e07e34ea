"""Explain on demand where a rule or policy would place a pod of the watched cluster, as `steersman explain` does."""

from __future__ import annotations

import asyncio
import time

from steersman.cluster.model import Pod
from steersman.cluster.state import device_indices
from steersman.core.errors import UsageError
from steersman.kubernetes.cache.cluster_cache import ClusterCache
from steersman.kubernetes.client import Client
from steersman.live.dashboard.live.agreement import COMPARED_RULES
from steersman.live.recorder.live_workload import read_workload
from steersman.live.runtime.policy_manager import LiveSpreadSelectors
from steersman.live.service.messages import Explanation
from steersman.live.service.scoring.explanation import explain_placed
from steersman.policies.base import Policy, renamed
from steersman.policies.registry import PACKAGED_POLICY, in_order, resolve
from steersman.simulation.prediction.moment import moment_of
from steersman.simulation.prediction.prediction import QueuePrediction, predict_queue
from steersman.simulation.run import Simulator, decider_on
from steersman.workloads.workload import RunningPods, Workload

EXPLAINED = (*COMPARED_RULES, PACKAGED_POLICY)  # policies that explain
ORDERS = (
    *("age", "wfp3:easy", "shortest", "smallest", "fcfs", "easy"),
    *("wfp3", "area", "largest", "unicef", "f1", "fair"),
)
"""Orders that a live scheduler can follow."""


class LiveExplainer:
    """Explanations of the cluster as it is, one at a time."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._lock = asyncio.Lock()  # each scores all nodes several times
        self._policies: dict[str, tuple[Policy, str, str]] = {}

    async def explain(self, key: str, policy: str) -> Explanation:
        """Return where a policy would place a pod if it still waited, and why."""
        if policy not in EXPLAINED:
            raise UsageError(f"policy: {policy!r} explains nothing here; {', '.join(EXPLAINED)} do")
        async with self._lock:
            pods = {each.key: (each.pod, each.node, each.devices) for each in self._cache.pods.values()}
            if key not in pods:
                raise UsageError(f"pod: {key!r} is not in the cluster; it may have ended")
            nodes = tuple(node for node in self._cache.state.nodes if node is not None)
            if not nodes:
                raise UsageError("the cluster has no node")
            services = LiveSpreadSelectors(self._cache.selectors)()
            pod, node, devices = pods.pop(key)
            others = list(pods.values())

            def explain() -> Explanation:
                placed = [_placed(*each) for each in others]
                workload = Workload("the cluster", nodes, (pod, *placed), services)
                chosen, member, choice = self._resolved(policy, workload)
                result = explain_placed(chosen, workload, _placed(pod, node, devices), placed, workload.pods)
                result.member, result.choice = member, choice
                return result

            return await asyncio.to_thread(explain)

    def _resolved(self, name: str, workload: Workload) -> tuple[Policy, str, str]:
        """Return the policy, and of a portfolio the member chosen for this cluster, once, and the evidence for it."""
        if name not in self._policies:
            policy, member, choice = resolve(name), "", ""
            if policy.members:
                chosen = Simulator(workload).member(policy)
                policy, member, choice = renamed(chosen.policy, name), chosen.policy.name, chosen.evidence
            self._policies[name] = policy, member, choice
        return self._policies[name]


def _placed(pod: Pod, node: str, devices: int | None) -> Pod:
    return pod.bound(node, device_indices(devices or 0)) if node else pod


class LiveQueue:
    """Predictions of the cluster's queue, one at a time: each simulates many futures."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = asyncio.Lock()
        self._decides: dict[tuple[str, str], Policy] = {}

    async def predict(self, policy: str, order: str) -> QueuePrediction:
        if policy not in EXPLAINED:
            raise UsageError(f"policy: {policy!r} predicts nothing here; {', '.join(EXPLAINED)} do")
        if order not in ORDERS:
            raise UsageError(f"order: {order!r} predicts nothing here; {', '.join(ORDERS)} do")
        async with self._lock:
            # Read again, since the watch knows nothing of pods that have ended.
            workload = await read_workload(self._client, "the cluster", RunningPods.FROM_NOW, lives=True)
            now = time.time()

            def predict() -> QueuePrediction:
                # What is chosen and fitted once is not searched for again with every prediction.
                key = policy, order
                if key not in self._decides:
                    self._decides[key] = decider_on(workload, in_order(resolve(policy), order))
                return predict_queue(moment_of(workload, now), self._decides[key])

            return await asyncio.to_thread(predict)
