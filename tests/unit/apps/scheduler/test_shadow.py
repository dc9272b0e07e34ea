"""What a shadow sees of a cluster in which another scheduler binds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from tests.support.servers.live_cluster import NODES, PODS, LiveDouble, node, on_double, pod
from tests.unit.cluster.objects.test_gpu_ways import gpu_node, plugged, sharing

from steersman.apps.scheduler.shadow import Shadow
from steersman.kubernetes.client import Client
from steersman.policies.decision.decider import Decider
from steersman.policies.registry import resolve

HOSTNAME = "kubernetes.io/hostname"


def shadowed(begin: Callable[[LiveDouble], None], *pods: dict[str, Any]) -> tuple[int, int, int]:
    """Let best-fit shadow a scheduler that binds these pods to `small`: decisions, those agreed with, and refusals."""
    found = []

    async def test(double: LiveDouble, client: Client) -> None:
        double.bind_after = None
        begin(double)
        shadow = Shadow(client, lambda cache: Decider(cache.state, resolve("best-fit")), "other")
        running = asyncio.create_task(shadow.run(lambda: asyncio.sleep(0)))
        end = time.monotonic() + 8
        while shadow.actual.decider is None:
            assert time.monotonic() < end
            await asyncio.sleep(0.02)
        for each in pods:
            each["spec"]["schedulerName"] = "other"
            double.put(PODS, each)
            await asyncio.sleep(1)  # namespaces are followed from when a pod needs them
            double.bind(each["metadata"]["name"], "small")
        while shadow.tally.decisions < len(pods):
            assert time.monotonic() < end, shadow.tally
            await asyncio.sleep(0.02)
        tally = shadow.tally
        found.append((tally.decisions, tally.agreed, tally.refused))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    on_double(test)
    return found[0]


def test_it_knows_pods_that_select_namespaces_by_labels() -> None:
    """A pod on `big` wants none of the namespaces `team=a` beside it, so `small` is all there is."""

    def begin(double: LiveDouble) -> None:
        double.put("/api/v1/namespaces", {"metadata": {"name": "default", "labels": {"team": "a"}}})
        double.put(NODES, node("big", cpu="8", **{HOSTNAME: "big"}))
        double.put(NODES, node("small", cpu="64", **{HOSTNAME: "small"}))
        term = {"topologyKey": HOSTNAME, "labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "a"}}}
        apart = pod("apart", on="big")
        apart["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        double.put(PODS, apart)

    assert shadowed(begin, pod("web")) == (1, 1, 0)


def test_it_mixes_no_shares_with_devices_of_a_plugin() -> None:
    def begin(double: LiveDouble) -> None:
        double.put(NODES, gpu_node("full", shared=2, plugin=2))
        double.put(NODES, gpu_node("small", shared=2, plugin=2))
        double.put(PODS, plugged("there", on="full"))

    assert shadowed(begin, sharing("comes")) == (1, 1, 0)
