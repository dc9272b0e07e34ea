"""Custom resources of the table: pods, labels, amounts and placement rules are those that their controllers give."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from jinja2 import UndefinedError
from msgspec import structs
from tests.support.cluster_dump import Object, controller, expanded, item, node, parsed, pod, pod_spec, read
from tests.support.errors import raises

from steersman.cluster.model import Pod
from steersman.cluster.objects.fields import FieldError
from steersman.core.errors import InputError
from steersman.workloads.formats.kubernetes import custom_resources
from steersman.workloads.formats.kubernetes.controllers import CONTROLLERS
from steersman.workloads.formats.kubernetes.custom_resources import text, value
from steersman.workloads.formats.kubernetes.unpacking import ResourceRow, resource_table

TEMPLATE: Object = {"spec": pod_spec(gpus=1)}
GPU = "nvidia.com/gpu"
GPUS = {"limits": {"cpu": "4", "memory": "16Gi", GPU: "2"}}


def made(version: str, kind: str, spec: Any, name: str = "it", **more: Any) -> Object:
    metadata = {"name": name, "namespace": "team", **more.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, **more}


def pods_of(*content: Object) -> dict[str, Pod]:
    return {each.name: each for each in expanded(*content).pods}


def amounts(every: dict[str, Pod]) -> dict[str, tuple[int, int, int]]:
    """CPU in milli, memory in MiB and GPUs by name."""
    return {
        name: (each.requests.cpu_milli, each.requests.memory_bytes >> 20, each.requests.gpu_count)
        for name, each in every.items()
    }


ROLES: Object = {"Master": {"template": TEMPLATE}, "Worker": {"replicas": 2, "template": TEMPLATE}}
JOB_SET: Object = {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": TEMPLATE}}}]}
JOB_SET["replicatedJobs"].append(
    {"name": "b", "replicas": 2, "template": {"spec": {"parallelism": 2, "completions": 2, "template": TEMPLATE}}}
)
LWS: Object = {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": TEMPLATE}}
MPI_WORKER: Object = {"runLauncherAsWorker": True, "mpiReplicaSpecs": {"Worker": {"template": TEMPLATE}}}
RAY_GROUP: Object = {"groupName": "g", "replicas": 1, "template": TEMPLATE}
CLIQUES: Object = {"replicas": 2, "template": {"cliques": [{"name": "c", "spec": {"podSpec": pod_spec()}}]}}
RESOURCES: dict[str, tuple[str, str, Any]] = {
    "pytorch": ("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": ROLES}),
    "xgboost": ("kubeflow.org/v1", "XGBoostJob", {"xgbReplicaSpecs": ROLES}),
    "mpi": ("kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": {"Launcher": {"template": TEMPLATE}}}),
    "mpi-worker": ("kubeflow.org/v2beta1", "MPIJob", MPI_WORKER),
    "jobset": ("jobset.x-k8s.io/v1alpha2", "JobSet", JOB_SET),
    "lws": ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", LWS),
    "ray": ("ray.io/v1", "RayService", {"rayClusterConfig": {"workerGroupSpecs": [RAY_GROUP]}}),
    "volcano": (
        "batch.volcano.sh/v1alpha1",
        "Job",
        {"tasks": [{"replicas": 2, "template": TEMPLATE}], "queue": "gold"},
    ),
    "knative": ("serving.knative.dev/v1", "Service", {"template": TEMPLATE}),
    "notebook": ("kubeflow.org/v1", "Notebook", {"template": TEMPLATE}),
    "spark": ("sparkoperator.k8s.io/v1beta2", "SparkApplication", {"executor": {"instances": 2}}),
    "clique": ("grove.io/v1alpha1", "PodCliqueSet", CLIQUES),
}
LABELS = """
pytorch    it-master-0              training.kubeflow.org/ job-role=master operator-name=pytorchjob-controller
xgboost    it-worker-1              training.kubeflow.org/ replica-type=worker replica-index=1 job-name=it
mpi        it-launcher-0001         training.kubeflow.org/ job-role=launcher
mpi        it-launcher-0001         batch.kubernetes.io/ job-name=it-launcher
mpi-worker it-worker-0              training.kubeflow.org/ replica-index=1 job-name=it
jobset     it-b-1-0                 jobset.sigs.k8s.io/ replicatedjob-name=b job-index=1
jobset     it-b-1-0                 jobset.sigs.k8s.io/ job-global-index=2 global-replicas=3
jobset     it-b-1-0                 batch.kubernetes.io/ job-name=it-b-1 job-completion-index=0
lws        it-1                     leaderworkerset.sigs.k8s.io/ name=it group-index=1 worker-index=0
lws        it-1-2                   leaderworkerset.sigs.k8s.io/ worker-index=2
lws        it-1-2                   statefulset.kubernetes.io/ pod-name=it-1-2
ray        it-0001-g-worker-0001    ray.io/ group=g node-type=worker cluster=it-0001
volcano    it-default0-1            volcano.sh/ job-name=it task-spec=default0 task-index=1 queue-name=gold
knative    it-00001-deployment-0001 serving.knative.dev/ revision=it-00001 configuration=it
notebook   it-0                     notebook- name=it
notebook   it-0                     apps.kubernetes.io/ pod-index=0
spark      it-exec-2                spark- role=executor exec-id=2
clique     it-1-c-0                 grove.io/ podclique=it-1-c podgang=it-1
clique     it-1-c-0                 app.kubernetes.io/ part-of=it
"""


@pytest.mark.parametrize("line", LABELS.strip().splitlines())
def test_pods_have_the_labels_of_their_controller(line: str) -> None:
    case, name, prefix, *labels = line.split()
    found = pods_of(made(*RESOURCES[case]))[name].labels
    for each in labels:
        key, _, value = each.partition("=")
        assert found.get(f"{prefix}{key}") == value


def test_jobs_of_a_set_have_exclusive_domains() -> None:
    """Each pod requires its own Job in its domain and no other Job's pods there."""
    key = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    every = pods_of(made("jobset.x-k8s.io/v1alpha2", "JobSet", JOB_SET, metadata={"annotations": {key: "rack"}}))
    affine, opposed = every["it-b-1-1"].constraints.affinity[0], every["it-b-1-1"].constraints.anti_affinity[0]
    own = every["it-b-1-0"].labels["jobset.sigs.k8s.io/job-key"]
    assert own != every["it-b-0-0"].labels["jobset.sigs.k8s.io/job-key"]
    assert (affine.topology_key, affine.selector.namespaces) == ("rack", None)
    assert [(each.operator, each.values) for each in affine.selector.requirements or ()] == [("In", (own,))]
    refused = {each.operator: each.values for each in opposed.selector.requirements or ()}
    assert refused == {"Exists": (), "NotIn": (own,)}
    first, second = JOB_SET["replicatedJobs"]
    first = {**first, "template": {**first["template"], "metadata": {"annotations": {key: "zone"}}}}
    inner = made("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [first, second]})
    assert [len(each.constraints.affinity) for each in expanded(inner).pods] == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("key", ["exclusive-topology", "subgroup-exclusive-topology"])
def test_groups_of_a_leader_worker_set_have_exclusive_domains(key: str) -> None:
    spec: Object = {"replicas": 1, "leaderWorkerTemplate": {**LWS["leaderWorkerTemplate"], "size": 4}}
    spec["leaderWorkerTemplate"] |= {"subGroupPolicy": {"subGroupSize": 2}}
    notes = {f"leaderworkerset.sigs.k8s.io/{key}": "rack"}
    every = pods_of(made("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec, metadata={"annotations": notes}))
    groups = {each.constraints.affinity[0].selector for each in every.values()}
    assert len(groups) == (2 if key.startswith("sub") else 1)
    numbers = [each.labels["leaderworkerset.sigs.k8s.io/subgroup-index"] for each in every.values()]
    assert numbers == ["0", "0", "1", "1"]


def runtime(kind: str = "ClusterTrainingRuntime", **policy: Any) -> Object:
    def job(name: str, container: str, **labels: str) -> Object:
        template = {"spec": {"containers": [{"name": container, "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
        return {"name": name, "template": {"metadata": {"labels": labels}, "spec": {"template": template}}}

    jobs = [job("load", "load"), job("node", "node", **{"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"})]
    jobs += [job("launcher", "node")] if "mpi" in policy else []
    spec = {"mlPolicy": {"numNodes": 3, **policy}, "template": {"spec": {"replicatedJobs": jobs}}}
    return made("trainer.kubeflow.org/v1alpha1", kind, spec, "torch")


def train_job(**spec: Any) -> Object:
    return made("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": "torch"}, **spec}, "llm")


def test_a_train_job_runs_what_its_runtime_describes() -> None:
    every = pods_of(runtime(), train_job())
    assert amounts(every) == {"llm-load-0-0": (0, 0, 1), **{f"llm-node-0-{i}": (0, 0, 1) for i in range(3)}}
    assert every["llm-node-0-2"].labels["jobset.sigs.k8s.io/jobset-name"] == "llm"
    assert read(runtime(), train_job()).warnings() == ()


def test_a_train_job_overrides_its_runtime() -> None:
    trainer = {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "8"}, "limits": {"nvidia.com/gpu": 4}}}
    override = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"pool": "a"}}}
    kind = {"name": "torch", "kind": "TrainingRuntime"}
    local = train_job(runtimeRef=kind, trainer=trainer, podTemplateOverrides=[override])
    every = pods_of(runtime("TrainingRuntime"), local)
    assert amounts(every) == {"llm-load-0-0": (0, 0, 1), **{f"llm-node-0-{i}": (8000, 0, 4) for i in range(2)}}
    assert [each.constraints.node_selector for each in every.values()] == [(), *[(("pool", "a"),)] * 2]
    launched = pods_of(runtime(mpi={"runLauncherAsNode": True}), train_job(trainer={"numNodes": 4}))
    assert sorted(launched) == ["llm-launcher-0-0", "llm-load-0-0", *(f"llm-node-0-{i}" for i in range(3))]


