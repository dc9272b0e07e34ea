"""Kubernetes Nodes and Pods to the model and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.cluster_dump import Object
from tests.support.invalid_values import STRANGE, places, replaced
from tests.support.nightly import examples
from tests.support.objects import node_from_object

from steersman.cluster.model import (
    UNLIMITED,
    ExclusiveVolume,
    HostPort,
    Node,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodClass,
    PodSelector,
    PreferredNodeTerm,
    PreferredPodTerm,
    Requests,
    Requirement,
    Taint,
    Toleration,
    TopologySpread,
)
from steersman.cluster.objects.decoding import PLACEHOLDER_IMAGE, is_finished, pod_from_object
from steersman.cluster.objects.fields import field_use
from steersman.cluster.objects.manifests import node_to_object, pod_to_object
from steersman.cluster.objects.replicas import partial_pod
from steersman.core.errors import InputError
from steersman.core.quantities import nano

MI = 1 << 20
HUGE = "hugepages-2Mi"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def container(requests: Object | None = None, limits: Object | None = None, **more: Any) -> Object:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {"name": "c", "image": "registry.example/app:1", "resources": resources, **more}


def pod_object(*containers: Object, annotations: Object | None = None, **spec: Any) -> Object:
    metadata = {"name": "web", "namespace": "shop", "labels": {"app": "web", "v": "2"}}
    spec = {"containers": list(containers) or [container()], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "annotations": annotations or {}}, "spec": spec}


def node_object(**parts: Any) -> Object:
    status = {"allocatable": {"cpu": "32", "memory": "64Gi", "pods": "110", **parts.pop("allocatable", {})}}
    metadata = {"name": "n1", "labels": parts.pop("labels", {})}
    status |= parts.pop("status", {})
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status, **parts}


def refusal(obj: Object) -> InputError:
    decode = node_from_object if obj["kind"] == "Node" else pod_from_object
    with pytest.raises(InputError) as caught:
        decode(obj, file="f.yaml", where="document 2, line 9")
    assert str(caught.value).startswith("f.yaml, document 2, line 9, ")
    assert "\n" not in str(caught.value)
    return caught.value


# Requests


def test_containers_add_up_and_round_once() -> None:
    pod = pod_from_object(pod_object(container({"cpu": "100500u", "memory": "1.5Mi"}), container({"cpu": "100500u"})))
    assert pod.requests.cpu_milli == 201  # not 202: rounded after the sum
    assert pod.requests.memory_bytes == 3 * MI // 2
    assert pod.requests.memory_nonzero_bytes == 3 * MI // 2 + 200 * MI


def test_limits_replace_missing_requests_per_resource() -> None:
    pod = pod_from_object(pod_object(container({"cpu": "1"}, {"cpu": "4", "memory": "2Gi"})))
    assert (pod.requests.cpu_milli, pod.requests.memory_bytes) == (1000, 2048 * MI)


def test_nonzero_view_counts_silent_containers_but_not_stated_zeros() -> None:
    silent = pod_from_object(pod_object(container(), container({"cpu": "500m"})))
    assert (silent.requests.cpu_milli, silent.requests.cpu_nonzero_milli) == (500, 600)
    assert silent.requests.memory_nonzero_bytes == 400 * MI
    stated = pod_from_object(pod_object(container({"cpu": "0", "memory": 0})))
    assert (stated.requests.cpu_nonzero_milli, stated.requests.memory_nonzero_bytes) == (0, 0)


def test_init_containers_run_alone_with_the_sidecars_before_them() -> None:
    inits = [
        container({"cpu": "3"}),
        container({"cpu": "1"}, restartPolicy="Always"),
        container({"cpu": "4"}),
        container({"cpu": "2"}, restartPolicy="Always"),
    ]
    # During the third: 1 + 4 = 5. While running: 500m + 1 + 2 = 3500m.
    assert pod_from_object(pod_object(container({"cpu": "500m"}), initContainers=inits)).requests.cpu_milli == 5000
    # With a larger container the running pod needs more: 4 + 3 = 7.
    assert pod_from_object(pod_object(container({"cpu": "4"}), initContainers=inits)).requests.cpu_milli == 7000


def test_overhead_is_added_and_pod_level_requests_replace_the_sum() -> None:
    pod = pod_from_object(
        pod_object(
            container({"cpu": "1", "memory": "1Gi"}),
            overhead={"cpu": "250m", "memory": "120Mi"},
            resources={"requests": {"cpu": "3"}},
        )
    )
    assert (pod.requests.cpu_milli, pod.requests.memory_bytes) == (3250, 1144 * MI)
    # Memory is stated by the container, so nothing is assumed for it, and the pod states its CPU.
    assert (pod.requests.cpu_nonzero_milli, pod.requests.memory_nonzero_bytes) == (3250, 1144 * MI)


def test_pod_level_limits_imply_requests_if_containers_request_none() -> None:
    limits = {"resources": {"limits": {"cpu": "4", "memory": "1Gi"}}}
    pod = pod_from_object(pod_object(container({"cpu": "1"}), **limits))
    assert (pod.requests.cpu_milli, pod.requests.memory_bytes) == (1000, 1024 * MI)


def test_pod_level_limits_imply_requests_from_stated_container_requests() -> None:
    obj = pod_object(container({"cpu": "100m"}), resources={"limits": {"cpu": "1200m", "memory": "700Mi"}})
    granted = {"name": "c", "resources": {"requests": {"cpu": "200m", "memory": "64Mi"}}}
    pod = pod_from_object({**obj, "status": {"containerStatuses": [granted]}})
    assert (pod.requests.cpu_milli, pod.requests.memory_bytes) == (100, 700 * MI)


@pytest.mark.parametrize(("pod", "is_valid"), [("2Mi", False), ("4Mi", True), ("8Mi", True)])
def test_pod_level_hugepages_have_a_limit_where_all_containers_have_one(pod: str, is_valid: bool) -> None:
    limited = container({"memory": "1Gi"}, {"hugepages-2Mi": "4Mi"})
    level = {"resources": {"requests": {"memory": "1Gi", "hugepages-2Mi": pod}}}
    if is_valid:
        pod_from_object(pod_object(limited, **level))
    else:
        with pytest.raises(InputError, match="must be at least"):
            pod_from_object(pod_object(limited, **level))
    with pytest.raises(InputError, match="is missing: the resource needs a limit"):
        pod_from_object(pod_object(limited, container({"memory": "1Gi"}, name="other"), **level))


@pytest.mark.parametrize(
    ("held", "conditions", "largest"),
    [
        ({}, [], 4000),
        ({"a": {"allocatedResources": {"cpu": "3"}}, "b": {"allocatedResources": {"cpu": "1"}}}, [], 4000),
        ({"a": {"allocatedResources": {"cpu": "3"}}}, [], 6000),
        ({"a": {"resources": {"requests": {"cpu": "5"}}, "allocatedResources": {"cpu": "2"}}}, [], 8000),
        ({"a": {"allocatedResources": {"cpu": "2"}}}, [{"type": "PodResizePending", "reason": "Infeasible"}], 2000),
    ],
)
def test_a_resized_pod_holds_the_largest_sum(held: Object, conditions: list[Object], largest: int) -> None:
    containers = [{"name": name, "resources": {"requests": {"cpu": cpu}}} for name, cpu in (("a", "1"), ("b", "3"))]
    statuses = [{"name": name, **status} for name, status in held.items()]
    status = {"phase": "Running", "containerStatuses": statuses, "conditions": conditions}
    pod = pod_from_object({**pod_object(containers[0]), "spec": {"containers": containers}, "status": status})
    assert pod.requests.cpu_milli == largest


def test_ephemeral_storage_extended_resources_and_hugepages() -> None:
    limits = {"memory": "1Gi", "example.com/fpga": "2", "hugepages-2Mi": "4Mi", "example.com/none": "0"}
    requests = {"ephemeral-storage": "10Gi", **limits}
    pod = pod_from_object(pod_object(container(requests, limits)))
    assert pod.requests.ephemeral_bytes == 10 << 30
    assert pod.requests.extended == (("example.com/fpga", 2), ("hugepages-2Mi", 4 * MI))


@pytest.mark.parametrize(
    ("requests", "limits", "field", "problem"),
    [
        ({"cpu": "2"}, {"cpu": "1500m"}, "requests.cpu", "must be at most the limit"),
        ({"a.b/fpga": 2}, {"a.b/fpga": 1}, "requests['a.b/fpga']", "must be equal to the limit"),
        ({"a.b/fpga": 1}, {"a.b/fpga": 2}, "requests['a.b/fpga']", "must be equal to the limit"),
        ({"a.b/fpga": 1}, {}, "limits['a.b/fpga']", "is missing: the resource needs a limit"),
        ({"hugepages-2Mi": "4Mi", "cpu": 1}, {}, "limits.hugepages-2Mi", "is missing: the resource needs a limit"),
        ({HUGE: "4Mi", "cpu": 1}, {HUGE: "6Mi"}, "requests.hugepages-2Mi", "must be equal to the limit"),
        ({HUGE: "3Mi", "cpu": 1}, {}, "requests.hugepages-2Mi", "must be a multiple of 2Mi"),
        ({"hugepages-x": 1, "cpu": 1}, {}, "requests.hugepages-x", f"is not a size of hugepages; expected {HUGE}"),
    ],
)
def test_requests_that_kube_apiserver_refuses_with_these_limits(
    requests: Object, limits: Object, field: str, problem: str
) -> None:
    error = refusal(pod_object(container(requests, limits)))
    assert (error.field, error.problem) == (f"spec.containers[0].resources.{field}", problem)
    bound = partial_pod(pod_object(container(requests, limits)))
    valid = {name: amount for name, amount in requests.items() if "multiple" not in problem and "size" not in problem}
    valid = valid or {"cpu": 1}
    assert bound == pod_from_object(pod_object(container(valid, valid))), "a bound pod takes what it requests"


@pytest.mark.parametrize(
    ("level", "field", "problem"),
    [
        ({"requests": {"cpu": 1}}, "requests.cpu", "must be at least what the containers request"),
        ({"limits": {"cpu": 1}}, "limits.cpu", "must be at least what the containers request"),
        ({"limits": {"memory": "1Gi"}}, "limits.memory", "must be at least the limit in spec.containers[1]"),
        ({"requests": {"cpu": 4}, "limits": {"cpu": 3}}, "requests.cpu", "must be at most the limit"),
        ({"limits": {"hugepages-2Mi": "4Mi"}}, "", "has hugepages without cpu or memory"),
    ],
)
def test_resources_of_a_pod_that_kube_apiserver_refuses(level: Object, field: str, problem: str) -> None:
    containers = (container({"cpu": 1}), container({"cpu": 1, "memory": 1}, {"memory": "2Gi"}))
    error = refusal(pod_object(*containers, resources=level))
    assert (error.field, error.problem) == (f"spec.resources.{field}".rstrip("."), problem)
    assert partial_pod(pod_object(*containers, resources=level)).requests.cpu_milli >= 2000


def test_a_bound_pod_may_have_hugepages_alone() -> None:
    pod = partial_pod(pod_object(container({"hugepages-2Mi": "4Mi"})))
    assert pod.requests.extended == (("hugepages-2Mi", 4 * MI),)
    absurd = partial_pod(pod_object(*[container({"hugepages-2Mi": "1E", "cpu": 1})] * 2))
    # A third of the maximum is not a multiple of the page size.
    assert (absurd.requests.cpu_milli, absurd.requests.extended) == (2000, ())


@pytest.mark.parametrize("limits", [{}, {"kubernetes.io/batch-cpu": 3}])
def test_a_native_resource_with_a_domain_needs_no_limit(limits: Object) -> None:
    pod = pod_from_object(pod_object(container({"kubernetes.io/batch-cpu": 2}, limits)))
    assert pod.requests.extended == (("kubernetes.io/batch-cpu", 2),)


# GPUs


def gpu_annotations(**values: Any) -> Object:
    return {f"alibabacloud.com/gpu-{key.replace('_', '-')}": value for key, value in values.items()}


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (gpu_annotations(count="1", milli="460"), (1, 460, ())),
        (gpu_annotations(count=8, milli=1000, card_model="V100M32|G2"), (8, 1000, ("V100M32", "G2"))),
        (gpu_annotations(count="2", milli="300"), (2, 300, ())),
        (gpu_annotations(count="2"), (2, 1000, ())),
        (gpu_annotations(count="0", milli="0", card_model="T4"), (0, 0, ())),
        ({}, (0, 0, ())),
    ],
)
def test_gpus_by_annotation(annotations: Object, expected: tuple[int, int, tuple[str, ...]]) -> None:
    pod = pod_from_object(pod_object(annotations=annotations))
    assert (pod.requests.gpu_count, pod.requests.gpu_milli, pod.constraints.gpu_models) == expected


@pytest.mark.parametrize("plugin", ["nvidia.com/gpu", "amd.com/gpu"])
def test_gpus_by_device_plugin_are_whole(plugin: str) -> None:
    pod = pod_from_object(pod_object(container(limits={plugin: "2"}), container(limits={plugin: 1})))
    assert (pod.requests.gpu_count, pod.requests.gpu_milli, pod.requests.extended) == (3, 1000, ())
    node = node_from_object(node_object(allocatable={plugin: "8"}))
    assert (node.gpu_count, node.extended) == (8, ())


@pytest.mark.parametrize("milli", ["4000", "1000", None])
def test_node_gpus_with_milli_in_total_or_of_one_device(milli: str | None) -> None:
    allocatable = {"alibabacloud.com/gpu-count": "4"} | ({} if milli is None else {"alibabacloud.com/gpu-milli": milli})
    node = node_from_object(node_object(allocatable=allocatable, labels={"alibabacloud.com/gpu-card-model": "T4"}))
    assert (node.gpu_count, node.gpu_model) == (4, "T4")


def test_gpu_model_from_nvidia_label_unless_alibabas_is_there() -> None:
    nvidia = {"nvidia.com/gpu.product": "A100-SXM4-40GB"}
    gpus = {"nvidia.com/gpu": "8"}
    assert node_from_object(node_object(allocatable=gpus, labels=nvidia)).gpu_model == "A100-SXM4-40GB"
    both = {**nvidia, "alibabacloud.com/gpu-card-model": "A100"}
    assert node_from_object(node_object(allocatable=gpus, labels=both)).gpu_model == "A100"


def test_devices_of_a_placed_pod() -> None:
    obj = pod_object(annotations=gpu_annotations(count="3", milli="1000", index="2-3-4"), nodeName="n1")
    pod = pod_from_object(obj)
    assert (pod.gpu_devices, pod.constraints.node_name) == ((2, 3, 4), "n1")
    assert pod_from_object(pod_to_object(pod)) == pod


@pytest.mark.parametrize(
    ("annotations", "field", "problem"),
    [
        (gpu_annotations(count="1", milli="1500"), "gpu-milli", "1500 is too much"),
        (gpu_annotations(milli="500"), "gpu-count", "give the number of devices"),
        (gpu_annotations(count="1", milli="0"), "gpu-milli", "1 to 1000"),
        (gpu_annotations(count="-1"), "gpu-count", "negative"),
        (gpu_annotations(count="one"), "gpu-count", "'one' is not a Kubernetes quantity"),
        (gpu_annotations(count="1.5"), "gpu-count", "not a whole number"),
        (gpu_annotations(count="1", milli="1", card_model="A||B"), "gpu-card-model", "empty model"),
        (gpu_annotations(count="2", index="1"), "gpu-index", "2 devices"),
        (gpu_annotations(count="2", index="1-1"), "gpu-index", "2 devices"),
        ({"alibabacloud.com/creation-time": "yesterday"}, "creation-time", "seconds"),
        ({"alibabacloud.com/creation-time": "9", "alibabacloud.com/deletion-time": "8"}, "deletion-time", "before"),
    ],
)
def test_bad_annotations_are_named(annotations: Object, field: str, problem: str) -> None:
    error = refusal(pod_object(annotations=annotations))
    assert field in error.field
    assert error.field.startswith("metadata.annotations[")
    assert problem in error.problem


@pytest.mark.parametrize("value", ["0", -1, "nan", "inf", "an hour", "2h", "1_000", True, [60]])
def test_a_senseless_run_time_is_ignored(value: object) -> None:
    """As by the plugin; the deadline counts then."""
    pod = pod_from_object(pod_object(annotations={"steersman.dev/expected-seconds": value}, activeDeadlineSeconds=600))
    assert pod.estimated_seconds == 600.0
    (said,) = pod.ignored
    expected = "is not a number of seconds above 0, such as 3600; ignored"
    assert said == f"annotation steersman.dev/expected-seconds: {value!r} {expected}"


@pytest.mark.parametrize("value", [5, "a\n"])
def test_a_senseless_gang_is_ignored(value: object) -> None:
    obj = pod_object(annotations={"steersman.dev/gang": value, "steersman.dev/owner": 5})
    obj["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "group"}
    pod = pod_from_object(obj)
    assert (pod.gang, pod.owner) == ("group", "")
    ignored = [each.split(":")[0] for each in pod.ignored]
    assert ignored == ["annotation steersman.dev/owner", "annotation steersman.dev/gang"]


def test_contradictory_gpus_are_rejected() -> None:
    pod = pod_object(container(limits={"nvidia.com/gpu": 2}), annotations=gpu_annotations(count="1", milli="500"))
    assert "contradicts the 2 devices" in refusal(pod).problem
    two_kinds = pod_object(container(limits={"nvidia.com/gpu": 1, "amd.com/gpu": 1}))
    assert "one kind" in refusal(two_kinds).problem
    node = node_object(allocatable={"alibabacloud.com/gpu-count": "2", "alibabacloud.com/gpu-milli": "1500"})
    error = refusal(node)
    assert error.field == "status.allocatable['alibabacloud.com/gpu-milli']"
    assert "expected 2000" in error.problem


def test_times_in_seconds() -> None:
    times = {"alibabacloud.com/creation-time": "427061", "alibabacloud.com/deletion-time": "427061.5"}
    pod = pod_from_object(pod_object(annotations=times))
    assert (pod.creation_time, pod.deletion_time) == (427061.0, 427061.5)
    assert pod_to_object(pod)["metadata"]["annotations"] == times


@pytest.mark.parametrize(
    ("annotations", "spec", "seconds"),
    [
        ({}, {}, None),
        ({"steersman.dev/expected-seconds": ""}, {}, None),
        ({"steersman.dev/expected-seconds": "0.5"}, {}, 0.5),
        ({"steersman.dev/expected-seconds": 90}, {"activeDeadlineSeconds": 600}, 90.0),
        ({}, {"activeDeadlineSeconds": 600}, 600.0),
    ],
)
def test_run_times_are_stated_by_annotation_or_deadline(
    annotations: Object, spec: Object, seconds: float | None
) -> None:
    pod = pod_from_object(pod_object(annotations=annotations, **spec))
    assert pod.estimated_seconds == seconds
    assert pod_from_object(pod_to_object(pod)) == pod


@pytest.mark.parametrize("deadline", [0, -1, 1.5, "600", 1 << 31])
def test_invalid_deadlines_are_rejected(deadline: object) -> None:
    assert refusal(pod_object(activeDeadlineSeconds=deadline)).field == "spec.activeDeadlineSeconds"


@pytest.mark.parametrize(("note", "label", "gang"), [("", "", ""), ("g", "", "g"), ("", "l", "l"), ("g", "l", "g")])
def test_gangs_are_named_by_annotation_or_pod_group(note: str, label: str, gang: str) -> None:
    obj = pod_object(annotations={"steersman.dev/gang": note} if note else {})
    obj["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": label} if label else {}
    pod = pod_from_object(obj)
    assert pod.gang == gang
    written = pod_to_object(pod)
    assert pod_from_object(written) == pod
    assert ("annotations" in written["metadata"]) == bool(note)


def test_simon_times_are_read() -> None:
    pod = pod_from_object(pod_object(annotations={"alibabacloud.com/creation-time": "2024-05-01T12:00:00+02:00"}))
    assert pod.creation_time == 1714557600.0
    error = refusal(pod_object(annotations={"alibabacloud.com/creation-time": "2024-05-01T12:00:00"}))
    assert "expected seconds, 0 or more" in error.problem


# Constraints


def test_every_constraint_of_a_pod() -> None:
    web = {"matchLabels": {"app": "web"}}
    of_rack = {"topologyKey": "rack", "namespaceSelector": {}, "labelSelector": {}}
    of_web = {"topologyKey": "host", "labelSelector": web}
    affinity = {
        "nodeAffinity": {
            REQUIRED: {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["8"]}]},
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
                    {},
                ]
            },
            PREFERRED: [
                {"weight": 7, "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}},
                {"weight": 1, "preference": {}},
            ],
        },
        "podAffinity": {
            REQUIRED: [{"topologyKey": "zone", "labelSelector": web, "namespaces": ["b", "a"]}],
            PREFERRED: [{"weight": 9, "podAffinityTerm": of_rack}],
        },
        "podAntiAffinity": {
            REQUIRED: [{**of_web, "matchLabelKeys": ["v", "gone"], "mismatchLabelKeys": ["app"]}],
            PREFERRED: [{"weight": 100, "podAffinityTerm": {"topologyKey": "host"}}],
        },
    }
    spread = [
        {"maxSkew": 2, "topologyKey": "zone", "labelSelector": web, "minDomains": 3}
        | {"whenUnsatisfiable": "DoNotSchedule"},
        {"maxSkew": 1, "topologyKey": "host", "labelSelector": {}, "matchLabelKeys": ["v"]}
        | {"whenUnsatisfiable": "ScheduleAnyway", "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"},
    ]
    dns = {"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}
    pod = pod_from_object(
        pod_object(
            container(ports=[{"containerPort": 80, "hostPort": 8080}, dns, {"containerPort": 99}]),
            affinity=affinity,
            topologySpreadConstraints=spread,
            nodeSelector={"b": "2", "a": "1"},
            tolerations=[{"operator": "Exists"}, {"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
            priority=1000,
            schedulerName="steersman",
            nodeName="n7",
        )
    )
    c = pod.constraints
    is_web = Requirement("app", "In", ("web",))
    is_v2 = Requirement("v", "In", ("2",))
    shop = frozenset({"shop"})
    assert c.node_affinity == (
        NodeSelectorTerm((Requirement("cores", "Gt", ("8",)),)),
        NodeSelectorTerm((), (Requirement("metadata.name", "In", ("n1",)),)),
        NodeSelectorTerm(),
    )
    assert c.preferred_nodes == (PreferredNodeTerm(7, NodeSelectorTerm((Requirement("ssd", "Exists"),))),)
    assert c.affinity == (PodAffinityTerm(PodSelector((is_web,), frozenset({"a", "b"})), "zone"),)
    assert c.preferred_affinity == (PreferredPodTerm(9, PodAffinityTerm(PodSelector((), None), "rack")),)
    not_web = Requirement("app", "NotIn", ("web",))
    assert c.anti_affinity == (PodAffinityTerm(PodSelector((is_web, not_web, is_v2), shop), "host"),)
    assert c.preferred_anti_affinity == (PreferredPodTerm(100, PodAffinityTerm(PodSelector(None, shop), "host")),)
    assert c.spread == (
        TopologySpread(2, "zone", True, PodSelector((is_web,), shop), min_domains=3),
        TopologySpread(1, "host", False, PodSelector((is_v2,), shop), 1, False, True),
    )
    assert c.host_ports == (HostPort(53, "UDP", "10.0.0.1"), HostPort(8080))
    assert c.node_selector == (("a", "1"), ("b", "2"))
    assert c.tolerations == (Toleration(operator="Exists"), Toleration("gpu", "Equal", "yes", "NoSchedule"))
    assert c.images == ("registry.example/app:1",)
    assert (pod.priority, pod.scheduler_name, c.node_name) == (1000, "steersman", "n7")
    assert pod_from_object(pod_to_object(pod)) == pod


def test_equal_constraints_in_another_order_are_one_class() -> None:
    def pod(values: list[str], labels: dict[str, str]) -> Pod:
        expressions = [{"key": "zone", "operator": "In", "values": values}]
        expressions += [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
        terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        return pod_from_object(pod_object(affinity={"nodeAffinity": {REQUIRED: terms}}))

    one, other = pod(["a", "b"], {"x": "1", "y": "2"}), pod(["b", "a", "b"], {"y": "2", "x": "1"})
    assert one.pod_class == other.pod_class
    assert hash(one.pod_class) == hash(other.pod_class)


def test_host_network_takes_container_ports() -> None:
    ports = [{"containerPort": 80}]
    assert pod_from_object(pod_object(container(ports=ports))).constraints.host_ports == ()
    of_host = pod_from_object(pod_object(container(ports=ports), hostNetwork=True))
    assert of_host.constraints.host_ports == (HostPort(80),)


def test_priority_classes_and_owner() -> None:
    obj = pod_object(priorityClassName="high", priority=7)
    assert pod_from_object(obj).priority == 7
    assert pod_from_object(pod_object(priorityClassName="system-node-critical")).priority == 2000001000
    references = [{"kind": "Node", "name": "n"}, {"kind": "ReplicaSet", "name": "web-1", "controller": True}]
    obj["metadata"]["ownerReferences"] = references
    assert pod_from_object(obj).owner == "ReplicaSet/web-1"


@pytest.mark.parametrize(
    ("spec", "field", "problem"),
    [
        ({"containers": []}, "spec.containers", "one container or more"),
        ({"containers": {}}, "spec.containers", "must be a list"),
        ({"containers": [container({"cpu": "-1"})]}, "spec.containers[0].resources.requests.cpu", "negative"),
        ({"containers": [container({}, {"memory": "2GiB"})]}, "spec.containers[0].resources.limits.memory", "2Gi"),
        ({"containers": [container({"gpu": 1})]}, "spec.containers[0].resources.requests.gpu", "no resource"),
        ({"containers": [container({"cpu": None})]}, "spec.containers[0].resources.requests.cpu", "not a quantity"),
        ({"containers": [container(ports=[{"hostPort": 70000}])]}, "spec.containers[0].ports[0].hostPort", "65535"),
        ({"nodeSelector": {"disk": 8}}, "spec.nodeSelector.disk", "put it in quotes"),
        ({"tolerations": [{"operator": "Equal"}]}, "spec.tolerations[0].operator", "Exists"),
        ({"tolerations": [{"key": "a", "effect": "Never"}]}, "spec.tolerations[0].effect", "NoSchedule"),
        ({"priority": "high"}, "spec.priority", "whole number"),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "spec.topologySpreadConstraints[0].topologyKey", "missing"),
    ],
)
def test_bad_pod_fields_are_named(spec: Object, field: str, problem: str) -> None:
    obj = pod_object()
    obj["spec"] |= spec
    error = refusal(obj)
    assert error.field == field
    assert problem in error.problem


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ({"key": "a", "operator": "Is"}, "'Is' is unknown"),
        ({"key": "a", "operator": "In"}, "one value or more"),
        ({"key": "a", "operator": "Exists", "values": ["1"]}, "must be empty"),
        ({"key": "a", "operator": "Gt", "values": ["x"]}, "whole number"),
        ({"operator": "Exists"}, "missing"),
    ],
)
def test_bad_node_affinity_is_named(expression: Object, problem: str) -> None:
    term = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    error = refusal(pod_object(affinity={"nodeAffinity": {REQUIRED: term}}))
    assert error.field.startswith(f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].")
    assert problem in error.problem


def test_unresolvable_namespace_selector_is_rejected() -> None:
    term = {"topologyKey": "host", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "a"}}}
    error = refusal(pod_object(affinity={"podAntiAffinity": {REQUIRED: [term]}}))
    assert error.field.endswith("[0].namespaceSelector")
    assert "not known" in error.problem


def test_finished_pods_are_recognised() -> None:
    assert is_finished({"status": {"phase": "Succeeded"}})
    assert not is_finished({"status": {"phase": "Running"}})


# Nodes


def test_every_field_of_a_node() -> None:
    obj = node_object(
        allocatable={"cpu": "31999900u", "memory": "1048577.5", "ephemeral-storage": "100Gi", "a/b": "4"}
        | {"hugepages-1Gi": "0"},
        labels={"zone": "z1"},
        spec={"taints": [{"key": "gpu", "value": "yes", "effect": "NoExecute"}], "unschedulable": True},
        status={
            "images": [
                {"names": ["nginx", "nginx@sha256:0f"], "sizeBytes": 1000},
                {"names": ["nginx"], "sizeBytes": 7},  # the first size counts
            ]
        },
    )
    node = node_from_object(obj)
    assert node == Node(
        name="n1",
        cpu_milli=31999,
        memory_bytes=1048577,
        pods=110,
        ephemeral_bytes=100 << 30,
        extended=(("a/b", 4),),
        labels={"zone": "z1"},
        taints=(Taint("gpu", "yes", "NoExecute"),),
        unschedulable=True,
        images={"nginx": 1000, "nginx@sha256:0f": 1000},  # a node's names are taken as they are
    )
    assert node_from_object(node_to_object(node)) == node


@pytest.mark.parametrize(
    ("status", "offered"),
    [
        ({"capacity": {"cpu": 4, "memory": "1Gi"}}, (4000, 1 << 30, 0, 0)),
        ({"allocatable": {"cpu": 4, "pods": 9}, "capacity": {"cpu": 8, "memory": "1Gi"}}, (4000, 0, 9, 0)),
        ({"allocatable": {"memory": "1Gi", "ephemeral-storage": "1Mi"}}, (0, 1 << 30, 0, 1 << 20)),
        ({"allocatable": {"pods": None, "example.com/x": None}}, (0, 0, 0, 0)),
        ({}, (0, 0, 0, 0)),
        (None, (0, 0, 0, 0)),
    ],
)
def test_resource_missing_from_allocatable_is_not_offered(status: Any, offered: tuple[int, ...]) -> None:
    node = node_from_object({"kind": "Node", "metadata": {"name": "n"}, "status": status})
    assert (node.cpu_milli, node.memory_bytes, node.pods, node.ephemeral_bytes) == offered
    assert node.extended == ()


def test_unlimited_resources_round_trip() -> None:
    node = Node("n", 1000, 1 << 30, UNLIMITED, UNLIMITED)
    assert node_from_object(node_to_object(node)) == node


def test_virtual_node_may_be_arbitrarily_large() -> None:
    stated = {"cpu": "1M", "memory": "1Pi", "pods": "1M", "ephemeral-storage": "400Ti"}
    node = node_from_object(node_object(allocatable=stated))
    assert (node.cpu_milli, node.memory_bytes, node.pods) == (1_000_000_000, 1 << 50, 1_000_000)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"metadata": {}}, "metadata.name"),
        ({"metadata": {"name": 5}}, "metadata.name"),
        ({"status": {"allocatable": {"cpu": "1", "memory": "x"}}}, "status.allocatable.memory"),
        ({"status": {"allocatable": {"cpu": "x", "memory": "1"}}}, "status.allocatable.cpu"),
        ({"status": {"allocatable": {"nvidia.com/gpu": "1E"}}}, "status.allocatable['nvidia.com/gpu']"),
        ({"spec": {"taints": [{"key": "a", "effect": "No"}]}}, "spec.taints[0].effect"),
        ({"spec": {"unschedulable": "yes"}}, "spec.unschedulable"),
        ({"metadata": {"name": "n", "labels": {"a": True}}}, "metadata.labels.a"),
        ({"spec": []}, "spec"),
    ],
)
def test_bad_node_fields_are_named(change: Object, field: str) -> None:
    assert refusal(node_object() | change).field == field


# Round trips


def test_simple_pod_is_written_without_defaults() -> None:
    bare = pod_to_object(pod_from_object(pod_object({"name": "c"})))
    assert bare["spec"] == {"containers": [{"name": "main", "image": PLACEHOLDER_IMAGE}]}
    stated = pod_to_object(pod_from_object(pod_object({"resources": {"requests": {"cpu": 1, "memory": "1Gi"}}})))
    requests = {"cpu": "1000m", "memory": "1024Mi"}
    stated_container = {"name": "main", "image": PLACEHOLDER_IMAGE, "resources": {"requests": requests}}
    assert stated["spec"] == {"containers": [stated_container]}


def test_volumes_features_and_deletion_round_trip() -> None:
    volumes = [
        {"name": "a", "iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2001-04.com.example:a", "lun": 3}},
        {"name": "b", "gcePersistentDisk": {"pdName": "disk", "readOnly": True}},
        {"name": "c", "awsElasticBlockStore": {"volumeID": "vol-1", "readOnly": True}},
        {"name": "d", "rbd": {"monitors": ["m1", "m0"], "image": "i", "readOnly": True}},
        {"name": "e", "rbd": {"monitors": ["m1"], "image": "i", "pool": "p"}},
        {"name": "f", "image": {"reference": "registry.example:5000/model"}},
        {"name": "g", "emptyDir": {}},
        {"name": "h", "iscsi": None},
    ]
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    obj = pod_object(container(restartPolicyRules=[rule]), volumes=volumes, hostNetwork=True, hostUsers=False)
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    pod = pod_from_object(obj)
    assert pod.constraints.exclusive_volumes == (
        ExclusiveVolume("iscsi", ("iqn.2001-04.com.example:a",)),
        ExclusiveVolume("gcePersistentDisk", ("disk",), read_only=True),
        ExclusiveVolume("awsElasticBlockStore", ("vol-1",)),
        ExclusiveVolume("rbd", ("rbd", "i"), ("m1", "m0"), read_only=True),
        ExclusiveVolume("rbd", ("p", "i"), ("m1",)),
    )
    assert pod.constraints.image_volumes == ("registry.example:5000/model:latest",)
    assert pod.constraints.node_features == ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport")
    assert pod.terminating
    assert pod_from_object(pod_to_object(pod)) == pod


@pytest.mark.parametrize(
    ("spec", "features"),
    [
        ({"initContainers": [container(restartPolicyRules=[{"action": "RestartAllContainers"}])]}, 1),
        ({"initContainers": [container(restartPolicyRules=[{"action": "Restart"}])]}, 0),
        ({"hostNetwork": True}, 0),
        ({"hostNetwork": True, "hostUsers": True}, 0),
        ({"hostUsers": False}, 0),
        ({"hostNetwork": True, "hostUsers": False}, 1),
    ],
)
def test_features_that_a_pod_needs(spec: Object, features: int) -> None:
    assert len(pod_from_object(pod_object(**spec)).constraints.node_features) == features


def test_declared_features_of_a_node_round_trip() -> None:
    node = node_from_object(node_object(status={"declaredFeatures": ["B", "A"]}))
    assert node.features == ("A", "B")
    assert node_from_object(node_to_object(node)) == node


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("pause", "pause:latest"),
        ("registry.example:5000/a/b", "registry.example:5000/a/b:latest"),
        ("registry.example:5000/a/b:v1", "registry.example:5000/a/b:v1"),
        ("a@sha256:00ff", "a@sha256:00ff"),
        ("a:v1@sha256:00ff", "a:v1@sha256:00ff"),
    ],
)
def test_images_have_the_names_that_kube_scheduler_compares(image: str, name: str) -> None:
    pod = pod_from_object(pod_object({"name": "c", "image": image}))
    assert pod.constraints.images == (name,)
    assert pod_from_object(pod_to_object(pod)) == pod
    assert node_from_object(node_object(status={"images": [{"names": [image], "sizeBytes": 1}]})).images == {image: 1}


quantities = st.sampled_from(["0", "1m", "100m", "250m", "1", "1.5", "7"])
memories = st.sampled_from(["0", "1", "1Ki", "100Mi", "200Mi", "1.5Gi"])
resources = st.fixed_dictionaries(
    {},
    optional={"cpu": quantities, "memory": memories, "ephemeral-storage": memories, "example.com/x": st.integers(0, 9)},
)


def with_limits(requests: Object, limits: Object) -> Object:
    """Return a container whose limits kube-apiserver accepts: raised to its requests, equal for extended resources."""
    above = {name for name in requests if name in limits and nano(limits[name]) < nano(requests[name])}
    raised = {name: amount for name, amount in requests.items() if "/" in name or name in above}
    return container(requests, limits | raised)


overheads = st.fixed_dictionaries({}, optional={"cpu": quantities, "memory": memories}).map(lambda o: {"overhead": o})
# More than all containers request.
pod_levels = st.sampled_from([{}, {"cpu": "64"}, {"cpu": "100", "memory": "1Ti"}]).map(
    lambda requests: {"resources": {"requests": requests}}
)
containers = st.builds(with_limits, resources, resources)
inits = st.builds(lambda c, policy: c | policy, containers, st.sampled_from([{}, {"restartPolicy": "Always"}]))


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(containers, min_size=1, max_size=4), st.lists(inits, max_size=3), st.one_of(overheads, pod_levels))
@example([container()], [container({"memory": "100Mi"})], {})
def test_container_requests_round_trip(running: list[Object], starting: list[Object], extra: Object) -> None:
    pod = pod_from_object(pod_object(*running, initContainers=starting, **extra))
    assert pod.requests.cpu_nonzero_milli >= pod.requests.cpu_milli
    assert pod.requests.memory_nonzero_bytes >= pod.requests.memory_bytes
    back = pod_from_object(pod_to_object(pod))
    assert back == pod


names = st.text("abc", min_size=1, max_size=3)
labels = st.dictionaries(names, names, max_size=2)
expressions = st.one_of(
    st.fixed_dictionaries(
        {"key": names, "operator": st.sampled_from(["In", "NotIn"]), "values": st.lists(names, min_size=1, max_size=3)}
    ),
    st.fixed_dictionaries({"key": names, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
)
label_selectors = st.one_of(
    st.none(), st.fixed_dictionaries({"matchLabels": labels, "matchExpressions": st.lists(expressions, max_size=2)})
)
pod_terms = st.fixed_dictionaries(
    {
        "topologyKey": names,
        "labelSelector": label_selectors,
        "namespaces": st.lists(names, max_size=2),
        "namespaceSelector": st.sampled_from([None, {}]),
        "matchLabelKeys": st.lists(st.sampled_from(["app", "gone"]), max_size=2),
    }
)
weighted = st.builds(lambda w, term: {"weight": w, "podAffinityTerm": term}, st.integers(1, 100), pod_terms)
pod_affinity = st.fixed_dictionaries(
    {REQUIRED: st.lists(pod_terms, max_size=2), PREFERRED: st.lists(weighted, max_size=2)}
)
spreads = st.fixed_dictionaries(
    {
        "maxSkew": st.integers(1, 5),
        "topologyKey": names,
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": label_selectors,
        "minDomains": st.integers(1, 4),
        "nodeAffinityPolicy": st.sampled_from(["Honor", "Ignore", None]),
        "nodeTaintsPolicy": st.sampled_from(["Honor", "Ignore", None]),
    }
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pod_affinity, pod_affinity, st.lists(spreads, max_size=2), labels)
def test_selectors_round_trip(near: Object, far: Object, spread: list[Object], selector: dict[str, str]) -> None:
    affinity = {"podAffinity": near, "podAntiAffinity": far}
    pod = pod_from_object(pod_object(affinity=affinity, topologySpreadConstraints=spread, nodeSelector=selector))
    assert pod_from_object(pod_to_object(pod)) == pod


# Nothing but an InputError, whatever a field holds

RICH_POD = pod_object(
    container(
        {"cpu": "1", "a/b": 1}, ports=[{"containerPort": 1, "hostPort": 2, "protocol": "TCP", "hostIP": "1.1.1.1"}]
    ),
    annotations=gpu_annotations(count="1", milli="500", card_model="A", index="0")
    | {"alibabacloud.com/creation-time": "1", "steersman.dev/owner": "Job/a"}
    | {"steersman.dev/expected-seconds": "60", "steersman.dev/gang": "g"},
    activeDeadlineSeconds=60,
    initContainers=[container({"cpu": "1"}, restartPolicy="Always")],
    overhead={"cpu": "1"},
    resources={"requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
    nodeSelector={"a": "b"},
    tolerations=[{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
    affinity={
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]},
            PREFERRED: [{"weight": 1, "preference": {"matchFields": []}}],
        },
        "podAffinity": {
            REQUIRED: [{"topologyKey": "a", "labelSelector": {"matchLabels": {"a": "b"}}, "namespaces": ["a"]}]
        },
    },
    topologySpreadConstraints=[
        {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["a"]}
    ],
    priorityClassName="a",
    schedulerName="s",
    volumes=[
        {"name": "v", "ephemeral": {}},
        {"name": "i", "image": {"reference": "a"}},
        {"name": "d", "rbd": {"monitors": ["a"], "image": "a", "readOnly": True}},
    ],
    hostNetwork=True,
    hostUsers=False,
)
RICH_NODE = node_object(
    allocatable={"a/b": "1", "nvidia.com/gpu": 1, "alibabacloud.com/gpu-count": 1},
    labels={"a": "b"},
    spec={"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}], "unschedulable": False},
    status={"images": [{"names": ["a"], "sizeBytes": 5}], "declaredFeatures": ["a"]},
)
strange = st.sampled_from([*STRANGE, float("nan")])


@settings(max_examples=examples(800))
@given(st.data(), st.sampled_from([RICH_POD, RICH_NODE]), strange, st.sampled_from(["replace", 1, "x", None, True]))
def test_strange_fields_are_rejected_or_taken_but_never_crash(
    data: st.DataObject, obj: Object, new: Any, key: Any
) -> None:
    place = data.draw(st.sampled_from(places(obj)[1:]))
    value: Any = obj
    for step in place:
        value = value[step]
    changed = replaced(obj, place, {**value, key: new} if key != "replace" and isinstance(value, dict) else new)
    refused = None
    try:
        if obj is RICH_POD:
            field_use(changed)
            is_finished(changed)
            pod_from_object(changed, file="f")
        else:
            field_use(changed, "Node")
            node_from_object(changed, file="f")
    except InputError as error:
        refused = error
    assert refused is None or (refused.field and "\n" not in str(refused))


@pytest.mark.parametrize(
    ("spec", "limits"),
    [
        ({"containers": [{"resources": {"limits": {"cpu": "1.5", "memory": "2Gi"}}}]}, (1500, 2 << 30)),
        ({"containers": [{"resources": {"requests": {"cpu": 1}, "limits": {"cpu": 2}}}]}, (2000, 0)),
        ({"containers": [{"resources": {"limits": {"cpu": 1}}}, {}]}, (0, 0)),
        ({"containers": [{"resources": {"limits": {"cpu": 1}}}], "overhead": {"cpu": "10m"}}, (0, 0)),
    ],
)
def test_limits_of_a_single_container_round_trip(spec: dict[str, object], limits: tuple[int, int]) -> None:
    read = pod_from_object({"metadata": {"name": "p"}, "spec": spec})
    assert (read.cpu_limit_milli, read.memory_limit_bytes) == limits
    assert pod_from_object(pod_to_object(read)) == read


def test_a_limit_never_becomes_a_request() -> None:
    silent = Pod("p", PodClass(Requests(0, 0)), cpu_limit_milli=1000, memory_limit_bytes=1 << 30)
    assert pod_from_object(pod_to_object(silent)).requests == silent.requests
