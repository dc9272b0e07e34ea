"""Files and folders of Kubernetes objects: what is read from them, and what is refused."""

from __future__ import annotations

import json
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.invalid_values import STRANGE, places, replaced

from steersman.cluster.model import UNLIMITED, Pod, Requirement
from steersman.core.errors import InputError, UsageError
from steersman.workloads.formats.kubernetes.objects import Objects, write_pods, write_workload
from steersman.workloads.formats.yaml_documents import Document, read_documents
from steersman.workloads.loading import load_workload

TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]},
}
NODE = """
apiVersion: v1
kind: Node
metadata: {name: %s, labels: {disk: %s}}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110}}
"""


def write(path: Path, *documents: str | dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = (textwrap.dedent(d) if isinstance(d, str) else yaml.safe_dump(d) for d in documents)
    path.write_text("\n---\n".join(texts))
    return path


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": TEMPLATE["spec"]}


def controller(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    version = {"Job": "batch/v1", "ReplicationController": "v1"}.get(kind, "apps/v1")
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": {"template": TEMPLATE, **spec}}


def refusal(path: Path) -> str:
    with pytest.raises((InputError, UsageError)) as caught:
        load_workload(path, None, strict=True)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_folders_are_read_recursively_in_the_order_of_their_names(tmp_path: Path) -> None:
    write(tmp_path / "b.yaml", pod("third"))
    write(tmp_path / "a" / "z.yml", pod("first"), "# nothing but a comment", pod("second"))
    write(tmp_path / "nodes.yaml", NODE % ("n1", "ssd"))
    items = [{"metadata": {"name": "fourth"}, "spec": TEMPLATE["spec"]}]
    (tmp_path / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": items}))
    write(tmp_path / ".hidden" / "x.yaml", "not: kubernetes")
    (tmp_path / "README.md").write_text("no manifest")
    workload = load_workload(tmp_path, None)
    assert [p.name for p in workload.pods] == ["first", "second", "third", "fourth"]
    assert [n.name for n in workload.nodes] == ["n1"]
    assert workload.name == tmp_path.name


def test_controllers_are_expanded_in_place(tmp_path: Path) -> None:
    file = write(
        tmp_path / "w.yaml",
        pod("before"),
        controller("Deployment", "web", replicas=2),
        controller("ReplicaSet", "one"),
        controller("StatefulSet", "none", replicas=0),
        controller("ReplicationController", "old", replicas=1),
        controller("Job", "batch", completions=3, parallelism=2),
        controller("Job", "queue", parallelism=2),
        pod("after"),
    )
    pods = Objects(read_documents(file)).expanded(()).pods
    assert [p.name for p in pods] == [
        *("before", "web-0001", "web-0002", "one-0001", "old-0001"),
        *("batch-0001", "batch-0002", "batch-0003", "queue-0001", "queue-0002", "after"),
    ]
    assert pods[1].owner == "Deployment/web"
    assert pods[1].labels["app"] == "web"
    assert pods[1].requests.cpu_milli == 500
    assert pods[1].pod_class is pods[2].pod_class


def test_daemon_sets_run_once_on_every_node_that_they_may_run_on(tmp_path: Path) -> None:
    nodes = [NODE % (name, disk) for name, disk in (("n1", "ssd"), ("n2", "hdd"), ("n3", "ssd"), ("n4", "ssd"))]
    nodes[2] += "spec: {taints: [{key: gpu, effect: NoSchedule}]}"
    nodes[3] += "spec: {unschedulable: true}"
    daemon = controller("DaemonSet", "agent")
    daemon["spec"]["template"] = {"spec": {**TEMPLATE["spec"], "nodeSelector": {"disk": "ssd"}}}
    workload = load_workload(write(tmp_path / "w.yaml", *nodes, daemon), None)
    assert [p.name for p in workload.pods] == ["agent-0001", "agent-0002"]
    pinned = [p.constraints.node_affinity[0].fields for p in workload.pods if p.constraints.node_affinity]
    assert pinned == [(Requirement("metadata.name", "In", (name,)),) for name in ("n1", "n4")]


def test_selectors_of_services_and_controllers(tmp_path: Path) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "shop"}}
    file = write(
        tmp_path / "w.yaml",
        service | {"spec": {"selector": {"app": "web", "a": "b"}}},
        service | {"spec": {}},
        controller("Deployment", "d", selector={"matchLabels": {"app": "web"}}),
        controller("ReplicationController", "r", selector={"app": "old"}),
        controller("Job", "j", selector={"matchLabels": {"app": "batch"}}),
        controller("StatefulSet", "s", selector={"matchLabels": {"app": "web"}}),
    )
    assert Objects(read_documents(file)).services().selectors == (
        ("shop", (("a", "b"), ("app", "web"))),
        ("default", (("app", "web"),)),
        ("default", (("app", "old"),)),
    )


def test_skipped_objects_are_reported_once(tmp_path: Path) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    route = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {}}
    done = pod("done") | {"status": {"phase": "Succeeded"}}
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    bound = pod("bound") | {"spec": {**TEMPLATE["spec"], "volumes": [claim]}}
    done["spec"] = bound["spec"]
    typo = controller("Deployment", "d", replicas=0)
    typo["spec"]["template"] = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "nodeSelecter": {"a": "b"}}}
    objects = (NODE % ("n", "x"), config, route, config, done, bound, typo)
    workload = load_workload(write(tmp_path / "w.yaml", *objects), None)
    assert [p.name for p in workload.pods] == ["bound"]
    assert [w.partition(": ")[2] for w in workload.warnings] == [
        "ignored objects that are neither nodes nor pods nor make pods: ConfigMap 2",
        "these resources describe no pods: Service.serving.knative.dev default/s",
        "spec.volumes[].persistentVolumeClaim is not modelled and has no effect (Pod bound)",
        "spec.template.spec.nodeSelecter is not a field of Kubernetes 1.37 and has no effect (Deployment d)",
    ]
    assert workload.understood == "1 pods of 0 owners (1 without one), 0 running, 1 waiting, 1 finished left out"