def test_inactive_train_jobs_make_no_pods() -> None:
    assert expanded(runtime(), train_job(suspend=True), pod("p")).suspended == 4
    over = train_job() | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    assert len(expanded(runtime(), over, pod("p")).pods) == 1
    found = read(train_job(), pod("p"))
    assert len(found.expanded(()).pods) == 1
    (warning,) = found.warnings()
    assert warning.startswith("ClusterTrainingRuntime torch is not in the input")


def test_parts_of_an_inference_service_are_deployments() -> None:
    containers = [{"name": "kserve-container", "resources": {"requests": {"memory": "1Gi"}}}, {"name": "side"}]
    spec = {
        "predictor": {"minReplicas": 3, "model": {"runtime": "vllm", "resources": GPUS}, "nodeSelector": {"a": "b"}},
        "transformer": {"containers": [{"name": "t", "resources": {"requests": {"cpu": "500m"}}}], "minReplicas": 0},
    }
    serving = made("serving.kserve.io/v1alpha1", "ServingRuntime", {"containers": containers}, "vllm")
    every = pods_of(serving, made("serving.kserve.io/v1beta1", "InferenceService", spec))
    predictors = {f"it-predictor-000{i}": (4000, 1024, 2) for i in (1, 2, 3)}
    assert amounts(every) == {**predictors, "it-transformer-0001": (500, 0, 0)}
    assert every["it-predictor-0002"].constraints.node_selector == (("a", "b"),)
    assert every["it-transformer-0001"].labels["component"] == "transformer"
    plain = made("serving.kserve.io/v1beta1", "InferenceService", {"predictor": {"sklearn": {"storageUri": "x"}}})
    assert amounts(pods_of(plain)) == {"it-predictor-0001": (1000, 2048, 0)}
    stopped = plain | {"metadata": {"name": "it", "annotations": {"serving.kserve.io/stop": "true"}}}
    assert pods_of(stopped, pod("p")).keys() == {"p"}


