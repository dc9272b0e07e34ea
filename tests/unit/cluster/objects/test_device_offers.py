"""Extended resources that nodes offer by Dynamic Resource Allocation."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support.cluster_dump import Object
from tests.support.errors import raises
from tests.support.objects import node_from_object

from steersman.cluster.constraints.reasons import reasons_by_node
from steersman.cluster.model import Node, Pod
from steersman.cluster.objects.api.claims import DeviceClass, ResourceClaim, ResourceSlice
from steersman.cluster.objects.decoding import pod_from_object
from steersman.cluster.objects.device_offers import DeviceId, DeviceOffers, device_offers
from steersman.cluster.objects.device_selectors import (
    EvaluationError,
    SelectorError,
    compile_selector,
    device_variables,
)
from steersman.cluster.state import ClusterState

DEVICE = device_variables(
    "gpu.example.com",
    {
        "type": {"string": "gpu"},
        "index": {"int": 3},
        "ecc": {"bool": True},
        "driverVersion": {"version": "1.2.3"},
        "other.example/rack": {"string": "r1"},
    },
    {"memory": {"value": "80Gi"}},
)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ('device.driver == "gpu.example.com"', True),
        ("device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].type == 'mig'", False),
        ("device.attributes['gpu.example.com']['type'] in ['mig', 'gpu']", True),
        ("device.attributes['other.example'].rack != 'r1'", False),
        ("device.attributes['gpu.example.com'].index >= 3 && device.attributes['gpu.example.com'].ecc", True),
        ("!(device.attributes['gpu.example.com'].index < 3) || device.attributes['none'].x == 'y'", True),
        ("device.attributes['none'].x == 'y' && device.driver == 'other'", False),
        ("'type' in device.attributes['gpu.example.com']", True),
        ("has(device.attributes['none'].x)", False),
        ("device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0", True),
        ("device.capacity['gpu.example.com'].memory.isLessThan(quantity('80Gi'))", False),
        ("device.driver.startsWith('gpu.') && device.driver.endsWith(\".com\") && device.driver.contains('x')", True),
        ("true", True),
    ],
)
def test_selectors_are_evaluated_like_cel(expression: str, value: bool) -> None:
    assert compile_selector(expression)(DEVICE) is value


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver.matches('gpu.*')",
        "device.attributes['a'].exists(x, x == 1)",
        "1 + 1 == 2",
        "device.driver == 'a' ? true : false",
        "semver('1.0.0') == device.attributes['a'].v",
        "device.driver ==",
        "(device.driver == 'a'",
        "device.driver == 'a' device",
        "",
    ],
)
def test_other_expressions_are_named_as_not_supported(expression: str) -> None:
    with raises(SelectorError):
        compile_selector(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['none'].x == 'y'",
        "device.attributes['gpu.example.com'].index == '3'",
        "device.attributes['gpu.example.com'].driverVersion < '2'",
        "device.driver && true",
    ],
)
def test_expressions_without_a_value_fail(expression: str) -> None:
    with raises(EvaluationError):
        compile_selector(expression)(DEVICE)


def device_class(name: str = "gpu.example.com", resource: str = "", expression: str = "", **meta: Any) -> DeviceClass:
    selector = expression or "device.driver == 'gpu.example.com'"
    spec: Object = {"selectors": [{"cel": {"expression": selector}}]}
    return msgspec.convert(
        {"metadata": {"name": name, **meta}, "spec": spec | ({"extendedResourceName": resource} if resource else {})},
        DeviceClass,
    )


def resource_slice(node: str = "a", *devices: Object, pool: Object | None = None, **spec: Any) -> ResourceSlice:
    named = {"name": node, "generation": 1, "resourceSliceCount": 1, **(pool or {})}
    body = {"driver": "gpu.example.com", "nodeName": node, "pool": named, "devices": list(devices), **spec}
    return msgspec.convert({"metadata": {"name": f"slice-{node}"}, "spec": body}, ResourceSlice)


def claim(*devices: str, annotations: dict[str, str] | None = None) -> ResourceClaim:
    results = [{"request": "r", "driver": "gpu.example.com", "pool": "a", "device": each} for each in devices]
    status = {"allocation": {"devices": {"results": results}}}
    return msgspec.convert({"metadata": {"name": "c", "annotations": annotations}, "status": status}, ResourceClaim)


def offers(
    classes: list[DeviceClass], slices: list[ResourceSlice], claims: list[ResourceClaim] | None = None
) -> DeviceOffers:
    return device_offers(classes, slices, claims or [], ("a", "b"))


TWO = ({"name": "gpu-0"}, {"name": "gpu-1"})


def node(name: str, **allocatable: str) -> Node:
    amounts = {"cpu": "8", "memory": "1Gi", "pods": "9", **allocatable}
    return node_from_object({"metadata": {"name": name}, "status": {"allocatable": amounts}})


def pod(*resources: str, amount: str = "1") -> Pod:
    container = {"name": "c", "image": "i", "resources": {"limits": dict.fromkeys(resources, amount)}}
    return pod_from_object({"metadata": {"name": "p"}, "spec": {"containers": [container]}})


def test_a_node_offers_the_devices_of_its_slices_under_both_names_of_a_class() -> None:
    found = offers([device_class(resource="nvidia.com/gpu")], [resource_slice("a", *TWO)])
    assert found.node(node("a")).gpu_count == 2
    assert found.node(node("b")).gpu_count == 0
    for name in ("nvidia.com/gpu", "deviceclass.resource.kubernetes.io/gpu.example.com"):
        requests = found.pod(pod(name)).requests
        assert (requests.gpu_count, requests.gpu_resource) == (1, "nvidia.com/gpu")
    assert found.unmodelled(pod("nvidia.com/gpu")) == ()
    both = found.pod(pod("nvidia.com/gpu", "deviceclass.resource.kubernetes.io/gpu.example.com", "a.b/c")).requests
    assert (both.gpu_count, both.gpu_milli, both.extended) == (2, 1000, (("a.b/c", 1),))
    two_kinds = pod("amd.com/gpu", "deviceclass.resource.kubernetes.io/gpu.example.com")
    assert found.pod(two_kinds) == two_kinds


def test_a_request_by_the_name_of_a_class_does_not_go_to_a_device_plugin() -> None:
    """Also where the class has another name, by which the plugin's node offers its GPUs."""
    found = offers([device_class(resource="nvidia.com/gpu")], [resource_slice("a", *TWO)])
    state = ClusterState([found.node(node("a")), found.node(node("plugin", **{"nvidia.com/gpu": "4"}))])
    implicit, explicit = pod("deviceclass.resource.kubernetes.io/gpu.example.com"), pod("nvidia.com/gpu")
    by_class = state.class_id(found.pod(implicit).pod_class)
    assert state.mask(by_class).tolist() == [True, False]
    assert reasons_by_node(state, by_class) == {"plugin": ("cannot allocate all claims",)}
    assert state.mask(state.class_id(found.pod(explicit).pod_class)).all()
    assert found.pod(found.pod(implicit)) == found.pod(implicit)
    without_name = offers([device_class()], [resource_slice("a", *TWO)])
    assert without_name.pod(implicit) == implicit


