"""Custom resources make the pods that their controllers make; templates of other kinds are found by their shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster_dump import Object, controller, expanded, item, listed, node, parsed, pod, pod_spec

from steersman.workloads.formats.kubernetes.expansion import Expanded
from steersman.workloads.loading import load_workload

TEMPLATE: Object = {"metadata": {"labels": {"app": "x"}}, "spec": pod_spec(gpus=1)}


def made(kind: str, group: str, spec: Any, **metadata: Any) -> Object:
    content = item(kind, "it", spec=spec) | {"apiVersion": f"{group}/v1"}
    return content | {"metadata": {"name": "it", "namespace": "default", **metadata}}


def counts(result: Expanded) -> dict[str, int]:
    """Pods by their name without its number."""
    names = [each.name.rpartition("-")[0] for each in result.pods]
    return {name: names.count(name) for name in dict.fromkeys(names)}


RAY = {
    "headGroupSpec": {"rayStartParams": {}, "template": TEMPLATE},
    "workerGroupSpecs": [
        {"groupName": "small", "replicas": 3, "template": TEMPLATE},
        {"groupName": "Large", "replicas": 2, "numOfHosts": 4, "template": TEMPLATE},
        {"groupName": "later", "minReplicas": 1, "maxReplicas": 9, "template": TEMPLATE},
        {"groupName": "none", "template": TEMPLATE},
    ],
}
RAY_PODS = {"it-head": 1, "it-small-worker": 3, "it-large-worker": 8, "it-later-worker": 1}
RAY_PODS_BELOW = {name.replace("it-", "it-0001-"): count for name, count in RAY_PODS.items()}
ROLES = {"Master": {"template": TEMPLATE}, "Worker": {"replicas": 3, "template": TEMPLATE}}
JOB_OF_SET = {"spec": {"parallelism": 2, "completions": 2, "template": TEMPLATE}}
KINDS: dict[str, tuple[str, Any, dict[str, int]]] = {
    "RayCluster": ("ray.io", RAY, RAY_PODS),
    "RayJob": ("ray.io", {"rayClusterSpec": RAY, "submitterPodTemplate": TEMPLATE}, RAY_PODS_BELOW | {"it": 1}),
    "RayService": ("ray.io", {"serveConfigV2": "", "rayClusterConfig": RAY}, RAY_PODS_BELOW),
    "PyTorchJob": ("kubeflow.org", {"pytorchReplicaSpecs": ROLES}, {"it-master": 1, "it-worker": 3}),
    "MPIJob": (
        "kubeflow.org",
        {"mpiReplicaSpecs": {"Launcher": {"template": TEMPLATE}, "Worker": {"replicas": 2, "template": TEMPLATE}}},
        {"it": 1, "it-worker": 2},
    ),
    "JobSet": (
        "jobset.x-k8s.io",
        {
            "replicatedJobs": [
                {"name": "driver", "template": {"spec": {"template": TEMPLATE}}},
                {"name": "workers", "replicas": 3, "template": JOB_OF_SET},
            ]
        },
        {"it-driver-0": 1} | {f"it-workers-{i}": 2 for i in range(3)},
    ),
    "Job": (
        "batch.volcano.sh",
        {"tasks": [{"name": name, "replicas": count, "template": TEMPLATE} for name, count in (("ps", 1), ("w", 2))]},
        {"it-ps": 1, "it-w": 2},
    ),
    "Rollout": ("argoproj.io", {"replicas": 2, "template": TEMPLATE, "strategy": {"canary": {"steps": []}}}, {"it": 2}),
    "CloneSet": ("apps.kruise.io", {"template": TEMPLATE}, {"it": 1}),
    "DeploymentConfig": ("apps.openshift.io", {"replicas": 2, "selector": {}, "template": TEMPLATE}, {"it": 2}),
    "Notebook": ("kubeflow.org", {"template": TEMPLATE}, {"it": 1}),
    "Elasticsearch": (
        "elasticsearch.k8s.elastic.co",
        {"nodeSets": [{"name": each, "count": n, "podTemplate": TEMPLATE} for each, n in (("hot", 3), ("warm", 2))]},
        {"it-hot": 3, "it-warm": 2},
    ),
    "Training": ("example.com", {"numWorkers": 4, "worker": {"template": TEMPLATE}}, {"it": 4}),
    "Gang": ("example.com", {"minMember": 5, "template": TEMPLATE}, {"it": 5}),
    "Service": ("serving.knative.dev", {"template": TEMPLATE}, {"it-00001-deployment": 1}),
    "Empty": ("example.com", {"replicas": 0, "template": TEMPLATE}, {}),
    "Text": ("example.com", {"size": "10Gi", "template": TEMPLATE}, {"it": 1}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_templates_make_their_number_of_pods(kind: str) -> None:
    group, spec, expected = KINDS[kind]
    result = expanded(made(kind, group, spec))
    assert counts(result) == expected
    assert {each.owner for each in result.pods} == ({f"{kind}/it"} if expected else set())
    assert {each.requests.gpu_count for each in result.pods} == ({1} if expected else set())
    assert len(set(result.owners.values())) == bool(expected)


@pytest.mark.parametrize("leader", [False, True])
def test_groups_of_a_leader_worker_set(leader: bool) -> None:
    templates = {"size": 4, "workerTemplate": TEMPLATE}
    templates |= {"leaderTemplate": {"spec": pod_spec(cpu="2")}} if leader else {}
    spec = {"replicas": 2, "leaderWorkerTemplate": templates}
    result = expanded(made("LeaderWorkerSet", "leaderworkerset.x-k8s.io", spec))
    assert counts(result) == {"it": 2, "it-0": 3, "it-1": 3}
    assert {each.requests.cpu_milli for each in result.pods if each.name in ("it-0", "it-1")} == {1000 + 1000 * leader}


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("PyTorchJob", {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": ROLES}),
        ("JobSet", {"suspend": True, "replicatedJobs": [{"name": "w", "template": JOB_OF_SET}]}),
        ("CronWorkflow", {"schedule": "* * * * *", "template": TEMPLATE}),
        ("ScheduledThing", {"template": TEMPLATE}),
        ("CronTab", {"jobTemplate": {"spec": {"template": TEMPLATE}}}),
        ("PodTemplate", {"template": TEMPLATE}),
        ("TrainingRuntime", {"template": TEMPLATE}),
    ],
)
def test_inactive_resources_make_no_pods(kind: str, spec: Object) -> None:
    assert expanded(made(kind, "example.com", spec)).pods == ()


def test_objects_repeated_by_queues_are_counted_once() -> None:
    pod_sets = [{"name": "main", "count": 3, "template": TEMPLATE}]
    workload = made("Workload", "kueue.x-k8s.io", {"podSets": pod_sets})
    assert expanded(workload | {"apiVersion": "kueue.x-k8s.io/v1beta1"}, pod("p")).suspended == 0
    assert len(expanded(workload, pod("p")).pods) == 1


def test_minimum_scale_of_a_template_is_honoured() -> None:
    service = made("Service", "serving.knative.dev", {"template": TEMPLATE})
    scaled = {**TEMPLATE, "metadata": {"annotations": {"autoscaling.knative.dev/min-scale": "3"}}}
    assert len(expanded(service).pods) == 1
    assert len(expanded(made("Service", "serving.knative.dev", {"template": scaled})).pods) == 3


def test_unknown_workload_kinds_are_reported() -> None:
    model = {"predictor": {"model": {"resources": {"limits": {"nvidia.com/gpu": "1"}}}}}
    found = parsed(made("Predictor", "example.com", model), pod("p"))
    assert found.warnings() == ("pods of these kinds are not known and left out: Predictor 1",)
    claim = {"resources": {"requests": {"storage": "1Gi"}}}
    service = made("Predictor", "example.com", model, uid="u")
    for other in (made("StorageBucket", "example.com", claim), service):
        found = parsed(other, pod("p"))
        assert found.warnings() == (
            f"ignored objects that are neither nodes nor pods nor make pods: {other['kind']} 1",
        )


def test_resource_with_created_objects_is_counted_once() -> None:
    """What it made counts itself: pods, and controllers with pods that are missing."""
    rollout = made("Rollout", "argoproj.io", {"replicas": 3, "template": TEMPLATE}, uid="u")
    replica_set = controller("ReplicaSet", "it-1", owner=rollout, replicas=3)
    there = pod("it-1-a", replica_set, on="n")
    result = expanded(rollout, replica_set, there)
    assert [each.name for each in result.pods] == ["it-1-a", "it-1-0002", "it-1-0003"]
    assert set(result.owners.values()) == {("Rollout", "default", "it")}
    training = made("PyTorchJob", "kubeflow.org", {"pytorchReplicaSpecs": ROLES}, uid="u")
    assert len(expanded(training, pod("it-master-0", training, on="n")).pods) == 1


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Succeeded"},
        {"jobStatus": "FAILED"},
        {"state": {"phase": "Completed"}},
        {"conditions": [{"type": "Succeeded", "status": "True"}]},
    ],
)
def test_finished_resource_makes_no_pods(status: Object) -> None:
    training = made("PyTorchJob", "kubeflow.org", {"pytorchReplicaSpecs": ROLES}) | {"status": status}
    assert expanded(training).pods == ()


def test_a_resource_of_a_dump_has_made_its_pods() -> None:
    """Also where what is between it and them is not in the dump, and where it says that it is complete."""
    status = {"conditions": [{"type": "Completed", "status": "True"}]}
    rollout = made("Rollout", "argoproj.io", {"replicas": 3, "template": TEMPLATE}, uid="u") | {"status": status}
    replica_set = controller("ReplicaSet", "it-1", owner=rollout)
    assert len(expanded(rollout, pod("it-1-a", replica_set, on="n")).pods) == 1
    assert len(expanded(rollout).pods) == 3


def test_a_resource_that_is_taken_to_have_ended_is_named() -> None:
    """A dump's Pods are all that there are: what has none among them has ended, and is not left out in silence."""
    training = made("PyTorchJob", "kubeflow.org", {"pytorchReplicaSpecs": ROLES}, uid="u")
    other = pod("other", on="n") | {"metadata": pod("other", on="n")["metadata"] | {"uid": "p"}}
    result = expanded(training, other)
    assert [each.name for each in result.pods] == ["other"]
    (warning,) = result.warnings
    assert warning == "no Pod belongs to PyTorchJob it, and others of the namespace exist: taken to have ended"
    bucket = made("StorageBucket", "example.com", {"resources": {"requests": {"storage": "1Gi"}}}, uid="b")
    assert expanded(bucket, other).warnings == ()