def test_workers_of_an_inference_service_are_further_pods() -> None:
    spec = {
        "predictor": {
            "model": {"resources": GPUS},
            "workerSpec": {"pipelineParallelSize": 3, "containers": [{"name": "w", "resources": GPUS}]},
        }
    }
    every = pods_of(made("serving.kserve.io/v1beta1", "InferenceService", spec))
    assert sorted(every) == ["it-predictor-0001", "it-predictor-worker-0001", "it-predictor-worker-0002"]
    assert {each.requests.gpu_count for each in every.values()} == {2}


def test_roles_of_an_llm_inference_service() -> None:
    container = {"containers": [{"name": "main", "resources": GPUS}]}
    parallelism = {"data": 8, "dataLocal": 4}
    spec = {
        "replicas": 2,
        "template": container,
        "prefill": {"replicas": 1, "parallelism": parallelism, "template": container, "worker": container},
        "router": {"scheduler": {"template": {"containers": [{"name": "epp"}]}}},
    }
    every = pods_of(made("serving.kserve.io/v1alpha1", "LLMInferenceService", spec))
    assert sorted(every) == [
        "it-kserve-0001",
        "it-kserve-0002",
        "it-kserve-mn-prefill-0",
        "it-kserve-mn-prefill-0-1",
        "it-kserve-router-scheduler-0001",
    ]
    assert every["it-kserve-0001"].labels["llm-d.ai/role"] == "decode"
    assert every["it-kserve-mn-prefill-0-1"].labels["leaderworkerset.sigs.k8s.io/worker-index"] == "1"


def test_scaling_groups_multiply_their_cliques() -> None:
    sizes = {"route": 1, "lead": 1, "work": 2}
    cliques = [{"name": name, "spec": {"replicas": n, "podSpec": pod_spec(n)}} for name, n in sizes.items()]
    groups = [{"name": "g", "replicas": 2, "minAvailable": 1, "cliqueNames": ["lead", "work"]}]
    spec = {"replicas": 1, "template": {"cliques": cliques, "podCliqueScalingGroups": groups}}
    every = pods_of(made("grove.io/v1alpha1", "PodCliqueSet", spec))
    work = [f"it-0-g-{group}-work-{i}" for group in (0, 1) for i in (0, 1)]
    assert sorted(every) == sorted(["it-0-route-0", "it-0-g-0-lead-0", "it-0-g-1-lead-0", *work])
    assert [every[f"it-0-g-{i}-work-1"].labels["grove.io/podgang"] for i in (0, 1)] == ["it-0", "it-0-g-0"]


