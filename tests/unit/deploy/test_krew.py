"""kubectl steersman: the program by that name, and the krew plugin that launches it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from release import krew

from steersman.cli.main import main
from steersman.version import __version__

ROOT = Path(__file__).parents[3]
KREW = ROOT / "deploy" / "krew"
LAUNCHER = KREW / "kubectl-steersman"


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((KREW / "steersman.yaml").read_text())
    return content


def test_the_manifest_has_what_krew_requires(manifest: dict[str, Any]) -> None:
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert manifest["kind"] == "Plugin"
    assert manifest.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert manifest["metadata"] == {"name": "steersman"}, "krew wants the name of the file"
    spec = manifest["spec"]
    assert spec.keys() <= {"version", "homepage", "shortDescription", "description", "caveats", "platforms"}
    assert spec["version"] == f"v{__version__}"
    assert 0 < len(spec["shortDescription"]) <= 60
    (platform,) = spec["platforms"]
    assert platform.keys() == {"selector", "uri", "sha256", "files", "bin"}
    assert platform["uri"].startswith("https://")
    (expression,) = platform["selector"]["matchExpressions"]
    assert (expression["key"], expression["operator"]) == ("os", "In")
    assert set(expression["values"]) <= {"linux", "darwin", "windows"}
    assert re.fullmatch("[0-9a-f]{64}", platform["sha256"])
    assert platform["bin"] == "kubectl-steersman"


def test_archive_matches_the_manifest(manifest: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "new" / "plugin.zip"
    (platform,) = manifest["spec"]["platforms"]
    assert krew.write_archive(file) == platform["sha256"], "run make krew, and write its SHA-256 into the manifest"
    with zipfile.ZipFile(file) as archive:
        assert archive.namelist() == [each["from"] for each in platform["files"]]
        assert archive.read("kubectl-steersman") == LAUNCHER.read_bytes()
        assert archive.getinfo("kubectl-steersman").external_attr >> 16 == 0o100755


def test_manifest_of_a_release_has_address_and_digest(manifest: dict[str, Any]) -> None:
    made = yaml.safe_load(krew.manifest("https://example.com/v1/plugin.zip", "12ab"))
    (platform,) = manifest["spec"]["platforms"]
    platform |= {"uri": "https://example.com/v1/plugin.zip", "sha256": "12ab"}
    assert made == manifest


def launch(path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LAUNCHER, *arguments], env={"PATH": path}, capture_output=True, text=True, check=False)


def test_launcher_runs_steersman_or_prints_installation(tmp_path: Path) -> None:
    done = launch("/nowhere", "evaluate")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "pip install steersman" in done.stderr
    program = tmp_path / "steersman"
    program.write_text('#!/bin/sh\necho "$#:$*"\nexit 7\n')
    program.chmod(0o755)
    done = launch(f"{tmp_path}{os.pathsep}/bin", "policy", "show", "a b")
    assert (done.returncode, done.stdout, done.stderr) == (7, "3:policy show a b\n", "")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("cl",), ["cluster\tStart, inspect, empty and stop a local...", ":4"]),
        (("simulate", "--policy", "gpu-"), ["gpu-clustering", "gpu-packing", ":4"]),
        (("simulate", "--output", ""), [":0"]),
        (("simulate", "--output", "my files/it's"), [":0"]),
    ],
)
def test_kubectl_completes_steersman_commands(words: tuple[str, ...], offered: list[str]) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, function = scripts["kubectl_complete-steersman"].split(":")
    program = f"import sys; from {module} import {function} as run; sys.exit(run())"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert (done.stdout.splitlines(), done.stderr) == (offered, "")


def test_help_names_the_program_as_kubectl_does(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-steersman"] == scripts["steersman"]
    for program, usage in (("kubectl-steersman", "kubectl steersman"), ("steersman", "steersman")):
        monkeypatch.setattr(sys, "argv", [f"/usr/bin/{program}", "policy", "--help"])
        assert main() == 0
        assert f"Usage: {usage} policy" in capsys.readouterr().out
