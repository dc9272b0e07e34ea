"""What a scheduler says about a pod that fits nowhere."""

import numpy as np
import pytest
from tests.support.servers.live_cluster import node, pod
from tests.support.virtual_scheduler import VirtualScheduler
from tests.unit.kubernetes.cache.test_cluster_cache import raw

from steersman.kubernetes.cache.store import SHARED_THERE


@pytest.mark.parametrize(
    ("cpu", "is_closed", "reason"),
    [("64", False, "Insufficient cpu"), ("1", True, SHARED_THERE)],
    ids=["resources", "GPU pods there"],
)
def test_unschedulable_message_adds_invalid_nodes_and_preemption(
    cpu: str, is_closed: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = VirtualScheduler()
    world.apply("create", {"kind": "Node", **node("small", cpu="4")})
    world.apply("create", {"kind": "Node", **node("odd", cpu="many")})
    waiting = pod("waiting", cpu, scheduler="steersman")
    waiting["metadata"]["uid"], waiting["spec"]["priority"] = "1", 1000
    world.cache.upsert_pod(raw(waiting))
    if is_closed:
        every_node = np.ones(len(world.cache.state.nodes), dtype=np.bool_)
        monkeypatch.setattr(world.cache.gpu_pods, "refusal", lambda *_: (SHARED_THERE, every_node))
    world.run()
    first, invalid, preemption = world.reports.why.split(". ")
    assert first == f"0/1 nodes are available: 1 {reason}"
    assert invalid.startswith("No pods are placed on nodes that are not understood: odd (")
    assert preemption == "steersman does not preempt pods."
