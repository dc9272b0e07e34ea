"""compose.yaml and its image fit each other and this version; `make test-image` runs the image for real."""

from __future__ import annotations

import os
import re
from pathlib import Path

import yaml

import steersman

CHECKOUT = Path(__file__).parents[3]
DEPLOY = CHECKOUT / "deploy"
COMPOSE = yaml.safe_load((CHECKOUT / "compose.yaml").read_text())
WORKBENCH = COMPOSE["services"]["workbench"]
CONTAINERFILE = DEPLOY / "Containerfile"


def instructions(kind: str) -> list[str]:
    stage = CONTAINERFILE.read_text().split("AS workbench\n")[1]
    return re.findall(rf"^{kind} (.+)$", stage, re.M)


def test_compose_file_publishes_the_workbench_on_loopback_only() -> None:
    (included,) = COMPOSE["include"]
    assert WORKBENCH["depends_on"] == list(yaml.safe_load((CHECKOUT / included).read_text())["services"])
    assert (CHECKOUT / WORKBENCH["build"]["context"] / WORKBENCH["build"]["dockerfile"]).resolve() == CONTAINERFILE
    assert WORKBENCH["network_mode"] == "host"  # where all servers listen on 127.0.0.1
    assert "ports" not in WORKBENCH
    assert WORKBENCH["image"] == f"steersman-workbench:{steersman.__version__}"
    assert WORKBENCH["image"] in CONTAINERFILE.read_text()


def test_workbench_image_starts_unprivileged_in_the_tutorials() -> None:
    (entrypoint,) = re.findall(r'\["(.+)"\]', instructions("ENTRYPOINT")[0])
    (workdir,) = instructions("WORKDIR")
    assert os.access(CHECKOUT / entrypoint.removeprefix(f"{workdir}/"), os.X_OK)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", instructions("USER")[-1])
    (volume,) = WORKBENCH["volumes"]
    assert volume.split(":")[1] == f"{workdir}/docs/tutorials"


def test_the_start_script_waits_for_the_cluster_of_the_compose_file() -> None:
    script = (DEPLOY / "workbench" / "start.sh").read_text()
    assert "deploy/compose/kubeconfig.yaml" in script
    assert script.splitlines()[-1] == 'exec steersman workbench --kubeconfig "$kubeconfig" "$@"'
