"""Pods of custom resources go where kube-scheduler puts those that their controllers make."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from tests.support.cluster_dump import Object, node, pod_spec
from tests.unit.workloads.test_account import bound, cluster, run

HOST, RACK = "kubernetes.io/hostname", "rack"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NODES = [node(f"n{i}", labels={HOST: f"n{i}", RACK: f"r{i // 2}"}) for i in range(4)]
LWS: Object = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}


def placed(*objects: Object) -> dict[str, str]:
    return bound(run(cluster(*NODES, *objects), "kube-default"))


def made(version: str, kind: str, spec: Any, **annotations: str) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "it", "annotations": annotations}, "spec": spec}


def template(gpus: int, side: str = "", key: str = HOST, **labels: str) -> Object:
    spec = pod_spec(gpus)
    if side:
        spec["affinity"] = {side: {REQUIRED: [{"topologyKey": key, "labelSelector": {"matchLabels": labels}}]}}
    return {"spec": spec}


def apart(**labels: str) -> Object:
    return template(1, "podAntiAffinity", **labels)


CASES: dict[str, tuple[str, str, Any]] = {
    "tensorflow": (
        "kubeflow.org/v1",
        "TFJob",
        {"tfReplicaSpecs": {"Worker": {"replicas": 4, "template": apart(**{"training.kubeflow.org/job-name": "it"})}}},
    ),
    "ray": (
        "ray.io/v1",
        "RayCluster",
        {"workerGroupSpecs": [{"groupName": "g", "replicas": 4, "template": apart(**{"ray.io/group": "g"})}]},
    ),
    "volcano": (
        "batch.volcano.sh/v1alpha1",
        "Job",
        {"tasks": [{"name": "t", "replicas": 4, "template": apart(**{"volcano.sh/task-spec": "t"})}]},
    ),
    "leaders": (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        {
            "replicas": 4,
            "leaderWorkerTemplate": {
                "size": 1,
                "workerTemplate": apart(**{"leaderworkerset.sigs.k8s.io/worker-index": "0"}),
            },
        },
    ),
    "workflow": (
        "argoproj.io/v1alpha1",
        "Workflow",
        {
            "entrypoint": "main",
            "affinity": apart(**{"workflows.argoproj.io/workflow": "it"})["spec"]["affinity"],
            "templates": [
                {"name": "main", "steps": [[{"name": "s", "template": "t", "withSequence": {"count": "4"}}]]},
                {"name": "t", "container": {"image": "x"}},
            ],
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_pods_keep_apart_by_labels_of_their_controller(case: str) -> None:
    places = placed(made(*CASES[case]))
    assert sorted(places.values()) == ["n0", "n1", "n2", "n3"]


def test_workers_share_a_rack_by_the_label_of_their_job() -> None:
    workers = template(8, "podAffinity", RACK, **{"training.kubeflow.org/job-name": "it"})
    places = placed(
        made("kubeflow.org/v1", "PaddleJob", {"paddleReplicaSpecs": {"Worker": {"replicas": 2, "template": workers}}})
    )
    assert {*places.values()} in ({"n0", "n1"}, {"n2", "n3"})


def racks(places: dict[str, str], parts: int) -> dict[str, set[str]]:
    """Racks by the first parts of the names of pods."""
    found = defaultdict(set)
    for name, where in places.items():
        found["-".join(name.split("-")[:parts])].add(f"r{int(where[1]) // 2}")
    return dict(found)


@pytest.mark.parametrize("count", [2, 3])
def test_exclusive_jobs_have_a_rack_each(count: int) -> None:
    """A third Job finds no rack."""
    job = {"parallelism": 3, "completions": 3, "template": template(4)}
    spec = {"replicatedJobs": [{"name": "w", "replicas": count, "template": {"spec": job}}]}
    places = placed(
        made("jobset.x-k8s.io/v1alpha2", "JobSet", spec, **{"alpha.jobset.sigs.k8s.io/exclusive-topology": RACK})
    )
    assert len(places) == 6
    assert sorted(map(sorted, racks(places, 3).values())) == [["r0"], ["r1"]]


def test_exclusive_groups_of_leaders_and_workers_have_a_rack_each() -> None:
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": template(4)}}
    plain = made(LWS["apiVersion"], LWS["kind"], spec)
    exclusive = made(LWS["apiVersion"], LWS["kind"], spec, **{"leaderworkerset.sigs.k8s.io/exclusive-topology": RACK})
    assert sorted(map(sorted, racks(placed(exclusive), 2).values())) == [["r0"], ["r1"]]
    assert len(placed(plain)) == 6


def test_pods_of_each_job_of_a_set_are_bounded_alone() -> None:
    """Of each Job one pod exists at a time, so that both have one where all would fill the nodes."""
    job = {"parallelism": 1, "completions": 3, "template": template(8)}
    spec = {"replicatedJobs": [{"name": name, "template": {"spec": job}} for name in ("a", "b")]}
    assert {*placed(made("jobset.x-k8s.io/v1alpha2", "JobSet", spec))} == {"it-a-0-0", "it-b-0-0"}
