"""ResourceClaims of pods in files: each takes devices that ResourceSlices offer on their nodes."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster_dump import Object

import steersman
from steersman.workloads.loading import load_workload
from steersman.workloads.workload import RunningPods, Workload

API = "resource.k8s.io/v1"
CLASS = "deviceclass.resource.kubernetes.io/fpga"
ALLOCATABLE = {"cpu": "8", "memory": "32Gi", "pods": "110"}


def obj(kind: str, name: str, api: str = API, **further: Any) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **further}


def node(name: str, devices: int) -> tuple[Object, ...]:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    listed = [{"name": f"d{i}"} for i in range(devices)]
    spec = {"driver": "x.example", "nodeName": name, "pool": pool, "devices": listed}
    return obj("Node", name, "v1", status={"allocatable": ALLOCATABLE}), obj("ResourceSlice", f"{name}-s", spec=spec)


def template(name: str, *requests: Object, **further: Any) -> Object:
    return obj("ResourceClaimTemplate", name, spec={"spec": {"devices": {"requests": [*requests], **further}}})


def exactly(count: int | None = None, **further: Any) -> Object:
    counted = {} if count is None else {"allocationMode": "ExactCount", "count": count}
    return {"name": "r", "exactly": {"deviceClassName": "fpga", **counted, **further}}


def pod(name: str, *claims: dict[str, str], where: str = "") -> Object:
    spec: Object = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    spec["resourceClaims"] = [{"name": f"c{i}", **each} for i, each in enumerate(claims)]
    if where:
        spec["nodeName"] = where
    return obj("Pod", name, "v1", spec=spec)


ONE = {"resourceClaimTemplateName": "one"}
COMMON = (
    *(obj("DeviceClass", "fpga", spec={}), *node("a", 3), *node("b", 1), *node("c", 0)),
    *(template("one", exactly()), template("two", exactly(2))),
)


def load(folder: Path, *objects: Object, running: RunningPods = RunningPods.FREE) -> Workload:
    path = folder / "case.json"
    path.write_text(json.dumps([*COMMON, *objects]))
    return load_workload(path, path, running=running)


def placed(workload: Workload) -> dict[str, str]:
    result = steersman.simulate(workload, "kube-default", protocol="arrivals", record=True)
    assert result.placements is not None
    return dict(zip(result.placements.pod, result.placements.node, strict=True))


def test_each_pod_gets_devices_of_its_own(tmp_path: Path) -> None:
    two = {"resourceClaimTemplateName": "two"}
    workload = load(tmp_path, pod("p", two), *(pod(f"q{i}", ONE) for i in range(3)))
    assert dict(workload.pods[0].requests.extended) == {CLASS: 2}
    found = placed(workload)
    assert found["p"] == "a"
    assert sorted(found[f"q{i}"] for i in range(3)) == ["", "a", "b"]
    assert not any("resourceClaims" in warning for warning in workload.warnings)


def test_claims_of_a_pod_add_up_and_named_ones_count(tmp_path: Path) -> None:
    claim = obj("ResourceClaim", "own", spec={"devices": {"requests": [exactly(2)]}})
    workload = load(tmp_path, claim, pod("p", ONE, {"resourceClaimName": "own"}))
    assert dict(workload.pods[0].requests.extended) == {CLASS: 3}
    assert placed(workload) == {"p": "a"}


def test_devices_of_running_pods_count_once(tmp_path: Path) -> None:
    results = [{"request": "r", "driver": "x.example", "pool": "a", "device": f"d{i}"} for i in range(2)]
    reserved = [{"resource": "pods", "name": "runs", "uid": "u"}]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    claim = obj("ResourceClaim", "own", spec={"devices": {"requests": [exactly(2)]}}, status=status)
    objects = (claim, pod("runs", {"resourceClaimName": "own"}, where="a"), *(pod(f"q{i}", ONE) for i in range(3)))
    now = placed(load(tmp_path, *objects, running=RunningPods.FROM_NOW))
    assert sorted(now[f"q{i}"] for i in range(3)) == ["", "a", "b"]
    assert sum(bool(where) for where in placed(load(tmp_path, *objects)).values()) == 3


def test_controllers_pods_claim_devices(tmp_path: Path) -> None:
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": pod("x", ONE)["spec"]}
    spec = {"replicas": 5, "selector": {"matchLabels": labels}, "template": template}
    found = placed(load(tmp_path, obj("Deployment", "d", "apps/v1", spec=spec)))
    assert sorted(found.values()) == ["", "a", "a", "a", "b"]


@pytest.mark.parametrize(
    "further",
    [
        (template("t", exactly(selectors=[{"cel": {"expression": "true"}}])),),
        (template("t", {"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "fpga"}]}),),
        (template("t", exactly(allocationMode="All")),),
        (template("t", exactly(), constraints=[{"matchAttribute": "x/numa"}]),),
        (),
    ],
)
def test_claims_that_choose_among_devices_have_no_effect(tmp_path: Path, further: tuple[Object, ...]) -> None:
    workload = load(tmp_path, *further, pod("p", {"resourceClaimTemplateName": "t"}))
    assert workload.pods[0].requests.extended == ()
    assert any("spec.resourceClaims is not modelled" in warning for warning in workload.warnings)


def test_a_claim_that_pods_share_has_no_effect(tmp_path: Path) -> None:
    claim = obj("ResourceClaim", "own", spec={"devices": {"requests": [exactly()]}})
    shared = {"resourceClaimName": "own"}
    workload = load(tmp_path, claim, pod("p", shared), pod("q", shared))
    assert [each.requests.extended for each in workload.pods] == [(), ()]
    assert any("spec.resourceClaims is not modelled" in warning for warning in workload.warnings)
