"""What a shadow sees of a cluster in which another scheduler binds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.servers.live_cluster import NODES, PODS, LiveDouble, node, on_double, pod
from tests.unit.cluster.objects.test_gpu_ways import gpu_node, plugged, sharing

from steersman.kubernetes.client import Client
from steersman.live.scheduler.shadow import Shadow
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.registry import resolve

HOSTNAME = "kubernetes.io/hostname"


def shadowed(begin: Callable[[LiveDouble], None], *pods: dict[str, Any]) -> tuple[int, int, int]:
    """Let best-fit shadow a scheduler that binds these pods to `small`: decisions, those agreed with, and refusals."""
    found = []

    async def test(double: LiveDouble, shadow: Shadow) -> None:
        for each in pods:
            double.put(PODS, of_other(each))
            await asyncio.sleep(1)  # namespaces are followed from when a pod needs them
            double.bind(each["metadata"]["name"], "small")
        await until(lambda: shadow.tally.decisions == len(pods))
        tally = shadow.tally
        found.append((tally.decisions, tally.agreed, tally.refused))

    on_shadow(begin, test)
    return found[0]


def on_shadow(begin: Callable[[LiveDouble], None], test: Callable[[LiveDouble, Shadow], Awaitable[None]]) -> None:
    """Run a test with best-fit as the shadow of the scheduler `other`."""

    async def run(double: LiveDouble, client: Client) -> None:
        double.bind_after = None
        begin(double)
        shadow = Shadow(client, lambda cache: Decider(ClusterView(cache.state), resolve("best-fit")), "other")
        running = asyncio.create_task(shadow.run(lambda: asyncio.sleep(0)))
        await until(lambda: shadow.actual.decider is not None)
        await test(double, shadow)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    on_double(run)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(8):
        while not holds():
            await asyncio.sleep(0.02)


def of_other(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the pod as one of the scheduler `other`."""
    pod["spec"]["schedulerName"] = "other"
    return pod


def unschedulable(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the pod as one of the scheduler `other` that it found no node for."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return of_other(pod) | {"status": {"conditions": [condition]}}


def test_shadow_supports_namespace_selectors() -> None:
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


def test_shadow_separates_shared_and_plugin_gpus() -> None:
    def begin(double: LiveDouble) -> None:
        double.put(NODES, gpu_node("full", shared=2, plugin=2))
        double.put(NODES, gpu_node("small", shared=2, plugin=2))
        double.put(PODS, plugged("there", on="full"))

    assert shadowed(begin, sharing("comes")) == (1, 1, 0)


def test_shadow_places_a_pending_pod() -> None:
    """`other` spreads two pods over two nodes, so one that needs a whole node waits; best-fit leaves one empty."""

    def begin(double: LiveDouble) -> None:
        double.put(NODES, node("one", cpu="8"))
        double.put(NODES, node("two", cpu="8"))

    async def test(double: LiveDouble, shadow: Shadow) -> None:
        def unplaced() -> tuple[int, int]:
            actual, alternative = shadow.pictures()
            return actual.unplaced, alternative.unplaced

        for name, place in (("a", "one"), ("b", "two")):
            double.put(PODS, of_other(pod(name, cpu="2")))
            double.bind(name, place)
        await until(lambda: shadow.tally.decisions == 2)
        assert [each.nodes_in_use for each in shadow.pictures()] == [2, 1]
        gated = unschedulable(pod("gated", cpu="8"))
        gated["spec"]["schedulingGates"] = [{"name": "queue"}]
        double.put(PODS, gated)
        double.put(PODS, of_other(pod("untried", cpu="8")))  # `other` may be about to bind it
        double.put(PODS, unschedulable(pod("whole", cpu="8")))
        double.put(PODS, unschedulable(pod("another", cpu="8")))
        await until(lambda: unplaced() == (4, 3))
        double.remove(PODS, "whole")
        await until(lambda: unplaced() == (3, 2))  # `another` has the room of `whole`
        double.bind("another", "two")
        await until(lambda: shadow.tally.decisions == 3)
        assert unplaced() == (2, 2)
        assert shadow.alternative.cache.pods["default/another"].node != ""

    on_shadow(begin, test)
