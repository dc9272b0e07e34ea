"""Claims and volumes in files: a pod goes where its volumes are, by the rules of a live cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster_dump import Object
from typer.testing import CliRunner

import steersman
from steersman.cli.main import app
from steersman.evaluation.replay_file import REPLAY, decode_replay
from steersman.workloads.loading import load_workload
from steersman.workloads.workload import RunningPods, Workload

ZONE = "topology.kubernetes.io/zone"
REFERENCES = "spec.volumes[].persistentVolumeClaim"


def obj(kind: str, name: str, api: str = "v1", **further: Any) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **further.pop("metadata", {})}, **further}


def node(name: str, zone: str) -> Object:
    allocatable = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return obj("Node", name, metadata={"labels": {ZONE: zone}}, status={"allocatable": allocatable})


def volume(name: str, zone: str = "", **further: Any) -> Object:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if zone else {}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **affinity}
    return obj("PersistentVolume", name, spec=spec, **further)


def claim(name: str, volume_name: str = "", storage_class: str = "", phase: str = "Bound") -> Object:
    spec: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    spec |= {"volumeName": volume_name} if volume_name else {}
    spec |= {"storageClassName": storage_class} if storage_class else {}
    return obj("PersistentVolumeClaim", name, spec=spec, status={"phase": phase})


def pod(name: str, *claims: str, where: str = "") -> Object:
    volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": each}} for i, each in enumerate(claims)]
    spec: Object = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], "volumes": volumes}
    return obj("Pod", name, spec=spec | ({"nodeName": where} if where else {}))


NODES = (node("a", "za"), node("b", "zb"), node("c", "zc"))


def load(folder: Path, *objects: Object, running: RunningPods = RunningPods.FREE) -> Workload:
    path = folder / "case.json"
    path.write_text(json.dumps([*NODES, *objects]))
    return load_workload(path, path, running=running)


def placed(workload: Workload) -> tuple[dict[str, str], dict[str, str]]:
    """Node, and reason of a refusal, by pod."""
    result = steersman.simulate(workload, "kube-default", protocol="arrivals", record=True)
    assert result.placements is not None
    nodes = dict(zip(result.placements.pod, result.placements.node, strict=True))
    return nodes, dict(zip(result.placements.pod, result.placements.reason, strict=True))


@pytest.mark.parametrize(
    "stated",
    [
        volume("pv", "zb"),
        volume("pv", metadata={"labels": {ZONE: "zb"}}),
        volume("pv", metadata={"labels": {"failure-domain.beta.kubernetes.io/zone": "zb"}}),
    ],
)
def test_a_pod_goes_where_its_volume_is(tmp_path: Path, stated: Object) -> None:
    workload = load(tmp_path, stated, claim("data", "pv"), pod("p", "data"), pod("q"))
    nodes, _ = placed(workload)
    assert nodes["p"] == "b"
    assert not workload.warnings


def test_volumes_in_two_zones_fit_nowhere(tmp_path: Path) -> None:
    objects = (volume("x", "za"), volume("y", "zb"), claim("cx", "x"), claim("cy", "y"), pod("p", "cx", "cy"))
    _, reasons = placed(load(tmp_path, *objects))
    assert reasons["p"] == "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity."


LOST = 'persistentvolumeclaim "data" bound to non-existent persistentvolume "gone"'


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ((claim("other", "pv"), volume("pv")), 'persistentvolumeclaim "data" not found'),
        ((claim("data", "gone"), volume("pv")), 'persistentvolume "gone" not found'),
        ((claim("data", "gone", phase="Lost"), volume("pv")), LOST),
    ],
)
def test_claims_that_cannot_be_used(tmp_path: Path, objects: tuple[Object, ...], reason: str) -> None:
    _, reasons = placed(load(tmp_path, *objects, pod("p", "data"), pod("fits")))
    assert reasons == {"p": f"0/3 nodes are available: {reason}.", "fits": ""}


def test_a_run_whose_claim_is_missing_is_written(tmp_path: Path) -> None:
    """The reason comes before nodes are looked at, and the files of the run have it."""
    file, output = tmp_path / "case.json", tmp_path / "run"
    file.write_text(json.dumps([*NODES, claim("other", "pv"), volume("pv"), pod("p", "data"), pod("fits")]))
    options = ["--nodes", str(file), "--pods", str(file), "--protocol", "arrivals", "--policy", "kube-default"]
    result = CliRunner().invoke(app, ["simulate", *options, "--output", str(output)])
    assert result.exception is None
    reason = '0/3 nodes are available: persistentvolumeclaim ""data"" not found.'
    assert reason in (output / "placements.csv").read_text("utf-8")
    with (output / REPLAY).open("rb") as replay:
        assert decode_replay(output / REPLAY, replay).pods


def test_volumes_wait_for_their_consumer_in_allowed_zones(tmp_path: Path) -> None:
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["zc"]}]}]
    late = obj(
        "StorageClass",
        "late",
        "storage.k8s.io/v1",
        provisioner="x.example",
        volumeBindingMode="WaitForFirstConsumer",
        allowedTopologies=topologies,
    )
    at_once = obj("StorageClass", "now", "storage.k8s.io/v1", provisioner="x.example", volumeBindingMode="Immediate")
    claims = (claim("data", "", "late", "Pending"), claim("free", "", "now", "Pending"))
    workload = load(tmp_path, late, at_once, *claims, pod("p", "data"), pod("q", "free"))
    nodes, _ = placed(workload)
    assert nodes["p"] == "c"
    assert nodes["q"]
    assert any(REFERENCES in warning and "Pod q" in warning for warning in workload.warnings)


def test_claims_are_of_a_namespace(tmp_path: Path) -> None:
    other = pod("p", "data")
    other["metadata"]["namespace"] = "other"
    _, reasons = placed(load(tmp_path, volume("pv", "zb"), claim("data", "pv"), other))
    assert 'persistentvolumeclaim "data" not found' in next(iter(reasons.values()))


@pytest.mark.parametrize("further", [(), (claim("data", "pv"),)])
def test_without_claims_or_volumes_there_is_a_warning(tmp_path: Path, further: tuple[Object, ...]) -> None:
    workload = load(tmp_path, *further, pod("p", "data"))
    assert workload.pods[0].constraints.volume_refusals == ()
    assert any(f"{REFERENCES} is not modelled" in warning for warning in workload.warnings)


def test_running_pods_have_their_claims_and_stay_with_their_volumes(tmp_path: Path) -> None:
    objects = (volume("pv", "zb"), claim("data", "pv"), pod("lost", "gone", where="a"), pod("tied", "data", where="b"))
    workload = load(tmp_path, *objects)
    nodes, _ = placed(workload)
    assert nodes["lost"]
    # No other node allows it.
    assert [workload.pods[i].name for i in workload.standing()] == ["tied"]
    now = load(tmp_path, *objects, pod("next", "data"), running=RunningPods.FROM_NOW)
    assert placed(now)[0] == {"lost": "a", "tied": "b", "next": "b"}


def test_claims_that_a_stateful_set_makes_are_not_missing(tmp_path: Path) -> None:
    spec = pod("x")["spec"]
    made = {"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {}}}}
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    spec_of_set = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    owner = obj("StatefulSet", "s", "apps/v1", spec=spec_of_set | {"volumeClaimTemplates": [made]})
    nodes, _ = placed(load(tmp_path, volume("pv", "zb"), claim("d-s-0", "pv"), owner))
    assert sorted(map(bool, nodes.values())) == [True, True]


def test_volumes_of_the_file_of_nodes_count(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps([*NODES, volume("pv", "zc"), claim("data", "pv")]))
    (tmp_path / "pods.json").write_text(json.dumps(pod("p", "data")))
    workload = load_workload(tmp_path / "nodes.json", tmp_path / "pods.json")
    assert placed(workload)[0] == {"p": "c"}
    assert not workload.warnings
