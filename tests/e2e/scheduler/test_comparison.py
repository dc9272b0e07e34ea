"""A learned policy on a real control plane: it decides once a comparison has shown that no rule is better."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.scheduler.test_schedule import bound, create, pod, scheduling

from steersman.policies.policy_file import read_policy, write_policy
from steersman.policies.registry import policy_path

pytestmark = pytest.mark.e2e

NODES, GPUS = 15, 8
COMPARING = "comparing the policy with every rule"
WORSE = "the policy is worse than a rule on this cluster; the rule decides"
FITTED = "the policy file was compared on an equal cluster when it was written"
REQUESTS = ((1, 400), (1, 1000), (1, 400), (4, 1000), (1, 400), (1, 1000))
"""GPUs of a pod, and milli of each, in turn."""


def gpu_node(name: str) -> dict[str, Any]:
    gpus = {"alibabacloud.com/gpu-count": str(GPUS), "alibabacloud.com/gpu-milli": str(1000 * GPUS)}
    room = {"cpu": "96", "memory": "512Gi", "pods": "110", **gpus}
    labels = {"type": "kwok", "alibabacloud.com/gpu-card-model": "A100"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"allocatable": room, "capacity": room},
    }


def gpu_pod(number: int) -> dict[str, Any]:
    count, milli = REQUESTS[number % len(REQUESTS)]
    wish = {"alibabacloud.com/gpu-count": str(count), "alibabacloud.com/gpu-milli": str(milli)}
    return pod(f"gpu-{number}", cpu="4", annotations=wish)


@pytest.fixture
def gpus(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The cluster with nodes that have GPUs."""
    names = [f"gpu-{i}" for i in range(NODES)]
    create(cluster, *map(gpu_node, names))
    try:
        yield cluster
    finally:
        cluster.kubectl("delete", "node", *names)


def bad_policy(folder: Path) -> Path:
    """What greedy-forecast likes best it likes least."""
    with policy_path("steersman") as path:
        card, arrays = read_policy(path)
    file = folder / "bad.safetensors"
    bad = msgspec.structs.replace(card, name="bad", network="linear", members=())
    write_policy(file, bad, {"weights": -arrays["weights"][0], "rules": -arrays["rules"][0]})
    return file


def test_a_bad_policy_never_decides(gpus: LocalCluster, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    with scheduling(gpus, logs, "--policy", str(bad_policy(tmp_path))) as running:
        assert "ok" in running.get("readyz")
        create(gpus, *map(gpu_pod, range(30)))
        until(lambda: len(bound(gpus)) == 30)
        assert 'steersman_policy_info{digest="",member="",name="fgd"} 1.0' in running.get("metrics")
        until(lambda: running.said(WORSE), 240)  # it may compile first
        (said,) = [line for line in running.log() if line["event"] == WORSE]
        assert said["level"] == "warning"
        text = running.get("metrics")
        difference = re.search(r"^steersman_policy_comparison_difference_points (\S+)$", text, re.MULTILINE)
        assert difference is not None
        assert float(difference[1]) < -2
        assert f"{said['rule']} allocates {-float(difference[1]):.2f} points more than bad" in said["evidence"]
        assert f'name="{said["rule"]}"' in text
    assert not any("bad" in line.get("decides", "") for line in running.log())


def test_a_policy_that_was_fitted_to_the_cluster_decides_at_once(gpus: LocalCluster, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    with scheduling(gpus, logs, "--policy", "steersman", "--unchecked") as running:
        create(gpus, *map(gpu_pod, range(40)))
        until(lambda: len(bound(gpus)) == 40)
        assert 'name="steersman"} 1.0' in running.get("metrics")
        assert not running.said(COMPARING)
    for kind in ("nodes", "pods"):
        (tmp_path / f"{kind}.json").write_text(gpus.kubectl("get", kind, "-o", "json"))
    file = tmp_path / "mine.safetensors"
    source = ("--nodes", str(tmp_path / "nodes.json"), "--pods", str(tmp_path / "pods.json"))
    gpus.must("fit", "policy", *source, "--generations", "1", "--output", str(file))
    with scheduling(gpus, logs, "--policy", str(file)) as running:
        assert running.said(FITTED), json.dumps(running.log())
        create(gpus, *map(gpu_pod, range(40, 60)))
        until(lambda: len(bound(gpus)) == 60)
        assert 'name="mine"} 1.0' in running.get("metrics")
        assert not running.said(COMPARING)
