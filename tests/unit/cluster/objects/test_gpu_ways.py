"""GPUs that come by annotations, by device plugins and by ResourceClaims, on one node."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.support.servers.fake_api_server import failure
from tests.support.servers.live_cluster import NODES, PODS, LiveDouble, node, pod
from tests.unit.kubernetes.cache.test_accounts import free_gpus
from tests.unit.kubernetes.cache.test_cluster_cache import cache, raw
from tests.unit.kubernetes.volumes.test_volume_binding import nothing, played
from tests.unit.live.scheduler.test_binding import nodes_of

from steersman.cluster.objects.api.claims import FOR_REQUESTS
from steersman.kubernetes.cache.cluster_cache import ClusterCache
from steersman.kubernetes.cache.device_claims import CLAIMS_PATH

PLUGIN = "nvidia.com/gpu"
CLAIMS = CLAIMS_PATH.replace("resourceclaims", "namespaces/default/resourceclaims")
Object = dict[str, Any]


def gpu_node(name: str, shared: int = 0, plugin: int = 0) -> Object:
    made = node(name)
    amounts = {"alibabacloud.com/gpu-count": shared, PLUGIN: plugin}
    made["status"]["allocatable"].update({key: str(amount) for key, amount in amounts.items() if amount})
    return made


def sharing(name: str, milli: int = 500, on: str = "") -> Object:
    made = pod(name, scheduler="steersman")
    notes = {"alibabacloud.com/gpu-count": "1", "alibabacloud.com/gpu-milli": str(milli)}
    made["metadata"]["annotations"] = notes | ({"alibabacloud.com/gpu-index": "0"} if on else {})
    return on_node(made, on)


def plugged(name: str, count: int = 1, on: str = "") -> Object:
    made = pod(name, scheduler="steersman")
    amount = {PLUGIN: str(count)}
    made["spec"]["containers"][0]["resources"] = {"requests": amount, "limits": amount}
    return on_node(made, on)


def claiming(name: str, on: str = "") -> Object:
    made = pod(name, scheduler="default-scheduler")
    made["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": f"of-{name}"}]
    return on_node(made, on)


def on_node(made: Object, name: str) -> Object:
    return {**made, "spec": {**made["spec"], "nodeName": name}} if name else made


def device_class(name: str = "gpu", resource: str | None = PLUGIN) -> Object:
    return {"metadata": {"name": name}, "spec": {"extendedResourceName": resource} if resource else {}}


def claim(name: str, *pods: tuple[str, str], devices: int = 2, driver: str = "made.up", **changes: Any) -> Object:
    """A claim of pods (name, uid); one device more is the administrator's, one stands there twice."""
    results = [{"request": "r", "driver": driver, "pool": "p", "device": f"d{i}"} for i in range(devices)]
    extra = {"request": "r", "driver": driver, "pool": "p", "device": "watched", "adminAccess": True}
    reserved = [{"resource": "pods", "name": pod, "uid": uid} for pod, uid in pods]
    return {
        "metadata": {"name": name, "namespace": "default", **changes},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        "status": {"allocation": {"devices": {"results": [*results, *results[:1], extra]}}, "reservedFor": reserved},
    }


# What claims hold -----------------------------------------------------------------------------------------------------


def told(tested: ClusterCache, what: Object, *, claims: bool) -> None:
    """A watch says so."""
    tested.device_claims.reflectors[2 if claims else 0].change("ADDED", msgspec.Raw(json.dumps(what).encode()))


def gone(tested: ClusterCache, name: str) -> None:
    raw_claim = msgspec.Raw(json.dumps(claim(name)).encode())
    tested.device_claims.reflectors[2].change("DELETED", raw_claim)


def with_uid(made: Object, uid: str) -> Object:
    return {**made, "metadata": {**made["metadata"], "namespace": "default", "uid": uid, "generation": 1}}


EVENTS: dict[str, Callable[[ClusterCache], None]] = {
    "node": lambda tested: tested.upsert_node(raw(gpu_node("n", plugin=8))),
    "pod": lambda tested: tested.upsert_pod(raw(with_uid(claiming("a", on="n"), "uid-a"))),
    "other pod": lambda tested: tested.upsert_pod(raw(with_uid(claiming("b", on="n"), "uid-b"))),
    "class": lambda tested: told(tested, device_class(), claims=False),
    "claim": lambda tested: told(tested, claim("of-a", ("a", "uid-a"), devices=2), claims=True),
    "second": lambda tested: told(tested, claim("more", ("a", "uid-a"), devices=1), claims=True),
    "shared": lambda tested: told(tested, claim("all", ("b", "uid-b"), ("a", "uid-a"), devices=3), claims=True),
}


@given(st.permutations(list(EVENTS)))
def test_claimed_devices_are_counted_in_any_event_order(order: list[str]) -> None:
    tested = cache()
    for each in order:
        EVENTS[each](tested)
    for _ in range(2):
        assert sum(free_gpus(tested, "n")) == 2000  # of eight two, one and three are held
        tested.rebuild()
    gone(tested, "of-a")
    assert sum(free_gpus(tested, "n")) == 4000
    tested.delete_pod("default/a")
    assert sum(free_gpus(tested, "n")) == 8000  # until the API says for whom the shared claim is now
    told(tested, claim("all", ("b", "uid-b"), devices=3), claims=True)
    assert sum(free_gpus(tested, "n")) == 5000


