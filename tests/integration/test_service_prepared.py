"""`steersman serve --no-watch` with the packaged policy, prepared for files of nodes and pods."""

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

BIN = Path(sys.executable).parent
DATA = Path(__file__).parents[2] / "src" / "steersman" / "data" / "openb"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{i},96000,786432,8,A10\n" for i in range(4))
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"p{i},{4000 if i % 2 else 8000},{16384},1,{500 if i % 3 else 1000},\n" for i in range(60)
)


def test_the_packaged_policy_scores_clusters_that_are_sent(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    files = ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]
    command = [
        BIN / "steersman",
        "serve",
        "--no-watch",
        "--port",
        "0",
        "--deadline",
        "10000",
        "--log-format",
        "json",
        *files,
    ]
    log = tmp_path / "log"
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
        gpus = {"alibabacloud.com/gpu-count": "8", "alibabacloud.com/gpu-milli": "8000"}
        nodes = [
            {
                "metadata": {"name": name},
                "status": {"allocatable": {"cpu": "96", "memory": "768Gi", "pods": "110", **room}},
            }
            for name, room in (("with-gpus", gpus), ("without", {}))
        ]
        containers = [{"name": "main", "resources": {"requests": {"cpu": "4", "memory": "16Gi"}}}]
        pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": containers}}
        body = json.dumps({"pod": pod, "cluster": {"nodes": nodes}}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/suggestions", body)
        with urllib.request.urlopen(request, timeout=60) as answer:
            said = json.loads(answer.read())
        assert (said["policy"], said.get("neutral", ""), said["node"]) == ("steersman", "", "without")
    finally:
        process.terminate()
        assert process.wait(30) == 143, log.read_text()