def test_services_of_a_dynamo_graph() -> None:
    services = {
        "Frontend": {"componentType": "frontend", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}},
        "Worker": {
            "replicas": 2,
            "multinode": {"nodeCount": 2},
            "resources": {"limits": {"gpu": "8"}},
            "extraPodSpec": {"nodeSelector": {"a": "b"}, "mainContainer": {"resources": {"requests": {"cpu": "3"}}}},
        },
        "Off": {"replicas": 0},
        "Small": {"resources": {"requests": {"gpu": "1"}}},
    }
    every = pods_of(made("nvidia.com/v1alpha1", "DynamoGraphDeployment", {"services": services}))
    workers = {f"it-worker-000{i}": (3000, 0, 8) for i in (1, 2, 3, 4)}
    assert amounts(every) == {"it-frontend-0001": (2000, 4096, 0), **workers, "it-small-0001": (0, 0, 1)}
    assert every["it-worker-0001"].constraints.node_selector == (("a", "b"),)
    assert every["it-worker-0001"].labels["nvidia.com/dynamo-component"] == "Worker"
    components = [{"name": "decode", "type": "decode", "replicas": 2, "podTemplate": TEMPLATE}]
    assert len(pods_of(made("nvidia.com/v1beta1", "DynamoGraphDeployment", {"components": components}))) == 2


def machine(domain: Object, kind: str = "VirtualMachine", **spec: Any) -> Object:
    return made("kubevirt.io/v1", kind, {"template": {"spec": {"domain": domain}}, **spec}, "vm")


