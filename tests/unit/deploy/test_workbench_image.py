"""deploy/compose.yaml and its image fit each other and this version; `make test-image` makes the image for real."""

from __future__ import annotations

import os
import re
from pathlib import Path

import yaml

import steersman

CHECKOUT = Path(__file__).parents[3]
DEPLOY = CHECKOUT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
WORKBENCH = COMPOSE["services"]["workbench"]
CONTAINERFILE = CHECKOUT / "deploy" / "workbench" / "Containerfile"


def instructions(kind: str) -> list[str]:
    return re.findall(rf"^{kind} (.+)$", CONTAINERFILE.read_text(), re.M)


def test_compose_file_publishes_the_workbench_on_loopback_only() -> None:
    (included,) = COMPOSE["include"]
    assert WORKBENCH["depends_on"] == list(yaml.safe_load((DEPLOY / included).read_text())["services"])
    assert (DEPLOY / WORKBENCH["build"]["context"] / WORKBENCH["build"]["dockerfile"]).resolve() == CONTAINERFILE
    assert WORKBENCH["network_mode"] == "host"  # where all servers listen on 127.0.0.1
    assert "ports" not in WORKBENCH
    assert WORKBENCH["image"] == f"steersman-workbench:{steersman.__version__}"
    assert WORKBENCH["image"] in CONTAINERFILE.read_text()


def test_image_copies_existing_files_and_runs_unprivileged() -> None:
    sources = [name for line in instructions("COPY") for name in line.split()[:-1]]
    assert [name for name in sources if not (CHECKOUT / name).exists()] == []
    (entrypoint,) = re.findall(r'\["(.+)"\]', instructions("ENTRYPOINT")[0])
    scripts = [entrypoint, *(run for run in instructions("RUN") if run.startswith("deploy/"))]
    assert [script for script in scripts if not os.access(CHECKOUT / script, os.X_OK)] == []
    assert instructions("USER") == ["steersman"]
    (volume,) = WORKBENCH["volumes"]
    assert volume.split(":")[1] == f"{instructions('WORKDIR')[0]}/docs/tutorials"


def test_the_start_script_waits_for_the_cluster_of_the_compose_file() -> None:
    script = (DEPLOY / "workbench" / "start.sh").read_text()
    assert "deploy/compose/kubeconfig.yaml" in script
    assert script.splitlines()[-1] == 'exec .venv/bin/steersman workbench --kubeconfig "$kubeconfig" "$@"'