def step(template: str, **more: Any) -> Object:
    return {"name": template, "template": template, **more}


def test_an_argo_workflow_stands_for_the_pods_that_it_runs() -> None:
    container = {"image": "x", "resources": {"requests": {"cpu": "2"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "rack"}]}}
    main: Object = {"name": "main", "steps": [[step("prepare")], [step("fan", withItems=[1, 2, 3]), step("twice")]]}
    spec: Object = {
        "entrypoint": "main",
        "onExit": "notify",
        "nodeSelector": {"pool": "batch"},
        "affinity": affinity,
        "podPriorityClassName": "system-node-critical",
        "templates": [
            main,
            {"name": "prepare", "container": container},
            {"name": "fan", "dag": {"tasks": [step("work"), step("work", withSequence={"count": "4"})]}},
            {"name": "twice", "steps": [[step("work", withParam="{{x}}")], [step("twice", when="{{again}}")]]},
            {"name": "work", "script": container, "nodeSelector": {"pool": "gpu"}, "sidecars": [container]},
            {"name": "unused", "container": container},
            {"name": "notify", "containerSet": {"containers": [container, container]}},
            {"name": "approve", "suspend": {}},
        ],
    }
    del main["steps"][1][1]
    result = expanded(made("Workflow", "argoproj.io", spec))
    assert counts(result) == {"it-prepare": 1, "it-work": 15, "it-notify": 1}
    assert {each.labels["workflows.argoproj.io/workflow"] for each in result.pods} == {"it"}
    pods = {each.name: each for each in result.pods}
    assert {len(each.constraints.anti_affinity) for each in result.pods} == {1}
    assert {each.priority for each in result.pods} == {2_000_001_000}
    assert pods["it-prepare-0001"].constraints.node_selector == (("pool", "batch"),)
    assert pods["it-work-0001"].constraints.node_selector == (("pool", "gpu"),)
    assert [pods[f"it-{name}-0001"].requests.cpu_milli for name in ("prepare", "work", "notify")] == [2000, 4000, 4000]
    main["steps"][1].append(step("twice"))  # it calls itself: as often as templates are followed
    assert 16 < counts(expanded(made("Workflow", "argoproj.io", spec)))["it-work"] < 50
    assert expanded(made("Workflow", "argoproj.io", spec | {"suspend": True})).pods == ()
    assert expanded(made("WorkflowTemplate", "argoproj.io", spec)).pods == ()


