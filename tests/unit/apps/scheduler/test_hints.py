"""What comes free wakes the pods that it may help, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from tests.support.errors import check_text
from tests.unit.kubernetes.cache.test_cluster_cache import node, pod, raw

from steersman.apps.scheduler.ordering import QueuedPod
from steersman.apps.scheduler.scheduler import Scheduler, SchedulerOptions
from steersman.cluster.objects.decoding import GANG_KEY
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeCluster, KubeConfig, KubeUser
from steersman.policies.decision.cluster_view import ClusterView
from steersman.policies.decision.decider import Decider
from steersman.policies.registry import resolve


class Counts:
    """Counts decisions, and what is told of pods that fit nowhere."""

    def __init__(self) -> None:
        self.decisions = 0
        self.told: list[tuple[str, str]] = []

    def decided(self, seconds: float, cpu_seconds: float) -> None:
        self.decisions += 1

    def ignored(self, queued: QueuedPod, reason: str, problems: Sequence[str]) -> None:
        self.told.append((queued.pod.key, f"{reason}: {problems[0]}"))

    def unschedulable(self, queued: QueuedPod, why: str, seconds: float) -> None:
        if why != queued.message:
            self.told.append((queued.pod.key, why))


@pytest.fixture
def scheduler(tmp_path: Any) -> Scheduler:
    client = Client(KubeConfig(tmp_path, "", KubeCluster("http://127.0.0.1:1"), KubeUser(), "default"))
    made = Scheduler(
        client, lambda cache: Decider(ClusterView(cache.state), resolve("best-fit")), Counts(), SchedulerOptions()
    )  # type: ignore[arg-type]
    for name in ("n0", "n1"):
        made.cache.upsert_node(raw(node(name, cpu=4, labels={"zone": name})))
        made.cache.upsert_pod(raw(pod(f"full-{name}", cpu="4", on=name)))
    made.decider = made._make_decider(made.cache)
    return made


def tried(scheduler: Scheduler) -> list[str]:
    """The pods that are tried now, in a time in which every rest is over."""
    scheduler._hints._due_at = 0.0
    scheduler._wake()
    later(scheduler)
    found = []
    while (queued := scheduler.queue.pop()) is not None:
        found.append(queued.pod.pod.name)
        scheduler._schedule_one(queued)
    return found


def later(scheduler: Scheduler) -> None:
    """Have all rests be over, and no pod that fits nowhere be tried for its age."""
    now = scheduler.queue.clock() + 20.0
    scheduler.queue.clock = scheduler._clock = lambda: now


def test_freed_node_wakes_only_as_many_pods_as_fit(scheduler: Scheduler) -> None:
    cache = scheduler.cache
    for i in range(20):
        cache.upsert_pod(raw(pod(f"small{i}", cpu="1")))
        cache.upsert_pod(raw(pod(f"large{i}", cpu="8")))
    assert len(tried(scheduler)) == 40
    assert tried(scheduler) == []
    assert scheduler.reporter.decisions == 2, "one for each class"  # type: ignore[attr-defined]
    scheduler._bind = lambda *_: _nothing()  # type: ignore[method-assign]
    decided = scheduler.reporter.decisions  # type: ignore[attr-defined]

    async def main() -> None:
        cache.delete_pod("default/full-n0")
        assert tried(scheduler) == [f"small{i}" for i in range(4)]

    asyncio.run(main())
    assert scheduler.reporter.decisions == decided + 4  # type: ignore[attr-defined]


async def _nothing() -> None:
    pass


def test_pods_of_higher_priority_are_woken(scheduler: Scheduler) -> None:
    cache = scheduler.cache
    for i in range(4):
        cache.upsert_pod(raw(pod(f"low{i}", cpu="4")))
    high = pod("high", cpu="4")
    cache.upsert_pod(raw({**high, "spec": {**high["spec"], "priority": 9}}))  # type: ignore[dict-item]
    assert len(tried(scheduler)) == 5
    scheduler._hints._due_at = 0.0
    cache.delete_pod("default/full-n0")
    scheduler._wake()
    later(scheduler)
    first = scheduler.queue.pop()
    assert first is not None
    assert first.pod.pod.name == "high"


def test_binding_wakes_pods_with_affinity_to_it(scheduler: Scheduler) -> None:
    cache = scheduler.cache
    cache.upsert_node(raw(node("n2", cpu=4, labels={"zone": "n2"})))
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    cache.upsert_pod(raw(pod("follows", affinity=near)))
    assert tried(scheduler) == ["follows"]
    cache.upsert_pod(raw(pod("x0", on="n2")))

    scheduler._bind = lambda *_: _nothing()  # type: ignore[method-assign]

    async def main() -> None:
        assert tried(scheduler) == ["follows"]

    asyncio.run(main())
    assert cache.pods["default/follows"].node == "n2"


def test_pending_reason_is_reported_once_while_only_counts_change(scheduler: Scheduler) -> None:
    cache = scheduler.cache
    cache.upsert_pod(raw(pod("large", cpu="8")))
    tried(scheduler)
    for i in range(5):
        cache.upsert_node(raw(node(f"more{i}", cpu=2)))
        scheduler.queue.move_all_to_backoff()
        tried(scheduler)
    told = scheduler.reporter.told  # type: ignore[attr-defined]
    assert len(told) == 1
    assert "0/2 nodes" in told[0][1]


def test_gang_whose_pods_are_placed_one_by_one_is_told_once(scheduler: Scheduler) -> None:
    """One pod of a gang says so at its first attempt, and others say nothing."""
    for name in ("g0", "g1", "alone"):
        obj: dict[str, Any] = pod(name, cpu="1")
        if name != "alone":
            obj["metadata"]["annotations"] = {GANG_KEY: "ring"}
        scheduler.cache.upsert_pod(raw(obj))
    for _ in range(2):
        while queued := scheduler.queue.pop():
            scheduler._schedule_one(queued)
        scheduler.queue.move_all_to_backoff()
    told = cast(Counts, scheduler.reporter).told
    about_gangs = [(key, what) for key, what in told if "gang" in what]
    assert [key for key, _ in about_gangs] == ["default/g0"]
    check_text(about_gangs[0][1])
    assert about_gangs[0][1].startswith("GangIgnored: gang ring: ")
