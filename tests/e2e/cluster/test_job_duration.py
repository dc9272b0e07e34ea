"""Pods of Jobs on simulated nodes run as long as they say, and the nodes have the labels of real ones."""

import json
from datetime import datetime

import pytest
from tests.e2e.conftest import LocalCluster, until

pytestmark = pytest.mark.e2e


def job(name: str, annotations: dict[str, str] | None = None, **container: list[str]) -> dict[str, object]:
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x", **container}]}
    template = {"metadata": {"annotations": annotations or {}}, "spec": spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}


JOBS = {
    "annotated": (job("annotated", {"pod-complete.stage.kwok.x-k8s.io/delay": "4s"}, command=["sleep", "999"]), 4),
    "trace": (job("trace", {"alibabacloud.com/creation-time": "10", "alibabacloud.com/deletion-time": "15"}), 5),
    "asleep": (job("asleep", command=["sleep"], args=["3"]), 3),
    "shell": (job("shell", command=["sh", "-c", "echo a; sleep 0.1m && echo b"]), 6),
    "forever": (job("forever", command=["sleep", "infinity"]), None),
    "at-once": (job("at-once", command=["make", "sleepy"]), 0),
}


def test_nodes_have_the_labels_of_real_ones(cluster: LocalCluster) -> None:
    for node in cluster.objects("nodes"):
        labels = node["metadata"]["labels"]
        assert labels["kubernetes.io/hostname"] == node["metadata"]["name"]
        assert (labels["kubernetes.io/os"], labels["kubernetes.io/arch"]) == ("linux", "amd64")


def test_job_pods_run_for_their_stated_duration(cluster: LocalCluster) -> None:
    objects = {"apiVersion": "v1", "kind": "List", "items": [content for content, _ in JOBS.values()]}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(objects))
    ending = {name for name, (_, seconds) in JOBS.items() if seconds is not None}

    def ended() -> dict[str, float]:
        found = {}
        for each in cluster.objects("pods"):
            state = each.get("status", {}).get("containerStatuses", [{}])[0].get("state", {}).get("terminated")
            if state and each["status"]["phase"] == "Succeeded":
                began, end = (datetime.fromisoformat(state[key]) for key in ("startedAt", "finishedAt"))
                found[each["metadata"]["labels"]["job-name"]] = (end - began).total_seconds()
        return found

    until(lambda: ended().keys() >= ending)
    lasted = ended()
    assert lasted.keys() == ending
    for name in ending:
        assert lasted[name] >= JOBS[name][1] - 1, lasted  # in whole seconds
    running = [each for each in cluster.objects("pods") if each["metadata"]["labels"]["job-name"] == "forever"]
    assert [each["status"]["phase"] for each in running] == ["Running"]
    cluster.must("cluster", "clean", "--name", cluster.name, "--owners")