def test_hierarchy_file_replaces_its_original(tmp_path: Path) -> None:
    write(tmp_path / "pods.yaml", pod("p"))
    write(tmp_path / "nodes.yaml", NODE % ("n", "old"))
    write(tmp_path / "nodes-hier.yaml", NODE % ("n", "new"))
    workload = load_workload(tmp_path, None)
    assert [n.labels["disk"] for n in workload.nodes] == ["new"]
    assert "nodes.yaml is left out: nodes-hier beside it stands for it" in workload.warnings[0]


def after_a_node(*documents: str) -> str:
    return "\n---\n".join([(NODE % ("n", "x")).rstrip("\n"), *documents])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "w.yaml: is empty"),
        ("# only a comment\n", "w.yaml: holds no Kubernetes object"),
        ("a: [1, 2\nb: 3", "w.yaml, document 1, line 2: is not YAML: "),
        ("- 1\n- 2", "w.yaml, document 1, line 1, [0]: is not a Kubernetes object but int '1'"),
        ("- [1]\n- 2", "w.yaml, document 1, line 1, [0]: is not a Kubernetes object but a list"),
        ("just text", "is not a Kubernetes object but str 'just text'"),
        ("kind: Pod\nmetadata: {name: a}", "w.yaml, document 1, line 1, apiVersion: is missing"),
        ("---\napiVersion: v1\n---\nkind: Pod", "w.yaml, document 1, line 2, kind: is missing"),
        ("name: nginx\nimage: nginx", "apiVersion: is missing"),
        ("a: 1\na: 2", "w.yaml, document 1, line 1: is not YAML: key 'a' appears twice"),
        ("apiVersion: v1\nkind: List\nitems: [5]", "w.yaml, document 1, line 1, items[0]: is not a Kubernetes object"),
        (NODE % ("n", "x"), "w.yaml: has no pods"),
        (after_a_node(NODE % ("n", "y")), "document 2, line 8, Node n, metadata.name: 'n' is there already"),
        (NODE % ("n", "on"), "document 1, line 2, Node n, metadata.labels.disk: must be text, not true or false"),
        (after_a_node(json.dumps(pod("p")), json.dumps(pod("p"))), "'default/p' is there already"),
        (after_a_node(json.dumps(controller("Deployment", "d", replicas=-1))), "Deployment d, spec.replicas: -1"),
        (
            after_a_node(json.dumps(controller("Deployment", "d", template={"spec": {}}))),
            "Deployment d, spec.template.spec.containers: is missing or empty",
        ),
        ("a: \x00", "is not YAML: "),
        ("!!python/object:os.system x", "is not YAML: "),
    ],
)
def test_non_kubernetes_input_is_reported(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(content)
    assert message in refusal(file)


def test_generated_pod_names_do_not_collide(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", controller("Deployment", "web", replicas=2))
    write(tmp_path / "b.yaml", NODE % ("n", "x"), pod("web-0002"))
    assert [p.name for p in load_workload(tmp_path, None).pods] == ["web-0001", "web-0003", "web-0002"]


def test_a_name_that_occurs_twice_is_named_with_both_places(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", pod("web"))
    write(tmp_path / "b.yaml", NODE % ("n", "x"), pod("web"))
    message = refusal(tmp_path)
    assert "b.yaml, document 2, line 8, Pod web, metadata.name: 'default/web' is there already" in message
    assert "a.yaml, document 1, line 1" in message


def test_missing_and_empty_places(tmp_path: Path) -> None:
    assert "nowhere.yaml: no such file or folder" in refusal(tmp_path / "nowhere.yaml")
    assert "is a folder without" in refusal(tmp_path)
    (tmp_path / "x.json").write_text("{\n")
    assert "x.json, line 2: is not JSON" in refusal(tmp_path)
    (tmp_path / "x.json").write_text('{"a": 1, "a": 2}')
    assert "x.json, a: appears twice in one mapping" in refusal(tmp_path)
    (tmp_path / "x.json").write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-16 text" in refusal(tmp_path)
    (tmp_path / "x.json").write_bytes(b"{\xff")
    assert "is not UTF-8 text" in refusal(tmp_path)


def test_yaml_is_read_as_kubernetes_reads_it(tmp_path: Path) -> None:
    written = "{time: 2024-01-01T00:00:00Z, port: 12:30, n: 1.5, i: 12, hex: 0x10, e: 1e3, s: 'yes'}"
    (document,) = read_documents(write(tmp_path / "x.yaml", written))
    texts = {"time": "2024-01-01T00:00:00Z", "port": "12:30", "e": "1e3", "s": "yes"}
    assert document.content == texts | {"n": 1.5, "i": 12, "hex": 16}


def test_ambiguous_yaml_text_round_trips(tmp_path: Path) -> None:
    labels = {key: key for key in ("1e3", "yes", "12", "1.5", "2024-01-01", "null", "0x1", "Off", "1_0")}
    found = Pod("p", pods_one(tmp_path).pod_class, labels=labels)
    write_pods([found], tmp_path / "out.yaml")
    assert Objects(read_documents(tmp_path / "out.yaml")).expanded(()).pods == (found,)
    assert "'1e3': '1e3'" in (tmp_path / "out.yaml").read_text()


def pods_one(folder: Path) -> Pod:
    return Objects(read_documents(write(folder / "one.yaml", pod("p")))).expanded(()).pods[0]


def test_written_files_are_in_reference_conventions(tmp_path: Path) -> None:
    workload = load_workload(Path(__file__).parents[3] / "data" / "simon-example" / "cluster", None)
    write_workload(workload, tmp_path)
    node = yaml.safe_load((tmp_path / "nodes.yaml").read_text().split("---")[0])
    assert node["status"]["allocatable"] == {
        "alibabacloud.com/gpu-count": "2",
        "alibabacloud.com/gpu-milli": "2000",
        "cpu": "32000m",
        "memory": "131072Mi",
        "pods": "1001",
        "ephemeral-storage": "0",
    }
    pods = list(yaml.safe_load_all((tmp_path / "pods.yaml").read_text()))
    assert pods[2]["metadata"]["annotations"] == {
        "alibabacloud.com/gpu-count": "1",
        "alibabacloud.com/gpu-milli": "220",
        "alibabacloud.com/gpu-card-model": "T4|P100",
    }
    assert pods[2]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "4000m", "memory": "15258Mi"}
    again = load_workload(tmp_path, None)
    assert (again.nodes, again.pods) == (workload.nodes, workload.pods)


def test_unoffered_resources_are_reported_and_unlimited_ones_kept(tmp_path: Path) -> None:
    file = write(tmp_path / "w.yaml", (NODE % ("n", "x")).replace(", pods: 110", ""), NODE % ("m", "x"), pod("p"))
    workload = load_workload(file, None)
    assert [node.pods for node in workload.nodes] == [0, 110]
    assert workload.understood.endswith(", 1 node offers no pods (status.allocatable)")
    unlimited = replace(workload, nodes=tuple(replace(node, pods=UNLIMITED) for node in workload.nodes))
    folder = tmp_path / "out"
    folder.mkdir()
    write_workload(unlimited, folder)
    assert load_workload(folder, None).nodes == unlimited.nodes


def test_thousand_pods_round_trip(tmp_path: Path) -> None:
    example = load_workload(Path(__file__).parents[3] / "data" / "simon-example" / "cluster", None)
    many = [Pod(f"p{i}", example.pods[i % 13].pod_class) for i in range(1_000)]
    write_pods(many, tmp_path / "pods.yaml")
    assert list(Objects(read_documents(tmp_path / "pods.yaml")).expanded(()).pods) == many


NOON = "2024-05-01T12:00:00Z"
OWNED = pod("p", ownerReferences=[{"kind": "ReplicaSet", "name": "r", "controller": True}], labels={"a": "b"})
RICH: list[dict[str, Any]] = [
    yaml.safe_load(NODE % ("n", "x")),
    OWNED | {"status": {"phase": "Running"}},
    controller("Deployment", "d", replicas=2, selector={"matchLabels": {"a": "b"}}),
    controller("Job", "j", completions=2, parallelism=1)
    | {"status": {"startTime": "x", "succeeded": 1, "conditions": [{"type": "Complete", "status": "False"}]}},
    controller("ReplicationController", "r", selector={"a": "b"}),
    controller("DaemonSet", "s"),
    {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "creationTimestamp": NOON}},
    pod("late", creationTimestamp=NOON, deletionTimestamp="2024-05-01T13:00:00Z"),
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}}},
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "c"}, "value": 5},
    {"apiVersion": "v1", "kind": "List", "items": [pod("q")]},
]


