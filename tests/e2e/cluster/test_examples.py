"""`examples/matranga`: the commands of its README, in their order, as far as they need no container engine."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.e2e.conftest import STEERSMAN, until
from tests.e2e.telemetry.prometheus import programs

from steersman.core.cache import cache_root
from steersman.live.load.copies import read_manifest
from steersman.live.local_cluster.control_plane import build, servers
from steersman.prometheus.configuration import DEFAULT_FEATURES, read_configuration

pytestmark = pytest.mark.e2e

EXAMPLE = Path(__file__).parents[3] / "examples" / "matranga"
COPIES, REPLICAS = 30, 2
SHORTER = {"--pause 10 --cycles 3": "--pause 3 --cycles 1"}
"""What the test does for a shorter time than a reader."""


def commands() -> dict[str, str]:
    """Commands of steersman in the README by their first words, of each the first one."""
    text = (EXAMPLE / "README.md").read_text().replace("\\\n", " ")
    found: dict[str, str] = {}
    for line in re.findall(r"^ {4,}(steersman .*)$", text, re.MULTILINE):
        words = line.split()
        name = " ".join(words[1 : 3 if words[1] in ("cluster", "workload") else 2])
        for long, short in SHORTER.items():
            line = line.replace(long, short)
        found.setdefault(name, " ".join(line.split()))
    return found


@pytest.fixture
def home(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of somebody who begins with nothing but the programs."""
    build.programs(lambda *_: None, print)
    foreign = ("STEERSMAN_STATE_DIR", "KUBECONFIG", "XDG_STATE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    path = os.pathsep.join([str(STEERSMAN.parent), str(programs()), os.environ["PATH"]])
    environment |= {"HOME": str(tmp_path), "STEERSMAN_CACHE_DIR": str(cache_root()), "PATH": path}
    try:
        yield environment
    finally:
        subprocess.run(["bash", "-c", commands()["cluster down"]], env=environment, check=False, capture_output=True)
        assert not servers.running(tmp_path / ".local/state/steersman/clusters/steersman")


def test_readme_commands_train_and_run_a_policy(home: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "matranga"
    folder.mkdir()
    for name in ("nginx.yaml", "telemetry.yaml"):
        (folder / name).write_text((EXAMPLE / name).read_text())
    known = commands()

    def must(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=home, text=True, capture_output=True, check=False, timeout=400
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    must(known["cluster up"])
    must(known["train"])
    with (folder / "scheduler.log").open("w") as log:
        scheduler = subprocess.Popen(
            ["bash", "-c", f"exec {known['schedule']} --port 0 --log-format json"], cwd=folder, env=home, stderr=log
        )
    try:
        until(lambda: '"listening"' in (folder / "scheduler.log").read_text(), 120)
        load = subprocess.Popen(["bash", "-c", f"exec {known['workload run']}"], cwd=folder, env=home)
        pods: list[str] = []

        def some_are_bound() -> bool:
            listed = json.loads(must("steersman cluster kubectl get pods -o json"))["items"]
            pods[:] = [each["metadata"]["name"] for each in listed if each["spec"].get("nodeName")]
            return len(pods) > 5

        until(some_are_bound)
        explained = must(known["explain"].replace("POD", pods[0]))
        assert "node-000" in explained
        assert load.wait(180) == 0
    finally:
        scheduler.send_signal(signal.SIGTERM)
        scheduler.wait(30)
    with (folder / "run.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["action"] for row in rows] == ["add"] * COPIES + ["delete"] * COPIES
    assert {row["pod_count"] for row in rows} == {str(REPLICAS)}
    with urllib.request.urlopen(f"http://127.0.0.1:{exporters_port(tmp_path)}/metrics", timeout=10) as answer:
        truth = answer.read().decode()
    assert f"steersman_simulated_placed_limited_total {COPIES * REPLICAS:.1f}" in truth
    assert "steersman_simulated_placed_beyond_hard_avoidably_total 0.0" in truth
    must(known["cluster down"])


def exporters_port(home: Path) -> int:
    file = home / ".local/state/steersman/clusters/steersman/telemetry/exporters.json"
    return int(json.loads(file.read_text())["port"])


def test_example_files_are_read_by_the_programs() -> None:
    (nginx,) = read_manifest(EXAMPLE / "nginx.yaml")
    assert (nginx.name, nginx.replicas, nginx.pod.scheduler_name) == ("nginx", REPLICAS, "steersman")
    assert (nginx.pod.latency.soft, nginx.pod.latency.hard) == (35, 100)
    assert dict(read_configuration(EXAMPLE / "telemetry.yaml").features) == dict(DEFAULT_FEATURES)
    kind = yaml.safe_load((EXAMPLE / "kind.yaml").read_text())
    assert [node["role"] for node in kind["nodes"]] == ["control-plane", *["worker"] * 4]
    profile = yaml.safe_load((EXAMPLE / "kube-scheduler.yaml").read_text())["profiles"][0]
    assert profile["schedulerName"] == nginx.pod.scheduler_name
    assert profile["pluginConfig"][0]["args"]["mode"] == "service"
    for name, command in commands().items():
        assert shlex.split(command)[0] == "steersman", name
