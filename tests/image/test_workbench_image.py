"""The image of deploy/compose.yaml, made and started without a container engine: `make test-image`, not part of CI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from tests.e2e.conftest import STEERSMAN
from tests.e2e.workbench.test_workbench import status, without_token
from tests.image.containerfile import FreshRoot

from steersman.apps.local_cluster.control_plane import build

CHECKOUT = Path(__file__).parents[2]
PORT = 8080
FREE_PORTS = "--count 2 --jupyter-port 0 --tensorboard-port 0 --dashboard-port 0"


@pytest.fixture
def plain_cluster(tmp_path: Path) -> Iterator[None]:
    """A cluster whose API server answers without a user on port 8080, as KWOK's image does."""
    environment = os.environ | {"STEERSMAN_STATE_DIR": str(tmp_path / "state")}
    name = ("--name", "image")
    kubectl = build.programs(lambda *_: None, print) / "kubectl"
    subprocess.run([STEERSMAN, "cluster", "up", *name, "--count", "0"], env=environment, check=True, timeout=900)
    config = ("--kubeconfig", str(tmp_path / "state" / "clusters" / "image" / "kubeconfig"))
    try:
        with subprocess.Popen([kubectl, *config, "proxy", f"--port={PORT}"], stdout=subprocess.DEVNULL) as proxy:
            try:
                yield
            finally:
                proxy.terminate()
    finally:
        subprocess.run([STEERSMAN, "cluster", "down", *name], env=environment, check=True, timeout=120)


@contextmanager
def started(fresh: FreshRoot) -> Iterator[dict[str, str]]:
    """Run the container's command in the block; the addresses that it prints."""
    command = fresh.command(f"exec {' '.join(fresh.entrypoint)} {FREE_PORTS}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        addresses = dict[str, str]()
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                if found := re.match(r"(\w+): +(http://\S+)", line):
                    addresses[found[1]] = found[2]
                if line.startswith("Ctrl-C"):
                    break
            yield addresses
        finally:
            process.terminate()
            assert process.wait(120) == 143


@pytest.mark.usefixtures("plain_cluster")
def test_image_builds_and_its_workbench_responds(tmp_path: Path) -> None:
    service = yaml.safe_load((CHECKOUT / "deploy" / "compose.yaml").read_text())["services"]["workbench"]
    context = (CHECKOUT / "deploy" / service["build"]["context"]).resolve()
    fresh = FreshRoot(tmp_path / "root", context)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, fresh.root, ignore_errors=True)  # 7 GB
        fresh.follow(context / service["build"]["dockerfile"])
        assert fresh.user != "root"
        addresses = stack.enter_context(started(fresh))
        assert addresses.keys() == {"JupyterLab", "TensorBoard", "dashboard"}
        assert [status(address) for address in addresses.values()] == [200, 200, 200]
        base = addresses["JupyterLab"].split("/lab?")[0]
        assert status(f"{base}/api/contents") == 403
        assert status(without_token(addresses["dashboard"])) == 401
