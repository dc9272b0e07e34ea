"""`steersman serve` beside a real control plane: its scores follow the cluster, and outlive what goes wrong."""

import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.e2e.conftest import STEERSMAN, LocalCluster, until
from tests.e2e.scheduler.test_schedule import Running, create, pod

from steersman.policies.registry import policy_path

pytestmark = pytest.mark.e2e


def ask(running: Running, path: str, question: Any, token: str = "") -> Any:
    port = next(line["port"] for line in running.log() if line["event"] == "listening")
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(question).encode())
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


def _mask(count: int) -> str:
    """The first and the last of so many nodes."""
    return b64encode((1 | 1 << count - 1).to_bytes(-(-count // 8), "little")).decode()


def test_service_scores_follow_the_cluster(cluster: LocalCluster, tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    command = [STEERSMAN, "serve", "--name", cluster.name, "--port", "0", "--policy", "best-fit", "--deadline", "10000"]
    with log.open("w") as stream:
        process = subprocess.Popen(command, env=cluster.environment, stdout=stream, stderr=stream)
    running = Running(process, log)
    try:
        until(lambda: running.said("watching") or process.poll() is not None, 240)
        assert running.get("readyz").endswith("readyz check passed\n")
        names = cluster.node_names()
        wanted = pod("wanted", "1")
        first = ask(running, "/v1/scores", {"pod": wanted})
        assert (len(first["scores"]), first["neutral"]) == (len(names), "")
        again = ask(running, "/v1/scores", {"pod": wanted, "nodeSet": first["nodeSet"]})
        assert again == first
        some = ask(running, "/v1/scores", {"pod": wanted, "nodeSet": first["nodeSet"], "among": _mask(len(names))})
        assert (len(some["scores"]), some["nodeSet"]) == (2, first["nodeSet"])

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


def test_service_without_a_cluster_reports_it(cluster: LocalCluster, tmp_path: Path) -> None:
    done = cluster.steersman("serve", "--kubeconfig", str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith(f"error: {tmp_path / 'none'}")


class Forwarder:
    """A way to the API server that can be cut and mended.

    Attributes:
        port: where it begins.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target, self._open = target, set[socket.socket]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._begin()

    def _begin(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self._target)
                self._open |= {near, far}
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(1 << 16):
                sink.sendall(part)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Nobody gets through any more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open.clear()

    def mend(self) -> None:
        """They do again."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._begin()


PATIENT = ("--deadline", "10000")


@contextmanager
def started(cluster: LocalCluster, folder: Path, *options: str | Path) -> Iterator[Running]:
    """A service that knows the cluster."""
    log = folder / "serve.log"
    command = [STEERSMAN, "serve", "--port", "0", *options]
    with log.open("w") as stream:
        process = subprocess.Popen(command, env=cluster.environment, stdout=stream, stderr=stream)
    running = Running(process, log)
    try:
        until(lambda: running.said("watching") or process.poll() is not None, 240)
        assert process.poll() is None, log.read_text()
        yield running
    finally:
        process.kill()
        process.wait()


def test_service_scores_are_neutral_until_the_api_server_returns(cluster: LocalCluster, tmp_path: Path) -> None:
    content = yaml.safe_load(cluster.kubeconfig.read_text())
    (entry,) = content["clusters"]
    server = urlsplit(entry["cluster"]["server"])
    assert server.hostname is not None
    assert server.port is not None
    way = Forwarder((server.hostname, server.port))
    entry["cluster"]["server"] = f"{server.scheme}://127.0.0.1:{way.port}"
    kubeconfig, config = tmp_path / "kubeconfig", tmp_path / "service.yaml"
    kubeconfig.write_text(yaml.safe_dump(content))
    config.write_text("apiVersion: steersman.dev/v1alpha1\nkind: ScoreServiceConfiguration\nstaleSeconds: 1\n")
    question = {"pod": pod("wanted", "1")}
    try:
        with started(
            cluster, tmp_path, *PATIENT, "--policy", "best-fit", "--kubeconfig", kubeconfig, "--config", config
        ) as running:
            assert ask(running, "/v1/scores", question)["neutral"] == ""
            way.cut()
            until(lambda: ask(running, "/v1/scores", question)["neutral"] == "stale")
            scores = ask(running, "/v1/scores", question)["scores"]
            assert set(scores) == {50}
            way.mend()
            until(lambda: ask(running, "/v1/scores", question)["neutral"] == "")
            target = cluster.node_names()[-1]
            create(cluster, pod("there", "5", nodeName=target))
            until(lambda: ask(running, "/v1/suggestions", question)["node"] == target)
    finally:
        way.cut()


def test_policy_file_changes_under_load_fail_no_request(cluster: LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "policy.safetensors"
    with policy_path("rules") as shipped:
        shutil.copy(shipped, file)

    def put(content: bytes) -> None:
        (tmp_path / "new").write_bytes(content)
        os.replace(tmp_path / "new", file)

    create(cluster, pod("wanted", "1"))  # as the API has it: a pod that no other is like is answered now and then
    wanted = json.loads(cluster.kubectl("get", "pod", "wanted", "-o", "json"))
    found: Counter[str] = Counter()
    ended = threading.Event()

    def load(running: Running) -> None:
        while not ended.is_set():
            try:
                found[ask(running, "/v1/scores", {"pod": wanted})["neutral"] or "scored"] += 1
            except OSError as error:
                found[str(error)] += 1
            time.sleep(0.01)

    with started(cluster, tmp_path, *PATIENT, "--policy", file, "--name", cluster.name) as running:
        threads = [threading.Thread(target=load, args=(running,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            whole = file.read_bytes()
            put(whole[: len(whole) // 2])
            until(lambda: running.said("policy file cannot be used; the previous policy stays active"))
            os.utime(file)
            put(whole)
            until(lambda: running.said("policy file reloaded"))
            file.unlink()
            until(lambda: sum(line["event"].startswith("policy file cannot") for line in running.log()) == 2)
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        assert "readyz check passed" in probe(running, "readyz"), "it answers well by the former one"
        assert "[!]policy degraded" in probe(running, "healthz?verbose")
    print(found)
    assert found.keys() == {"scored"}
    assert found["scored"] > 100


def probe(running: Running, path: str) -> str:
    """What a probe says, whatever its status."""
    port = next(line["port"] for line in running.log() if line["event"] == "listening")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())
