"""What a scheduler does about pods' claims: it waits for them, has them provisioned, and binds volumes to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from tests.support.servers.bindings import Bindings, bind
from tests.support.servers.fake_api_server import clock, failure
from tests.support.servers.live_cluster import PODS, LiveDouble, node, on_double, pod
from tests.unit.live.scheduler.test_binding import Notes, nodes_of

from steersman.cluster.objects.api.claims import BIND_COMPLETED, SELECTED_NODE
from steersman.kubernetes.client import Client
from steersman.live.scheduler.scheduler import Scheduler, SchedulerOptions
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.registry import resolve

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
ZONE = "topology.kubernetes.io/zone"
Step = Callable[[LiveDouble], None]


class Told(Notes):
    """Keeps why pods wait."""

    def __init__(self) -> None:
        self.waiting: dict[str, str] = {}
        self.failures: list[str] = []

    def unschedulable(self, queued: Any, why: str, seconds: float) -> None:
        self.waiting[queued.pod.pod.name] = why

    def failed(self, queued: Any, node: str, why: str, seconds: float) -> None:
        self.failures.append(why)


def storage_class(provisioner: str = "csi.example.com") -> dict[str, Any]:
    mode = "WaitForFirstConsumer"
    return {"metadata": {"name": "wait"}, "provisioner": provisioner, "volumeBindingMode": mode}


def claim(name: str = "data", bound: str = "") -> dict[str, Any]:
    notes = {BIND_COMPLETED: "yes"} if bound else {}
    spec = {"storageClassName": "wait", "volumeName": bound, "accessModes": ["ReadWriteOnce"]}
    return {"metadata": {"name": name, "annotations": notes}, "spec": {**spec, "resources": {}}}


def volume(name: str, zone: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    spec = {"storageClassName": "wait", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    affinity = {"required": {"nodeSelectorTerms": [term]}}
    return {"metadata": {"name": name}, "spec": {**spec, "nodeAffinity": affinity}, "status": {"phase": "Available"}}


def with_claim(name: str, claim_name: str = "data") -> dict[str, Any]:
    made = pod(name, scheduler="steersman")
    made["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}]
    return made


def played(
    begin: Step, *steps: tuple[Callable[[LiveDouble, Told], bool], Step], timeout: float = 600.0, zones: str = "ab"
) -> Told:
    """Run a scheduler on nodes a and b in zones a and b; each step is done when its condition holds."""
    told = Told()

    async def test(double: LiveDouble, client: Client) -> None:
        Bindings(double, bind)
        for zone in zones:
            double.put("/api/v1/nodes", node(f"node-{zone}", **{ZONE: zone}))
        begin(double)
        scheduler = Scheduler(
            client,
            lambda cache: Decider(ClusterView(cache.state), resolve("best-fit")),
            told,
            SchedulerOptions(),
            clock=clock,
        )
        scheduler.volume_binder.timeout = timeout
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(scheduler.watch()), group.create_task(scheduler.schedule())]
            for holds, act in steps:
                end = clock() + 60
                while not holds(double, told):
                    assert clock() < end, (nodes_of(double), told.waiting, told.failures)
                    await asyncio.sleep(0.02)
                act(double)
            for task in tasks:
                task.cancel()

    on_double(test)
    return told


def nothing(_: LiveDouble) -> None:
    """The end."""


def on(name: str, expected: str) -> Callable[[LiveDouble, Told], bool]:
    return lambda double, _: nodes_of(double)[name] == expected


def selected(double: LiveDouble) -> str:
    return str((double.objects[CLAIMS, "data"]["metadata"].get("annotations") or {}).get(SELECTED_NODE, ""))


def test_a_pod_waits_for_its_claim_and_goes_where_its_volume_is() -> None:
    def begin(double: LiveDouble) -> None:
        double.put(PODS, with_claim("web"))

    def come(double: LiveDouble) -> None:
        double.put(VOLUMES, volume("v", "b"))
        double.put(CLAIMS, claim(bound="v"))

    missing = '0/2 nodes are available: persistentvolumeclaim "data" not found.'
    played(begin, (lambda _, told: told.waiting.get("web") == missing, come), (on("web", "node-b"), nothing))


def test_pod_is_bound_after_its_claim_is_provisioned() -> None:
    """Another pod does not wait for that."""

    def begin(double: LiveDouble) -> None:
        double.put(CLASSES, storage_class())
        double.put(CLAIMS, claim())
        double.put(PODS, with_claim("web"))

    def another(double: LiveDouble) -> None:
        double.put(PODS, pod("plain", scheduler="steersman"))

    def provision(double: LiveDouble) -> None:
        assert not nodes_of(double)["web"], "its claim is not bound"
        where = selected(double)
        double.put(VOLUMES, volume("v", where[-1]))
        bound = claim(bound="v")
        bound["metadata"]["annotations"][SELECTED_NODE] = where
        double.put(CLAIMS, {**bound, "metadata": {**double.objects[CLAIMS, "data"]["metadata"], **bound["metadata"]}})

    played(
        begin,
        (lambda double, _: bool(selected(double)), another),
        (lambda double, _: bool(nodes_of(double)["plain"]), provision),
        (lambda double, _: nodes_of(double)["web"] == selected(double), nothing),
    )


def test_pod_is_retried_when_the_provisioner_rejects_the_node() -> None:
    def begin(double: LiveDouble) -> None:
        double.put(CLASSES, storage_class())
        double.put(CLAIMS, claim())
        double.put(PODS, with_claim("web"))

    def give_up(double: LiveDouble) -> None:
        known = double.objects[CLAIMS, "data"]
        double.put(CLAIMS, {**known, "metadata": {**known["metadata"], "annotations": {}}})

    played(
        begin,
        (lambda double, _: bool(selected(double)), give_up),
        (lambda _, told: any("provisioning failed" in why for why in told.failures), nothing),
        (lambda double, _: bool(selected(double)), nothing),
    )


def test_pods_do_not_share_an_exclusive_volume() -> None:
    def begin(double: LiveDouble) -> None:
        double.put(CLASSES, storage_class("kubernetes.io/no-provisioner"))
        double.put(VOLUMES, volume("v", "b"))
        for name in ("data", "more"):
            double.put(CLAIMS, claim(name))
            double.put(PODS, with_claim(f"web-{name}", name))

    def check(double: LiveDouble) -> None:
        there = double.objects[VOLUMES, "v"]
        ref = there["spec"]["claimRef"]
        assert there["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
        assert ref["uid"] == double.objects[CLAIMS, ref["name"]]["metadata"]["uid"]

    why = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
    played(
        begin,
        (
            lambda double, told: why in told.waiting.values() and "claimRef" in double.objects[VOLUMES, "v"]["spec"],
            check,
        ),
    )


def test_unprovisioned_claim_times_out() -> None:
    def begin(double: LiveDouble) -> None:
        double.put(CLASSES, storage_class())
        double.put(CLAIMS, claim())
        double.put(PODS, with_claim("web"))

    def provision(double: LiveDouble) -> None:
        double.put(VOLUMES, volume("v", selected(double)[-1]))
        double.put(CLAIMS, {**claim(bound="v"), "metadata": double.objects[CLAIMS, "data"]["metadata"]})
        double.objects[CLAIMS, "data"]["metadata"]["annotations"][BIND_COMPLETED] = "yes"
        double.put(CLAIMS, double.objects[CLAIMS, "data"])

    played(
        begin,
        (lambda _, told: "binding volumes: timed out after 0.3 s" in told.failures, provision),
        (lambda double, _: nodes_of(double)["web"] == selected(double), nothing),
        timeout=0.3,
    )


def test_missing_volume_permissions_block_only_pods_with_claims() -> None:
    def begin(double: LiveDouble) -> None:
        binds = double.fault
        assert binds is not None

        async def forbidden(request: web.Request) -> web.StreamResponse | None:
            if request.path.endswith(("/csinodes", "/storageclasses")):
                return failure(403, "Forbidden")
            return await binds(request)

        double.fault = forbidden
        double.put(CLAIMS, claim(bound="v"))
        double.put(VOLUMES, volume("v", "b"))
        double.put(PODS, with_claim("web"))
        double.put(PODS, pod("plain", scheduler="steersman"))

    why = (
        "0/2 nodes are available: steersman may not list and watch storageclasses, csinodes, which pods with volumes "
        "need."
    )
    played(begin, (lambda double, told: told.waiting.get("web") == why and bool(nodes_of(double)["plain"]), nothing))


@pytest.mark.parametrize("last", ["class", "volume"])
def test_volume_changes_wake_the_pod_of_a_claim(last: str) -> None:
    def put(double: LiveDouble, what: str) -> None:
        if what == "class":
            double.put(CLASSES, storage_class("kubernetes.io/no-provisioner"))
        else:
            double.put(VOLUMES, volume("v", "b"))

    def begin(double: LiveDouble) -> None:
        put(double, "volume" if last == "class" else "class")
        double.put(CLAIMS, claim())
        double.put(PODS, with_claim("web"))

    why = "unbound immediate" if last == "class" else "persistent volumes to bind"
    played(
        begin,
        (lambda _, told: why in told.waiting.get("web", ""), lambda double: put(double, last)),
        (lambda double, _: "claimRef" in double.objects[VOLUMES, "v"]["spec"], nothing),
    )


def test_pod_waits_for_the_release_of_a_read_write_once_pod_claim() -> None:
    def begin(double: LiveDouble) -> None:
        alone = claim(bound="v")
        double.put(CLAIMS, {**alone, "spec": {**alone["spec"], "accessModes": ["ReadWriteOncePod"]}})
        double.put(VOLUMES, volume("v", "b"))
        double.put(PODS, with_claim("first"))

    played(
        begin,
        (on("first", "node-b"), lambda double: double.put(PODS, with_claim("second")) and None),
        (lambda _, told: "ReadWriteOncePod" in told.waiting.get("second", ""), lambda d: d.remove(PODS, "first")),
        (on("second", "node-b"), nothing),
    )
