"""`steersman schedule` against a real control plane: pods are bound where they fit, and everybody is told."""

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.e2e.conftest import NODES, STEERSMAN, LocalCluster, until
from tests.support.servers.score_servers import answering, names_of

from steersman.policies.registry import policy_path

pytestmark = pytest.mark.e2e


class Running:
    """A scheduler at work."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log = process, log

    def log(self) -> list[dict[str, Any]]:
        lines = self._log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def text(self) -> str:
        return self._log.read_text()

    def said(self, event: str) -> bool:
        return any(line["event"] == event for line in self.log())

    def get(self, path: str) -> str:
        port = next(line["port"] for line in self.log() if line["event"] == "listening")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
            return str(answer.read().decode())


@contextmanager
def scheduling(cluster: LocalCluster, folder: Path, *arguments: str, begins: str = "scheduling") -> Iterator[Running]:
    """Run `steersman schedule`; yields when it has begun."""
    log = folder / f"{len(list(folder.iterdir()))}.log"
    port = () if "--shadow" in arguments else ("--port", "0")
    with log.open("w") as stream:
        process = subprocess.Popen(
            [STEERSMAN, "schedule", "--name", cluster.name, *port, "--log-level", "debug", *arguments],
            env=cluster.environment,
            stdout=stream,
            stderr=stream,
        )
    running = Running(process, log)
    try:
        until(lambda: running.said(begins) or process.poll() is not None, 240)  # it may compile first
        assert process.poll() is None, log.read_text()
        yield running
    finally:
        if process.poll() is None:
            process.terminate()  # it gives its lease back, for which the next one would wait
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def pod(name: str, cpu: str = "1", annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    wanted = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
        "spec": {"schedulerName": "steersman", "containers": [wanted], **spec},
    }


def create(cluster: LocalCluster, *objects: dict[str, Any]) -> None:
    cluster.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def pods(cluster: LocalCluster) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in cluster.objects("pods")}


def bound(cluster: LocalCluster) -> dict[str, str]:
    return {name: each["spec"]["nodeName"] for name, each in pods(cluster).items() if each["spec"].get("nodeName")}


def events(cluster: LocalCluster, reason: str) -> dict[str, str]:
    """Notes by pod, of the pods that there are."""
    found = cluster.objects("events")
    there = {each["metadata"]["uid"] for each in pods(cluster).values()}
    told = [each for each in found if each["reason"] == reason and each["regarding"]["uid"] in there]
    return {each["regarding"]["name"]: each["note"] for each in told}


@pytest.mark.minors
def test_pods_are_bound_and_their_events_say_where(cluster: LocalCluster, tmp_path: Path) -> None:
    with scheduling(cluster, tmp_path, "--policy", "fgd") as running:
        create(cluster, *(pod(f"web-{i}") for i in range(10)))
        until(lambda: len(bound(cluster)) == 10)
        where = bound(cluster)
        until(lambda: len(events(cluster, "Scheduled")) >= 10)
        told = events(cluster, "Scheduled")
        for name, node in where.items():
            assert told[name] == f"Successfully assigned default/{name} to {node}"
        assert 'steersman_schedule_attempts_total{result="scheduled"} 10.0' in running.get("metrics")
        assert "ok" in running.get("readyz")
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(20) in (0, 143)


def test_a_server_decides(cluster: LocalCluster, tmp_path: Path) -> None:
    wanted, numbers = f"node-{NODES - 1:04}", count()

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"scores": {name: 100 * (name == wanted) for name in await names_of(request)}})

    def place() -> str:
        name = f"web-{next(numbers)}"
        create(cluster, pod(name))
        until(lambda: name in bound(cluster))
        return bound(cluster)[name]

    with answering(answer) as url, scheduling(cluster, tmp_path, "--policy", url) as running:
        until(lambda: place() == wanted)  # on a busy machine an answer may be late; then the rule decides
        assert 'steersman_policy_server_decisions_total{result="scored"} 1.0' in running.get("metrics")


def test_unschedulable_pod_reports_why_and_is_bound_later(cluster: LocalCluster, tmp_path: Path) -> None:
    allocatable = int(cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[0].status.allocatable.cpu}"))
    with scheduling(cluster, tmp_path, "--policy", "steersman", "--unchecked"):
        create(cluster, *(pod(f"full-{i}", cpu=str(allocatable)) for i in range(NODES)))
        until(lambda: len(bound(cluster)) == NODES)
        assert len(set(bound(cluster).values())) == NODES
        create(cluster, pod("waits"))
        until(lambda: "waits" in events(cluster, "FailedScheduling"))
        note = events(cluster, "FailedScheduling")["waits"]
        assert note == f"0/{NODES} nodes are available: {NODES} Insufficient cpu."

        def condition() -> dict[str, str]:
            conditions: list[dict[str, str]] = pods(cluster)["waits"]["status"].get("conditions", [])
            return next((each for each in conditions if each["type"] == "PodScheduled"), {})

        until(lambda: condition().get("reason") == "Unschedulable")
        assert condition()["message"] == note
        cluster.kubectl("delete", "pod", "full-3", "--grace-period=0", "--force")
        until(lambda: "waits" in bound(cluster))


@pytest.mark.minors
def test_gpu_shares_get_devices_before_they_are_bound(cluster: LocalCluster, tmp_path: Path) -> None:
    gpus = {"alibabacloud.com/gpu-count": "2", "alibabacloud.com/gpu-milli": "2000"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "gpus",
            "labels": {"type": "kwok", "alibabacloud.com/gpu-card-model": "T4"},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {"allocatable": {"cpu": "32", "memory": "64Gi", "pods": "110", **gpus}},
    }
    node["status"]["capacity"] = node["status"]["allocatable"]
    create(cluster, node)
    try:
        with scheduling(cluster, tmp_path, "--policy", "steersman", "--unchecked"):
            wish = {"alibabacloud.com/gpu-count": "1", "alibabacloud.com/gpu-milli": "600"}
            create(cluster, *(pod(f"share-{i}", annotations=wish) for i in range(3)))
            until(lambda: len(bound(cluster)) == 2)
            until(lambda: len(events(cluster, "FailedScheduling")) == 1)
            (note,) = events(cluster, "FailedScheduling").values()
            assert note == f"0/{NODES + 1} nodes are available: {NODES + 1} Insufficient GPU."
            found = [each for each in pods(cluster).values() if each["spec"].get("nodeName")]
            assert {each["spec"]["nodeName"] for each in found} == {"gpus"}
            index = sorted(each["metadata"]["annotations"]["alibabacloud.com/gpu-index"] for each in found)
            assert index == ["0", "1"]
    finally:
        cluster.kubectl("delete", "node", "gpus")


def test_a_node_has_gpus_by_annotations_or_by_drivers(cluster: LocalCluster, tmp_path: Path) -> None:
    """Those of device plugins and those of ResourceClaims may be the ones that pods share."""
    gpus = {"alibabacloud.com/gpu-count": "2", "alibabacloud.com/gpu-milli": "2000", "nvidia.com/gpu": "2"}
    amounts = {"cpu": "32", "memory": "64Gi", "pods": "110"}

    def node(name: str, offers: dict[str, str]) -> dict[str, Any]:
        meta = {"name": name, "labels": {"type": "kwok"}, "annotations": {"kwok.x-k8s.io/node": "fake"}}
        status = {"allocatable": amounts | offers, "capacity": amounts | offers}
        return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}

    shared = {key: amount for key, amount in gpus.items() if key != "nvidia.com/gpu"}
    create(cluster, node("both", gpus), node("claimed", shared))
    version = {"apiVersion": "resource.k8s.io/v1"}
    device_class = version | {"kind": "DeviceClass", "metadata": {"name": "gpu.example.com"}}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    claim = version | {
        "kind": "ResourceClaim",
        "metadata": {"name": "one"},
        "spec": {"devices": {"requests": [request]}},
    }
    create(cluster, device_class | {"spec": {"extendedResourceName": "nvidia.com/gpu"}}, claim)
    try:
        holder = pod("holder", nodeName="claimed", resourceClaims=[{"name": "gpu", "resourceClaimName": "one"}])
        create(cluster, holder)
        device = {"request": "gpu", "driver": "gpu.example.com", "pool": "claimed", "device": "gpu-1"}
        uid = pods(cluster)["holder"]["metadata"]["uid"]
        status = {
            "allocation": {"devices": {"results": [device]}},
            "reservedFor": [{"resource": "pods", "name": "holder", "uid": uid}],
        }
        patch = json.dumps({"status": status})
        cluster.kubectl("patch", "resourceclaim", "one", "--subresource=status", "--type=merge", "-p", patch)
        with scheduling(cluster, tmp_path, "--policy", "best-fit"):
            share = {"alibabacloud.com/gpu-count": "1", "alibabacloud.com/gpu-milli": "600"}
            create(cluster, pod("share", annotations=share))
            until(lambda: "share" in bound(cluster))
            assert bound(cluster)["share"] == "both"  # though best-fit would fill the other up
            plugin = pod("plugin")
            amount = {"cpu": "1", "nvidia.com/gpu": "1"}
            plugin["spec"]["containers"][0]["resources"] = {"requests": amount, "limits": amount}
            create(cluster, plugin)
            until(lambda: "plugin" in events(cluster, "FailedScheduling"))
            why = events(cluster, "FailedScheduling")["plugin"]
            assert f": 1 node(s) had pods that share GPUs, {NODES + 1} Insufficient nvidia.com/gpu." in why
            cluster.kubectl("delete", "pod", "share", "--grace-period=0", "--force")
            until(lambda: bound(cluster).get("plugin") == "both")
    finally:
        cluster.kubectl("delete", "node", "both", "claimed")
        cluster.kubectl("delete", "pod", "holder", "--grace-period=0", "--force", "--ignore-not-found")
        cluster.kubectl("delete", "resourceclaim", "one", "--wait=false")
        cluster.kubectl("delete", "deviceclass", "gpu.example.com")


def test_unsupported_pods_are_left_with_an_event(cluster: LocalCluster, tmp_path: Path) -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "none"}}
    with scheduling(cluster, tmp_path, "--policy", "fgd"):
        create(cluster, pod("gated", schedulingGates=[{"name": "wait"}]), pod("volume", volumes=[claim]), pod("plain"))
        until(lambda: "plain" in bound(cluster))
        until(lambda: events(cluster, "FailedScheduling"))
        told = events(cluster, "FailedScheduling")
        assert told["volume"] == f'0/{NODES} nodes are available: persistentvolumeclaim "none" not found.'
        assert list(told) == ["volume"], "nobody is told of a gated pod, which waits for its gates"
        assert list(bound(cluster)) == ["plain"]
        cluster.kubectl("patch", "pod", "gated", "--type=json", '-p=[{"op":"remove","path":"/spec/schedulingGates"}]')
        until(lambda: "gated" in bound(cluster))


def test_pods_of_other_schedulers_are_left_alone(cluster: LocalCluster, tmp_path: Path) -> None:
    with scheduling(cluster, tmp_path, "--policy", "fgd"):
        create(cluster, pod("other", schedulerName="somebody-else"), pod("ours"))
        until(lambda: "ours" in bound(cluster))
        assert list(bound(cluster)) == ["ours"]


@pytest.mark.minors
def test_constraints_hold(cluster: LocalCluster, tmp_path: Path) -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}}
            ]
        }
    }
    wanted = [pod(f"apart-{i}", affinity=apart) for i in range(NODES + 1)]
    for each in wanted:
        each["metadata"]["labels"] = {"app": "apart"}
    with scheduling(cluster, tmp_path, "--policy", "most-allocated"):
        create(cluster, *wanted)
        until(lambda: len(bound(cluster)) == NODES)
        until(lambda: len(events(cluster, "FailedScheduling")) == 1)
        assert len(set(bound(cluster).values())) == NODES
        (note,) = events(cluster, "FailedScheduling").values()
        assert note == f"0/{NODES} nodes are available: {NODES} node(s) didn't match pod anti-affinity rules."


def test_a_shadow_binds_nothing_and_reports(cluster: LocalCluster, tmp_path: Path) -> None:
    logs, output = tmp_path / "logs", tmp_path / "shadow"
    logs.mkdir()
    with scheduling(
        cluster, logs, "--policy", "most-allocated", "--shadow", "--output", str(output), begins="shadowing"
    ) as running:
        theirs = {"schedulerName": "default-scheduler"}
        create(cluster, *(pod(f"web-{i}", **theirs) for i in range(20)), pod("ours"))
        until(lambda: len(bound(cluster)) == 20)
        until(lambda: len((output / "decisions.csv").read_text().splitlines()) == 21)
        create(cluster, *(pod(f"on-{name}", nodeName=name, **theirs) for name in cluster.node_names()))
        create(cluster, pod("whole", "64", **theirs))
        until(lambda: running.said("pending pod placed"))
        running.process.send_signal(signal.SIGINT)
        running.process.wait(20)
    assert not {"ours", "whole"} & bound(cluster).keys()
    rows = dict(line.split(",", 1) for line in (output / "summary.csv").read_text().splitlines())
    actual, alternative = rows["nodes_in_use"].split(",")
    assert int(actual) == len(set(bound(cluster).values()))
    assert int(alternative) < int(actual)  # most-allocated packs, the default spreads
    assert rows["decisions"] == "30,30"
    assert rows["unplaced"] == "2,1", "a node that is still empty has room for `whole`"


def test_changed_policy_file_is_reloaded(cluster: LocalCluster, tmp_path: Path) -> None:
    file, logs = tmp_path / "mine.safetensors", tmp_path / "logs"
    with policy_path("rules") as path:
        whole = path.read_bytes()
    logs.mkdir()
    file.write_bytes(whole)
    with scheduling(cluster, logs, "--policy", str(file)) as running:
        file.write_bytes(whole[:1000])
        until(lambda: running.said("policy file cannot be used; the previous policy stays active"), 30)
        create(cluster, pod("one"))
        until(lambda: "one" in bound(cluster))
        assert running.get("readyz").endswith("readyz check passed\n"), "it goes on well with the former one"
        assert "[!]policy degraded" in running.get("healthz?verbose")
        assert "steersman_policy_file_broken 1.0" in running.get("metrics")
        file.write_bytes(whole)
        until(lambda: running.said("policy file reloaded"), 30)
        create(cluster, pod("two"))
        until(lambda: "two" in bound(cluster))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "nonsense"), "unknown policy 'nonsense'"),
        (("--policy", "missing.safetensors"), "missing.safetensors"),
        (("--policy", "fgd", "--output", "x"), "--output belongs to --shadow"),
    ],
)
def test_wrong_options_fail_in_one_line(cluster: LocalCluster, arguments: tuple[str, ...], said: str) -> None:
    done = cluster.steersman("schedule", "--name", cluster.name, *arguments)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
