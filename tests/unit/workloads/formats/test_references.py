"""Custom resources whose pods other objects describe: Rollouts, Workflows, and SparkApplications in Spark's units."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cluster_dump import Object, controller, item, pod, pod_spec, read
from tests.support.errors import raises

from steersman.core.errors import InputError
from steersman.workloads.formats.kubernetes.objects import Objects
from steersman.workloads.formats.yaml_documents import Document

CONTAINER = {"image": "x", "resources": {"requests": {"cpu": "2"}}}


def counts(found: Objects) -> dict[str, int]:
    names = [each.name.rpartition("-")[0] for each in found.expanded(()).pods]
    return {name: names.count(name) for name in dict.fromkeys(names)}


def made(kind: str, spec: Any, name: str = "it", **more: Any) -> Object:
    return {
        "apiVersion": f"{'sparkoperator.k8s.io' if 'Spark' in kind else 'argoproj.io'}/v1",
        "kind": kind,
        "metadata": {"name": name, **more.pop("metadata", {})},
        "spec": spec,
    } | more


def reference(name: str, template: str, **more: Any) -> Object:
    return {"name": name, "template": template, **more}


def workload_ref(kind: str = "Deployment", **more: Any) -> Object:
    return {"replicas": 3, "workloadRef": {"apiVersion": "apps/v1", "kind": kind, "name": "web", **more}}


@pytest.mark.parametrize(
    ("scale_down", "of_deployment"),
    [({}, 2), ({"scaleDown": "never"}, 2), ({"scaleDown": "onsuccess"}, 0), ({"scaleDown": "progressively"}, 0)],
)
def test_a_rollout_has_the_template_of_the_workload_that_it_names(scale_down: Object, of_deployment: int) -> None:
    deployment = controller("Deployment", "web", replicas=2, gpus=1, at=None)
    found = read(made("Rollout", workload_ref(**scale_down)), deployment)
    pods = found.expanded(()).pods
    assert [each.requests.gpu_count for each in pods] == [1] * (3 + of_deployment)
    assert sum(each.owner == "Rollout/it" for each in pods) == 3
    assert found.warnings() == ()


def test_a_rollout_may_name_a_pod_template() -> None:
    template = item("PodTemplate", "web", template={"spec": pod_spec(1)}) | {"apiVersion": "v1"}
    found = read(template, made("Rollout", workload_ref("PodTemplate")))
    assert counts(found) == {"it": 3}
    assert found.warnings() == ()


def test_missing_reference_is_reported() -> None:
    workflow = made("Workflow", {"workflowTemplateRef": {"name": "t"}}, "flow")
    steps = [[{"name": "a", "templateRef": reference("t", "x", clusterScope=True)}, {"name": "b", "template": "own"}]]
    templates = [{"name": "main", "steps": steps}, {"name": "own", "container": CONTAINER}]
    partly = made("Workflow", {"entrypoint": "main", "templates": templates}, "partly")
    found = read(made("Rollout", workload_ref()), workflow, partly)
    assert counts(found) == {"partly-own": 1}
    assert found.warnings() == (
        "ClusterWorkflowTemplate t is not in the input; pods that it describes are left out "
        "(named by Workflow default/partly)",
        "Deployment default/web is not in the input; pods that it describes are left out (named by Rollout default/it)",
        "WorkflowTemplate default/t is not in the input; pods that it describes are left out "
        "(named by Workflow default/flow)",
    )


def test_created_objects_of_a_dump_are_counted_once() -> None:
    rollout = made("Rollout", workload_ref(), metadata={"uid": "u"})
    found = read(rollout, pod("web-1", on="n"))
    assert len(found.expanded(()).pods) == 1
    assert found.warnings() == ()


def test_a_workflow_takes_templates_of_other_objects() -> None:
    to_wide = {"name": "u", "templateRef": reference("wide", "all", clusterScope=True)}
    templates = [
        {"name": "main", "steps": [[{"name": "s", "template": "work", "withItems": [1, 2]}]]},
        {"name": "work", "container": CONTAINER},
        {"name": "call", "dag": {"tasks": [{"name": "t", "template": "work"}, to_wide]}},
    ]
    spec = {"entrypoint": "main", "nodeSelector": {"pool": "a"}, "templates": templates}
    shared = made("WorkflowTemplate", spec, "shared")
    wide = made("ClusterWorkflowTemplate", {"templates": [{"name": "all", "script": CONTAINER}]}, "wide")
    whole = made("Workflow", {"workflowTemplateRef": {"name": "shared"}}, "whole")
    calls = [[{"name": name, "templateRef": reference("shared", "call")}] for name in "ab"]
    steps = made("Workflow", {"entrypoint": "go", "templates": [{"name": "go", "steps": calls}]}, "steps")
    found = read(whole, steps, shared, wide)
    assert counts(found) == {"whole-work": 2, "steps-work": 2, "steps-all": 2}
    assert found.warnings() == ()
    of_whole = [each for each in found.expanded(()).pods if each.name.startswith("whole")]
    assert {each.constraints.node_selector for each in of_whole} == {(("pool", "a"),)}


def test_a_workflow_of_a_dump_keeps_the_spec_of_its_template() -> None:
    stored = {"entrypoint": "w", "templates": [{"name": "w", "container": CONTAINER}]}
    workflow = made("Workflow", {"workflowTemplateRef": {"name": "t"}}, status={"storedWorkflowTemplateSpec": stored})
    assert counts(read(workflow)) == {"it-w": 1}


def test_cyclic_workflows_terminate() -> None:
    def calling(kind: str, name: str, other: str) -> Object:
        step = {"name": "s", "templateRef": reference(other, "t")}
        return made(kind, {"entrypoint": "t", "templates": [{"name": "t", "steps": [[step]]}]}, name)

    templates = (calling("WorkflowTemplate", *names) for names in ("ab", "ba"))
    assert counts(read(calling("Workflow", "it", "a"), *templates)) == {}


@pytest.mark.parametrize("kind", ["CronWorkflow", "ScheduledSparkApplication"])
def test_scheduled_resources_are_reported(kind: str) -> None:
    found = read(made(kind, {"schedule": "* * * * *", "workflowSpec": {}}), pod("p"))
    (warning,) = found.warnings()
    assert warning.startswith(f"1 {kind} left out: pods come from")


SPARK: Object = {
    "type": "Scala",
    "driver": {"cores": 1, "coreLimit": "1200m", "memory": "512m", "labels": {"version": "3"}},
    "executor": {
        "cores": 2,
        "instances": 3,
        "memory": "8g",
        "gpu": {"name": "nvidia.com/gpu", "quantity": 1},
        "nodeSelector": {"pool": "gpu"},
    },
}


def test_a_spark_application_stands_for_a_driver_and_executors() -> None:
    found = read(made("SparkApplication", SPARK))
    assert counts(found) == {"it": 1, "it-exec": 3}
    driver, executor = found.expanded(()).pods[0], found.expanded(()).pods[1]
    assert (driver.requests.cpu_milli, driver.cpu_limit_milli) == (1000, 1200)
    assert driver.requests.memory_bytes == (512 + 384) << 20
    assert driver.labels["version"] == "3"
    assert [each.labels["spark-role"] for each in found.expanded(()).pods] == ["driver"] + ["executor"] * 3
    assert {each.labels["sparkoperator.k8s.io/app-name"] for each in found.expanded(()).pods} == {"it"}
    assert (executor.requests.cpu_milli, executor.requests.gpu_count) == (2000, 1)
    assert executor.requests.memory_bytes == (8192 + 819) << 20
    assert executor.constraints.node_selector == (("pool", "gpu"),)


@pytest.mark.parametrize(
    ("change", "memory", "executors"),
    [
        ({"type": "Python"}, 8192 + 3276, 3),
        ({"memoryOverheadFactor": "0.5"}, 8192 + 4096, 3),
        ({"executor": {"memory": "1024", "memoryOverhead": "1g", "instances": 0}}, None, 0),
        ({"executor": {}, "sparkConf": {"spark.executor.memory": "2gb", "spark.executor.instances": "4"}}, 2432, 4),
        ({"executor": {}, "dynamicAllocation": {"enabled": True, "initialExecutors": 2, "minExecutors": 5}}, 1408, 5),
        ({"executor": {"memoryOverhead": "1g"}}, 2048, 1),
    ],
)
def test_spark_units_of_executors_are_read(change: Object, memory: int | None, executors: int) -> None:
    pods = [each for each in read(made("SparkApplication", SPARK | change)).expanded(()).pods if "exec" in each.name]
    assert len(pods) == executors
    assert {each.requests.memory_bytes >> 20 for each in pods} == ({memory} if executors else set())


def test_spark_pod_template_is_the_base_of_its_pods() -> None:
    containers = [{"name": "x"}, {"name": "side", "resources": {"requests": {"cpu": "1"}}}]
    spec = {"tolerations": [{"operator": "Exists"}], "containers": containers}
    of_driver = {"template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}, "cores": 2}
    application = made("SparkApplication", {"driver": of_driver, "executor": {"instances": 0}})
    (driver,) = read(application).expanded(()).pods
    assert driver.requests.cpu_milli == 3000
    assert driver.labels["a"] == "b"
    assert driver.constraints.tolerations


def test_invalid_suspended_and_finished_spark_applications_are_handled() -> None:
    found = Objects([Document(made("SparkApplication", SPARK | {"driver": {"memory": "much"}}), "w.yaml", "")])
    (problem,) = found.expanded(()).problems
    with raises(InputError, "spec.driver.memory", "much"):
        raise problem
    assert read(made("SparkApplication", SPARK | {"suspend": True})).expanded(()).pods == ()
    over = made("SparkApplication", SPARK, status={"applicationState": {"state": "COMPLETED"}})
    assert read(over, item("Pod", "p", spec=pod_spec(), status={})).expanded(()).pods[0].name == "p"
