"""Control plane in containers, by kwokctl and a container engine of the user."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from steersman.apps.local_cluster.control_plane.servers import KWOK, run_kwokctl
from steersman.apps.local_cluster.stages import stages

ENGINES = ("docker", "podman", "nerdctl")
ANSWER_SECONDS = 10.0


def find_engine() -> str:
    """Return the first container engine that answers, if kwokctl is installed too; else ""."""
    if shutil.which("kwokctl") is None:
        return ""
    return next((engine for engine in ENGINES if _answers(engine)), "")


def start(engine: str, version: str, folder: Path, name: str, kubeconfig: Path, port: int | None) -> None:
    """Start the containers of a cluster with a version of Kubernetes. Raises SteersmanError: it failed."""
    (folder / KWOK).mkdir(parents=True, exist_ok=True)
    configuration = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": {"kubeVersion": version},
    }
    content = json.dumps(configuration, indent=2) + "\n" + stages()  # JSON is YAML
    (folder / KWOK / "kwok.yaml").write_text(content, encoding="utf-8")
    command: list[str | Path] = ["kwokctl", "--name", name, "create", "cluster", "--runtime", engine]
    command += ["--kubeconfig", kubeconfig, "--disable-qps-limits", "--quiet-pull", "--wait", "300s"]
    if port is not None:
        command += ["--kube-apiserver-port", str(port)]
    run_kwokctl(command, folder)


def stop(folder: Path, name: str) -> None:
    """Remove the containers of a cluster. Raises SteersmanError: it failed."""
    run_kwokctl(["kwokctl", "--name", name, "delete", "cluster"], folder)


def _answers(engine: str) -> bool:
    try:
        done = subprocess.run([engine, "info"], capture_output=True, timeout=ANSWER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
