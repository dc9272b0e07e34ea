"""`steersman serve --no-watch`: a rule, and the packaged policy, prepared for files of nodes and pods."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
DATA = Path(__file__).parents[2] / "src" / "steersman" / "data" / "openb"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{i},96000,786432,8,A10\n" for i in range(4))
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"p{i},{4000 if i % 2 else 8000},{16384},1,{500 if i % 3 else 1000},\n" for i in range(60)
)


CONTAINERS = [{"name": "main", "resources": {"requests": {"cpu": "4", "memory": "16Gi"}}}]
POD = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": CONTAINERS}}
SHARE = {"alibabacloud.com/gpu-count": "1", "alibabacloud.com/gpu-milli": "500"}
GPU_POD = {**POD, "metadata": {**POD["metadata"], "annotations": SHARE}}


def node(name: str, cpu: str = "96", **resources: str) -> dict[str, Any]:
    room = {"cpu": cpu, "memory": "768Gi", "pods": "110", **resources}
    return {"metadata": {"name": name}, "status": {"allocatable": room}}


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Callable[[str, object], Any]]:
    """Run the service; yields a function that asks a path."""
    log = folder / "log"
    command = [BIN / "steersman", "serve", "--no-watch", "--port", "0", "--log-format", "json", *options]
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        end = time.monotonic() + 240
        while '"listening"' not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        port = next(line["port"] for line in lines if line["event"] == "listening")

        def ask(path: str, body: object) -> Any:
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode())
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())

        yield ask
    finally:
        process.terminate()
        assert process.wait(30) == 143, log.read_text()


def test_the_packaged_policy_scores_clusters_that_are_sent(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    files = ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]
    gpus = {"alibabacloud.com/gpu-count": "8", "alibabacloud.com/gpu-milli": "8000"}
    with serving(tmp_path, "--deadline", "10000", *files) as ask:
        nodes = [node("without"), node("with-gpus", **gpus)]
        said = ask("/v1/suggestions", {"pod": GPU_POD, "cluster": {"nodes": nodes}})
    assert (said["policy"], said.get("neutral", ""), said["node"]) == ("steersman", "", "with-gpus")


def test_a_rule_answers_the_simulators_question(tmp_path: Path) -> None:
    """The question of the score plugin in the fork of open-simulator, which sends no more than a pod and nodes."""
    with serving(tmp_path, "--policy", "best-fit", "--deadline", "5000") as ask:
        scores = ask("/score", {"pod": POD, "nodes": [node("large"), node("small", cpu="8"), node("full", cpu="2")]})
    assert scores["scores"].keys() == {"large", "small", "full"}
    assert all(0 <= score <= 100 for score in scores["scores"].values())
    assert max(scores["scores"], key=scores["scores"].get) == "small"
