"""What the tests of images and releases share: the tools of a release, a registry and a key of their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.e2e.conftest import until

CHECKOUT = Path(__file__).parents[2]
TOOLS = CHECKOUT / "build" / "tools"
LAYOUTS = CHECKOUT / "build" / "images"
PASSWORD = {"COSIGN_PASSWORD": "secret"}


def tool(*words: str | Path, **environment: str) -> str:
    """Run one of the tools of `make release-tools`, which has to succeed; what it printed."""
    command = [TOOLS / words[0], *words[1:]]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def digest(layout: Path) -> str:
    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    found: str = entry["digest"]
    return found


def answers(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=5) as response:
        return int(response.status) == 200
    return False


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """An empty registry on loopback."""
    port = free_port()
    command = [TOOLS / "crane", "registry", "serve", "--address", f"127.0.0.1:{port}", "--disk", tmp_path]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: answers(f"http://127.0.0.1:{port}/v2/"))
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with cosign.key and cosign.pub."""
    tool("cosign", "generate-key-pair", f"--output-key-prefix={tmp_path / 'cosign'}", COSIGN_PASSWORD="secret")
    return tmp_path
