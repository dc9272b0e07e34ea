"""What `steersman explain` loads, whose choice it explains, and that it leaves the process as it found it."""

import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from steersman.cli.main import main

NEEDLESS = ("aiohttp", "prometheus_client", "structlog", "torch", "plotly")
"""Packages that explaining files has no use for, and that take a tenth of a second or more to load."""


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A node, and a pod that fits on it."""
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "9"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": amounts}}
    spec = {"containers": [{"name": "x", "resources": {"requests": {"cpu": "1"}}}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": spec}
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([node, pod]))
    return str(path)


def test_explain_imports_no_server_modules(file: str) -> None:
    program = (
        "import sys; from steersman.cli.main import main\n"
        f"assert main(['explain', '--pod', 'p', '--nodes', {file!r}, '--pods', {file!r}]) == 0\n"
        f"print('needless:', [name for name in {NEEDLESS} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "places p on n" in done.stdout
    assert "needless: []" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(("pod", "status"), [("p", 0), ("nobody", 1)])
@pytest.mark.parametrize("is_enabled", [True, False])
def test_garbage_collector_settings_are_restored(file: str, pod: str, status: int, is_enabled: bool) -> None:
    try:
        if not is_enabled:
            gc.disable()
        assert main(["explain", "--pod", pod, "--policy", "best-fit", "--nodes", file, "--pods", file]) == status
        assert gc.isenabled() is is_enabled
    finally:
        gc.enable()


def test_explained_member_equals_the_prepared_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On this cluster one draw favours another member than all 32."""
    drawn = tmp_path / "drawn"
    assert main(["workload", "random", "--seed", "77", "--nodes", "20-300", "--output", str(drawn)]) == 0
    files = ["--nodes", str(drawn / "nodes.yaml"), "--pods", str(drawn / "pods.yaml")]
    capsys.readouterr()
    assert main(["fit", "policy", "--policy", "steersman", *files, "--output", str(tmp_path / "p.safetensors")]) == 0
    prepared = capsys.readouterr().err
    name = next(each["metadata"]["name"] for each in yaml.safe_load_all((drawn / "pods.yaml").read_text()))
    assert main(["explain", "--pod", name, *files, "--format", "json"]) == 0
    member = json.loads(capsys.readouterr().out)["member"]
    assert member
    assert f"{member} decides: " in prepared
