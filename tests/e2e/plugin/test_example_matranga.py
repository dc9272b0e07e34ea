"""kube-scheduler with the configuration of `examples/matranga`: the service scores the pods of the example."""

import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.scheduler.test_schedule import bound
from tests.e2e.telemetry.test_telemetry import endpoint, serving
from tests.support.servers.plugin_scheduler import plugged, scheduler_program

pytestmark = pytest.mark.e2e
__all__ = ["scheduler_program"]

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "matranga"
REPLICAS = 12


def recipe() -> str:
    """The command of the README that writes the configuration, in one line."""
    text = (EXAMPLE / "README.md").read_text().replace("\\\n", " ")
    (line,) = (line.strip() for line in text.splitlines() if line.strip().startswith('sed "s|KUBECONFIG|'))
    return line


def test_the_configuration_of_the_example_is_what_kube_scheduler_runs(
    cluster: LocalCluster, scheduler_program: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    there = home / ".local/state/steersman/clusters/steersman"
    there.mkdir(parents=True)
    (there / "kubeconfig").symlink_to(cluster.kubeconfig)
    root = tmp_path / "root"
    (root / "examples").mkdir(parents=True)
    (root / "examples" / "matranga").symlink_to(EXAMPLE)
    subprocess.run(["bash", "-ec", recipe()], cwd=root, env={"HOME": str(home), "PATH": "/usr/bin:/bin"}, check=True)
    settings = yaml.safe_load((root / "scheduler.yaml").read_text())
    assert settings["clientConnection"]["kubeconfig"] == str(there / "kubeconfig")
    with serving(cluster, tmp_path, "--policy", "best-fit") as service:
        arguments = settings["profiles"][0]["pluginConfig"][0]["args"]
        assert arguments["endpoint"] == "http://127.0.0.1:5000", shlex.quote(recipe())
        arguments["endpoint"] = endpoint(service)  # a free port: others may run this test, too
        with plugged(scheduler_program, tmp_path, settings) as scheduler:
            cluster.kubectl("create", "-f", str(EXAMPLE / "nginx.yaml"))
            cluster.kubectl("scale", "deployment/nginx", f"--replicas={REPLICAS}")
            until(lambda: len(bound(cluster)) == REPLICAS)
            assert len(set(bound(cluster).values())) < 5, "best-fit fills a node before it takes the next"
            until(lambda: scheduler.count("decisions_total", 'outcome="scored"') == REPLICAS)
            assert "error" not in scheduler.metrics("unscored_total")
    cluster.kubectl("delete", "deployment", "nginx")