@pytest.mark.parametrize(
    ("domain", "cpu", "memory"),
    [
        ({"cpu": {"cores": 2, "sockets": 2, "threads": 2}, "memory": {"guest": "4Gi"}}, 800, 4096 + 8 + 220 + 88),
        ({"resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}, 3000, 1024 + 2 + 220 + 24 + 8 + 16),
        ({"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}, 2000, 1024 + 2 + 220 + 16 + 8 + 16),
        ({"cpu": {"cores": 4, "dedicatedCpuPlacement": True}, "memory": {"guest": "1Gi"}}, 4000, 1270 + 32 + 100),
        ({"memory": {"guest": "1Gi"}, "devices": {"hostDevices": [{"deviceName": GPU}]}}, 100, 1270 + 8 + 1024),
    ],
)
def test_a_virtual_machine_runs_in_one_pod(domain: Object, cpu: int, memory: int) -> None:
    devices = len(domain.get("devices", {}).get("hostDevices", ()))
    assert amounts(pods_of(machine(domain, running=True))) == {"virt-launcher-vm-0001": (cpu, memory, devices)}


def test_instance_types_and_states_of_virtual_machines() -> None:
    kind = {"cpu": {"guest": 8}, "memory": {"guest": "2Gi"}, "gpus": [{"name": "a", "deviceName": GPU}] * 2}
    big = made("instancetype.kubevirt.io/v1beta1", "VirtualMachineClusterInstancetype", kind, "big")
    every = pods_of(big, machine({}, instancetype={"name": "big"}, runStrategy="Always"))
    assert every["virt-launcher-vm-0001"].requests.gpu_count == 2
    assert every["virt-launcher-vm-0001"].requests.cpu_milli == 800
    assert every["virt-launcher-vm-0001"].labels["vm.kubevirt.io/name"] == "vm"
    off = [machine({}, running=False), machine({}, runStrategy="Halted") | {"metadata": {"name": "b"}}]
    assert pods_of(*off, pod("p")).keys() == {"p"}
    assert read(*off, pod("p")).warnings() == ()
    (warning,) = read(machine({}, instancetype={"name": "big"}), pod("p")).warnings()
    assert warning.startswith("VirtualMachineClusterInstancetype big is not in the input")
    instance = made("kubevirt.io/v1", "VirtualMachineInstance", {"domain": {"cpu": {"cores": 5}}}, "vm")
    assert amounts(pods_of(instance))["virt-launcher-vm-0001"][0] == 500
    many = machine({}, "VirtualMachineInstanceReplicaSet", replicas=3)
    assert len(pods_of(many)) == 3


def test_tasks_of_a_pipeline_are_pods() -> None:
    one, two = ({"requests": {"cpu": cpu}} for cpu in "12")
    steps = [{"name": "a", "computeResources": one}, {"name": "b", "resources": two}]
    task = made("tekton.dev/v1", "Task", {"steps": steps}, "build")
    pipeline = {
        "tasks": [{"name": "one", "taskRef": {"name": "build"}}],
        "finally": [{"name": "end", "taskSpec": {"steps": [{"name": "s"}]}}],
    }
    run = made("tekton.dev/v1", "PipelineRun", {"pipelineSpec": pipeline})
    every = pods_of(task, run)
    assert amounts(every) == {"it-one-pod": (3000, 0, 0), "it-end-pod": (0, 0, 0)}
    assert every["it-one-pod"].labels["tekton.dev/pipelineTask"] == "one"
    spec = {"taskRef": {"name": "build"}, "computeResources": {"requests": {"cpu": "5"}}}
    single = made("tekton.dev/v1", "TaskRun", spec)
    assert amounts(pods_of(task, single)) == {"it-pod": (5000, 0, 0)}
    failed = single | {"status": {"conditions": [{"type": "Succeeded", "status": "False"}]}}
    waiting = run | {"spec": {**run["spec"], "status": "PipelineRunPending"}}
    result = expanded(task, failed, waiting, pod("p"))
    assert ([each.name for each in result.pods], result.suspended) == (["p"], 2)


@pytest.mark.parametrize("case", ["pytorch", "jobset", "ray-job"])
def test_resources_of_other_managers_make_no_pods(case: str) -> None:
    version, kind, spec = RESOURCES.get(case, ("ray.io/v1", "RayJob", {"rayClusterSpec": {}}))
    elsewhere = {"managedBy": "kueue.x-k8s.io/multikueue"}
    managed = made(version, kind, {**spec, **({"runPolicy": elsewhere} if kind == "PyTorchJob" else elsewhere)})
    assert pods_of(managed, pod("p")).keys() == {"p"}


def test_running_services_with_ended_conditions_keep_their_pods() -> None:
    status = {"conditions": [{"type": "Terminated", "status": "True"}], "state": "failed"}
    for version, kind, spec in (
        ("kubeflow.org/v1", "Notebook", {"template": TEMPLATE}),
        ("ray.io/v1", "RayCluster", {"headGroupSpec": {"template": TEMPLATE}}),
    ):
        assert len(pods_of(made(version, kind, spec, status=status))) == 1


def test_stopped_notebooks_have_no_pods() -> None:
    notes = {"annotations": {"kubeflow-resource-stopped": "2026-01-01T00:00:00Z"}}
    off = made("kubeflow.org/v1", "Notebook", {"template": TEMPLATE}, metadata=notes)
    assert pods_of(off, pod("p")).keys() == {"p"}
    assert read(off, pod("p")).warnings() == ()


def test_sidecars_of_controllers_request_resources() -> None:
    service = made("serving.knative.dev/v1", "Service", {"template": TEMPLATE})
    assert amounts(pods_of(service))["it-00001-deployment-0001"] == (1025, 0, 1)
    head = {"headGroupSpec": {"template": TEMPLATE}, "enableInTreeAutoscaling": True}
    assert amounts(pods_of(made("ray.io/v1", "RayCluster", head))) == {"it-head-0001": (1500, 512, 1)}
    job = made("ray.io/v1", "RayJob", {"rayClusterSpec": {"headGroupSpec": {"template": TEMPLATE}}})
    assert amounts(pods_of(job))["it-0001"] == (500, 200, 0)
    by_http = job | {"spec": {**job["spec"], "submissionMode": "HTTPMode"}}
    assert pods_of(by_http).keys() == {"it-0001-head-0001"}


def test_suspended_worker_groups_have_no_pods() -> None:
    groups = [{"groupName": "a", "replicas": 2, "suspend": True, "template": TEMPLATE}]
    assert pods_of(made("ray.io/v1", "RayCluster", {"workerGroupSpecs": groups}), pod("p")).keys() == {"p"}


def test_a_kind_of_another_group_is_read_by_its_shape() -> None:
    every = pods_of(made("example.com/v1", "JobSet", {"workers": {"replicas": 2, "template": TEMPLATE}}))
    assert [each.labels for each in every.values()] == [{}, {}]


def test_errors_name_the_field_of_the_resource() -> None:
    bad = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "much"}}}]}}
    jobs = {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": bad}}}]}
    inner = "template.spec.containers[0]"
    for content, field in (
        (made("jobset.x-k8s.io/v1alpha2", "JobSet", jobs), f"spec.replicatedJobs[0].template.spec.{inner}"),
        (made("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"template": bad}]}), f"spec.tasks[0].{inner}"),
        (made("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": "x"}), "spec"),
        (machine({"memory": {"guest": "lots"}}), "spec.domain.memory.guest"),
    ):
        (problem,) = read(content).expanded(()).problems
        with raises(InputError, content["kind"], field):
            raise problem


@pytest.mark.parametrize("key", ["podset-required-topology", "podset-preferred-topology"])
def test_annotations_that_would_place_pods_are_named(key: str) -> None:
    annotated = {**TEMPLATE, "metadata": {"annotations": {f"kueue.x-k8s.io/{key}": "rack"}}}
    job = controller("Job", "j", at=None) | {"apiVersion": "batch/v1"}
    job["spec"]["template"] = annotated
    expected = f"annotation kueue.x-k8s.io/{key} is not modelled and has no effect"
    assert expanded(job).warnings == (f"{expected} (named by Job j)",)
    group = {"jobs": [{"name": "a", "template": {"spec": {"template": annotated}}}]}
    job_set = made("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": group["jobs"]})
    assert expanded(job_set).warnings == (f"{expected} (named by Job it-a-0)",)


def test_required_selectors_of_no_pod_are_named() -> None:
    def term(value: str) -> Object:
        return {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": value}}}

    required = "requiredDuringSchedulingIgnoredDuringExecution"
    spread = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term("gone")}
    soft = {**spread, "whenUnsatisfiable": "ScheduleAnyway", **term("soft")}
    lonely = pod("p", affinity={"podAffinity": {required: [term("web")]}}, topologySpreadConstraints=[spread, soft])
    apart = pod("q", affinity={"podAntiAffinity": {required: [term("p"), term("db")]}})
    assert expanded(lonely, apart).warnings == (
        "required pod affinity of p selects no pod of the input: app In web",
        "required topology spread (DoNotSchedule) of p selects no pod of the input: app In gone",
        "required pod anti-affinity of q selects no pod of the input: app In db",
    )
    assert expanded(lonely, pod("r", app="web"), pod("s", app="gone")).warnings == ()
    other = made("v1", "Pod", pod_spec(), "r") | {"metadata": {"name": "r", "namespace": "b", "labels": {"app": "web"}}}
    assert len(expanded(lonely, other, pod("s", app="gone")).warnings) == 1


def test_auxiliary_kinds_are_not_called_unrelated() -> None:
    kinds = [("scheduling.x-k8s.io/v1alpha1", "PodGroup"), ("v1", "PersistentVolumeClaim")]
    queues = [("scheduling.volcano.sh/v1beta1", "Queue"), ("kueue.x-k8s.io/v1beta1", "ClusterQueue")]
    every = [made(version, kind, {}) for version, kind in (*kinds, *queues)]
    said = "objects of these kinds are not modelled and have no effect: ClusterQueue 1, Queue 1"
    assert read(*every, pod("p")).warnings() == (said,)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "Upper"}, "metadata.name"),
        ({"name": "a_b"}, "metadata.name"),
        ({"name": "ü"}, "metadata.name"),
        ({"name": "-a"}, "metadata.name"),
        ({"name": "a..b"}, "metadata.name"),
        ({"name": "a" * 254}, "metadata.name"),
        ({"namespace": "a.b"}, "metadata.namespace"),
        ({"labels": {"a": "b c"}}, "metadata.labels.a"),
        ({"labels": {"a": "b" * 64}}, "metadata.labels.a"),
        ({"labels": {"A.b/c/d": "b"}}, "metadata.labels"),
    ],
)
def test_names_that_kubernetes_refuses_leave_objects_out(change: Object, field: str) -> None:
    bad = pod("bad")
    bad["metadata"] |= change
    found = parsed(pod("a.b-1", metadata={"labels": {"x.io/a": "B_c"}}), bad)
    assert [each.name for each in found.expanded(()).pods] == ["a.b-1"]
    (problem,) = found.problems()
    with raises(InputError, field, "Kubernetes"):
        raise problem


