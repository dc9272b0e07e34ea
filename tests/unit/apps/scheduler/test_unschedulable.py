"""What a scheduler says about a pod that fits nowhere."""

import json
from typing import Any

import numpy as np
import pytest
from tests.support.servers.live_cluster import LiveDouble, node, on_double, pod
from tests.unit.apps.scheduler.test_binding import Notes

from steersman.apps.scheduler.ordering import QueuedPod
from steersman.apps.scheduler.scheduler import Scheduler, SchedulerOptions
from steersman.kubernetes.cache.gpu_mixing import SHARED_THERE
from steersman.kubernetes.client import Client
from steersman.policies.decision.cluster_view import ClusterView
from steersman.policies.decision.decider import Decider
from steersman.policies.registry import resolve


class LastReason(Notes):
    """Keeps the last reason."""

    why = ""

    def on_node_problem(self, name: str, problem: str) -> None: ...

    def unschedulable(self, queued: QueuedPod, why: str, seconds: float) -> None:
        self.why = why


def whole(obj: dict[str, Any]) -> Any:
    """An object as it comes from the watch."""
    return json.dumps({**obj, "metadata": {**obj["metadata"], "uid": "1"}}).encode()


@pytest.mark.parametrize(
    ("cpu", "is_closed", "reason"),
    [("64", False, "Insufficient cpu"), ("1", True, SHARED_THERE)],
    ids=["resources", "GPU pods there"],
)
def test_unschedulable_message_adds_invalid_nodes_and_preemption(cpu: str, is_closed: bool, reason: str) -> None:
    async def test(_: LiveDouble, client: Client) -> None:
        told = LastReason()
        scheduler = Scheduler(
            client, lambda cache: Decider(ClusterView(cache.state), resolve("best-fit")), told, SchedulerOptions()
        )  # type: ignore[arg-type]
        scheduler.cache.upsert_node(whole(node("small", cpu="4")))
        scheduler.cache.upsert_node(whole(node("odd", cpu="many")))
        waiting = pod("waiting", cpu, scheduler="steersman")
        waiting["spec"]["priority"] = 1000
        scheduler.cache.upsert_pod(whole(waiting))
        if is_closed:
            every_node = np.ones(len(scheduler.cache.state.nodes), dtype=np.bool_)
            scheduler.cache.gpu_pods.refusal = lambda *_: (SHARED_THERE, every_node)  # type: ignore[method-assign]
        scheduler.decider = Decider(ClusterView(scheduler.cache.state), resolve("best-fit"))
        queued = scheduler.queue.pop()
        assert queued is not None
        scheduler._schedule_one(queued)
        first, invalid, preemption = told.why.split(". ")
        assert first == f"0/1 nodes are available: 1 {reason}"
        assert invalid.startswith("No pods are placed on nodes that are not understood: odd (")
        assert preemption == "steersman does not preempt pods."

    on_double(test)
