"""What the recipe for kubeadm and kind makes of kube-scheduler's static pod: it starts, leads and binds pods."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cluster.test_manifest_recipes import STATIC_POD
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.plugin.test_plugin import prepared
from tests.e2e.scheduler.test_schedule import bound, create, pod
from tests.support.servers.plugin_scheduler import SCHEDULER, free_port, scheduler_program

pytestmark = pytest.mark.e2e
__all__ = ["scheduler_program"]

DEPLOY = Path(__file__).resolve().parents[3] / "deploy" / "kube-scheduler"


def patched(cluster: LocalCluster, folder: Path) -> dict[str, Any]:
    """Return the container of the static pod as kubeadm patches it."""
    manifest = folder / "kube-scheduler.yaml"
    manifest.write_text(yaml.safe_dump(STATIC_POD))
    patch = DEPLOY / "patches" / "kube-scheduler+json.yaml"
    how = ("--local", "-f", str(manifest), "--type=json", "--patch-file", str(patch), "-o", "yaml")
    container: dict[str, Any] = yaml.safe_load(cluster.kubectl("patch", *how))["spec"]["containers"][0]
    return container


@pytest.mark.skipif(os.getuid() != 0, reason="kubeadm's files are of root")
def test_the_patched_static_pod_schedules_with_its_files_and_rights(
    cluster: LocalCluster, scheduler_program: Path, tmp_path: Path
) -> None:
    container = patched(cluster, tmp_path)
    rights = container["securityContext"]
    assert (rights["runAsUser"], rights["runAsGroup"], rights["capabilities"]) == (0, 0, {"drop": ["ALL"]})
    etc = tmp_path / "etc"
    (etc / "kubernetes").mkdir(parents=True)
    (etc / "steersman").mkdir()
    conf = etc / "kubernetes" / "scheduler.conf"
    conf.write_text(cluster.kubeconfig.read_text())
    conf.chmod(0o600)
    # The cluster's own scheduler goes on, so that name and Lease are others than those of kubeadm's.
    settings = yaml.safe_load((DEPLOY / "native.yaml").read_text().replace("/etc/", f"{etc}/"))
    settings["profiles"][0]["schedulerName"] = settings["leaderElection"]["resourceName"] = SCHEDULER
    (etc / "steersman" / "native.yaml").write_text(json.dumps(settings))
    (etc / "steersman" / "policy.safetensors").write_bytes(prepared())
    _, *arguments = (part.replace("/etc/", f"{etc}/") for part in container["command"])
    without_capabilities = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
    log = tmp_path / "log"
    command: list[str | Path] = [*without_capabilities, scheduler_program, *arguments, f"--secure-port={free_port()}"]
    with log.open("wb") as out, subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out) as process:
        try:
            create(cluster, *(pod(f"static-{i}", schedulerName=SCHEDULER) for i in range(5)))
            until(lambda: len(bound(cluster)) == 5 or process.poll() is not None)
            assert process.poll() is None, log.read_text()
        finally:
            process.kill()
    assert not re.search(r"permission denied|forbidden", log.read_text(), re.IGNORECASE), log.read_text()
    leases = json.loads(cluster.kubectl("get", "lease", SCHEDULER, "-n", "kube-system", "-o", "json"))
    assert leases["spec"]["holderIdentity"]
    cluster.kubectl("delete", "lease", SCHEDULER, "-n", "kube-system")
