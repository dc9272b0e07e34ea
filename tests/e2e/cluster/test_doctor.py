"""`steersman doctor` on a real API server: who may do what, what waits, and what is broken."""

import json
from pathlib import Path

import pytest
from tests.e2e.conftest import LocalCluster

from steersman.kubernetes.config import load

pytestmark = pytest.mark.e2e

OBJECTS = """
apiVersion: v1
kind: Node
metadata: {name: broken-plugin, labels: {nvidia.com/gpu.present: "true"}}
---
apiVersion: v1
kind: Pod
metadata: {name: forgotten, annotations: {alibabacloud.com/gpu-count: "1", alibabacloud.com/gpu-milli: "500"}}
spec: {schedulerName: nobody, containers: [{name: c, image: none}]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
"""


def test_doctor_finds_what_is_broken_and_what_is_not_allowed(control_plane: LocalCluster, tmp_path: Path) -> None:
    control_plane.must("cluster", "clean", "--name", control_plane.name)
    control_plane.kubectl("apply", "-f", "-", stdin=OBJECTS)
    try:
        done = control_plane.steersman("doctor", "--kubeconfig", str(control_plane.kubeconfig), "--format", "json")
        findings = {each["subject"]: each for each in json.loads(done.stdout)}
        problems = {name for name, each in findings.items() if each["verdict"] == "problem"}
        assert problems == {"device plugin", "schedulers"}
        assert "broken-plugin" in findings["device plugin"]["text"]
        assert "'nobody'" in findings["schedulers"]["text"]
        assert findings["admission"]["verdict"] == "warning"
        assert findings["steersman"]["text"].startswith("core ")
        assert {findings[f"rights for {each}"]["verdict"] for each in ("evaluate", "serve", "schedule")} == {"ok"}
        assert done.returncode == 1
        assert done.stderr.endswith(f"error: 2 of {len(findings)} findings are problems\n")

        allowed = load(control_plane.kubeconfig)
        (tmp_path / "reader").write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {
                            "name": "c",
                            "cluster": {
                                "server": allowed.cluster.server,
                                "certificate-authority": str(allowed.cluster.certificate_authority),
                            },
                        }
                    ],
                    "users": [
                        {"name": "u", "user": {"token": control_plane.kubectl("create", "token", "reader").strip()}}
                    ],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )
        done = control_plane.steersman("doctor", "--kubeconfig", str(tmp_path / "reader"))
        assert done.returncode == 1
        assert "not allowed: nodes (list); pods (list)" in done.stdout
        assert "pods/binding (create)" in done.stdout
    finally:
        control_plane.kubectl("delete", "-f", "-", "--wait=false", stdin=OBJECTS)
