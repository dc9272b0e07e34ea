"""The images of `make images`, run as containers without an engine: `make test-image`, not part of CI."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from release.images import ARCHITECTURES, IMAGES, created, layout_name
from release.tools import source_date
from tests.e2e.conftest import STEERSMAN, until
from tests.e2e.workbench.test_workbench import status, without_token
from tests.image.container import Container
from tests.image.registry import CHECKOUT, LAYOUTS, answers, digest, free_port, keys, registry, tool

import steersman
from steersman.live.local_cluster.control_plane import build

__all__ = ["keys", "registry"]

KUBECONFIG = CHECKOUT / "deploy" / "compose" / "kubeconfig.yaml"
PORT = 8080
"""The port of the API server in that file."""
FREE_PORTS = ("--count", "2", "--jupyter-port", "0", "--tensorboard-port", "0", "--dashboard-port", "0")
SIMULATE = "steersman simulate --workload default-small --policy {policy} --output /tmp/{policy}"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "placed"},
    "spec": {"schedulerName": "steersman", "containers": [{"name": "main", "image": "pause"}]},
}


def images(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run release.images, whatever it ends with."""
    command = ["python3", "-m", "release.images", *words]
    return subprocess.run(
        command, cwd=CHECKOUT, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=3000
    )


@contextmanager
def unpacked(name: str, folder: Path, tag: str = steersman.__version__) -> Iterator[Container]:
    """An image, unpacked in the block."""
    if not (LAYOUTS / name).exists():
        pytest.skip(f"{name} is not built")
    bundle = folder / name
    try:
        container = Container.unpack(LAYOUTS / name, tag, bundle)
        assert container.user > 0
        yield container
    finally:
        shutil.rmtree(bundle, ignore_errors=True)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """The image `steersman`."""
    with unpacked("steersman", tmp_path_factory.mktemp("commands")) as container:
        yield container


@pytest.fixture
def plain_cluster(tmp_path: Path) -> Iterator[Path]:
    """A cluster whose API server answers without a user on port 8080, as KWOK's image does; its kubectl."""
    environment = os.environ | {"STEERSMAN_STATE_DIR": str(tmp_path / "state")}
    name = ("--name", "image")
    kubectl = build.programs(lambda *_: None, print) / "kubectl"
    # The workbench adds nodes with the usual names.
    up = [STEERSMAN, "cluster", "up", *name, "--node-shape", "kept=8cpu,32Gi,110pods:2"]
    subprocess.run(up, env=environment, check=True, timeout=900)
    config = ("--kubeconfig", str(tmp_path / "state" / "clusters" / "image" / "kubeconfig"))
    try:
        with subprocess.Popen([kubectl, *config, "proxy", f"--port={PORT}"], stdout=subprocess.DEVNULL) as proxy:
            try:
                until(lambda: answers(f"http://127.0.0.1:{PORT}/readyz"))
                yield kubectl
            finally:
                proxy.terminate()
    finally:
        subprocess.run([STEERSMAN, "cluster", "down", *name], env=environment, check=True, timeout=120)


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a container in the block."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()


def test_image_prints_its_version(commands: Container) -> None:
    assert commands.run("--version").startswith(f"steersman {steersman.__version__}\ncore native ")


def test_simulation_runs_on_a_read_only_root(commands: Container) -> None:
    start = time.monotonic()
    commands.run(*SIMULATE.format(policy="fgd").split()[1:])
    print(f"simulate: {time.monotonic() - start:.1f} s")
    with pytest.raises(AssertionError, match="Read-only file system"):
        commands.run("touch /opt/steersman/file", entrypoint=("sh", "-c"))


def test_service_answers_on_loopback(commands: Container) -> None:
    port = free_port()
    start = time.monotonic()
    with running(commands.command("serve", "--policy", "fgd", "--no-watch", "--port", str(port))):
        until(lambda: answers(f"http://127.0.0.1:{port}/healthz"))
        print(f"serve: {time.monotonic() - start:.1f} s")


def test_scheduler_binds_a_pod(commands: Container, plain_cluster: Path) -> None:
    kubectl = (plain_cluster, "--server", f"http://127.0.0.1:{PORT}")
    subprocess.run([*kubectl, "create", "-f", "-"], input=json.dumps(POD), text=True, check=True, timeout=60)
    words = ("schedule", "--policy", "fgd", "--kubeconfig", "/tmp/kubeconfig")
    node = [*kubectl, "get", "pod", "placed", "-o", "jsonpath={.spec.nodeName}"]
    with running(commands.command(*words, mounts={KUBECONFIG: "/tmp/kubeconfig"})):
        until(lambda: subprocess.run(node, capture_output=True, check=True, timeout=60).stdout)


def test_image_of_arm64_simulates(tmp_path: Path) -> None:
    with unpacked("steersman-arm64", tmp_path) as container:
        machine = container.run("-c", "import platform; print(platform.machine())", entrypoint=("python",))
        assert machine == "aarch64\n"
        start = time.monotonic()
        container.run(*SIMULATE.format(policy="fgd").split()[1:], seconds=3000)
        print(f"simulate: {time.monotonic() - start:.0f} s")


