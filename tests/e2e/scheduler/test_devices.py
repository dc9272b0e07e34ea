"""Extended resources that nodes offer by Dynamic Resource Allocation, on a real control plane without drivers."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.scheduler.test_schedule import bound, create, events, pod, pods, scheduling

pytestmark = pytest.mark.e2e

DRIVER = "gpu.example.com"
RESOURCE = "example.com/gpu"
IMPLICIT = f"deviceclass.resource.kubernetes.io/{DRIVER}"
GROUP = "resource.k8s.io/v1"
KINDS = ("resourceclaims", "resourceslices", "deviceclasses")


def device_class(name: str, expression: str, resource: str) -> dict[str, Any]:
    spec = {"selectors": [{"cel": {"expression": expression}}], "extendedResourceName": resource}
    return {"apiVersion": GROUP, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def resource_slice(node: str, devices: int) -> dict[str, Any]:
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{i}", "attributes": {"type": {"string": "gpu"}}} for i in range(devices)],
    }
    return {"apiVersion": GROUP, "kind": "ResourceSlice", "metadata": {"name": f"{node}-gpus"}, "spec": spec}


def requesting(name: str, scheduler: str, amount: int = 1, resource: str = RESOURCE) -> dict[str, Any]:
    obj = pod(name, schedulerName=scheduler)
    obj["spec"]["containers"][0]["resources"] = {"limits": {resource: str(amount)}, "requests": {"cpu": "10m"}}
    return obj


@pytest.fixture
def devices(cluster: LocalCluster) -> Iterator[LocalCluster]:
    yield cluster
    for kind in KINDS:
        with suppress(AssertionError):
            cluster.kubectl("delete", kind, "--all", "--all-namespaces", "--wait=false")


def allocated(cluster: LocalCluster) -> dict[str, list[str]]:
    """The devices of each pod's claim for requests."""
    return {
        claim["status"]["reservedFor"][0]["name"]: [
            f"{each['pool']}/{each['device']}" for each in claim["status"]["allocation"]["devices"]["results"]
        ]
        for claim in cluster.objects("resourceclaims")
        if claim.get("status", {}).get("allocation")
    }


def test_devices_are_claimed_as_kube_scheduler_claims_them(devices: LocalCluster, tmp_path: Path) -> None:
    first = devices.node_names()[0]
    selector = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
    create(
        devices,
        device_class(DRIVER, selector, RESOURCE),
        device_class("odd.example.com", "device.driver.matches('gpu.*')", "example.com/odd"),
        resource_slice(first, 3),
        requesting("theirs", "default-scheduler"),
    )
    until(lambda: "theirs" in bound(devices), 60)
    with scheduling(devices, tmp_path, "--policy", "fgd"):
        create(
            devices,
            requesting("one", "steersman"),
            requesting("two", "steersman", resource=IMPLICIT),
            requesting("odd", "steersman", resource="example.com/odd"),
        )
        until(lambda: {"one", "two"} <= bound(devices).keys(), 60)
        create(devices, requesting("more", "steersman"))
        until(lambda: {"more", "odd"} <= events(devices, "FailedScheduling").keys(), 60)
        told = events(devices, "FailedScheduling")
        assert f"Insufficient {RESOURCE}" in told["more"]
        assert "example.com/odd of DeviceClass odd.example.com" in told["odd"]
        assert {bound(devices)[name] for name in ("one", "two", "theirs")} == {first}
        found = allocated(devices)
        assert found.keys() == {"one", "two", "theirs"}
        assert sorted(device for of_pod in found.values() for device in of_pod) == [
            f"{first}/gpu-{i}" for i in range(3)
        ]
        for name in found:
            (mapping,) = pods(devices)[name]["status"]["extendedResourceClaimStatus"]["requestMappings"]
            assert mapping["containerName"] == "main"
            assert mapping["requestName"] == "container-0-request-1"
        devices.kubectl("delete", "pod", "theirs", "--grace-period=0", "--force")
        until(lambda: "more" in bound(devices), 60)