@pytest.mark.parametrize("new", STRANGE, ids=repr)
def test_strange_values_anywhere_are_rejected_or_taken_but_never_crash(new: object) -> None:
    for place in places(RICH)[1:]:
        changed = enumerate(replaced(RICH, place, new))
        documents = [Document(content, "f.yaml", f"document {i}") for i, content in changed]
        refused = None
        try:
            objects = Objects(documents)
            nodes = objects.nodes()
            objects.expanded(nodes)
            objects.services()
            objects.warnings()
        except InputError as error:
            refused = error
        assert refused is None or str(refused).startswith("f.yaml, document "), place


CLASS: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.example.com"},
    "spec": {
        "selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}],
        "extendedResourceName": "nvidia.com/gpu",
    },
}
SLICE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "n-gpus"},
    "spec": {
        "driver": "gpu.example.com",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
    },
}


def requesting(name: str, resource: str) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"limits": {resource: 1}}}
    return pod(name) | {"spec": {"containers": [container]}}


@pytest.mark.parametrize("beside", ["nodes", "pods"])
def test_extended_resources_of_dynamic_resource_allocation(tmp_path: Path, beside: str) -> None:
    names = ("nvidia.com/gpu", "deviceclass.resource.kubernetes.io/gpu.example.com", "nvidia.com/gpu")
    pods = [requesting(f"p{i}", name) for i, name in enumerate(names)]
    devices = (CLASS, SLICE)
    nodes = write(tmp_path / "n.yaml", NODE % ("n", "x"), *(devices if beside == "nodes" else ()))
    file = write(tmp_path / "p.yaml", *pods, *(devices if beside == "pods" else ()))
    workload = load_workload(nodes, file)
    assert [(node.gpu_count, node.gpu_resources) for node in workload.nodes] == [(2, ("nvidia.com/gpu",))]
    assert {(each.requests.gpu_count, each.requests.gpu_resource) for each in workload.pods} == {(1, "nvidia.com/gpu")}
    assert workload.warnings == ()