@pytest.mark.parametrize("layout", sorted(layout_name(name, "arm64") for name in IMAGES if IMAGES[name].only_copies))
def test_kube_scheduler_of_arm64_prints_kubernetes_version(layout: str, tmp_path: Path) -> None:
    name = layout.removesuffix("-arm64")
    with unpacked(layout, tmp_path, IMAGES[name].tag) as container:
        minor = re.escape(name.removeprefix("steersman-kube-scheduler").removeprefix("-") or "1.")
        assert re.match(rf"Kubernetes v{minor}", container.run("--version"))


def test_kube_scheduler_prints_kubernetes_version(tmp_path: Path) -> None:
    with unpacked("steersman-kube-scheduler", tmp_path) as container:
        assert re.fullmatch(r"Kubernetes v1\.\d+\.\d+\n", container.run("--version"))


def test_learning_image_trains(tmp_path: Path) -> None:
    with unpacked("steersman-learn", tmp_path) as container:
        options = ("--algorithm", "ppo", "--iterations", "1", "--jobs", "1")
        container.run("train", "--workload", "default-small", *options, "--output", "/tmp/run")


@pytest.mark.usefixtures("plain_cluster")
def test_workbench_responds(tmp_path: Path) -> None:
    with unpacked("steersman-workbench", tmp_path) as container, running(container.command(*FREE_PORTS)) as process:
        assert process.stdout is not None
        addresses = dict[str, str]()
        for line in process.stdout:
            print(line, end="", flush=True)
            if found := re.match(r"(\w+): +(http://\S+)", line):
                addresses[found[1]] = found[2]
            if line.startswith("Ctrl-C"):
                break
        assert addresses.keys() == {"JupyterLab", "TensorBoard", "dashboard"}
        assert [status(address) for address in addresses.values()] == [200, 200, 200]
        base = addresses["JupyterLab"].split("/lab?")[0]
        assert status(f"{base}/api/contents") == 403
        assert status(without_token(addresses["dashboard"])) == 401


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", IMAGES)
def test_second_build_has_the_same_digest(name: str, architecture: str, tmp_path: Path) -> None:
    layout = layout_name(name, architecture)
    if not (LAYOUTS / layout).exists():
        pytest.skip(f"{layout} is not built")
    date = datetime.fromisoformat(created(LAYOUTS / layout)).timestamp()
    assert date == source_date(), f"{layout} is of another commit; build it again"
    try:
        done = images("build", name, "--output", tmp_path, "--architecture", architecture)
        assert done.returncode == 0, done.stderr
        assert digest(tmp_path / layout) == digest(LAYOUTS / layout)
    finally:
        shutil.rmtree(tmp_path / layout, ignore_errors=True)


def test_image_of_both_architectures_is_an_index(registry: str, keys: Path) -> None:
    name = "steersman-kube-scheduler"
    if not (LAYOUTS / f"{name}-arm64").exists():
        pytest.skip(f"{name}-arm64 is not built")
    pushed = images(
        "push", name, "--registry", f"{registry}/team", "--key", keys / "cosign.key", COSIGN_PASSWORD="secret"
    )
    assert pushed.returncode == 0, pushed.stderr
    place = f"{registry}/team/{name}"
    checked = (f"--key={keys / 'cosign.pub'}", "--insecure-ignore-tlog=true")
    tool("cosign", "verify", *checked, f"{place}:{steersman.__version__}")
    for architecture in ARCHITECTURES:
        reference = (f"--platform=linux/{architecture}", f"{place}:{steersman.__version__}")
        expected = digest(LAYOUTS / layout_name(name, architecture))
        assert tool("crane", "digest", *reference) == expected
        tool("cosign", "verify", *checked, f"{place}@{expected}")
        tool("cosign", "verify-attestation", "--type=spdxjson", *checked, f"{place}@{expected}")


def test_pushed_image_is_signed_and_pulled_alike(registry: str, keys: Path, tmp_path: Path) -> None:
    name = "steersman-kube-scheduler"
    (tmp_path / "alone").mkdir()
    for built in (name, f"{name}.spdx.json"):
        (tmp_path / "alone" / built).symlink_to(LAYOUTS / built)
    options = ("--output", tmp_path / "alone", "--registry", f"{registry}/team", "--key", keys / "cosign.key")
    done = images("push", name, *options, COSIGN_PASSWORD="secret")
    assert done.returncode == 0, done.stderr
    reference = f"{registry}/team/{name}:{steersman.__version__}"
    assert tool("crane", "digest", reference) == digest(LAYOUTS / name)
    checked = (f"--key={keys / 'cosign.pub'}", "--insecure-ignore-tlog=true", reference)
    tool("cosign", "verify", *checked)
    tool("cosign", "verify-attestation", "--type=spdxjson", *checked)
    tool("crane", "pull", "--format=oci", reference, tmp_path / "pulled")
    assert digest(tmp_path / "pulled") == digest(LAYOUTS / name)


def test_push_to_nowhere_is_one_line(keys: Path) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    key = ("--key", keys / "cosign.key")
    done = images("push", "steersman-kube-scheduler", "--registry", nowhere, *key, COSIGN_PASSWORD="secret")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"error: {nowhere} .*refused.*\n", done.stderr), done.stderr
