"""Files as tools of the field write them: encodings, streams of documents, arrays, exports, dumps with bad objects."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster_dump import Object, controller, item, listed, node, pod

from steersman.core.errors import InputError, UsageError
from steersman.workloads.loading import load_nodes, load_pods, load_workload
from steersman.workloads.workload import RunningPods, Workload


def load(path: Path, *, strict: bool = False) -> Workload:
    return load_workload(path, None, strict=strict)


def names(workload: Workload) -> tuple[list[str], list[str]]:
    return [each.name for each in workload.nodes], [each.name for each in workload.pods]


OWNED = pod("a", metadata={"annotations": {"steersman.dev/owner": "User/né"}})
TEXT = json.dumps(listed(node("n"), OWNED), indent=1, ensure_ascii=False)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("file", ["w.json", "w.yaml", "w.json.gz"])
def test_every_unicode_encoding_is_read(tmp_path: Path, encoding: str, file: str) -> None:
    data = TEXT.encode(encoding)
    (tmp_path / file).write_bytes(gzip.compress(data) if file.endswith(".gz") else data)
    assert [each.owner for each in load(tmp_path / file).pods] == ["User/né"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_spreadsheet_csv_is_read(tmp_path: Path, encoding: str, delimiter: str) -> None:
    lines = {
        "nodes": ["sn,cpu_milli,memory_mib,gpu,model", "n-0,64000,262144,2,T4"],
        "pods": ["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec", "p,4000,16384,1,500,T4|P100"],
        "rows": ["name,pod_count,cpu_request,cpu_limit,mem_request,mem_limit,action", "web,2,500m,1,1Gi,1Gi,add"],
    }
    for name, rows in lines.items():
        text = "".join(f"{row}\r\n" for row in rows).replace(",", delimiter)
        (tmp_path / f"{name}.csv").write_bytes(text.encode(encoding))
    assert [each.gpu_model for each in load_nodes(tmp_path / "nodes.csv")] == ["T4"]
    assert [each.constraints.gpu_models for each in load_pods(tmp_path / "pods.csv")] == [("T4", "P100")]
    assert [each.name for each in load_pods(tmp_path / "rows.csv")] == ["web-0001", "web-0002"]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("separator", ["\n", "", " \n\n"])
@pytest.mark.parametrize("file", ["w.json", "w.yaml"])
def test_concatenated_json_documents_are_read(tmp_path: Path, indent: int | None, separator: str, file: str) -> None:
    documents = [node("n"), pod("a"), listed(pod("b"), pod("c"))]
    (tmp_path / file).write_text(separator.join(json.dumps(each, indent=indent) for each in documents))
    assert names(load(tmp_path / file)) == (["n"], ["a", "b", "c"])


def test_a_bad_document_among_several_is_named_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    file.write_text("\n".join(json.dumps(each) for each in (node("n"), pod("a"), pod("b") | {"spec": {}})))
    (warning,) = load(file).warnings
    assert f"{file}, document 3, line 3, Pod default/b, spec.containers: is missing or empty" in warning
    file.write_text(json.dumps(node("n")) + "\n" + json.dumps(pod("a"))[:-1])
    with pytest.raises(InputError, match=r"w\.json, line 2: is not JSON"):
        load(file)


def test_kubectl_cluster_info_dump_is_read(tmp_path: Path) -> None:
    """Lists, empty ones as null, and logs of containers between them."""
    empty: Object = {"kind": "ReplicaSetList", "apiVersion": "apps/v1", "metadata": {}, "items": None}
    logs = '==== START logs for container c of pod default/a ====\n{"level": "info"}\nkind: x\n'
    logs += "==== END logs for container c of pod default/a ====\n"
    plain = {key: value for key, value in pod("a").items() if key not in ("apiVersion", "kind")}
    pods = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [plain]}
    nodes = {"kind": "NodeList", "apiVersion": "v1", "items": [node("n")]}
    text = "\n".join(json.dumps(each, indent=4) for each in (nodes, empty, pods)) + "\n" + logs
    (tmp_path / "dump.json").write_text(text)
    workload = load(tmp_path / "dump.json")
    assert names(workload) == (["n"], ["a"])
    assert workload.warnings == ()


def bare(content: Object) -> Object:
    """An object as a client of Go marshals it, without its type."""
    return {key: value for key, value in content.items() if key not in ("apiVersion", "kind")}


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("wrapped", [True, False])
def test_kube_scheduler_simulator_and_kai_exports_are_read(tmp_path: Path, typed: bool, wrapped: bool) -> None:
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "u"}, "value": 7}
    lists: dict[str, Any] = {
        "pods": [pod("a", priorityClassName="u")],
        "nodes": [node("n")],
        "priorityClasses": [urgent],
        "pvs": [],
        "storageClasses": None,
        "namespaces": [item("Namespace", "default") | {"apiVersion": "v1"}],
    }
    if not typed:
        lists = {key: value and [bare(each) for each in value] for key, value in lists.items()}
    export = {"config": {}, "rawObjects": lists} if wrapped else {"schedulerConfig": {"profiles": []}, **lists}
    (tmp_path / "export.json").write_text(json.dumps(export))
    workload = load(tmp_path / "export.json")
    assert names(workload) == (["n"], ["a"])
    assert workload.pods[0].priority == 7


def test_array_of_objects_is_read(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(json.dumps([node("n"), pod("a"), 5]))
    workload = load(tmp_path / "w.json")
    assert names(workload) == (["n"], ["a"])
    assert workload.warnings == (
        f"left out: {tmp_path}/w.json, [2]: is not a Kubernetes object but int '5'; "
        "an object has apiVersion, kind and metadata",
    )


def test_names_are_generated_as_the_api_server_does(tmp_path: Path) -> None:
    first, second = pod("x"), pod("y")
    job = controller("Job", "z", parallelism=2, completions=2)
    for each, prefix in ((first, "run-"), (second, "run-"), (job, "pi-")):
        each["metadata"] = {"generateName": prefix}
    (tmp_path / "w.json").write_text(json.dumps(listed(node("n"), first, second, job)))
    workload = load(tmp_path / "w.json")
    assert names(workload)[1][:2] == ["run-0001", "run-0002"]
    assert {each.owner for each in workload.pods[2:]} == {"Job/pi-0001"}


BAD: dict[str, Object] = {
    "Pod default/bad, spec.containers[0].resources.requests.cpu: 'many'": pod("bad"),
    "Node bad, status.allocatable.cpu: 'many'": node("bad"),
    "Deployment default/bad, spec.replicas: -1": controller("Deployment", "bad", replicas=-1),
    "Job default/bad, spec.template.spec.containers: is missing": controller("Job", "bad", template={"spec": {}}),
    "StatefulSet default/bad, spec.selector.matchLabels: must be a mapping": controller("StatefulSet", "bad"),
    "Service default/bad, spec.selector: must be a mapping": item("Service", "bad", spec={"selector": 5}),
    "PriorityClass default/bad, value: 'high'": item("PriorityClass", "bad", value="high"),
    "Pod default/there, metadata.name: 'default/there' is there already": pod("there"),
    "items[0], kind: is missing": {"apiVersion": "v1"},
    "Pod default/bad, metadata.creationTimestamp: 'now'": pod("bad", at=None, metadata={"creationTimestamp": "now"}),
    "Pod default/bad, metadata.ownerReferences: must be a list": pod("bad", metadata={"ownerReferences": "me"}),
}
BAD["Pod default/bad, spec.containers[0].resources.requests.cpu: 'many'"]["spec"]["containers"][0]["resources"] = {
    "requests": {"cpu": "many"}
}
BAD["Node bad, status.allocatable.cpu: 'many'"]["status"]["allocatable"] = {"cpu": "many", "memory": "1Gi"}
BAD["StatefulSet default/bad, spec.selector.matchLabels: must be a mapping"]["spec"]["selector"] = {"matchLabels": 5}
BAD["PriorityClass default/bad, value: 'high'"]["apiVersion"] = "scheduling.k8s.io/v1"
BAD["Service default/bad, spec.selector: must be a mapping"]["apiVersion"] = "v1"


@pytest.mark.parametrize("message", BAD)
def test_one_bad_object_is_named_and_left_out(tmp_path: Path, message: str) -> None:
    file = tmp_path / "dump.json"
    web = controller("Deployment", "web", replicas=2)
    file.write_text(json.dumps(listed(node("n"), pod("there"), web, BAD[message])))
    workload = load(file)
    assert names(workload) == (["n"], ["there", "web-0001", "web-0002"])
    (warning,) = workload.warnings
    assert warning.startswith(f"left out: {file}, items[3]" if "items[0]" not in message else "left out: ")
    assert message.removeprefix("items[0], ") in warning
    with pytest.raises(UsageError) as refused:
        load(file, strict=True)
    assert message.removeprefix("items[0], ") in str(refused.value)
    assert "\n" not in str(refused.value)


def test_invalid_running_pod_counts_on_its_node(tmp_path: Path) -> None:
    bad = pod("bad", on="n", gpus=2, metadata={"annotations": {"alibabacloud.com/gpu-index": "none"}})
    (tmp_path / "w.json").write_text(json.dumps(listed(node("n"), pod("a"), bad)))
    workload = load_workload(tmp_path / "w.json", None, running=RunningPods.AS_WRITTEN)
    counted = [(each.name, each.requests.gpu_count, each.constraints.node_name) for each in workload.pods]
    assert counted == [("a", 0, ""), ("bad", 2, "n")]
    (warning,) = workload.warnings
    assert warning.startswith(f"counts in part: {tmp_path}/w.json, items[2], Pod default/bad, metadata.annotations")
    with pytest.raises(UsageError):
        load(tmp_path / "w.json", strict=True)


def test_many_bad_objects_are_counted(tmp_path: Path) -> None:
    bad = [pod(f"bad-{i}") | {"spec": {"containers": []}} for i in range(30)]
    (tmp_path / "w.json").write_text(json.dumps(listed(node("n"), pod("a"), *bad)))
    warnings = load(tmp_path / "w.json").warnings
    assert len(warnings) == 21
    assert warnings[-1] == "10 more objects are invalid"


def test_single_invalid_object_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(json.dumps(listed(node("n"), pod("a") | {"spec": {"containers": []}})))
    with pytest.raises(InputError, match=r"Pod default/a, spec\.containers: is missing or empty"):
        load(tmp_path / "w.json")


def test_non_kubernetes_files_in_a_folder_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(json.dumps(listed(node("n"), pod("a"))))
    (tmp_path / "values.yaml").write_text("image: {tag: v1}\nreplicas: 3\n")
    workload = load(tmp_path)
    assert names(workload) == (["n"], ["a"])
    missing = "values.yaml, document 1, line 1, apiVersion: is missing; is this a Kubernetes object?"
    assert missing in workload.warnings[0]
