"""Without an optional package every command and function that needs it ends in one line that names the extra."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from steersman.core.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "steersman"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAMES = {"pyyaml": "yaml", "prometheus-client": "prometheus_client", "torch-geometric": "torch_geometric"}
BROUGHT_BY = {"grpc": "tensorboard", "sqlalchemy": "optuna"}  # packages that come with one of an extra
FRAMES = {"pandas", "polars"}  # a user takes either, and no feature of a command needs one
BLOCKED = """
import sys

class Blocker:
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{fullname!r}}", name=fullname)

sys.meta_path.insert(0, Blocker())
"""
COMMAND = "from steersman.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
CALL = """
import steersman
from steersman.core.errors import SteersmanError
try:
    steersman.{}
except SteersmanError as error:
    sys.exit(f"{{type(error).__name__}}: {{error}}")
"""
DQN = ["train", "--workload", "default-small", "--output", "run", "--iterations", "1", "--algorithm"]
TUNE = ["tune", "--workload", "default-small", "--output", "run", "--trials", "1"]
BOUND = ["evaluate", "--workload", "default-small", "--policy", "fgd", "--seeds", "1", "--output", "run", "--bound"]
RAY = ["--engine", "ray", "--jobs", "1"]


def run(missing: set[str], code: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = folder / "blocked.py"
    script.write_text(BLOCKED.format(names=missing) + code)
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    return subprocess.run(
        [sys.executable, str(script), *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


def requirements(group: list[str]) -> set[str]:
    names = {re.split(r"[\[><=]", each)[0] for each in group} - {"steersman"}
    return {NAMES.get(name, name) for name in names}


def imports() -> set[str]:
    """The packages that the sources import, but for our own and those of Python."""
    found = set()
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"steersman"}


def test_every_optional_import_has_an_extra_that_installs_it() -> None:
    optional = PROJECT["optional-dependencies"]
    assert imports() - requirements(PROJECT["dependencies"]) <= EXTRAS.keys() | FRAMES
    for package, extra in EXTRAS.items():
        if package in BROUGHT_BY:
            assert any(each.lower().startswith(package) for each in metadata.requires(BROUGHT_BY[package]) or ())
        assert BROUGHT_BY.get(package, package) in requirements(optional[extra]), package


@pytest.mark.parametrize(
    ("missing", "extra", "command"),
    [
        *(("torch", "train", [*DQN, name]) for name in ("dqn", "ppo", "actor-critic", "imitation")),
        ("torch", "train", [*DQN, "dqn", "--network", "gnn"]),
        ("torch", "train", [*TUNE, "--algorithm", "ppo"]),
        ("torch_geometric", "graph", [*DQN, "dqn", "--network", "gnn"]),
        ("optuna", "train", TUNE),
        ("plotly", "train", TUNE),
        ("scipy", "report", BOUND),
        ("ray", "ray", [*BOUND[:-1], *RAY]),
        ("ray", "ray", [*DQN[:-1], *RAY]),
        ("jupyterlab", "workbench", ["workbench"]),
        ("ipykernel", "workbench", ["workbench"]),
        ("tensorboard", "workbench", ["workbench"]),
    ],
    ids=lambda each: " ".join(each[:1] + each[-2:]) if isinstance(each, list) else each,
)
def test_command_without_a_package_names_the_extra(
    missing: str, extra: str, command: list[str], tmp_path: Path
) -> None:
    result = run({missing}, COMMAND, *command, folder=tmp_path)
    last = result.stderr.splitlines()[-1]
    assert (result.returncode, result.stdout) == (1, "")
    assert last.startswith("error: ")
    assert f"the extra '{extra}'" in last
    assert re.search(rf"pip install '[^']*\[{extra}\]", last)
    assert not re.search("bug|Traceback|No module", result.stderr)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("missing", "extra", "call"),
    [
        ("torch", "train", "train('default-small', 'run', algorithm='ppo', iterations=1)"),
        ("optuna", "train", "tune('default-small', 'run', trials=1)"),
        ("plotly", "train", "tune('default-small', 'run', trials=1)"),
        ("scipy", "report", "evaluate('default-small', ['fgd'], seeds=1, bound=True)"),
        ("ray", "ray", "use_engine('ray').__enter__()"),
    ],
)
def test_function_without_a_package_names_the_extra(missing: str, extra: str, call: str, tmp_path: Path) -> None:
    result = run({missing}, CALL.format(call), folder=tmp_path)
    assert result.returncode == 1, result
    assert re.fullmatch(rf"MissingExtraError: .* needs the extra '{extra}': .*\n", result.stderr)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("missing", [{"torch", "torch_geometric"}, {"tensorboard"}, set(EXTRAS) | FRAMES])
def test_evolution_needs_no_extra(missing: set[str], tmp_path: Path) -> None:
    command = [
        "train",
        "--protocol",
        "deployments",
        "--node-count",
        "4",
        "--output",
        "run",
        "--iterations",
        "1",
        "--population",
        "4",
    ]
    result = run(missing, COMMAND, *command, folder=tmp_path)
    assert (result.returncode, "error" in result.stderr) == (0, False), result.stderr
    assert (tmp_path / "run" / "policy.safetensors").exists()


def test_frame_without_pandas_and_polars_names_both(tmp_path: Path) -> None:
    code = "import sys\nfrom steersman.core.extras import to_frame\nfrom steersman.core.errors import SteersmanError\n"
    code += "try:\n    to_frame({'a': [1]})\nexcept SteersmanError as error:\n    sys.exit(str(error))\n"
    result = run(FRAMES, code, folder=tmp_path)
    assert result.stderr == "a data frame needs pandas or polars; install one of them with pip\n"