def test_the_sentence_and_errors_name_the_kinds(tmp_path: Path) -> None:
    template = {"spec": {"containers": [{"resources": 5}]}}
    bad = made("MPIJob", "kubeflow.org", {"mpiReplicaSpecs": {"Worker": {"template": template}}})
    rollout = made("Rollout", "argoproj.io", {"replicas": 2, "template": TEMPLATE})
    rollout["metadata"]["namespace"] = "web"
    (tmp_path / "w.json").write_text(json.dumps(listed(node("n"), bad, rollout)))
    workload = load_workload(tmp_path / "w.json", None)
    assert "2 from templates in custom resources (Rollout 2)" in workload.understood
    assert [each.namespace for each in workload.pods] == ["web", "web"]
    (warning,) = workload.warnings
    path = "spec.mpiReplicaSpecs.Worker.template.spec.containers[0].resources"
    assert f"items[1], MPIJob default/it, {path}: must be a mapping" in warning


def test_an_autoscaler_scales_them_too() -> None:
    target = {"apiVersion": "argoproj.io/v1", "kind": "Rollout", "name": "it"}
    scaler = item("HorizontalPodAutoscaler", "s", spec={"scaleTargetRef": target, "minReplicas": 4, "maxReplicas": 9})
    rollout = made("Rollout", "argoproj.io", {"template": TEMPLATE})
    assert len(expanded(rollout, scaler | {"apiVersion": "autoscaling/v2"}).pods) == 4


