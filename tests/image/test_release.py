"""The release of `make release`, published to a registry and an index on loopback, and installed from there."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.e2e.conftest import until
from tests.image.registry import CHECKOUT, LAYOUTS, PASSWORD, answers, digest, free_port, keys, registry, tool

import steersman

__all__ = ["keys", "registry"]

RELEASE = CHECKOUT / "dist" / steersman.__version__
pytestmark = pytest.mark.skipif(not RELEASE.is_dir(), reason="no release is built (make release)")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An empty package index on loopback, and its folder."""
    folder, port = tmp_path / "index", free_port()
    folder.mkdir()
    command = [sys.executable, "-m", "uv", "tool", "run", "--from=pypiserver", "pypi-server", "run"]
    command += ["--interface=127.0.0.1", f"--port={port}", "--passwords=.", "--authenticate=.", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: answers(f"http://127.0.0.1:{port}/simple/"), 120)
            yield f"http://127.0.0.1:{port}", folder
        finally:
            process.terminate()


def test_checksums_are_those_of_the_files() -> None:
    lines = dict(reversed(line.split("  ")) for line in (RELEASE / "SHA256SUMS").read_text().splitlines())
    assert lines.keys() == {each.name for each in RELEASE.iterdir()} - {"SHA256SUMS", "SHA256SUMS.sigstore.json"}
    for name, expected in lines.items():
        assert hashlib.sha256((RELEASE / name).read_bytes()).hexdigest() == expected


def test_published_release_is_found_where_users_look(
    registry: str, keys: Path, index: tuple[str, Path], tmp_path: Path
) -> None:
    address, folder = index
    key, team = keys / "cosign.pub", f"{registry}/team"
    command = [sys.executable, "-m", "release", "push", "--registry", team, "--key", str(keys / "cosign.key")]
    command += ["--package-index", address]
    given = PASSWORD | {"UV_PUBLISH_USERNAME": "a", "UV_PUBLISH_PASSWORD": "b"}
    tool(*command, **given)

    for line in (RELEASE / "images.txt").read_text().splitlines():
        name, reference, expected = line.split()
        assert tool("crane", "digest", f"{team}/{reference}") == expected == digest(LAYOUTS / name)
    chart = f"{team}/charts/steersman:{steersman.__version__}"
    tool("cosign", "verify", f"--key={key}", "--insecure-ignore-tlog=true", chart)
    tool("helm", "pull", f"oci://{team}/charts/steersman", "--plain-http", "--untar", f"--destination={tmp_path}")
    assert yaml.safe_load((tmp_path / "steersman/Chart.yaml").read_text())["version"] == steersman.__version__
    bundle = f"--bundle={RELEASE / 'SHA256SUMS.sigstore.json'}"
    tool("cosign", "verify-blob", f"--key={key}", bundle, "--insecure-ignore-tlog=true", RELEASE / "SHA256SUMS")
    packages = {each.name for each in RELEASE.iterdir() if each.name.endswith((".whl", ".tar.gz"))}
    assert {each.name for each in folder.iterdir()} == packages
    simple = ("--no-deps", "--index-url", f"{address}/simple/", "--dest", str(tmp_path), "steersman")
    tool(sys.executable, "-m", "pip", "download", *simple)
    assert list(tmp_path.glob("steersman-*.whl"))