def test_devices_that_are_not_modelled_are_named_with_their_pods(tmp_path: Path) -> None:
    selector = {"cel": {"expression": "device.driver.matches('gpu')"}}
    device_class = {**CLASS, "spec": {**CLASS["spec"], "selectors": [selector]}}
    objects = (NODE % ("n", "x"), device_class, SLICE, requesting("p", "nvidia.com/gpu"), pod("q"))
    workload = load_workload(write(tmp_path / "w.yaml", *objects), None)
    why = "\"device.driver.matches('gpu')\" has 'matches', which is not supported"
    assert workload.warnings == (
        "w: 1 pod requests nvidia.com/gpu, which no node offers; nodes offer no GPU",
        f"w: no node offers nvidia.com/gpu of DeviceClass gpu.example.com, since {why} (1 pods: p)",
    )


def test_invalid_objects_of_devices_are_left_out(tmp_path: Path) -> None:
    wrong = {**SLICE, "spec": {**SLICE["spec"], "devices": [{"name": 5}]}}
    workload = load_workload(write(tmp_path / "w.yaml", NODE % ("n", "x"), CLASS, wrong, pod("p")), None)
    assert workload.nodes[0].gpu_count == 0
    assert "ResourceSlice n-gpus, spec.devices[0].name: must be text, not the number 5" in workload.warnings[0]
