"""Since when a pod waits is what the API says, so that a restart changes neither the order nor how long pods waited."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import msgspec
import pytest
from tests.support.virtual_scheduler import VirtualScheduler
from tests.support.waking import Object

from steersman.live.scheduler.reporting import _condition

DAY = 86_400.0


def stamp(seconds_ago: float) -> str:
    return datetime.fromtimestamp(time.time() - seconds_ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def waiting(name: str, namespace: str, seconds_ago: float, *, gated: bool = False) -> Object:
    gates = {"schedulingGates": [{"name": "example.com/gate"}]} if gated else {}
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "generation": 1}
    return {
        "kind": "Pod",
        "metadata": {**metadata, "creationTimestamp": stamp(seconds_ago)},
        "spec": {"schedulerName": "steersman", "containers": [{"name": "c"}], **gates},
        "status": {},
    }


def listed(*pods: Object) -> VirtualScheduler:
    """A scheduler that was restarted: its list is by namespace and name."""
    world = VirtualScheduler()
    for pod in sorted(pods, key=lambda pod: (pod["metadata"]["namespace"], pod["metadata"]["name"])):
        world.apply("create", pod)
    return world


def order(world: VirtualScheduler) -> list[str]:
    names = []
    while (queued := world.scheduler.queue.pop()) is not None:
        names.append(queued.pod.key)
    return names


def test_restart_keeps_the_order_of_creation() -> None:
    world = listed(waiting("new", "aaa", 60), waiting("old", "zzz", DAY), waiting("older", "mmm", 2 * DAY))
    assert order(world) == ["mmm/older", "zzz/old", "aaa/new"]


def test_pods_of_one_second_are_not_in_the_order_of_their_names() -> None:
    pods = [waiting(f"p{i}", f"n{i:02d}", DAY) for i in range(20)]
    first, again = order(listed(*pods)), order(listed(*pods))
    assert first == again
    assert first != sorted(first)


def test_new_pods_keep_the_order_in_which_they_came() -> None:
    world = VirtualScheduler()
    for name in ("c", "a", "b"):
        world.apply("create", waiting(name, "default", 0))
    assert order(world) == ["default/c", "default/a", "default/b"]


def test_new_pod_goes_after_those_that_were_listed() -> None:
    world = listed(waiting("old", "zzz", 5))
    world.apply("create", waiting("new", "aaa", 0))
    assert order(world) == ["zzz/old", "aaa/new"]


@pytest.mark.parametrize("ago", [3.0, DAY])
def test_wait_is_counted_from_the_creation(ago: float) -> None:
    queued = listed(waiting("web", "default", ago)).scheduler.queue.pop()
    assert queued is not None
    assert ago - 1 <= queued.waited() <= ago + 30


def test_clock_of_the_api_server_may_be_ahead() -> None:
    queued = listed(waiting("web", "default", -60)).scheduler.queue.pop()
    assert queued is not None
    assert queued.waited() == 0.0


def test_gated_pod_waits_from_when_its_gates_are_removed_and_after_a_restart() -> None:
    world = listed(waiting("gated", "aaa", DAY, gated=True), waiting("web", "zzz", DAY / 2))
    free = waiting("gated", "aaa", DAY)
    free["spec"]["schedulingGates"] = []
    world.apply("replace", free)
    assert order(world) == ["zzz/web", "aaa/gated"]
    # What is written about it is read after the restart.
    condition = msgspec.json.decode(_condition(world.scheduler.cache.pods["aaa/gated"], "no node"))["status"]
    assert order(listed({**free, "status": condition}, waiting("web", "zzz", DAY / 2))) == ["zzz/web", "aaa/gated"]


def test_condition_of_a_pod_without_gates_names_its_creation() -> None:
    pod = waiting("web", "default", DAY)
    condition = _condition(listed(pod).scheduler.cache.pods["default/web"], "no node")
    transition = msgspec.json.decode(condition)["status"]["conditions"][0]["lastTransitionTime"]
    assert transition == pod["metadata"]["creationTimestamp"]