def test_labels_of_templates_and_names_of_services_are_checked() -> None:
    deployment = controller("Deployment", "web")
    deployment["spec"]["template"]["metadata"]["labels"]["a"] = "-"
    service = item("Service", "a.b", spec={}) | {"apiVersion": "v1"}
    found = parsed(pod("p"), deployment, service)
    assert [each.field for each in found.problems()] == ["spec.template.metadata.labels.a", "metadata.name"]


def test_a_stateful_set_waits_for_its_terminating_pod() -> None:
    ending = pod("s-1", on="n", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    stateful = controller("StatefulSet", "s", replicas=3)
    ending["metadata"]["ownerReferences"] = pod("x", stateful)["metadata"]["ownerReferences"]
    content = (node("n"), stateful, pod("s-0", stateful, on="n"), ending)
    assert sorted(pods_of(*content)) == ["s-0", "s-1"]
    stateful["spec"]["podManagementPolicy"] = "Parallel"
    assert sorted(pods_of(*content)) == ["s-0", "s-1", "s-2"]


def test_controllers_that_wait_for_terminating_pods() -> None:
    """A DaemonSet has one pod on a node; a Job may replace pods only once they have failed."""
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    daemons = controller("DaemonSet", "d")
    ending = pod("d-x", daemons, on="n", metadata=deleted)
    assert sorted(pods_of(node("n"), node("m"), daemons, ending)) == ["d-0001", "d-x"]
    for policy, count in (("Failed", 2), ("TerminatingOrFailed", 3)):
        job = controller("Job", "j", parallelism=2, completions=4, podReplacementPolicy=policy)
        content = (node("n"), job, pod("j-x", job, on="n"), pod("j-y", job, on="n", metadata=deleted))
        assert len(pods_of(*content)) == count


def test_jobs_of_no_pods_and_of_none_that_kubernetes_takes() -> None:
    assert not pods_of(node("n"), controller("Job", "j", parallelism=0, completions=4))
    objects = read(node("n"), controller("Job", "j", completionMode="Indexed", parallelism=2))
    (problem,) = objects.expanded(()).problems
    with raises(InputError, "spec.completions", "Indexed"):
        raise problem


def test_a_selector_must_match_its_template() -> None:
    for kind in ("Deployment", "StatefulSet", "ReplicaSet"):
        objects = read(node("n"), controller(kind, "web", selector={"matchLabels": {"app": "other"}}))
        (problem,) = objects.expanded(()).problems
        with raises(InputError, "spec.selector", "template"):
            raise problem


# The table ---------------------------------------------------------------------------------------------------------


def expressions(row: ResourceRow) -> Iterator[tuple[bool, str]]:
    """Whether it is a text with expressions, and what a resource evaluates."""
    for each in (row.suspended, row.stopped, row.scales_down, *row.let.values()):
        yield False, each
    for rule in row.makes:
        for each in (rule.template, rule.each, rule.when, rule.metadata, rule.add):
            yield False, each
        for each in (*rule.let.values(), *rule.count.values()):
            yield False, each
        for each in (rule.name, *rule.labels.values(), *rule.annotations.values()):
            yield True, each


def test_all_expressions_of_the_table_compile() -> None:
    table, nothing = resource_table(), made("v1", "Nothing", {})
    variables = {**nothing, "name": "it", "namespace": "team", "kind": "Nothing", "lookup": lambda *_: None}
    count = 0
    for row in (*table.resource, table.other):
        for is_text, each in expressions(row):
            # Nothing but amounts that are missing is an error.
            with contextlib.suppress(FieldError, TypeError, UndefinedError):
                text(each, variables) if is_text else value(each, variables)
            count += 1
    assert count > 500


def changed(value: Any, change: Any) -> Iterator[Any]:
    """The value with each of its parts changed in turn."""
    yield change
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in [*entries]:
        for each in changed(part, change):
            copy = value.copy()
            copy[key] = each
            yield copy


@pytest.mark.parametrize("change", [None, True, "x", [None], {"a": None}, 1 << 70])
@pytest.mark.parametrize("case", [*RESOURCES, "inference", "dynamo", "machine", "pipeline", "train"])
def test_strange_values_are_rejected_or_taken_but_never_crash(case: str, change: Any) -> None:
    predictor = {"minReplicas": 1, "model": {"resources": GPUS}, "workerSpec": {"containers": [{"name": "w"}]}}
    others: dict[str, Object] = {
        "inference": made("serving.kserve.io/v1beta1", "InferenceService", {"predictor": predictor}),
        "dynamo": made("nvidia.com/v1alpha1", "DynamoGraphDeployment", {"services": {"A": {"resources": GPUS}}}),
        "machine": machine({"cpu": {"cores": 1}, "devices": {"gpus": [{"deviceName": "a/b"}]}}),
        "pipeline": made("tekton.dev/v1", "PipelineRun", {"pipelineSpec": {"tasks": [{"taskSpec": {"steps": [{}]}}]}}),
        "train": runtime(),
    }
    content = others[case] if case in others else made(*RESOURCES[case])
    for spec in changed(content["spec"], change):
        found = parsed({**content, "spec": spec}, train_job(), pod("p"))
        result = found.expanded(())
        assert "p" in {each.name for each in result.pods}
        assert all(isinstance(each, InputError) for each in (*found.problems(), *result.problems))
        assert found.warnings() is not None


def test_each_kind_has_one_row() -> None:
    kinds = [(kind, group) for row in resource_table().resource for kind in row.kinds for group in row.groups]
    assert len(set(kinds)) == len(kinds)
    assert not {kind for kind, _ in kinds} & {*resource_table().auxiliary, *resource_table().unmodelled}


def test_kinds_that_are_made_are_known() -> None:
    made_kinds = {rule.kind for row in resource_table().resource for rule in row.makes} - {"Pod", *CONTROLLERS}
    assert made_kinds
    assert all(resource_table().row(*kind.split(".", 1)) for kind in made_kinds)


def test_the_kind_of_the_page_makes_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[4] / "docs/how-to/add-a-kind.md").read_text("utf-8")
    rows, resource = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("toml", "yaml"))
    assert rows is not None
    assert resource is not None
    row = msgspec.convert(tomllib.loads(rows[1])["resource"][0], ResourceRow)
    table = structs.replace(resource_table(), resource=[*resource_table().resource, row])
    monkeypatch.setattr(custom_resources, "resource_table", lambda: table)
    content = yaml.safe_load(resource[1])
    every = pods_of(content)
    assert amounts(every) == {"blue-sail-0": (2000, 0, 0), "blue-sail-1": (2000, 0, 0)}
    assert every["blue-sail-1"].labels == {"fleets.example.com/fleet": "blue", "fleets.example.com/index": "1"}
    content["metadata"]["annotations"] = {"fleets.example.com/paused": ""}
    assert pods_of(content, pod("p")).keys() == {"p"}


