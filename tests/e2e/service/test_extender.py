"""`steersman serve` as the extender of a real kube-scheduler, by the configurations in `deploy/extender`."""

import json
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import yaml
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.scheduler.test_schedule import Running, bound, create, pod, pods
from tests.e2e.service.test_service import started

pytestmark = pytest.mark.e2e

DEPLOY = Path(__file__).parents[3] / "deploy" / "extender"
SCHEDULER = "extended"
PODS = 12


def serving(cluster: LocalCluster, folder: Path, *options: str) -> AbstractContextManager[Running]:
    """The score service as deployed, on a port that is free."""
    return started(cluster, folder, "--config", DEPLOY / "service.yaml", "--name", cluster.name, *options)


@contextmanager
def extended(cluster: LocalCluster, folder: Path, port: int, **changes: object) -> Iterator[Path]:
    """A kube-scheduler as deployed, that asks a service on this port; its log."""
    settings = yaml.safe_load((DEPLOY / "kube-scheduler.yaml").read_text())
    settings["clientConnection"]["kubeconfig"] = str(cluster.kubeconfig)
    settings["leaderElection"]["leaderElect"] = False
    settings["profiles"] = [{"schedulerName": SCHEDULER}]
    settings["podInitialBackoffSeconds"] = 1
    (extender,) = settings["extenders"]
    extender |= {"urlPrefix": f"http://127.0.0.1:{port}", **changes}
    config, log = folder / "kube-scheduler.yaml", folder / "kube-scheduler.log"
    config.write_text(yaml.safe_dump(settings))
    program = cluster.kubectl_path.with_name("kube-scheduler")
    with log.open("w") as stream:
        process = subprocess.Popen([program, f"--config={config}", "--secure-port=0"], stdout=stream, stderr=stream)
    try:
        yield log
    finally:
        process.kill()
        process.wait()


def fill(cluster: LocalCluster, name: str, count: int) -> None:
    create(cluster, *(pod(f"{name}-{i}", "500m", schedulerName=SCHEDULER) for i in range(count)))


def counted(running: Running, metric: str) -> dict[str, int]:
    """By the value of its only label."""
    found = re.findall(rf'^steersman_service_{metric}_total{{\w+="(\w+)"}} (\S+)$', running.get("metrics"), re.M)
    return {label: int(float(value)) for label, value in found}


@pytest.mark.minors
@pytest.mark.parametrize("names", [True, False], ids=["names", "whole nodes"])
def test_extender_policy_decides_for_kube_scheduler(cluster: LocalCluster, tmp_path: Path, names: bool) -> None:
    with serving(cluster, tmp_path, "--policy", "best-fit", "--deadline", "5000") as service:
        port = next(line["port"] for line in service.log() if line["event"] == "listening")
        with extended(cluster, tmp_path, port, nodeCacheCapable=names, httpTimeout="10s") as log:
            for i in range(PODS):  # one after the other, so that the service has seen the former
                fill(cluster, f"web-{i}", 1)
                until(lambda: len(bound(cluster)) > i)  # noqa: B023 - it is over before i changes
                until(lambda: sum(counted(service, "agreement").values()) > i)  # noqa: B023
            assert len(set(bound(cluster).values())) == 1, "kube-scheduler would have spread them, best-fit packs"
            assert counted(service, "agreement") == {"true": PODS}
            assert counted(service, "neutral") == {}
            assert 'endpoint="/prioritize",status="200"' in service.get("metrics")
            assert "panic" not in log.read_text()


def test_hung_or_missing_service_loses_no_pod(cluster: LocalCluster, tmp_path: Path) -> None:
    with serving(cluster, tmp_path, "--policy", "best-fit") as service:
        port = next(line["port"] for line in service.log() if line["event"] == "listening")
        with extended(cluster, tmp_path, port) as log:
            fill(cluster, "before", PODS)
            until(lambda: len(bound(cluster)) == PODS)
            service.process.send_signal(signal.SIGSTOP)
            began = time.monotonic()
            fill(cluster, "hung", PODS)
            until(lambda: len(bound(cluster)) == 2 * PODS)
            hung = time.monotonic() - began
            service.process.kill()
            fill(cluster, "gone", PODS)
            until(lambda: len(bound(cluster)) == 3 * PODS)
            assert "panic" not in log.read_text()
    assert hung < 10 + PODS * 0.1, "each waits for the deadline of the extender, and no longer"
    spread = Counter(node for name, node in bound(cluster).items() if not name.startswith("before"))
    assert len(spread) > 1, "kube-scheduler's own scores decided"
    assert all("unschedulable" not in json.dumps(each["status"]).lower() for each in pods(cluster).values())


def test_shadow_reports_and_changes_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    with serving(cluster, tmp_path, "--policy", "best-fit", "--shadow") as service:
        port = next(line["port"] for line in service.log() if line["event"] == "listening")
        with extended(cluster, tmp_path, port, httpTimeout="10s"):
            fill(cluster, "web", PODS)
            until(lambda: len(bound(cluster)) == PODS)
        said = {line["pod"]: line["node"] for line in service.log() if line["event"] == "shadow"}
        assert said.keys() == {f"default/web-{i}" for i in range(PODS)}
        assert all(said.values())
        assert counted(service, "neutral") == {"shadow": PODS}
    assert len(set(bound(cluster).values())) > 1