@pytest.mark.parametrize(
    ("resource", "driver", "changes", "left"),
    [
        (PLUGIN, "made.up", {}, 6000),
        (None, "gpu.nvidia.com", {}, 6000),
        (None, "made.up", {}, 8000),  # no GPUs, as far as anybody says
        ("example.com/disk", "gpu.nvidia.com", {}, 8000),
        (PLUGIN, "made.up", {"annotations": {FOR_REQUESTS: "true"}}, 8000),  # the pod's requests count
    ],
)
def test_gpu_devices_are_recognised(resource: str | None, driver: str, changes: Object, left: int) -> None:
    tested = cache()
    for each in ("node", "pod"):
        EVENTS[each](tested)
    told(tested, device_class(resource=resource), claims=False)
    told(tested, claim("of-a", ("a", "uid-a"), driver=driver, **changes), claims=True)
    assert sum(free_gpus(tested, "n")) == left


def test_a_pod_whose_requests_a_device_class_serves_counts_once() -> None:
    tested = cache()
    tested.upsert_node(raw(gpu_node("n", plugin=8)))
    EVENTS["class"](tested)
    made = plugged("a", 2, on="n")
    made["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": "of-a"}]
    tested.upsert_pod(raw(with_uid(made, "uid-a")))
    EVENTS["claim"](tested)
    assert sum(free_gpus(tested, "n")) == 6000


def test_claim_of_a_deleted_namesake_does_not_count() -> None:
    tested = cache()
    for each in ("node", "pod", "class"):
        EVENTS[each](tested)
    told(tested, claim("of-a", ("a", "uid-before")), claims=True)
    assert sum(free_gpus(tested, "n")) == 8000


# One kind of pods a node ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "comes", "what", "why"),
    [
        (plugged("there", on="n"), sharing("comes"), "GPU", "node(s) had pods whose GPUs the kubelet chose"),
        (sharing("there", on="n"), plugged("comes"), PLUGIN, "node(s) had pods that share GPUs"),
    ],
)
def test_a_node_keeps_one_gpu_kind_while_it_has_pods(there: Object, comes: Object, what: str, why: str) -> None:
    def begin(double: LiveDouble) -> None:
        double.put(NODES, gpu_node("n", shared=4, plugin=4))
        double.put(NODES, gpu_node("small"))
        double.put(PODS, there)
        double.put(PODS, comes)

    told = played(
        begin,
        (lambda _, told: "comes" in told.waiting, lambda double: double.remove(PODS, "there")),
        (lambda double, _: nodes_of(double)["comes"] == "n", nothing),
        zones="",
    )
    assert told.waiting["comes"] == f"0/2 nodes are available: 1 Insufficient {what}, 1 {why}."


def test_counted_and_shared_gpus_are_separate() -> None:
    def begin(double: LiveDouble) -> None:
        apart = gpu_node("n", shared=4, plugin=4)
        apart["status"]["allocatable"]["amd.com/gpu"] = "2"
        double.put(NODES, apart)
        made = plugged("other")
        amount = {"amd.com/gpu": "1"}
        made["spec"]["containers"][0]["resources"] = {"requests": amount, "limits": amount}
        double.put(PODS, on_node(made, "n"))
        double.put(PODS, sharing("comes"))

    played(begin, (lambda double, _: nodes_of(double)["comes"] == "n", nothing), zones="")


def test_claimed_devices_exclude_sharing_pods() -> None:
    """A driver gave them away on a node of shares: which they are nobody knows here."""

    def begin(double: LiveDouble) -> None:
        double.put(NODES, gpu_node("n", shared=4))
        double.put(NODES, gpu_node("small", shared=1))
        held = double.put(PODS, claiming("held", on="n"))
        double.put("/apis/resource.k8s.io/v1/deviceclasses", device_class())
        double.put(CLAIMS, claim("of-held", ("held", held["metadata"]["uid"])))
        double.put(PODS, sharing("first", 1000))
        double.put(PODS, sharing("second", 1000))

    def bound(double: LiveDouble) -> list[str]:
        return sorted(each for name, each in nodes_of(double).items() if name != "held")

    played(
        begin,
        (lambda double, _: bound(double) == ["", "small"], lambda double: double.remove(PODS, "held")),
        (lambda double, _: bound(double) == ["n", "small"], nothing),
        zones="",
    )


def test_forbidden_claims_are_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    def begin(double: LiveDouble) -> None:
        binds = double.fault
        assert binds is not None

        async def forbidden(request: web.Request) -> web.StreamResponse | None:
            return failure(403, "Forbidden") if "resource.k8s.io" in request.path else await binds(request)

        double.fault = forbidden
        double.put(NODES, gpu_node("n", shared=4))
        double.put(PODS, claiming("held", on="n"))
        double.put(PODS, sharing("comes"))

    played(begin, (lambda double, _: nodes_of(double)["comes"] == "n", nothing), zones="")
    said = " ".join(capsys.readouterr().out.split())
    assert "devices of DRA are not counted: they cannot be listed resource=resourceclaims" in said