def test_an_unknown_field_of_the_table_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="relpicas"):
        msgspec.convert({"kinds": [], "groups": [], "makes": [], "relpicas": "1"}, ResourceRow)


@pytest.mark.parametrize("replicas", ["50%", -1, True, 1.5, "many"])
@pytest.mark.parametrize("version", ["kubeflow.org/v1", "example.com/v1"])
def test_numbers_of_pods_that_are_none_leave_the_resource_out(version: str, replicas: object) -> None:
    kind = "PyTorchJob" if "kubeflow" in version else "Fleet"
    job = made(version, kind, {"pytorchReplicaSpecs": {"Worker": {"replicas": replicas, "template": TEMPLATE}}})
    (problem,) = read(job, pod("p")).expanded(()).problems
    with raises(InputError, str(replicas), "whole number"):
        raise problem


def test_digits_and_missing_numbers_of_pods() -> None:
    for stated, count in (("3", 3), (None, 1), (0, 0)):
        fleet = made("example.com/v1", "Fleet", {"replicas": stated, "template": TEMPLATE})
        assert len(pods_of(fleet, pod("p"))) == count + 1
    for huge in (99_999_999_999, 1 << 70):
        objects = read(made("example.com/v1", "Fleet", {"replicas": huge, "template": TEMPLATE}), pod("p"))
        (problem,) = objects.expanded(()).problems
        assert "more than" in problem.problem