def test_device_class_without_resource_name_or_gpu_is_skipped() -> None:
    name = "deviceclass.resource.kubernetes.io/nic.example.com"
    found = offers([device_class("nic.example.com")], [resource_slice("a", *TWO)])
    assert dict(found.node(node("a")).extended) == {name: 2}
    assert dict(found.pod(pod(name)).requests.extended) == {name: 1}


def test_device_plugin_resource_is_kept() -> None:
    found = offers([device_class(resource="nvidia.com/gpu")], [resource_slice("a", *TWO)])
    assert found.node(node("a", **{"nvidia.com/gpu": "4"})).gpu_count == 4
    assert found.node(node("a", **{"nvidia.com/gpu": "0"})).gpu_count == 2


def test_allocated_and_tainted_devices_are_not_offered() -> None:
    tainted = {"name": "gpu-2", "taints": [{"key": "k", "effect": "NoExecute"}]}
    slices = [resource_slice("a", *TWO, tainted)]
    found = offers([device_class()], slices, [claim("gpu-1")])
    name = "deviceclass.resource.kubernetes.io/gpu.example.com"
    assert found.devices == {"a": {name: [DeviceId("gpu.example.com", "a", "gpu-0")]}}
    for_requests = claim("gpu-1", annotations={"resource.kubernetes.io/extended-resource-claim": "true"})
    assert len(offers([device_class()], slices, [for_requests]).devices["a"][name]) == 2


@pytest.mark.parametrize(
    ("pools", "count"),
    [
        ([{"generation": 1}, {"generation": 2}], 1),  # only the newest
        ([{"resourceSliceCount": 2}], 0),  # incomplete
        ([{"resourceSliceCount": 2}, {"resourceSliceCount": 2}], 0),  # two devices of one name
    ],
)
def test_slices_of_a_pool_count_together(pools: list[Object], count: int) -> None:
    slices = [resource_slice("a", {"name": "gpu-0"}, pool=each) for each in pools]
    found = offers([device_class()], slices)
    assert sum(len(each) for each in found.devices.get("a", {}).values()) == count


@pytest.mark.parametrize(
    ("device", "spec", "expression", "why"),
    [
        ({"consumesCounters": [{"counterSet": "a"}]}, {}, "", "share counters"),
        ({"allowMultipleAllocations": True}, {}, "", "several times"),
        ({"bindingConditions": ["a"]}, {}, "", "conditions"),
        ({}, {"nodeName": None, "allNodes": True}, "", "several nodes"),
        ({}, {}, "device.driver.matches('a')", "matches"),
        ({}, {}, "device.attributes['a'].b == 'c'", "no such key: b"),
    ],
)
def test_unmodelled_devices_are_reported(device: Object, spec: Object, expression: str, why: str) -> None:
    found = offers(
        [device_class(resource="nvidia.com/gpu", expression=expression)],
        [resource_slice("a", {"name": "gpu-0", **device}, **spec)],
    )
    assert why in found.problems["nvidia.com/gpu"]
    assert not found.devices.get("a")
    for name in ("nvidia.com/gpu", "deviceclass.resource.kubernetes.io/gpu.example.com"):
        (problem,) = found.unmodelled(found.pod(pod(name)))
        assert problem.startswith("nvidia.com/gpu of DeviceClass gpu.example.com, since ")
    assert found.unmodelled(pod("amd.com/gpu")) == ()


def test_of_two_classes_with_one_resource_name_the_newest_counts() -> None:
    old = device_class("old", "nvidia.com/gpu", creationTimestamp="2026-01-01T00:00:00Z")
    new = device_class("new", "nvidia.com/gpu", creationTimestamp="2026-02-01T00:00:00Z")
    found = offers([old, new], [])
    assert found.classes["nvidia.com/gpu"] == "new"
    assert found.names == {"new": "nvidia.com/gpu", "old": "deviceclass.resource.kubernetes.io/old"}


def test_devices_may_name_their_own_nodes() -> None:
    devices = ({"name": "gpu-0", "nodeName": "a"}, {"name": "gpu-1", "nodeName": "b"})
    found = offers([device_class()], [resource_slice("x", *devices, nodeName=None, perDeviceNodeSelection=True)])
    assert {name: len(next(iter(each.values()))) for name, each in found.devices.items()} == {"a": 1, "b": 1}