@pytest.mark.parametrize("key", ["helm.sh/hook", "argocd.argoproj.io/hook"])
def test_hooks_are_left_out_unless_running(key: str) -> None:
    test, cleanup = pod("test"), controller("Job", "cleanup", at=None)
    for each, when in ((test, "test"), (cleanup, "pre-delete,post-delete")):
        each["metadata"] = {"name": each["metadata"]["name"], "annotations": {key: when}}
    found = parsed(test, cleanup, controller("Deployment", "app"))
    assert [each.name for each in found.expanded(()).pods] == ["app-0001"]
    left_out = "Pod default/test (test), Job default/cleanup (pre-delete,post-delete)"
    assert found.warnings() == (f"hooks do not run with the rest and are left out: {left_out}",)
    running = pod("test", on="n", metadata={"annotations": {key: "test"}})
    assert len(expanded(running).pods) == 1


@pytest.mark.parametrize("operator", ["Lt", "Gt"])
def test_numeric_tolerations_tolerate_nothing(tmp_path: Path, operator: str) -> None:
    toleration = {"key": "rate", "operator": operator, "value": "50", "effect": "NoSchedule"}
    spot = node("spot", taints=[{"key": "rate", "value": "20", "effect": "NoSchedule"}])
    (tmp_path / "w.json").write_text(json.dumps(listed(spot, pod("p", tolerations=[toleration]), pod("q"))))
    workload = load_workload(tmp_path / "w.json", None)
    assert [each.constraints.tolerations for each in workload.pods] != [(), ()]
    assert not workload.eligible.any()
    assert "tolerations by Lt and Gt tolerate nothing" in workload.warnings[0]
