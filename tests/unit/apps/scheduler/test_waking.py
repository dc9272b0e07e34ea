"""A pod is tried again when a change makes it schedulable, at once, and at no other change; in virtual time."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.servers.fake_api_server import merged
from tests.support.waking import Object, Verb, WakingScenario, scenarios
from tests.unit.apps.scheduler.test_binding import Notes

from steersman.apps.scheduler.ordering import QueuedPod
from steersman.apps.scheduler.scheduler import Scheduler, SchedulerOptions
from steersman.kubernetes.cache import store
from steersman.kubernetes.cache.store import NUMBERS_OF_WAITING
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeCluster, KubeConfig, KubeUser
from steersman.policies.decision.cluster_view import ClusterView
from steersman.policies.decision.decider import Decider
from steersman.policies.registry import resolve

SCENARIOS = scenarios("x", "steersman")
CHURN = 40
WAKING_SECONDS = 0.3
WAITS = "default/x-waits"


class Attempts(Notes):
    """Counts attempts that found no node."""

    def __init__(self) -> None:
        self.failed_attempts = 0
        self.why = ""

    def unschedulable(self, queued: QueuedPod, why: str, seconds: float) -> None:
        self.failed_attempts += 1
        self.why = why


async def nothing(*_: object) -> None: ...


class World:
    """A scheduler whose watches are fed directly, in virtual time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.attempts = Attempts()
        config = KubeConfig(Path("none"), "", KubeCluster("http://127.0.0.1:1"), KubeUser(), "default")
        self.scheduler = Scheduler(
            Client(config),
            lambda cache: Decider(ClusterView(cache.state), resolve("best-fit")),
            self.attempts,  # type: ignore[arg-type]
            SchedulerOptions(),
            clock=lambda: self.now,
        )
        self.scheduler._bind = self.scheduler._bind_volumes = nothing  # type: ignore[method-assign]
        self.scheduler.volumes.need()
        for reflector in self.scheduler.volumes.reflectors:
            reflector.synced.set()
        self.scheduler.decider = self.scheduler._make_decider(self.scheduler.cache)
        self._objects: dict[tuple[str, str], Object] = {}
        self._count = 0

    def apply(self, verb: Verb, obj: Object) -> None:
        """Change an object as the API server does, and report it as the watches do."""
        key = obj["kind"], obj["metadata"]["name"]
        self._count += 1
        known = self._objects.get(key, {})
        if verb == "delete":
            del self._objects[key]
            obj = known
        else:
            obj = copy.deepcopy(merged(known, obj))
            obj["metadata"].setdefault("uid", f"uid-{self._count}")
            obj["metadata"]["generation"] = self._count
            self._objects[key] = obj
        handler = self._handler(obj["kind"])
        handler(
            "DELETED" if verb == "delete" else "MODIFIED" if known else "ADDED", msgspec.Raw(msgspec.json.encode(obj))
        )

    def _handler(self, kind: str) -> Callable[[Any, msgspec.Raw], None]:
        """Return what is told about objects of a kind."""
        plural = {"StorageClass": "storageclasses", "CSIStorageCapacity": "csistoragecapacities"}.get(
            kind, f"{kind.lower()}s"
        )
        for reflector in self.scheduler.cache.reflectors:
            if reflector.resource == plural:
                change: Callable[[Any, msgspec.Raw], None] = reflector.handler.change
                return change
        raise AssertionError(kind)

    def run(self, seconds: float = 0.0) -> None:
        """Run the scheduling loop until nothing is left to do now, and for so many seconds."""
        scheduler, end = self.scheduler, self.now + seconds
        while True:
            scheduler._wake()
            if (queued := scheduler.queue.pop()) is not None:
                scheduler._schedule_one(queued)
            elif (wait := scheduler._hints.wait_seconds()) and self.now + wait <= end:
                self.now += wait
            else:
                break

    def node_of(self, key: str) -> str:
        return self.scheduler.cache.pods[key].node


@pytest.fixture(params=[NUMBERS_OF_WAITING, 0], ids=["", "without numbers"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> World:
    """Also one in which no pod without a node keeps numbers in the state."""
    monkeypatch.setattr(store, "NUMBERS_OF_WAITING", request.param)
    return World()


def begin(world: World, scenario: WakingScenario) -> None:
    """Create everything before the change, and try the pod."""

    for obj in (*scenario.before, scenario.pod):
        world.apply("create", obj)
    world.run()
    assert not world.node_of(WAITS), "it must not fit yet"


def churn(world: World) -> None:
    """Unrelated pods are bound and deleted, on a node that the pod cannot use."""
    spot = {
        "kind": "Node",
        "metadata": {"name": "spot", "labels": {}},
        "status": {"allocatable": {"cpu": "99", "memory": "9Gi", "pods": "99"}},
    }
    world.apply("create", spot)
    for i in range(CHURN):
        container = {
            "name": "c",
            "resources": {"requests": {"cpu": "1"}},
            "ports": [{"containerPort": 1, "hostPort": 9}],
        }
        meta = {"name": f"other-{i}", "namespace": "default", "labels": {"app": "other"}}
        world.apply(
            "create", {"kind": "Pod", "metadata": meta, "spec": {"containers": [container], "nodeName": "spot"}}
        )
        world.now += 0.05
        world.run()
        world.apply("delete", {"kind": "Pod", "metadata": meta})
        world.now += 0.05
        world.run()


@pytest.mark.parametrize("has_churn", [False, True], ids=["quiet", "churn"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_change_wakes_the_pod_it_makes_schedulable(world: World, scenario: WakingScenario, has_churn: bool) -> None:
    async def play() -> None:
        begin(world, scenario)
        attempts = world.attempts.failed_attempts
        assert attempts == (scenario.plugin != "SchedulingGates")
        if has_churn:
            churn(world)
            assert world.attempts.failed_attempts == attempts, "unrelated changes cost no attempt"
        changed_at = world.now
        world.apply(scenario.verb, scenario.changed)
        world.run(WAKING_SECONDS)
        assert world.node_of(WAITS), world.attempts.why
        assert world.now - changed_at <= WAKING_SECONDS

    asyncio.run(play())


def test_scenarios_cover_the_default_plugins() -> None:
    assert len(SCENARIOS) == len({scenario.name for scenario in SCENARIOS}) >= 27
    assert {scenario.plugin for scenario in SCENARIOS} == {
        "InterPodAffinity",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "NodeUnschedulable",
        "NodeVolumeLimits",
        "PodTopologySpread",
        "SchedulingGates",
        "TaintToleration",
        "VolumeBinding",
        "VolumeRestrictions",
        "VolumeZone",
    }


def test_pod_with_an_unlisted_claim_is_reported() -> None:
    world = World()
    reflectors = world.scheduler.volumes.reflectors
    for reflector in reflectors:
        reflector.synced.clear()
    world.apply(
        "create", {"kind": "Node", "metadata": {"name": "node"}, "status": {"allocatable": {"cpu": "8", "pods": "9"}}}
    )
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "none"}}
    pod = {
        "metadata": {"name": "volume", "namespace": "default"},
        "spec": {"schedulerName": "steersman", "volumes": [claim], "containers": [{"name": "c"}]},
    }
    world.apply("create", {"kind": "Pod", **pod})
    world.run()
    assert world.attempts.failed_attempts == 0, "claims are not listed yet"
    for reflector in reflectors:
        reflector.handler.keep(set())
        reflector.synced.set()
    world.run()
    assert world.attempts.why == '0/1 nodes are available: persistentvolumeclaim "none" not found.'
