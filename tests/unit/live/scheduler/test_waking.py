"""A pod is tried again when a change makes it schedulable, at once, and at no other change; in virtual time."""

from __future__ import annotations

import pytest
from tests.support.virtual_scheduler import VirtualScheduler, in_event_loop
from tests.support.waking import WakingScenario, scenarios

from steersman.kubernetes.cache import store
from steersman.kubernetes.cache.store import NUMBERS_OF_WAITING

SCENARIOS = scenarios("x", "steersman")
CHURN = 40
WAKING_SECONDS = 0.3
WAITS = "default/x-waits"


def made() -> VirtualScheduler:
    world = VirtualScheduler()
    world.list_volumes()
    return world


@pytest.fixture(params=[NUMBERS_OF_WAITING, 0], ids=["", "without numbers"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> VirtualScheduler:
    """Also one in which no pod without a node keeps numbers in the state."""
    monkeypatch.setattr(store, "NUMBERS_OF_WAITING", request.param)
    return made()


def begin(world: VirtualScheduler, scenario: WakingScenario) -> None:
    """Create everything before the change, and try the pod."""

    for obj in (*scenario.before, scenario.pod):
        world.apply("create", obj)
    world.run()
    assert not world.node_of(WAITS), "it must not fit yet"


def churn(world: VirtualScheduler) -> None:
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
@in_event_loop
def test_change_wakes_the_pod_it_makes_schedulable(
    world: VirtualScheduler, scenario: WakingScenario, has_churn: bool
) -> None:
    begin(world, scenario)
    attempts = world.reports.failed_attempts
    assert attempts == (scenario.plugin != "SchedulingGates")
    if has_churn:
        churn(world)
        assert world.reports.failed_attempts == attempts, "unrelated changes cost no attempt"
    changed_at = world.now
    world.apply(scenario.verb, scenario.changed)
    world.run(WAKING_SECONDS)
    assert world.node_of(WAITS), world.reports.why
    assert world.now - changed_at <= WAKING_SECONDS


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
    world = made()
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
    assert world.reports.failed_attempts == 0, "claims are not listed yet"
    for reflector in reflectors:
        reflector.handler.keep(set())
        reflector.synced.set()
    world.run()
    assert world.reports.why == '0/1 nodes are available: persistentvolumeclaim "none" not found.'
