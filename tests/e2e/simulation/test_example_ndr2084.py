"""`examples/ndr2084`, a score service for GPU pods: all its pods are assigned, simulated and on a cluster."""

import csv
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.scheduler.test_schedule import create, scheduling
from tests.e2e.service.test_extender import counted, serving
from tests.support.servers.plugin_scheduler import plugged, scheduler_program

from steersman.cluster.model import GPU_MODEL_KEY
from steersman.cluster.objects.gpus import GPU_COUNT_KEY, GPU_INDEX_KEY, GPU_MILLI_KEY

__all__ = ["scheduler_program"]

pytestmark = pytest.mark.e2e

EXAMPLE = Path(__file__).parents[3] / "examples" / "ndr2084"
SCHEDULER = "simon-scheduler"


def read(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))


NODES = {node["metadata"]["name"]: node for node in read(EXAMPLE / "cluster" / "nodes.yaml")}
PODS = {pod["metadata"]["name"]: pod for pod in read(EXAMPLE / "cluster" / "pods.yaml")}


def test_the_simulator_assigns_all_pods(control_plane: LocalCluster, tmp_path: Path) -> None:
    folder = tmp_path / "b"
    shutil.copytree(EXAMPLE, folder)
    control_plane.must("workload", "topology", "--data-dir", str(folder / "cluster"), "--servers-per-rack", "4")
    racks = {node["metadata"]["name"]: node["metadata"]["labels"] for node in read(folder / "cluster/nodes-hier.yaml")}
    assert [racks[name]["rack"] for name in NODES] == ["rack-0"] * 4 + ["rack-1"] * 4
    assert [racks[name]["server"] for name in NODES] == [f"srv-{i % 4}" for i in range(8)]
    configs = (
        "--cluster-config",
        folder / "cluster-config.yaml",
        "--scheduler-config",
        folder / "scheduler-config.yaml",
    )
    control_plane.must("simulate", *map(str, configs), "--policy", "steersman", "--output", str(tmp_path / "run"))
    with (tmp_path / "run" / "placements.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["pod"].rpartition("/")[2] for row in rows} == PODS.keys()
    assert {row["outcome"] for row in rows} == {"bound"}
    check({row["pod"].rpartition("/")[2]: (row["node"], row["devices"]) for row in rows})


@pytest.fixture
def there(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """A cluster with the nodes of the example alone free, and its pods waiting."""
    cluster.kubectl("cordon", "-l", "type=kwok")
    nodes = [
        node | {"metadata": node["metadata"] | {"annotations": {"kwok.x-k8s.io/node": "fake"}}}
        for node in NODES.values()
    ]
    create(cluster, *nodes)
    create(cluster, *PODS.values())
    try:
        yield cluster
    finally:
        cluster.must("cluster", "clean", "--name", cluster.name)
        cluster.kubectl("delete", "node", *NODES)
        cluster.kubectl("uncordon", "-l", "type=kwok")


def assigned(cluster: LocalCluster) -> dict[str, tuple[str, str]]:
    """Node and devices of pods that have a node."""
    found = cluster.objects("pods")
    return {
        pod["metadata"]["name"]: (
            pod["spec"]["nodeName"],
            pod["metadata"].get("annotations", {}).get(GPU_INDEX_KEY, ""),
        )
        for pod in found
        if pod["spec"].get("nodeName")
    }


def wait_for_all(cluster: LocalCluster) -> None:
    try:
        until(lambda: len(assigned(cluster)) == len(PODS))
    except AssertionError:
        waiting = sorted(PODS.keys() - assigned(cluster).keys())
        pytest.fail(f"{waiting} wait: " + cluster.kubectl("describe", "pod", waiting[0])[-1500:])


def check(found: dict[str, tuple[str, str]]) -> None:
    """Every pod has a node of the example and the devices it asked for, of a model it accepts, and none is overfull."""
    assert found.keys() == PODS.keys()
    held: Counter[tuple[str, int]] = Counter()
    for name, (node, devices) in found.items():
        wish, offer = PODS[name]["metadata"].get("annotations", {}), NODES[node]
        numbers = [int(part) for part in re.findall(r"\d+", devices)]
        assert len(set(numbers)) == len(numbers) == int(wish.get(GPU_COUNT_KEY, 0)), (name, devices)
        if numbers:
            assert max(numbers) < int(offer["status"]["allocatable"][GPU_COUNT_KEY])
            models = wish.get(GPU_MODEL_KEY, "").split("|")
            assert models == [""] or offer["metadata"]["labels"][GPU_MODEL_KEY] in models
        held.update({(node, number): int(wish[GPU_MILLI_KEY]) for number in numbers})
    assert all(milli <= 1000 for milli in held.values()), held


def test_the_standalone_scheduler_assigns_all_pods(there: LocalCluster, tmp_path: Path) -> None:
    with scheduling(there, tmp_path, "--policy", "steersman", "--unchecked", "--scheduler-name", SCHEDULER):
        wait_for_all(there)
    check(assigned(there))


def test_kube_scheduler_that_asks_the_score_service_assigns_all_pods(
    there: LocalCluster, scheduler_program: Path, tmp_path: Path
) -> None:
    settings = yaml.safe_load((EXAMPLE / "kube-scheduler.yaml").read_text())
    settings["clientConnection"] = {"kubeconfig": str(there.kubeconfig)}
    options = ("--policy", "steersman", "--unchecked", "--deadline", "10000", "--log-level", "debug")
    with serving(there, tmp_path, *options) as service:
        port = next(line["port"] for line in service.log() if line["event"] == "listening")
        settings["profiles"][0]["pluginConfig"][0]["args"] |= {"endpoint": f"http://127.0.0.1:{port}", "timeout": "5s"}
        with plugged(scheduler_program, tmp_path, settings) as scheduler:
            wait_for_all(there)
            assert "panic" not in scheduler.log()
        check(assigned(there))
        # kube-scheduler scores nothing where one node alone fits, and spares a service that was late for a while.
        scored = {line["pod"] for line in service.log() if line["event"] == "scored"}
        assert len(PODS) // 2 <= len(scored) <= len(PODS)
        assert counted(service, "decisions")["scored"] >= len(scored)
        until(lambda: sum(counted(service, "agreement").values()) == len(scored))
        # kube-scheduler counts a pod at once, the service when its watch has seen it: in between it chooses as before.
        assert counted(service, "agreement").get("true", 0) >= len(scored) // 2
