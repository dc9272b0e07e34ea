"""`steersman serve` beside a real control plane: its opinion follows the cluster."""

import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import STEERSMAN, LocalCluster, until
from tests.e2e.test_schedule import Running, create, pod

pytestmark = pytest.mark.e2e


def ask(running: Running, path: str, question: Any) -> Any:
    port = next(line["port"] for line in running.log() if line["event"] == "listening")
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(question).encode())
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


def test_its_opinion_follows_the_cluster(cluster: LocalCluster, tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    command = [STEERSMAN, "serve", "--name", cluster.name, "--port", "0", "--policy", "best-fit", "--deadline", "10000"]
    with log.open("w") as stream:
        process = subprocess.Popen(command, env=cluster.environment, stdout=stream, stderr=stream)
    running = Running(process, log)
    try:
        until(lambda: running.said("watching") or process.poll() is not None, 240)
        assert running.get("readyz").endswith("readyz check passed\n")
        names = [
            each["metadata"]["name"] for each in json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
        ]
        wanted = pod("wanted", "1")
        first = ask(running, "/v1/scores", {"pod": wanted})
        assert (len(first["scores"]), first["neutral"]) == (len(names), "")
        again = ask(running, "/v1/scores", {"pod": wanted, "nodeSet": first["nodeSet"]})
        assert again == first

        target = sorted(names)[-1]
        create(cluster, pod("there", "5", nodeName=target))
        until(lambda: ask(running, "/v1/suggestions", {"pod": wanted})["node"] == target)
        why = ask(running, "/v1/explain", {"pod": wanted})
        assert (why["node"], why["features"][0]["name"], why["nodes"]) == (target, "best-fit", len(names))

        passed = ask(running, "/filter", {"Pod": pod("huge", "4000"), "NodeNames": names, "Nodes": None})
        assert passed["NodeNames"] == []
        assert set(passed["FailedNodes"].values()) == {"Insufficient cpu"}
        scores = ask(running, "/prioritize", {"Pod": wanted, "NodeNames": names, "Nodes": None})
        assert {each["Host"]: each["Score"] for each in scores}[target] == 10
        assert sum(each["Score"] == 10 for each in scores) == 1
    finally:
        process.terminate()
        assert process.wait(30) == 143, log.read_text()


def test_without_a_cluster_it_says_so(cluster: LocalCluster, tmp_path: Path) -> None:
    done = cluster.steersman("serve", "--kubeconfig", str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith(f"error: {tmp_path / 'none'}")
