"""schemathesis against the score service's own document: no 5xx, and every answer is as the document says."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

BIN = Path(sys.executable).parent
EXAMPLES = 15
# The document says less than the service knows: that a pod needs a container is no matter of its schema.
NOT_CHECKED = "positive_data_acceptance"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[str, str, Path]]:
    """URL, the header that lets us in, log."""
    log, config, token = (tmp_path / name for name in ("serve.log", "service.yaml", "token"))
    token.write_text("sesame")
    settings = "apiVersion: steersman.dev/v1alpha1\nkind: ScoreServiceConfiguration\n"
    settings += f"maxBodyBytes: 65536\ntokenFile: {token}\n"
    config.write_text(settings)
    command = [BIN / "steersman", "serve", "--no-watch", "--policy", "best-fit", "--port", "0", "--config", config]
    with log.open("w") as stream:
        process = subprocess.Popen([*command, "--log-format", "json"], stdout=stream, stderr=stream)
    try:
        end = time.monotonic() + 240
        while "listening" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        port = next(line["port"] for line in lines if line["event"] == "listening")
        yield f"http://127.0.0.1:{port}", "Authorization: Bearer sesame", log
    finally:
        process.terminate()
        process.wait(30)
    assert process.returncode == 143, log.read_text()


def test_service_conforms_to_its_openapi_document(service: tuple[str, str, Path], tmp_path: Path) -> None:
    url, header, log = service
    document = tmp_path / "openapi.json"
    asked = urllib.request.Request(f"{url}/openapi.json", headers=dict([header.split(": ")]))
    with urllib.request.urlopen(asked, timeout=20) as answer:
        document.write_bytes(answer.read())
    options = ["--url", url, "--max-examples", str(EXAMPLES), "--exclude-checks", NOT_CHECKED, "--seed", "1"]
    options += ["--header", header]
    done = subprocess.run(
        [BIN / "schemathesis", "run", document, *options, "--no-color"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-5000:] + log.read_text()[-2000:]
    assert "/v1/scores" in document.read_text()
    said = [line for line in log.read_text().splitlines() if line.startswith("{")]
    assert not [line for line in said if json.loads(line)["level"] in ("error", "critical")]
    assert "Traceback" not in log.read_text()