def test_resources_without_pods_are_named() -> None:
    empty = (
        made("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {}}, "torch"),
        made("kubeflow.org/v1", "TFJob", None, "tensor"),
        made("argoproj.io/v1alpha1", "Workflow", {"entrypoint": "gone", "templates": []}, "flow"),
        made("jobset.x-k8s.io/v1alpha1", "JobSet", {"jobs": [{"name": "w"}]}, "old"),
    )
    stopped = made("kubeflow.org/v1", "Notebook", {}, metadata={"annotations": {"kubeflow-resource-stopped": "x"}})
    (warning,) = read(*empty, stopped, pod("p")).warnings()
    assert all(f"{each['kind']} team/{each['metadata']['name']}" in warning for each in empty)
    assert "Notebook" not in warning


def flow(call: Object, **spec: Any) -> Object:
    step = {"name": "step", "container": {"image": "x", "resources": {"requests": {"cpu": "1"}}}}
    templates = [step, {"name": "main", "steps": [[{"name": "a", **call}]]}]
    return made("argoproj.io/v1alpha1", "Workflow", {"entrypoint": "main", "templates": templates, **spec})


@pytest.mark.parametrize(
    ("sequence", "count"),
    [
        ({"count": "3"}, 3),
        ({"count": 0}, 0),
        ({"start": "2", "end": "5"}, 4),
        ({"start": 5, "end": 2}, 4),
        ({"end": 3}, 4),
        ({"count": "{{inputs.parameters.n}}"}, 1),
    ],
)
def test_sequences_of_workflows(sequence: Object, count: int) -> None:
    every = pods_of(flow({"template": "step", "withSequence": sequence}), pod("p"))
    assert len(every) == count + 1


def test_templates_within_steps_of_workflows() -> None:
    inline = {"container": {"image": "x", "resources": {"requests": {"cpu": "2"}}}}
    assert amounts(pods_of(flow({"inline": inline}), pod("p")))["it-main.a-0001"] == (2000, 0, 0)


def test_patches_of_pods_of_workflows() -> None:
    patch = '{"nodeSelector": {"zone": "b"}, "containers": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]}'
    every = pods_of(flow({"template": "step"}, podSpecPatch=patch))
    assert amounts(every) == {"it-step-0001": (3000, 0, 0)}
    assert every["it-step-0001"].constraints.node_selector == (("zone", "b"),)
    (problem,) = read(flow({"template": "step"}, podSpecPatch="{a: ["), pod("p")).expanded(()).problems
    assert "podSpecPatch" in problem.problem
