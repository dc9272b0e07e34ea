"""Pods of files are as kube-apiserver stores them: priority, runtime class, limits of the namespace, tolerations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster_dump import Object, controller, expanded, item, listed, node, parsed, pod

from steersman.cluster.model import Pod, Toleration
from steersman.workloads.loading import load_workload


def admitted(*content: Object) -> list[Pod]:
    return list(expanded(*content).pods)


def refusal(*content: Object) -> str:
    found = parsed(*content)
    (problem,) = (*found.problems(), *found.expanded(found.nodes()).problems)
    return str(problem)


def fresh(content: Object) -> Object:
    """A pod as a user writes it, without what the API server adds."""
    metadata = {key: content["metadata"][key] for key in ("name", "namespace", "labels") if key in content["metadata"]}
    return {key: value for key, value in content.items() if key != "status"} | {"metadata": metadata}


def web(**spec: Any) -> Object:
    made = controller("Deployment", "web")
    made["spec"]["template"]["spec"] |= spec
    return made


def priority_class(name: str, value: int, **more: Any) -> Object:
    return item("PriorityClass", name, value=value, **more) | {"apiVersion": "scheduling.k8s.io/v1"}


def runtime_class(**more: Any) -> Object:
    return item("RuntimeClass", "kata", handler="kata", **more) | {"apiVersion": "node.k8s.io/v1"}


def limit_range(*limits: Object, name: str = "limits") -> Object:
    return item("LimitRange", name, spec={"limits": list(limits)}) | {"apiVersion": "v1"}


def test_a_pod_without_a_class_has_the_default_priority() -> None:
    usual, high = priority_class("usual", 1000, globalDefault=True), priority_class("high", 5)
    lower = priority_class("lower", 900, globalDefault=True)
    assert [each.priority for each in admitted(web(), usual)] == [1000]
    assert [each.priority for each in admitted(web(), usual, lower)] == [900]
    assert [each.priority for each in admitted(web(priorityClassName="high"), usual, high)] == [5]
    assert [each.priority for each in admitted(pod("p", priority=7), usual)] == [7]
    assert [each.priority for each in admitted(web(priorityClassName="system-node-critical"))] == [2_000_001_000]


def test_missing_classes_are_reported() -> None:
    found = parsed(web(priorityClassName="urgent", runtimeClassName="kata"), fresh(pod("p", runtimeClassName="kata")))
    expanded = found.expanded(())
    assert expanded.warnings == (
        "PriorityClass urgent is not in the input; its priority counts as 0 (named by Deployment default/web)",
        "RuntimeClass kata is not in the input; its overhead, node selector and tolerations are unknown "
        "(named by Pod default/p and 1 more)",
    )
    assert [each.priority for each in expanded.pods] == [0, 0]
    running = pod("p", on="n", runtimeClassName="kata", priorityClassName="urgent", priority=9)
    assert parsed(running).expanded(()).warnings == ()


def test_a_runtime_class_adds_overhead_selector_and_tolerations() -> None:
    toleration = {"key": "sandbox", "operator": "Exists"}
    scheduling = {"nodeSelector": {"sandbox": "yes"}, "tolerations": [toleration]}
    kata = runtime_class(overhead={"podFixed": {"cpu": "500m", "memory": "1Gi"}}, scheduling=scheduling)
    (made,) = admitted(web(runtimeClassName="kata", nodeSelector={"disk": "ssd"}, tolerations=[toleration]), kata)
    assert (made.requests.cpu_milli, made.requests.memory_bytes) == (1500, 1 << 30)
    assert made.constraints.node_selector == (("disk", "ssd"), ("sandbox", "yes"))
    assert made.constraints.tolerations == (Toleration("sandbox", "Exists"),)
    (running,) = admitted(pod("p", on="n", runtimeClassName="kata", overhead={"cpu": "1"}), kata)
    assert running.requests.cpu_milli == 2000
    (waiting,) = admitted(fresh(pod("p", runtimeClassName="kata", overhead={"cpu": "0.5", "memory": "1024Mi"})), kata)
    assert waiting.requests.cpu_milli == 1500


def test_pods_that_contradict_their_runtime_class_are_rejected() -> None:
    kata = runtime_class(overhead={"podFixed": {"cpu": "1"}}, scheduling={"nodeSelector": {"sandbox": "yes"}})
    other = web(runtimeClassName="kata", nodeSelector={"sandbox": "no"})
    message = "Deployment default/web, spec.template.spec.nodeSelector.sandbox: 'no' contradicts 'yes' of RuntimeClass"
    assert message in refusal(other, kata)
    other = fresh(pod("p", runtimeClassName="kata", overhead={"cpu": "2"}))
    assert "Pod default/p, spec.overhead: differs from the overhead of RuntimeClass kata" in refusal(other, kata)


CONTAINER = {"type": "Container"}


@pytest.mark.parametrize(
    ("limit", "stated", "cpu"),
    [
        ({"defaultRequest": {"cpu": "2"}, "default": {"cpu": "3"}}, {}, 2000),
        ({"default": {"cpu": "3"}}, {}, 3000),
        ({"max": {"cpu": "4"}}, {}, 4000),
        ({"max": {"cpu": "4"}, "default": {"cpu": "3"}}, {}, 3000),
        ({"min": {"cpu": "100m"}}, {}, 100),
        ({"min": {"cpu": "100m"}, "max": {"cpu": "2"}}, {}, 2000),
        ({"defaultRequest": {"cpu": "2"}}, {"limits": {"cpu": "5"}}, 5000),
        ({"defaultRequest": {"cpu": "2"}}, {"requests": {"cpu": "1"}}, 1000),
        ({"type": "Pod", "default": {"cpu": "2"}}, {}, 0),
    ],
)
def test_a_limit_range_gives_containers_their_requests(limit: Object, stated: Object, cpu: int) -> None:
    made = web()
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = stated
    assert [each.requests.cpu_milli for each in admitted(made, limit_range(CONTAINER | limit))] == [cpu]


BOUNDS: list[tuple[Object, Object, str]] = [
    ({"min": {"cpu": "2"}}, {"requests": {"cpu": "1"}}, "minimum cpu usage per Container is 2000m, but request is 1"),
    ({"max": {"memory": "1Gi"}}, {"limits": {"memory": "2Gi"}}, "maximum memory usage per Container is 1024Mi, but"),
    ({"max": {"cpu": "1"}}, {"requests": {"cpu": "2"}}, "maximum cpu usage per Container is 1000m, but request is 2"),
    (
        {"max": {"nvidia.com/gpu": "1"}},
        {"limits": {"nvidia.com/gpu": "2"}},
        "maximum nvidia.com/gpu usage per Container is 1, but limit is 2",
    ),
    (
        {"maxLimitRequestRatio": {"cpu": "1.5"}},
        {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
        "cpu max limit to request ratio per Container is 1.5, but provided ratio is 2",
    ),
    ({"maxLimitRequestRatio": {"cpu": "2"}}, {"requests": {"cpu": "1"}}, "but no limit is specified or limit is 0"),
    ({"maxLimitRequestRatio": {"memory": "2"}}, {}, "but no request is specified or request is 0"),
]


@pytest.mark.parametrize(("limit", "stated", "problem"), BOUNDS)
def test_a_container_beyond_a_limit_range_is_rejected(limit: Object, stated: Object, problem: str) -> None:
    bad = web(containers=[{"name": "c", "image": "x", "resources": stated}])
    message = refusal(bad, limit_range(CONTAINER | limit))
    assert problem in message
    assert "Deployment default/web, spec.template.spec.containers[0].resources: " in message
    assert message.endswith("(LimitRange limits)")


def test_init_containers_are_checked_too() -> None:
    enough = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "2"}}}
    init = {"name": "i", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    message = refusal(web(containers=[enough], initContainers=[init]), limit_range(CONTAINER | {"min": {"cpu": "2"}}))
    assert "spec.template.spec.initContainers[0].resources: minimum cpu" in message


@pytest.mark.parametrize(
    ("limit", "stated"),
    [
        ({"min": {"cpu": "2"}, "max": {"cpu": "4"}}, {}),  # a maximum is the default
        ({"min": {"cpu": "1"}}, {}),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
        ({"max": {"cpu": "2"}}, {"limits": {"cpu": "2000m"}}),
    ],
)
def test_a_container_within_a_limit_range_is_admitted(limit: Object, stated: Object) -> None:
    good = web(containers=[{"name": "c", "image": "x", "resources": stated}])
    assert len(admitted(good, limit_range(CONTAINER | limit))) == 1


def test_pod_limits_are_sums_of_container_limits() -> None:
    both = {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}
    two = [{"name": name, "image": "x", "resources": both} for name in "ab"]
    sidecar = {"name": "s", "image": "x", "resources": both, "restartPolicy": "Always"}

    def pod_range(**bounds: Object) -> Object:
        return limit_range({"type": "Pod", **bounds})

    assert len(admitted(web(containers=two), pod_range(min={"cpu": "4"}, max={"cpu": "6"}))) == 1
    message = refusal(web(containers=two), pod_range(max={"cpu": "5"}))
    assert "spec.template.spec.resources: maximum cpu usage per Pod is 5000m, but limit is 6000m" in message
    message = refusal(web(containers=two), pod_range(min={"cpu": "5"}))
    assert "minimum cpu usage per Pod is 5000m, but request is 4000m" in message
    assert "limit is 9000m" in refusal(web(containers=two, initContainers=[sidecar]), pod_range(max={"cpu": "8"}))
    pod_level = web(containers=two, resources={"requests": {"cpu": "5"}, "limits": {"cpu": "5"}})
    assert len(admitted(pod_level, pod_range(min={"cpu": "5"}, max={"cpu": "5"}))) == 1
    assert "no request is specified" in refusal(web(containers=[{"name": "c"}]), pod_range(min={"cpu": "1"}))


def test_limit_range_does_not_reject_existing_pods() -> None:
    """Nor does a claim's or an image's item, or one of another namespace."""
    of_claims = {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}}
    assert len(admitted(pod("p", on="n"), limit_range(CONTAINER | {"min": {"cpu": "9"}}, of_claims))) == 1
    elsewhere = limit_range(CONTAINER | {"min": {"cpu": "9"}})
    elsewhere["metadata"]["namespace"] = "other"
    assert len(admitted(web(), elsewhere)) == 1


def test_resource_quotas_are_reported_as_ignored() -> None:
    quota = item("ResourceQuota", "q", spec={"hard": {"pods": "1"}}) | {"apiVersion": "v1"}
    assert parsed(quota, web()).warnings() == ("1 ResourceQuotas are not applied: pods that they would refuse count",)


def test_limit_ranges_apply_per_namespace_and_to_init_containers() -> None:
    limits = limit_range(CONTAINER | {"defaultRequest": {"cpu": "2"}})
    bare: Object = {"name": "c", "image": "x"}
    (made,) = admitted(web(containers=[bare, bare | {"name": "d"}], initContainers=[bare | {"name": "i"}]), limits)
    assert made.requests.cpu_milli == 4000
    (made,) = admitted(web(containers=[bare], initContainers=[bare | {"restartPolicy": "Always"}]), limits)
    assert made.requests.cpu_milli == 4000
    elsewhere = limit_range(CONTAINER | {"defaultRequest": {"cpu": "2"}})
    elsewhere["metadata"]["namespace"] = "else"
    assert admitted(web(containers=[bare]), elsewhere)[0].requests.cpu_milli == 0
    more = limit_range(CONTAINER | {"defaultRequest": {"cpu": "3", "memory": "1Gi"}}, name="more")
    (made,) = admitted(web(containers=[bare]), more, limits)
    assert (made.requests.cpu_milli, made.requests.memory_bytes) == (2000, 1 << 30)


def test_pods_of_a_dump_are_already_admitted() -> None:
    limits = limit_range(CONTAINER | {"defaultRequest": {"memory": "2Gi"}})
    assert admitted(pod("p", on="n"), limits)[0].requests.memory_bytes == 0
    assert admitted(pod("p", at=5), limits)[0].requests.memory_bytes == 0
    assert admitted(fresh(pod("p")), limits)[0].requests.memory_bytes == 2 << 30


KEYS = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


def test_pods_get_default_not_ready_tolerations() -> None:
    lost = node("lost", taints=[{"key": key, "effect": "NoExecute"} for key in KEYS])
    (made,) = admitted(lost, web())
    assert made.constraints.tolerations == tuple(Toleration(key, "Exists", "", "NoExecute") for key in KEYS)
    own = [{"key": KEYS[0], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]
    (made,) = admitted(lost, web(tolerations=own))
    assert [each.key for each in made.constraints.tolerations] == KEYS
    (made,) = admitted(lost, web(tolerations=[{"operator": "Exists"}]))
    assert len(made.constraints.tolerations) == 1
    (made,) = admitted(node("n"), web())  # where no node has such a taint they would change nothing
    assert made.constraints.tolerations == ()


def test_invalid_classes_are_named() -> None:
    bad = {"cpu": "x"}
    assert "RuntimeClass default/kata, overhead.podFixed.cpu: 'x'" in refusal(runtime_class(overhead={"podFixed": bad}))
    assert "LimitRange default/limits, spec.limits[0].max.cpu: 'x'" in refusal(limit_range(CONTAINER | {"max": bad}))
    assert "PriorityClass default/p, globalDefault: 'yes'" in refusal(priority_class("p", 1, globalDefault="yes"))


def test_classes_beside_the_nodes_count_for_pods_of_another_file(tmp_path: Path) -> None:
    nodes = [node("n"), priority_class("high", 9), limit_range(CONTAINER | {"defaultRequest": {"memory": "1Gi"}})]
    (tmp_path / "nodes.json").write_text(json.dumps(listed(*nodes)))
    (tmp_path / "pods.json").write_text(json.dumps(listed(fresh(pod("p", priorityClassName="high")))))
    workload = load_workload(tmp_path / "nodes.json", tmp_path / "pods.json")
    assert [(each.priority, each.requests.memory_bytes) for each in workload.pods] == [(9, 1 << 30)]
    assert workload.warnings == ()
    workload = load_workload(None, tmp_path / "pods.json", partial=True)
    absent = "PriorityClass high is not in the input; its priority counts as 0 (named by Pod default/p)"
    assert workload.warnings == (f"{tmp_path}/pods.json: {absent}",)
