"""The wheel, installed into a fresh environment, works in an empty folder far from the checkout."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SIZE_LIMIT_BYTES = 220_000_000


def run(*command: str | Path, **options) -> subprocess.CompletedProcess[str]:
    """Run a command without any of pytest's or the checkout's Python settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= options.pop("env", {})
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=False, **options)


def must(*command: str | Path, **options) -> str:
    """Run a command that has to succeed and return what it printed."""
    done = run(*command, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that holds the wheel and its pinned base requirements."""
    folder = tmp_path_factory.mktemp("wheel")
    must(sys.executable, "-m", "website", cwd=CHECKOUT)
    must(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, CHECKOUT)
    (wheel,) = folder.glob("steersman-*.whl")
    must(sys.executable, "-m", "venv", folder / "venv")
    pip = (folder / "venv/bin/python", "-m", "pip", "--disable-pip-version-check")
    requirements = CHECKOUT / "requirements/base.txt"
    must(*pip, "install", "--quiet", "--require-hashes", "-r", requirements)
    must(*pip, "install", "--quiet", "--no-deps", wheel)
    must(*pip, "check")
    return folder / "venv"


@pytest.mark.integration
def test_demo_runs_far_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    # Every file that a process imports is named on standard error.
    environment = {"PYTHONVERBOSE": "1", "STEERSMAN_CACHE_DIR": str(tmp_path / "cache")}
    demo = run(installed / "bin/steersman", "demo", cwd=tmp_path, env=environment)
    own_lines = [line for line in demo.stderr.splitlines() if not line.startswith(("#", "import "))]
    assert demo.returncode == 0, "\n".join([demo.stdout, *own_lines])
    for name in ("results.csv", "report.html", "trained.safetensors", "advice/README.md", "advice/report.html"):
        assert (tmp_path / "steersman-demo" / name).stat().st_size > 0
    record = json.loads((tmp_path / "steersman-demo" / "advice" / "advice.json").read_text())
    assert demo.stdout.startswith(f"{record['advice']}\n  gain     ")
    (package,) = installed.glob("lib/python*/site-packages/steersman")
    assert str(package) in demo.stderr
    assert f"{CHECKOUT}{os.sep}" not in demo.stderr


@pytest.mark.integration
@pytest.mark.parametrize(
    "command",
    [
        "simulate --workload default --policy steersman --output run",
        "evaluate --workload gpushare40 --policy kube-default rules --seeds 2 --jobs 1 --output run",
        "evaluate --protocol latency --policy kube-default la --seeds 1 --jobs 1 --output run",
        "fit policy --workload default-small --generations 1 --output run.safetensors",
    ],
)
def test_first_commands_run(installed: Path, tmp_path: Path, command: str) -> None:
    must(installed / "bin/steersman", *command.split(), cwd=tmp_path)


@pytest.mark.integration
def test_wheel_contains_the_documentation(installed: Path, tmp_path: Path) -> None:
    page = Path(must(installed / "bin/steersman", "docs", "--no-open", cwd=tmp_path).strip())
    assert page.is_relative_to(installed)
    assert "<title>" in page.read_text()


@pytest.mark.integration
def test_wheel_installs_few_packages(installed: Path) -> None:
    (packages,) = installed.glob("lib/python*/site-packages")
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
    assert size < SIZE_LIMIT_BYTES, f"{size / 1e6:.0f} MB"
